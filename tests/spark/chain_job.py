"""The Spark application of a chain: a query writes a directory, and another query follows it and writes the next.

It is started as a script with one argument, a JSON file: `input` (a directory of JSON files), `middle`, `end`,
`checkpoints` (of `first` and `second`), `options` (of the writer of each, and of `reader`), and `scratch`. A query that
fails is reported and restarted. The application runs until it is killed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.demos.files.application import begin, build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ()

SCHEMA = "id long, k string"
# As on a cluster: a task that loses its worker is retried.
TASK_ATTEMPTS = 4


def main() -> None:
    job = begin()
    settings = {
        "spark.sql.files.openCostInBytes": "1m",
        "spark.sql.shuffle.partitions": "2",
        # With the defaults, half of all closes by Hadoop's client wait 400 ms, also for checkpoints on HDFS.
        "spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
        "spark.hadoop.dfs.client.block.write.locateFollowingBlock.max.delay.ms": "100",
        "spark.hadoop.dfs.client.block.write.locateFollowingBlock.retries": "3000",
    }
    spark = build_session(job["scratch"], settings, task_attempts=TASK_ATTEMPTS)
    starts = {"first": start_first, "second": start_second}
    queries: dict[str, StreamingQuery] = {}
    while True:
        for name, start in starts.items():
            if name in queries and queries[name].isActive:
                continue
            if name in queries:
                print(f"{name} has failed: {queries.pop(name).exception()}", flush=True)
            try:
                queries[name] = start(spark, job)
            except Exception as error:  # if a planner was killed
                print(f"{name} did not start: {error}", flush=True)
        time.sleep(0.05)


def start_first(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(job["input"])
    writer = frame.writeStream.format("ftfile").options(**job["options"]["first"])
    return writer.option("checkpointLocation", job["checkpoints"]["first"]).start(job["middle"])


def start_second(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    frame = spark.readStream.format("ftfile").schema(SCHEMA).options(**job["options"]["reader"]).load(job["middle"])
    writer = frame.writeStream.format("ftfile").options(**job["options"]["second"])
    return writer.option("checkpointLocation", job["checkpoints"]["second"]).start(job["end"])


if __name__ == "__main__":
    main()
