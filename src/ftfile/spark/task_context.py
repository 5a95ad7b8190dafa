"""Who am I? A task learns its query, batch and attempt from Spark's task context."""

from __future__ import annotations

from pyspark import TaskContext

from ftfile.attempt.identity import JobIdentity, StreamIdentity, TaskIdentity
from ftfile.core.errors import ConfigError

__all__ = ("job_task", "stream_task")


def stream_task() -> TaskIdentity:
    """Return the identity of this attempt of a micro-batch's task.

    Raises:
        ConfigError: Spark did not set the properties that every micro-batch of Spark 4.0 to 4.3 has.
    """
    context = _context()
    found = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    if not all(found.values()):
        raise ConfigError(f"this task is no micro-batch that ftfile knows: Spark set only {found}")
    query_id, batch_id, run_id = (str(found[name]) for name in _PROPERTIES)
    writer = StreamIdentity(query_id, run_id, int(batch_id))
    return TaskIdentity(writer, context.partitionId(), context.attemptNumber())


def job_task(job_id: str) -> TaskIdentity:
    """Return the identity of this attempt of a batch write's task.

    Inside `foreachBatch` the properties of the stream are set, too: they are not the identity of this write.
    """
    context = _context()
    return TaskIdentity(JobIdentity(job_id), context.partitionId(), context.attemptNumber())


_PROPERTIES = ("sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id")


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConfigError("there is no Spark task here: write() is called by Spark in its executors")
    return context
