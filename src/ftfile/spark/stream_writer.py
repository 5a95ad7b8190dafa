"""The writer of one micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from ftfile.core.context import SYSTEM
from ftfile.sink.writer import SinkWriter
from ftfile.spark.messages import TaskCommitMessage, unwrap
from ftfile.spark.quick_ack import acknowledge_at_once
from ftfile.spark.settings import sink_config
from ftfile.spark.shipping import Shipped
from ftfile.spark.task_context import stream_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

__all__ = ("FtFileStreamWriter",)


class FtFileStreamWriter(Shipped, DataSourceStreamWriter, DataSourceArrowWriter):
    """Writes Arrow batches on every Spark 4: 4.0 has no streaming Arrow writer, but asks only for the batch class."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._writer = SinkWriter.plan(sink_config(options, schema, overwrite=overwrite, stream=True), SYSTEM)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one attempt of one task, in an executor."""
        acknowledge_at_once()
        return TaskCommitMessage(self._writer.write(stream_task(), iterator, SYSTEM))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Commit the batch exactly once, on the driver."""
        self._writer.commit(unwrap(messages), batchId, SYSTEM)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Note it, and delete nothing."""
        self._writer.abort(unwrap(messages), batchId, SYSTEM)
