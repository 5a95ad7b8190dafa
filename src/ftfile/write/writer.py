"""A writer as one object: planned on the driver and pickled to the tasks; another one, not planned, commits."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from ftfile.core.errors import FtfileError
from ftfile.core.logs import get_logger, log_context
from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import check_marker, file_as_config_error, write_marker
from ftfile.log.format.model import JobAuthor, StreamAuthor
from ftfile.log.policy import check_known_query, find_record
from ftfile.write.messages import StreamIdentity
from ftfile.write.options import WriteConfig, open_for_writer
from ftfile.write.spark_checkpoint import check_sources, read_query_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ftfile.core.context import Context
    from ftfile.log.checks import Rewrite
    from ftfile.log.directory import DirectoryMarker
    from ftfile.log.format.model import Author, Body, Transaction
    from ftfile.log.protocol import Committed
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState, LogView
    from ftfile.storage.api import FileSystem
    from ftfile.write.bad_records import BadRecords
    from ftfile.write.fingerprint import FingerprintAccumulator
    from ftfile.write.messages import StagedSegment, TaskCommit, TaskIdentity, WriterIdentity
    from ftfile.write.stage import Stage


_log = get_logger(__name__)

_C = TypeVar("_C", bound=WriteConfig)
_W = TypeVar("_W", bound="Writer[Any]")

# Records in which an aborted job is looked for: others may have committed since it did.
ABORTED_JOB_RECORDS = 16


@dataclass(frozen=True, slots=True)
class Planned:
    """The planned view of the log; at most 64 KiB pickled."""

    view: LogView
    time_ms: int  # the driver's clock: the time of all tasks of the batch, whenever they run
    definitions: dict[str, Any]  # of the encodings that due jobs need, by key
    marker: DirectoryMarker | None  # of the driver's directory; None where tasks cannot see another
    offsets_known: bool  # the driver sees the checkpoint: offsets identify a repeated batch


class PreparedBatch(ABC):
    """The checked messages of a batch, to be recorded."""

    @abstractmethod
    def body(self, head: LogState, snapshot: Callable[[], Snapshot]) -> Body | None:
        """Return the body of the record after this head; see `log.protocol.Prepare`."""

    @abstractmethod
    def after_commit(self, done: Committed) -> None:
        """Do what follows a commit, also one that was found to be there."""


@dataclass(frozen=True, slots=True)
class Writer(ABC, Generic[_C]):
    """Settings, and the log as it was when the batch was planned. Picklable, a few kilobytes."""

    config: _C
    planned: Planned | None  # None in a process that only commits
    batch_writes_do_jobs: ClassVar[bool] = False  # also those that cannot be recognised

    @classmethod
    def plan(cls: type[_W], config: _C, context: Context) -> _W:  # noqa: PYI019 - typing.Self comes with Python 3.11
        """Look at the directory before any task starts.

        Raises:
            FtfileError: as `commit` would, for schema and options, a query that is not known here, a directory of
                another kind, and a file system on which the protocol cannot stand.
        """
        common = config.common
        query_id = read_query_id(common.checkpoint, context)
        with contextlib.nullcontext() if query_id is None else log_context(query=query_id):
            log = config.log(context)
            config = config.for_store(log.fs.capabilities)
            with file_as_config_error(log, config.path):
                head, definitions = cls._check_directory(config, log)
            config = cls._following(config, head)
            if query_id is not None:
                check_known_query(head, query_id, common.policy)
                if query_id not in head.queries and common.checkpoint is not None:
                    check_sources(config.path, common.checkpoint, query_id, log, head)
            app_id = common.transaction.app_id if common.transaction is not None else None
            if head.version < 0 and common.encryption is not None and common.bad_records == "deadLetter":
                log.prepare_directory()  # its id is in what tasks write
            marker, now_ms = write_marker(log.fs), log.clock.now_ms()
            planned = Planned(head.view(app_id), now_ms, definitions, marker, offsets_known=query_id is not None)
            return cls(config, planned)

    @classmethod
    def for_commit(cls: type[_W], config: _C, context: Context) -> _W:  # noqa: PYI019 - likewise
        """Return the writer of a process that only commits or aborts: the directory is not looked at.

        Raises:
            ConfigError: the store has less than the options ask for.
        """
        return cls(config.for_store(config.log(context).fs.capabilities), None)

    @property
    def batch_plan(self) -> Planned:
        """Return the plan, which every writer has that writes."""
        assert self.planned is not None, "a writer that only commits cannot write"
        return self.planned

    def write(self, identity: TaskIdentity, batches: Iterable[pa.RecordBatch], context: Context) -> TaskCommit:
        """Write one attempt's rows to files of its own, which nobody sees before the driver commits.

        Of a committed batch they are only fingerprinted. The attempt does its share of the due jobs, too, none of which
        can fail it.

        Raises:
            FtfileError: the attempt failed; its files were removed as far as possible, and nobody refers to them.
        """
        path, common = self.config.path, self.config.common
        with context_of(identity.writer):
            fs = open_for_writer(path, context, common.storage.settings, common.encryption)
            check_marker(fs, path, self.batch_plan.marker)
            return self._write(identity, batches, fs)

    def _write(self, identity: TaskIdentity, batches: Iterable[pa.RecordBatch], fs: FileSystem) -> TaskCommit:
        from ftfile.write.bad_records import BadRecords  # noqa: PLC0415 - tasks alone need these four
        from ftfile.write.fingerprint import FingerprintAccumulator  # noqa: PLC0415
        from ftfile.write.messages import TaskCommit  # noqa: PLC0415
        from ftfile.write.stage import Stage  # noqa: PLC0415

        began_s = fs.context.clock.monotonic_s()
        config, common, planned = self.config, self.config.common, self.batch_plan
        author = _replay_author(identity.writer, common.transaction)
        kind = _fingerprint_kind(identity.writer, common.transaction, offsets_known=planned.offsets_known)
        fingerprint = FingerprintAccumulator(common.fingerprint or kind)
        rows = _fingerprinted(batches, config.schema, fingerprint)
        # It only saves work; the commit decides.
        reads_log = author is not None or (self.batch_writes_do_jobs and planned.definitions)
        head = CommitLog(fs, start=planned.view).refresh() if reads_log else None
        if author is not None and head is not None and head.has(author):
            for _ in rows:
                pass
            return TaskCommit(identity, (), fingerprint.to_json(), found_committed=True)
        stage = Stage(fs, identity, common.storage.durability, self._final_path(identity))
        try:
            bad = BadRecords(common.bad_records, common.max_record_bytes, config.hidden_chain, stage, identity)
            segments = self._write_rows(identity.writer, rows, stage, bad)
            letters = bad.finish()
            stage.wait_closed()
        except BaseException:
            stage.discard()
            raise
        written_s = fs.context.clock.monotonic_s()
        # Nothing stays of what jobs rewrite where all is replaced.
        rewritten, failed = ((), ()) if head is None or config.overwrite else self._run_jobs(stage, head)
        now_s = fs.context.clock.monotonic_s()
        return TaskCommit(
            identity,
            tuple(stage.finished),
            fingerprint.to_json(),
            tuple(segments),
            rewritten,
            failed,
            letters,
            planned_ms=planned.time_ms,
            metrics={
                "writeSeconds": now_s - began_s,
                "assemblySeconds": now_s - written_s,
                "syncSeconds": stage.sync_s,
                "badRecords": bad.count,
            },
            definition=self._definition(),
        )

    def commit(self, messages: Sequence[TaskCommit | None], batch_id: int | None, context: Context) -> Committed:
        """Commit a batch of all tasks' messages exactly once; repeatable. A batch write has no batch id."""
        from ftfile.log.protocol import commit  # noqa: PLC0415
        from ftfile.write import messages as batch  # noqa: PLC0415 - commits alone need these two

        try:
            whole = batch.check_messages(messages, batch_id)
        except FtfileError as error:
            _log.error("batch %s is refused: %s", batch_id, error)
            raise
        log, common = self.config.log(context), self.config.common
        writer = whole[0].identity.writer
        with context_of(writer):
            with log.lock:
                author = batch.author_of(writer, common.checkpoint, common.transaction, log.fs.context)
                prepared = self._prepare(author, whole, log)
                done = commit(
                    log,
                    author,
                    prepared.body,
                    common.policy,
                    fingerprint=batch.fingerprint_of(whole),
                    task_found_batch=any(message.found_committed for message in whole),
                )
                log.notes.orphans += batch.orphans_of(whole, log, author, done.record)
            report_commit(log, writer, done)
            prepared.after_commit(done)
            return done

    def abort(self, messages: Sequence[TaskCommit | None], batch_id: int | None, context: Context) -> None:
        """Log the fate of a batch that Spark aborts: it may be committed although its commit raised.

        Nothing is deleted: tasks may still be writing. Raises nothing of the log's.
        """
        received = [message for message in messages if message is not None]
        staged = len({file.path for message in received for file in (*message.parts, *message.segments)})
        if not received:
            with log_context(batch=batch_id):
                _log.warning("Spark aborts the batch; what its tasks staged stays for vacuum")
            return
        writer = received[0].identity.writer
        with context_of(writer):
            try:
                version = _version_of(self.config.log(context), writer)
            except FtfileError as error:
                _log.warning("Spark aborts the batch. Whether it is committed is not known: %s", error)
                return
            name = _name_of(writer)
            if version is not None:
                _log.warning("%s is committed as version %d; publishing goes on with the next commit", name, version)
                return
            is_stream = isinstance(writer, StreamIdentity)
            where = "not committed" if is_stream else f"in none of the last {ABORTED_JOB_RECORDS} versions"
            _log.warning("Spark aborts %s. It is %s; %d staged files stay for vacuum", name, where, staged)

    @staticmethod
    @abstractmethod
    def _check_directory(config: _C, log: CommitLog) -> tuple[LogState, dict[str, Any]]:
        """Return the head, which records of these settings may follow, and the definitions that its due jobs need."""

    @staticmethod
    def _following(config: _C, head: LogState) -> _C:
        """Return the settings, as far as the records before decide them."""
        del head
        return config

    @abstractmethod
    def _write_rows(
        self, writer: WriterIdentity, rows: Iterable[pa.RecordBatch], stage: Stage, bad: BadRecords
    ) -> Sequence[StagedSegment]:
        """Write rows, but for bad ones; return the segments."""

    @abstractmethod
    def _run_jobs(self, stage: Stage, head: LogState) -> tuple[tuple[Rewrite, ...], tuple[str, ...]]:
        """Do the task's share of the due jobs; return the results, and the ids of jobs that failed."""

    @abstractmethod
    def _prepare(self, author: Author, messages: list[TaskCommit], log: CommitLog) -> PreparedBatch:
        """Return the checked messages of all tasks, ready to be recorded."""

    def _final_path(self, _: TaskIdentity) -> Callable[[str, str], str] | None:
        return None

    def _definition(self) -> str | None:
        return None


def _replay_author(writer: WriterIdentity, transaction: Transaction | None) -> Author | None:
    """Return this write's identity in the log; None if a retry cannot be recognised."""
    if isinstance(writer, StreamIdentity):
        return StreamAuthor(writer.query_id, writer.run_id, writer.batch_id)
    return JobAuthor(writer.job_id, transaction) if transaction is not None else None


def _fingerprint_kind(writer: WriterIdentity, transaction: Transaction | None, *, offsets_known: bool) -> str:
    """Return the kind of fingerprint: where nothing else can tell that a batch comes again, rows must prove it."""
    needs_proof = not offsets_known if isinstance(writer, StreamIdentity) else transaction is not None
    return "strong" if needs_proof else "content"


def _fingerprinted(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, fingerprint: FingerprintAccumulator
) -> Iterator[pa.RecordBatch]:
    """Yield batches with rows, in the recorded schema, and add them to a fingerprint."""
    for batch in filter(len, batches):
        rows = batch if batch.schema.equals(schema) else _cast(batch, schema)
        fingerprint.update(rows)
        yield rows


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the recorded schema: Spark's has its session's time zone, and columns without null."""
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


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
        last = log.refresh().queries[writer.query_id]
        version = f"version {last.version}" if last.last_batch == writer.batch_id else version
    _log.info("%s was committed as %s; nothing written", _name_of(writer), version)


def _version_of(log: CommitLog, writer: WriterIdentity) -> int | None:
    """Return the version of a batch, or of a job among the newest; None if there is none.

    For a committed batch whose record is gone, it is the version of the query's last batch.
    """
    head = log.refresh()
    if isinstance(writer, StreamIdentity):
        query = head.queries.get(writer.query_id)
        if query is None or query.last_batch < writer.batch_id:
            return None
        record = find_record(log, head, StreamAuthor(writer.query_id, "", writer.batch_id))
        return query.version if record is None else record.version
    for version in range(head.version, max(head.version - ABORTED_JOB_RECORDS, head.log_start - 1), -1):
        record = log.read_record(version)
        if record is not None and isinstance(record.author, JobAuthor) and record.author.job_id == writer.job_id:
            return version
    return None


def _name_of(writer: WriterIdentity) -> str:
    return f"batch {writer.batch_number}" if isinstance(writer, StreamIdentity) else f"job {writer.owner}"
