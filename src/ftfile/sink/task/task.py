"""A task: from batches to staged parts, and its share of the due jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.identity import StreamIdentity
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.sink.task.encodable import EncodableRows
from ftfile.sink.task.part_writer import PartWriter
from ftfile.sink.task.spool import SpoolWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    import pyarrow as pa

    from ftfile.attempt.bad_records import BadRecords
    from ftfile.attempt.identity import WriterIdentity
    from ftfile.attempt.message import StagedSegment
    from ftfile.attempt.stage import Stage
    from ftfile.attempt.writer import Planned
    from ftfile.commit.log.state import LogState
    from ftfile.commit.rewrites import Rewrite
    from ftfile.sink.config import SinkConfig

# Seconds after which no job and no part is begun: rows that come late cost more than files that come late.
BUDGET_S = 10.0

_log = get_logger(__name__)


def write_task(
    config: SinkConfig,
    planned: Planned,
    writer: WriterIdentity,
    rows: Iterable[pa.RecordBatch],
    stage: Stage,
    bad: BadRecords,
) -> tuple[StagedSegment, ...]:
    """Write all rows of an attempt to parts, or to a spool; return the segments of the spool."""
    router = config.bucketing.router(bad.take, planned.time_ms, config.path_check(stage.fs.capabilities))
    encodable = EncodableRows(config, bad.take)
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
        target.write(bad.without_oversized(batch))
    target.finish()
    return tuple(target.segments) if isinstance(target, SpoolWriter) else ()


def run_task_jobs(
    stage: Stage, head: LogState, definitions: Mapping[str, Any]
) -> tuple[tuple[Rewrite, ...], tuple[str, ...]]:
    """Run the jobs of the stage's query that fall to its partition; return the results, and the ids of failures.

    Each of the tasks that wrote the query's last record takes an equal share; other jobs stay due. Other queries do
    their own jobs: they know the names of their files, and who hears of them. Raises nothing.
    """
    jobs = [job for job in head.assembly_jobs if job.inputs[0].origin.query_id == stage.owner]
    tasks = max((job.payload["taskCount"] for job in jobs), default=0)
    if stage.partition >= tasks:
        return (), ()
    from ftfile.sink.assembly.assembler import Assembler  # noqa: PLC0415 - tasks without jobs need none

    clock = stage.fs.context.clock
    began_s = clock.monotonic_s()

    def has_time(_parts: int = 0) -> bool:
        return clock.monotonic_s() - began_s <= BUDGET_S

    assembler = Assembler(stage.fs, stage, definitions, head.version)
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
