"""The groups of free segments of a query.

A segment is free while no due job names it. The index is derived from the segments and jobs of a log state. It follows
the log record by record, so the cost of a commit depends on the changes, not on the open segments.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import Meta

from ftfile.core.checksum import Decoding
from ftfile.log.format import layout
from ftfile.log.format.layout import directory_of
from ftfile.log.format.model import Count, Number, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import TypeAlias

    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState

_Times = Annotated[tuple[Number, ...], Meta(min_length=2, max_length=2)]
# Returns why a group had ended before later rows arrived, which its new totals no longer show; None if it had not.
OverReason: TypeAlias = "Callable[[GroupTotals, int], str | None]"


class GroupKey(NamedTuple):
    """The key of a group of segments. The segments of a group are assembled into the same file."""

    directory_key: str
    encoding: str
    window_us: tuple[int, ...]  # start and end; empty without `eventTimeInterval`


class SegmentStats(Value, frozen=True):
    """The facts about a segment in its record, which the rules for the end of its file use."""

    partition: Count  # of the task
    index: Count  # among the segments of the task
    committed_ms: Count  # time of the driver's clock
    event_time_us: _Times = ()  # minimum and maximum; empty without a column of event time
    window_us: _Times = ()  # start and end; empty without `eventTimeInterval`
    ends_part: bool = False  # the part ends after this segment


def stats_of(segment: Add) -> SegmentStats:
    """Return the statistics of a segment. A segment without valid statistics raises a CorruptData."""
    with Decoding(layout.LOG, "the statistics of a file that stays open"):
        return msgspec.convert(segment.rolling_stats, SegmentStats)


def key_of(segment: Add) -> GroupKey:
    """Return the group key of a segment."""
    return GroupKey(segment.directory_key, segment.encoding, stats_of(segment).window_us)


def by_group(segments: Iterable[Add]) -> dict[GroupKey, list[Add]]:
    """Return the segments by group."""
    groups: dict[GroupKey, list[Add]] = {}
    for segment in segments:
        groups.setdefault(key_of(segment), []).append(segment)
    return groups


def order_of(segment: Add) -> tuple[int, int, int]:
    """Return the sort key of a segment in its group: batch, partition, and index within its attempt."""
    stats = stats_of(segment)
    return segment.origin.last_batch, stats.partition, stats.index


def live_bytes(segment: Add) -> float:
    """Return the estimated size of the segment's rows that are in no part yet, in bytes."""
    return segment.length * segment.rows / max(segment.rows + segment.skip_rows, 1)


def size_of(segment: Add) -> int:
    """Return `live_bytes` as an integer, for the size of a part."""
    return round(live_bytes(segment))


# The time at which an unchanged group becomes due, by the driver's clock; None means never.
Deadline: TypeAlias = "int | None"
AT_ONCE = 0


def earliest_of(one: Deadline, other: Deadline) -> Deadline:
    """Return the earlier deadline."""
    return _pick(min, one, other)


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """The totals of a group for a rolling policy."""

    directory: str  # relative; empty for the root directory
    segments: int = 0  # number of segments
    size_bytes: int = 0  # for columnar formats, an estimate of the part's size
    rows: int = 0
    batches: int = 0  # number of batches with rows
    first_ms: int = 0  # commit time of its oldest rows, by the driver's clock
    last_ms: int = 0  # commit time of its last rows; before `first_ms` only if the clock was set back
    event_min_us: int | None = None  # of the column of `eventTimeInterval`; None without the option
    event_max_us: int | None = None
    is_final: bool = False  # the last row ends the part

    def plus(self, segment: Add, *, is_other_batch: bool) -> GroupTotals:
        """Return the totals with one more segment."""
        stats = stats_of(segment)
        low, high = stats.event_time_us or (None, None)
        last_ms = stats.committed_ms
        return GroupTotals(
            directory=self.directory,
            segments=self.segments + 1,
            size_bytes=self.size_bytes + size_of(segment),
            rows=self.rows + segment.rows,
            batches=self.batches + is_other_batch,
            first_ms=min(self.first_ms, last_ms) if self.segments else last_ms,
            last_ms=last_ms,
            event_min_us=_pick(min, self.event_min_us, low),
            event_max_us=_pick(max, self.event_max_us, high),
            is_final=self.is_final or stats.ends_part,
        )


class _Group:
    """The segments of a group in order, and their totals."""

    def __init__(self, key: GroupKey, reason_before_next_rows: OverReason, segments: Iterable[Add] = ()) -> None:
        self.segments: dict[str, Add] = {}
        self.totals = self._since = GroupTotals(directory_of(key[0]))
        # The last batch that ended a file although its segments are still open, and the reason. The jobs of these
        # segments were dropped, or a record had no room for them.
        self.over: tuple[int, str] | None = None
        self.newest = -1
        self._over_reason = reason_before_next_rows
        self._batches: set[int] = set()
        for segment in segments:
            self.open(segment)

    def open(self, segment: Add) -> None:
        """Add a segment that follows all others."""
        batch = segment.origin.last_batch
        is_later = batch != self.newest
        if is_later and self.segments:
            reason = self._over_reason(self._since, stats_of(segment).committed_ms)
            if reason is not None:
                self.over, self._since = (self.newest, reason), GroupTotals(self.totals.directory)
        self.totals = self.totals_with([segment])
        if self.over is None:
            self._since = self.totals
        else:
            self._since = self._since.plus(segment, is_other_batch=is_later)
        self._batches.add(batch)
        self.newest = batch
        self.segments[segment.id] = segment

    def totals_with(self, segments: Iterable[Add]) -> GroupTotals:
        """Return the totals with these additional segments."""
        totals, more = self.totals, set[int]()
        for segment in segments:
            batch = segment.origin.last_batch
            totals = totals.plus(segment, is_other_batch=batch not in self._batches and batch not in more)
            more.add(batch)
        return totals


@dataclass(frozen=True, slots=True)
class Candidate:
    """Segments of a group that may become parts, as of the next record."""

    key: GroupKey
    totals: GroupTotals
    segments: Iterable[Add]
    # The last batch whose file had ended before the next batch, and the reason; None if there is no such batch.
    over: tuple[int, str] | None

    @property
    def segments_over(self) -> list[Add]:
        """Return the segments whose file had ended before later segments arrived."""
        segments = []
        for segment in self.segments:
            if self.over is not None and segment.origin.last_batch <= self.over[0]:
                segments.append(segment)
        return segments


class _Deadlines:
    """Times at which groups must be checked."""

    def __init__(self) -> None:
        self.noted: dict[GroupKey, int] = {}
        self._in_order: list[tuple[int, GroupKey]] = []

    def note(self, key: GroupKey, at: int | None) -> None:
        """Note when to check a group. An earlier note is kept, so a group that changes often has one note."""
        if at is not None and at < self.noted.get(key, at + 1):
            self.noted[key] = at
            heapq.heappush(self._in_order, (at, key))

    def take_passed(self, now: int) -> Iterator[GroupKey]:
        """Yield the groups whose time has passed, ordered by time, and remove their notes."""
        while self._in_order and self._in_order[0][0] <= now:
            at, key = heapq.heappop(self._in_order)
            if self.noted.get(key) == at:
                del self.noted[key]
                yield key


class GroupIndex:
    """All groups of a query at a head of the log, with the moment when each is due according to `deadline_of`."""

    def __init__(
        self, query_id: str, deadline_of: Callable[[Candidate], Deadline], reason_before_next_rows: OverReason
    ) -> None:
        self.groups: dict[GroupKey, _Group] = {}
        self._query_id = query_id
        self._deadline_of = deadline_of
        self._over_reason = reason_before_next_rows
        self._keys: dict[str, GroupKey] = {}
        self._taken: set[str] = set()
        self._deadlines = _Deadlines()
        self._newest_ms = 0
        self._at = (-1, "")

    def follow(self, head: LogState) -> None:
        """Update the index to a head from the changes of the last records, or rebuild it from all segments."""
        if self._at == (head.version, head.nonce):
            return
        changes = list(head.segment_changes)
        versions = [(change.version, change.nonce) for change in changes]
        inputs = chain.from_iterable(job.inputs for job in head.jobs)
        taken = {add.id for add in inputs}
        # If the user's policy raises an error, the next call rebuilds the index.
        at, self._at = self._at, (-1, "")
        if at in versions:
            ended, opened = taken - self._taken, self._taken - taken
            for change in changes[versions.index(at) + 1 :]:
                ended.update(change.ended)
                opened.update(add.id for add in change.opened)
        else:
            self.groups, self._keys = {}, {}
            self._deadlines = _Deadlines()
            self._newest_ms = 0
            ended, opened = set(), set(head.segments)
        live = (head.segments[add_id] for add_id in opened - taken if add_id in head.segments)
        self._apply([segment for segment in live if segment.origin.query_id == self._query_id], ended)
        self._taken, self._at = taken, (head.version, head.nonce)

    def candidate(
        self,
        key: GroupKey,
        more: Collection[Add] = (),
        without: Collection[str] = (),
        *,
        afresh: bool = False,
    ) -> Candidate:
        """Return a group with more segments, and without some segments by id.

        With `afresh`, return only the additional ones.

        The group need not exist.
        """
        group = (None if afresh else self.groups.get(key)) or self._group(key)
        if without and any(add_id in group.segments for add_id in without):
            group = self._group(key, (segment for segment in group.segments.values() if segment.id not in without))
        return Candidate(key, group.totals_with(more), chain(group.segments.values(), more), group.over)

    def list_overdue(self, now_ms: int) -> list[GroupKey]:
        """Return the groups whose deadline has passed, ordered by time, or all groups if the clock was set back."""
        if now_ms < self._newest_ms:
            by_clock = self._deadlines.noted
            keys = sorted(self.groups, key=lambda key: by_clock.get(key, math.inf))
            self._newest_ms = max((group.totals.last_ms for group in self.groups.values()), default=0)
        else:
            keys = list(self._deadlines.take_passed(now_ms))
            # Groups stay due until a record ends them. A deadline that moved is checked when it passes.
            for key in keys:
                self._note_deadline(key)
        return keys

    def _apply(self, opened: Iterable[Add], ended: Iterable[str]) -> None:
        """Apply the changes of records."""
        changed = self._end(ended)
        for key, segments in by_group(sorted(opened, key=order_of)).items():
            group = self.groups.get(key)
            if group is None or segments[0].origin.last_batch < group.newest:
                older = () if group is None else group.segments.values()
                self.groups[key] = self._group(key, sorted((*older, *segments), key=order_of))
            else:
                for segment in segments:
                    group.open(segment)
            self._keys.update(dict.fromkeys((segment.id for segment in segments), key))
            self._newest_ms = max(self._newest_ms, self.groups[key].totals.last_ms)
            changed.add(key)
        for key in changed:
            self._note_deadline(key)

    def _end(self, ended: Iterable[str]) -> set[GroupKey]:
        """Remove segments, and groups that become empty. Return the remaining groups that changed."""
        gone: dict[GroupKey, set[str]] = {}
        for add_id in ended:
            if (key := self._keys.pop(add_id, None)) is not None:
                gone.setdefault(key, set()).add(add_id)
        for key, add_ids in gone.items():
            before = self.groups.pop(key).segments
            if rest := [segment for segment in before.values() if segment.id not in add_ids]:
                self.groups[key] = self._group(key, rest)
                continue
            self._deadlines.noted.pop(key, None)
        return gone.keys() & self.groups.keys()

    def _group(self, key: GroupKey, segments: Iterable[Add] = ()) -> _Group:
        return _Group(key, self._over_reason, segments)

    def _note_deadline(self, key: GroupKey) -> None:
        self._deadlines.note(key, self._deadline_of(self.candidate(key)))


def _pick(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    if one is None:
        return other
    if other is None:
        return one
    return choose(one, other)
