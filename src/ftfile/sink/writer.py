"""The sink as one object: planned on the driver, pickled to the tasks, built anew for the commit."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.attempt.batch import check_messages
from ftfile.attempt.directory_marker import check_marker, write_marker
from ftfile.attempt.encryption import open_to_write
from ftfile.attempt.identity import StreamIdentity, TaskIdentity, WriterIdentity
from ftfile.attempt.incoming import Planned
from ftfile.attempt.logs import forget_logs
from ftfile.attempt.reports import context_of, report_abort, report_commit
from ftfile.attempt.spark_checkpoint import read_query_id
from ftfile.commit.format import layout
from ftfile.commit.format.definitions import definition_key
from ftfile.commit.policy import check_known_query
from ftfile.commit.protocol import Committed, commit
from ftfile.commit.read.snapshot import added_by
from ftfile.core.errors import FtfileError, NotFound
from ftfile.core.logs import get_logger, log_context
from ftfile.sink.driver.proposal import check_head, check_paths, make_proposal
from ftfile.sink.publishing.on_publish import call_on_publish, tell_untold
from ftfile.sink.rolling.plan import RollingPlanner
from ftfile.sink.rolling.settings import ALL_END
from ftfile.sink.task.task import write_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from ftfile.attempt.message import TaskCommit
    from ftfile.commit.log.log import CommitLog
    from ftfile.core.context import Context
    from ftfile.sink.config import SinkConfig

__all__ = ("SinkWriter", "forget_caches", "log_of")

PLANNERS_KEPT = 16
_log = get_logger(__name__)
_planners: dict[tuple[object, ...], RollingPlanner] = {}
_planners_lock = threading.Lock()


def log_of(config: SinkConfig, context: Context) -> CommitLog:
    """Return this process's log of a writer's directory, see `logs.log_at`."""
    return config.publishing.storage.log_at(config.path, config.encryption, context)


def forget_caches() -> None:
    """Drop this process's caches, as a new process would start."""
    forget_logs()
    with _planners_lock:
        _planners.clear()


@dataclass(frozen=True, slots=True)
class SinkWriter:
    """Settings, and the log as it was when the batch was planned. Picklable, a few kilobytes."""

    config: SinkConfig
    planned: Planned

    @classmethod
    def plan(cls, config: SinkConfig, context: Context) -> SinkWriter:
        """Look at the directory before any task starts.

        Raises:
            FtfileError: as `commit` would, for the schema, the partition columns, a query that is not known here, and a
                store on which the protocol cannot stand.
        """
        query_id = read_query_id(config.checkpoint, context)
        with contextlib.nullcontext() if query_id is None else log_context(query=query_id):
            log = log_of(config, context)
            config = config.for_store(log.fs.capabilities)
            check_paths(config, log.fs.capabilities, log.clock.now_ms())
            log.fs.prove(layout.META)
            head = log.read_on()
            if head.version < 0:
                _greet(config, log)
            check_head(config, head)
            if query_id is not None:
                check_known_query(head, query_id, config.policy)
            app_id = config.transaction.app_id if config.transaction is not None else None
            if head.version < 0 and config.encryption is not None and config.bad_records == "deadLetter":
                log.prepare_directory()  # its id is in what tasks write
            marker = write_marker(log.fs)
            needed = {job.inputs[0].encoding for job in head.assembly_jobs} & head.definitions.keys()
            definitions, now_ms = {key: head.definitions[key] for key in needed}, log.clock.now_ms()
            planned = Planned(head.view(app_id), now_ms, definitions, marker, offsets_known=query_id is not None)
            return cls(config, planned)

    def write(self, identity: TaskIdentity, batches: Iterable[pa.RecordBatch], context: Context) -> TaskCommit:
        """Write one attempt's rows; nobody sees them before the driver commits."""
        with context_of(identity.writer):
            config = self.config
            fs = open_to_write(config.path, context, config.publishing.storage.settings, config.encryption)
            check_marker(fs, config.path, self.planned.marker)
            return write_task(config, self.planned, identity, batches, fs)

    def commit(self, messages: Sequence[TaskCommit | None], batch_id: int | None, context: Context) -> Committed:
        """Commit a batch of all tasks' messages exactly once; repeatable. A batch write has no batch id."""
        try:
            whole = check_messages(messages, batch_id)
        except FtfileError as error:
            _log.error("batch %s is refused: %s", batch_id, error)
            raise
        log = log_of(self.config, context)
        writer = whole[0].identity.writer
        with context_of(writer):
            with log.lock:
                planner = self._planner(writer, context)
                batch = make_proposal(self.config, whole, log, planner)
                done = commit(
                    log,
                    batch.author,
                    batch.prepare,
                    self.config.policy,
                    fingerprint=batch.fingerprint,
                    claims_replay=batch.claims_replay,
                )
            report_commit(log, writer, done)
            if planner is not None and planner.in_progress and self.config.rolling is not None:
                self._tell_of_open(planner)
            self._announce(log, writer, done)
            return done

    def _planner(self, writer: WriterIdentity, context: Context) -> RollingPlanner | None:
        """Return the planner that ends open parts; None for a batch write, which leaves those to their queries."""
        if not isinstance(writer, StreamIdentity):
            return None
        encoding, rolling = definition_key(self.config.encoding()), self.config.rolling or ALL_END
        key = (self.config.path, writer.query_id, encoding, rolling, context.ids)
        # Queries that share a directory may share a process, too.
        with _planners_lock:
            planner = _planners.pop(key, None) or RollingPlanner(writer.query_id, encoding, rolling, context.ids)
            _planners[key] = planner
            if len(_planners) > PLANNERS_KEPT:
                _planners.pop(next(iter(_planners)))
        return planner

    def _tell_of_open(self, planner: RollingPlanner) -> None:
        """Log the number of files that no plain reader sees yet: a warning the first time."""
        _log.log(
            logging.INFO if planner.is_told else logging.WARNING,
            "%d files are in progress and stay so over batches; when no batch comes, ftfile.spark.attach(spark), "
            "called before, or ftfile.flush(%r) finishes them",
            planner.in_progress,
            self.config.path,
        )
        planner.is_told = True

    def _announce(self, log: CommitLog, writer: WriterIdentity, done: Committed) -> None:
        """Write a batch write's marker and call the user's function: for a replay, too, and for flushes that died."""
        hook, success, path = self.config.publishing.on_publish, self.config.publishing.success, self.config.path
        is_stream = isinstance(writer, StreamIdentity)
        if success is not None and not is_stream:
            success.put(log.fs, "", done.version)
        if hook is None:
            return
        if done.record is not None:
            call_on_publish(hook, path, done.version, done.record.adds)
        elif isinstance(writer, StreamIdentity):
            last = log.read_on().queries[writer.query_id]
            # Spark begins a batch when the function has heard of the one before it.
            if last.last_batch == writer.batch_id:
                call_on_publish(hook, path, last.version, added_by(log, last.version))
        if is_stream:
            with log.lock:
                tell_untold(log, hook, path, writer.owner)

    def abort(self, messages: Sequence[TaskCommit | None], batch_id: int | None, context: Context) -> None:
        """Delete nothing: the batch may be committed although its commit raised, and tasks may still be writing."""
        report_abort(messages, batch_id, lambda: log_of(self.config, context))


def _greet(config: SinkConfig, log: CommitLog) -> None:
    """Log once, before the first commit, what may surprise later; refuse a layout that this version does not know."""
    found: list[str] = []
    with contextlib.suppress(NotFound):
        found = [info.path for info in log.fs.list("") if info.path[0] not in "_."]
        log.check_layout()
    # Written under their names, own files may be there before the first commit.
    if found and not config.publishing.direct:
        _log.warning(
            "%s is not empty: it has %d entries that ftfile did not write, such as %r. Plain readers read them, too",
            config.path,
            len(found),
            found[0],
        )
    if config.bucketing.is_single:
        _log.info("no partitionBy option: rows go to one directory. Spark's .partitionBy() never reaches a Python sink")
