"""The Spark application that gets killed: two streams into one directory, with files that stay open over batches.

Started as a script with one argument, a JSON file: `input` (of each query a directory of JSON files), `checkpoints`,
`options` (of each query), `output`, `scratch`. It ends when both inputs are used up.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ()

SCHEMA = "id long, k string, name string"


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Quick to start on two cores, many times over.
    java_options = f"-Djava.io.tmpdir={job['scratch']} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.local.dir", job["scratch"])
        .config("spark.sql.files.openCostInBytes", "1m")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.warehouse.dir", f"{job['scratch']}/warehouse")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    queries = []
    for name, options in job["options"].items():
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(job["input"][name])
        if name == "b":
            frame = frame.repartition("name")  # an exchange, so that AQE says how many tasks a batch has
        writer = frame.writeStream.format("ftfile").queryName(name).trigger(availableNow=True).options(**options)
        queries.append(writer.option("checkpointLocation", job["checkpoints"][name]).start(job["output"]))
    for query in queries:
        query.awaitTermination()
    spark.stop()


def _end_with_parent() -> None:
    """Leave at once when the test is gone: its end of our standard input closes with it."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
