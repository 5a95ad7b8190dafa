"""The application: Kafka to files, as docs/kafka.md has it; it ends once it is asked to and has read everything.

Started as a script with one argument, a JSON file: `master`, `settings` of Spark, `source` and `sink` (options),
`output`, and `stop`, a path: when a file is there, the stream reads what Kafka has, and ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

import ftfile.spark

__all__ = ()

COLUMNS = ("topic", "partition", "offset", "timestamp", "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
POLL_S = 0.2


def main() -> None:
    """Stream until there is a file `stop`, then to the end of what Kafka has."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    builder = SparkSession.builder.master(job["master"]).appName("kafka")
    for name, value in job["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    ftfile.spark.attach(spark)
    records = spark.readStream.format("kafka").options(**job["source"]).load()
    writer = records.selectExpr(*COLUMNS).writeStream.format("ftfile").options(**job["sink"])
    query = writer.trigger(processingTime="500 milliseconds").start(job["output"])
    stop = Path(job["stop"])
    while not stop.exists():
        query.awaitTermination(POLL_S)  # type: ignore[arg-type] # Spark takes floats
        if not query.isActive:
            break
    query.processAllAvailable()
    query.stop()
    spark.stop()


def _end_with_parent() -> None:
    """Leave at once when the demonstration is gone: its end of our standard input closes with it."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
