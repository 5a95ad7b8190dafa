"""The writers of micro-batches and batch writes, for files and stores, with the interface that Spark calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.core.options.kinds import NOTE
from ftfile.spark.settings import absolute_options
from ftfile.spark.shipping import Shipped, only_commits
from ftfile.spark.workers.tuning import tune_worker
from ftfile.writing.batch import abort_batch, commit_batch, plan_write
from ftfile.writing.messages import OperationIdentity, StreamIdentity, TaskIdentity
from ftfile.writing.options import WriteConfig
from ftfile.writing.spark_checkpoint import read_query_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ftfile.writing.messages import TaskCommit
    from ftfile.writing.sink import Sink


_log = get_logger(__name__)

_C = TypeVar("_C", bound=WriteConfig)

# The local property of a query's thread, and of its tasks, with the query's checkpoint.
CHECKPOINT = "ftfile.checkpoint"

# Settings of the session, which Spark sends to tasks but not to other Python processes of a source.
_USER_METADATA = "spark.ftfile.userMetadata"
OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_CHECKPOINT_LOCATION = "spark.sql.streaming.checkpointLocation"
_PROPERTIES = ("sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id")


@dataclass(frozen=True, kw_only=True)
class SessionValues:
    """Settings of the session and properties of the query's thread, which are only visible to tasks."""

    overwrite_mode: str | None = None
    user_metadata: str | None = None
    checkpoint: str | None = None  # of the query, from the listener of `ftfile.spark.attach` or from the session
    is_attached: bool = False  # True if the listener was called at the query's start


@dataclass
class TaskMessage(WriterCommitMessage):
    """The result of one task, which Spark sends to the driver."""

    task: TaskCommit
    session: SessionValues = SessionValues()


class _Writer(Shipped, Generic[_C]):
    def __init__(self, sink: Sink[_C], config: _C, *, is_planned: bool = True) -> None:
        self._sink = sink
        self._plan = plan_write(sink, config, SYSTEM) if is_planned else None
        self._config = config if self._plan is None else self._plan.config
        tune_worker()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit a batch or a batch write exactly once. Runs on the driver."""
        tasks = [message for message in messages if isinstance(message, TaskMessage)]
        self._config = self._in_session(tasks[0].session if tasks else SessionValues())
        commit_batch(self._sink, self._config, messages=unwrap(messages), batch_id=batchId, context=SYSTEM)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Log the abort. Nothing is deleted."""
        abort_batch(self._config, unwrap(messages), batchId, SYSTEM)

    def _in_session(self, session: SessionValues) -> _C:
        """Return the config with the settings of the session, which the driver receives from tasks."""
        common = self._config.common
        text = session.user_metadata if common.user_metadata is None else common.user_metadata
        return replace(self._config, common=replace(common, user_metadata=text, is_attached=session.is_attached))

    def _write(self, identity: TaskIdentity, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from ftfile.writing.task import write_task  # noqa: PLC0415 - only tasks need it

        tune_worker()
        session = _session_values()
        assert self._plan is not None, "a writer that only commits cannot write"
        return TaskMessage(write_task(self._plan, identity, batches, SYSTEM), session)


class StreamWriter(_Writer[_C], DataSourceStreamWriter, DataSourceArrowWriter):
    """Writes Arrow batches with every Spark 4. Spark 4.0 has no streaming Arrow writer and accepts the batch class.

    SPARK-53030 adds that writer in Spark 4.1.
    Spark creates the writer once for the tasks, which need a plan, and again to commit or abort, without a plan.
    """

    def __init__(self, sink: Sink[_C], config: _C) -> None:
        super().__init__(sink, config, is_planned=not only_commits())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one attempt of one task, in an executor."""
        return self._write(stream_task(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit a batch exactly once, on the driver. Log before the first batch if offsets cannot be recorded."""
        config = self._config
        if config.common.checkpoint is None:
            checkpoint = _checkpoint_of(messages)
            self._config = replace(config, common=replace(config.common, checkpoint=checkpoint))
            if checkpoint is None and not batchId:
                _log.warning(
                    "%s: the writer has no option checkpointLocation, so Spark's offsets are not recorded. A repeated "
                    "batch is recognized only by hashes of all its rows. Do one of these: set checkpointLocation on "
                    "the writer; name the query by queryName(...), if the session sets the location; call "
                    "ftfile.spark.attach(spark) before the query starts",
                    config.path,
                )
        super().commit(messages, batchId)


class BatchWriter(_Writer[_C], DataSourceArrowWriter):
    """Writes a DataFrame in one commit. Readers see all of its rows or none."""

    def __init__(self, sink: Sink[_C], config: _C) -> None:
        super().__init__(sink, config)
        self._operation_id = SYSTEM.ids.unique()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one attempt of one task, in an executor."""
        context = task_context()
        # In `foreachBatch`, the properties of the stream are also set. They do not identify this write.
        identity = TaskIdentity(OperationIdentity(self._operation_id), context.partitionId(), context.attemptNumber())
        return self._write(identity, iterator)


def _session_values() -> SessionValues:
    """Return the settings that Spark only sends to tasks.

    Raises:
        ConfigError: the user metadata of commits is too long.
    """
    context = task_context()
    attached, user_metadata = context.getLocalProperty(CHECKPOINT), context.getLocalProperty(_USER_METADATA)
    try:
        NOTE.parse(user_metadata or "")
    except ValueError:
        raise ConfigError(
            f"{_USER_METADATA} has {len(user_metadata or '')} characters: it takes {NOTE.accepts}"
        ) from None
    return SessionValues(
        overwrite_mode=context.getLocalProperty(OVERWRITE_MODE),
        user_metadata=user_metadata,
        checkpoint=attached or _session_checkpoint(context),
        is_attached=attached is not None,
    )


def _session_checkpoint(context: TaskContext) -> str | None:
    """Return the checkpoint directory of a named query below the session's checkpoint location; None otherwise.

    A query without a name has a randomly named directory. The first line of a query's job description is its name.
    """
    location = context.getLocalProperty(_CHECKPOINT_LOCATION)
    name, _, rest = (context.getLocalProperty("spark.job.description") or "").partition("\nid = ")
    if location and name and rest:
        return f"{location.rstrip('/')}/{name}"
    return None


def _checkpoint_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    """Return the checkpoint that tasks reported; None if the query id in it belongs to another query."""
    for message in messages:
        if isinstance(message, TaskMessage) and message.session.checkpoint is not None:
            writer = message.task.identity.writer
            (checkpoint,) = absolute_options({"checkpointLocation": message.session.checkpoint}).values()
            query_id = read_query_id(checkpoint, SYSTEM)
            if isinstance(writer, StreamIdentity) and query_id == writer.query_id:
                return checkpoint
            return None
    return None


def unwrap(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit | None]:
    """Return the results of the tasks. None means that a task did not finish."""
    return [message.task if isinstance(message, TaskMessage) else None for message in messages]


def stream_task() -> TaskIdentity:
    """Return the identity of this attempt of a micro-batch's task, from properties that Spark 4.0 to 4.3 set."""
    context = task_context()
    properties = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    if not all(properties.values()):
        raise ConfigError(f"this task belongs to no micro-batch that ftfile supports: Spark set only {properties}")
    query_id, batch_id, run_id = (str(properties[name]) for name in _PROPERTIES)
    writer = StreamIdentity(query_id, run_id, int(batch_id))
    return TaskIdentity(writer, context.partitionId(), context.attemptNumber())


def task_context() -> TaskContext:
    """Return the context of the current task.

    Raises:
        ConfigError: no Spark task runs in this process.
    """
    context = TaskContext.get()
    if context is None:
        raise ConfigError("there is no Spark task here: write() is called by Spark in its executors")
    return context
