"""The floor: a Python sink that receives every Arrow batch and drops it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from ftfile.spark.workers.tuning import acknowledge_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow
    from pyspark.sql.types import StructType

__all__ = ("AcknowledgingDataSource", "AcknowledgingWriter", "NullDataSource", "NullWriter")


class NullWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """Drain the batches and keep nothing; both bases, because only so Spark 4.0 hands over Arrow."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Drop all batches."""
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Do nothing."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Do nothing."""


class AcknowledgingWriter(NullWriter):
    """The same without the stall of tiny batches over TCP."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Drop all batches."""
        acknowledge_at_once()
        return super().write(iterator)


class NullDataSource(DataSource):
    """The format ``benchmark_null``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "benchmark_null"

    def streamWriter(self, schema: StructType, overwrite: bool) -> NullWriter:  # noqa: ARG002
        """Return the writer; its state is empty, so pickling it costs nothing."""
        return NullWriter()


class AcknowledgingDataSource(DataSource):
    """The format ``benchmark_acknowledging``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "benchmark_acknowledging"

    def streamWriter(self, schema: StructType, overwrite: bool) -> AcknowledgingWriter:  # noqa: ARG002
        """Return the writer."""
        return AcknowledgingWriter()
