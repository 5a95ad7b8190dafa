"""Levels: as few as there can be; a cached merge that the cache has room for, folded once, and never for a scan."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.answers import Answer
from ftfile.core.errors import CorruptData
from ftfile.kv.reading import levels
from ftfile.kv.reading import reader as reading
from ftfile.kv.reading.levels import CachedMerge
from ftfile.kv.reading.reader import CACHE
from ftfile.kv.run_files import open_run
from tests.kit.parameters import parametrize
from tests.unit.kv.building import COUNTS, Builder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS = [str(number) for number in range(200)]
RUNS = 6


@pytest.fixture(autouse=True)
def cache() -> Iterator[None]:
    yield
    CACHE.here.resize(256 << 20)


@pytest.fixture
def store(tmp_path: Path) -> Builder:
    made = Builder(str(tmp_path / "store"), COUNTS)
    for _ in range(RUNS):
        made.merge(dict.fromkeys(KEYS, 1))
    return made


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of runs of each fold of a cached merge."""
    calls: list[int] = []
    honest = CachedMerge._make

    def folded(cached_merge: CachedMerge, files: Any) -> Any:
        calls.append(len(cached_merge.runs))
        return honest(cached_merge, files)

    monkeypatch.setattr(CachedMerge, "_make", folded)
    return calls


@pytest.mark.slow
def test_scans_fold_no_cached_merge_and_read_one_that_is_there(store: Builder, folds: list[int]) -> None:
    reader = kv.open(store.path)

    def scanned() -> dict[str, int]:
        return {row["word"]: row["n"] for batch in reader.scan() for row in batch.to_pylist()}

    assert scanned() == dict.fromkeys(KEYS, RUNS)
    reader.preload(range(4))
    assert folds == []
    assert {key: reader.get(key) for key in KEYS} == dict.fromkeys(KEYS, RUNS)
    assert folds == [RUNS] * 4
    assert scanned() == dict.fromkeys(KEYS, RUNS)
    parts = [len(bucket.parts_between(None, None)) for bucket in reader.view.buckets.values()]
    assert (parts, len(folds)) == ([1] * 4, 4)


def test_runs_that_a_scan_has_opened_stay_open_over_a_refresh(store: Builder) -> None:
    reader = kv.open(store.path)
    assert sum(batch.num_rows for batch in reader.scan()) == len(KEYS)
    before = {id(part.held) for bucket in reader.view.buckets.values() for part in bucket.parts_between(None, None)}
    store.merge({"0": 1})
    reader.refresh()
    assert sum(batch.num_rows for batch in reader.scan()) == len(KEYS)
    after = {id(part.held) for bucket in reader.view.buckets.values() for part in bucket.parts_between(None, None)}
    assert len(after - before) == 1


@pytest.fixture
def ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """A store of one bucket with 60 runs of 10 keys each, none of which is small, and one above all of them."""
    monkeypatch.setattr(levels, "PAGED_ROWS_MIN", 1)
    monkeypatch.setattr(levels, "END_BYTES", 0)
    made = Builder(str(tmp_path / "ranges"), replace(COUNTS, buckets=1))
    for first in range(0, 600, 10):
        made.write_tables({0: table_of(range(first, first + 10), 1)})
    made.write_tables({0: table_of(range(0, 600, 10), 2)})
    return made


def table_of(numbers: range, n: int) -> pa.Table:
    words = [f"{number:03}" for number in numbers]
    return pa.table({"word": pa.array(words), "n": pa.array([n] * len(words))}, COUNTS.schema)


def open_parts(reader: kv.Reader) -> list[int]:
    """Return how many runs of each level are open."""
    (bucket,) = reader.view.buckets.values()
    return [sum(part.held is not None for part in level.parts) for level in bucket.levels]


@pytest.mark.slow
class TestLevels:
    def test_a_key_opens_no_run_that_cannot_have_it(self, ranges: Builder) -> None:
        reader = kv.open(ranges.path)
        assert open_parts(reader) == [0, 0]
        assert reader.get("123") == 1
        assert open_parts(reader) == [1, 1]
        assert reader.get("120") == 2
        assert open_parts(reader) == [1, 1]
        assert reader.get("xyz") is None
        assert open_parts(reader) == [1, 1]

    def test_many_keys_open_no_runs_that_cannot_have_them(self, ranges: Builder) -> None:
        reader = kv.open(ranges.path)
        words = ["600", "341", "123", "340", "0", "129", "599", "000"]
        assert reader.lookup(pa.array(words))["n"].to_pylist() == [None, 1, 1, 2, None, 1, 1, 2]
        assert open_parts(reader) == [1, 3]

    def test_a_scan_opens_a_run_when_it_comes_to_it(self, ranges: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "_SCAN_BYTES", 1)
        reader = kv.open(ranges.path)
        batches = reader.scan()
        next(batches)
        assert open_parts(reader) == [1, 1]
        rows = [row for batch in reader.scan("095", "305") for row in batch.to_pylist()]
        assert rows == [{"word": f"{number:03}", "n": 1 + (number % 10 == 0)} for number in range(95, 305)]
        assert sum(batch.num_rows for batch in batches) < 600
        assert open_parts(reader) == [1, 60]

    def test_a_refresh_opens_new_runs_alone(self, ranges: Builder) -> None:
        reader = kv.open(ranges.path)
        reader.multi_get([f"{number:03}" for number in range(600)])
        ranges.write_tables({0: table_of(range(600, 610), 3)})
        reader.refresh()
        assert open_parts(reader) == [1, 60]
        assert (reader.get("123"), reader.get("605")) == (1, 3)

    def test_a_purge_ends_rows_of_older_levels_alone(self, ranges: Builder) -> None:
        ranges.write_tables({}, [((b"100",), (b"200",))])
        ranges.write_tables({0: table_of(range(150, 160), 4)})
        expected = {f"{number:03}": 1 + (number % 10 == 0) for number in range(600) if not 100 <= number < 200}
        expected |= {f"{number:03}": 4 for number in range(150, 160)}
        reader = kv.open(ranges.path)
        words = [f"{number:03}" for number in range(600)]
        assert {row["word"]: row["n"] for batch in reader.scan() for row in batch.to_pylist()} == expected
        assert [reader.get(word) for word in words] == [expected.get(word) for word in words]
        assert reader.lookup(pa.array(words))["n"].to_pylist() == [expected.get(word) for word in words]


@pytest.mark.slow
@pytest.mark.parametrize("cache_bytes", [1, 1 << 19])
def test_cached_merges_are_no_larger_than_the_cache_keeps(store: Builder, folds: list[int], cache_bytes: int) -> None:
    """Eight threads on a cache of one byte: each read ends, and nothing is folded for it."""
    reader = kv.open(store.path, cache_bytes=cache_bytes)
    cached_merges = [bucket.cached_merge for bucket in reader.view.buckets.values() if bucket.cached_merge is not None]
    sizes = [sum(run.metadata.plain_bytes for run in cached_merge.runs) for cached_merge in cached_merges]
    assert all(size_bytes <= cache_bytes / 16 for size_bytes in sizes)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(reader.get, KEYS * 4)) == {RUNS}
    assert (folds == []) == (cache_bytes == 1)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Count the threads that wait for what another one opens."""
    count = threading.Semaphore(0)

    class Waited(Answer[Any]):
        def result(self) -> Any:
            count.release()
            return super().result()

    monkeypatch.setattr(levels, "Answer", Waited)
    return count


@pytest.mark.slow
def test_a_run_is_opened_once_for_all_who_want_it(
    ranges: Builder, waiting: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part, *_) = kv.open(ranges.path).view.parts.values()
    begun, may_end, honest, calls = threading.Event(), threading.Event(), open_run, []

    def opened(*arguments: Any) -> Any:
        calls.append(arguments)
        begun.set()
        assert may_end.wait(60)
        return honest(*arguments)

    monkeypatch.setattr(levels, "open_run", opened)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(part.open)
        assert begun.wait(60)
        others = [pool.submit(part.open) for _ in range(7)]
        assert all(waiting.acquire(timeout=60) for _ in others)
        may_end.set()
        assert {id(future.result(60)) for future in (first, *others)} == {id(part.held)}
    assert len(calls) == 1


@parametrize("fails", [False, True], quick=1)
def test_all_who_wait_get_the_fold_that_is_under_way(
    store: Builder, waiting: threading.Semaphore, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Although the cache does not keep it: who folded again for itself could wait for the lock for ever."""
    reader = kv.open(store.path)
    (bucket, *_) = reader.view.buckets.values()
    cached_merge = bucket.cached_merge
    assert cached_merge is not None
    CACHE.here.resize(1)
    begun, may_end, honest, folds = threading.Event(), threading.Event(), CachedMerge._make, []

    def folded(each: CachedMerge, files: Any) -> Any:
        folds.append(each)
        begun.set()
        assert may_end.wait(60)
        if fails:
            raise CorruptData("a.spool", "a run", "none")
        return honest(each, files)

    monkeypatch.setattr(CachedMerge, "_make", folded)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(cached_merge.open)
        assert begun.wait(60)
        others = [pool.submit(cached_merge.open) for _ in range(7)]
        assert all(waiting.acquire(timeout=60) for _ in others)
        may_end.set()
        outcomes = [future.exception(60) or future.result() for future in (first, *others)]
    assert len(folds) <= 2
    assert all(isinstance(outcome, CorruptData) == fails for outcome in outcomes)
    if not fails:
        assert cached_merge.held is None
        assert len(set(map(id, outcomes))) <= 2
    monkeypatch.setattr(CachedMerge, "_make", honest)
    assert cached_merge.open().reader.rows > 0


@pytest.mark.slow
def test_many_threads_while_a_cached_merge_is_folded_again_and_again(store: Builder) -> None:
    reader = kv.open(store.path)
    CACHE.here.resize(1)
    longest_s = [0.0]

    def read(number: int) -> None:
        began_s = time.monotonic()
        assert reader.get(KEYS[number % len(KEYS)]) == RUNS
        longest_s[0] = max(longest_s[0], time.monotonic() - began_s)

    with ThreadPoolExecutor(16) as pool:
        [*pool.map(read, range(320))]
    assert longest_s[0] < 30
