"""Upkeep concurrent with batches: late results, crashes halfway, exceeded times, and many runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import FtfileError, StaleFiles, StorageError
from ftfile.log.vacuum import vacuum
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, fault_sweep
from ftfile.testing.fs.memory import mounted
from tests.kit.parameters import parametrize
from tests.kit.store_check import check_store
from tests.unit.kv.upkeep.stores import PATH, counts, rows_of, runs_of
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileSystem
    from ftfile.testing.context import ManualClock
    from ftfile.testing.micro_batch import StoreBatch

__all__ = ("ring",)

WORDS = [f"w{number}" for number in range(12)]


def write(query: StoreBatch, *batches: int) -> None:
    for batch in batches:
        query.run(batch, [[{"word": word, "n": 1} for word in WORDS]])


def vacuum_all(clock: ManualClock) -> None:
    clock.advance(10)
    vacuum(PATH, dry_run=False, retention="1s", force=True, context=current())
    clock.advance(10)


@pytest.mark.slow
@pytest.mark.parametrize("effect", ["before", "after"])
def test_27_a_rebucket_that_fails_at_any_call_has_changed_all_or_nothing(effect: Literal["before", "after"]) -> None:
    def store() -> FileSystem:
        fs = CrashingFileSystem()
        with mounted(fs) as url:
            write(counts(url, buckets="2"), 0, 1)
        return fs

    def rebucket(fs: FileSystem) -> None:
        with mounted(fs) as url:
            kv.rebucket(url, 4, context=current())

    fault = Fault(StorageError, effect=effect)
    for run in fault_sweep(fault, store, rebucket, step=7):
        with mounted(run.file_system) as url:
            assert rows_of(url) == dict.fromkeys(WORDS, 2), run
            buckets = [each for each in (2, 4) if _takes(counts(url, buckets=str(each)))]
            assert len(buckets) == 1, run
            rebucket(run.file_system)
            assert rows_of(url) == dict.fromkeys(WORDS, 3), run
        check_store(run.file_system)


def _takes(query: StoreBatch) -> bool:
    """Return True if a store takes a new batch; a batch in the log is accepted with any settings."""
    try:
        return not query.run(2, [[{"word": word, "n": 1} for word in WORDS]]).replayed
    except FtfileError:
        return False


def test_25_a_batch_longer_than_the_grace_is_refused(clock: ManualClock) -> None:
    query = counts()
    write(query, 0)
    late = query.run_tasks(1, [[{"word": "w0", "n": 1}]])
    clock.advance(10)
    counts().run_batch_write("another", [[{"word": word, "n": 1} for word in WORDS]])
    vacuum_all(clock)
    with pytest.raises(StaleFiles, match="`grace`"):
        query.commit(1, late)
    write(query, 1)
    assert rows_of(PATH) == dict.fromkeys(WORDS, 3)


def test_11_a_reader_of_runs_that_vacuum_deleted_says_refresh(clock: ManualClock) -> None:
    query = counts(buckets="1")
    write(query, 0, 1)
    with kv.open(PATH, context=current()) as reader:
        kv.compact(PATH, full=True, context=current())
        clock.advance(10)
        write(query, 2)
        vacuum_all(clock)
        for read in (lambda: reader.get("w0"), lambda: reader.lookup(pa.array(["w0"])), lambda: [*reader.scan()]):
            with pytest.raises(StaleFiles, match=r"refresh\(\)"):
                read()
        reader.refresh()
        assert reader.get("w0") == 3


@parametrize("change", ["rebucket", "overwrite", "compact", "purge"], quick=1)
def test_6_results_of_jobs_whose_runs_are_gone(change: str) -> None:
    query = counts(buckets="1", flushIntervalCount="2")
    write(query, 0, 1)
    late = query.run_tasks(2, [[{"word": "w0", "n": 1}]])
    assert late[0].rewritten, "the second run made a job due"
    expected = dict.fromkeys(WORDS, 2)
    if change == "rebucket":
        kv.rebucket(PATH, 4, context=current())
        with pytest.raises(FtfileError, match="buckets"):
            query.commit(2, late)
        query.options = {**query.options, "buckets": "4"}
        query.restart()
        query.run(2, [[{"word": "w0", "n": 1}]])
    else:
        if change == "overwrite":
            replacing = counts(buckets="1")
            replacing.overwrite = True
            replacing.run_batch_write("job", [[{"word": "w0", "n": 5}]])
            expected = {"w0": 5}
        elif change == "compact":
            kv.compact(PATH, full=True, context=current())
        else:
            kv.purge(PATH, "w0", "w1", context=current())
            expected["w0"] = 0
            expected = {word: n for word, n in expected.items() if word == "w0" or not "w0" <= word < "w1"}
        query.commit(2, late)
    expected["w0"] += 1
    assert rows_of(PATH) == expected
    kv.compact(PATH, full=True, context=current())
    assert rows_of(PATH) == expected
    check_store(open_filesystem(PATH))


@pytest.mark.slow
def test_16_merges_that_two_queries_do_cost_no_more_than_a_file(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first = counts(buckets="1", flushIntervalCount="2", onNewQuery="continue")
    second = dataclasses.replace(first, query_id="00000000-0000-0000-0000-000000000002")
    write(first, 0, 1)
    late, other = first.run_tasks(2, [[{"word": "w0", "n": 1}]]), second.run_tasks(0, [[{"word": "w1", "n": 1}]])
    (own,), (same,) = late[0].rewritten, other[0].rewritten
    assert own.inputs == same.inputs
    second.commit(0, other)
    first.commit(2, late)
    assert "discarding a rewrite of 2 adds: some are no longer live" in caplog.text
    expected = dict.fromkeys(WORDS, 2) | {"w0": 3, "w1": 3}
    assert rows_of(PATH) == expected
    fs = open_filesystem(PATH)
    wasted = {add.path for add in own.adds}
    assert all(map(fs.exists, wasted))
    check_store(fs)
    write(second, 1)
    vacuum_all(clock)
    assert not any(map(fs.exists, wasted))
    assert rows_of(PATH) == {word: n + 1 for word, n in expected.items()}
    check_store(fs)


@pytest.mark.slow
def test_upkeep_of_an_encrypted_store(ring: Path, tmp_path: Path) -> None:
    keys, path = f"file:{ring}", str(tmp_path / "store")
    query = counts(path, buckets="2", encryption="aes-gcm", keyProvider=keys, flushIntervalCount="2")
    write(query, 0, 1, 2)
    assert kv.purge(path, "w3", "w5", key_provider=keys, context=current()).version is not None
    kv.rebucket(path, 4, key_provider=keys, context=current())
    query.options = {**query.options, "buckets": "4"}
    query.restart()
    write(query, 3)
    kv.compact(path, full=True, key_provider=keys, context=current())
    vacuum(path, dry_run=False, retention="0s", force=True, key_provider=keys, context=current())
    with kv.open(path, key_provider=keys, context=current()) as reader:
        found = dict(zip(WORDS, reader.multi_get(WORDS), strict=True))
    assert found == {word: 1 if "w3" <= word < "w5" else 4 for word in WORDS}
    kv.verify(path, key_provider=keys, context=current())


@pytest.mark.slow
def test_many_runs_that_no_task_merged() -> None:
    query = counts(buckets="1", flushIntervalCount="100000")
    for batch in range(120):
        query.run(batch, [[{"word": WORDS[batch % 12], "n": 1}]])
    assert runs_of(PATH) == 120
    assert rows_of(PATH) == dict.fromkeys(WORDS, 10)
    kv.compact(PATH, full=True, context=current())
    assert (runs_of(PATH), rows_of(PATH)) == (1, dict.fromkeys(WORDS, 10))


@pytest.mark.slow
def test_the_greatest_number_of_buckets() -> None:
    query = counts(buckets="65536")
    write(query, 0, 1)
    kv.purge(PATH, "w3", "w4", context=current())
    kv.compact(PATH, full=True, context=current())
    assert rows_of(PATH) == {word: 2 for word in WORDS if not "w3" <= word < "w4"}
    kv.rebucket(PATH, 1, context=current())
    assert runs_of(PATH) == 1
