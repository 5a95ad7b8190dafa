"""Log lines about batches: their commit, and their abort."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.identity import StreamIdentity
from ftfile.commit.format.model import JobAuthor, StreamAuthor
from ftfile.commit.replay import find_record
from ftfile.core.errors import FtfileError
from ftfile.core.logs import get_logger, log_context

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ftfile.attempt.identity import WriterIdentity
    from ftfile.attempt.message import TaskCommit
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.protocol import Committed

# Records in which an aborted job is looked for: others may have committed since it did.
JOBS_LOOKED_AT = 16

_log = get_logger(__name__)


def context_of(writer: WriterIdentity) -> AbstractContextManager[None]:
    """Return the context that gives log lines the writer's batch or job."""
    if isinstance(writer, StreamIdentity):
        return log_context(query=writer.query_id, batch=writer.batch_id)
    return log_context(job=writer.job_id)


def report_commit(log: CommitLog, writer: WriterIdentity, done: Committed) -> None:
    """Log the version of a committed batch."""
    if not done.replayed:
        _log.info("%s is committed as version %d", _name_of(writer), done.version)
        return
    version = f"version {done.version} or before"
    if isinstance(writer, StreamIdentity):
        last = log.read_on().queries[writer.query_id]
        version = f"version {last.version}" if last.last_batch == writer.batch_id else version
    _log.info("%s was committed as %s; nothing written", _name_of(writer), version)


def report_abort(messages: Sequence[TaskCommit | None], batch_id: int | None, log: Callable[[], CommitLog]) -> None:
    """Log the fate of a batch that Spark aborts: it may be committed although its commit raised.

    Nothing is deleted: tasks may still be writing. Raises nothing of the log's.
    """
    known = [message for message in messages if message is not None]
    staged = len({each.path for message in known for each in (*message.parts, *message.segments)})
    if not known:
        with log_context(batch=batch_id):
            _log.warning("Spark aborts the batch; what its tasks staged stays for vacuum")
        return
    writer = known[0].identity.writer
    with context_of(writer):
        try:
            version = _version_of(log(), writer)
        except FtfileError as error:
            _log.warning("Spark aborts the batch. Whether it is committed is not known: %s", error)
            return
        name = _name_of(writer)
        if version is not None:
            _log.warning("%s is committed as version %d; publishing goes on with the next commit", name, version)
            return
        is_stream = isinstance(writer, StreamIdentity)
        where = "not committed" if is_stream else f"in none of the last {JOBS_LOOKED_AT} versions"
        _log.warning("Spark aborts %s. It is %s; %d staged files stay for vacuum", name, where, staged)


def _version_of(log: CommitLog, writer: WriterIdentity) -> int | None:
    """Return the version of a batch, or of a job among the newest; None if there is none.

    For a committed batch whose record is gone, it is the version of the query's last batch.
    """
    head = log.read_on()
    if isinstance(writer, StreamIdentity):
        query = head.queries.get(writer.query_id)
        if query is None or query.last_batch < writer.batch_id:
            return None
        record = find_record(log, head, StreamAuthor(writer.query_id, "", writer.batch_id))
        return query.version if record is None else record.version
    for version in range(head.version, max(head.version - JOBS_LOOKED_AT, head.log_start - 1), -1):
        record = log.read_record(version)
        if record is not None and isinstance(record.author, JobAuthor) and record.author.job_id == writer.job_id:
            return version
    return None


def _name_of(writer: WriterIdentity) -> str:
    return f"batch {writer.batch_number}" if isinstance(writer, StreamIdentity) else f"job {writer.owner}"
