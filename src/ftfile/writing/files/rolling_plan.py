"""The plan of due groups after a batch, as jobs that assemble parts from their segments."""

from __future__ import annotations

import math
from collections import ChainMap
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from ftfile.core.logs import get_logger
from ftfile.log.format.model import Add, Author, Body, Job, StreamAuthor
from ftfile.writing.files.assembly_plan import AssemblyPlan, owner_of, plan_of, with_plan
from ftfile.writing.files.rolling_groups import (
    AT_ONCE,
    Candidate,
    Deadline,
    GroupIndex,
    GroupKey,
    by_group,
    key_of,
    live_bytes,
    order_of,
    size_of,
    stats_of,
)
from ftfile.writing.files.rolling_rules import RULES, deadline_of, reason_before_next_rows, reason_to_end
from ftfile.writing.files.segment_statistics import with_planned_statistics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ftfile.core.context import IdSource
    from ftfile.log.state import LogState
    from ftfile.writing.files.rolling_rules import RollingSettings


# Segments that the jobs of a record may name, except for failed jobs. A segment takes 300 bytes. One job may have more.
DUE_SEGMENTS_MAX = 10_000
# Maximum parts and bytes of a job, which assembles its parts one after the other. Larger groups have several jobs.
IN_ORDER_PARTS, IN_ORDER_BYTES = 100, 1 << 30
# If one of these reasons ends a group, a tail below the limit stays open, because it is not needed yet.
LIMITS = frozenset(rule.reason for rule in RULES if rule.is_limit)
_SEGMENTS, _FINAL, _ALONE = "segments", "finalize", "retriedAlone"


def files_of(job: Job) -> int:
    """Return the estimated number of files that a job creates."""
    limits = plan_of(job).limits
    of_bytes = 1
    if limits.max_bytes:
        of_bytes = math.ceil(sum(map(live_bytes, job.inputs)) / limits.max_bytes)
    of_rows = 1
    if limits.max_rows:
        of_rows = math.ceil(sum(segment.rows for segment in job.inputs) / limits.max_rows)
    return max(of_bytes, of_rows, 1)


def job_of_segment(segment: Add, settings: RollingSettings, ids: IdSource) -> Job:
    """Return a job with only this segment, whose damage prevented the assembly of a part with other segments."""
    return structs.replace(_job([segment], _ALONE, settings, ids, keep_tail=False), attempts=1)


def jobs_of(
    segments: Iterable[Add], reason: str, settings: RollingSettings, ids: IdSource, tasks: int = 1
) -> Iterator[Job]:
    """Yield the jobs that assemble a due group. After a reason in `LIMITS`, the remaining segments stay open.

    Rows are in order within a job. If there are several jobs, each assembles full parts, and its remaining rows follow
    the rows of the next job. `tasks` is the number of tasks that will run the jobs.
    """
    in_order = sorted(segments, key=order_of)
    last_final = max((place for place, segment in enumerate(in_order) if _is_final(segment)), default=-1)
    for inputs in _final_runs(in_order[: last_final + 1]):
        # These jobs are separate and ordered, so rows before a final row are never assembled after it.
        for start in range(0, len(inputs), settings.max_segments):
            chunk = inputs[start : start + settings.max_segments]
            yield _job(chunk, _FINAL if _is_final(chunk[-1]) else _SEGMENTS, settings, ids, keep_tail=False)
    if reason == _FINAL:
        return
    chunks, tail = _chunks(in_order[last_final + 1 :], settings, tasks)
    ends_all = reason not in LIMITS
    if chunks and len(chunks[-1].segments) + len(tail) <= settings.max_segments:
        last = chunks.pop()
        tail = last.segments + tail
        if not ends_all:
            chunks, tail = ([*chunks, _Chunk(tail, last.is_full)], [])
    for inputs, is_full in chunks:
        code = _SEGMENTS
        if ends_all or is_full:
            code = reason
        yield _job(inputs, code, settings, ids, keep_tail=is_full and settings.finalize_column is None)
    if tail and ends_all:
        yield _job(tail, reason, settings, ids, keep_tail=False)


class _Chunk(NamedTuple):
    """The segments of one job."""

    segments: list[Add]
    is_full: bool  # the segments fill a part


def _chunks(segments: list[Add], settings: RollingSettings, tasks: int) -> tuple[list[_Chunk], list[Add]]:
    """Return chunks of segments, and the last segments, which do not fill a chunk."""

    def count_full_parts(size_bytes: int, rows: int) -> int:
        of_bytes = 0
        if settings.max_bytes:
            of_bytes = size_bytes // settings.max_bytes
        return max(of_bytes, rows // settings.max_rows if settings.max_rows else 0)

    all_bytes = sum(map(size_of, segments))
    parts = count_full_parts(all_bytes, sum(segment.rows for segment in segments))
    in_order = min(IN_ORDER_PARTS, IN_ORDER_BYTES * parts // max(all_bytes, 1))
    parts_per_chunk = max(1, in_order, math.ceil(parts / max(tasks, 1)))
    chunks: list[_Chunk] = []
    chunk: list[Add] = []
    size_bytes = rows = 0
    for place, segment in enumerate(segments, start=1):
        chunk.append(segment)
        size_bytes += size_of(segment)
        rows += segment.rows
        full = count_full_parts(size_bytes, rows)
        if full >= parts_per_chunk or len(chunk) >= settings.max_segments or (full and place == len(segments)):
            chunks.append(_Chunk(chunk, full > 0))
            chunk, size_bytes, rows = [], 0, 0
    return chunks, chunk


def _final_runs(segments: list[Add]) -> Iterator[list[Add]]:
    """Yield the segments up to and including each final segment."""
    run: list[Add] = []
    for segment in segments:
        run.append(segment)
        if _is_final(segment):
            yield run
            run = []


def _is_final(segment: Add) -> bool:
    return stats_of(segment).ends_part


def _job(chunk: list[Add], reason: str, settings: RollingSettings, ids: IdSource, *, keep_tail: bool) -> Job:
    plan = AssemblyPlan(
        max_bytes_per_file=settings.max_bytes,
        max_records_per_file=settings.max_rows,
        strict_file_size=settings.strict,
        keep_tail=keep_tail,
    )
    return with_plan(Job(ids.unique(), reason, tuple(chunk)), plan)


# Number of versions for which records repeat the jobs of other queries.
FOREIGN_JOB_RECORDS = 1_000
_OTHER_ENCODING, _TOO_MANY_OPEN = "encoding", "openSegments"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _GroupChanges:
    """The changes of a record to the groups of its query."""

    new: dict[GroupKey, list[Add]]  # segments of its own batch
    older: dict[GroupKey, list[Add]]  # segments of earlier batches that jobs did not use
    busy: set[str]  # ids of segments that the record ends, or that its repeated jobs contain


class RollingPlanner:
    """Maintains the index of a query's groups over batches, and plans due jobs. Groups with another encoding are due.

    `in_progress` is the number of the query's open parts after the last planned record.
    """

    def __init__(self, query_id: str, encoding: str, settings: RollingSettings, ids: IdSource) -> None:
        self._query_id = query_id
        self._encoding = encoding
        self._settings = settings
        self._ids = ids
        self._index = GroupIndex(query_id, self._deadline, partial(reason_before_next_rows, settings))
        self.in_progress = 0
        self.has_warned = False

    def plan(
        self, head: LogState, record: Body, author: Author, now_ms: int, failed: Collection[str]
    ) -> tuple[Job, ...]:
        """Return the jobs that are due if the record follows the head. The record contains no jobs yet.

        `failed` contains the ids of failed jobs, and of segments that a task left out of parts.
        """
        if not (head.segments or head.jobs or any(add.kind == "segment" for add in record.adds)):
            self.in_progress = 0  # no file was open before, and none is open now
            return ()
        remaining_jobs = head.remaining_jobs(record.removes)
        ended = {remove.id for remove in record.removes}
        foreign_jobs = [job for job in remaining_jobs if not self._is_own(job) and _is_awaited(job, head)]
        jobs = self._still_due([job for job in remaining_jobs if self._is_own(job)], head, failed, ended)
        batch = -1
        if isinstance(author, StreamAuthor):
            batch = author.batch_id
        opened = []
        for add in record.adds:
            if add.kind == "segment" and add.origin.query_id == self._query_id:
                opened.append(add)
        inputs = chain.from_iterable(job.inputs for job in jobs)
        busy = ended | {add.id for add in inputs}
        own_inputs = chain.from_iterable(job.inputs for job in head.jobs if self._is_own(job))
        freed = (head.segments.get(add.id, add) for add in own_inputs if add.id not in busy)
        changes = _GroupChanges(
            by_group(add for add in opened if add.origin.last_batch == batch),
            by_group((*freed, *(add for add in opened if add.origin.last_batch != batch))),
            busy,
        )
        self._index.follow(head)
        room = DUE_SEGMENTS_MAX - sum(len(job.inputs) for job in jobs if not job.attempts)
        open_segments = len(head.segments) + len(opened) - len(ended & head.segments.keys())
        open_segments -= sum(len(job.inputs) for job in (*jobs, *foreign_jobs))
        for job in self._list_due(changes, now_ms, open_segments, record.tasks):
            if len(job.inputs) > room < DUE_SEGMENTS_MAX:
                break
            room -= len(job.inputs)
            jobs.append(job)
        self.in_progress = self._count_open(changes, jobs)
        # Failed jobs are last, so that other jobs do not wait for them. The number of tasks is recorded, because the
        # next record may be written by a query with another number of tasks.
        definitions = ChainMap(record.definitions, head.definitions)
        planned_jobs = []
        for job in jobs:
            planned = with_planned_statistics(job, definitions)
            plan = structs.replace(plan_of(planned), task_count=record.tasks)
            planned_jobs.append(with_plan(planned, plan))
        return (*foreign_jobs, *sorted(planned_jobs, key=attrgetter("attempts")))

    def due_at(self, head: LogState, now_ms: int) -> list[Job]:
        """Return the jobs that a batch without rows would run and plan at this head."""
        self._index.follow(head)
        jobs = [job for job in head.jobs if self._is_own(job)]
        waiting_segments = sum(len(job.inputs) for job in head.jobs)
        return [
            *jobs,
            *self._list_due(_GroupChanges({}, {}, set()), now_ms, len(head.segments) - waiting_segments, tasks=1),
        ]

    def _is_own(self, job: Job) -> bool:
        return owner_of(job) == self._query_id

    def _still_due(
        self, remaining_jobs: Iterable[Job], head: LogState, failed: Collection[str], ended: set[str]
    ) -> list[Job]:
        """Return the jobs that are still due, without failed segments, which become separate jobs."""
        jobs: list[Job] = []
        for job in remaining_jobs:
            inputs = tuple(add for add in job.inputs if add.id not in failed)
            if inputs:
                jobs.append(structs.replace(job, inputs=inputs, attempts=job.attempts + (job.id in failed)))
        job_inputs = chain.from_iterable(job.inputs for job in jobs)
        input_ids = {add.id for add in job_inputs}
        for segment in (head.segments[add_id] for add_id in failed if add_id in head.segments):
            if segment.id not in input_ids | ended:
                _log.error(
                    "bytes %d to %d of %s cannot be assembled into a file: their %d records for %r stay open until the "
                    "bytes can be read as they were written. A warning of a task contains the reason. Restore the file "
                    "from a copy",
                    segment.offset,
                    segment.offset + segment.length,
                    segment.path,
                    segment.rows,
                    segment.directory_key,
                )
                jobs.append(job_of_segment(segment, self._settings, self._ids))
        return jobs

    def _list_due(self, changes: _GroupChanges, now_ms: int, open_segments: int, tasks: int) -> Iterator[Job]:
        """Yield the jobs of due groups for this number of tasks, the groups that waited longest first.

        `open_segments` is the number of the directory's segments that no job names.
        """
        index, new, older, busy = self._index, changes.new, changes.older, changes.busy
        planned: set[GroupKey] = set()
        # A group whose time has passed ends without the rows of the batch. A group that reaches a limit includes them.
        for key in dict.fromkeys((*index.list_overdue(now_ms), *older)):
            candidate = index.candidate(key, older.get(key, ()), busy)
            for job in self._ending(candidate, now_ms, tasks, at_limits=key not in new):
                planned.add(key)
                open_segments -= len(job.inputs)
                yield job
        over = frozenset(planned)
        for key, segments in new.items():
            if key in over:
                more = segments
            else:
                more = [*older.get(key, ()), *segments]
            candidate = index.candidate(key, more, busy, afresh=key in over)
            for job in self._ending(candidate, now_ms, tasks):
                planned.add(key)
                open_segments -= len(job.inputs)
                yield job
        if open_segments > self._settings.max_open_segments:
            for key in sorted(index.groups.keys() - planned, key=lambda key: index.groups[key].totals.first_ms):
                if open_segments <= self._settings.max_open_segments:
                    break
                candidate = index.candidate(key, [*older.get(key, ()), *new.get(key, ())], busy)
                for job in jobs_of(
                    candidate.segments, _TOO_MANY_OPEN, settings=self._settings, ids=self._ids, tasks=tasks
                ):
                    open_segments -= len(job.inputs)
                    yield job

    def _ending(self, candidate: Candidate, now_ms: int, tasks: int, *, at_limits: bool = True) -> Iterator[Job]:
        """Yield the jobs of a due group, or of its segments whose file had ended before later segments arrived."""
        reason = None
        if candidate.totals.segments:
            reason = self._reason(candidate, now_ms)
        if reason and (at_limits or reason not in LIMITS):
            yield from jobs_of(candidate.segments, reason, settings=self._settings, ids=self._ids, tasks=tasks)
        elif candidate.over is not None:
            yield from jobs_of(
                candidate.segments_over, candidate.over[1], settings=self._settings, ids=self._ids, tasks=tasks
            )

    def _reason(self, candidate: Candidate, now_ms: int) -> str | None:
        if candidate.key[1] != self._encoding:
            return _OTHER_ENCODING
        return reason_to_end(self._settings, candidate.totals, now_ms)

    def _deadline(self, candidate: Candidate) -> Deadline:
        is_over = candidate.key[1] != self._encoding or candidate.over is not None
        if is_over:
            return AT_ONCE
        return deadline_of(self._settings, candidate.totals)

    def _count_open(self, changes: _GroupChanges, jobs: Iterable[Job]) -> int:
        new_keys = {*changes.new, *changes.older, *(key_of(job.inputs[0]) for job in jobs)}
        return len(self._index.groups) + len(new_keys - self._index.groups.keys())


def _is_awaited(job: Job, head: LogState) -> bool:
    """Return True if the job's query still writes. A query that resumes after a long time plans its due jobs again."""
    query = head.queries.get(owner_of(job))
    return query is not None and head.version - query.version < FOREIGN_JOB_RECORDS
