"""Which compactions are due, and which a record can take: asked by the commit for every head it tries."""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from ftfile.core.logs import get_logger
from ftfile.kv.key_columns import decode_key, encode_key
from ftfile.kv.planning.picker import Terms, cuts_of, moves_of, pick, purges_between, size_of, terms_of
from ftfile.kv.planning.runs import Run, apart, run_of, runs_by_bucket
from ftfile.log.format.model import Add, AssemblyTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.core.context import IdSource
    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.kv.planning.picker import Compaction, Kind
    from ftfile.kv.planning.rules import Hold, PlanSettings
    from ftfile.log.checks import Rewrite


# Runs that a record may name in jobs that have not failed, 500 bytes each; one bucket may have more.
_RUNS_MAX = 10_000
_KINDS: tuple[Kind, ...] = ("level0", "descend", "level1")

_log = get_logger(__name__)


class Result(NamedTuple):
    """A run that a compaction writes, and the purges that it has; without a run, there must be one without rows."""

    run: Run | None
    purges: tuple[KeyRange, ...]


@dataclass(frozen=True)
class PlannedCompaction:
    """A compaction of runs of a bucket, as a task does it."""

    runs: tuple[Run, ...]  # by position
    level: int  # of its results
    terms: Terms
    cuts: tuple[Key, ...]  # no result has keys on both sides of one
    max_file_bytes: int  # of a result

    @cached_property
    def moves(self) -> tuple[Run, ...]:
        """Return the runs whose bytes stay as they are, and whose level changes."""
        descends = self.level > self.runs[0].marks.level
        return moves_of(self.runs, self.cuts, self.max_file_bytes) if descends else ()

    @cached_property
    def merged(self) -> tuple[Run, ...]:
        """Return the runs that become new ones."""
        ids = {run.add.id for run in self.moves}
        return tuple(run for run in self.runs if run.add.id not in ids)

    @property
    def size(self) -> int:
        """Return the bytes that are read."""
        return size_of(self.merged)

    @property
    def purges(self) -> tuple[KeyRange, ...]:
        """Return the purges that results have: none where no older row is."""
        return () if self.terms.is_bottommost else tuple(purge for run in self.merged for purge in run.marks.purges)

    def results(self, written: Sequence[Run]) -> list[Result]:
        """Return runs that were written, by key, with their purges: each from its first key or cut to the next one."""
        by_cut: defaultdict[int, list[Run]] = defaultdict(list)
        for run in written:
            by_cut[bisect.bisect_right(self.cuts, run.begins)].append(run)
        starts: list[Key] = []
        runs: list[Run | None] = []
        for number, start in enumerate([(), *self.cuts]):
            starts += [start, *(run.begins for run in by_cut[number][1:])]
            runs += by_cut[number] or [None]
        purges = purges_between(self.purges, starts, None)
        return [Result(run, ranges) for run, ranges in zip(runs, purges, strict=True) if run is not None or ranges]

    def add_of(self, run: Run, purges: tuple[KeyRange, ...]) -> Add:
        """Return the add of a result."""
        at = self.merged[0].marks.at[0], max(member.marks.at[1] for member in self.merged)
        committed_ms = min(member.marks.committed_ms for member in self.merged)
        return run.marked(replace(run.marks, at=at, purges=purges, committed_ms=committed_ms, level=self.level))

    def moved(self, ids: IdSource) -> list[Add]:
        """Return the adds of the runs that move: a new level and a new id."""
        return [run.marked(replace(run.marks, level=self.level), id=ids.unique()) for run in self.moves]


def job_of(reason: str, compactions: Sequence[PlannedCompaction], ids: IdSource, tasks: int) -> AssemblyTask:
    """Return the job of compactions of several buckets, which follow the same rules."""
    payload: dict[str, object] = {
        "groups": [
            {
                "runs": len(compaction.runs),
                "level": compaction.level,
                "isBottommost": compaction.terms.is_bottommost,
                "expiredMs": compaction.terms.expired_ms,
            }
            for compaction in compactions
        ],
        "maxBytesPerFile": compactions[0].max_file_bytes,
        "taskCount": tasks,
    }
    if any(compaction.cuts for compaction in compactions):
        payload["cuts"] = [[encode_key(key) for key in compaction.cuts] for compaction in compactions]
    inputs = tuple(run.add for compaction in compactions for run in compaction.runs)
    return AssemblyTask(ids.unique(), reason, inputs, payload=payload)


def compactions_of(job: AssemblyTask) -> tuple[PlannedCompaction, ...]:
    """Return the compactions of a job, in their order."""
    groups = job.payload["groups"]
    cuts = job.payload.get("cuts") or [()] * len(groups)
    compactions, start = [], 0
    for group, keys in zip(groups, cuts, strict=True):
        runs = tuple(map(run_of, job.inputs[start : start + group["runs"]]))
        start += group["runs"]
        terms = Terms(group["isBottommost"], group["expiredMs"])
        cut_keys = tuple(map(decode_key, keys))
        compactions.append(PlannedCompaction(runs, group["level"], terms, cut_keys, job.payload["maxBytesPerFile"]))
    return tuple(compactions)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the jobs of a store."""

    settings: PlanSettings
    key_types: Sequence[pa.DataType]
    ids: IdSource
    now_ms: int

    def jobs(self, live: Iterable[Add], holds: Sequence[Hold] = (), *, tasks: int = 1) -> list[AssemblyTask]:
        """Return all jobs that are due among live runs: nothing that was due is remembered, but for holds.

        A retry is about one bucket; another job is about one, or about neighbouring buckets with few bytes. These have
        no run in common, and none that is held. A retry takes newer runs, which may be in another job, too: of two
        results the one with the oldest row is taken.
        """
        jobs: list[AssemblyTask] = []
        due: dict[Kind, list[PlannedCompaction]] = {kind: [] for kind in _KINDS}
        for runs in runs_by_bucket(map(run_of, live)).values():
            for compaction in pick(runs, holds, self.settings):
                planned = self.planned(compaction, runs)
                if compaction.hold is None:
                    due[compaction.kind].append(planned)
                else:
                    jobs.append(_retry_of(compaction.hold, job_of("retry", [planned], self.ids, tasks)))
        room = _RUNS_MAX
        for kind, compactions in due.items():
            for group in _groups(compactions, self.settings, tasks):
                named = sum(len(compaction.runs) for compaction in group)
                # Smaller ones do not overtake: a large one would wait for ever.
                if named > room < _RUNS_MAX:
                    return jobs
                room -= named
                jobs.append(job_of(kind, group, self.ids, tasks))
        return jobs

    def planned(self, compaction: Compaction, bucket: Sequence[Run]) -> PlannedCompaction:
        """Return a compaction as a task does it, given all live runs of its bucket."""
        terms = terms_of(compaction.runs, bucket, self.settings, self.now_ms)
        cuts = cuts_of(compaction, bucket, self.key_types, self.settings)
        return PlannedCompaction(compaction.runs, compaction.level, terms, cuts.keys, self.settings.max_file_bytes)


def _retry_of(hold: Hold, job: AssemblyTask) -> AssemblyTask:
    payload = job.payload | {"hold": {"run": hold.run, "last": hold.last}}
    payload |= {"notBefore": hold.not_before} if hold.not_before else {}
    return structs.replace(job, id=hold.run, attempts=hold.attempts, payload=payload)


def _groups(
    compactions: Sequence[PlannedCompaction], settings: PlanSettings, tasks: int
) -> Iterator[list[PlannedCompaction]]:
    """Yield compactions by job: neighbours together, in shares for the tasks, up to the bytes and runs of a job."""
    budget = min(settings.read_bytes, -(-sum(compaction.size for compaction in compactions) // tasks))
    group: list[PlannedCompaction] = []
    size_bytes = runs = 0
    for compaction in compactions:
        if group and (size_bytes + compaction.size > budget or runs + len(compaction.runs) > _RUNS_MAX):
            yield group
            group, size_bytes, runs = [], 0, 0
        group.append(compaction)
        size_bytes += compaction.size
        runs += len(compaction.runs)
    if group:
        yield group


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
