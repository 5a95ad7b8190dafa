"""The sinks that are measured against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.null_sink import AcknowledgingDataSource, NullDataSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import DataSource

__all__ = ("FLOOR", "NOOP", "NULL", "SINKS", "Sink", "alternating", "choose_sinks")


@dataclass(frozen=True, slots=True)
class Sink:
    """One sink as a query names it.

    Attributes:
        label: the name in tables.
        spark_format: what goes into ``writeStream.format``.
        file_format: the format of the files it leaves; None when it leaves none.
        options: write options besides the path and the checkpoint.
        data_source: a class to register first; None when Spark finds the format itself.
    """

    label: str
    spark_format: str
    file_format: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    data_source: type[DataSource] | None = None

    @property
    def in_python(self) -> bool:
        """True if its rows go through Python workers."""
        return self.spark_format not in {"noop", self.file_format}


NOOP = Sink("spark noop", "noop")
NULL = Sink("null", "benchmark_null", data_source=NullDataSource)
FLOOR = Sink("null, acknowledging", "benchmark_acknowledging", data_source=AcknowledgingDataSource)
SINKS = (
    NULL,
    Sink("ftfile json", "ftfile", "json", (("fileFormat", "json"),)),
    Sink("ftfile parquet", "ftfile", "parquet", (("fileFormat", "parquet"),)),
    Sink("spark json", "json", "json"),
    Sink("spark parquet", "parquet", "parquet"),
)


def choose_sinks(available: tuple[Sink, ...], labels: tuple[str, ...]) -> tuple[Sink, ...]:
    """Return the sinks with these labels, and always the null sink; all when no label is given."""
    return tuple(sink for sink in available if not labels or sink is NULL or sink.label in labels)


def alternating(sinks: tuple[Sink, ...], rounds: int) -> Iterator[tuple[Sink, ...]]:
    """Yield the order of each round, every other one reversed: no sink gains by what ran before it."""
    for number in range(rounds):
        yield sinks if number % 2 == 0 else sinks[::-1]
