"""The writers of files, as Spark calls them; exports follow their commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.operate.export.after_commit import export_soon, exported_formats
from ftfile.spark.settings import absolute_options, check_shared
from ftfile.spark.writers import OVERWRITE_MODE, BatchWriter, StreamWriter, task_context
from ftfile.write.files.file_options import SinkConfig
from ftfile.write.files.file_writer import FileWrites, session_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from ftfile.spark.writers import SessionValues


# A batch write waits as long for its export.
EXPORT_WAIT_S = 60.0


class FtFileStreamWriter(StreamWriter[SinkConfig]):
    """Writes the files of a micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(FileWrites(), sink_config(options, schema, overwrite=overwrite, stream=True))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit a batch exactly once, and let it be exported while the next one runs."""
        super().commit(messages, batchId)
        _export(self._config, wait_s=0)


class FtFileBatchWriter(BatchWriter[SinkConfig]):
    """Appends the files of a DataFrame, or replaces all there is by them."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        config = sink_config(options, schema, overwrite=overwrite, stream=False)
        if config.rolling is not None:
            raise ConfigError(
                "files stay open over the batches of a stream, and a batch write has one: leave out rolling=policy and "
                "what implies it; maxBytesPerFile and maxRecordsPerFile split the files of a batch write"
            )
        super().__init__(FileWrites(), config)
        # Tasks are told the session's mode, and the driver hears of it after all rows are written.
        self._refusal = session_refusal(self._config, "dynamic", SYSTEM)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one attempt of one task, in an executor, unless the session's overwrite mode is refused."""
        mode = task_context().getLocalProperty(OVERWRITE_MODE) or ""
        if self._refusal is not None and mode.lower() == "dynamic":
            raise self._refusal
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit all of the write, and export it."""
        super().commit(messages, batchId)
        # Readers of an export miss the files that an overwrite replaced.
        existing = exported_formats(self._config.log(SYSTEM).fs) if self._config.overwrite else ()
        # Nobody comes after a batch write, and its process may end.
        _export(self._config, existing, wait_s=EXPORT_WAIT_S)

    def _in_session(self, session: SessionValues) -> SinkConfig:
        """Return the settings: in the session's dynamic mode, an overwrite replaces the partitions of its rows."""
        return super()._in_session(session).for_session(session.overwrite_mode)


def sink_config(options: Mapping[str, str], schema: StructType, *, overwrite: bool, stream: bool) -> SinkConfig:
    """Check everything that can be checked before a task starts.

    Raises:
        ConfigError: an option is wrong, not for streams, or other processes cannot see the path; or a format of
            `exportTo` cannot say what is written.
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
