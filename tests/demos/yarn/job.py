"""The application on YARN: a stream of the lines of files to ftfile, and a stream of their words to ftkv.

Its arguments are the URLs of the text, of the directory, of the store and of the checkpoints, and a local file. It
ends after the last line when this file exists. It imports no tests, because only this script is sent to YARN.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ("FILES_PER_BATCH",)

FILES_PER_BATCH = 2
POLL_S = 1


def main() -> None:
    """Write all lines and count all words."""
    text, directory, store, checkpoints, stop = sys.argv[1:]
    # Each file is a task.
    spark = SparkSession.builder.config("spark.sql.files.openCostInBytes", "1m").getOrCreate()
    lines = spark.readStream.option("maxFilesPerTrigger", FILES_PER_BATCH).text(text)
    writer = lines.writeStream.format("ftfile").option("fileFormat", "text")
    writer = writer.option("checkpointLocation", f"{checkpoints}/lines")
    queries = [writer.start(directory)]
    words = lines.selectExpr("explode(split(lower(value), '[^a-z]+')) AS word").where("word <> ''")
    writer = words.selectExpr("word", "1L AS n").writeStream.format("ftkv")
    writer = writer.options(keyColumns="word", merge="sum", buckets=4)
    writer = writer.option("checkpointLocation", f"{checkpoints}/words")
    queries.append(writer.start(store))
    while not Path(stop).exists():
        for query in queries:
            # Raises the error of a failed query.
            query.awaitTermination(POLL_S)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
