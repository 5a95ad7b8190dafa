"""Due compactions with their terms and cuts, the compactions that a record can accept, and their backoffs."""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from ftfile.core.checksum import Decoding
from ftfile.core.logs import get_logger
from ftfile.core.per_process import cached_property
from ftfile.kv.key_columns import clip, key_behind, union
from ftfile.kv.planning.picker import Backoff, by_level, groups_of, pick, size_of
from ftfile.kv.planning.runs import (
    Run,
    adds_of,
    are_apart,
    greatest_end,
    last_position,
    least_key,
    purges_of,
    run_ids,
    run_of,
    runs_by_bucket,
)
from ftfile.log.format import layout
from ftfile.log.format.adds import ids_of
from ftfile.log.format.model import Count, Job, Value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.core.context import IdSource
    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.kv.planning.picker import Compaction, PlanSettings
    from ftfile.log.checks import Rewrite
    from ftfile.log.format.model import Add


_log = get_logger(__name__)

# After this number of failures, a retry is skipped for this number of versions.
_TRIES, _VERSIONS_HELD = 3, 64


class Terms(NamedTuple):
    """The rows that a compaction may drop."""

    is_bottommost: bool  # no older run has its keys: drop deletes and purges, turn merges into sets
    expired_ms: int  # with a sequence column, drop deletes before this time; see `fold`


def terms_of(compacted: Sequence[Run], bucket: Iterable[Run], rules: PlanSettings, now_ms: int) -> Terms:
    """Return the terms of a compaction of runs, given all live runs of their bucket.

    A delete has expired if it is older than `tombstone_ttl_ms` now, and was so when newer runs with its keys were
    committed. Otherwise these runs may contain older rows that arrived in time and must stay deleted.
    """
    ids, first = run_ids(compacted), min(run.metadata.at[0] for run in compacted)
    start, end = least_key(compacted), greatest_end(compacted)
    is_bottommost, until_ms = True, now_ms
    for run in bucket:
        meets = (end is None or run.begins <= end) and start <= _end(run, start)
        if run.id in ids or not meets:
            continue
        if run.metadata.at[0] > first:
            until_ms = min(until_ms, run.metadata.committed_ms)
        else:
            is_bottommost = False
    return Terms(is_bottommost, until_ms - rules.tombstone_ttl_ms)


def cuts_of(
    compaction: Compaction, bucket: Iterable[Run], kinds: Sequence[pa.DataType], rules: PlanSettings
) -> tuple[Key, ...]:
    """Return the cuts of a compaction: where large groups of level 1 begin, after the last group, and around moves.

    No result contains keys on both sides of a cut.
    """
    if compaction.kind != "descend":
        return ()
    _, level1 = by_level(bucket)
    groups = groups_of(level1)
    keys = set()
    for group in groups:
        if size_of(group) >= rules.max_file_bytes // 8:
            keys.add(least_key(group))
    if groups and (last := greatest_end(groups[-1])) is not None and (key := key_behind(last, kinds)) is not None:
        keys.add(key)
    for run in moves_of(compaction, keys, rules.max_file_bytes):
        keys.add(run.begins)
    return tuple(sorted(keys - {()}))


def moves_of(compaction: Compaction, cuts: Collection[Key], max_file_bytes: int) -> tuple[Run, ...]:
    """Return the runs of a descent that only change their level: large, meeting no other run, without a cut."""
    if compaction.kind != "descend":
        return ()
    moves = []
    for run, *neighbours in groups_of(compaction.runs):
        is_large_enough = run.size >= max_file_bytes // 4
        if not neighbours and is_large_enough and not _has_cut(run, cuts):
            moves.append(run)
    return tuple(moves)


def _has_cut(run: Run, cuts: Iterable[Key]) -> bool:
    """Return True if a run has keys on both sides of a cut."""
    return any(run.begins < cut <= _end(run, cut) for cut in cuts)


def divide_purges(purges: Iterable[KeyRange], starts: Sequence[Key], end: Key | None) -> list[tuple[KeyRange, ...]]:
    """Return the purges of results: from the start of each result to the next start, for the last one up to `end`."""
    merged = union(purges)
    bounds: list[Key | None] = [*starts[1:], end]
    clipped = []
    for start, next_start in zip(starts, bounds, strict=True):
        clipped.append(clip(merged, start, next_start))
    return clipped


def _end(run: Run, key: Key) -> Key:
    """Return the end of a run, or the given key if the run is unbounded."""
    if run.ends is None:
        return key
    return run.ends


class Result(NamedTuple):
    """A run that a compaction writes, with its purges. Without a run, one without rows must be written."""

    run: Run | None
    purges: tuple[KeyRange, ...]


@dataclass(frozen=True, kw_only=True)
class PlannedCompaction:
    """A compaction of runs of a bucket, ready to run in a task."""

    compaction: Compaction
    terms: Terms
    cuts: tuple[Key, ...]  # no result contains keys on both sides of a cut
    max_file_bytes: int  # of a result

    @cached_property
    def moves(self) -> tuple[Run, ...]:
        """Return the runs that only change their level, without a rewrite."""
        return moves_of(self.compaction, self.cuts, self.max_file_bytes)

    @cached_property
    def inputs(self) -> tuple[Run, ...]:
        """Return the runs that are rewritten."""
        ids = run_ids(self.moves)
        return tuple(run for run in self.compaction.runs if run.id not in ids)

    @property
    def size(self) -> int:
        """Return the bytes to read."""
        return size_of(self.inputs)

    @property
    def purges(self) -> tuple[KeyRange, ...]:
        """Return the purges that results must keep: none if there are no older rows."""
        if self.terms.is_bottommost:
            return ()
        return tuple(purges_of(self.inputs))

    def results(self, written: Sequence[Run]) -> list[Result]:
        """Return written runs, by key, with purges; each covers the keys from its start or cut to the next one."""
        by_cut: defaultdict[int, list[Run]] = defaultdict(list)
        for run in written:
            by_cut[bisect.bisect_right(self.cuts, run.begins)].append(run)
        starts: list[Key] = []
        runs: list[Run | None] = []
        for number, start in enumerate([(), *self.cuts]):
            members = by_cut[number]
            starts.append(start)
            for run in members[1:]:
                starts.append(run.begins)
            runs += members or [None]
        results = []
        for result_run, purges in zip(runs, divide_purges(self.purges, starts, None), strict=True):
            if result_run is not None or purges:
                results.append(Result(result_run, purges))
        return results

    def add_of(self, run: Run, purges: tuple[KeyRange, ...]) -> Add:
        """Return the add of a result."""
        at = self.inputs[0].metadata.at[0], last_position(self.inputs)
        committed_ms = min(member.metadata.committed_ms for member in self.inputs)
        return run.with_metadata(
            replace(run.metadata, at=at, purges=purges, committed_ms=committed_ms, level=self.compaction.level)
        )

    def move_runs(self, ids: IdSource) -> list[Add]:
        """Return the adds of the runs that move: a new level and a new id."""
        adds = []
        for run in self.moves:
            metadata = replace(run.metadata, level=self.compaction.level)
            adds.append(run.with_metadata(metadata, id=ids.unique()))
        return adds


Piece = tuple[PlannedCompaction, ...]


def list_due(
    live: Iterable[Add], backoffs: Sequence[Backoff], rules: PlanSettings
) -> Iterator[tuple[Compaction, list[Run]]]:
    """Yield all due compactions among live runs, by bucket, each with the runs of its bucket.

    They are computed from the live runs; only backoffs are recorded. Only retries may share runs with other
    compactions. Of two such results, the result with the oldest row is accepted.
    """
    for runs in runs_by_bucket(map(run_of, live)).values():
        for compaction in pick(runs, backoffs, rules):
            yield compaction, runs


@dataclass(frozen=True, slots=True)
class CompactionPlanner:
    """Plans compactions for execution by tasks."""

    rules: PlanSettings
    key_types: Sequence[pa.DataType]
    now_ms: int

    def list_due(self, live: Iterable[Add], backoffs: Sequence[Backoff] = ()) -> list[PlannedCompaction]:
        """Return all due compactions among live runs."""
        planned = []
        for compaction, bucket in list_due(live, backoffs, self.rules):
            planned.append(self.plan(compaction, bucket))
        return planned

    def plan(self, compaction: Compaction, bucket: Sequence[Run]) -> PlannedCompaction:
        """Return a compaction with its terms and cuts, given all live runs of its bucket."""
        terms = terms_of(compaction.runs, bucket, self.rules, self.now_ms)
        cuts = cuts_of(compaction, bucket, self.key_types, self.rules)
        return PlannedCompaction(
            compaction=compaction, terms=terms, cuts=cuts, max_file_bytes=self.rules.max_file_bytes
        )


def pieces_of(compactions: Iterable[PlannedCompaction], size_bytes: int) -> list[Piece]:
    """Return compactions grouped by output file: neighbours up to some bytes, then each retry separately."""
    pieces: list[Piece] = []
    piece_bytes = 0
    for planned in sorted(compactions, key=attrgetter("compaction.attempts")):
        if not pieces or planned.compaction.backoff is not None or piece_bytes + planned.size > size_bytes:
            pieces.append(())
            piece_bytes = 0
        pieces[-1] += (planned,)
        piece_bytes += planned.size
    return pieces


def keep_acceptable(live: Mapping[str, Add], rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """Return the rewrites that can replace their inputs after the previous rewrites, in order of precedence.

    The result of an abandoned job may arrive after other tasks have compacted the runs around its inputs. It is left
    out, because the order between its rows and theirs would be undefined.
    """
    buckets: dict[str, dict[str, Run]] = {}
    for rewrite in rewrites:
        for add in rewrite.inputs:
            buckets.setdefault(add.directory_key, {})
    for add in live.values():
        if add.directory_key in buckets:
            buckets[add.directory_key][add.id] = run_of(add)
    accepted = []
    for rewrite in rewrites:
        runs, ids = buckets[rewrite.inputs[0].directory_key], ids_of(rewrite.inputs)
        if not ids <= runs.keys():
            _log.info("dropping a compaction of %d runs: some are no longer live", len(ids))
            continue
        remaining = runs.copy()
        for add_id in ids:
            del remaining[add_id]
        new = [*map(run_of, rewrite.adds)]
        if not _are_apart(new, remaining.values()):
            _log.warning("dropping a compaction of %d runs: another process has compacted runs around them", len(ids))
            continue
        for run in new:
            remaining[run.id] = run
        buckets[rewrite.inputs[0].directory_key] = remaining
        accepted.append(rewrite)
    return accepted


def _are_apart(new: Iterable[Run], live: Collection[Run]) -> bool:
    """Return True if each new run is ordered with all live runs."""
    for run in new:
        if not all(are_apart(run, live_run) for live_run in live):
            return False
    return True


class CompactionPlan(Value, frozen=True, kw_only=True):
    """What a job of a store contains besides its id and its failed attempts, in the log."""

    bucket: str  # the directory of its runs
    task_count: Count  # number of tasks that share the jobs
    last: Count | None = None  # see `Backoff`; None if no attempt has failed
    not_before: Count = 0  # see `Backoff`


def plan_of(job: Job) -> CompactionPlan:
    """Return the plan of a job; CorruptData if no task can execute it."""
    with Decoding(layout.LOG, f"the plan of the job {job.id!r:.40}"):
        return msgspec.convert(job.payload, CompactionPlan)


def job_of(compaction: Compaction, tasks: int) -> Job:
    """Return the job of a due compaction, for a record."""
    plan = CompactionPlan(bucket=compaction.runs[0].add.directory_key, task_count=tasks)
    if (backoff := compaction.backoff) is None:
        return Job(compaction.name, compaction.kind, inputs=(), payload=msgspec.to_builtins(plan))
    plan = structs.replace(plan, last=backoff.last, not_before=backoff.not_before)
    payload = msgspec.to_builtins(plan)
    return Job(compaction.name, "retry", inputs=(), attempts=backoff.attempts, payload=payload)


def backoffs_of(jobs: Iterable[Job]) -> list[Backoff]:
    """Return the backoffs of a record."""
    backoffs = []
    for job in jobs:
        plan = plan_of(job)
        if plan.last is not None:
            backoffs.append(Backoff(job.id, plan.last, job.attempts, plan.not_before))
    return backoffs


def is_held(job: Job, version: int) -> bool:
    """Return True if a job has failed too often to be tried at this version of the log."""
    return any(backoff.is_held(version) for backoff in backoffs_of([job]))


def failed_ids(compaction: Compaction, error: Exception) -> tuple[str, ...]:
    """Return the ids that report a failed compaction: of the run in the file that the error names, else of all runs.

    A retry is reported by its name.
    """
    if compaction.backoff is not None:
        return (compaction.name,)
    path, adds = getattr(error, "path", None), [*adds_of(compaction.runs)]
    damaged = [add for add in adds if add.path == path]
    return tuple(add.id for add in damaged or adds)


def backoffs_after(
    backoffs: Iterable[Backoff], due: Iterable[Compaction], failed: Collection[str], live: Collection[str], version: int
) -> list[Backoff]:
    """Return the backoffs of a version, given the previous backoffs, the compactions due then, and the live run ids.

    `failed` contains results of `failed_ids`.
    """
    after = []
    for backoff in backoffs:
        if backoff.run in live:
            after.append(_try_again(backoff, version) if backoff.run in failed else backoff)
    for compaction in due:
        if compaction.backoff is None and run_ids(compaction.runs).issubset(live):
            runs = [run for run in compaction.runs if run.id in failed]
            if runs:
                after.append(Backoff.of(runs))
    return after


def _try_again(backoff: Backoff, version: int) -> Backoff:
    attempts = backoff.attempts + 1
    return backoff._replace(
        attempts=attempts, not_before=version + _VERSIONS_HELD if attempts % _TRIES == 0 else backoff.not_before
    )
