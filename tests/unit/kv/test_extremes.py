"""Stores of extreme shapes: many runs, files and buckets, large keys and values, nothing at all, only keys."""

from __future__ import annotations

import multiprocessing
import os
import resource
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, EncodingError, StaleFiles
from ftfile.kv import config, run_files
from ftfile.kv.run import writer
from ftfile.log.commit_log import CommitLog
from ftfile.log.vacuum import vacuum
from ftfile.testing.context import ManualClock, SeededIds, current, open_filesystem, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import StoreBatch
from ftfile.writing.messages import TaskIdentity
from ftfile.writing.options import forget_logs
from ftfile.writing.task import write_task
from tests.kit.store_check import check_store

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "memory://extremes/store"
THOROUGH = bool(os.environ.get("FTFILE_THOROUGH"))
COLUMNS = {"k": "string", "n": "long", "gone": "boolean"}


@pytest.fixture(autouse=True)
def clock() -> Iterator[ManualClock]:
    clock = ManualClock(tick_ms=1)
    with repeatable(clock, SeededIds(0)):
        yield clock
    MemoryFileSystem.drop("extremes")
    forget_logs()


def store(path: str = PATH, columns: dict[str, str] | None = None, **options: str) -> StoreBatch:
    given = {"keyColumns": "k", "buckets": "1", "vacuumInterval": "0s"}
    deletes = {"deleteColumn": "gone"} if columns is None else {}
    return StoreBatch(path, columns or COLUMNS, given | deletes | options)


def row(key: str, n: int | None = 1, *, gone: bool = False) -> dict[str, Any]:
    return {"k": key, "n": n, "gone": gone}


def contents(version: int | None = None, path: str = PATH) -> dict[str, Any]:
    """Return the rows by a scan, which single and vectorised reads must agree with."""
    with kv.open(path, version=version, context=current()) as reader:
        found = {each["k"]: each["n"] for batch in reader.scan() for each in batch.to_pylist()}
        keys = [*found, "none"]
        assert reader.multi_get(keys) == [reader.get(key) for key in keys] == [*found.values(), None]
        assert reader.lookup(pa.array(keys, pa.string()))["n"].to_pylist() == [*found.values(), None]
    return found


def runs() -> int:
    return len(CommitLog(open_filesystem(PATH)).refresh().segments)


class TestManyRuns:
    @pytest.mark.slow
    @pytest.mark.parametrize("count", [10_050 if THOROUGH else 1_050])
    def test_in_one_bucket_before_the_first_merge(self, count: int) -> None:
        """A compaction may read more than 10,000 runs; the suite has fewer."""
        query = store(merge="n:sum", maxOpenBytes="4", flushIntervalCount=str(count), compression="none")
        schema = query.config().schema
        batches = [pa.RecordBatch.from_pylist([row(f"k{number % 7}")], schema=schema) for number in range(count)]
        query.commit(0, [write_task(query.plan(), TaskIdentity(query.identity(0), 0, 0), batches, current())])
        assert runs() == count
        (job,) = CommitLog(open_filesystem(PATH)).refresh().jobs
        assert job.reason == "level0"
        expected = {f"k{number}": len(range(number, count, 7)) for number in range(7)}
        assert contents() == expected
        query.run(1, [[]])
        assert (runs(), contents(), contents(0)) == (1, expected, expected)

    @pytest.mark.slow
    def test_in_more_files_than_a_process_may_open(self, tmp_path: Path) -> None:
        path, count = str(tmp_path / "store"), 60
        query = store(path, merge="n:sum", flushIntervalCount=str(count + 1), compression="none")
        for batch in range(count):
            query.run(batch, [[row("all"), row(f"k{batch}")]])
        # In a separate process: files that other tests have open, or open meanwhile, count as well.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            process.submit(_use_with_few_descriptors, path, count).result()


def _use_with_few_descriptors(path: str, count: int) -> None:
    run_files._MAPPED_MAX = 10  # noqa: SLF001 - as small as the limit of descriptors
    expected = {"all": count} | {f"k{batch}": 1 for batch in range(count)}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_open_files() + 50, limits[1]))
    assert contents(path=path) == expected
    assert kv.compact(path, full=True, context=current()).runs_replaced == count
    assert kv.rebucket(path, 2, context=current()).rows == count + 1
    assert contents(path=path) == expected
    assert sum(batch.num_rows for batch in kv.changes(path, 0, count - 1, context=current())) == 2 * count


def _open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [1, 4096])
def test_buckets(buckets: int) -> None:
    query = store(merge="n:sum", buckets=str(buckets), flushIntervalCount="2")
    keys = [f"k{number:03}" for number in range(210 if buckets == 1 else 50)]
    for batch in range(3):
        query.run(batch, [[row(key) for key in keys[::2]], [row(key) for key in keys[batch:]]])
    expected = {key: 3 * (number % 2 == 0) + min(number + 1, 3) for number, key in enumerate(keys)}
    assert contents() == expected
    kv.purge(PATH, "k020", "k040", context=current())
    query.run(3, [[row("k030")], [row("k000", gone=True)]])
    expected = {key: n for key, n in expected.items() if key != "k000" and not "k020" <= key < "k040"}
    assert contents() == expected | {"k030": 1}
    assert sum(batch.num_rows for batch in kv.changes(PATH, 4, context=current())) == 2
    check_store(open_filesystem(PATH))


class TestLargeValues:
    @pytest.mark.slow
    def test_keys_of_a_mebibyte_that_differ_at_their_end(self) -> None:
        query = store(merge="n:sum", flushIntervalCount="2")
        keys = ["x" * ((1 << 20) - 1) + letter for letter in "abcd"]
        for batch in range(3):
            query.run(batch, [[row(key) for key in keys[batch:]]])
        assert contents() == dict(zip(keys, (1, 2, 3, 3), strict=True))
        kv.purge(PATH, keys[1], keys[3], context=current())
        query.run(3, [[row(keys[2])]])
        assert contents() == {keys[0]: 1, keys[2]: 1, keys[3]: 3}
        with kv.open(PATH, context=current()) as reader:
            assert [key for batch in reader.scan(keys[1], keys[3]) for key in batch["k"].to_pylist()] == [keys[2]]
        kv.compact(PATH, full=True, context=current())
        assert contents() == {keys[0]: 1, keys[2]: 1, keys[3]: 3}
        check_store(open_filesystem(PATH))

    @pytest.mark.slow
    @pytest.mark.parametrize("compression", ["lz4", "zstd"])
    @pytest.mark.parametrize("length", [400 << 10, 5 << 20])
    def test_that_compress_well_are_read(self, length: int, compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "BLOCK_BYTES", 8 << 20)
        query = store(columns={"k": "string", "n": "string"}, compression=compression)
        rows = {key: key * length for key in "abc"}
        query.run(0, [[{"k": key, "n": value} for key, value in rows.items()]])
        assert contents() == rows
        check_store(open_filesystem(PATH))

    def test_up_to_the_limit_of_records(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Beside a key of one byte, a number and a flag."""
        monkeypatch.setattr(writer, "BLOCK_BYTES", 4096)
        columns = {"k": "string", "n": "string"}
        query = store(columns=columns, maxRecordBytes="100000")
        query.run(0, [[{"k": "a", "n": "x" * 99_999}]])
        with pytest.raises(EncodingError, match="column 'n' takes 100000 of a record's 100001 bytes"):
            query.run(1, [[{"k": "b", "n": "x" * 100_000}]])
        query.options = {**query.options, "badRecords": "drop"}
        query.run(1, [[{"k": "b", "n": "x" * 100_000}, {"k": "c", "n": "y"}]])
        assert contents() == {"a": "x" * 99_999, "c": "y"}

    def test_beyond_the_limit_that_records_have_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(config, "_RECORD_BYTES", 1000)
        query = store(columns={"k": "string", "n": "string"})
        with pytest.raises(EncodingError, match="and maxRecordBytes is 1000"):
            query.run(0, [[{"k": "a", "n": "x" * 1000}]])
        query.options = {**query.options, "maxRecordBytes": "2000"}
        query.run(0, [[{"k": "a", "n": "x" * 1000}]])
        assert contents() == {"a": "x" * 1000}


class TestNothing:
    @pytest.mark.slow
    def test_batches_without_rows_and_with_deletes_alone(self) -> None:
        query = store(merge="n:sum", flushIntervalCount="2", buckets="2")
        query.run(0, [[], []])
        assert contents() == {}
        query.run(1, [[row("a", gone=True)], [row("b", gone=True)]])
        assert contents() == {}
        query.run(2, [[row("a"), row("b"), row("c")]])
        query.run(3, [[row("a", None, gone=True), row("b", None, gone=True), row("x", gone=True)]])
        assert contents() == {"c": 1}
        query.run(4, [[row("c", gone=True)]])
        query.run(5, [[]])
        kv.compact(PATH, full=True, context=current())
        assert (runs(), contents()) == (0, {})
        query.run(6, [[row("a")]])
        assert contents() == {"a": 1}
        assert [contents(version) for version in (2, 3)] == [{"a": 1, "b": 1, "c": 1}, {"c": 1}]
        check_store(open_filesystem(PATH))

    @pytest.mark.slow
    def test_a_purge_of_everything_and_of_nothing(self) -> None:
        query = store(merge="n:sum", buckets="2", flushIntervalCount="2")
        query.run(0, [[]])
        assert kv.purge(PATH, everything=True, context=current()).version is None
        for batch in (1, 2):
            query.run(batch, [[row(key) for key in "abcde"]])
        late = query.run_tasks(3, [[row("f")]])
        assert late[0].rewritten
        assert kv.purge(PATH, everything=True, context=current()).version == 3
        assert contents() == {}
        query.commit(3, late)
        assert contents() == {"f": 1}
        assert kv.purge(PATH, everything=True, context=current()).version == 5
        kv.compact(PATH, full=True, context=current())
        assert (runs(), contents()) == (0, {})
        assert kv.purge(PATH, everything=True, context=current()).version is None
        query.run(4, [[row("a")]])
        assert contents() == {"a": 1}
        check_store(open_filesystem(PATH))

    def test_a_purge_without_a_range(self) -> None:
        store().run(0, [[row("a")]])
        no_range: list[dict[str, Any]] = [
            {}, {"start": None, "end": None}, {"start": ()}, {"prefix": ()}, {"prefix": None},
        ]  # fmt: skip
        for keys in no_range:
            with pytest.raises(ConfigError, match=r"purge has no range: .* everything=True"):
                kv.purge(PATH, **keys, context=current())
        with pytest.raises(ConfigError, match="omit start, end and prefix"):
            kv.purge(PATH, "a", everything=True, context=current())
        assert contents() == {"a": 1}

    def test_where_no_store_is(self) -> None:
        for call in (kv.open, partial(kv.purge, everything=True), kv.compact, kv.verify, kv.changes):
            with pytest.raises(ConfigError, match="no store"):
                call("memory://extremes/nothing", context=current())


@pytest.mark.slow
def test_versions_older_than_the_grace(clock: ManualClock) -> None:
    query = store(merge="n:sum", flushIntervalCount="2")
    for batch in range(5):
        query.run(batch, [[row("a"), row(f"k{batch}")]])
    newest = contents()
    with kv.open(PATH, context=current()) as reader:
        early = [reader.at(version) for version in range(5)]
        assert [each.get("a") for each in early] == [1, 2, 3, 4, 5]
    clock.advance(100)
    query.run(5, [[]])
    clock.advance(100)
    vacuum(PATH, dry_run=False, retention="1s", force=True, context=current())
    assert early[0].get("a") == 1  # its files are open
    del early
    for version in range(3):
        with kv.open(PATH, context=current()) as reader:
            with pytest.raises(StaleFiles, match=r"refresh\(\)"):
                reader.at(version).get("k0")
            with pytest.raises(StaleFiles, match=r"refresh\(\)"):
                [*reader.at(version).scan()]
            with pytest.raises(StaleFiles, match="grace"):
                [*kv.changes(PATH, version, version, context=current())]
            with pytest.raises(ConfigError, match="there is no version 9"):
                reader.at(9)
    assert contents() == newest


class TestKeysAlone:
    """A store of one column is a set."""

    @pytest.mark.slow
    @pytest.mark.parametrize("merge", ["last", "sequence"])
    def test_without_values(self, merge: str) -> None:
        columns = {"k": "string", "gone": "boolean"}
        if merge == "sequence":
            with pytest.raises(ConfigError, match="sequenceColumn"):
                StoreBatch(
                    PATH, columns, {"keyColumns": "k", "deleteColumn": "gone", "sequenceColumn": "k"}
                ).pickled_plan()
            return
        given = {"keyColumns": "k", "deleteColumn": "gone", "buckets": "2", "flushIntervalCount": "2"}
        query = StoreBatch(PATH, columns, given | {"vacuumInterval": "0s"})
        query.run(0, [[{"k": key, "gone": False} for key in "abcd"]])
        query.run(1, [[{"k": "e", "gone": False}], [{"k": "a", "gone": True}]])
        kv.purge(PATH, "c", "d", context=current())
        for _ in range(2):
            with kv.open(PATH, context=current()) as reader:
                assert [key for batch in reader.scan() for key in batch["k"].to_pylist()] == ["b", "d", "e"]
                assert [reader.get(key) is not None for key in "abcde"] == [False, True, False, True, True]
                assert [found is not None for found in reader.multi_get([*"abcde"])] == [False, True, False, True, True]
                found = reader.lookup(pa.array([*"abcde"]))
                assert found.column_names == ["k", "_found"]
                assert found["_found"].to_pylist() == [False, True, False, True, True]
            kv.compact(PATH, full=True, context=current())
        changes = [each for batch in kv.changes(PATH, context=current()) for each in batch.to_pylist()]
        assert sorted((each["_commit_version"], each["k"], each["_change_type"]) for each in changes) == [
            *((0, key, "insert") for key in "abcd"),
            (1, "a", "delete"),
            (1, "e", "insert"),
            (2, "c", "delete"),
        ]
        check_store(open_filesystem(PATH))
