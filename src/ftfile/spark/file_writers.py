"""The writers of files, with the interface that Spark calls.

A commit is followed by the export to other table formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.operate.export.after_commit import export_soon, exported_formats
from ftfile.spark.settings import absolute_options, check_shared
from ftfile.spark.writers import OVERWRITE_MODE, BatchWriter, StreamWriter, task_context
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink, session_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from ftfile.spark.writers import SessionValues


# Maximum wait of a batch write for its export.
EXPORT_WAIT_S = 60.0


class FtFileStreamWriter(StreamWriter[SinkConfig]):
    """Writes the files of a micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(FileSink(), sink_config(options, schema, overwrite=overwrite, stream=True))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit a batch exactly once, and export it while the next batch runs."""
        super().commit(messages, batchId)
        _export(self._config, wait_s=0)


class FtFileBatchWriter(BatchWriter[SinkConfig]):
    """Appends the files of a DataFrame, or replaces the content of the directory with them."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        config = sink_config(options, schema, overwrite=overwrite, stream=False)
        if config.rolling is not None:
            raise ConfigError(
                "files stay open over the batches of a stream, and a batch write has one: leave out rolling=policy and "
                "what implies it; maxBytesPerFile and maxRecordsPerFile split the files of a batch write"
            )
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
        # After an overwrite, existing exports still name the replaced files, so they are renewed.
        existing = exported_formats(self._config.log(SYSTEM).fs) if self._config.overwrite else ()
        # No later batch can complete the export of a batch write, and its process may end.
        _export(self._config, existing, wait_s=EXPORT_WAIT_S)

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
    for to in config.publishing.export_to:
        _check_export(config, to)
    check_shared(config.log(SYSTEM).fs, config.path)
    return config


def _check_export(config: SinkConfig, to: str) -> None:
    from ftfile.operate.export.limits import LIMITS  # noqa: PLC0415 - most writers export nothing

    columns, limits = config.recorded_schema_json, LIMITS[to]
    try:
        limits.refuse_columns(columns)
        limits.refuse_encoding(config.encoding, columns, has_filters=bool(config.chain.filters))
    except ConfigError as error:
        raise ConfigError(f"exportTo={to}: {error}. Or leave exportTo out") from error


def _export(config: SinkConfig, more: tuple[str, ...] = (), *, wait_s: float) -> None:
    settings = dict(config.common.storage.client_settings)
    formats = tuple(dict.fromkeys((*config.publishing.export_to, *more)))
    export_soon(config.path, formats, settings, SYSTEM, wait_s=wait_s)
