"""The application that streams to several storage systems at once; one argument, a JSON file.

Its `settings` are settings of Spark, and `master` is its address. Each of `streams` has an `input` (a directory of JSON
files), an `output`, a `checkpoint`, and `options`. The application ends after the last input file.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tests.cluster.job import end_with_parent

__all__ = ()


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    threading.Thread(target=end_with_parent, daemon=True).start()
    builder = SparkSession.builder.master(job["master"])
    for name, value in job["settings"].items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    queries = []
    for stream in job["streams"]:
        writer = spark.readStream.schema("id long, text string").json(stream["input"]).writeStream.format("ftfile")
        writer = writer.options(**stream["options"]).trigger(availableNow=True)
        queries.append(writer.option("checkpointLocation", stream["checkpoint"]).start(stream["output"]))
    while queries:
        for query in [query for query in queries if not query.isActive]:
            query.awaitTermination()  # raises the error of a failed query while others are held
            queries.remove(query)
        time.sleep(0.1)
    spark.stop()


if __name__ == "__main__":
    main()
