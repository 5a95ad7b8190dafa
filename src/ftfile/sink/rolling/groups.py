"""Groups: the open segments of one query, bucket and encoding, kept in step with the log.

An index is derived from the segments of a state and follows it record by record, so that a commit costs what it
changes and not what is open.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ftfile.commit.model import Add, Record
    from ftfile.commit.state import LogState

__all__ = ("Group", "GroupIndex", "GroupKey", "GroupTotals", "key_of", "live_bytes", "order_of")

GroupKey = tuple[str, str, str]
NO_BATCH = -1


def key_of(segment: Add) -> GroupKey:
    """Return which group a segment belongs to: its query, bucket and encoding."""
    return segment.origin.query_id, segment.bucket, segment.encoding


def order_of(segment: Add) -> tuple[int, int, int]:
    """Return where a segment stands in its group: by batch, partition, and place within its attempt."""
    return segment.origin.last_batch, segment.marks["partition"], segment.marks["place"]


def live_bytes(segment: Add) -> float:
    """Return how many of a segment's bytes are of rows that are in no part yet, as far as that can be told."""
    return segment.length * segment.rows / (segment.rows + segment.skip_rows)


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """What a rolling policy may know of a group.

    Attributes:
        bucket: output sub-directory.
        segments: how many pieces it has.
        size_bytes: of them; for columnar formats an estimate of the part's size.
        batches: how many batches they come from.
        first_ms: when its oldest rows were committed, by the driver's clock.
        last_ms: when its newest were.
        event_min_us: of the column of `eventTimeInterval`; None without one.
        is_final: whether its last row ends the part.
    """

    bucket: str
    segments: int = 0
    size_bytes: int = 0
    rows: int = 0
    batches: int = 0
    first_ms: int = 0
    last_ms: int = 0
    event_min_us: int | None = None
    event_max_us: int | None = None
    is_final: bool = False

    def plus(self, segment: Add, *, is_other_batch: bool) -> GroupTotals:
        """Return the totals with one segment more."""
        marks = segment.marks
        low, high = marks.get("eventUs", (None, None))
        return GroupTotals(
            self.bucket,
            self.segments + 1,
            self.size_bytes + round(live_bytes(segment)),
            self.rows + segment.rows,
            self.batches + is_other_batch,
            min(self.first_ms, marks["ms"]) if self.segments else marks["ms"],
            max(self.last_ms, marks["ms"]),
            _pick(min, self.event_min_us, low),
            _pick(max, self.event_max_us, high),
            self.is_final or marks.get("final", False),
        )


@dataclass(slots=True)
class Group:
    """The segments of a group, and what they come to."""

    key: GroupKey
    segments: dict[str, Add]
    totals: GroupTotals
    last_batch: int = NO_BATCH

    @classmethod
    def of(cls, key: GroupKey, segments: Iterable[Add]) -> Group:
        """Return the group of these segments."""
        group = cls(key, {}, GroupTotals(key[1]))
        for segment in sorted(segments, key=order_of):
            group.open(segment)
        return group

    def open(self, segment: Add) -> None:
        """Take in a segment, which is not older than the others."""
        self.totals = self.totals.plus(segment, is_other_batch=segment.origin.last_batch != self.last_batch)
        self.last_batch = segment.origin.last_batch
        self.segments[segment.id] = segment

    def changed(self, opened: Iterable[Add], ended: Iterable[str]) -> Group:
        """Return the group as it will be; this one stays."""
        gone = set(ended)
        if gone:
            kept = [segment for segment in self.segments.values() if segment.id not in gone]
            return Group.of(self.key, [*kept, *opened])
        group = replace(self, segments=_Later(self.segments))
        for segment in opened:
            group.open(segment)
        return group

    def in_order(self) -> list[Add]:
        """Return the segments in the order of their rows."""
        return sorted(self.segments.values(), key=order_of)


class _Later(dict[str, "Add"]):
    """The segments of a group and some more, without a copy of those."""

    def __init__(self, before: dict[str, Add]) -> None:
        super().__init__()
        self._before = before

    def values(self) -> Iterator[Add]:  # type: ignore[override]
        yield from self._before.values()
        yield from super().values()


class GroupIndex:
    """All groups of a log's head, and when each is due at the latest.

    Args:
        deadline_ms: when a group is due if nothing more comes; None for never. 0 for at once.
    """

    def __init__(self, deadline_ms: Callable[[GroupKey, GroupTotals], int | None]) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self._keys: dict[str, GroupKey] = {}
        self._deadline_ms = deadline_ms
        self._deadlines: list[tuple[int, GroupKey]] = []
        self._noted: dict[GroupKey, int] = {}
        self._at = (-1, "")

    def follow(self, head: LogState) -> None:
        """Bring the index to a head: by what the last records changed, or from all its segments."""
        if self._at == (head.version, head.nonce):
            return
        changes = list(head.segment_changes)
        known = [(change.version, change.nonce) for change in changes]
        if self._at in known:
            for change in changes[known.index(self._at) + 1 :]:
                self._apply(change.opened, change.ended)
        else:
            self._rebuild(head)
        self._at = (head.version, head.nonce)

    def after(self, record: Record) -> dict[GroupKey, Group]:
        """Return the groups that a record changes, as they will be; those that will be no more are empty."""
        opened: dict[GroupKey, list[Add]] = {}
        ended: dict[GroupKey, list[str]] = {}
        for add in record.adds:
            if add.kind == "segment":
                opened.setdefault(key_of(add), []).append(add)
        for remove in record.removes:
            if remove.id in self._keys:
                ended.setdefault(self._keys[remove.id], []).append(remove.id)
        found = {}
        for key in {**opened, **ended}:
            before = self.groups.get(key) or Group.of(key, ())
            found[key] = before.changed(opened.get(key, ()), ended.get(key, ()))
        return found

    def count_with(self, changed: dict[GroupKey, Group]) -> int:
        """Return how many groups there will be once some have changed."""
        return len(self.groups) + sum(
            (group.totals.segments > 0) - (key in self.groups) for key, group in changed.items()
        )

    def overdue(self, now_ms: int) -> list[Group]:
        """Return the groups whose deadline has passed, in its order."""
        found: list[Group] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            noted_ms, key = heapq.heappop(self._deadlines)
            if self._noted.get(key) != noted_ms:
                continue  # an earlier one was noted since
            del self._noted[key]
            group = self.groups.get(key)
            deadline_ms = self._deadline_ms(key, group.totals) if group is not None else None
            if group is not None and deadline_ms is not None and deadline_ms <= now_ms:
                found.append(group)
            elif group is not None:
                self._note_deadline(key)
        # They stay due until a record ends them.
        for group in found:
            self._note_deadline(group.key)
        return found

    def _apply(self, opened: Iterable[Add], ended: Iterable[str]) -> None:
        touched: dict[GroupKey, list[str]] = {}
        for add_id in ended:
            key = self._keys.pop(add_id, None)
            if key is not None:
                touched.setdefault(key, []).append(add_id)
        late: dict[GroupKey, list[Add]] = {}
        changed = set(touched)
        for segment in opened:
            key = key_of(segment)
            self._keys[segment.id] = key
            changed.add(key)
            group = self.groups.get(key)
            if key in touched or (group is not None and segment.origin.last_batch < group.last_batch):
                late.setdefault(key, []).append(segment)
            else:
                self.groups.setdefault(key, Group.of(key, ())).open(segment)
        for key in {**touched, **late}:
            before, gone = self.groups.get(key) or Group.of(key, ()), set(touched.get(key, ()))
            kept = (segment for segment in before.segments.values() if segment.id not in gone)
            after = Group.of(key, [*kept, *late.get(key, ())])
            if after.segments:
                self.groups[key] = after
            else:
                self.groups.pop(key, None)
                self._noted.pop(key, None)
        for key in changed & self.groups.keys():
            self._note_deadline(key)

    def _rebuild(self, head: LogState) -> None:
        by_key: dict[GroupKey, list[Add]] = {}
        for segment in head.segments.values():
            by_key.setdefault(key_of(segment), []).append(segment)
        self.groups = {key: Group.of(key, segments) for key, segments in by_key.items()}
        self._keys = {segment.id: key for key, segments in by_key.items() for segment in segments}
        self._deadlines, self._noted = [], {}
        for key in self.groups:
            self._note_deadline(key)

    def _note_deadline(self, key: GroupKey) -> None:
        """Note when to look at a group, unless it is looked at before: a group that changes often is noted once."""
        deadline_ms = self._deadline_ms(key, self.groups[key].totals)
        if deadline_ms is not None and deadline_ms < self._noted.get(key, deadline_ms + 1):
            self._noted[key] = deadline_ms
            heapq.heappush(self._deadlines, (deadline_ms, key))


def _pick(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)
