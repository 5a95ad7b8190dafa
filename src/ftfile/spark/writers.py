"""The writers of a micro-batch and of a batch write, as Spark calls them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.core.options.kinds import NOTE
from ftfile.operate.export.after_commit import export_soon, exported_formats
from ftfile.spark.settings import absolute_options, check_shared
from ftfile.spark.shipping import Shipped, only_commits, tune_worker
from ftfile.write.files.file_options import SinkConfig
from ftfile.write.files.file_writer import SinkWriter
from ftfile.write.messages import JobIdentity, StreamIdentity, TaskIdentity
from ftfile.write.spark_checkpoint import read_query_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ftfile.write.messages import TaskCommit
    from ftfile.write.options import WriteConfig
    from ftfile.write.writer import Writer


_log = get_logger(__name__)

# A batch write waits as long for its export.
EXPORT_WAIT_S = 60.0

# The property of a query's thread, and so of its tasks, with the query's checkpoint.
CHECKPOINT = "ftfile.checkpoint"

# Settings of the session, which Spark sends to tasks, and to no other Python process of a source.
_USER_METADATA = "spark.ftfile.userMetadata"
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_CHECKPOINT_LOCATION = "spark.sql.streaming.checkpointLocation"
_PROPERTIES = ("sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id")


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """One task's result on its way through Spark."""

    task: TaskCommit
    overwrite_mode: str | None = None  # of the session
    user_metadata: str | None = None  # likewise
    checkpoint: str | None = None  # of the query, as the listener of `ftfile.spark.attach` or the session has it
    is_attached: bool = False  # the listener has seen the query's start


class _Writer(Shipped):
    def __init__(self, writer: Writer[Any]) -> None:
        self._writer = writer
        tune_worker()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit a batch, or all of a batch write, exactly once, on the driver."""
        texts = {message.user_metadata for message in messages if isinstance(message, TaskCommitMessage)}
        if self._writer.config.common.user_metadata is None:
            self._set_common(user_metadata=next(iter(texts), None))
        self._writer.commit(unwrap(messages), batchId, SYSTEM)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Log it, and delete nothing."""
        self._writer.abort(unwrap(messages), batchId, SYSTEM)

    def _set_common(self, **settings: Any) -> None:  # noqa: ANN401 - of many types
        config = self._writer.config
        self._writer = replace(self._writer, config=replace(config, common=replace(config.common, **settings)))

    def _write(self, identity: TaskIdentity, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        tune_worker()
        user_metadata = _session_metadata()
        return TaskCommitMessage(self._writer.write(identity, batches, SYSTEM), user_metadata=user_metadata)


class StreamWriter(_Writer, DataSourceStreamWriter, DataSourceArrowWriter):
    """Writes Arrow batches on every Spark 4: 4.0 has no streaming Arrow writer, but asks only for the batch class.

    Spark builds it once to ship it to tasks, which needs a plan, and once more to commit or to abort, which needs none.
    """

    def __init__(self, kind: type[Writer[Any]], config: WriteConfig) -> None:
        super().__init__(kind.for_commit(config, SYSTEM) if only_commits() else kind.plan(config, SYSTEM))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit a batch exactly once, on the driver; before a query's first, log that no offsets can be recorded."""
        config = self._writer.config
        is_attached = any(isinstance(message, TaskCommitMessage) and message.is_attached for message in messages)
        self._set_common(is_attached=is_attached)
        if config.common.checkpoint is None:
            checkpoint = _checkpoint_of(messages)
            self._set_common(checkpoint=checkpoint)
            if checkpoint is None and not batchId:
                _log.warning(
                    "%s: the writer has no option checkpointLocation, so that Spark's offsets are not recorded, and a "
                    "repeated batch is known by its rows alone, all of which are hashed. Set the option on the "
                    "writer; or, where the session has the location, give the query a name by queryName(...), or call "
                    "ftfile.spark.attach(spark) before it starts",
                    config.path,
                )
        super().commit(messages, batchId)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one attempt of one task, in an executor."""
        message = self._write(stream_task(), iterator)
        assert isinstance(message, TaskCommitMessage)
        attached = _task_context().getLocalProperty(CHECKPOINT)
        return replace(message, checkpoint=attached or _session_checkpoint(), is_attached=attached is not None)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame as one commit; all of it is seen, or nothing."""

    def __init__(self, writer: Writer[Any]) -> None:
        super().__init__(writer)
        self._job_id = SYSTEM.ids.unique()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one attempt of one task, in an executor."""
        context = _task_context()
        # Inside `foreachBatch` the properties of the stream are set, too: they are not the identity of this write.
        identity = TaskIdentity(JobIdentity(self._job_id), context.partitionId(), context.attemptNumber())
        return self._write(identity, iterator)


class FtFileStreamWriter(StreamWriter):
    """Writes the files of a micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(SinkWriter, sink_config(options, schema, overwrite=overwrite, stream=True))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit a batch exactly once, and let it be exported while the next one runs."""
        super().commit(messages, batchId)
        _export(self._writer.config, wait_s=0)


class FtFileBatchWriter(BatchWriter):
    """Appends the files of a DataFrame, or replaces all there is by them."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        config = sink_config(options, schema, overwrite=overwrite, stream=False)
        if config.rolling is not None:
            raise ConfigError(
                "files stay open over the batches of a stream, and a batch write has one: leave out rolling=policy and "
                "what implies it; maxBytesPerFile and maxRecordsPerFile split the files of a batch write"
            )
        writer = SinkWriter.plan(config, SYSTEM)
        super().__init__(writer)
        # Tasks are told the session's mode, and the driver hears of it after all rows are written.
        self._refusal = writer.refusal_in("dynamic", SYSTEM)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one attempt of one task, and tell the driver of the session's overwrite mode."""
        mode = _task_context().getLocalProperty(_OVERWRITE_MODE)
        if self._refusal is not None and (mode or "").lower() == "dynamic":
            raise self._refusal
        message = super().write(iterator)
        assert isinstance(message, TaskCommitMessage)
        return replace(message, overwrite_mode=mode)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit all of the write; in the session's dynamic mode, an overwrite replaces the partitions of its rows."""
        modes = {message.overwrite_mode for message in messages if isinstance(message, TaskCommitMessage)}
        assert isinstance(self._writer, SinkWriter)
        self._writer = self._writer.for_session(next(iter(modes), None))
        super().commit(messages, batchId)
        config = self._writer.config
        # Readers of an export miss the files that an overwrite replaced.
        existing = exported_formats(config.log(SYSTEM).fs) if config.overwrite else ()
        # Nobody comes after a batch write, and its process may end.
        _export(config, existing, wait_s=EXPORT_WAIT_S)


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
            "partitionOverwriteMode=dynamic and replaceWhere are for batch writes, as in foreachBatch: each batch "
            "of complete mode has all rows, and replaces everything"
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


def _session_checkpoint() -> str | None:
    """Return the directory in which Spark keeps the checkpoint of a query with a name, below the session's location.

    One without a name has a directory of a random name there. The query's description begins with a line of its name.
    """
    context = _task_context()
    location = context.getLocalProperty(_CHECKPOINT_LOCATION)
    name, _, rest = (context.getLocalProperty("spark.job.description") or "").partition("\nid = ")
    return f"{location.rstrip('/')}/{name}" if location and name and rest else None


def _checkpoint_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    """Return the checkpoint that tasks were told; None for one of another query, by the id that is in it."""
    for message in messages:
        if isinstance(message, TaskCommitMessage) and message.checkpoint is not None:
            writer = message.task.identity.writer
            (checkpoint,) = absolute_options({"checkpointLocation": message.checkpoint}).values()
            query_id = read_query_id(checkpoint, SYSTEM)
            return checkpoint if isinstance(writer, StreamIdentity) and query_id == writer.query_id else None
    return None


def unwrap(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit | None]:
    """Return the tasks' results; None stays None, which means that a task did not finish."""
    return [message.task if isinstance(message, TaskCommitMessage) else None for message in messages]


def stream_task() -> TaskIdentity:
    """Return the identity of this attempt of a micro-batch's task, by properties that Spark 4.0 to 4.3 set."""
    context = _task_context()
    properties = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    if not all(properties.values()):
        raise ConfigError(f"this task is no micro-batch that ftfile knows: Spark set only {properties}")
    query_id, batch_id, run_id = (str(properties[name]) for name in _PROPERTIES)
    writer = StreamIdentity(query_id, run_id, int(batch_id))
    return TaskIdentity(writer, context.partitionId(), context.attemptNumber())


def _session_metadata() -> str | None:
    """Return the session's text about each commit; a ConfigError for one that is too long."""
    text = _task_context().getLocalProperty(_USER_METADATA)
    if text is None:
        return None
    try:
        return str(NOTE.parse(text))
    except ValueError:
        raise ConfigError(f"{_USER_METADATA} has {len(text)} characters: it takes {NOTE.accepts}") from None


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConfigError("there is no Spark task here: write() is called by Spark in its executors")
    return context
