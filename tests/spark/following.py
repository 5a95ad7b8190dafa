"""Queries that follow a directory, in the session of the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.errors import FtfileError
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.scripted_source import Row

__all__ = ("Paths", "batches", "follow", "ids", "limits_hold", "offsets_in", "rows_in", "run_available", "write")

Paths = dict[str, Any]


def batches(count: int) -> list[list[list[Row]]]:
    return [[[(2 * n, "even")], [(2 * n + 1, "odd")]] for n in range(count)]


def write(out: str, numbers: range, **options: str) -> None:
    """Write these batches without Spark, all with one query."""
    query = MicroBatch(out, {"id": "long", "word": "string"}, {"fileFormat": "json", **options})
    for number in numbers:
        query.run(number, [[{"id": id_, "word": word}] for task in batches(number + 1)[number] for id_, word in task])


def follow(
    spark: SparkSession, source: str, second: Paths, trigger: dict[str, Any] | None = None, **options: str
) -> StreamingQuery:
    """Start a query from one directory into another."""
    reader = spark.readStream.format("ftfile").options(**options)
    writer = reader.load(source).writeStream.format("ftfile").option("fileFormat", "json")
    writer = writer.option("checkpointLocation", second["checkpoint"])
    return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start(second["out"])


def run_available(spark: SparkSession, source: str, second: Paths, **options: str) -> StreamingQuery:
    query = follow(spark, source, second, {"availableNow": True}, **options)
    query.awaitTermination()
    return query


def ids(path: str) -> list[int]:
    return sorted(ftfile.open(path).to_arrow()["id"].to_pylist())


def offsets_in(checkpoint: str) -> list[Any]:
    """Return the end offset of each batch, for a query with one source."""
    files = sorted(Path(checkpoint, "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def rows_in(path: str) -> int:
    """Return the number of committed rows; 0 while there is no directory."""
    try:
        return len(ids(path))
    except FtfileError:
        return 0


def limits_hold(spark: SparkSession) -> bool:
    return not spark.version.startswith(("4.0", "4.1"))
