"""The Spark application that is killed: it tails the logs into Parquet, as users do.

It is started as a script with one argument, a JSON file: ``logs``, ``output``, ``checkpoint``, ``scratch``, and
``available_now``: end after all existing lines were read.
"""

from __future__ import annotations

from tests.demos.files.application import begin, build_session

__all__ = ()


def main() -> None:
    """Tail the logs until killed, or until all existing lines were read."""
    job = begin()
    spark = build_session(job["scratch"])
    lines = (
        spark.readStream.format("ftfile")
        .option("fileFormat", "text")
        .option("fileIdentity", "content")  # recognizes logs that were copied or compressed
        .option("scanInterval", "500ms")
        .option("minFileAge", "2s")
        .option("checkpointLocation", job["checkpoint"])
        .load(job["logs"])
    )
    words = "split(value, ' ')"
    table = lines.selectExpr(f"{words}[2] AS log", f"cast({words}[3] AS long) AS number", "value AS line")
    writer = table.writeStream.format("ftfile").option("fileFormat", "parquet")
    writer = writer.option("checkpointLocation", job["checkpoint"])
    trigger = {"availableNow": True} if job["available_now"] else {"processingTime": "500 milliseconds"}
    writer.trigger(**trigger).start(job["output"]).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
