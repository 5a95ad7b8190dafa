"""The plan of a job of a directory of files: what its task needs besides the inputs, in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from ftfile.core.checksum import Decoding
from ftfile.core.errors import CorruptData
from ftfile.formats.api import Limits
from ftfile.log.format import layout
from ftfile.log.format.model import NUMBER_MAX, Count, Value

if TYPE_CHECKING:
    from ftfile.log.format.model import Job


class AssemblyPlan(Value, frozen=True, kw_only=True):
    """The plan of one job."""

    # the limits of each part; None: no limit
    max_bytes_per_file: Annotated[int, Meta(ge=1, le=NUMBER_MAX)] | None
    max_records_per_file: Annotated[int, Meta(ge=1, le=NUMBER_MAX)] | None
    strict_file_size: bool
    keep_tail: bool  # True if rows that do not fill a part stay open
    # the number of rows and the statistics of all inputs when the job became due, if known
    rows: Count = 0
    statistics: dict[str, tuple[Any, Any, Count | None]] = msgspec.field(default_factory=dict)
    task_count: Count = 0  # number of tasks that share the jobs; 0 only until it is recorded

    @property
    def limits(self) -> Limits:
        """The limits of each part."""
        return Limits(self.max_bytes_per_file, self.max_records_per_file, self.strict_file_size)


def plan_of(job: Job) -> AssemblyPlan:
    """Return the plan of a job; CorruptData if no task can execute it."""
    with Decoding(layout.LOG, f"the plan of the job {job.id!r:.40}"):
        return msgspec.convert(job.payload, AssemblyPlan)


def owner_of(job: Job) -> str:
    """Return the query whose segments a job assembles; CorruptData for a job without segments."""
    if not job.inputs:
        raise CorruptData(layout.LOG, f"inputs of the job {job.id!r:.40}", "none")
    return job.inputs[0].origin.query_id


def with_plan(job: Job, plan: AssemblyPlan) -> Job:
    """Return the job with another plan, with lists as a read of the log has them."""
    payload = msgspec.to_builtins(plan)
    if plan.statistics:
        payload["statistics"] = {key: list(entry) for key, entry in plan.statistics.items()}
    return msgspec.structs.replace(job, payload=payload)
