"""A streaming source that follows a script on disk: the rows, the number of partitions, and the number of failures.

The script may be changed between two runs of a query, so that a replay has other rows or other partitions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "id long, word string"
Row = tuple[int, str | None]


@dataclass
class Script:
    """The batches of a source, each a list of partitions, each a list of rows."""

    directory: Path

    def __post_init__(self) -> None:
        self.directory.mkdir(exist_ok=True)

    def write(self, batches: Sequence[Sequence[Sequence[Row]]], *, available: int | None = None) -> Script:
        """Set all batches; `available` of them (by default all) are offered."""
        (self.directory / "batches.json").write_text(json.dumps(batches))
        return self.release(len(batches) if available is None else available)

    def release(self, available: int) -> Script:
        """Set the number of batches that the source offers."""
        # Replaced atomically: the source may be reading.
        (self.directory / "available.new").write_text(str(available))
        (self.directory / "available.new").replace(self.directory / "available")
        return self

    def start_at(self, offset: dict[str, int]) -> None:
        """Let a new query begin at an offset, like `startingOffsets` of Kafka."""
        (self.directory / "start").write_text(str(offset["batches"]))

    def fail(self, batch: int, partition: int, times: int) -> Script:
        """Fail the next `times` attempts of a partition after half of its rows."""
        (self.directory / f"fail-{batch}-{partition}").write_text(str(times))
        return self


@dataclass
class _Partition(InputPartition):
    batch: int
    number: int
    rows: list[Row]

    def __post_init__(self) -> None:
        super().__init__((self.batch, self.number))


class _Reader(DataSourceStreamReader):
    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def initialOffset(self) -> dict[str, int]:
        start = self.directory / "start"
        return {"batches": int(start.read_text()) if start.exists() else 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # what Spark 4.0 calls
        return {"batches": int((self.directory / "available").read_text())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        batches = json.loads((self.directory / "batches.json").read_text())
        found = [
            _Partition(batch, number, rows)
            for batch in range(start["batches"], end["batches"])
            for number, rows in enumerate(batches[batch])
        ]
        return found or [_Partition(-1, 0, [])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, _Partition)
        marker = self.directory / f"fail-{partition.batch}-{partition.number}"
        fails = int(marker.read_text()) if marker.exists() else 0
        for number, row in enumerate(partition.rows):
            if fails and number >= len(partition.rows) // 2:
                marker.write_text(str(fails - 1))
                raise RuntimeError("the script says that this attempt fails")
            yield tuple(row)

    def commit(self, end: dict[str, int]) -> None:
        pass


class ScriptedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "scripted"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        del schema
        return _Reader(self.options["script"])


def start(spark: SparkSession, paths: Mapping[str, Any], **options: Any) -> StreamingQuery:
    """Start a query from the script into ftfile."""
    writer = (
        spark.readStream.format("scripted")
        .option("script", str(paths["script"]))
        .load()
        .writeStream.format("ftfile")
        .option("checkpointLocation", paths["checkpoint"])
        .option("fileFormat", "json")
    )
    for name, value in options.items():
        writer = writer.option(name, value)
    return writer.start(paths["out"])


def run(spark: SparkSession, paths: Mapping[str, Any], script: Script, batches: int, **options: Any) -> None:
    """Run a query until `batches` batches of the script are done, one by one, and stop it."""
    first = max(1, int((script.directory / "available").read_text()))
    script.release(first)
    query = start(spark, paths, **options)
    try:
        for available in range(first, batches + 1):
            script.release(available)
            query.processAllAvailable()
    finally:
        query.stop()
