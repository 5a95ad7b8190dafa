"""The part of a task that writes files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.writing.files.assembly_plan import plan_of
from ftfile.writing.files.part_writer import EncodableRows, PartWriter
from ftfile.writing.files.spool import SpoolWriter
from ftfile.writing.messages import AssemblyResults, StreamIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from ftfile.log.state import LogState
    from ftfile.writing.bad_records import BadRecords
    from ftfile.writing.batch import WritePlan
    from ftfile.writing.files.file_options import SinkConfig
    from ftfile.writing.messages import StagedSegment
    from ftfile.writing.stage import Stage


# Seconds after which no job and no part is started, because late rows are worse than late files.
BUDGET_S = 10.0

_log = get_logger(__name__)


def write_rows(
    plan: WritePlan[SinkConfig], rows: Iterable[pa.RecordBatch], stage: Stage, bad: BadRecords
) -> Sequence[StagedSegment]:
    """Write all rows of an attempt to parts, or to a spool; return the segments of the spool."""
    config = plan.config
    router = config.directories.router(bad.take, plan.time_ms, config.path_check(stage.fs.capabilities))
    encodable = EncodableRows(config, bad.take)
    is_stream = isinstance(stage.identity.writer, StreamIdentity)
    if config.rolling is not None and config.rolling.needs_spool and not is_stream:
        raise ConfigError(
            "a batch write finishes its files: leave out finalizeColumn, eventTimeInterval and strictFileSize, which "
            "are only for files that a stream keeps open. maxBytesPerFile and maxRecordsPerFile split the files of a "
            "batch write"
        )
    if config.rolling is None or not is_stream:
        target: PartWriter | SpoolWriter = PartWriter(config, router, stage, encodable)
    else:
        target = SpoolWriter(config, config.rolling, router=router, stage=stage, encodable=encodable)
    for batch in rows:
        target.write(bad.split_oversized(batch))
    target.finish()
    if isinstance(target, SpoolWriter):
        return target.segments
    return ()


def run_jobs(stage: Stage, head: LogState, definitions: Mapping[str, Any]) -> AssemblyResults:
    """Run the jobs of the stage's query that are assigned to this task's partition.

    Each task of the query's last record has an equal share. Jobs that are not run stay due. A query runs only its own
    jobs, because others have different file names and `onPublish` functions. Errors are not raised.
    """
    jobs = [job for job in head.jobs if job.inputs[0].origin.query_id == stage.owner]
    tasks = max((plan_of(job).task_count for job in jobs), default=0)
    if stage.partition >= tasks:
        return AssemblyResults()
    from ftfile.writing.files.assembler import Assembled, Assembler  # noqa: PLC0415 - tasks without jobs need none

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
            assembled = assembler.assemble_readable(job, has_time)
        except Exception as error:  # no exception of a job may fail the batch
            assembled = Assembled(None, {job.id: error})
        if assembled.rewrite is None:
            reasons = "; ".join(dict.fromkeys(map(str, assembled.errors.values())))
            _log.warning(
                "assembling a file of %d segments failed, it will be tried again: %s",
                len(job.inputs),
                reasons,
            )
            failed.append(job.id)
            continue
        done.append(assembled.rewrite)
        failed += assembled.errors
        for reason in assembled.errors.values():
            _log.warning("a file was assembled without a segment that cannot be read: %s", reason)
    return AssemblyResults(tuple(done), tuple(failed))
