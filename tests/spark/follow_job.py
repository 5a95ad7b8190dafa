"""The Spark application that follows a directory until it is killed.

Started as a script with one argument, a JSON file: `source`, `out`, `checkpoint`, and `home` for what Spark keeps.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ()


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    home = job["home"]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.local.dir", f"{home}/scratch")
        .config("spark.sql.warehouse.dir", f"{home}/warehouse")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    reader = spark.readStream.format("ftfile").option("maxFilesPerTrigger", "1")
    writer = reader.load(job["source"]).writeStream.format("ftfile").option("fileFormat", "json")
    writer = writer.option("maxBatchesPerFile", "3").option("checkpointLocation", job["checkpoint"])
    writer.start(job["out"]).awaitTermination()


def _end_with_parent() -> None:
    """Leave at once when the test is gone: its end of our standard input closes with it."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
