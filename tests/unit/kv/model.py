"""A store in memory, beside a dict: random batches, jobs in any order, late, twice and lost, crashes, overwrites.

Runs are tables under the names of their files. All else is real: positions, marks, plans, folds, merges accepted.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import structs

from ftfile.kv.definition import DELETE, DELETED_MS, MERGE, OP, SET, StoreDefinition, define, operations, ops_in
from ftfile.kv.fold import fold
from ftfile.kv.key_columns import Key, contain
from ftfile.kv.planning.holds import holds_after, is_held
from ftfile.kv.planning.jobs import DEFAULT_PLAN, Group, Left, PlanSettings, Share, groups_of, job_of, terms_of
from ftfile.kv.planning.plan import acceptable, plan_jobs
from ftfile.kv.planning.runs import Marks, Run, apart, placed, run_of, stretches_of
from ftfile.log.checks import Rewrite
from ftfile.log.format.model import Add, AssemblyTask, Origin
from ftfile.testing.context import SeededIds
from tests.kit.store_check import key_at

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def draw_settings(rng: random.Random) -> PlanSettings:
    return structs.replace(
        DEFAULT_PLAN,
        flush_runs=rng.choice((2, 3, 5)),
        flush_bytes=rng.choice((40, 100, 300)),
        fan_in=rng.choice((2, 3, 4)),
        job_bytes=rng.choice((50, 100, 1000)),
        max_file_bytes=rng.choice((40, 80, 200, 10_000)),
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
    """The live runs of a version, by id, and what they must hold."""

    live: dict[str, Add]
    expected: dict[Key, tuple[Any, ...]]


class Store:
    """A store, its history, and what befalls it."""

    draw_settings = staticmethod(draw_settings)

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.definition = draw_definition(self.rng)
        self.settings = self.draw_settings(self.rng)
        self.ids = SeededIds(seed)
        self.files: dict[str, pa.Table] = {}
        self.runs: dict[str, Run] = {}
        self.read_once: dict[frozenset[tuple[str, int]], dict[Key, tuple[Any, ...]]] = {}
        self.expected = Expected(self.definition)
        self.versions = [Version({}, {})]
        self.jobs: list[AssemblyTask] = []
        self.late: list[Rewrite] = []  # made by attempts that are not heard of yet
        self.now_ms = 1_000_000
        self.counts: Counter[str] = Counter()
        self.keys = [self._key(number) for number in range(self.rng.choice((8, 30)))]

    @property
    def live(self) -> dict[str, Add]:
        return self.versions[-1].live

    # ---------------------------------------------------------------------------------------------- what users do
    def batch(self) -> None:
        """Write rows, and do due jobs; or die before the record."""
        expected = Expected(self.definition, dict(self.expected.rows), dict(self.expected.deleted))
        adds = [add for _ in range(self.rng.choice((1, 1, 2, 3))) for add in self._task(expected)]
        self.commit(adds, expected)

    def overwrite(self) -> None:
        """Replace all rows; jobs under way come too late."""
        for job in self.jobs:
            self.late += self._done(job)
        expected = Expected(self.definition)
        self.commit(self._task(expected), expected, overwrite=True)

    def idle(self) -> None:
        """Write nothing, and do jobs."""
        self.commit([], self.expected)

    def forget(self) -> None:
        """Lose the plans, while tasks still work on them, and plan by other rules: any neighbours."""
        for job in self.jobs:
            self.late += self._done(job)
        self.settings = self.draw_settings(self.rng)
        bucket = f"b={self.rng.randrange(self.definition.buckets):05d}"
        bucket_runs = [self.run_of(add) for add in self.live.values() if add.directory_key == bucket]
        stretches = stretches_of(bucket_runs)
        ends = sorted(self.rng.choices(range(len(stretches) + 1), k=2))
        chosen = stretches[slice(*ends)]
        self.jobs = []
        if chosen and not any(stretch.unfinished for stretch in chosen):
            runs = tuple(run for stretch in chosen for run in stretch.runs)
            terms = terms_of((chosen[0].at[0], chosen[-1].at[1]), bucket_runs, self.settings, self.now_ms)
            self.jobs.append(job_of("other", [(runs, terms)], self.settings, self.ids, tasks=1))

    def pause(self) -> None:
        self.now_ms += self.rng.randrange(TTL_MS)

    def settle(self) -> None:
        """Do all jobs until none is due."""
        for _ in range(200):
            self.commit([], self.expected, all_jobs=True)
            if not self.jobs:
                return
        raise AssertionError(f"jobs are due for ever: {self.jobs}")

    # --------------------------------------------------------------------------------------------------- the commit
    def commit(self, adds: list[Add], expected: Expected, *, overwrite: bool = False, all_jobs: bool = False) -> None:
        """Create a record of new runs, and of those jobs that were done; or die before, or be found when run again."""
        version = len(self.versions)
        rewrites, failed = self._rewrites(all_jobs=all_jobs)
        if not all_jobs and self.rng.random() < 0.1:
            self.counts["crash"] += 1
            self.late += [each for each in rewrites if self.rng.random() < 0.5]
            return
        rewrites.sort(key=lambda rewrite: min(add.rolling_stats["at"] for add in rewrite.inputs))
        accepted = [] if overwrite else acceptable(self.live, rewrites)
        ended = {add.id for rewrite in accepted for add in rewrite.inputs}
        self.counts["dropped"] += len(rewrites) - len(accepted)
        fresh = [each for each in rewrites if each.read_version == version - 1 and each.reason == "fresh"]
        missing = [] if overwrite else [each for each in fresh if ended.isdisjoint(add.id for add in each.inputs)]
        assert not missing or len(rewrites) > len(fresh), f"a job that is due finds no place: {missing}"
        live = {} if overwrite else dict(self.live)
        for rewrite in accepted:
            for add in rewrite.inputs:
                del live[add.id]
            live |= {add.id: add for add in rewrite.adds}
            self.counts["jobs"] += 1
        live |= {add.id: add for add in placed(adds, version, self.now_ms)}
        holds = holds_after(self.jobs, failed, live, version)
        self.jobs = plan_jobs(live.values(), holds, self.settings, self.ids, now_ms=self.now_ms, tasks=2)
        self.expected = expected
        self.versions.append(Version(live, dict(expected.rows)))
        self.check(self.versions[-1])

    def _rewrites(self, *, all_jobs: bool) -> tuple[list[Rewrite], list[str]]:
        """Return what tasks did in this batch, in any order, and the jobs that failed."""
        found, failed = [], []
        for job in self.jobs:
            if is_held(job, len(self.versions)) and not all_jobs:
                self.counts["held"] += 1
                continue
            fate = (
                "done" if all_jobs else self.rng.choice(("done", "done", "late", "lost", "failed", "failed", "twice"))
            )
            if fate == "failed":
                failed.append(job.id)
            if fate in {"done", "twice"}:
                found += self._done(job)
            if fate in {"late", "twice"}:
                self.late += self._done(job)
        while self.late and self.rng.random() < 0.4:
            late = self.late.pop(self.rng.randrange(len(self.late)))
            found.append(replace(late, reason="late"))
        self.rng.shuffle(found)
        return found, failed

    # ---------------------------------------------------------------------------------------------------- the tasks
    def _task(self, expected: Expected) -> list[Add]:
        """Return the new runs of a task, one for each bucket, and do to the dict what it does."""
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
                table = fold([self._table(own)], self.definition, bottom=False)
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

    def _done(self, job: AssemblyTask) -> list[Rewrite]:
        """Return the result of one attempt of a job."""
        inputs: list[Add] = []
        adds: list[Add] = []
        for group in groups_of(job):
            share = group.below(self._cut(group))
            outputs, left = self._folded(share)
            replaced, new = share.replacement(outputs, left, self.ids)
            inputs += replaced
            adds += new
            self.counts["rests"] += len(left)
            self.counts["relabelled"] += len(share.relabelled)
        return [Rewrite(tuple(inputs), tuple(adds), len(self.versions) - 1, "fresh")]

    def _cut(self, group: Group) -> Key | None:
        if self.rng.random() < 0.5:
            return None
        cut = self.rng.choice(self.keys)
        return cut if any(run.begins < cut for run in group.runs) else None

    def _folded(self, share: Share) -> tuple[list[Run], dict[str, Left]]:
        definition, terms = self.definition, share.group.terms
        tables, left = [], {}
        for run in share.folded:
            rows = self.rows_of(run.add)
            taken = rows.num_rows
            if not run.ends_below(share.cut):
                columns = [rows[name].combine_chunks() for name in definition.keys]
                taken = int(contain([((), share.cut)], columns).sum())
                first = key_at(rows, taken, definition.keys) if taken < rows.num_rows else None
                left[run.add.id] = Left(taken, first)
            tables.append(rows.slice(0, taken))
        purges = [run.marks.purges for run in share.folded]
        bucket = share.group.runs[0].add.directory_key
        outputs = []
        if tables:
            made = fold(tables, definition, bottom=terms.is_bottom, purges=purges, expired_ms=terms.expired_ms)
            outputs = [self._output(bucket, piece) for piece in self._pieces(made, share)]
        if not outputs and not share.relabelled and share.purges:
            outputs = [self._output(bucket, self._table([]))]
        return outputs, left

    def _pieces(self, rows: pa.Table, share: Share) -> Iterator[pa.Table]:
        """Yield rows by file: no more than a number, and none around a run that stays."""
        walls = [run.begins for run in share.relabelled]
        limit = self.rng.choice((2, 5, 100))
        start = 0
        for row in range(1, rows.num_rows + 1):
            is_end = row == rows.num_rows or row - start >= limit
            if walls and not is_end:
                one, other = key_at(rows, row - 1, self.definition.keys), key_at(rows, row, self.definition.keys)
                is_end = any(one < wall < other for wall in walls)
            if is_end:
                yield rows.slice(start, row - start)
                start = row

    # ---------------------------------------------------------------------------------------------------- the checks
    def check(self, version: Version) -> None:
        """Check that a version's runs are in order, and hold what they must."""
        by_bucket: dict[str, list[Run]] = {}
        for add in version.live.values():
            by_bucket.setdefault(add.directory_key, []).append(self.run_of(add))
        found: dict[Key, tuple[Any, ...]] = {}
        for runs in by_bucket.values():
            found |= self._checked(runs)
        assert found == version.expected

    def _checked(self, runs: list[Run]) -> dict[Key, tuple[Any, ...]]:
        """Return the rows of a bucket, whose runs are looked at once: nothing changes them."""
        same = frozenset((run.add.id, run.add.skip_rows) for run in runs)
        if same not in self.read_once:
            for place, run in enumerate(runs):
                assert all(apart(run, other) for other in runs[:place]), "runs that meet are not apart in position"
                rows = self.rows_of(run.add)
                assert rows.num_rows == run.add.rows
                if rows.num_rows:
                    ends = (key_at(rows, 0, self.definition.keys), key_at(rows, -1, self.definition.keys))
                    assert run.marks.keys == ends
            self.read_once[same] = self._read(runs)
        return self.read_once[same]

    def _read(self, runs: list[Run]) -> dict[Key, tuple[Any, ...]]:
        runs = sorted(runs, key=lambda run: run.marks.at)
        tables, purges = [self.rows_of(run.add) for run in runs], [run.marks.purges for run in runs]
        rows = fold(tables, self.definition, bottom=True, purges=purges)
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
        return self.files[add.path].slice(add.skip_rows)

    def is_settled(self) -> bool:
        """Return True if every merge that was begun is finished."""
        buckets = {add.directory_key for add in self.live.values()}
        return not any(
            stretch.unfinished
            for bucket in buckets
            for stretch in stretches_of(run_of(add) for add in self.live.values() if add.directory_key == bucket)
        )

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
        return output.marked(replace(output.marks, purges=purges))

    def _output(self, bucket: str, table: pa.Table) -> Run:
        keys, name = self.definition.keys, self.ids.unique()
        self.files[name] = table
        size = table.num_rows * ROW_BYTES
        add = Add(name, "segment", name, None, size, size, "", table.num_rows, bucket, "encoding", ORIGIN)
        ends = (key_at(table, 0, keys), key_at(table, -1, keys)) if table.num_rows else None
        return Run(add, Marks((0, 0), ends, (), ops_in(table)))


def _stored(value: Any) -> int | bytes:
    return value.encode() if isinstance(value, str) else value


STEPS = {Store.batch: 14, Store.idle: 3, Store.pause: 2, Store.forget: 3, Store.overwrite: 0.5}


def play(seed: int, steps: int = 22) -> Store:
    """Play a history; raises an AssertionError where the store and the dict differ."""
    store = Store(seed)
    for step in store.rng.choices([*STEPS], [*STEPS.values()], k=steps):
        step(store)
    store.settle()
    assert store.is_settled()
    for version in store.versions:  # as of each
        store.check(version)
    return store
