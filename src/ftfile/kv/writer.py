"""A store's writer as one object: planned on the driver, pickled to the tasks, built anew for the commit."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.attempt.batch import check_messages, check_staged_names
from ftfile.attempt.directory_marker import check_marker, write_marker
from ftfile.attempt.encryption import open_to_write
from ftfile.attempt.incoming import Planned
from ftfile.attempt.reports import context_of, report_abort, report_commit
from ftfile.attempt.spark_checkpoint import read_query_id
from ftfile.commit.format import layout
from ftfile.commit.policy import check_known_query
from ftfile.commit.protocol import Committed, commit
from ftfile.core.errors import FtfileError, NotFound
from ftfile.core.logs import get_logger, log_context
from ftfile.kv.driver.head import definition_after
from ftfile.kv.driver.proposal import propose_batch
from ftfile.kv.task.task import write_runs
from ftfile.kv.upkeep.automatic import vacuum_if_due

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from ftfile.attempt.identity import TaskIdentity
    from ftfile.attempt.message import TaskCommit
    from ftfile.commit.log.log import CommitLog
    from ftfile.core.context import Context
    from ftfile.kv.config import StoreConfig

__all__ = ("StoreWriter",)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StoreWriter:
    """Settings, and the log as it was when the batch was planned. Picklable, a few kilobytes."""

    config: StoreConfig
    planned: Planned

    @classmethod
    def plan(cls, config: StoreConfig, context: Context) -> StoreWriter:
        """Look at the store before any task starts.

        Raises:
            FtfileError: as `commit` would, for the definition, the schema, a query that is not known here, a directory
                of files, and a file system on which the protocol cannot stand.
        """
        query_id = read_query_id(config.checkpoint, context)
        with contextlib.nullcontext() if query_id is None else log_context(query=query_id):
            log = _log_of(config, context)
            config = config.for_store(log.fs.capabilities)
            check_staged_names(config.path, config.chain, log.fs.capabilities)
            log.fs.prove(layout.META)
            head = log.read_on()
            if head.version < 0:
                with contextlib.suppress(NotFound):
                    log.check_layout()
            definition_after(config, head)
            if query_id is not None:
                check_known_query(head, query_id, config.policy)
            app_id = config.transaction.app_id if config.transaction is not None else None
            if head.version < 0 and config.encryption is not None and config.bad_records == "deadLetter":
                log.prepare_directory()  # its id is in what tasks write
            marker = write_marker(log.fs)
            needed = {head.encoding: head.definitions[head.encoding]} if head.encoding and head.assembly_jobs else {}
            planned = Planned(head.view(app_id), log.clock.now_ms(), needed, marker, offsets_known=query_id is not None)
            return cls(config, planned)

    def write(self, identity: TaskIdentity, batches: Iterable[pa.RecordBatch], context: Context) -> TaskCommit:
        """Write one attempt's rows; nobody sees them before the driver commits."""
        config = self.config
        with context_of(identity.writer):
            fs = open_to_write(config.path, context, config.storage.settings, config.encryption)
            check_marker(fs, config.path, self.planned.marker)
            return write_runs(config, self.planned, identity, batches, fs)

    def commit(self, messages: Sequence[TaskCommit | None], batch_id: int | None, context: Context) -> Committed:
        """Commit a batch of all tasks' messages exactly once; repeatable. A batch write has no batch id."""
        try:
            whole = check_messages(messages, batch_id)
        except FtfileError as error:
            _log.error("batch %s is refused: %s", batch_id, error)
            raise
        log = _log_of(self.config, context)
        writer = whole[0].identity.writer
        with context_of(writer):
            with log.lock:
                batch = propose_batch(self.config, whole, log)
                done = commit(
                    log,
                    batch.author,
                    batch.prepare,
                    self.config.policy,
                    fingerprint=batch.fingerprint,
                    claims_replay=batch.claims_replay,
                )
            report_commit(log, writer, done)
            self._keep_up(log)
            return done

    def _keep_up(self, log: CommitLog) -> None:
        """Start a vacuum in a thread, if it is time."""
        config = self.config
        vacuum_if_due(
            config.path,
            log,
            grace_s=config.grace_s,
            interval_s=config.vacuum_interval_s,
            key_provider=None if config.encryption is None else config.encryption.keys.reference,
            storage=dict(config.storage.connection),
        )

    def abort(self, messages: Sequence[TaskCommit | None], batch_id: int | None, context: Context) -> None:
        """Delete nothing: the batch may be committed although its commit raised, and tasks may still be writing."""
        report_abort(messages, batch_id, lambda: _log_of(self.config, context))


def _log_of(config: StoreConfig, context: Context) -> CommitLog:
    return config.storage.log_at(config.path, config.encryption, context)
