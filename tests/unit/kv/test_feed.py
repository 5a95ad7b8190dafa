"""The change feed against differences of dicts, over random histories, and from every offset."""

from __future__ import annotations

import random
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import AnotherLog, ConfigError, SchemaError, StaleFiles
from ftfile.kv.definition import define
from ftfile.kv.feed import FeedStream
from ftfile.kv.feed_rows import as_requested, changed_rows, differ, feed_schema
from ftfile.kv.run import writer
from ftfile.kv.run_files import OpenFiles
from ftfile.kv.upkeep.automatic import forget_vacuums, vacuum_if_due
from ftfile.log.commit_log import CommitLog
from ftfile.read.log_planner import BatchLimits, FollowConfig, FollowSettings
from ftfile.read.log_positions import START
from ftfile.rows.spark_types import spark_schema_json
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import StoreBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "memory://feed/store"
COLUMNS = {"word": "string", "n": "long", "gone": "boolean"}
Change = tuple[int, str, str, Any, Any]


@pytest.fixture(autouse=True)
def clock() -> Iterator[ManualClock]:
    clock = ManualClock(tick_ms=1)
    with repeatable(clock):
        yield clock
    MemoryFileSystem.drop("feed")
    forget_vacuums()


def store(**options: str) -> StoreBatch:
    given = {"keyColumns": "word", "deleteColumn": "gone", "buckets": "4", "vacuumInterval": "0s"} | options
    return StoreBatch(PATH, COLUMNS, given)


def rows(**counts: int | None) -> list[dict[str, Any]]:
    return [{"word": word, "n": n or 0, "gone": n is None} for word, n in counts.items()]


def content(version: int) -> dict[str, Any]:
    with kv.open(PATH, version=version, context=current()) as reader:
        return {row["word"]: row["n"] for batch in reader.scan() for row in batch.to_pylist()}


def difference(version: int, old: dict[str, Any], new: dict[str, Any]) -> set[Change]:
    kinds = {(False, True): "insert", (True, True): "update", (True, False): "delete"}
    return {
        (version, word, kinds[word in old, word in new], old.get(word), new.get(word))
        for word in old.keys() | new.keys()
        if (word in old, old.get(word)) != (word in new, new.get(word))
    }


def shown(batches: list[pa.RecordBatch]) -> list[Change]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    counts = [[each and each["n"] for each in (row["old"], row["new"])] for row in rows]
    return [
        (row["_commit_version"], row["word"], row["_change_type"], old, new)
        for row, (old, new) in zip(rows, counts, strict=True)
    ]


def read(start: int = 0, end: int | None = None) -> list[Change]:
    return shown([*kv.changes(PATH, start, end, context=current())])


def schema() -> pa.Schema:
    return feed_schema(kv.open(PATH, context=current()).definition)


def stream(**settings: Any) -> FeedStream:
    config = FollowConfig(PATH, None, {}, spark_schema_json(schema()), FollowSettings(**settings))
    return FeedStream(config, current())


def rows_between(follower: FeedStream, start: dict[str, Any], end: dict[str, Any]) -> list[Change]:
    files, requested = OpenFiles(open_filesystem(PATH)), schema()
    shares = follower.shares(start, end)
    return shown([as_requested(batch, requested) for share in shares for batch in changed_rows(files, share)])


def followed(**settings: Any) -> list[tuple[dict[str, Any], dict[str, Any], list[Change]]]:
    """Read all, each batch by a stream that is made anew, which is given the offset or finds it out by itself."""
    found: list[tuple[dict[str, Any], dict[str, Any], list[Change]]] = []
    start = dict(START)
    for number in range(1000):
        follower = stream(**settings)
        if number % 2:
            end = follower.latest_offset(start)
        else:
            follower.shares(start, start)
            end = follower.latest_offset()
        if end == start:
            return found
        found.append((start, end, rows_between(follower, start, end)))
        start = end
    raise AssertionError("it never ends")


class History:
    """Batches, deletes, jobs, purges, overwrites and re-bucketing at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.merge = self.rng.choice(("last", "n:sum", "n:max", "sequence"))
        merge = {"sequenceColumn": "n"} if self.merge == "sequence" else {"merge": self.merge}
        self.query = store(flushIntervalCount=str(self.rng.choice((2, 3, 50))), **merge)
        self.buckets = 4
        self.batch = 0
        self.contents: list[dict[str, Any]] = []

    @mock.patch.object(writer, "BLOCK_BYTES", 4096)
    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.rng.choice(
                (self.write, self.write, self.write, self.write, self.purge, self.compact, self.other)
            )
            expected = step(dict(self.contents[-1]) if self.contents else {})
            newest = kv.open(PATH, context=current()).version
            for version in range(len(self.contents), newest + 1):
                self.contents.append(expected if expected is not None else content(version))

    def write(self, expected: dict[str, Any]) -> dict[str, Any] | None:
        tasks = [
            [(self.word(), self.rng.choice((None, 0, 1, 2, 5))) for _ in range(self.rng.choice((0, 1, 10, 40)))]
            for _ in range(self.rng.choice((1, 2)))
        ]
        given = [[{"word": word, "n": n or 0, "gone": n is None} for word, n in task] for task in tasks]
        self.query.run(self.batch, given)
        self.batch += 1
        if self.query.overwrite:
            expected = {}
        for word, n in (row for task in tasks for row in task):
            if n is None:
                expected.pop(word, None)
            elif self.merge == "n:sum":
                expected[word] = expected.get(word, 0) + n
            elif self.merge == "n:max":
                expected[word] = max(expected.get(word, n), n)
            else:
                expected[word] = n
        return None if self.merge == "sequence" else expected

    def purge(self, expected: dict[str, Any]) -> dict[str, Any] | None:
        if not self.contents:
            return self.write(expected)
        start, end = sorted((self.word(), self.word()))
        if start == end:
            end += "x"
        kv.purge(PATH, start, end, context=current())
        return {word: n for word, n in expected.items() if not start <= word < end}

    def compact(self, expected: dict[str, Any]) -> dict[str, Any]:
        if self.contents:
            kv.compact(PATH, full=self.rng.random() < 0.5, context=current())
        return expected

    def other(self, expected: dict[str, Any]) -> dict[str, Any] | None:
        if self.contents and self.rng.random() < 0.5:
            self.buckets = self.rng.choice((1, 2, 8))
            kv.rebucket(PATH, self.buckets, context=current())
            self.query.restart()
            self.query.options = {**self.query.options, "buckets": str(self.buckets)}
            return expected
        self.query.overwrite = True
        try:
            return self.write(expected)
        finally:
            self.query.overwrite = False

    def word(self) -> str:
        return f"w{self.rng.randrange(40)}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_histories_equal_differences(seed: int) -> None:
    history = History(seed)
    history.run(14)
    contents = [{}, *history.contents]
    expected = [difference(version, *contents[version : version + 2]) for version in range(len(contents) - 1)]
    found = read()
    assert len(found) == len(set(found))
    assert set(found) == set().union(*expected)
    assert [change[0] for change in found] == sorted(change[0] for change in found)
    limits = BatchLimits(history.rng.choice((None, 1, 5)), None, history.rng.choice((None, 1, 50)))
    first = history.rng.randrange(len(expected))
    batches = followed(starting_version=first, limits=limits)
    changes = [change for _, _, batch in batches for change in batch]
    assert len(changes) == len(set(changes))
    assert set(changes) == set().union(*expected[first:])
    for start, end, batch in history.rng.sample(batches, min(5, len(batches))):
        assert rows_between(stream(), start, end) == batch


@pytest.mark.slow
def test_an_overwrite_ends_the_merge_functions_before_it() -> None:
    columns = {"word": "string", "n": "long", "m": "long"}

    def query(merge: str, id_: str) -> StoreBatch:
        options = {"keyColumns": "word", "buckets": "1", "merge": merge, "onNewQuery": "continue"}
        return StoreBatch(PATH, columns, options, id_)

    def row(n: int, m: int) -> list[list[dict[str, Any]]]:
        return [[{"word": "a", "n": n, "m": m}]]

    query("n:sum", "00000000-0000-0000-0000-000000000001").run(0, row(1, 10))
    other = query("m:sum", "00000000-0000-0000-0000-000000000002")
    other.overwrite = True
    other.run(0, row(2, 20))
    other.overwrite = False
    other.run(1, row(3, 30))
    ((_, _, found),) = followed(starting_version=0)
    assert found == [(0, "a", "insert", None, 1), (1, "a", "update", 1, 2), (2, "a", "update", 2, 3)]


@pytest.mark.slow
def test_a_new_query_begins_with_the_newest_version_as_inserts() -> None:
    query = store(merge="n:sum")
    query.run(0, [rows(a=1, b=2, c=3)])
    query.run(1, [rows(a=1, c=None)])
    batches = followed(limits=BatchLimits(files=1))
    query.run(2, [rows(a=5)])
    assert len(batches) == 3  # of as many buckets
    assert {change for _, _, batch in batches for change in batch} == {
        (1, "a", "insert", None, 2), (1, "b", "insert", None, 2),
    }  # fmt: skip
    follower = stream()
    end = follower.latest_offset(batches[-1][1])
    assert rows_between(follower, batches[-1][1], end) == [(2, "a", "update", 2, 7)]
    assert follower.latest_offset(end) == end
    assert follower.report() == {"version": 2, "versionsBehind": 0}


def test_latest_and_the_end_of_available_now() -> None:
    query = store()
    query.run(0, [rows(a=1)])
    follower = stream(starting_version="latest")
    start = follower.latest_offset(dict(START))
    assert rows_between(follower, dict(START), start) == []
    query.run(1, [rows(b=1)])
    follower.stop_at_head()
    query.run(2, [rows(c=1)])
    end = follower.latest_offset(start)
    assert rows_between(follower, start, end) == [(1, "b", "insert", None, 1)]
    assert follower.latest_offset(end) == end


@pytest.mark.slow
def test_bytes_bound_a_batch() -> None:
    query = store(buckets="1")
    for batch in range(4):
        query.run(batch, [rows(a=batch)])
    sizes = {add.length for add in CommitLog(open_filesystem(PATH)).refresh().segments.values()}
    for size, batches in ((1, 4), (max(sizes), 4), (2 * max(sizes), 2), (8 * max(sizes), 1)):
        found = followed(starting_version=0, limits=BatchLimits(size_bytes=size))
        assert len(found) == batches
        assert [change[0] for _, _, batch in found for change in batch] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_query_may_begin_at_a_time(clock: ManualClock) -> None:
    query, times_ms = store(), []
    for batch in range(3):
        query.run(batch, [rows(a=batch)])
        times_ms.append(clock.now_ms())
        clock.advance(60_000)
    for time_ms, versions in ((times_ms[0] - 30_000, [0, 1, 2]), (times_ms[0] + 30_000, [1, 2])):
        found = followed(starting_time=datetime.fromtimestamp(time_ms / 1000, timezone.utc))
        assert [change[0] for _, _, batch in found for change in batch] == versions


@pytest.mark.slow
def test_a_version_that_vacuum_has_deleted(clock: ManualClock) -> None:
    query = store(flushIntervalCount="2", buckets="1")
    for batch in range(3):
        query.run(batch, [rows(a=batch)])
    follower = stream(starting_version=0)
    start = stream(starting_version=0, limits=BatchLimits(files=1)).latest_offset(dict(START))
    end = follower.latest_offset(start)
    again = kv.changes(PATH, context=current())
    clock.advance(9000)
    query.run(3, [rows(a=9)])
    clock.advance(9000)
    log = kv.open(PATH, context=current()).log
    thread = vacuum_if_due(store(grace="1s", vacuumInterval="1s").config(), log)
    assert thread is not None
    thread.join()
    repeated = stream(starting_version=0)
    for action in (lambda: follower.latest_offset(start), lambda: [*again], lambda: repeated.shares(start, end)):
        with pytest.raises(StaleFiles, match="grace"):
            action()
    assert read(3) == [(3, "a", "update", 2, 9)]


@pytest.mark.slow
def test_other_columns_end_a_query_before_them() -> None:
    query = store()
    query.run(0, [rows(a=1)])
    follower = stream(starting_version=0)
    query.columns = {"word": "string", "n": "long", "more": "string", "gone": "boolean"}
    query.options = {**query.options, "onSchemaChange": "widen"}
    query.run(1, [[{"word": "a", "n": 1, "more": "x", "gone": False}]])
    end = follower.latest_offset(dict(START))
    assert rows_between(follower, dict(START), end) == [(0, "a", "insert", None, 1)]
    with pytest.raises(SchemaError, match="more"):
        follower.latest_offset(end)
    assert rows_between(stream(), end, stream().latest_offset(end)) == [(1, "a", "update", 1, 1)]


def test_positions_of_others_are_refused() -> None:
    store().run(0, [rows(a=1)])
    with pytest.raises(AnotherLog):
        stream().latest_offset({"kind": "log", "version": 5, "nonce": "x"})
    with pytest.raises(ConfigError):
        stream().latest_offset({"kind": "other"})
    with pytest.raises(ConfigError, match="the newest version is 0"):
        kv.changes(PATH, 3, context=current())
    with pytest.raises(ConfigError, match="no store"):
        kv.changes("memory://feed/nothing", context=current())
    assert read(1) == []
    keyed = define(pa.schema([("Old", pa.string()), ("n", pa.int64())]), ["Old"])
    with pytest.raises(ConfigError, match="names as columns of the change feed"):
        feed_schema(keyed)


@pytest.mark.parametrize(
    ("kind", "one", "other", "differs"),
    [
        (pa.int64(), [1, None, None, 2], [1, 1, None, 3], [0, 1, 0, 1]),
        (pa.float64(), [1.0, float("nan"), float("nan")], [1.0, float("nan"), 1.0], [0, 0, 1]),
        (pa.list_(pa.int64()), [[1], [1], [], None, [1, 2], [7]], [[1], [2], [], [], [1], [None]], [0, 1, 0, 1, 1, 1]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", 1)], []], [[("a", 1)], [("a", 2)], []], [0, 1, 0]),
        (pa.struct([("a", pa.list_(pa.string()))]), [{"a": ["x"]}, {"a": None}, None], [{"a": ["y"]}, {"a": []}, None],
         [1, 1, 0]),
    ],
)  # fmt: skip
def test_values_of_all_types_are_compared(kind: pa.DataType, one: Any, other: Any, differs: list[int]) -> None:
    assert differ(pa.array(one, kind), pa.array(other, kind)).tolist() == [bool(each) for each in differs]
    ahead = [None, *one], [None, *other]
    sliced = [pa.array(each, kind)[1:] for each in ahead]
    assert differ(*sliced).tolist() == [bool(each) for each in differs]
