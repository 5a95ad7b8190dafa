"""The floor of sources: one row to a batch, made of nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

__all__ = ("NullSource",)


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
