"""Jobs as a record has them, the rules by which they are made, and the share of one that a task does at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from ftfile.core.options import ParsedOptions, parse_options
from ftfile.kv.definition import SET
from ftfile.kv.key_columns import clip
from ftfile.kv.planning.runs import Run, meet, run_of
from ftfile.log.format.model import Add, AssemblyTask, Count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ftfile.core.context import IdSource
    from ftfile.kv.key_columns import Key, KeyRange


class PlanSettings(Struct, frozen=True, rename="camel"):
    """The rules by which runs of a bucket are merged; JSON in the log."""

    flush_runs: Count  # new runs are merged when there are as many,
    flush_bytes: Count  # or they have as many bytes,
    flush_rows: Count  # or rows
    fan_in: Count  # runs of similar size that are merged to one
    job_bytes: Count  # a job that has more bytes to read is cut by keys
    max_file_bytes: Count = msgspec.field(name="maxBytesPerFile")  # of a run that a job writes
    # With a sequence column, how long a deleted row stays deleted when older rows come late.
    tombstone_ttl_ms: Count

    @classmethod
    def from_options(cls, parsed: ParsedOptions) -> PlanSettings:
        """Return the rules that a writer's options name."""
        return cls(
            flush_runs=parsed["flushIntervalCount"],
            flush_bytes=parsed["flushBytes"],
            flush_rows=parsed["flushSize"],
            fan_in=4,
            job_bytes=parsed["jobBytes"],
            max_file_bytes=parsed["maxFileSize"],
            tombstone_ttl_ms=round(parsed["tombstoneTtl"] * 1000),
        )

    @property
    def relabel_bytes(self) -> int:
        """Return the size from which on a run is kept as it is where no other row is in its way."""
        return self.max_file_bytes // 4


DEFAULT_PLAN = PlanSettings.from_options(parse_options({}, "ftkv-write"))


class JobTerms(NamedTuple):
    """The terms of a merge, which depend on the other runs of its bucket; see `terms_of`."""

    at: tuple[int, int]  # first and last position of the merged rows
    is_bottom: bool  # no run of the bucket is older
    expired_ms: int  # of deletes that may leave at the bottom of a store with a sequence column; see `fold`


def terms_of(at: tuple[int, int], runs: Iterable[Run], settings: PlanSettings, now_ms: int) -> JobTerms:
    """Return the terms of a merge of the rows of some positions, given all live runs of the bucket.

    A delete has expired once it is older than `tombstone_ttl_ms`, both now and when the newer runs were committed:
    their rows may be older ones that came in time, and are deleted.
    """
    runs_marks = [run.marks for run in runs]
    newer_ms = [marks.committed_ms for marks in runs_marks if marks.at[0] > at[1]]
    is_bottom = not any(marks.at[1] < at[0] for marks in runs_marks)
    return JobTerms(at, is_bottom, min([now_ms, *newer_ms]) - settings.tombstone_ttl_ms)


class Left(NamedTuple):
    """How much of a run lies below a cut: the number of its rows there, and the first key that is left, if any."""

    taken_rows: int
    first: Key | None


@dataclass(frozen=True, slots=True)
class Group:
    """The part of a job that is about one bucket: its runs, by position, and how they are merged."""

    runs: tuple[Run, ...]
    terms: JobTerms
    relabel_bytes: int

    def below(self, cut: Key | None) -> Share:
        """Return the share of the keys below a cut, None for all keys; some run must begin below it."""
        taken = [run for run in self.runs if cut is None or run.begins < cut]
        relabelled = [run for run in taken if run.ends_below(cut) and self._is_relabelled(run)]
        relabelled_ids = {run.add.id for run in relabelled}
        return Share(self, cut, tuple(run for run in taken if run.add.id not in relabelled_ids), tuple(relabelled))

    def _is_relabelled(self, run: Run) -> bool:
        """Return True for a large run in whose way no other row or purge is, and of which nothing leaves."""
        if run.marks.keys is None or run.size < self.relabel_bytes:
            return False
        if self.terms.is_bottom and run.marks.ops != 1 << SET:
            return False
        return not any(meet(run, other) for other in self.runs if other.add.id != run.add.id)


@dataclass(frozen=True, slots=True)
class Share:
    """The merge of a group's keys below a cut."""

    group: Group  # of which it is a share
    cut: Key | None  # None if it is all of it
    # Runs whose rows below the cut are folded, by position; each purge ends rows of those before it.
    folded: tuple[Run, ...]
    relabelled: tuple[Run, ...]  # runs whose bytes stay as they are. No output may have keys on both sides of one

    @property
    def purges(self) -> tuple[KeyRange, ...]:
        """Return the purges that the result keeps: there must be an output, if need be without rows, to have them."""
        if self.group.terms.is_bottom:
            return ()
        return clip((purge for run in (*self.folded, *self.relabelled) for purge in run.marks.purges), end=self.cut)

    def replacement(
        self, outputs: Sequence[Run], leftovers: Mapping[str, Left], ids: IdSource
    ) -> tuple[tuple[Add, ...], tuple[Add, ...]]:
        """Return the adds that the share replaces, and those that replace them.

        The keys of outputs are apart; of their marks, keys and operations count. `leftovers` has each folded run that
        does not end below the cut, by id.
        """
        at, used = self.group.terms.at, (*self.folded, *self.relabelled)
        committed_ms = min((run.marks.committed_ms for run in self.folded), default=0)
        pieces = [Run(run.add, replace(run.marks, at=at, committed_ms=committed_ms)) for run in outputs]
        pieces += [
            Run(structs.replace(run.add, id=ids.unique()), replace(run.marks, at=at, purges=()))
            for run in self.relabelled
        ]
        pieces.sort(key=lambda piece: piece.marks.keys[0] if piece.marks.keys else ())
        purges = self.purges
        assert pieces or not purges
        # Each has the purges from its first key to that of the next, so that none is about rows of another.
        starts: list[Key] = [piece.begins if place else () for place, piece in enumerate(pieces)]
        ends: list[Key | None] = [*starts[1:], None][: len(pieces)]
        adds = [
            piece.marked(replace(piece.marks, purges=clip(purges, start, end)))
            for piece, start, end in zip(pieces, starts, ends, strict=True)
        ]
        rests = [self._rest(run, leftovers[run.add.id], ids) for run in self.folded if not run.ends_below(self.cut)]
        return tuple(run.add for run in used), (*adds, *rests)

    def _rest(self, run: Run, leftover: Left, ids: IdSource) -> Add:
        """Return the part of a run at and behind the cut: the same bytes, of which rows are skipped."""
        assert self.cut is not None
        keys = None if leftover.first is None or run.marks.keys is None else (leftover.first, run.marks.keys[1])
        marks = replace(run.marks, keys=keys, purges=clip(run.marks.purges, self.cut))
        rows, skip_rows = run.add.rows - leftover.taken_rows, run.add.skip_rows + leftover.taken_rows
        return run.marked(marks, id=ids.unique(), rows=rows, skip_rows=skip_rows)


def job_of(
    reason: str,
    groups: Sequence[tuple[tuple[Run, ...], JobTerms]],
    settings: PlanSettings,
    ids: IdSource,
    tasks: int,
) -> AssemblyTask:
    """Return the job of merging groups of runs, each of one bucket."""
    payload = {
        "groups": [
            {"runs": len(runs), "at": list(terms.at), "isBottom": terms.is_bottom, "expiredMs": terms.expired_ms}
            for runs, terms in groups
        ],
        "relabelBytes": settings.relabel_bytes,
        "maxBytesPerFile": settings.max_file_bytes,
        "jobBytes": settings.job_bytes,
        "taskCount": tasks,
    }
    return AssemblyTask(ids.unique(), reason, tuple(run.add for runs, _ in groups for run in runs), payload=payload)


def groups_of(job: AssemblyTask) -> tuple[Group, ...]:
    """Return the groups of a job, in their order."""
    groups = []
    for text, inputs in _inputs_of(job):
        runs = sorted(map(run_of, inputs), key=lambda run: run.marks.at)
        terms = JobTerms(tuple(text["at"]), text["isBottom"], text["expiredMs"])
        groups.append(Group(tuple(runs), terms, job.payload["relabelBytes"]))
    return tuple(groups)


def _inputs_of(job: AssemblyTask) -> Iterator[tuple[dict[str, Any], tuple[Add, ...]]]:
    """Yield what the payload says of each group, and its runs."""
    start = 0
    for text in job.payload["groups"]:
        yield text, job.inputs[start : start + text["runs"]]
        start += text["runs"]
