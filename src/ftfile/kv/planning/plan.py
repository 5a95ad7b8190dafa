"""Which runs are due to be merged, and which merges a record can take: asked by the commit for every head it tries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.logs import get_logger
from ftfile.kv.planning.holds import retries
from ftfile.kv.planning.jobs import job_of, terms_of
from ftfile.kv.planning.runs import Run, Stretch, apart, run_of, runs_by_bucket, stretches_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ftfile.core.context import IdSource
    from ftfile.kv.planning.holds import Hold
    from ftfile.kv.planning.jobs import JobTerms, PlanSettings
    from ftfile.log.checks import Rewrite
    from ftfile.log.format.model import Add, AssemblyTask


# Below it all runs count as equally large: most of their cost is a file.
_SMALL_BYTES = 8192
# Runs that a record may name in jobs that have not failed, 500 bytes each; one bucket may have more.
_RUNS_MAX = 10_000
_FLUSH, _MERGE, _CONTINUE = "flush", "merge", "continue"

_log = get_logger(__name__)


class _Window(NamedTuple):
    """Runs of a bucket, neighbours in position, that are due."""

    reason: str
    runs: tuple[Run, ...]
    terms: JobTerms

    @property
    def size(self) -> int:
        return sum(run.size for run in self.runs)


def plan_jobs(
    live: Iterable[Add],
    holds: Sequence[Hold],
    settings: PlanSettings,
    ids: IdSource,
    *,
    now_ms: int,
    tasks: int = 1,
) -> list[AssemblyTask]:
    """Return all jobs that are due among live runs: nothing that was due is remembered, but for holds.

    A retry is about one bucket; another job is about one, or about neighbouring buckets with few bytes. These have no
    run in common, and none that is held. A retry takes newer runs, which may be in another job, too: of two results
    the one with the oldest row is taken.
    """
    jobs: list[AssemblyTask] = []
    windows: list[_Window] = []
    for runs in runs_by_bucket(map(run_of, live)).values():
        stretches = stretches_of(runs)
        jobs += retries(stretches, holds, settings, ids, now_ms=now_ms, tasks=tasks)
        barred = {place for hold in holds for place in hold.bars(stretches)}
        windows += _due_in(stretches, barred, settings, now_ms)
    room = _RUNS_MAX
    for reason in (_CONTINUE, _FLUSH, _MERGE):
        for groups in _groups([window for window in windows if window.reason == reason], settings, tasks):
            named = sum(len(runs) for runs, _ in groups)
            # Smaller ones do not overtake: a large one would wait for ever.
            if named > room < _RUNS_MAX:
                return jobs
            room -= named
            jobs.append(job_of(reason, groups, settings, ids, tasks))
    return jobs


def _groups(
    windows: Sequence[_Window], settings: PlanSettings, tasks: int
) -> Iterator[list[tuple[tuple[Run, ...], JobTerms]]]:
    """Yield windows by job: neighbours together, in shares for the tasks, up to the bytes and runs of a job."""
    budget = min(settings.job_bytes, -(-sum(window.size for window in windows) // tasks))
    group: list[_Window] = []
    size_bytes = runs = 0
    for window in windows:
        if group and (size_bytes + window.size > budget or runs + len(window.runs) > _RUNS_MAX):
            yield [(member.runs, member.terms) for member in group]
            group, size_bytes, runs = [], 0, 0
        group.append(window)
        size_bytes += window.size
        runs += len(window.runs)
    if group:
        yield [(member.runs, member.terms) for member in group]


def _due_in(
    stretches: list[Stretch], barred: Collection[int], settings: PlanSettings, now_ms: int
) -> Iterator[_Window]:
    """Yield the windows of a bucket that are due; they have no stretch in common, and none of the places barred."""
    bucket_runs = [run for stretch in stretches for run in stretch.runs]

    def window(reason: str, runs: Iterable[Run], start: int, end: int) -> _Window:
        at = stretches[start].at[0], stretches[end - 1].at[1]
        return _Window(reason, tuple(runs), terms_of(at, bucket_runs, settings, now_ms))

    for start, end in _blocks(stretches, barred):
        if stretches[start].unfinished:
            yield window(_CONTINUE, stretches[start].unfinished, start, end)
            continue
        block, has_newest = stretches[start:end], end == len(stretches)
        for reason, first, last in _choices(block, settings, has_oldest=start == 0, has_newest=has_newest):
            members = stretches[start + first : start + last]
            yield window(reason, (run for stretch in members for run in stretch.runs), start + first, start + last)


def _blocks(stretches: Sequence[Stretch], barred: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the places of stretches that are neighbours and not barred, and of each unfinished one by itself."""
    start = 0
    for place, stretch in enumerate(stretches):
        if place in barred or stretch.unfinished:
            if start < place:
                yield start, place
            if place not in barred:
                yield place, place + 1
            start = place + 1
    if start < len(stretches):
        yield start, len(stretches)


def _choices(
    block: Sequence[Stretch], settings: PlanSettings, *, has_oldest: bool, has_newest: bool
) -> Iterator[tuple[str, int, int]]:
    """Yield what is due of neighbours: why, and the places from which and up to which."""
    new = len(block)
    while has_newest and new and _is_new(block[new - 1], settings):
        new -= 1
    sizes = [stretch.size for stretch in block]
    if _is_flush_due(block[new:], settings):
        chosen = _merge([*sizes[:new], sum(sizes[new:])], settings, has_oldest=has_oldest)
        if chosen is not None and chosen[1] == new + 1:
            yield _MERGE, chosen[0], len(block)
            return
        yield _FLUSH, new, len(block)
    chosen = _merge(sizes[:new], settings, has_oldest=has_oldest)
    if chosen is not None:
        yield _MERGE, *chosen


def _is_new(stretch: Stretch, settings: PlanSettings) -> bool:
    """Return True for a small run that a batch wrote."""
    add = stretch.runs[0].add
    return stretch.at[0] == stretch.at[1] and stretch.size < settings.flush_bytes and add.rows < settings.flush_rows


def _is_flush_due(new: Sequence[Stretch], settings: PlanSettings) -> bool:
    return len(new) > 1 and (
        len(new) >= settings.flush_runs
        or sum(stretch.size for stretch in new) >= settings.flush_bytes
        or sum(run.add.rows for stretch in new for run in stretch.runs) >= settings.flush_rows
    )


def _merge(sizes: Sequence[int], settings: PlanSettings, *, has_oldest: bool) -> tuple[int, int] | None:
    """Return the places of the neighbours to be merged to one, given their sizes, old to new; None if none are due.

    They are all of them, once those above the oldest one have half of its size. Else they are those of a tier, when
    there are `fan_in` of them; all smaller ones together count as another one if they are as large.
    """
    if has_oldest and len(sizes) > 1 and 2 * sum(sizes[1:]) >= sizes[0]:
        return 0, len(sizes)
    tiers = [_tier(size, settings) for size in sizes]
    for tier in sorted(set(tiers), reverse=True):
        start = 0
        for end in range(1, len(sizes) + 1):
            if end < len(sizes) and tiers[end] <= tier and tiers[end - 1] <= tier:
                continue
            if tiers[start] <= tier:
                smaller = [
                    size
                    for size, other_tier in zip(sizes[start:end], tiers[start:end], strict=True)
                    if other_tier < tier
                ]
                is_another = bool(smaller) and _tier(sum(smaller), settings) >= tier
                if tiers[start:end].count(tier) + is_another >= settings.fan_in:
                    return start, end
            start = end
    return None


def _tier(size: int, settings: PlanSettings) -> int:
    """Return the power of `fan_in` that a size is nearest to."""
    return math.floor(math.log(max(size, _SMALL_BYTES) / _SMALL_BYTES, settings.fan_in) + 0.5)


def acceptable(live: Mapping[str, Add], rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """Return the merges that may replace their inputs, in order of precedence, each as if those before it were done.

    One whose job was given up long ago may come when others have merged the runs around its inputs. It is left out, for
    the order of its rows and of theirs would not be known.
    """
    concerned = {add.directory_key for rewrite in rewrites for add in rewrite.inputs}
    runs: dict[str, dict[str, Run]] = {bucket: {} for bucket in concerned}
    for add in live.values():
        if add.directory_key in runs:
            runs[add.directory_key][add.id] = run_of(add)
    accepted = []
    for rewrite in rewrites:
        if not all(add.id in runs[add.directory_key] for add in rewrite.inputs):
            _log.info("dropping a merge of %d runs: some are no longer live", len(rewrite.inputs))
            continue
        ended = {add.id for add in rewrite.inputs}
        new = [run_of(add) for add in rewrite.adds]
        other_runs = {bucket: [run for run in runs[bucket].values() if run.add.id not in ended] for bucket in runs}
        if not all(apart(run, other) for run in new for other in other_runs[run.add.directory_key]):
            _log.warning("dropping a merge of %d runs: others have merged what is around them", len(rewrite.inputs))
            continue
        for add in rewrite.inputs:
            del runs[add.directory_key][add.id]
        for run in new:
            runs[run.add.directory_key][run.add.id] = run
        accepted.append(rewrite)
    return accepted
