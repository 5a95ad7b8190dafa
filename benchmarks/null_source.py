"""The floors of sources: one row to a batch, made of nothing; rows that are in memory, of a batch read."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

__all__ = ("InMemorySource", "NullSource")

_BATCH_ROWS = 65_536


class _Reader(DataSourceStreamReader):
    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._last = 0

    def initialOffset(self) -> dict[str, int]:
        """Return where nothing was read."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: ANN401, ARG002
        """Return the next batch, until there were as many as there shall be."""
        last = self._last if start is None else start["batch"]
        self._last = min(last + 1, self._batches)
        return {"batch": self._last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return one partition for each batch."""
        return [InputPartition(number) for number in range(start["batch"], end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Yield the row."""
        yield (str(partition.value),)


class NullSource(DataSource):
    """The format ``benchmark_one_row``; its option ``batches`` is their number."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "benchmark_one_row"

    def schema(self) -> str:
        """Return the schema."""
        return "value string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader."""
        return _Reader(int(self.options["batches"]))


class _InMemoryReader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int, tasks: int) -> None:
        self._schema = schema
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task, of about as many rows."""
        bounds = [self._rows * number // self._tasks for number in range(self._tasks + 1)]
        return [InputPartition(end - start) for start, end in itertools.pairwise(bounds) if end > start]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield as many rows as the partition has: the same batch again and again."""
        batch = _batch(to_arrow_schema(self._schema), min(_BATCH_ROWS, partition.value))
        for start in range(0, partition.value, _BATCH_ROWS):
            yield batch.slice(0, min(_BATCH_ROWS, partition.value - start))


def _batch(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    numbers = pa.array(range(rows), pa.int64())
    names = pa.array([f"name-{number % 1000}" for number in range(rows)])
    columns = [names if pa.types.is_string(each) else numbers.cast(each) for each in schema.types]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class InMemorySource(DataSource):
    """The format ``benchmark_in_memory``; its options are the numbers of ``rows`` and of ``tasks``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "benchmark_in_memory"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _InMemoryReader(schema, int(self.options["rows"]), int(self.options["tasks"]))
