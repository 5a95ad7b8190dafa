"""A client of a Connect server that runs elsewhere: it starts a stream on the server, and ends after the last file.

It is started as a script with one argument, a JSON file: `remote` (the URL of the server), `input`, `output`,
`checkpoint` and `options`.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.demos.files.application import begin

__all__ = ()


def main() -> None:
    job = begin()
    spark = SparkSession.builder.remote(job["remote"]).getOrCreate()
    # Each file is a batch.
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(job["input"])
    writer = frame.writeStream.format("ftfile").options(**job["options"]).trigger(availableNow=True)
    writer.option("checkpointLocation", job["checkpoint"]).start(job["output"]).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
