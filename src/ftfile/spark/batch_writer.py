"""The writer of one batch write: one commit of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.sink.writer import SinkWriter
from ftfile.spark.messages import TaskCommitMessage, unwrap
from ftfile.spark.quick_ack import acknowledge_at_once
from ftfile.spark.settings import sink_config
from ftfile.spark.shipping import Shipped
from ftfile.spark.task_context import job_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

__all__ = ("FtFileBatchWriter",)


class FtFileBatchWriter(Shipped, DataSourceArrowWriter):
    """Appends a DataFrame as one commit, or replaces all there is by it; all of it is seen, or nothing."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        config = sink_config(options, schema, overwrite=overwrite, stream=False)
        if config.rolling is not None:
            raise ConfigError(
                "files stay open over the batches of a stream, and a batch write has one: leave out rolling=policy and "
                "what implies it; maxBytesPerFile and maxRecordsPerFile split the files of a batch write"
            )
        self._writer = SinkWriter.plan(config, SYSTEM)
        self._job_id = SYSTEM.ids.unique()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one attempt of one task, in an executor."""
        acknowledge_at_once()
        return TaskCommitMessage(self._writer.write(job_task(self._job_id), iterator, SYSTEM))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the job, on the driver."""
        self._writer.commit(unwrap(messages), None, SYSTEM)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Note it, and delete nothing."""
        self._writer.abort(unwrap(messages), None, SYSTEM)
