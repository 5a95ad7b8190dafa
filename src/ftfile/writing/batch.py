"""The steps of a batch on the driver and in its tasks."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from ftfile.core.errors import FtfileError
from ftfile.core.logs import get_logger, log_context
from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import check_marker, file_as_config_error, write_marker
from ftfile.log.format.model import JobAuthor, StreamAuthor
from ftfile.log.policy import check_known_query, find_record
from ftfile.writing.messages import (
    AssemblyResults,
    StreamIdentity,
    TaskCommit,
    author_of,
    batch_metrics,
    check_messages,
    fingerprint_for,
    fingerprint_json,
    fingerprint_of,
    letters_of,
    orphans_of,
    stored_ms_of,
)
from ftfile.writing.options import WriteConfig, durability_of, open_for_writer
from ftfile.writing.spark_checkpoint import check_sources, newest_planned, read_query_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ftfile.core.context import Context
    from ftfile.log.directory import DirectoryMarker
    from ftfile.log.format.model import Author, Body, Transaction
    from ftfile.log.protocol import CheckHead, Committed, Prepare
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState, LogView
    from ftfile.storage.api import FileSystem
    from ftfile.writing.applications import ApplicationBatch
    from ftfile.writing.bad_records import BadRecords
    from ftfile.writing.fingerprint import FingerprintAccumulator
    from ftfile.writing.messages import StagedSegment, TaskIdentity, WriterIdentity
    from ftfile.writing.options import CommonSettings
    from ftfile.writing.stage import FinalPath, Stage


_log = get_logger(__name__)

_C = TypeVar("_C", bound=WriteConfig)

# Records that are searched for an aborted job. Other writers may have committed after the job.
ABORTED_JOB_RECORDS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan(Generic[_C]):
    """The settings of a batch, and the log at the time of planning. A pickled plan has at most 64 KiB."""

    sink: Sink[_C]
    config: _C
    view: LogView
    time_ms: int  # the driver's clock, used as the time of all tasks of the batch
    definitions: dict[str, Any]  # of the encodings of due jobs, by key
    marker: DirectoryMarker | None  # of the driver's directory; None if tasks always have the same directory
    offsets_known: bool  # offsets identify a repeated batch; else its rows must prove that it is a replay


@dataclass(frozen=True, slots=True)
class DirectoryCheck(Generic[_C]):
    """The result of checking a directory to which a batch will be committed."""

    config: _C  # the batch's settings, completed by earlier records
    head: LogState
    definitions: dict[str, Any]  # of the encodings of due jobs, by key


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput(Generic[_C]):
    """The rows of a task."""

    config: _C  # the batch's settings, completed by the first rows
    batches: Iterable[pa.RecordBatch]
    time_zone: str | None = None  # for the task's message
    definition: str | None = None  # for the task's message


class PreparedBatch(ABC, Generic[_C]):
    """The checked messages of a batch that is ready to be committed."""

    def __init__(self, config: _C, author: Author, messages: Sequence[TaskCommit], log: CommitLog) -> None:
        self.config, self.author, self.messages, self.log = config, author, messages, log
        self.committed_ms = log.clock.now_ms()
        self.letters = letters_of(messages)
        self.rewrites = list(chain.from_iterable(message.rewritten for message in messages))
        self.failed = frozenset(chain.from_iterable(message.failed for message in messages))
        self.metrics = batch_metrics(messages, durability_of(config.common.storage.durability, log.fs.capabilities))

    @abstractmethod
    def body(self, head: LogState, snapshot: Callable[[], Snapshot]) -> Body | None:
        """Return the body of the record that follows this head; see `log.protocol.Prepare`."""

    @abstractmethod
    def after_commit(self, done: Committed) -> None:
        """Run the steps that follow a commit, also if the log already contained the batch."""


class Sink(ABC, Generic[_C]):
    """Interface of a sink: the steps of a batch that differ between files and stores. Stateless."""

    __slots__ = ()
    batch_writes_do_jobs: ClassVar[bool] = False  # also without an identity for retries

    @abstractmethod
    def check_directory(
        self,
        config: _C,
        log: CommitLog,
        read_head: Callable[[], LogState],
        is_repetition: Callable[[LogState], bool],
    ) -> DirectoryCheck[_C]:
        """Check that the directory is of this kind, and that its next record may have these settings.

        If `is_repetition` returns True, the batch has no next record, so its settings may contradict the head: other
        programs can have changed columns, partitions or format since it was committed.
        """

    @abstractmethod
    def task_input(self, config: _C, batches: Iterable[pa.RecordBatch]) -> TaskInput[_C]:
        """Return the batches and settings of a task."""

    def final_path(self, plan: WritePlan[_C], identity: TaskIdentity) -> FinalPath | None:
        """Return the function for final paths, or None if parts are not written under their final names."""
        del plan, identity
        return None

    @abstractmethod
    def write_rows(
        self, plan: WritePlan[_C], rows: Iterable[pa.RecordBatch], stage: Stage, bad: BadRecords
    ) -> Sequence[StagedSegment]:
        """Write rows, except for bad rows, and return the segments."""

    @abstractmethod
    def run_jobs(self, plan: WritePlan[_C], stage: Stage, head: LogState) -> AssemblyResults:
        """Run this task's share of the due jobs."""

    @abstractmethod
    def prepare(self, config: _C, author: Author, messages: list[TaskCommit], log: CommitLog) -> PreparedBatch[_C]:
        """Check the messages of all tasks, and return the batch to be committed."""


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
        config = config.for_store(log.fs.capabilities)
        with file_as_config_error(log, config.path):
            check = _checked_directory(sink, config, log, partial(_may_be_repetition, common, query_id, context))
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


def _checked_directory(
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
        return head.has(JobAuthor("", common.transaction))
    if not common.is_stream or common.is_application:
        return False
    if query_id is None or common.checkpoint is None:
        return bool(head.queries)
    planned = newest_planned(common.checkpoint, context)
    return planned is not None and head.has(StreamAuthor(query_id, "", planned))


def write_task(
    plan: WritePlan[_C], identity: TaskIdentity, batches: Iterable[pa.RecordBatch], context: Context
) -> TaskCommit:
    """Write the rows of one attempt to new files, which are invisible until the driver commits.

    Rows of a committed batch are only fingerprinted. The attempt also runs its share of the due jobs, whose errors do
    not affect it.

    Raises:
        FtfileError: the attempt failed. Its files were deleted if possible, and no record names them.
    """
    task = plan.sink.task_input(plan.config, batches)
    config, common = task.config, task.config.common
    with _context_of(identity.writer):
        fs = open_for_writer(config.path, context, common.storage.settings, common.encryption)
        check_marker(fs, config.path, plan.marker)
        return _write(replace(plan, config=config), identity, task, fs)


def _write(plan: WritePlan[_C], identity: TaskIdentity, task: TaskInput[_C], fs: FileSystem) -> TaskCommit:
    from ftfile.writing.bad_records import BadRecords  # noqa: PLC0415 - only tasks need these two
    from ftfile.writing.stage import Stage  # noqa: PLC0415

    clock, sink, config, common = fs.context.clock, plan.sink, plan.config, plan.config.common
    began_s = clock.monotonic_s()
    author = _replay_author(identity.writer, common.transaction)
    fingerprint = fingerprint_for(identity.writer, common, offsets_known=plan.offsets_known)
    rows = _recorded_rows(task.batches, config.schema, fingerprint)
    head = None
    if _reads_log(plan, identity, author):
        head = CommitLog(fs, start=plan.view).refresh()
    if author is not None and head is not None and head.has(author):
        for _ in rows:
            pass
        return TaskCommit(
            identity=identity,
            parts=(),
            fingerprint=fingerprint_json(fingerprint),
            found_committed=True,
            time_zone=task.time_zone,
        )
    stage = Stage(fs, identity, common.storage.durability, sink.final_path(plan, identity))
    try:
        bad = BadRecords(
            handling=common.bad_records,
            max_bytes=common.max_record_bytes,
            chain=config.hidden_chain,
            stage=stage,
            identity=identity,
        )
        segments = sink.write_rows(plan, rows, stage, bad)
        letters = bad.finish()
        stage.wait_closed()
    except BaseException:
        stage.discard()
        raise
    written_s = clock.monotonic_s()
    assembled = AssemblyResults()
    if head is not None and not config.overwrite:  # an overwrite removes all files, so jobs would be useless
        assembled = sink.run_jobs(plan, stage, head)
    now_s = clock.monotonic_s()
    return TaskCommit(
        identity=identity,
        parts=tuple(stage.finished),
        fingerprint=fingerprint_json(fingerprint),
        segments=tuple(segments),
        rewritten=assembled.rewrites,
        failed=assembled.failed,
        dead_letters=letters,
        planned_ms=plan.time_ms,
        metrics={
            "writeSeconds": now_s - began_s,
            "assemblySeconds": now_s - written_s,
            "syncSeconds": stage.sync_s,
            "badRecords": bad.count,
        },
        definition=task.definition,
        time_zone=task.time_zone,
        stored_ms=stage.stored_ms,
    )


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
    config, writer = config.for_store(log.fs.capabilities), whole[0].identity.writer
    with _context_of(writer):
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
    with _context_of(writer):
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


def _reads_log(plan: WritePlan[_C], identity: TaskIdentity, author: Author | None) -> bool:
    """Return True if a task reads the log: to find its batch, which only saves work, or to run due jobs.

    The driver has read the log just before the first attempt.
    """
    if author is None and not plan.sink.batch_writes_do_jobs:
        return False
    return identity.attempt > 0 or plan.view.has_jobs or (author is not None and plan.view.has(author))


def _replay_author(writer: WriterIdentity, transaction: Transaction | None) -> Author | None:
    """Return the write's identity in the log; None if a retry cannot be identified."""
    if isinstance(writer, StreamIdentity):
        return StreamAuthor(writer.query_id, writer.run_id, writer.batch_id)
    if transaction is not None:
        return JobAuthor(writer.job_id, transaction)
    return None


def _recorded_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, fingerprint: FingerprintAccumulator | None
) -> Iterator[pa.RecordBatch]:
    """Yield the non-empty batches in the recorded schema, and add them to a fingerprint."""
    for batch in filter(len, batches):
        if batch.schema.equals(schema):
            rows = batch
        else:
            rows = _cast(batch, schema)
        if fingerprint is not None:
            fingerprint.update(rows)
        yield rows


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the recorded schema; Spark sends its session's time zone and non-nullable columns."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _context_of(writer: WriterIdentity) -> AbstractContextManager[None]:
    """Return a context that adds the writer's batch or job to log lines."""
    if isinstance(writer, StreamIdentity):
        return log_context(query=writer.query_id, batch=writer.batch_id)
    return log_context(job=writer.job_id)


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
        if record is not None and isinstance(record.author, JobAuthor) and record.author.job_id == writer.job_id:
            return version
    return None


def _name_of(writer: WriterIdentity) -> str:
    if isinstance(writer, StreamIdentity):
        return f"batch {writer.batch_number}"
    return f"job {writer.owner}"
