"""Which groups are due after a batch, split into jobs: asked by the commit for every head that it tries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ftfile.commit.model import DueJob
from ftfile.core.logs import get_logger
from ftfile.encoding.api import Limits
from ftfile.sink.rolling.assembly import job_payload
from ftfile.sink.rolling.groups import GroupIndex
from ftfile.sink.rolling.rules import LIMITS, deadline_ms, reason_to_end

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ftfile.commit.model import Add, Record
    from ftfile.commit.state import LogState
    from ftfile.core.ids import IdSource
    from ftfile.sink.rolling.groups import Group, GroupKey, GroupTotals
    from ftfile.sink.rolling.settings import RollingSettings

__all__ = ("RollingPlanner", "jobs_of", "singly")

DUE_JOBS_MAX = 1_000
DUE_SEGMENTS_MAX = 10_000
# Records repeat the jobs of other queries for so long.
AWAITED_RECORDS = 1_000
OTHER_ENCODING, TOO_MANY_OPEN, SINGLY = "encoding", "openSegments", "singly"

_log = get_logger(__name__)


class RollingPlanner:
    """Keeps an index of a query's groups over its batches, and plans what is due.

    Args:
        query_id: whose groups.
        encoding: of the parts it writes now; groups of another end.
        settings: the rules.
        ids: for the jobs.

    Attributes:
        in_progress: how many parts of the directory were open after the record that was planned last.
        is_told: whether somebody has said so.
    """

    def __init__(self, query_id: str, encoding: str, settings: RollingSettings, ids: IdSource) -> None:
        self._query_id = query_id
        self._encoding = encoding
        self._settings = settings
        self._ids = ids
        self._index = GroupIndex(self._deadline_ms)
        self.in_progress = 0
        self.is_told = False

    def is_for(self, encoding: str, settings: RollingSettings) -> bool:
        """Say whether this planner was made for the same."""
        return (self._encoding, self._settings) == (encoding, settings)

    def plan(
        self, head: LogState, record: Record, left: Iterable[DueJob], failed: Collection[str]
    ) -> tuple[DueJob, ...]:
        """Return the jobs that are due once the record is created.

        Args:
            head: what it follows.
            record: without jobs.
            left: jobs of the head that nobody did.
            failed: ids of those that somebody tried in vain.
        """
        self._index.follow(head)
        left = tuple(left)
        others = [job for job in left if self._is_of_another(job) and self._is_awaited(job, head)]
        jobs = [again for job in left if not self._is_of_another(job) for again in self._again(job, failed)]
        taken = {add.id for job in jobs for add in job.inputs}
        room = DUE_SEGMENTS_MAX - len(taken)
        changed = self._index.after(record)
        self.in_progress = self._index.count_with(changed)
        ended = {remove.id for remove in record.removes}
        for group, reason in self._due(changed, ended, head, record.time_ms):
            inputs = [segment for segment in group.in_order() if segment.id not in ended][: self._settings.max_segments]
            if taken & {segment.id for segment in inputs}:
                continue
            if len(jobs) >= DUE_JOBS_MAX or len(inputs) > room:
                break
            jobs += jobs_of(inputs, reason, self._settings, self._ids)
            room -= len(inputs)
        # The last record may be another query's when the tasks of the next batch divide the jobs.
        dealt = (replace(job, payload=job.payload | {"tasks": record.tasks}) for job in jobs)
        return (*others, *dealt)

    def _is_of_another(self, job: DueJob) -> bool:
        return job.inputs[0].origin.query_id != self._query_id

    def _is_awaited(self, job: DueJob, head: LogState) -> bool:
        """Say whether the job's query still writes; one that comes back after long finds out anew what is due."""
        query = head.queries.get(job.inputs[0].origin.query_id)
        return query is not None and head.version - query.version < AWAITED_RECORDS

    def _due(
        self, changed: dict[GroupKey, Group], ended: set[str], head: LogState, now_ms: int
    ) -> Iterable[tuple[Group, str]]:
        """Yield due groups and why, those first that have waited for longest."""
        waiting = [group for group in self._index.overdue(now_ms) if group.key not in changed]
        for group in (*waiting, *changed.values()):
            if group.key[0] != self._query_id or all(segment.id in ended for segment in group.segments.values()):
                continue
            if reason := self._reason(group.key, group.totals, now_ms):
                yield group, reason
        too_many = len(head.segments) - self._settings.max_open_segments
        if too_many > 0:
            yield from ((group, TOO_MANY_OPEN) for group in self._oldest(too_many))

    def _oldest(self, segments: int) -> Iterable[Group]:
        own = (group for group in self._index.groups.values() if group.key[0] == self._query_id)
        for group in sorted(own, key=lambda group: group.totals.first_ms):
            if segments <= 0:
                return
            segments -= group.totals.segments
            yield group

    def _reason(self, key: GroupKey, totals: GroupTotals, now_ms: int) -> str | None:
        if key[2] != self._encoding:
            return OTHER_ENCODING
        return reason_to_end(self._settings, totals, now_ms)

    def _deadline_ms(self, key: GroupKey, totals: GroupTotals) -> int | None:
        if key[0] != self._query_id:
            return None
        return 0 if key[2] != self._encoding else deadline_ms(self._settings, totals)

    def _again(self, job: DueJob, failed: Collection[str]) -> list[DueJob]:
        """Return a job as it is still due: one that failed too often, segment by segment."""
        if job.id not in failed:
            return [job]
        job = replace(job, attempts=job.attempts + 1)
        if job.attempts < self._settings.attempts or len(job.inputs) == 1:
            return [job]
        _log.warning("job %s failed %d times: its segments become files of their own", job.id, job.attempts)
        return singly(job)


def singly(job: DueJob) -> list[DueJob]:
    """Return the jobs that make a part of each segment of a job."""
    payload = job.payload | {"keepTail": False}
    return [
        DueJob(f"{job.id}.{place}", (segment,), SINGLY, payload=payload) for place, segment in enumerate(job.inputs)
    ]


def jobs_of(inputs: list[Add], reason: str, settings: RollingSettings, ids: IdSource) -> list[DueJob]:
    """Return the jobs that make parts of a group's segments: one for each final row, and one for the others."""
    limits = Limits(settings.max_bytes, settings.max_rows, settings.strict)
    jobs, start = [], 0
    ends = [place + 1 for place, segment in enumerate(inputs) if segment.marks.get("final")]
    for end in ends:
        payload = job_payload(limits, keep_tail=False)
        jobs.append(DueJob(ids.unique(), tuple(inputs[start:end]), "finalize", payload=payload))
        start = end
    if start < len(inputs) and reason != "finalize":
        payload = job_payload(limits, keep_tail=reason in LIMITS)
        jobs.append(DueJob(ids.unique(), tuple(inputs[start:]), reason, payload=payload))
    return jobs
