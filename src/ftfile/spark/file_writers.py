"""The writers of files, with the interface that Spark calls.

A commit is followed by the export to other table formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.operate.export.after_commit import check_exports, export_batch_write, export_stream
from ftfile.spark.settings import absolute_options, check_shared
from ftfile.spark.writers import OVERWRITE_MODE, BatchWriter, StreamWriter, task_context
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink, refuse_rolling, session_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from ftfile.spark.writers import SessionValues


class FtFileStreamWriter(StreamWriter[SinkConfig]):
    """Writes the files of a micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(FileSink(), sink_config(options, schema, overwrite=overwrite, stream=True))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit a batch exactly once, and export it while the next batch runs."""
        super().commit(messages, batchId)
        export_stream(self._config, SYSTEM)


class FtFileBatchWriter(BatchWriter[SinkConfig]):
    """Appends the files of a DataFrame, or replaces the content of the directory with them."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        config = sink_config(options, schema, overwrite=overwrite, stream=False)
        refuse_rolling(config)
        super().__init__(FileSink(), config)
        # Tasks have the session's mode, but the driver receives it only after all rows are written.
        self._refusal = session_refusal(self._config, "dynamic", SYSTEM)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one attempt of one task, in an executor, unless the session's overwrite mode is refused."""
        mode = task_context().getLocalProperty(OVERWRITE_MODE) or ""
        if self._refusal is not None and mode.lower() == "dynamic":
            raise self._refusal
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit the whole write, and export it."""
        super().commit(messages, batchId)
        export_batch_write(self._config, SYSTEM)

    def _in_session(self, session: SessionValues) -> SinkConfig:
        """Return the settings. In the session's dynamic mode, an overwrite replaces the partitions of its rows."""
        return super()._in_session(session).for_session(session.overwrite_mode)


def sink_config(options: Mapping[str, str], schema: StructType, *, overwrite: bool, stream: bool) -> SinkConfig:
    """Return the settings after all checks that are possible before a task starts.

    Raises:
        ConfigError: an option is wrong or not for streams, other processes cannot access the path, or a format of
            `exportTo` cannot represent the columns or the encoding.
        SchemaError: a column cannot be stored.
    """
    config = SinkConfig.from_options(absolute_options(options), schema.json(), overwrite=overwrite, stream=stream)
    if stream and config.replacement is not None:
        raise ConfigError(
            "partitionOverwriteMode=dynamic and replaceWhere are only for batch writes, as in foreachBatch: each "
            "batch of complete mode has all rows, and replaces everything"
        )
    check_exports(config)
    check_shared(config.log(SYSTEM).fs, config.path)
    return config
