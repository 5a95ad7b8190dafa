"""A store's writer, see `attempt.writer`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ftfile.attempt.kind_of_directory import entries_of_new, refuse_new_tables
from ftfile.attempt.options import check_staged_names
from ftfile.attempt.writer import Writer
from ftfile.commit.format import layout
from ftfile.commit.format.record import definition_key
from ftfile.core.errors import NotFound
from ftfile.core.logs import get_logger
from ftfile.kv.config import StoreConfig
from ftfile.kv.definition import StoreDefinition
from ftfile.kv.driver import definition_after, propose_batch
from ftfile.kv.files.spool import RunSpool
from ftfile.kv.marks import open_state
from ftfile.kv.operator.recording import refuse_operator
from ftfile.kv.task.jobs import run_jobs
from ftfile.kv.task.rows import RunWriter
from ftfile.kv.upkeep.automatic import vacuum_if_due

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from ftfile.attempt.bad_records import BadRecords
    from ftfile.attempt.identity import WriterIdentity
    from ftfile.attempt.message import Rewritten, StagedSegment, TaskCommit
    from ftfile.attempt.stage import Stage
    from ftfile.commit.format.model import Author, Body
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.protocol import Committed, Prepare
    from ftfile.commit.read.snapshot import Snapshot

_log = get_logger(__name__)


class StoreWriter(Writer[StoreConfig]):
    """Writes rows as runs; after a commit it vacuums the store, if it is time."""

    __slots__ = ()
    batch_writes_do_jobs = True

    @staticmethod
    def _look(config: StoreConfig, log: CommitLog) -> tuple[LogState, dict[str, Any]]:
        check_staged_names(config.path, config.hidden_chain, log.fs.capabilities)
        log.fs.prove(layout.META)
        head = log.read_on()
        if head.version < 0:
            entries_of_new(log.fs, config.path)
            with contextlib.suppress(NotFound):
                log.check_layout()
        else:
            refuse_new_tables(log, head, config.path)
        definition_after(config, head)
        refuse_operator(head, config.transaction)
        return head, {head.encoding: head.definitions[head.encoding]} if head.encoding and head.assembly_jobs else {}

    def _write_rows(
        self, _: WriterIdentity, rows: Iterable[pa.RecordBatch], stage: Stage, bad: BadRecords
    ) -> list[StagedSegment]:
        runs = RunWriter(self.config, stage, bad, self.planned.time_ms)
        for batch in rows:
            runs.write(batch)
        runs.finish()
        return runs.segments

    def _run_jobs(self, stage: Stage, head: LogState) -> tuple[tuple[Rewritten, ...], tuple[str, ...]]:
        if not self.planned.definitions:
            return (), ()
        config, ((encoding, text),) = self.config, self.planned.definitions.items()
        if head.encoding not in (None, encoding):  # others brought columns, and runs that have them
            encoding, text = head.encoding, head.definitions.get(head.encoding)
            if text is None:
                return (), ()
        definition = StoreDefinition.from_json(text["store"])
        try:
            state = open_state(stage.fs, head)
        except Exception as error:  # it must not fail the batch, whatever it is
            _log.warning("no runs are merged: %s", error)
            return (), ()

        def open_spool() -> RunSpool:
            return RunSpool(stage, definition, config.hidden_chain, config.compression, config.block_bytes)

        return run_jobs(stage, state, definition, encoding, open_spool)

    def _definition(self) -> str:
        return definition_key(self.config.definition.to_json())

    def _propose(
        self, _: Author, messages: list[TaskCommit], log: CommitLog
    ) -> tuple[Prepare, Callable[[Committed], None]]:
        propose = propose_batch(self.config, messages, log)

        def prepare(head: LogState, snapshot: Callable[[], Snapshot]) -> Body | None:
            refuse_operator(head, self.config.transaction)
            return propose(head, snapshot)

        return prepare, lambda _: self._keep_up(log)

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
