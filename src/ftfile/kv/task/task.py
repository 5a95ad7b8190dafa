"""A task: from batches to staged runs and a fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.bad_records import BadRecords
from ftfile.attempt.fingerprint import FingerprintAccumulator
from ftfile.attempt.incoming import Planned, fingerprint_kind, fingerprinted, recognisable
from ftfile.attempt.message import Rewritten, TaskCommit
from ftfile.attempt.stage import Stage
from ftfile.commit.format.definitions import definition_key
from ftfile.commit.log.log import CommitLog
from ftfile.core.logs import get_logger
from ftfile.kv.definition import StoreDefinition
from ftfile.kv.files.spool import RunSpool
from ftfile.kv.marks import open_state
from ftfile.kv.task.jobs import run_jobs
from ftfile.kv.task.rows import RunWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from ftfile.attempt.identity import TaskIdentity
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileSystem
    from ftfile.kv.config import StoreConfig

__all__ = ("write_runs",)

_log = get_logger(__name__)


def write_runs(
    config: StoreConfig, planned: Planned, identity: TaskIdentity, batches: Iterable[pa.RecordBatch], fs: FileSystem
) -> TaskCommit:
    """Write the rows of one attempt to a spool of its own; of a committed batch, only fingerprint them.

    The attempt does its share of the due jobs, too, none of which can fail it.

    Raises:
        FtfileError: the attempt failed; its files were removed as far as possible, and nobody refers to them.
    """
    began = fs.context.clock.monotonic_s()
    writer, transaction = identity.writer, config.transaction
    kind = fingerprint_kind(writer, transaction, offsets_known=planned.offsets_known)
    fingerprint = FingerprintAccumulator(config.fingerprint or kind)
    rows = fingerprinted(batches, config.schema, fingerprint)
    author = recognisable(writer, transaction)
    # It only saves work; the commit decides.
    is_wanted = author is not None or planned.definitions
    head = CommitLog(fs, start=planned.view).read_on() if is_wanted else None
    if author is not None and head is not None and head.has(author):
        for _ in rows:
            pass
        return TaskCommit(identity, (), fingerprint.to_json(), found_committed=True)
    stage = Stage(fs, identity, config.storage.durability)
    try:
        bad = BadRecords(config.bad_records, config.max_record_bytes, config.chain, stage, identity)
        runs = RunWriter(config, stage, bad, planned.time_ms)
        for batch in rows:
            runs.write(batch)
        runs.finish()
        letters = bad.finish()
        stage.settle()
    except BaseException:
        stage.discard()
        raise
    rewritten, failed = ((), ()) if head is None else _merge_due(config, planned, stage, head)
    return TaskCommit(
        identity,
        (),
        fingerprint.to_json(),
        tuple(runs.segments),
        rewritten,
        failed,
        letters,
        planned_ms=planned.time_ms,
        metrics={"writeSeconds": fs.context.clock.monotonic_s() - began, "badRecords": bad.count},
        definition=definition_key(config.definition.to_json()),
    )


def _merge_due(
    config: StoreConfig, planned: Planned, stage: Stage, head: LogState
) -> tuple[tuple[Rewritten, ...], tuple[str, ...]]:
    """Do the task's share of the due jobs; an overwrite leaves them, as nothing stays of what they merge."""
    if config.overwrite or not planned.definitions:
        return (), ()
    ((encoding, text),) = planned.definitions.items()
    definition = StoreDefinition.from_json(text["store"])
    try:
        state = open_state(stage.fs, head)
    except Exception as error:  # it must not fail the batch, whatever it is
        _log.warning("no runs are merged: %s", error)
        return (), ()

    def open_spool() -> RunSpool:
        return RunSpool(stage, definition, config.chain, config.compression, config.block_bytes)

    return run_jobs(stage, state, definition, encoding, open_spool)
