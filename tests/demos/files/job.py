"""The Spark application that is killed: it streams the input files into every target, as users do.

It is started as a script with one argument, a JSON file: ``input``, ``schema``, ``files_per_batch``, ``scratch``,
``task_attempts``, ``targets``. After the streams have ended, it reads every target with Spark and writes the rows for a
count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.demos.files.application import begin, build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ()

SETTINGS = {
    "spark.sql.files.openCostInBytes": "1m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


def main() -> None:
    """Stream all input into every target at the same time, then read it back."""
    job = begin()
    spark = build_session(job["scratch"], SETTINGS, memory="1g", task_attempts=job["task_attempts"])
    queries = [start_query(spark, job, target) for target in job["targets"]]
    for query in queries:
        query.awaitTermination()
    for target in job["targets"]:
        read_back(spark, job["schema"], target)
    spark.stop()


def start_query(spark: SparkSession, job: dict[str, Any], target: dict[str, Any]) -> StreamingQuery:
    """Start the stream of one target. It ends after the last input file."""
    flights = (
        spark.readStream.schema(job["schema"])
        .option("maxFilesPerTrigger", job["files_per_batch"])
        .parquet(job["input"])
    )
    writer = flights.writeStream.queryName(target["name"]).trigger(availableNow=True)
    writer = writer.option("path", target["output"]).option("checkpointLocation", target["checkpoint"])
    if target["sink"] == "ftfile":
        writer = writer.format("ftfile").option("fileFormat", target["file_format"])
        if target["partition_by"]:
            writer = writer.option("partitionBy", target["partition_by"])
        return writer.start()
    writer = writer.format(target["file_format"])
    if target["partition_by"]:
        writer = writer.partitionBy(target["partition_by"])
    return writer.start()


def read_back(spark: SparkSession, schema: str, target: dict[str, Any]) -> None:
    """Write the rows that Spark reads in the target's directory as plain Parquet, for the independent count."""
    reader = spark.read.format("ftfile" if target["sink"] == "ftfile" else target["file_format"])
    if target["sink"] != "ftfile":
        reader = reader.schema(schema)
    reader.load(target["output"]).coalesce(1).write.parquet(target["read_back"])


if __name__ == "__main__":
    main()
