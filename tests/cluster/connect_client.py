"""A client of a Connect server that runs elsewhere: it starts a stream on the server.

It is started as a script with one argument, a JSON file: `remote` (the URL of the server), `input`, `output`,
`checkpoint`, `options`, and `end`: once this file exists, the client ends after the last batch.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.demos.files.application import begin

__all__ = ()

POLL_S = 1


def main() -> None:
    job = begin()
    spark = SparkSession.builder.remote(job["remote"]).getOrCreate()
    # Each file is a batch.
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(job["input"])
    writer = frame.writeStream.format("ftfile").options(**job["options"])
    query = writer.option("checkpointLocation", job["checkpoint"]).start(job["output"])
    while not query.awaitTermination(POLL_S):
        if Path(job["end"]).exists():
            query.processAllAvailable()
            query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
