"""The application: Kafka to files, as in docs/kafka.md. It ends when it is stopped and has read every record.

It is started as a script with one argument, a JSON file: `master`, `settings` of Spark, `source` and `sink` (options),
`output`, and the path `stop`. Once this path exists, the stream reads the remaining records of Kafka and ends.
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
    """Stream until the file `stop` exists, then to the end of Kafka's records."""
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
    """Exit at once when the demonstration has ended, which closes our standard input."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
