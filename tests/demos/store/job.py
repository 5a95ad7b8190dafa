"""The Spark application that is killed: it counts the words of the files into a store, as users do.

It is started as a script with one argument, a JSON file: ``text``, ``output``, ``checkpoint``, ``scratch``.
"""

from __future__ import annotations

from tests.demos.files.application import begin, build_session

__all__ = ()


def main() -> None:
    """Count the words of all files."""
    job = begin()
    spark = build_session(job["scratch"], {"spark.sql.shuffle.partitions": "2"})
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(job["text"])
    words = lines.selectExpr("explode(split(lower(value), '[^a-z]+')) AS word").where("word <> ''")
    writer = words.selectExpr("word", "1L AS n").writeStream.format("ftkv")
    writer = writer.option("keyColumns", "word").option("merge", "sum").option("buckets", 4)
    writer = writer.option("flushIntervalCount", 4).option("checkpointLocation", job["checkpoint"])
    writer.trigger(availableNow=True).start(job["output"]).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
