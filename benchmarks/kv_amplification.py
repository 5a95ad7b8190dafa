"""How often a store writes a row again, how many runs it has, and how much room: compactions of keys without values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.report import Cell, Table
from ftfile.kv.planning.picker import DEFAULT_PLAN, PlanSettings, by_position, pick, size_of
from ftfile.kv.planning.plan import cuts_of, moves_of, terms_of
from ftfile.kv.planning.runs import Run, RunMetadata
from ftfile.log.format.model import Add, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.settings import Settings
    from ftfile.kv.planning.picker import Compaction

__all__ = ("LOADS", "Amplification", "Load", "run", "simulate")

FLUSHES, SMOKE_FLUSHES = 4_096, 64
# A flush has rows that fill `flushBytes`; a delete has a part of the bytes of a row.
FLUSH_ROWS = 128
DELETE_BYTES = 0.2
KEY_SPACE = 1 << 40
# After as many flushes, rows and runs are counted, and then after every 16th.
WARM, COUNTED_EVERY = 32, 16
DELETE = 1 << 2
COLUMNS = (
    "keys",
    "flushes",
    "bytes written per byte",
    "bytes read per byte",
    "runs of a key, mean",
    "runs of a key, most",
    "bytes per live byte, mean",
    "bytes per live byte, most",
    "runs, most",
    "largest compaction, MiB",
)
NOTE = (
    "One bucket, default settings, {flushes:,} flushes of {mib} MiB each; what is due is done with the next flush. The "
    "bytes written begin with those of the flush; the log's own copy of each row comes on top. Runs and room are those "
    "after every {every}th flush, from the {warm}th on. Rows are numbers without values; what is due and what "
    "compactions leave out is that of a store."
)


class Rows(NamedTuple):
    """Rows in the order in which they are written, or by key, each once."""

    keys: NDArray[np.int64]
    is_delete: NDArray[np.bool_]

    def newest(self) -> Rows:
        """Return the newest row of each key, by key; of equal keys, the last is the newest."""
        order = np.argsort(self.keys, kind="stable")
        keys = self.keys[order]
        is_last = np.append(keys[1:] != keys[:-1], True)[: len(keys)]
        return Rows(keys[is_last], self.is_delete[order][is_last])

    def live(self) -> Rows:
        """Return the rows that delete nothing."""
        return Rows(self.keys[~self.is_delete], self.is_delete[~self.is_delete])

    def part(self, start: int, end: int) -> Rows:
        """Return some rows, by their places."""
        return Rows(self.keys[start:end], self.is_delete[start:end])


def _sets(keys: NDArray[np.int64]) -> Rows:
    return Rows(keys.astype(np.int64), np.zeros(len(keys), np.bool_))


def _joined(parts: Sequence[Rows]) -> Rows:
    keys, is_delete = ([part[column] for part in parts] for column in (0, 1))
    return Rows(np.concatenate(keys), np.concatenate(is_delete))


class Load(NamedTuple):
    """The rows of flushes, without end."""

    label: str
    flushes: Callable[[np.random.Generator], Iterator[Rows]]
    has_deletes: bool = False


def _updates(distinct: int) -> Load:
    def flushes(rng: np.random.Generator) -> Iterator[Rows]:
        while True:
            yield _sets(rng.integers(0, distinct * FLUSH_ROWS, FLUSH_ROWS) * (KEY_SPACE // (distinct * FLUSH_ROWS)))

    return Load(f"updates of {distinct} flushes", flushes)


def _random(rng: np.random.Generator) -> Iterator[Rows]:
    while True:
        yield _sets(rng.integers(0, KEY_SPACE, FLUSH_ROWS))


def _rising(_: np.random.Generator) -> Iterator[Rows]:
    start = 0
    while True:
        yield _sets(np.arange(start, start + FLUSH_ROWS))
        start += FLUSH_ROWS


def _zipf(rng: np.random.Generator) -> Iterator[Rows]:
    count = 512 * FLUSH_ROWS
    keys = rng.permutation(np.arange(count)) * (KEY_SPACE // count)
    while True:
        ranks = rng.zipf(1.1, 3 * FLUSH_ROWS)
        yield _sets(keys[ranks[ranks <= count][:FLUSH_ROWS] - 1])


def _moving(rng: np.random.Generator) -> Iterator[Rows]:
    """Nine of ten rows are in a hundredth of the keys, which moves on."""
    count, number = 512 * FLUSH_ROWS, 0
    while True:
        number += 1
        start = number * count // FLUSHES % count
        hot = (start + rng.integers(0, count // 100, FLUSH_ROWS * 9 // 10)) % count
        yield _sets(np.concatenate((hot, rng.integers(0, count, FLUSH_ROWS // 10))) * (KEY_SPACE // count))


def _mixed(rng: np.random.Generator) -> Iterator[Rows]:
    """Half of the rows are new and rise, the others are updates of all before."""
    end, half = FLUSH_ROWS, FLUSH_ROWS // 2
    while True:
        end += half
        yield _sets(np.concatenate((rng.integers(0, end - half, half), np.arange(end - half, end))))


def _prefixes(rng: np.random.Generator) -> Iterator[Rows]:
    """Keys rise behind each of a thousand prefixes."""
    ends = np.zeros(1000, np.int64)
    while True:
        prefixes = np.sort(rng.integers(0, len(ends), FLUSH_ROWS))
        first = np.searchsorted(prefixes, prefixes)
        keys = prefixes * (KEY_SPACE // len(ends)) + ends[prefixes] + np.arange(FLUSH_ROWS) - first
        ends += np.bincount(prefixes, minlength=len(ends))
        yield _sets(keys)


def _queue(distance: int, kept_every: int | None = None) -> Callable[[np.random.Generator], Iterator[Rows]]:
    """Rows come at the end, and leave some flushes later, all or all but one of some."""

    def flushes(_: np.random.Generator) -> Iterator[Rows]:
        start, half = 0, FLUSH_ROWS // 2
        while True:
            new, old = np.arange(start, start + half), np.arange(start, start + half) - distance * half
            old = old[old >= 0] if kept_every is None else old[(old >= 0) & (old % kept_every != 0)]
            yield _joined([Rows(old, np.ones(len(old), np.bool_)), _sets(new)])
            start += half

    return flushes


def _deletes(rng: np.random.Generator) -> Iterator[Rows]:
    """Half of the rows delete, of keys that may be there or not."""
    count = 256 * FLUSH_ROWS
    while True:
        yield Rows(rng.integers(0, count, FLUSH_ROWS) * (KEY_SPACE // count), rng.random(FLUSH_ROWS) < 0.5)  # noqa: PLR2004


def _growing(rng: np.random.Generator) -> Iterator[Rows]:
    """Yield new rows for 512 flushes, then delete nine of ten of them, and so on."""
    while True:
        flushes = [rng.integers(0, KEY_SPACE, FLUSH_ROWS) for _ in range(512)]
        yield from map(_sets, flushes)
        for keys in flushes:
            deleted = keys[rng.random(FLUSH_ROWS) < 0.9]  # noqa: PLR2004
            yield Rows(deleted, np.ones(len(deleted), np.bool_))


LOADS = (
    *map(_updates, (16, 64, 128, 256, 512)),
    Load("new, random", _random),
    Load("new, rising", _rising),
    Load("Zipf", _zipf),
    Load("hot hundredth that moves on", _moving),
    Load("rising, and updates", _mixed),
    Load("rising behind prefixes", _prefixes),
    Load("queue", _queue(128), has_deletes=True),
    Load("retention of a hundredth", _queue(256, 100), has_deletes=True),
    Load("random deletes", _deletes, has_deletes=True),
    Load("grow and shrink", _growing, has_deletes=True),
)


@dataclass(slots=True)
class Amplification:
    """Bytes written and read, and by counted flush: runs of a key, all runs, and bytes of all for each live byte."""

    flushed: int = 0
    merged: int = 0
    read: int = 0
    largest: int = 0  # bytes that a compaction read
    depths: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    space: list[float] = field(default_factory=list)

    @property
    def written_per_byte(self) -> float:
        """Return the bytes written for a byte flushed, itself included."""
        return (self.flushed + self.merged) / self.flushed


class _Bucket:
    """A bucket whose runs are keys, and whether they delete."""

    def __init__(self, rules: PlanSettings) -> None:
        self._rules = rules
        self._row_bytes = rules.flush_bytes // FLUSH_ROWS
        self._live: dict[str, Run] = {}
        self._rows: dict[str, Rows] = {}  # by id
        self._count = 0
        self.result = Amplification()

    def flush(self, number: int, rows: Rows) -> None:
        """Do what is due, and write a new run."""
        live = [*self._live.values()]
        for compaction in [*pick(live, (), self._rules)]:
            self._compact(compaction, live)
        self.result.flushed += self._write(rows.newest(), (number, number), 0)

    def count(self, truth: Rows) -> None:
        """Note the runs of a key, all runs and the room, given the live rows."""
        changes = []
        for run in self._live.values():
            assert run.metadata.keys is not None
            changes += [(run.metadata.keys[0], 0, 1), (run.metadata.keys[1], 1, -1)]
        self.result.depths.append(max(accumulate(change for *_, change in sorted(changes))))
        self.result.runs.append(len(self._live))
        self.result.space.append(size_of(self._live.values()) / max(len(truth.keys) * self._row_bytes, 1))

    def rows(self) -> Rows:
        """Return the live rows."""
        parts = [self._rows[run.add.id] for run in by_position(self._live.values())]
        return _joined(parts).newest().live()

    def _compact(self, compaction: Compaction, live: Sequence[Run]) -> None:
        terms = terms_of(compaction.runs, live, self._rules, 0)
        cuts = cuts_of(compaction, live, [pa.int64()], self._rules)
        for run in compaction.runs:
            del self._live[run.add.id]
        for run in moves_of(compaction, cuts, self._rules.max_file_bytes):
            self._live[run.add.id] = run._replace(metadata=replace(run.metadata, level=1))
        merged = [run for run in compaction.runs if run.add.id not in self._live]
        if not merged:
            return
        rows = _joined([self._rows.pop(run.add.id) for run in merged]).newest()
        rows = rows.live() if terms.is_bottommost else rows
        at = merged[0].metadata.at[0], max(run.metadata.at[1] for run in merged)
        bounds = sorted({0, len(rows.keys), *np.searchsorted(rows.keys, [key for (key,) in cuts]).tolist()})
        for start, end in pairwise(bounds):
            self.result.merged += self._write(rows.part(start, end), at, compaction.level)
        self.result.read += size_of(merged)
        self.result.largest = max(self.result.largest, size_of(merged))

    def _write(self, rows: Rows, at: tuple[int, int], level: int) -> int:
        """Write rows as equal runs of no more than a file, and return their bytes."""
        files = -(-self._bytes(rows) // self._rules.max_file_bytes)
        bounds = [len(rows.keys) * number // files for number in range(files + 1)]
        for start, end in pairwise(bounds):
            part, name = rows.part(start, end), f"{self._count}"
            self._count += 1
            deletes, size = int(part.is_delete.sum()), self._bytes(part)
            ends = (int(part.keys[0]),), (int(part.keys[-1]),)
            metadata = RunMetadata(at, ends, ops=1 | DELETE * (deletes > 0), level=level, deletes=deletes)
            add = Add(name, "segment", name, None, size, size, "", end - start, "b=00000", "", Origin("query", 0, 0))
            self._live[name], self._rows[name] = Run(add, metadata), part
        return self._bytes(rows)

    def _bytes(self, rows: Rows) -> int:
        deletes = int(rows.is_delete.sum())
        return round((len(rows.keys) - (1 - DELETE_BYTES) * deletes) * self._row_bytes)


def simulate(load: Load, flushes: int, rules: PlanSettings = DEFAULT_PLAN) -> Amplification:
    """Return the cost of flushes into a store of one bucket; an AssertionError if its rows are others in the end."""
    bucket, truth = _Bucket(rules), _sets(np.empty(0, np.int64))
    pending = []
    for number, rows in zip(range(flushes), load.flushes(np.random.default_rng(7))):  # noqa: B905 - one has no end
        bucket.flush(number, rows)
        pending.append(rows)
        if (number >= WARM and number % COUNTED_EVERY == 0) or number == flushes - 1:
            truth, pending = _joined([truth, *pending]).newest().live(), []
            bucket.count(truth)
    assert np.array_equal(bucket.rows().keys, truth.keys), "compactions changed rows"
    return bucket.result


def run(settings: Settings) -> list[Table]:
    """Simulate each load."""
    flushes = SMOKE_FLUSHES if settings.smoke else FLUSHES
    table: list[tuple[Cell, ...]] = []
    for load in LOADS:
        result = simulate(load, flushes)
        table.append(
            (
                load.label,
                flushes,
                result.written_per_byte,
                result.read / result.flushed,
                sum(result.depths) / len(result.depths),
                max(result.depths),
                sum(result.space) / len(result.space),
                max(result.space),
                max(result.runs),
                result.largest >> 20,
            )
        )
    note = NOTE.format(flushes=flushes, mib=DEFAULT_PLAN.flush_bytes >> 20, every=COUNTED_EVERY, warm=WARM)
    return [Table("a store's amplification", COLUMNS, tuple(table), note)]
