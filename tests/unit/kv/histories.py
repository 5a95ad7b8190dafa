"""A store in memory, compared with a dict: random batches, compactions in any order, late, twice and lost, crashes.

Runs are tables under the names of their files. Everything else is real: positions, metadata, due jobs, and folds.
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import structs

from ftfile.kv.definition import DELETE, DELETED_MS, MERGE, OP, SET, StoreDefinition, define, operations, ops_in
from ftfile.kv.fold import fold
from ftfile.kv.key_columns import Key
from ftfile.kv.planning.picker import DEFAULT_PLAN, Backoff, Compaction, PlanSettings, by_position, groups_of, pick
from ftfile.kv.planning.plan import Terms, cuts_of, divide_purges, keep_acceptable, moves_of, terms_of
from ftfile.kv.planning.runs import Run, RunMetadata, are_apart, place_adds, run_of, runs_by_bucket
from ftfile.log.checks import Rewrite
from ftfile.log.format.model import Add, Origin
from ftfile.testing.context import SeededIds
from tests.kit.store_check import key_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.kv.key_columns import KeyRange

Row = tuple[int, Key, tuple[Any, ...]]  # operation, key, values
ROW_BYTES = 10
TTL_MS = 1000
ORIGIN = Origin("query", 0, 0)


def draw_definition(rng: random.Random) -> StoreDefinition:
    keys = rng.choice(([("k", pa.string())], [("k", pa.int32())], [("a", pa.string()), ("b", pa.int64())]))
    values = [("n", pa.int64()), ("m", pa.int64()), ("s", pa.string())]
    names = [name for name, _ in keys]
    buckets = rng.choice((1, 1, 2))
    if rng.random() < 0.25:
        return define(pa.schema([*keys, *values]), names, buckets=buckets, sequence="n")
    merge = rng.choice(("last", "n:sum", "n:sum,m:max,s:append", "m:min,s:coalesce", "n:max,m:sum,s:append"))
    return define(pa.schema([*keys, *values]), names, buckets=buckets, merge=merge)


def draw_rules(rng: random.Random) -> PlanSettings:
    return structs.replace(
        DEFAULT_PLAN,
        flush_runs=rng.choice((2, 3, 5)),
        flush_bytes=rng.choice((20, 40, 100)),
        fan_in=rng.choice((2, 3, 4)),
        max_file_bytes=rng.choice((40, 80, 160, 10_000)),
        tombstone_ttl_ms=TTL_MS,
    )


@dataclass
class Expected:
    """What a store must have, as a dict: rows by key, and with a sequence column also deleted ones."""

    definition: StoreDefinition
    rows: dict[Key, tuple[Any, ...]] = field(default_factory=dict)
    deleted: dict[Key, tuple[int, int]] = field(default_factory=dict)  # sequence, and when

    def apply(self, row: Row, now_ms: int) -> None:
        op, key, values = row
        if self.definition.sequence is not None:
            known = self.rows[key][0] if key in self.rows else self.deleted.get(key, (-1, 0))[0]
            if values[0] < known:
                return
            self.deleted.pop(key, None)
        if op == DELETE:
            self.rows.pop(key, None)
            if self.definition.sequence is not None:
                self.deleted[key] = (values[0], now_ms)
        elif op == SET or key not in self.rows:
            self.rows[key] = values
        else:
            names = self.definition.values
            older = self.rows[key]
            self.rows[key] = tuple(map(self._merged, names, older, values))

    def purge(self, purge: KeyRange) -> None:
        for found in (self.rows, self.deleted):
            for key in [key for key in found if purge[0] <= key and (purge[1] is None or key < purge[1])]:
                del found[key]

    def _merged(self, name: str, older: Any, newer: Any) -> Any:
        function = self.definition.merge.get(name, "last")
        if function == "last":
            return newer
        if older is None or newer is None:
            return older if newer is None else newer
        if function in {"min", "max"}:
            return min(older, newer) if function == "min" else max(older, newer)
        return newer if function == "coalesce" else older + newer


@dataclass
class Version:
    """The live runs of a version, by id, and their expected content."""

    live: dict[str, Add]
    expected: dict[Key, tuple[Any, ...]]


class Store:
    """A store, its history, and what befalls it."""

    draw_rules = staticmethod(draw_rules)

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.definition = draw_definition(self.rng)
        self.rules = self.draw_rules(self.rng)
        self.ids = SeededIds(seed)
        self.files: dict[str, pa.Table] = {}
        self.runs: dict[str, Run] = {}
        self.read_once: dict[frozenset[str], dict[Key, tuple[Any, ...]]] = {}
        self.expected = Expected(self.definition)
        self.versions = [Version({}, {})]
        self.backoffs: list[Backoff] = []
        self.late: list[Rewrite] = []  # made by attempts that are not heard of yet
        self.now_ms = 1_000_000
        self.counts: Counter[str] = Counter()
        self.keys = [self._key(number) for number in range(self.rng.choice((8, 30)))]

    @property
    def live(self) -> dict[str, Add]:
        return self.versions[-1].live

    # ---------------------------------------------------------------------------------------------- what users do
    def batch(self) -> None:
        """Write rows, and run the due jobs; or die before the record."""
        expected = Expected(self.definition, dict(self.expected.rows), dict(self.expected.deleted))
        adds = [add for _ in range(self.rng.choice((1, 1, 2, 3))) for add in self._task(expected)]
        self.commit(adds, expected)

    def overwrite(self) -> None:
        """Replace all rows; compactions under way come too late."""
        self.late += map(self.rewrite_of, self.due())
        expected = Expected(self.definition)
        self.commit(self._task(expected), expected, overwrite=True)

    def idle(self) -> None:
        """Write nothing, and run the due jobs."""
        self.commit([], self.expected)

    def forget(self) -> None:
        """Go on by other rules, while tasks still work by the old ones."""
        self.late += map(self.rewrite_of, self.due())
        self.rules = self.draw_rules(self.rng)

    def compact_fully(self) -> None:
        """Let all of level 0 descend, then compact each group whole."""
        for kind in ("descend", "level1"):
            for runs in self.by_bucket().values():
                for compaction in _full(runs, kind):
                    self.record(self.rewrite_of(compaction))
        self.counts["full"] += 1
        assert all(run.metadata.level for runs in self.by_bucket().values() for run in runs)
        assert all(len(group) == 1 for runs in self.by_bucket().values() for group in groups_of(runs))

    def pause(self) -> None:
        self.now_ms += self.rng.randrange(TTL_MS)

    def settle(self) -> None:
        """Do all that is due until nothing is, and nothing is held."""
        self.backoffs = []
        for _ in range(300):
            if not self.due():
                return
            self.commit([], self.expected, all_done=True)
        raise AssertionError(f"due for ever: {self.due()}")

    # --------------------------------------------------------------------------------------------------- the commit
    def due(self) -> list[Compaction]:
        """Return the due jobs at the head."""
        due = [compaction for runs in self.by_bucket().values() for compaction in pick(runs, self.backoffs, self.rules)]
        ids = [run.add.id for compaction in due for run in compaction.runs if compaction.backoff is None]
        assert len(ids) == len(set(ids)), "two compactions have a run in common"
        return due

    def commit(self, adds: list[Add], expected: Expected, *, overwrite: bool = False, all_done: bool = False) -> None:
        """Create a record of new runs, and of compactions that were done; or die before."""
        version = len(self.versions)
        rewrites, failed = self._rewrites(all_done=all_done)
        if not all_done and self.rng.random() < 0.1:
            self.counts["crash"] += 1
            self.late += [rewrite for rewrite in rewrites if self.rng.random() < 0.5]
            return
        rewrites.sort(key=lambda rewrite: min(add.rolling_stats["at"] for add in rewrite.inputs))
        accepted = [] if overwrite else keep_acceptable(self.live, rewrites)
        self.counts["dropped"] += len(rewrites) - len(accepted)
        if not overwrite:
            self._check_accepted(rewrites, accepted)
        live = {} if overwrite else self._live_after(accepted)
        live |= {add.id: add for add in place_adds(adds, version, self.now_ms)}
        self.backoffs = [backoff for backoff in [*self.backoffs, *map(_backoff_of, failed)] if backoff.run in live]
        self.backoffs = [*{backoff.run: backoff for backoff in self.backoffs}.values()]
        self.counts["held"] += len(failed)
        self.expected = expected
        self.versions.append(Version(live, dict(expected.rows)))
        self.check(self.versions[-1])

    def record(self, rewrite: Rewrite) -> None:
        """Create a record with only a compaction."""
        assert keep_acceptable(self.live, [rewrite]), "a full compaction finds no place"
        self.versions.append(Version(self._live_after([rewrite]), dict(self.expected.rows)))
        self.check(self.versions[-1])

    def _live_after(self, rewrites: Sequence[Rewrite]) -> dict[str, Add]:
        live = dict(self.live)
        for rewrite in rewrites:
            for add in rewrite.inputs:
                del live[add.id]
            live |= {add.id: add for add in rewrite.adds}
            self.counts["jobs"] += 1
        return live

    def _check_accepted(self, rewrites: Sequence[Rewrite], accepted: Sequence[Rewrite]) -> None:
        """Check that what is due finds a place, unless something late or another has its runs."""
        fresh = [rewrite for rewrite in rewrites if rewrite.reason == "fresh"]
        uses = Counter(add.id for rewrite in fresh for add in rewrite.inputs)
        alone = [rewrite for rewrite in fresh if all(uses[add.id] == 1 for add in rewrite.inputs)]
        missing = [rewrite for rewrite in alone if rewrite not in accepted]
        assert not missing or len(rewrites) > len(fresh), f"a compaction that is due finds no place: {missing}"

    def _rewrites(self, *, all_done: bool) -> tuple[list[Rewrite], list[Compaction]]:
        """Return what tasks did in this batch, in any order, and what failed."""
        rewrites, failed = [], []
        for compaction in self.due():
            fates = ("done",) if all_done else ("done", "done", "done", "late", "lost", "failed", "twice")
            fate = self.rng.choice(fates)
            if fate == "failed":
                failed.append(compaction)
            if fate in {"done", "twice"}:
                rewrites.append(self.rewrite_of(compaction))
            if fate in {"late", "twice"}:
                self.late.append(self.rewrite_of(compaction))
        while self.late and self.rng.random() < 0.4:
            late = self.late.pop(self.rng.randrange(len(self.late)))
            rewrites.append(replace(late, reason="late"))
        self.rng.shuffle(rewrites)
        return rewrites, failed

    # ---------------------------------------------------------------------------------------------------- the tasks
    def _task(self, expected: Expected) -> list[Add]:
        """Return the new runs of a task, one for each bucket, and apply the same changes to the dict."""
        purges: tuple[KeyRange, ...] = ()
        if self.rng.random() < 0.12:
            start, end = sorted((self.rng.choice(self.keys), self.rng.choice(self.keys)))
            if len(start) > 1 and self.rng.random() < 0.3:
                start = start[:1]
            purges = ((start, end if self.rng.random() < 0.9 else None),)
            expected.purge(purges[0])
            self.counts["purge"] += 1
        rows = [self._row(expected) for _ in range(self.rng.choice((0, 3, 6, 12)))]
        for row in rows:
            expected.apply(row, self.now_ms)
        adds = []
        for bucket in range(self.definition.buckets):
            own = [row for row in rows if self._bucket(row[1]) == bucket]
            if own or purges:
                table = fold([self._table(own)], self.definition, is_bottommost=False)
                adds.append(self._add(f"b={bucket:05d}", table, purges))
        return adds

    def _row(self, expected: Expected) -> Row:
        if self.rng.random() < 0.3:  # rising keys: runs that do not meet
            self.keys.append(self._key(len(self.keys)))
            key = self.keys[-1]
        else:
            key = self.rng.choice(self.keys)
        op = self.rng.choices((SET, MERGE, DELETE), (4, 4 if self.definition.merge else 0, 2))[0]
        values: tuple[Any, ...] = (
            self.rng.choice((None, self.rng.randrange(-50, 50))),
            self.rng.choice((None, self.rng.randrange(-50, 50))),
            self.rng.choice((None, "", self.rng.choice("abc"))),
        )
        if self.definition.sequence is not None:
            least = 0
            if key in expected.deleted and expected.deleted[key][1] + TTL_MS <= self.now_ms:
                least = expected.deleted[key][0]  # later than that, an older row may or may not be seen
            values = (max(least, self.rng.randrange(100) + len(self.versions)), *values[1:])
            return op, key, (values[0], None, None) if op == DELETE else values
        return op, key, (None, None, None) if op == DELETE else values

    def rewrite_of(self, compaction: Compaction) -> Rewrite:
        """Return the result of one attempt of a compaction."""
        bucket = self.by_bucket()[compaction.runs[0].add.directory_key]
        terms = terms_of(compaction.runs, bucket, self.rules, self.now_ms)
        cuts = cuts_of(compaction, bucket, self.definition.key_types, self.rules)
        self.counts[compaction.kind] += 1
        self.counts["moved"] += len(moves_of(compaction, cuts, self.rules.max_file_bytes))
        adds = self._compacted(compaction, terms, cuts)
        return Rewrite(tuple(run.add for run in compaction.runs), tuple(adds), len(self.versions) - 1, "fresh")

    def _compacted(self, compaction: Compaction, terms: Terms, cuts: Sequence[Key]) -> list[Add]:
        moves = moves_of(compaction, cuts, self.rules.max_file_bytes)
        moved = {run.add.id for run in moves}
        merged = [run for run in compaction.runs if run.add.id not in moved]
        adds = [run.with_metadata(replace(run.metadata, level=1), id=self.ids.unique()) for run in moves]
        if not merged:
            return adds
        purges = [run.metadata.purges for run in merged]
        tables = [self.rows_of(run.add) for run in merged]
        rows = fold(
            tables, self.definition, is_bottommost=terms.is_bottommost, purges=purges, expired_ms=terms.expired_ms
        )
        left_purges = () if terms.is_bottommost else tuple(purge for ranges in purges for purge in ranges)
        at = (merged[0].metadata.at[0], max(run.metadata.at[1] for run in merged))
        committed_ms = min(run.metadata.committed_ms for run in merged)
        for piece, piece_purges in self._pieces(rows, cuts, left_purges):
            output = self._output(merged[0].add.directory_key, piece)
            metadata = replace(
                output.metadata, at=at, purges=piece_purges, committed_ms=committed_ms, level=compaction.level
            )
            adds.append(output.with_metadata(metadata))
            self.counts["cut"] += bool(cuts)
            self.counts["rowless"] += not piece.num_rows
        return adds

    def _pieces(
        self, rows: pa.Table, cuts: Sequence[Key], purges: Sequence[KeyRange]
    ) -> Iterator[tuple[pa.Table, tuple[KeyRange, ...]]]:
        """Yield rows by file, and the purges of each: between cuts, equal ones of no more than some rows."""
        keys = [key_at(rows, row, self.definition.keys) for row in range(rows.num_rows)]
        limit = max(1, self.rules.max_file_bytes // ROW_BYTES)
        for start, end in zip([(), *cuts], [*cuts, None], strict=True):
            first = bisect_left(keys, start)
            count = (len(keys) if end is None else bisect_left(keys, end)) - first
            files = -(-count // limit)
            bounds = [first + count * number // files for number in range(files + 1)] if files else [first, first]
            pieces = [rows.slice(low, high - low) for low, high in pairwise(bounds)]
            ranges = divide_purges(purges, [start, *(keys[bound] for bound in bounds[1:-1])], end)
            yield from ((piece, own) for piece, own in zip(pieces, ranges, strict=True) if piece.num_rows or own)

    # ---------------------------------------------------------------------------------------------------- the checks
    def check(self, version: Version) -> None:
        """Check that a version's runs are in order, and have the expected content."""
        rows: dict[Key, tuple[Any, ...]] = {}
        for runs in runs_by_bucket(map(self.run_of, version.live.values())).values():
            rows |= self._checked(runs)
            self._check_levels(runs)
            self.counts["groups"] = max(
                self.counts["groups"], len(groups_of(run for run in runs if run.metadata.level))
            )
        assert rows == version.expected

    def _check_levels(self, runs: list[Run]) -> None:
        """Check that level 1 is older than level 0."""
        lasts = [run.metadata.at[1] for run in runs if run.metadata.level]
        firsts = [run.metadata.at[0] for run in runs if not run.metadata.level]
        assert not lasts or not firsts or max(lasts) < min(firsts), "level 1 is not older than level 0"

    def by_bucket(self) -> dict[str, list[Run]]:
        return runs_by_bucket(map(self.run_of, self.live.values()))

    def _checked(self, runs: list[Run]) -> dict[Key, tuple[Any, ...]]:
        """Return the rows of a bucket, whose runs are looked at once: nothing changes them."""
        same = frozenset(run.add.id for run in runs)
        if same not in self.read_once:
            for place, run in enumerate(runs):
                assert all(are_apart(run, other) for other in runs[:place]), "runs that meet are not apart in position"
                rows = self.rows_of(run.add)
                assert rows.num_rows == run.add.rows
                if rows.num_rows:
                    ends = (key_at(rows, 0, self.definition.keys), key_at(rows, -1, self.definition.keys))
                    assert run.metadata.keys == ends
            self.read_once[same] = self._read(runs)
        return self.read_once[same]

    def _read(self, runs: list[Run]) -> dict[Key, tuple[Any, ...]]:
        runs = sorted(runs, key=lambda run: run.metadata.at)
        tables, purges = [self.rows_of(run.add) for run in runs], [run.metadata.purges for run in runs]
        rows = fold(tables, self.definition, is_bottommost=True, purges=purges)
        rows = rows.filter(pa.array(operations(rows) != DELETE))
        columns = [rows[name].to_pylist() for name in self.definition.schema.names]
        count = len(self.definition.keys)
        keys = (tuple(map(_stored, key)) for key in zip(*columns[:count], strict=True))
        values = zip(*columns[count:], strict=True)
        return dict(zip(keys, values, strict=True))

    def run_of(self, add: Add) -> Run:
        if add.id not in self.runs:
            self.runs[add.id] = run_of(add)
        return self.runs[add.id]

    def rows_of(self, add: Add) -> pa.Table:
        return self.files[add.path]

    # ----------------------------------------------------------------------------------------------------- the files
    def _key(self, number: int) -> Key:
        if self.definition.keys == ("k",):
            return (number * 3 - 20,) if self.definition.schema.field("k").type == pa.int32() else (b"%04d" % number,)
        return b"%02d" % (number // 5), number % 5 - 2

    def _bucket(self, key: Key) -> int:
        return zlib.crc32(repr(key).encode()) % self.definition.buckets

    def _table(self, rows: list[Row]) -> pa.Table:
        columns: dict[str, Any] = {}
        for place, name in enumerate(self.definition.keys):
            kind = self.definition.schema.field(name).type
            found = [key[place] for _, key, _ in rows]
            columns[name] = pa.array(found, pa.binary()).cast(kind) if kind == pa.string() else pa.array(found, kind)
        for place, name in enumerate(self.definition.values):
            columns[name] = pa.array([values[place] for _, _, values in rows], self.definition.schema.field(name).type)
        if any(op == DELETE for op, _, _ in rows) and self.definition.sequence is not None:
            times = [self.now_ms if op == DELETE else None for op, _, _ in rows]
            columns[DELETED_MS] = pa.array(times, pa.int64())
        if any(op != SET for op, _, _ in rows):
            columns[OP] = pa.array([op for op, _, _ in rows], pa.int8())
        return pa.table(columns)

    def _add(self, bucket: str, table: pa.Table, purges: tuple[KeyRange, ...] = ()) -> Add:
        output = self._output(bucket, table)
        return output.with_metadata(replace(output.metadata, purges=purges))

    def _output(self, bucket: str, table: pa.Table) -> Run:
        keys, name = self.definition.keys, self.ids.unique()
        self.files[name] = table
        size = table.num_rows * ROW_BYTES
        add = Add(name, "segment", name, None, size, size, "", table.num_rows, bucket, "encoding", ORIGIN)
        ends = (key_at(table, 0, keys), key_at(table, -1, keys)) if table.num_rows else None
        deletes = int((operations(table) == DELETE).sum())
        return Run(add, RunMetadata((0, 0), ends, (), ops_in(table), deletes=deletes))


def _stored(value: Any) -> int | bytes:
    return value.encode() if isinstance(value, str) else value


STEPS = {
    Store.batch: 14,
    Store.idle: 4,
    Store.pause: 2,
    Store.forget: 2,
    Store.overwrite: 0.3,
    Store.compact_fully: 0.5,
}


def play(seed: int, steps: int = 30) -> Store:
    """Play a history; raises an AssertionError where the store and the dict differ."""
    store = Store(seed)
    for step in store.rng.choices([*STEPS], [*STEPS.values()], k=steps):
        step(store)
    store.settle()
    for version in store.versions:  # as of each
        store.check(version)
    return store


def _full(runs: Sequence[Run], kind: str) -> list[Compaction]:
    """Return a stage of a full compaction of a bucket."""
    if kind == "descend":
        level0 = by_position(run for run in runs if not run.metadata.level)
        return [Compaction("descend", level0)] if level0 else []
    groups = groups_of(run for run in runs if run.metadata.level)
    is_plain = [len(group) == 1 and group[0].metadata.ops == 1 and not group[0].metadata.purges for group in groups]
    return [Compaction("level1", tuple(group)) for group, plain in zip(groups, is_plain, strict=True) if not plain]


def _backoff_of(compaction: Compaction) -> Backoff:
    if compaction.backoff is not None:
        return compaction.backoff._replace(attempts=compaction.backoff.attempts + 1)
    return Backoff(compaction.runs[0].add.id, max(run.metadata.at[1] for run in compaction.runs))
