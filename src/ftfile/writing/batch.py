"""The driver's part of a batch of any sink: plan, commit and abort."""

from __future__ import annotations

import contextlib
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import FtfileError
from ftfile.core.logs import get_logger, log_context
from ftfile.log.directory import file_as_config_error, write_marker
from ftfile.log.format.model import BatchWriteAuthor, StreamAuthor
from ftfile.log.policy import check_known_query, find_record
from ftfile.writing.messages import (
    StreamIdentity,
    author_of,
    check_messages,
    fingerprint_of,
    log_context_of,
    orphans_of,
    stored_ms_of,
)
from ftfile.writing.options import WriteConfig
from ftfile.writing.sink import WritePlan
from ftfile.writing.spark_checkpoint import check_sources, newest_planned, read_query_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.protocol import CheckHead, Committed, Prepare
    from ftfile.log.state import LogState
    from ftfile.writing.applications import ApplicationBatch
    from ftfile.writing.messages import TaskCommit, WriterIdentity
    from ftfile.writing.options import CommonSettings
    from ftfile.writing.sink import DirectoryCheck, Sink


_log = get_logger(__name__)

_C = TypeVar("_C", bound=WriteConfig)

# Records that are searched for an aborted job. Other writers may have committed after the job.
ABORTED_JOB_RECORDS = 16


def plan_write(sink: Sink[_C], config: _C, context: Context, *, tasks_here: bool = False) -> WritePlan[_C]:
    """Check the directory before any task starts.

    With `tasks_here`, all tasks run in this process, so they need not check that they see the same directory.

    Raises:
        FtfileError: as `commit_batch`: the schema or options are wrong, the directory does not contain the query or is
            of another kind, or the file system does not support the commit protocol.
    """
    common = config.common
    query_id = read_query_id(common.checkpoint, context)
    with contextlib.nullcontext() if query_id is None else log_context(query=query_id):
        log = config.log(context)
        config = config.for_storage(log.fs.capabilities)
        with file_as_config_error(log, config.path):
            check = _check_directory(sink, config, log, partial(_may_be_repetition, common, query_id, context))
        config, head = check.config, check.head
        if query_id is not None:
            check_known_query(head, query_id, common.policy)
            if query_id not in head.queries and common.checkpoint is not None:
                check_sources(config.path, common.checkpoint, query_id=query_id, log=log, head=head)
        app_id = None
        if common.transaction is not None:
            app_id = common.transaction.app_id
        if head.version < 0 and common.encryption is not None and common.bad_records == "deadLetter":
            log.prepare_directory()  # tasks write the directory's id into dead letters
        now_ms = log.clock.now_ms()
        marker = None
        if not tasks_here:
            marker = write_marker(log.fs)
        view, offsets_known = head.view(app_id), _knows_offsets(head, query_id)
        return WritePlan(
            sink=sink,
            config=config,
            view=view,
            time_ms=now_ms,
            definitions=check.definitions,
            marker=marker,
            offsets_known=offsets_known,
        )


def _knows_offsets(head: LogState, query_id: str | None) -> bool:
    """Return True if offsets identify a repetition of the query's newest batch.

    The checkpoint must be readable now, and when that batch was committed.
    """
    if query_id is None:
        return False
    newest = head.queries.get(query_id)
    return newest is None or newest.offsets_hash is not None


def _check_directory(
    sink: Sink[_C], config: _C, log: CommitLog, is_repetition: Callable[[LogState], bool]
) -> DirectoryCheck[_C]:
    """Check the directory at the assumed head, and again at the real one if that fails."""
    if (head := log.assumed_head()) is not None:
        with contextlib.suppress(FtfileError):
            return sink.check_directory(config, log, lambda: head, is_repetition)
    return sink.check_directory(config, log, partial(log.refresh, confirm=False), is_repetition)


def _may_be_repetition(common: CommonSettings, query_id: str | None, context: Context, head: LogState) -> bool:
    """Return True if the log may contain the batch that is planned, so that the commit will find it there.

    Spark calls a sink without the number of the batch. It is the newest batch in the checkpoint; if the checkpoint
    cannot be read, only the commit knows the batch.
    """
    if common.transaction is not None:
        return head.has(BatchWriteAuthor("", common.transaction))
    if not common.is_stream or common.is_application:
        return False
    if query_id is None or common.checkpoint is None:
        return bool(head.queries)
    planned = newest_planned(common.checkpoint, context)
    return planned is not None and head.has(StreamAuthor(query_id, "", planned))


def commit_batch(
    sink: Sink[_C],
    config: _C,
    messages: Sequence[TaskCommit | None],
    batch_id: int | None,
    context: Context,
    application: ApplicationBatch | None = None,
) -> Committed:
    """Commit the messages of all tasks of a batch exactly once. Idempotent. A batch write has no batch id.

    No plan is needed, because Spark commits a streaming batch in a process that did not plan it. A batch of an
    application is given, with the position to be recorded.

    Raises:
        Fenced: another process has opened the directory as the same application.
        FtfileError: see `log.protocol.commit`.
    """
    from ftfile.log.protocol import accept_any_head, commit  # noqa: PLC0415 - only commits need them

    try:
        whole = check_messages(messages, batch_id)
    except FtfileError as error:
        _log.error("batch %s is refused: %s", batch_id, error)
        raise
    log, common = config.log(context), config.common
    config, writer = config.for_storage(log.fs.capabilities), whole[0].identity.writer
    with log_context_of(writer):
        with log.lock:
            if application is None:
                author = author_of(writer, common.checkpoint, common.transaction, log.fs.context)
            else:
                author = application.author
            prepared = sink.prepare(config, author, whole, log)
            body: Prepare = prepared.body
            check_head: CheckHead = accept_any_head
            if application is not None:
                body, check_head = partial(application.body, prepared.body), application.check
            done = commit(
                log,
                author,
                body,
                common.policy,
                fingerprint=fingerprint_of(whole),
                task_found_batch=any(message.found_committed for message in whole),
                stored_ms=stored_ms_of(whole),
                check_head=check_head,
            )
            log.commit_metrics.orphans += orphans_of(whole, log, author, done.record)
        _report_commit(log, writer, done)
        prepared.after_commit(done)
        return done


def abort_batch(
    config: WriteConfig, messages: Sequence[TaskCommit | None], batch_id: int | None, context: Context
) -> None:
    """Log whether a batch that Spark aborts is committed, because a commit that raised may have succeeded.

    Nothing is deleted, because tasks may still be writing. Errors of the log are not raised.
    """
    received = [message for message in messages if message is not None]
    files = chain.from_iterable((*message.parts, *message.segments) for message in received)
    staged = len({file.path for file in files})
    if not received:
        with log_context(batch=batch_id):
            _log.warning("Spark aborts the batch; the staged files of its tasks stay until vacuum deletes them")
        return
    writer = received[0].identity.writer
    with log_context_of(writer):
        try:
            version = _version_of(config.log(context), writer)
        except FtfileError as error:
            _log.warning("Spark aborts the batch. It is unknown whether it is committed: %s", error)
            return
        name = _name_of(writer)
        if version is not None:
            _log.warning("%s is committed as version %d; the next commit continues to publish it", name, version)
            return
        is_stream = isinstance(writer, StreamIdentity)
        if is_stream:
            where = "not committed"
        else:
            where = f"in none of the last {ABORTED_JOB_RECORDS} versions"
        _log.warning("Spark aborts %s. It is %s; %d staged files stay until vacuum deletes them", name, where, staged)


def _report_commit(log: CommitLog, writer: WriterIdentity, done: Committed) -> None:
    """Log the version of a committed batch."""
    if not done.replayed:
        _log.info("%s is committed as version %d", _name_of(writer), done.version)
        return
    version = f"version {done.version} or earlier"
    if isinstance(writer, StreamIdentity):
        last = log.refresh().queries[writer.query_id]
        if last.last_batch == writer.batch_id:
            version = f"version {last.version}"
    _log.info("%s was already committed as %s; nothing was written", _name_of(writer), version)


def _version_of(log: CommitLog, writer: WriterIdentity) -> int | None:
    """Return the version of a batch, or of a recent job; None if it is not committed.

    If the record of a committed batch was deleted, the version of the query's last batch is returned.
    """
    head = log.refresh()
    if isinstance(writer, StreamIdentity):
        query = head.queries.get(writer.query_id)
        if query is None or query.last_batch < writer.batch_id:
            return None
        record = find_record(log, head, StreamAuthor(writer.query_id, "", writer.batch_id))
        if record is None:
            return query.version
        return record.version
    for version in range(head.version, max(head.version - ABORTED_JOB_RECORDS, head.log_start - 1), -1):
        record = log.read_record(version)
        if (
            record is not None
            and isinstance(record.author, BatchWriteAuthor)
            and record.author.operation_id == writer.operation_id
        ):
            return version
    return None


def _name_of(writer: WriterIdentity) -> str:
    if isinstance(writer, StreamIdentity):
        return f"batch {writer.batch_number}"
    return f"operation {writer.owner}"
