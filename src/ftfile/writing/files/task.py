"""The steps of a task that writes files."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.rows.value_text import UTC
from ftfile.writing.files.assembly_plan import owner_of, plan_of
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.namer import Namer
from ftfile.writing.files.part_writer import EncodableRows, PartWriter
from ftfile.writing.files.spool import SpoolWriter
from ftfile.writing.messages import AssemblyResults, StreamIdentity
from ftfile.writing.sink import TaskInput, TaskSteps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.log.state import LogState
    from ftfile.writing.bad_records import BadRecords
    from ftfile.writing.messages import StagedSegment, TaskIdentity
    from ftfile.writing.sink import WritePlan
    from ftfile.writing.stage import FinalPath, Stage


# Seconds after which no job and no part is started, because late rows are worse than late files.
BUDGET_S = 10.0

_log = get_logger(__name__)


class FileTaskSteps(TaskSteps[SinkConfig]):
    """Writes the rows of a task as parts, or as segments of parts that stay open over batches."""

    __slots__ = ()

    def task_input(self, config: SinkConfig, batches: Iterable[pa.RecordBatch]) -> TaskInput[SinkConfig]:
        """Return the rows, and the settings with the time zone for directory names.

        If the zone is still open, the zone of the session is used. Only tasks can read it, from the types of the
        columns that Spark sends.
        """
        directories = config.directories
        if not directories.takes_zone:
            return TaskInput(config=config, batches=batches, time_zone=directories.time_zone)
        remaining = iter(batches)
        first = next(remaining, None)
        if first is None:
            return TaskInput(config=config, batches=())
        config = config.in_zone(_session_zone(first.schema))
        return self.task_input(config, chain([first], remaining))

    def final_path(self, plan: WritePlan[SinkConfig], identity: TaskIdentity) -> FinalPath | None:
        """See `TaskSteps.final_path`."""
        config, writer = plan.config, identity.writer
        if not config.publishing.direct:
            return None
        namer = Namer(
            naming=config.publishing.naming,
            batch=writer.name_stem,
            time_ms=plan.time_ms,
            query_id=writer.owner,
            extensions={},
        )
        return partial(namer.path, extension=config.extension, index=identity.partition)

    def write_rows(
        self, plan: WritePlan[SinkConfig], rows: Iterable[pa.RecordBatch], stage: Stage, bad: BadRecords
    ) -> Sequence[StagedSegment]:
        """Write all rows of an attempt to parts, or to a spool; return the segments of the spool."""
        config = plan.config
        router = config.directories.router(bad.take, plan.time_ms, config.path_check(stage.fs.capabilities))
        encodable = EncodableRows(config, bad.take)
        is_stream = isinstance(stage.identity.writer, StreamIdentity)
        if config.rolling is not None and config.rolling.needs_spool and not is_stream:
            raise ConfigError(
                "a batch write finishes its files: leave out finalizeColumn, eventTimeInterval and strictFileSize, "
                "which are only for files that a stream keeps open. maxBytesPerFile and maxRecordsPerFile split the "
                "files of a batch write"
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

    def run_jobs(self, plan: WritePlan[SinkConfig], stage: Stage, head: LogState) -> AssemblyResults:
        """Run the jobs of the stage's query that are assigned to this task's partition.

        Each task of the query's last record has an equal share. Jobs that are not run stay due. A query runs only its
        own jobs, because others have different file names and `onPublish` functions. Errors are not raised.
        """
        jobs = [job for job in head.jobs if owner_of(job) == stage.owner]
        tasks = max((plan_of(job).task_count for job in jobs), default=0)
        if stage.partition >= tasks:
            return AssemblyResults()
        from ftfile.writing.files.assembler import Assembled, Assembler  # noqa: PLC0415 - tasks without jobs need none

        definitions = plan.definitions
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


def _session_zone(schema: pa.Schema) -> str:
    """Return the time zone of the session from the types of columns that Spark sends; UTC if no type contains it.

    Raises:
        ConfigError: Arrow does not support the zone.
    """
    name = next((kind.tz for kind in schema.types if pa.types.is_timestamp(kind) and kind.tz is not None), UTC)
    try:
        return TimeFormats.from_options({"timeZone": name}).zone
    except ConfigError as error:
        raise ConfigError(
            f"spark.sql.session.timeZone={name!r} is the time zone of timestamps in paths. {error}"
        ) from error
