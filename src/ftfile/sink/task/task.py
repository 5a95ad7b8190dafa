"""A task: batches in, staged parts and a fingerprint out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.attempt.fingerprint import FingerprintAccumulator
from ftfile.attempt.identity import StreamIdentity
from ftfile.attempt.message import TaskCommit
from ftfile.attempt.stage import Stage
from ftfile.commit.format.model import Author, JobAuthor, StreamAuthor
from ftfile.commit.log.log import CommitLog
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.sink.assembly.assembler import Assembler
from ftfile.sink.naming.namer import Namer
from ftfile.sink.task.bad_records import BadRecords, without_oversized
from ftfile.sink.task.part_writer import PartWriter
from ftfile.sink.task.spool import SpoolWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ftfile.attempt.directory_marker import DirectoryMarker
    from ftfile.attempt.identity import TaskIdentity, WriterIdentity
    from ftfile.attempt.message import Assembled, StagedSegment
    from ftfile.commit.log.state import LogState, LogView
    from ftfile.fs.api import FileSystem
    from ftfile.sink.buckets.router import Router
    from ftfile.sink.config import SinkConfig

__all__ = ("Planned", "write_task")

# Seconds after which no job and no part is begun: rows that come late cost more than files that come late.
BUDGET_S = 10.0

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Planned:
    """The planned view of the log; at most 64 KiB pickled.

    Attributes:
        time_ms: the driver's clock: the time of all tasks of the batch, whenever they run.
        definitions: of the encodings of the due jobs, by key.
        marker: by what a task knows the driver's directory; None where it cannot see another.
        offsets_known: whether the driver sees the checkpoint: then offsets identify a repeated batch.
    """

    view: LogView
    time_ms: int
    definitions: dict[str, Any] = field(default_factory=dict)
    marker: DirectoryMarker | None = None
    offsets_known: bool = False


def write_task(
    config: SinkConfig,
    planned: Planned,
    identity: TaskIdentity,
    batches: Iterable[pa.RecordBatch],
    fs: FileSystem,
) -> TaskCommit:
    """Write the rows of one attempt to files of its own; of a batch that is committed, only look at the rows.

    With open parts, its share of the due jobs is done beside, and none of them can fail it.

    Raises:
        FtfileError: the attempt failed; what it wrote was removed as far as possible, and nobody refers to it.
    """
    began = fs.context.clock.monotonic_s()
    fingerprint = FingerprintAccumulator(config.fingerprint or _kind(config, planned, identity.writer))
    rows: Iterable[pa.RecordBatch] = _fingerprinted(_cast(batches, config.schema), fingerprint)
    author = _author(config, identity.writer)
    # It only saves work; the commit decides.
    head = CommitLog(fs, start=planned.view).read_on() if author is not None else None
    if author is not None and head is not None and head.has(author):
        for _ in rows:
            pass
        return TaskCommit(identity, (), fingerprint.to_json(), found_committed=True)
    final_path = _final_path(config, planned, identity) if config.publishing.direct else None
    stage = Stage(fs, identity, config.publishing.durability, final_path)
    try:
        bad = BadRecords(config, stage, identity)
        router = config.bucketing.router(bad.take, planned.time_ms, config.path_check(fs.capabilities))
        rows = without_oversized(rows, config.max_record_bytes, bad)
        segments = _write(config, identity.writer, router, stage, bad, rows)
        letters = bad.finish()
        stage.settle()
    except BaseException:
        stage.discard()
        raise
    # An overwrite leaves nothing open.
    shares = None if config.overwrite else head
    assembled, failed = _run_task_jobs(fs, stage, shares, planned.definitions) if shares is not None else ((), ())
    return TaskCommit(
        identity,
        tuple(stage.finished),
        fingerprint.to_json(),
        segments,
        assembled,
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
    bad: BadRecords,
    rows: Iterable[pa.RecordBatch],
) -> tuple[StagedSegment, ...]:
    """Write all rows to parts, or to a spool; return the segments of the spool.

    Raises:
        ConfigError: a batch write has rules that need a spool.
    """
    is_stream = isinstance(writer, StreamIdentity)
    if config.rolling is not None and config.rolling.needs_spool and not is_stream:
        raise ConfigError(
            "a batch write finishes its files: leave out finalizeColumn, eventTimeInterval and strictFileSize, which "
            "are for those that a stream keeps open; maxBytesPerFile and maxRecordsPerFile split its files"
        )
    if config.rolling is None or not is_stream:
        parts = PartWriter(config, router, stage, bad)
        for batch in rows:
            parts.write(batch)
        parts.finish()
        return ()
    spool = SpoolWriter(config, config.rolling, router, stage, bad)
    for batch in rows:
        spool.write(batch)
    spool.finish()
    return tuple(spool.segments)


def _run_task_jobs(
    fs: FileSystem, stage: Stage, head: LogState, definitions: Mapping[str, Any]
) -> tuple[tuple[Assembled, ...], tuple[str, ...]]:
    """Run the jobs of the stage's query that fall to its partition; return the results, and the ids of failures.

    Of the tasks that wrote the query's last record, each takes an equal share; what nobody takes stays due. Jobs of
    other queries are left to those, who know what their files are called and who hears of them. Raises nothing.
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
        if not assembler.can_do(job):
            continue
        try:
            assembled, damaged = assembler.assemble_readable(job, has_time)
        except Exception as error:  # it must not fail the batch, whatever it is
            assembled, damaged = None, {job.id: error}
        if assembled is None:
            reasons = "; ".join(dict.fromkeys(map(str, damaged.values())))
            _log.warning("making a file of %d segments failed, it will be tried again: %s", len(job.inputs), reasons)
            failed.append(job.id)
            continue
        done.append(assembled)
        failed += damaged
        for reason in damaged.values():
            _log.warning("a file was made without a segment that cannot be read: %s", reason)
    return tuple(done), tuple(failed)


def _final_path(config: SinkConfig, planned: Planned, identity: TaskIdentity) -> Callable[[str, str], str]:
    """Return the function that names parts which are written under their final names."""
    writer = identity.writer
    namer = Namer(config.publishing.naming, writer.name_stem, planned.time_ms, writer.owner)
    return lambda bucket, file_id: namer.path(bucket, file_id, config.extension, identity.partition)


def _kind(config: SinkConfig, planned: Planned, writer: WriterIdentity) -> str:
    """Return the kind of fingerprint: where nothing else can tell that a batch comes again, rows must prove it."""
    needs_proof = not planned.offsets_known if isinstance(writer, StreamIdentity) else config.transaction is not None
    return "strong" if needs_proof else "content"


def _author(config: SinkConfig, writer: WriterIdentity) -> Author | None:
    """Return this write's identity in the log; None if a retry cannot be recognised."""
    if isinstance(writer, StreamIdentity):
        return StreamAuthor(writer.query_id, writer.run_id, writer.batch_id)
    return JobAuthor(writer.job_id, config.transaction) if config.transaction is not None else None


def _fingerprinted(batches: Iterable[pa.RecordBatch], fingerprint: FingerprintAccumulator) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        fingerprint.update(batch)
        yield batch


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches cast to the recorded schema: Spark's has its session's time zone, and columns without null."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if batch.schema.equals(schema):
            yield batch
        else:
            columns = [_cast_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)
