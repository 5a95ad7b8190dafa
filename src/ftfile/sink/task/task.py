"""A task: from batches to staged parts and a fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.bad_records import BadRecords
from ftfile.attempt.fingerprint import FingerprintAccumulator
from ftfile.attempt.identity import StreamIdentity, TaskIdentity, WriterIdentity
from ftfile.attempt.incoming import Planned, fingerprint_kind, fingerprinted, recognisable
from ftfile.attempt.message import Rewritten, StagedSegment, TaskCommit
from ftfile.attempt.stage import Stage
from ftfile.commit.log.log import CommitLog
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.sink.assembly.assembler import Assembler
from ftfile.sink.naming.namer import Namer
from ftfile.sink.task.encodable import EncodableRows
from ftfile.sink.task.part_writer import PartWriter
from ftfile.sink.task.spool import SpoolWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    import pyarrow as pa

    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileSystem
    from ftfile.sink.buckets.router import Router
    from ftfile.sink.config import SinkConfig

__all__ = ("write_task",)

# Seconds after which no job and no part is begun: rows that come late cost more than files that come late.
BUDGET_S = 10.0

_log = get_logger(__name__)


def write_task(
    config: SinkConfig, planned: Planned, identity: TaskIdentity, batches: Iterable[pa.RecordBatch], fs: FileSystem
) -> TaskCommit:
    """Write the rows of one attempt to files of its own; of a committed batch, only fingerprint them.

    The attempt does its share of the due jobs, too, none of which can fail it.

    Raises:
        FtfileError: the attempt failed; its files were removed as far as possible, and nobody refers to them.
    """
    began = fs.context.clock.monotonic_s()
    writer, transaction = identity.writer, config.transaction
    kind = fingerprint_kind(writer, transaction, offsets_known=planned.offsets_known)
    fingerprint = FingerprintAccumulator(config.fingerprint or kind)
    rows: Iterable[pa.RecordBatch] = fingerprinted(batches, config.schema, fingerprint)
    author = recognisable(writer, transaction)
    # It only saves work; the commit decides.
    head = CommitLog(fs, start=planned.view).read_on() if author is not None else None
    if author is not None and head is not None and head.has(author):
        for _ in rows:
            pass
        return TaskCommit(identity, (), fingerprint.to_json(), found_committed=True)
    final_path = _final_path(config, planned, identity) if config.publishing.direct else None
    stage = Stage(fs, identity, config.publishing.storage.durability, final_path)
    try:
        bad = BadRecords(config.bad_records, config.max_record_bytes, config.hidden_chain, stage, identity)
        router = config.bucketing.router(bad.take, planned.time_ms, config.path_check(fs.capabilities))
        encodable = EncodableRows(config, bad.take)
        segments = _write(config, writer, router, stage, encodable, map(bad.without_oversized, rows))
        letters = bad.finish()
        stage.settle()
    except BaseException:
        stage.discard()
        raise
    # An overwrite leaves nothing open.
    shares = None if config.overwrite else head
    rewritten, failed = _run_task_jobs(fs, stage, shares, planned.definitions) if shares is not None else ((), ())
    return TaskCommit(
        identity,
        tuple(stage.finished),
        fingerprint.to_json(),
        segments,
        rewritten,
        failed,
        letters,
        planned_ms=planned.time_ms,
        metrics={"writeSeconds": fs.context.clock.monotonic_s() - began, "badRecords": bad.count},
    )


def _write(
    config: SinkConfig,
    writer: WriterIdentity,
    router: Router,
    stage: Stage,
    encodable: EncodableRows,
    rows: Iterable[pa.RecordBatch],
) -> tuple[StagedSegment, ...]:
    """Write all rows to parts, or to a spool; return the segments of the spool."""
    is_stream = isinstance(writer, StreamIdentity)
    if config.rolling is not None and config.rolling.needs_spool and not is_stream:
        raise ConfigError(
            "a batch write finishes its files: leave out finalizeColumn, eventTimeInterval and strictFileSize, which "
            "are for those that a stream keeps open; maxBytesPerFile and maxRecordsPerFile split its files"
        )
    if config.rolling is None or not is_stream:
        target: PartWriter | SpoolWriter = PartWriter(config, router, stage, encodable)
    else:
        target = SpoolWriter(config, config.rolling, router, stage, encodable)
    for batch in rows:
        target.write(batch)
    target.finish()
    return tuple(target.segments) if isinstance(target, SpoolWriter) else ()


def _run_task_jobs(
    fs: FileSystem, stage: Stage, head: LogState, definitions: Mapping[str, Any]
) -> tuple[tuple[Rewritten, ...], tuple[str, ...]]:
    """Run the jobs of the stage's query that fall to its partition; return the results, and the ids of failures.

    Each of the tasks that wrote the query's last record takes an equal share; other jobs stay due. Other queries do
    their own jobs: they know the names of their files, and who hears of them. Raises nothing.
    """
    jobs = [job for job in head.assembly_jobs if job.inputs[0].origin.query_id == stage.owner]
    tasks = max((job.payload["taskCount"] for job in jobs), default=0)
    if stage.partition >= tasks:
        return (), ()
    began_s = fs.context.clock.monotonic_s()

    def has_time(_parts: int = 0) -> bool:
        return fs.context.clock.monotonic_s() - began_s <= BUDGET_S

    assembler = Assembler(fs, stage, definitions, head.version)
    done, failed = [], []
    for number, job in enumerate(jobs[stage.partition :: tasks]):
        if number and not has_time():
            break
        if job.inputs[0].encoding not in definitions:
            continue
        try:
            rewritten, damaged = assembler.assemble_readable(job, has_time)
        except Exception as error:  # it must not fail the batch, whatever it is
            rewritten, damaged = None, {job.id: error}
        if rewritten is None:
            reasons = "; ".join(dict.fromkeys(map(str, damaged.values())))
            _log.warning("making a file of %d segments failed, it will be tried again: %s", len(job.inputs), reasons)
            failed.append(job.id)
            continue
        done.append(rewritten)
        failed += damaged
        for reason in damaged.values():
            _log.warning("a file was made without a segment that cannot be read: %s", reason)
    return tuple(done), tuple(failed)


def _final_path(config: SinkConfig, planned: Planned, identity: TaskIdentity) -> Callable[[str, str], str]:
    """Return the function that names parts which are written under their final names."""
    writer = identity.writer
    namer = Namer(config.publishing.naming, writer.name_stem, planned.time_ms, writer.owner)
    return lambda bucket, file_id: namer.path(bucket, file_id, config.extension, identity.partition)
