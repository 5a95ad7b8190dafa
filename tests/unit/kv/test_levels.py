"""Levels: overlays that the cache has room for, folded once for all who wait, and never for a scan."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ftfile import kv
from ftfile.core.errors import CorruptData
from ftfile.kv.reading.levels import Level
from ftfile.kv.reading.reader import CACHE
from tests.unit.kv.building import COUNTS, Builder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS = [str(number) for number in range(200)]
RUNS = 6


@pytest.fixture(autouse=True)
def cache() -> Iterator[None]:
    yield
    CACHE.resize(256 << 20)


@pytest.fixture
def store(tmp_path: Path) -> Builder:
    made = Builder(str(tmp_path / "store"), COUNTS)
    for _ in range(RUNS):
        made.merge(dict.fromkeys(KEYS, 1))
    return made


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of runs of each fold of an overlay."""
    calls: list[int] = []
    honest = Level._folded  # noqa: SLF001

    def folded(level: Level, files: Any) -> Any:
        calls.append(len(level.runs))
        return honest(level, files)

    monkeypatch.setattr(Level, "_folded", folded)
    return calls


def test_scans_fold_no_overlay_and_read_one_that_is_there(store: Builder, folds: list[int]) -> None:
    reader = kv.open(store.path)

    def scanned() -> dict[str, int]:
        return {row["word"]: row["n"] for batch in reader.scan() for row in batch.to_pylist()}

    assert scanned() == dict.fromkeys(KEYS, RUNS)
    reader.preload(range(4))
    assert folds == []
    assert {key: reader.get(key) for key in KEYS} == dict.fromkeys(KEYS, RUNS)
    assert folds == [RUNS] * 4
    assert scanned() == dict.fromkeys(KEYS, RUNS)
    parts = [len(bucket.scanned(None, None)) for bucket in reader.view.buckets.values()]
    assert (parts, len(folds)) == ([1] * 4, 4)


def test_runs_that_a_scan_has_opened_stay_open_over_a_refresh(store: Builder) -> None:
    reader = kv.open(store.path)
    assert sum(batch.num_rows for batch in reader.scan()) == len(KEYS)
    before = {id(part.run) for bucket in reader.view.buckets.values() for part in bucket.scanned(None, None)}
    store.merge({"0": 1})
    reader.refresh()
    assert sum(batch.num_rows for batch in reader.scan()) == len(KEYS)
    after = {id(part.run) for bucket in reader.view.buckets.values() for part in bucket.scanned(None, None)}
    assert len(after - before) == 1


@pytest.mark.slow
@pytest.mark.parametrize("cache_bytes", [1, 1 << 19])
def test_overlays_are_no_larger_than_the_cache_keeps(store: Builder, folds: list[int], cache_bytes: int) -> None:
    """Eight threads on a cache of one byte: each read ends, and nothing is folded for it."""
    reader = kv.open(store.path, cache_bytes=cache_bytes)
    overlays = [level for bucket in reader.view.buckets.values() for level in bucket.levels if level.is_overlay]
    sizes = [sum(run.add.logical_length for run in level.runs) for level in overlays]
    assert all(4 * size_bytes <= cache_bytes / 8 for size_bytes in sizes)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(reader.get, KEYS * 4)) == {RUNS}
    assert (folds == []) == (cache_bytes == 1)


@pytest.mark.parametrize("fails", [False, True])
def test_all_who_wait_get_the_fold_that_is_under_way(
    store: Builder, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Although the cache does not keep it: who folded again for itself could wait for the lock for ever."""
    reader = kv.open(store.path)
    (bucket, *_) = reader.view.buckets.values()
    (level,) = bucket.levels
    CACHE.resize(1)
    begun, may_end, honest, folds = threading.Event(), threading.Event(), Level._folded, []  # noqa: SLF001

    def folded(each: Level, files: Any) -> Any:
        folds.append(each)
        begun.set()
        assert may_end.wait(60)
        if fails:
            raise CorruptData("a.spool", "a run", "none")
        return honest(each, files)

    monkeypatch.setattr(Level, "_folded", folded)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(level.opened)
        assert begun.wait(60)
        others = [pool.submit(level.opened) for _ in range(7)]
        waiting = level._opening._condition._waiters  # type: ignore[union-attr] # noqa: SLF001 - of the fold under way
        deadline_s = time.monotonic() + 60
        while len(waiting) < len(others) and time.monotonic() < deadline_s:
            time.sleep(0.001)
        may_end.set()
        outcomes = [future.exception(60) or future.result() for future in (first, *others)]
    assert len(folds) <= 2
    assert all(isinstance(outcome, CorruptData) == fails for outcome in outcomes)
    if not fails:
        assert level.held is None
        assert len(set(map(id, outcomes))) <= 2
    monkeypatch.setattr(Level, "_folded", honest)
    assert level.opened().reader.rows > 0


@pytest.mark.slow
def test_many_threads_while_an_overlay_is_folded_again_and_again(store: Builder) -> None:
    reader = kv.open(store.path)
    CACHE.resize(1)
    longest_s = [0.0]

    def read(number: int) -> None:
        began_s = time.monotonic()
        assert reader.get(KEYS[number % len(KEYS)]) == RUNS
        longest_s[0] = max(longest_s[0], time.monotonic() - began_s)

    with ThreadPoolExecutor(16) as pool:
        [*pool.map(read, range(320))]
    assert longest_s[0] < 30
