"""Compactions that tasks do: who does which, what failures leave, how large outputs and memory get."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from ftfile.core.context import Context
from ftfile.core.errors import CorruptData, OutOfSpace, Unavailable
from ftfile.filters.chain import Chain
from ftfile.kv import compactor
from ftfile.kv.compactor import Compactor, run_compactions, share_of
from ftfile.kv.definition import OP, StoreDefinition, define
from ftfile.kv.fold import fold
from ftfile.kv.planning.picker import DEFAULT_PLAN, Backoff, Compaction
from ftfile.kv.planning.plan import PlannedCompaction, Terms, job_of
from ftfile.kv.planning.runs import RunMetadata, run_of
from ftfile.kv.run.pages import Cache
from ftfile.kv.run.reader import RunReader
from ftfile.kv.run_files import RunSpool
from ftfile.log.format.model import Add, Job, Origin
from ftfile.log.state import LogState
from ftfile.storage.registry import RetryingFileSystem, WrapperFileSystem
from ftfile.testing.context import ManualClock, SeededIds
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.writing.messages import OperationIdentity, TaskIdentity
from ftfile.writing.stage import Stage
from tests.unit.kv.runs import Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.kv.planning.plan import Piece
    from ftfile.storage.api import FileSystem
    from ftfile.writing.messages import AssemblyResults

SETTINGS = DEFAULT_PLAN
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])


@dataclass
class Bench:
    """Runs on a store in memory, and compactions of them."""

    fs: MemoryFileSystem
    clock: ManualClock
    definition: StoreDefinition = field(default_factory=lambda: define(SCHEMA, ["k"], merge="n:sum"))
    block_bytes: int = 4096
    versions: int = 0

    def stage(self, partition: int = 0) -> Stage:
        return Stage(self.fs, TaskIdentity(OperationIdentity("job"), partition, 0))

    def spool(self, stage: Stage) -> RunSpool:
        return RunSpool(stage, self.definition, Chain(), "lz4", self.block_bytes)

    def run(
        self, keys: Iterable[int], bucket: str = "b=00000", ops: Iterable[int] | None = None, value: int = 1
    ) -> Add:
        """Return the add of a new run, newer than those before, with a value for each key."""
        columns = {"k": pa.array(keys, pa.int64())}
        columns["n"] = pa.array([value] * len(columns["k"]), pa.int64())
        if ops is not None:
            columns[OP] = pa.array(ops, pa.int8())
        fields = [
            pa.field("k", pa.int64(), nullable=False),
            *(pa.field(name, columns[name].type) for name in [*columns][1:]),
        ]
        rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))
        spool = self.spool(self.stage())
        each = spool.write(bucket, [rows])
        spool.end()
        self.versions += 1
        metadata = replace(RunMetadata.from_json(each.rolling_stats), at=(self.versions << 20, self.versions << 20))
        add = Add(
            each.id,
            "segment",
            each.path,
            None,
            each.length,
            each.length,
            each.checksum,
            each.rows,
            bucket,
            "old",
            Origin("query", self.versions, self.versions),
            each.offset,
        )
        return structs.replace(add, rolling_stats=metadata.to_json())

    def due(
        self, *runs: Add, limit: int = SETTINGS.max_file_bytes, backoff: Backoff | None = None
    ) -> PlannedCompaction:
        terms = Terms(is_bottommost=True, expired_ms=0)
        return PlannedCompaction(
            compaction=Compaction("level0", tuple(map(run_of, runs)), backoff),
            terms=terms,
            cuts=(),
            max_file_bytes=limit,
        )

    def compactor(self, version: int = 0, fs: FileSystem | None = None, **more: Any) -> Compactor:
        stage = Stage(fs or self.fs, TaskIdentity(OperationIdentity("job"), 0, 0))
        return Compactor(
            stage=stage,
            definition=self.definition,
            encoding="new",
            open_spool=lambda: self.spool(stage),
            read_version=version,
            **more,
        )

    def do(
        self, *compactions: PlannedCompaction, version: int = 0, fs: FileSystem | None = None, piece_bytes: int = 0
    ) -> AssemblyResults:
        return run_compactions(self.compactor(version, fs), compactions, piece_bytes)

    def rows(self, adds: Iterable[Add]) -> dict[int, int]:
        found: dict[int, int] = {}
        for add in adds:
            with self.fs.open(add.path) as file:
                written = Written(file.read_at(add.offset, add.length))
            reader = RunReader(written.read_range, add.length, "", Cache(1 << 30))
            reader.verify()
            for batch in reader.scan():
                found |= dict(zip(batch["k"].to_pylist(), batch["n"].to_pylist(), strict=True))
        return found


@pytest.fixture
def bench() -> Iterator[Bench]:
    fs = MemoryFileSystem("bench")
    clock = ManualClock()
    fs.context = Context(clock=clock, ids=SeededIds(1))
    yield Bench(fs, clock)
    MemoryFileSystem.drop("bench")


class Silent(WrapperFileSystem):
    """Answers nothing when it is asked for a file."""

    def __init__(self, inner: FileSystem, clock: ManualClock) -> None:
        super().__init__(inner)
        self._clock = clock
        self.asked = 0

    def open(self, path: str) -> NoReturn:
        self.asked += 1
        self._clock.advance(60)
        raise Unavailable("open", path, "no answer within 60 s")


def damage(bench: Bench, add: Add) -> None:
    content = bytearray(bench.fs.read(add.path))
    content[add.offset + add.length // 2] ^= 1
    bench.fs.put(add.path, bytes(content))


class TestShare:
    def shares(self, tasks: int, count: int, version: int = 5) -> list[list[int]]:
        payload = {"bucket": "b=00000", "taskCount": tasks}
        jobs = tuple(Job(f"{number}", "level0", (), payload=payload) for number in range(count))
        head = LogState(version=version, jobs=jobs, whole=False)
        return [[int(job.id) for job in share_of(head, partition)] for partition in range(tasks + 1)]

    def test_each_task_does_other_jobs_and_each_job_gets_its_turn(self) -> None:
        assert self.shares(3, 7) == [[2, 3], [4, 5, 6], [0, 1], []]
        assert sorted(self.shares(5, 2)) == [[], [], [], [], [0], [1]]
        # The only remaining task runs all of them, some at each version.
        assert [self.shares(3, 7, version)[0] for version in range(3)] == [[0, 1], [4, 5, 6], [2, 3]]

    def test_nothing_is_due(self, bench: Bench) -> None:
        assert share_of(LogState(version=3), 0) == ()
        assert bench.do() == ((), ())

    def test_one_that_failed_often_is_left_out(self, bench: Bench) -> None:
        compaction = bench.due(bench.run([1]), backoff=Backoff("run", 9, 3, not_before=9)).compaction
        job = job_of(compaction, 1)
        assert share_of(LogState(version=7, jobs=(job,)), 0) == ()
        assert share_of(LogState(version=8, jobs=(job,)), 0) == (job,)

    def test_time_ends_between_files_and_those_that_failed_come_last(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried = bench.due(bench.run([1]), bench.run([2]), backoff=Backoff("run", 9, 2))
        due = [bench.due(bench.run([1]), bench.run([2])) for _ in range(2)]
        merge = Compactor.compact

        def slow(self: Compactor, piece: Piece) -> Any:
            bench.clock.advance(compactor.BUDGET_S * 0.75)
            return merge(self, piece)

        monkeypatch.setattr(Compactor, "compact", slow)
        rewrites, _ = bench.do(tried, *due)
        assert [rewrite.inputs[0] for rewrite in rewrites] == [planned.inputs[0].add for planned in due]


class TestResult:
    def test_rows_are_folded_and_the_add_says_where_from(self, bench: Bench) -> None:
        old, new = bench.run([1, 2]), bench.run([2, 3], ops=[1, 1], value=5)
        ((made,), failed) = bench.do(bench.due(old, new), version=7)
        (add,) = made.adds
        assert not failed
        assert made.inputs == (old, new)
        assert made.read_version == 7
        assert bench.rows([add]) == {1: 1, 2: 6, 3: 5}
        assert (add.encoding, add.origin, add.rows) == ("new", Origin("query", 1, 2), 3)
        metadata = run_of(add).metadata
        assert (metadata.at, metadata.keys, metadata.ops) == ((1 << 20, 2 << 20), ((1,), (3,)), 1)

    def test_columns_that_came_later_are_null_in_older_rows(self, bench: Bench) -> None:
        old, new = bench.run([1, 2]), bench.run([2, 3])
        bench.definition = define(SCHEMA.append(pa.field("m", pa.string())), ["k"], merge="n:sum")
        ((made,), _) = bench.do(bench.due(old, new))
        assert bench.rows(made.adds) == {1: 1, 2: 1, 3: 1}

    @pytest.mark.slow
    def test_large_outputs_are_cut_to_files(self, bench: Bench) -> None:
        limit, bench.block_bytes = 60_000, 1024
        runs = [bench.run(range(start, 30_000, 2)) for start in (0, 1)]
        assert sum(add.length for add in runs) > 2 * limit
        ((made,), _) = bench.do(bench.due(*runs, limit=limit))
        lengths = [add.length for add in made.adds]
        assert max(lengths) <= limit < sum(lengths)
        assert min(lengths[:-1]) > limit // 4  # lengths are estimates: a run is known by the blocks that are written
        assert 1 < len({add.path for add in made.adds}) <= len(lengths)
        assert len(bench.rows(made.adds)) == 30_000

    def test_outputs_are_of_equal_length(self, bench: Bench) -> None:
        runs = [bench.run(range(start, 30_000, 2)) for start in (0, 1)]
        total = sum(add.length for add in runs)
        ((result,), _) = bench.do(bench.due(*runs, limit=total * 5 // 8))
        first, second = (add.length for add in result.adds)
        assert abs(first - second) < total // 10

    def test_rows_end_at_cuts_and_purges_without_rows_have_a_run(self, bench: Bench) -> None:
        runs = [run_of(bench.run(range(start, 100, 2))) for start in (0, 1)]
        purged = run_of(bench.run([]))
        metadata = replace(purged.metadata, purges=(((50,), (60,)), ((200,), None)))
        runs.append(run_of(purged.with_metadata(metadata)))
        terms = Terms(is_bottommost=False, expired_ms=0)
        planned = PlannedCompaction(
            compaction=Compaction("descend", tuple(runs)),
            terms=terms,
            cuts=((30,), (50,), (100,)),
            max_file_bytes=1 << 30,
        )
        ((result,), _) = bench.do(planned)
        results = [run_of(add).metadata for add in result.adds]
        assert [metadata.keys for metadata in results] == [((0,), (29,)), ((30,), (49,)), ((60,), (99,)), None]
        assert [metadata.purges for metadata in results] == [(), (), (((50,), (60,)),), (((200,), None),)]
        assert {(metadata.at, metadata.level) for metadata in results} == {((1 << 20, 3 << 20), 1)}

    def test_a_run_that_moves_keeps_its_bytes(self, bench: Bench) -> None:
        large, small = bench.run(range(30_000)), bench.run([40_000])
        terms = Terms(is_bottommost=True, expired_ms=0)
        planned = PlannedCompaction(
            compaction=Compaction("descend", (run_of(large), run_of(small))),
            terms=terms,
            cuts=(),
            max_file_bytes=1 << 16,
        )
        before = {info.path for info in bench.fs.list("_ftfile/staged/job")}
        ((result,), _) = bench.do(planned)
        assert result.inputs == (large, small)
        moved, other = result.adds
        assert (moved.path, moved.offset, run_of(moved).metadata.level) == (large.path, large.offset, 1)
        assert bench.rows([other]) == {40_000: 1}
        assert len({info.path for info in bench.fs.list("_ftfile/staged/job")} - before) == 1


class TestMemory:
    @pytest.mark.slow
    def test_it_is_bounded_by_windows(self, bench: Bench) -> None:
        bench.block_bytes = 1 << 14
        value = np.random.default_rng(1).integers(0, 1 << 60, 400_000)
        runs = [bench.run(np.sort(part)) for part in np.array_split(value, 4)]
        total = 400_000 * 16
        held: list[int] = []

        def measured(window: list[pa.Table], *arguments: Any, **named: Any) -> pa.Table:
            held.append(sum(table.nbytes for table in window))
            return fold(window, *arguments, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compactor, "fold", measured)
            ((_, rewrite, error),) = bench.compactor(window_bytes=1 << 18).compact((bench.due(*runs),))
        assert rewrite is not None, error
        assert sum(add.rows for add in rewrite.adds) == 400_000
        assert sum(held) == total
        assert max(held) <= (1 << 18) + 4 * (1 << 16)  # and what each run reads at a time
        assert len(held) < 60


class TestFailures:
    def test_a_damaged_run_names_itself_and_leaves_other_files_alone(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        good, bad = [bench.run([1]), bench.run([2])], [bench.run([1]), bench.run([2])]
        damage(bench, bad[1])
        rewrites, failed = bench.do(bench.due(*bad), bench.due(*good))
        assert failed == (bad[1].id,)
        assert [rewrite.inputs for rewrite in rewrites] == [(*good,)]
        assert bad[1].path in caplog.text

    def test_a_bucket_with_a_damaged_run_leaves_the_others_of_its_file_alone(self, bench: Bench) -> None:
        groups = [[bench.run([1], f"b={number:05d}"), bench.run([2], f"b={number:05d}")] for number in range(3)]
        damage(bench, groups[1][0])
        rewrites, failed = bench.do(*(bench.due(*group) for group in groups), piece_bytes=1 << 30)
        assert failed == (groups[1][0].id,)
        assert [rewrite.inputs for rewrite in rewrites] == [(*groups[0],), (*groups[2],)]
        assert [add.directory_key for rewrite in rewrites for add in rewrite.adds] == ["b=00000", "b=00002"]

    def test_buckets_that_are_done_together_have_a_file_together(self, bench: Bench) -> None:
        groups = [[bench.run([1], f"b={number:05d}"), bench.run([2], f"b={number:05d}")] for number in range(3)]
        rewrites, _ = bench.do(*(bench.due(*group) for group in groups), piece_bytes=1 << 30)
        assert [rewrite.inputs for rewrite in rewrites] == [(*group,) for group in groups]
        assert len({add.path for rewrite in rewrites for add in rewrite.adds}) == 1

    def test_storage_that_is_away_is_asked_once(self, bench: Bench) -> None:
        due = [bench.due(bench.run([1], f"b={each:05d}"), bench.run([2], f"b={each:05d}")) for each in range(3)]
        silent = RetryingFileSystem(silent_storage := Silent(bench.fs, bench.clock), bench.fs.context, "memory://x")
        assert bench.do(*due, fs=silent, piece_bytes=1 << 30) == ((), (due[0].inputs[0].add.id,))
        assert silent_storage.asked == 5, "by one call, with its tries"

    def test_a_run_that_is_gone_is_named(self, bench: Bench) -> None:
        runs = [bench.run([1]), bench.run([2])]
        bench.fs.delete(runs[0].path)
        assert bench.do(bench.due(*runs)) == ((), (runs[0].id,))

    def test_another_number_of_rows_is_damage(self, bench: Bench) -> None:
        runs = [bench.run([1]), bench.run([2])]
        planned = bench.due(structs.replace(runs[0], rows=2), runs[1])
        ((_, _, error),) = bench.compactor().compact((planned,))
        assert isinstance(error, CorruptData)

    def test_a_full_disk_leaves_no_file(self, bench: Bench) -> None:
        runs = [bench.run([1]), bench.run([2])]
        before = {info.path for info in bench.fs.list("_ftfile/staged/job")}
        full = FaultyFileSystem(bench.fs, [Fault(OutOfSpace, operations=frozenset({"write"}))])
        assert bench.do(bench.due(*runs), fs=full) == ((), tuple(add.id for add in runs))
        assert {info.path for info in bench.fs.list("_ftfile/staged/job")} == before
