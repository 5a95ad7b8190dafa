"""Queries that read files of other programs, in the session of the tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.errors import FtfileError
from tests.spark.following import limits_hold

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ("AT_ONCE", "AVAILABLE", "ONE_BATCH", "FileQuery", "lines")

ALWAYS = {"processingTime": "0 seconds"}
AVAILABLE = {"availableNow": True}
# The first batch runs at once and the next one in a century, so the running query plans no more batches.
ONE_BATCH = {"processingTime": "36500 days"}
# Listings are as frequent as possible, and files of other programs are complete at once.
AT_ONCE = {"scanInterval": "0s", "minFileAge": "0s"}


@dataclass
class FileQuery:
    """A query from files into a directory of JSON, with a checkpoint that is kept over runs."""

    spark: SparkSession
    home: Path
    options: dict[str, str] = field(default_factory=dict)
    schema: str | None = None

    def __post_init__(self) -> None:
        self.source = self.home / "in"
        self.out = str(self.home / "out")
        self.checkpoint = self.home / "checkpoint"
        self.source.mkdir(exist_ok=True)

    def frame(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("ftfile").options(
            **{"fileFormat": "text", "checkpointLocation": str(self.checkpoint), **AT_ONCE, **self.options, **options}
        )
        return (reader if self.schema is None else reader.schema(self.schema)).load(str(self.source))

    def start(self, trigger: dict[str, Any] | None = None, **options: str) -> StreamingQuery:
        return self.write(self.frame(**options), trigger)

    def write(self, frame: DataFrame, trigger: dict[str, Any] | None = None, **options: str) -> StreamingQuery:
        writer = frame.writeStream.format("ftfile").options(fileFormat="json", **options)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or ALWAYS)).start(self.out)

    def run(self, **options: str) -> StreamingQuery:
        """Read all existing files."""
        query = self.start(AVAILABLE, **options)
        query.awaitTermination()
        return query

    def run_all(self, **options: str) -> StreamingQuery:
        """Read all existing files, even if a batch is repeated and a plan already exists."""
        query = self.run(**options)
        if not limits_hold(self.spark):  # Spark 4.0 and 4.1 end the run after each of them
            for _ in range(2):
                self.run(**options)
        return query

    def values(self) -> list[Any]:
        """Return the committed values of the first column, sorted; empty while there is no directory."""
        try:
            table = ftfile.open(self.out).to_arrow()
        except FtfileError:
            return []
        return sorted(table.column(0).to_pylist())

    def forget(self, log: str, batch: int) -> None:
        """Delete Spark's entry of a batch, as if Spark had been killed before it wrote the entry."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / log / name).unlink(missing_ok=True)


def lines(first: int, count: int) -> list[str]:
    return [f"line {number:06} {'of a log ' * 8}" for number in range(first, first + count)]
