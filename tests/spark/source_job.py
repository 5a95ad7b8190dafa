"""The Spark application that reads a stream from a directory into another directory until it is killed.

It is started as a script with one argument, a JSON file: `source`, `out`, `checkpoint`, options of the `reader` and of
the `writer`, and `home` for Spark's files.
"""

from __future__ import annotations

from tests.demos.files.application import begin, build_session

__all__ = ()


def main() -> None:
    job = begin()
    spark = build_session(f"{job['home']}/scratch")
    frame = spark.readStream.format("ftfile").options(**job["reader"]).load(job["source"])
    writer = frame.writeStream.format("ftfile").option("fileFormat", "json").options(**job["writer"])
    writer.option("checkpointLocation", job["checkpoint"]).start(job["out"]).awaitTermination()


if __name__ == "__main__":
    main()
