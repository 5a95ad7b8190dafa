"""Statistics of parts that are assembled from the bytes of segments, without decoding the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from ftfile.rows.spark_types import recorded_schema
from ftfile.writing.files.assembly_plan import plan_of, with_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftfile.log.format.model import Add, Job
    from ftfile.rows.statistics.merging import CountedEntries


# Live segments of a directory with statistics. The entries of 32 columns take 1 KB, so the log of a directory with many
# open files would grow by 1 KB for each file and batch.
SEGMENTS_WITH_STATISTICS_MAX = 2_000


def keep_within_limit(segments: Sequence[Add], live: int) -> list[Add]:
    """Return new segments, without statistics if too many are open together with the live segments."""
    if live + len(segments) <= SEGMENTS_WITH_STATISTICS_MAX:
        return [*segments]
    return [segment.without_statistics() for segment in segments]


def with_planned_statistics(job: Job, definitions: Mapping[str, Any]) -> Job:
    """Return a job whose plan has the statistics of all inputs, and whose inputs have none, so that records are short.

    `definitions` contains the definitions of encodings by key. The plan of a repeated job is not changed.
    """
    if not any(add.statistics for add in job.inputs):
        return job
    from ftfile.rows.statistics.merging import CountedEntries, merge_all_entries  # noqa: PLC0415 - few batches plan jobs

    merged: dict[str, Any] = {}
    encoding = definitions.get(job.inputs[0].encoding)
    if encoding is not None:
        counted = [CountedEntries(add.rows, add.statistics) for add in job.inputs]
        for key, entry in merge_all_entries(counted, recorded_schema(encoding["schema"])).items():
            merged[key] = entry
    planned = structs.replace(job, inputs=tuple(add.without_statistics() for add in job.inputs))
    if not merged:
        return planned
    rows = sum(add.rows for add in job.inputs)
    return with_plan(planned, structs.replace(plan_of(job), rows=rows, statistics=merged))


def planned_statistics(job: Job) -> CountedEntries:
    """Return the statistics in the plan of a job. They hold for the rows of all inputs, and of inputs that it lost."""
    from ftfile.rows.statistics.merging import CountedEntries  # noqa: PLC0415 - few tasks run jobs

    plan = plan_of(job)
    return CountedEntries(plan.rows, plan.statistics)
