"""Processes of one writer that follow each other: restores, restarts, and one that does not know that it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import Fenced, StorageError
from ftfile.kv.operator import opening
from ftfile.log.wal import list_wal, opening_of
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.kit.parameters import slow_after
from tests.unit.kv.operator.stores import keys_of, open_store

if TYPE_CHECKING:
    from ftfile.kv.operator.store import KeyValueStore
    from ftfile.testing.fs.volume import Storage

SHAPE: dict[str, Any] = {"keys": {"window": "long"}, "values": {"n": "long"}, "merge": "sum", "buckets": 2}


@pytest.fixture(params=slow_after(1, ["disk", "hdfs", "s3"]))
def fs(request: pytest.FixtureRequest) -> CrashingFileSystem:
    kind: Storage = request.param
    return CrashingFileSystem(storage=kind)


def end_windows(store: KeyValueStore, *numbers: int) -> None:
    """End windows, each of which merges 1 into the key of its number."""
    for number in numbers:
        store.begin_window(number)
        store.merge(number, 1)
        store.end_window()


def uncommitted(store: KeyValueStore) -> list[int]:
    """Return the keys with changes that are not committed, and check that each was merged once."""
    rows = {number: store.get_uncommitted(number) for number in range(30)}
    assert set(rows.values()) <= {1, None}
    return [number for number, row in rows.items() if row]


@pytest.mark.slow
def test_windows_behind_a_restore_are_gone_for_ever(fs: CrashingFileSystem) -> None:
    with open_store(fs, **SHAPE) as store:
        end_windows(store, *range(1, 6))
    with open_store(fs, restore=2) as store:
        assert uncommitted(store) == [1, 2]
    with open_store(fs) as store:
        assert (store.last_window, uncommitted(store)) == (2, [1, 2])
        end_windows(store, 7, 8)
    with open_store(fs) as store:
        assert (store.last_window, uncommitted(store)) == (8, [1, 2, 7, 8])
        store.committed(7)
    with open_store(fs) as store:
        assert (store.recorded_window, store.last_window, uncommitted(store)) == (7, 8, [8])
        store.committed(8)
        assert keys_of(store) == [1, 2, 7, 8]
    assert list_wal(fs, "w") == []


def test_windows_that_follow_a_restore_and_a_commit(fs: CrashingFileSystem) -> None:
    with open_store(fs, **SHAPE) as store:
        end_windows(store, *range(1, 6))
    open_store(fs, restore=3).close()
    with open_store(fs) as store:
        store.committed(3)
        end_windows(store, 4)
    with open_store(fs) as store:
        assert (store.recorded_window, store.last_window, uncommitted(store)) == (3, 4, [4])
        store.committed(4)
        assert keys_of(store) == [1, 2, 3, 4]


def test_a_restore_to_what_is_recorded_forgets_all_windows_behind(fs: CrashingFileSystem) -> None:
    with open_store(fs, **SHAPE) as store:
        end_windows(store, 1, 2, 3)
        store.committed(1)
    with open_store(fs, restore=1) as store:
        assert (store.last_window, uncommitted(store)) == (1, [])
    with open_store(fs) as store:
        assert (store.last_window, uncommitted(store)) == (1, [])


def test_a_restore_between_windows_and_a_close(fs: CrashingFileSystem) -> None:
    with open_store(fs, **SHAPE) as store:
        end_windows(store, 2, 4, 6)
    with open_store(fs, restore=5) as store:
        assert (store.last_window, uncommitted(store)) == (5, [2, 4])
    with open_store(fs) as store:
        assert (store.last_window, uncommitted(store)) == (4, [2, 4])
        end_windows(store, 5)
    with open_store(fs, restore=5) as store:
        assert uncommitted(store) == [2, 4, 5]


def test_a_process_that_hangs_while_another_commits_and_closes(fs: CrashingFileSystem) -> None:
    zombie = open_store(fs, **SHAPE)
    end_windows(zombie, 1)
    zombie.begin_window(2)
    zombie.merge(2, 1)
    with open_store(fs) as store:
        end_windows(store, 3)
        store.committed(3)
    with pytest.raises(Fenced, match="epoch 2"):
        zombie.end_window()
    with open_store(fs) as store:
        assert (store.last_window, uncommitted(store)) == (3, [])
        end_windows(store, 4)
    zombie.close()
    with open_store(fs) as store:
        assert (store.last_window, uncommitted(store)) == (4, [4])
        store.committed(4)
        assert keys_of(store) == [1, 3, 4]


@pytest.mark.parametrize("restore", [None, 1])
def test_a_window_under_way_while_another_process_opens_counts_at_most_once(
    fs: CrashingFileSystem, restore: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = open_store(fs, **SHAPE)
    end_windows(zombie, 1)
    record_fence = opening.record_fence

    def record_fence_and_wait(*arguments: Any, **named: Any) -> Any:
        """Let the older process end a window before the newer one reads the files."""
        fence = record_fence(*arguments, **named)
        with pytest.raises(Fenced, match="check its last_window"):
            end_windows(zombie, 2)
        return fence

    monkeypatch.setattr(opening, "record_fence", record_fence_and_wait)
    with open_store(fs, restore=restore) as store:
        monkeypatch.undo()
        expected = [1, 2] if restore is None else [1]
        assert (store.last_window, uncommitted(store)) == (expected[-1], expected)
        with pytest.raises(Fenced):
            zombie.end_window()
    with open_store(fs) as store:
        assert uncommitted(store) == expected
        store.committed(store.last_window)
        assert keys_of(store) == expected


def test_an_opening_that_fails_before_it_takes_over_leaves_all_to_the_next_one(
    fs: CrashingFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(fs, **SHAPE) as store:
        end_windows(store, 1, 2, 3)

    def fail(_: object) -> None:
        raise StorageError("create", "_ftfile/log", "the storage is away")

    with monkeypatch.context() as patch:
        patch.setattr(opening, "record_take_over", fail)
        for restore in (None, 1):
            with pytest.raises(StorageError):
                open_store(fs, restore=restore)
    with open_store(fs) as store:
        assert (store.last_window, uncommitted(store)) == (3, [1, 2, 3])
        assert opening_of(store.log.refresh(), "w")[:2] == (4, 4)
    assert {name.epoch for name in list_wal(fs, "w")} == {4}
