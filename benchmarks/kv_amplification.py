"""How often a store writes a row again, how many runs it has, and how much room: plans carried out on counts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from benchmarks.report import Cell, Table
from ftfile.kv.planning.jobs import DEFAULT_PLAN, Group, Left, PlanSettings, Share, groups_of
from ftfile.kv.planning.plan import acceptable, plan_jobs
from ftfile.kv.planning.runs import Marks, Run, placed
from ftfile.log.checks import Rewrite
from ftfile.log.format.model import Add, Origin
from ftfile.testing.context import SeededIds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.settings import Settings
    from ftfile.kv.key_columns import Key
    from ftfile.log.format.model import AssemblyTask

__all__ = ("Amplification", "Workload", "run", "simulate")

FLUSHES, SMOKE_FLUSHES = 4_096, 64
# Keys are numbers below it; a flush has rows of 100 bytes.
KEY_SPACE = 1 << 40
ROW_BYTES = 100
COLUMNS = (
    "keys",
    "flushes",
    "bytes written per byte",
    "bytes read per byte",
    "runs of a key, mean",
    "runs of a key, most",
    "bytes per live byte, mean",
    "bytes per live byte, most",
    "records with jobs",
)
NOTE = (
    "One bucket, default settings, {flushes:,} flushes of {mib} MiB each; jobs are done with the next flush. The bytes "
    "written begin with those of the flush; the log's own copy of each row comes on top. Runs and room are those after "
    "each flush, from the {warm}th on. No row is made: the plans are the real ones, sizes are those that random keys "
    "have on average."
)


class Workload(NamedTuple):
    """The keys that are written: of `distinct` flushes' worth, at random; None for keys that never come twice."""

    label: str
    distinct: float | None = None
    order: Literal["random", "rising"] = "random"


WORKLOADS = (
    *(Workload(f"updates of {distinct} flushes", distinct) for distinct in (16, 64, 128, 256, 512)),
    Workload("new, random"),
    Workload("new, rising", order="rising"),
)


class _Piece(NamedTuple):
    """Keys of a run that lie equally dense: from, up to, and the flushes drawn from all keys that lie so."""

    start: int
    end: int
    draws: float


@dataclass(slots=True)
class Amplification:
    """Bytes written and read; `kept` has, by flush, runs of a key, bytes of all runs, and those of distinct keys."""

    flushed: int = 0
    merged: int = 0
    read: int = 0
    records_with_jobs: int = 0
    kept: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def written_per_byte(self) -> float:
        """Return the bytes written for a byte flushed, itself included."""
        return (self.flushed + self.merged) / self.flushed

    @property
    def runs_max(self) -> int:
        """Return the most runs that had the same key, as far as the log can tell."""
        return max(runs for runs, _, _ in self.kept)

    @property
    def runs_mean(self) -> float:
        """Return the most runs that had the same key, on average over flushes."""
        return sum(runs for runs, _, _ in self.kept) / len(self.kept)

    @property
    def space(self) -> list[float]:
        """Return the bytes kept for each byte of distinct keys, by flush."""
        return [kept / distinct for _, kept, distinct in self.kept]


class _Simulation:
    """One bucket, whose runs are counts."""

    def __init__(self, workload: Workload, settings: PlanSettings) -> None:
        self._workload = workload
        self._settings = settings
        self._ids = SeededIds()
        self._pieces: dict[str, tuple[_Piece, ...]] = {}  # by path
        self._live: dict[str, Add] = {}
        self._jobs: list[AssemblyTask] = []
        self.found = Amplification()

    def flush(self, number: int, of: int) -> None:
        """Do the jobs that are due, and commit them with a new run."""
        rewrites = [self._do(job) for job in self._jobs]
        for rewrite in acceptable(self._live, rewrites):
            for add in rewrite.inputs:
                del self._live[add.id]
            self._live |= {add.id: add for add in rewrite.adds}
        output = self._output(self._keys(number, of))
        marked = output.marked(output.marks)
        self._live |= {add.id: add for add in placed([marked], number, number)}
        self.found.flushed += output.add.length
        self._jobs = plan_jobs(self._live.values(), (), self._settings, self._ids, now_ms=number)
        self.found.records_with_jobs += bool(self._jobs)

    def note(self, number: int, of: int) -> None:
        """Note the bytes that there are, and the runs that have some key, at most."""
        changes: list[tuple[int, int]] = []
        for marks in (Marks.from_json(add.rolling_stats) for add in self._live.values()):
            assert marks.keys is not None
            changes += [(_number(marks.keys[0]), 1), (_number(marks.keys[1]) + 1, -1)]
        runs = max(accumulate(change for _, change in sorted(changes)))
        kept = sum(add.length * add.rows // (add.rows + add.skip_rows) for add in self._live.values())
        whole = _Piece(0, KEY_SPACE, number + 1.0)
        if self._workload.order == "rising":
            whole = _Piece(0, KEY_SPACE * (number + 1) // of, float(of))
        self.found.kept.append((runs, kept, self._bytes(whole)))

    def _keys(self, number: int, of: int) -> tuple[_Piece, ...]:
        if self._workload.order == "random":
            return (_Piece(0, KEY_SPACE, 1.0),)
        return (_Piece(KEY_SPACE * number // of, KEY_SPACE * (number + 1) // of, float(of)),)

    def _do(self, job: AssemblyTask) -> Rewrite:
        inputs: list[Add] = []
        adds: list[Add] = []
        for group in groups_of(job):
            share = self._share(group)
            pieces = [piece for run in share.folded for piece in self._left(run.add.path, run.marks.keys, share.cut)]
            self.found.read += round(sum(map(self._bytes, pieces)))
            walls = [_number(run.begins) for run in share.relabelled]
            outputs = [self._output(each) for each in self._split(_overlaid(pieces), walls)]
            self.found.merged += sum(output.add.length for output in outputs)
            left = {
                run.add.id: Left(self._rows_below(run.add, share.cut), share.cut)
                for run in share.folded
                if not run.ends_below(share.cut)
            }
            replaced, new = share.replacement(outputs, left, self._ids)
            inputs += replaced
            adds += new
        return Rewrite(tuple(inputs), tuple(adds), 0)

    def _share(self, group: Group) -> Share:
        """Return the share that reads no more than the bytes of a job, or all."""
        whole = group.below(None)
        pieces = [piece for run in whole.folded for piece in self._left(run.add.path, run.marks.keys, None)]
        room = float(self._settings.job_bytes)
        if sum(map(self._bytes, pieces)) <= room:
            return whole
        places = sorted({place for piece in pieces for place in (piece.start, piece.end)})
        for start, end in pairwise(places):
            inside = [_Piece(start, end, piece.draws) for piece in pieces if piece.start <= start and end <= piece.end]
            read = sum(map(self._bytes, inside))
            if read > room:
                return group.below((start + max(1, int((end - start) * room / read)),))
            room -= read
        return whole

    def _left(self, path: str, keys: tuple[Key, Key] | None, cut: Key | None) -> Iterator[_Piece]:
        """Yield the pieces of a run from its first key up to a cut."""
        assert keys is not None
        first, last = _number(keys[0]), KEY_SPACE if cut is None else _number(cut)
        for piece in self._pieces[path]:
            start, end = max(piece.start, first), min(piece.end, last)
            if start < end:
                yield _Piece(start, end, piece.draws)

    def _rows_below(self, add: Add, cut: Key | None) -> int:
        found = sum(map(self._bytes, self._left(add.path, ((0,), (KEY_SPACE,)), cut)))
        return min(round(found / ROW_BYTES) - add.skip_rows, add.rows - 1)

    def _split(self, pieces: Iterable[_Piece], walls: Sequence[int]) -> Iterator[tuple[_Piece, ...]]:
        """Yield pieces by file: up to the bytes of one, and none around a run that stays."""
        open_: list[_Piece] = []
        room = float(self._settings.max_file_bytes)
        for piece in pieces:
            rest = piece
            while rest.start < rest.end:
                if open_ and (room < ROW_BYTES or any(open_[-1].end <= wall < rest.end for wall in walls)):
                    yield tuple(open_)
                    open_, room = [], float(self._settings.max_file_bytes)
                size = self._bytes(rest)
                end = rest.end if size <= room else rest.start + max(1, int((rest.end - rest.start) * room / size))
                open_.append(_Piece(rest.start, end, rest.draws))
                room -= self._bytes(open_[-1])
                rest = _Piece(end, rest.end, rest.draws)
        if open_:
            yield tuple(open_)

    def _bytes(self, piece: _Piece) -> float:
        """Return the bytes of the distinct keys in a piece."""
        distinct = self._workload.distinct
        flushes = piece.draws if distinct is None else distinct * -math.expm1(-piece.draws / distinct)
        return flushes * (piece.end - piece.start) / KEY_SPACE * self._settings.flush_bytes

    def _output(self, pieces: tuple[_Piece, ...]) -> Run:
        name = self._ids.unique()
        self._pieces[name] = pieces
        size = round(sum(map(self._bytes, pieces)))
        rows = max(size // ROW_BYTES, 1)
        add = Add(name, "segment", name, None, size, size, "", rows, "b=00000", "encoding", Origin("query", 0, 0))
        return Run(add, Marks((0, 0), ((pieces[0].start,), (pieces[-1].end - 1,)), (), 1))


def _number(key: Key) -> int:
    (number,) = key
    assert isinstance(number, int)
    return number


def _overlaid(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """Yield pieces that do not overlap, by key: where some did, their draws are added up."""
    changes: dict[int, float] = {}
    for piece in pieces:
        changes[piece.start] = changes.get(piece.start, 0.0) + piece.draws
        changes[piece.end] = changes.get(piece.end, 0.0) - piece.draws
    draws, places = 0.0, sorted(changes)
    for start, end in pairwise(places):
        draws += changes[start]
        if draws > 0.5:  # noqa: PLR2004 - rounding errors are none
            yield _Piece(start, end, draws)


def simulate(workload: Workload, flushes: int, settings: PlanSettings, warm: int = 0) -> Amplification:
    """Return the cost of flushes into a store of one bucket; runs and room are noted from the flush `warm` on."""
    simulation = _Simulation(workload, settings)
    for number in range(flushes):
        simulation.flush(number, flushes)
        if number >= warm:
            simulation.note(number, flushes)
    return simulation.found


def run(settings: Settings) -> list[Table]:
    """Simulate each workload."""
    flushes = SMOKE_FLUSHES if settings.smoke else FLUSHES
    rules, warm = DEFAULT_PLAN, 16
    rows: list[tuple[Cell, ...]] = []
    for workload in WORKLOADS:
        found = simulate(workload, flushes, rules, warm)
        space = found.space
        rows.append(
            (
                workload.label,
                flushes,
                found.written_per_byte,
                found.read / found.flushed,
                found.runs_mean,
                found.runs_max,
                sum(space) / len(space),
                max(space),
                found.records_with_jobs,
            )
        )
    note = NOTE.format(flushes=flushes, mib=rules.flush_bytes >> 20, warm=warm)
    return [Table("a store's amplification", COLUMNS, tuple(rows), note)]
