"""The choice of runs to compact in a bucket, as a function of its live runs in the log, rules and backoffs.

A bucket has two levels. Runs of level 0 may cover all of its keys: batches write them, and compactions within level 0
merge them to fewer and larger runs. When level 0 reaches a tenth of level 1, or half a file, its runs descend: their
rows are cut where groups of level 1 begin. A *group* consists of runs of level 1 that each meet the next run. Groups
have no key in common, and each is compacted separately. So no compaction reads more than about two files, even in a
large bucket, and runs are always read completely. All rows of level 1 are older than all rows of level 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec import Struct

from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import StoreSinkOptions
from ftfile.kv.planning.runs import last_position, row_count, run_ids
from ftfile.log.format.model import Count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.kv.key_columns import Key
    from ftfile.kv.planning.runs import Run

    Kind = Literal["level0", "descend", "level1"]


# Smaller runs count as equally large: the file dominates their cost.
_SMALL_BYTES = 8192
# Share of the oldest rows that may be garbage.
_GARBAGE_SHARE = 0.4
# Maximum number of sorted runs of a group.
_DEPTH_MAX = 8
# Maximum size of level 0, as a share of level 1.
_LEVEL0_SHARE = 0.1
# Neighbouring groups of a single run below this share of a file are joined.
_SMALL_GROUP_SHARE = 1 / 16


class PlanSettings(Struct, frozen=True, rename="camel"):
    """The rules by which runs of a bucket are compacted; recorded as JSON in the log."""

    flush_runs: Count  # new runs are compacted at this number of runs,
    flush_bytes: Count  # or at this number of bytes,
    flush_rows: Count  # or rows
    fan_in: Count  # number of runs of similar size that are merged into one
    max_file_bytes: Count = msgspec.field(name="maxBytesPerFile")  # of a run that a job writes
    # With a sequence column: how long deleted rows stay deleted if older rows arrive late.
    tombstone_ttl_ms: Count

    @classmethod
    def from_options(cls, parsed: StoreSinkOptions) -> PlanSettings:
        """Return the rules in a writer's options."""
        return cls(
            flush_runs=parsed.flush_interval_count,
            flush_bytes=parsed.flush_bytes,
            flush_rows=parsed.flush_size,
            fan_in=4,
            max_file_bytes=parsed.max_file_size,
            tombstone_ttl_ms=round(parsed.tombstone_ttl * 1000),
        )

    @property
    def read_bytes(self) -> int:
        """Return the maximum bytes that a compaction reads, if it reads more than two sorted runs."""
        return 2 * self.max_file_bytes


DEFAULT_PLAN = PlanSettings.from_options(parse_options({}, StoreSinkOptions))


class Backoff(NamedTuple):
    """Neighbouring runs of a bucket whose compaction failed.

    For example, a run is damaged, or the values of a key have no sum. A retry includes all newer runs of their level,
    or of their group, since a newer run may have deleted or replaced the rows that fail. Meanwhile, other runs are
    compacted without them.
    """

    run: str  # id of the oldest run; the backoff ends with this run
    last: int  # position of the newest row
    attempts: int = 1  # failed attempts
    not_before: int = 0  # version before which no task retries

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Backoff:
        """Return the backoff of runs, by position, after their first failure."""
        return cls(runs[0].id, last_position(runs))

    def is_held(self, version: int) -> bool:
        """Return True if it has failed too often to be tried at this version of the log."""
        return version < self.not_before


class SortedRun(NamedTuple):
    """Runs of one level with overlapping positions: one run, or the results of one compaction, with disjoint keys."""

    runs: tuple[Run, ...]  # by position

    @property
    def at(self) -> tuple[int, int]:
        """Return the first and the last position of its rows."""
        return self.runs[0].metadata.at[0], last_position(self.runs)

    @property
    def size(self) -> int:
        """Return the bytes of its rows."""
        return size_of(self.runs)

    @property
    def rows(self) -> int:
        """Return the number of its rows."""
        return row_count(self.runs)


def sorted_runs(runs: Iterable[Run]) -> list[SortedRun]:
    """Return the runs of a level, or of a group, as sorted runs, old to new."""
    parts: list[tuple[Run, ...]] = []
    last = -1
    for run in by_position(runs):
        if parts and run.metadata.at[0] <= last:
            parts[-1] += (run,)
        else:
            parts.append((run,))
        last = max(last, run.metadata.at[1])
    return [*map(SortedRun, parts)]


def by_level(runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """Return the runs of level 0, and of level 1, in the given order."""
    level0: list[Run] = []
    level1: list[Run] = []
    for run in runs:
        if run.metadata.level:
            level1.append(run)
        else:
            level0.append(run)
    return level0, level1


def groups_of(runs: Iterable[Run]) -> list[list[Run]]:
    """Return runs in groups, by key: in a group each run meets the next run. The runs of a group are by position."""
    groups: list[list[Run]] = []
    end: Key | None = ()
    for run in sorted(runs, key=attrgetter("begins", "metadata.at")):
        if groups and (end is None or run.begins <= end):
            groups[-1].append(run)
            if end is None or run.ends is None:
                end = None
            else:
                end = max(end, run.ends)
        else:
            groups.append([run])
            end = run.ends
    for group in groups:
        group[:] = by_position(group)
    return groups


def by_position(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return runs old to new, and runs of the same positions by key."""
    return tuple(sorted(runs, key=attrgetter("metadata.at", "begins")))


def runs_in(sorted_runs: Iterable[SortedRun]) -> tuple[Run, ...]:
    """Return the runs of sorted runs, in order."""
    return tuple(chain.from_iterable(map(attrgetter("runs"), sorted_runs)))


def size_of(runs: Iterable[Run | SortedRun]) -> int:
    """Return the bytes of the rows of runs, or of sorted runs."""
    return sum(run.size for run in runs)


class Compaction(NamedTuple):
    """Runs of a bucket that are merged into one sorted run."""

    kind: Kind
    runs: tuple[Run, ...]  # by position
    backoff: Backoff | None = None  # of the runs that are retried

    @property
    def name(self) -> str:
        """Return the name in records: the id of its oldest run, or of the oldest run of its backoff."""
        if self.backoff is None:
            return self.runs[0].add.id
        return self.backoff.run

    @property
    def attempts(self) -> int:
        """Return the number of failed attempts."""
        if self.backoff is None:
            return 0
        return self.backoff.attempts

    def is_held(self, version: int) -> bool:
        """Return True for a retry that is not run at this version of the log."""
        return self.backoff is not None and self.backoff.is_held(version)

    @property
    def level(self) -> int:
        """Return the level of its results."""
        return int(self.kind != "level0")


class _Places(NamedTuple):
    """A range of adjacent items in a list of sorted runs."""

    start: int
    end: int

    def of(self, members: Sequence[SortedRun]) -> Sequence[SortedRun]:
        return members[self.start : self.end]


def pick(runs: Iterable[Run], backoffs: Sequence[Backoff], rules: PlanSettings) -> Iterator[Compaction]:
    """Yield the due compactions of a bucket, given its live runs; no two share a run, except with retries.

    A retry includes all newer runs of the level, or of the group, up to the next backoff, because these may delete the
    rows that fail. These newer runs may also be in another compaction.
    """
    live0, level1 = by_level(by_position(runs))
    level0 = sorted_runs(live0)
    yield from _retries("level0", level0, backoffs)
    limit = _level0_limit(level1, rules)
    for places in _list_free(level0, backoffs):
        block, has_oldest = places.of(level0), places.start == 0
        has_older = bool(level1) or not has_oldest
        if has_oldest and (level1 or len(block) > 1) and size_of(runs_in(block)) >= limit:
            yield Compaction("descend", _take_oldest(block, rules))
        else:
            has_newest = places.end == len(level0)
            for chosen in _Level0(block, rules, has_newest=has_newest, has_older=has_older).list_due():
                yield Compaction("level0", _take_oldest(chosen.of(block), rules))
    yield from _due_in_level1(level1, backoffs, rules)


def _level0_limit(level1: Sequence[Run], rules: PlanSettings) -> int:
    """Return the size of level 0, in bytes, from which its oldest rows descend."""
    half = rules.max_file_bytes // 2
    if level1:
        return min(half, max(int(size_of(level1) * _LEVEL0_SHARE), rules.flush_bytes))
    return half


def _due_in_level1(level1: Sequence[Run], backoffs: Sequence[Backoff], rules: PlanSettings) -> Iterator[Compaction]:
    small: list[Run] = []  # neighbouring groups, each of one small run
    for group in groups_of(level1):
        members = sorted_runs(group)
        yield from _retries("level1", members, backoffs)
        is_free = [*_list_free(members, backoffs)] == [(0, len(members))]
        chosen = None
        if is_free:
            chosen = _due_in_group(members, rules)
        if chosen is not None:
            yield Compaction("level1", _take_oldest(chosen.of(members), rules))
        is_small = is_free and chosen is None and is_small_group(group, rules)
        if not is_small or size_of([*small, *group]) > rules.max_file_bytes:
            yield from _join_groups(small, rules)
            small = []
        if is_small:
            small += group
    yield from _join_groups(small, rules)


def is_small_group(group: Sequence[Run], rules: PlanSettings) -> bool:
    """Return True for a group of one run that should be joined with its neighbours."""
    return len(group) == 1 and group[0].size < rules.max_file_bytes * _SMALL_GROUP_SHARE


def _join_groups(groups: Sequence[Run], rules: PlanSettings) -> Iterator[Compaction]:
    if len(groups) >= rules.fan_in:
        yield Compaction("level1", by_position(groups))


def _retries(kind: Kind, members: Sequence[SortedRun], backoffs: Iterable[Backoff]) -> Iterator[Compaction]:
    by_start: dict[int, Backoff] = {}
    for backoff in backoffs:
        places = _find_held(backoff, members)
        if places:
            by_start[places.start] = backoff
    ends = dict(pairwise([*sorted(by_start), len(members)]))
    for start, backoff in by_start.items():
        end = ends[start]
        yield Compaction(kind, runs_in(members[start:end]), backoff)


def _list_free(members: Sequence[SortedRun], backoffs: Iterable[Backoff]) -> Iterator[_Places]:
    """Yield the ranges of sorted runs without a backoff."""
    barred: set[int] = set()
    for backoff in backoffs:
        barred.update(_find_held(backoff, members))
    for before, place in pairwise([-1, *sorted(barred), len(members)]):
        if before + 1 < place:
            yield _Places(before + 1, place)


def _find_held(backoff: Backoff, members: Sequence[SortedRun]) -> range:
    """Return the range of sorted runs of a backoff; empty if its oldest run is not among them."""
    for start, member in enumerate(members):
        if backoff.run in run_ids(member.runs):
            end = start
            while end < len(members) and members[end].at[0] <= backoff.last:
                end += 1
            return range(start, end)
    return range(0)


def _take_oldest(members: Sequence[SortedRun], rules: PlanSettings) -> tuple[Run, ...]:
    """Return the oldest runs up to the bytes of one compaction (two files), but at least two sorted runs."""
    count = total_bytes = 0
    for member in members:
        total_bytes += member.size
        if total_bytes > rules.read_bytes:
            break
        count += 1
    return runs_in(members[: max(count, 2)])


@dataclass(frozen=True, slots=True)
class _Level0:
    """Adjacent sorted runs of level 0."""

    block: Sequence[SortedRun]
    rules: PlanSettings
    has_newest: bool  # no newer run has a backoff
    has_older: bool  # older runs exist

    def list_due(self) -> Iterator[_Places]:
        """Yield the due ranges: small new runs, a tier, or, if there are no older runs, all runs."""
        new = len(self.block)
        while self.has_newest and new and self._is_new(self.block[new - 1]):
            new -= 1
        is_flush_due = self._is_flush_due(self.block[new:])
        end = len(self.block) if is_flush_due else new
        if not self.has_older and new and end > 1 and _has_garbage(self.block[:end]):
            yield _Places(0, end)
            return
        sizes = [member.size for member in self.block]
        if is_flush_due:
            tier = _tier_due([*sizes[:new], sum(sizes[new:])], self.rules)
            if tier is not None and tier.end == new + 1:
                yield _Places(tier.start, end)
                return
            yield _Places(new, end)
        if (tier := _tier_due(sizes[:new], self.rules)) is not None:
            yield tier

    def _is_new(self, member: SortedRun) -> bool:
        """Return True for a small run that a batch wrote."""
        is_of_batch = member.at[0] == member.at[1]
        return is_of_batch and member.size < self.rules.flush_bytes and member.rows < self.rules.flush_rows

    def _is_flush_due(self, new: Sequence[SortedRun]) -> bool:
        return len(new) > 1 and (
            len(new) >= self.rules.flush_runs
            or size_of(new) >= self.rules.flush_bytes
            or row_count(runs_in(new)) >= self.rules.flush_rows
        )


def _due_in_group(members: Sequence[SortedRun], rules: PlanSettings) -> _Places | None:
    """Return the due range of a group: all runs if there is garbage, a tier, or all but the oldest if too many."""
    is_purged = not members[0].rows
    if is_purged or (len(members) > 1 and _has_garbage(members)):
        return _Places(0, len(members))
    tier = _tier_due([member.size for member in members], rules)
    if tier is None and len(members) > _DEPTH_MAX:
        return _Places(1, len(members))
    return tier


def _has_garbage(members: Sequence[SortedRun]) -> bool:
    """Return True if many of the oldest rows may be garbage; a delete counts twice, because it is itself garbage."""
    oldest, newer = members[0], runs_in(members[1:])
    rows = 0
    for run in newer:
        if run.metadata.purges:
            return True
        rows += run.add.rows + run.metadata.deletes
    return rows >= _GARBAGE_SHARE * oldest.rows or size_of(newer) >= _GARBAGE_SHARE * oldest.size


def _tier_due(sizes: Sequence[int], rules: PlanSettings) -> _Places | None:
    """Return a range with `fan_in` runs of one tier, given all sizes, old to new; None without one.

    The smaller runs of a range count together as one run if their total size is of the tier.
    """
    tiers = [_tier(size, rules) for size in sizes]
    for tier in sorted(set(tiers), reverse=True):
        start = 0
        for end in range(1, len(sizes) + 1):
            if end < len(sizes) and tiers[end] <= tier and tiers[end - 1] <= tier:
                continue
            if tiers[start] <= tier:
                smaller_bytes = 0
                has_smaller = False
                for place in range(start, end):
                    if tiers[place] < tier:
                        smaller_bytes += sizes[place]
                        has_smaller = True
                is_another = has_smaller and _tier(smaller_bytes, rules) >= tier
                if tiers[start:end].count(tier) + is_another >= rules.fan_in:
                    return _Places(start, end)
            start = end
    return None


def _tier(size: int, rules: PlanSettings) -> int:
    """Return the power of `fan_in` that is nearest to a size."""
    return math.floor(math.log(max(size, _SMALL_BYTES) / _SMALL_BYTES, rules.fan_in) + 0.5)
