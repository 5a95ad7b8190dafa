"""The Spark application that is killed in the middle of a stream from a script.

Started as a script with one argument, a JSON file: `paths` (`out`, `checkpoint`, `script`), `batches` (how many of the
script are run), `options`, and `home`, for what Spark keeps, its log of events among it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.scripted_source import Script, ScriptedSource, run

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
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", Path(home, "events").as_uri())
        .config("spark.eventLog.enabled", "true")
        .config("spark.local.dir", f"{home}/scratch")
        .config("spark.sql.warehouse.dir", f"{home}/warehouse")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.dataSource.register(ScriptedSource)
    script = Script(Path(job["paths"]["script"]))
    run(spark, job["paths"], script, job["batches"], **job["options"])


def _end_with_parent() -> None:
    """Leave at once when the test is gone: its end of our standard input closes with it."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
