"""Cases of HDHT's own tests, by their ids, and failures of operators, by their numbers in the design of the store."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import (
    CommitOutcomeUnknown,
    ConfigError,
    CorruptData,
    EncodingError,
    Fenced,
    StorageError,
    UserCodeError,
    WindowOrder,
)
from ftfile.kv.operator import recording
from ftfile.kv.operator.codecs import Int64, Json, Pairs
from ftfile.kv.operator.windows import DELETED
from ftfile.kv.upkeep.compact import compact
from ftfile.log.format import layout
from ftfile.log.protocol import commit
from ftfile.log.wal import list_wal
from ftfile.testing.fs.crashing import CrashingFileSystem, crash_states
from tests.kit.parameters import parametrize, slow_after
from tests.unit.kv.operator.stores import UnsyncedDisk, keys_of, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.kv.operator.store import KeyValueStore

COUNTS: dict[str, Any] = {"keys": {"word": "string"}, "values": {"n": "bigint"}, "merge": "sum"}
NUMBERS: dict[str, Any] = {"keys": {"id": "bigint"}, "values": {"n": "bigint"}}


@pytest.fixture(params=slow_after(1, ["disk", "s3"]))
def fs(request: pytest.FixtureRequest) -> CrashingFileSystem:
    return CrashingFileSystem(storage=request.param)


def window(store: KeyValueStore, number: int, **rows: int) -> None:
    store.begin_window(number)
    for key, value in rows.items():
        store.merge(key, value)
    store.end_window()


def test_hd_1_get_and_delete(fs: CrashingFileSystem) -> None:
    with open_store(fs) as store:
        store.begin_window(1)
        store.put(b"key", b"value")
        assert store.get_uncommitted(b"key") == b"value"
        assert store.get(b"key") is None
        store.end_window()
        store.committed(1)
        assert store.get(b"key") == b"value"
        assert store.get_uncommitted(b"key") is None
        store.begin_window(2)
        store.delete(b"key")
        assert store.get_uncommitted(b"key") is DELETED
        assert not DELETED
        assert store.read(b"key") is None
        assert store.get(b"key") == b"value"
        store.end_window()
        store.committed(2)
        assert store.get(b"key") is None


def test_hd_2_keys_without_order_are_sorted(fs: CrashingFileSystem) -> None:
    with open_store(fs, **NUMBERS, buckets=1) as store:
        for number, keys in enumerate([(3, 1), (5, 2, 4)]):
            store.begin_window(number)
            for key in keys:
                store.put(key, number)
            store.end_window()
        store.committed(1)
        assert keys_of(store) == [1, 2, 3, 4, 5]
        assert store.stats().runs == 1


def test_hd_3_an_update_replaces_the_row_of_its_key(fs: CrashingFileSystem) -> None:
    with open_store(fs, **NUMBERS, buckets=1) as store:
        for number, keys in enumerate([(1, 2, 3, 4), (5, 1)]):
            for key in keys:
                store.put(key, number)
            store.commit()
        assert keys_of(store) == [1, 2, 3, 4, 5]
        assert store.multi_get([1, 2, 5, 6]) == [1, 0, 1, None]


@pytest.mark.parametrize("maintenance", ["inline", "background"])
def test_hd_4_a_failure_of_upkeep_is_raised_at_the_next_window(
    maintenance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ftfile.kv.upkeep import compact

    failure = StorageError("write", "a.spool", "the disk is full")

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(compact.CompactionRounds, "compact", fail)
    with open_store(CrashingFileSystem(), **COUNTS, maintenance=maintenance) as store:
        window(store, 1, a=1)
        store.committed(1)
        store.begin_window(2)
        store.merge("a", 1)
        for thread in [each for each in threading.enumerate() if each.name == "ftkv-upkeep"]:
            thread.join()
        with pytest.raises(StorageError) as caught:
            store.end_window()
        assert caught.value is failure
        store.end_window()
        assert (store.get("a"), store.read("a")) == (1, 2)


@pytest.mark.slow
def test_hd_18_files_of_purged_rows_go(fs: CrashingFileSystem) -> None:
    options = {"flushIntervalCount": "4", "flushSize": "100"}
    with open_store(fs, **NUMBERS, buckets=1, maintenance="inline", options=options) as store:
        for first in range(0, 3000, 100):
            for key in range(first, first + 100):
                store.put(key, key)
            store.commit()
        before = store.stats()
        assert before.runs < 10, "runs are merged"
        store.purge(0, 2900)
        store.commit()
        assert compact("operator://store", full=True).bytes_written
        store.refresh()
        assert store.stats().rows == 100
        assert keys_of(store) == [*range(2900, 3000)]
        store.purge(everything=True)
        store.commit()
        compact("operator://store", full=True)
        store.refresh()
        assert (store.stats().rows, store.stats().runs) == (0, 0)


@pytest.mark.slow
def test_hd_5_files_of_one_row_and_those_that_are_merged(fs: CrashingFileSystem) -> None:
    options = {"flushSize": "1", "flushIntervalCount": "2"}
    with open_store(fs, **NUMBERS, buckets=1, options=options, maintenance="inline") as store:
        for number in range(6):
            store.put(number % 3, number)
            store.commit()
        store.refresh()
        assert store.multi_get([0, 1, 2]) == [3, 4, 5]
        assert store.stats().runs <= 3


def test_hd_8_a_reader_reads_its_version_while_the_store_goes_on(fs: CrashingFileSystem) -> None:
    with open_store(fs, **COUNTS) as store:
        store.merge("a", 1)
        store.commit()
        before = store.at(store.version)
        store.merge("a", 1)
        store.commit()
        assert (before.get("a"), store.get("a")) == (1, 2)
        before.refresh()
        assert before.get("a") == 2


def test_hd_9_windows_are_read_back_whole(fs: CrashingFileSystem) -> None:
    with open_store(fs, **NUMBERS) as store:
        store.begin_window(0)
        for key in range(100):
            store.put(key, key)
            if key % 3 == 0:
                store.delete(key)
        store.end_window()
    with open_store(fs, **NUMBERS) as store:
        found = [store.get_uncommitted(key) for key in range(101)]
        assert found == [DELETED if key % 3 == 0 else key for key in range(100)] + [None]


def test_hd_11_what_is_recorded_and_what_is_not_comes_back(fs: CrashingFileSystem) -> None:
    store = open_store(fs)
    for number, keys in ((1, [b"a", b"b"]), (2, [b"c"])):
        store.begin_window(number)
        for key in keys:
            store.put(key, b"%d" % number)
        store.end_window()
        if number == 1:
            store.committed(1)
    with open_store(fs) as again:
        assert (again.last_window, again.recorded_window) == (2, 1)
        assert [again.get_uncommitted(key) for key in (b"a", b"b", b"c")] == [None, None, b"2"]
        assert [again.get(key) for key in (b"a", b"b", b"c")] == [b"1", b"1", None]
        again.committed(2)
        assert keys_of(again) == [b"a", b"b", b"c"]


@pytest.mark.slow
def test_hd_13_a_restore_takes_windows_back(fs: CrashingFileSystem) -> None:
    store = open_store(fs, **NUMBERS)
    for number in range(1, 5):
        store.begin_window(number)
        for key in range(10):
            store.put(100 * number + key, number)
        store.end_window()
        store.checkpointed(number)
    store.committed(2)
    with open_store(fs, **NUMBERS, restore=3) as again:
        uncommitted = [key for key in range(500) if again.get_uncommitted(key) is not None]
        assert uncommitted == [*range(300, 310)]
        again.committed(3)
        assert len(keys_of(again)) == 30
        again.begin_window(4)
        again.put(400, 44)
        again.end_window()
        again.committed(4)
        assert len(keys_of(again)) == 31
    with open_store(fs, **NUMBERS) as third:
        assert third.last_window == 4
        assert third.get(400) == 44
        assert third.get(401) is None


@pytest.mark.slow
def test_hd_15_one_log_of_windows_is_for_all_buckets(fs: CrashingFileSystem) -> None:
    store = open_store(fs, **NUMBERS, buckets=64)
    store.begin_window(7)
    for key in range(500):
        store.put(key, key)
    store.end_window()
    assert len(list_wal(fs, "w")) == 1
    with open_store(fs, **NUMBERS, buckets=64) as again:
        again.committed(7)
        assert again.multi_get(range(500)) == [*range(500)]


def test_hd_16_a_purge_of_changes_that_are_not_committed(fs: CrashingFileSystem) -> None:
    with open_store(fs, **NUMBERS) as store:
        store.begin_window(0)
        for key in range(5):
            store.put(key, 0)
        store.end_window()
        store.begin_window(1)
        for key in range(5, 10):
            store.put(key, 1)
        store.purge(3, 7)
        store.put(6, 2)
        assert [store.get_uncommitted(key) for key in range(11)] == [0, 0, 0, *[DELETED] * 3, 2, 1, 1, 1, None]
        store.end_window()
        store.committed(1)
        assert keys_of(store) == [0, 1, 2, 6, 7, 8, 9]


@pytest.mark.slow
def test_hd_17_a_purge_of_all_rows(fs: CrashingFileSystem) -> None:
    with open_store(fs, **NUMBERS) as store:
        for key in range(20):
            store.put(key, key)
        store.commit()
        with pytest.raises(ConfigError, match="everything=True for all rows"):
            store.purge(prefix=())
        with pytest.raises(ConfigError, match="omit start, end and prefix"):
            store.purge(3, everything=True)
        store.purge(everything=True)
        assert store.read(3) is None
        assert store.get(3) == 3
        store.commit()
        assert keys_of(store) == []


@pytest.mark.slow
def test_hd_19_purges_from_the_middle(fs: CrashingFileSystem) -> None:
    with open_store(fs, **NUMBERS, buckets=4) as store:
        for first in range(0, 1000, 250):
            for key in range(first, first + 250):
                store.put(key, key)
            store.commit()
        store.purge(0, 100)
        store.purge(949, 1000)
        store.purge(100, 101)
        store.commit()
        assert keys_of(store) == [*range(101, 949)]
        store.purge(end=151)
        store.commit()
        assert keys_of(store) == [*range(151, 949)]


@pytest.mark.slow
def test_hd_20_a_purge_comes_back_with_its_window(fs: CrashingFileSystem) -> None:
    store = open_store(fs, **NUMBERS)
    for key in range(10):
        store.put(key, key)
    store.commit()
    store.begin_window(5)
    store.purge(2, 6)
    store.put(3, 33)
    store.end_window()
    with open_store(fs, **NUMBERS) as again:
        assert [again.read(key) for key in range(7)] == [0, 1, None, 33, None, None, 6]
        again.committed(5)
        assert len(keys_of(again)) == 7


@pytest.mark.slow
def test_hd_22_several_writers_share_a_store(fs: CrashingFileSystem) -> None:
    stores = [open_store(fs, f"w{number}", **COUNTS) for number in range(3)]
    for store in stores:
        window(store, 1, a=1, b=2)
    for store in stores:
        store.committed(1)
    assert stores[0].refresh() == stores[2].version
    assert stores[0].multi_get(["a", "b"]) == [3, 6]
    # One goes on for all of them.
    one = open_store(fs, "w1", **COUNTS)
    window(one, 2, a=1)
    one.committed(2)
    assert one.multi_get(["a", "b"]) == [4, 6]


class Visit:
    """An event with both a key and a value."""

    def __init__(self, page: str, seconds: int) -> None:
        self.page = page
        self.seconds = seconds


class Visits:
    """A codec as of HDHT."""

    def key_to_bytes(self, event: Visit) -> bytes:
        return event.page.encode()

    def value_to_bytes(self, event: Visit) -> bytes:
        return b"%d" % event.seconds

    def from_key_value(self, key: bytes, value: bytes) -> Visit:
        return Visit(key.decode(), int(value))


def test_hd_23_a_codec_of_events(fs: CrashingFileSystem) -> None:
    with open_store(fs, codec=Visits()) as store:
        store.begin_window(1)
        visit = Visit("home", 7)
        store.put(visit, visit)
        found = [store.get_uncommitted(visit), store.read(visit)]
        store.end_window()
        store.committed(1)
        found += [store.get(visit), *store.multi_get([visit])]
        assert [(each.page, each.seconds) for each in found] == [("home", 7)] * 4
        assert store.get(Visit("none", 1), "nothing") == "nothing"
        store.delete(visit)
        assert store.get_uncommitted(visit) is DELETED


def test_a_codec_of_pairs(fs: CrashingFileSystem) -> None:
    with open_store(fs, codec=Pairs(Int64(), Json())) as store:
        for key in (5, -3, 0):
            store.put(key, {"key": [key]})
        store.commit()
        store.purge(-5, 0)
        store.commit()
        assert [store.get(key) for key in (5, -3, 0)] == [{"key": [5]}, None, {"key": [0]}]
        with pytest.raises(EncodingError, match="64-bit"):
            store.put("five", 1)
        with pytest.raises(ConfigError, match="prefix"):
            store.purge(prefix=(1,))


def test_a_codec_that_makes_no_bytes_is_an_error(fs: CrashingFileSystem) -> None:
    class Wrong(Visits):
        def key_to_bytes(self, event: Visit) -> bytes:
            return event.page  # type: ignore[return-value] # the mistake

    with open_store(fs, codec=Wrong()) as store, pytest.raises(UserCodeError, match="bytes are required"):
        store.delete(Visit("home", 1))


def test_a_merge_counts_on_a_set_of_an_earlier_window(fs: CrashingFileSystem) -> None:
    with open_store(fs, **COUNTS) as store:
        store.begin_window(1)
        store.put("a", 5)
        store.end_window()
        store.begin_window(2)
        store.merge("a", 1)
        assert (store.get_uncommitted("a"), store.read("a")) == (6, 6)


def test_merges_are_folded_with_what_is_committed(fs: CrashingFileSystem) -> None:
    with open_store(fs, **COUNTS) as store:
        window(store, 1, a=1, b=1)
        store.committed(1)
        window(store, 2, a=10)
        store.begin_window(3)
        store.merge("a", 100)
        assert (store.get("a"), store.get_uncommitted("a"), store.read("a")) == (1, 110, 111)
        store.put("b", 5)
        store.merge("b", 1)
        store.delete("c")
        store.merge("c", 2)
        assert [store.read(key) for key in ("b", "c", "d")] == [6, 2, None]
        store.end_window()
        store.committed(3)
        assert store.multi_get(["a", "b", "c"]) == [111, 6, 2]
        assert store.get_uncommitted("a") is None


def test_rows_of_several_columns(fs: CrashingFileSystem) -> None:
    shape: dict[str, Any] = {
        "keys": {"user": "string", "day": "date"},
        "values": {"n": "long", "last": "string"},
        "merge": "n:sum",
    }
    import datetime

    day = datetime.date(2024, 2, 29)
    with open_store(fs, **shape, bucket_by=["user"]) as store:
        store.begin_window(1)
        store.merge(("ann", day), (1, "x"))
        store.merge(("ann", day), {"n": 2})
        assert store.get_uncommitted(("ann", day)) == (3, None)
        store.end_window()
        store.committed(1)
        assert store.get(("ann", day)).n == 3
        store.put(("bob", day), (7, "y"))
        store.purge(prefix=("ann",))
        store.commit()
        assert store.multi_get([("ann", day), ("bob", day)]) == [None, (7, "y")]
        with pytest.raises(EncodingError, match="n"):
            store.put(("bob", day), ("seven", "y"))
        with pytest.raises(EncodingError, match="each of the columns n, last"):
            store.put(("bob", day), 7)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("boolean", [False, True]),
        ("date", [datetime.date(1969, 12, 31), datetime.date(2026, 1, 1)]),
        ("timestamp_ntz", [datetime.datetime(1969, 1, 1), datetime.datetime(2026, 1, 1)]),  # noqa: DTZ001
        ("decimal(18,4)", [decimal.Decimal("-1.5000"), decimal.Decimal("99999999999999.9999")]),
        ("tinyint", [-128, 127]),
    ],
)
def test_keys_of_other_types(fs: CrashingFileSystem, kind: str, keys: list[Any]) -> None:
    with open_store(fs, keys={"k": kind}, values={"n": "long"}) as store:
        for number, key in enumerate(keys):
            store.put(key, number)
        assert [store.read(key) for key in keys] == [0, 1]
        store.commit()
        assert [store.read(key) for key in keys] == store.multi_get(keys) == [0, 1]
        assert keys_of(store) == keys


def test_windows_come_in_order(fs: CrashingFileSystem) -> None:
    with open_store(fs, **COUNTS) as store:
        with pytest.raises(WindowOrder, match="no window has begun"):
            store.end_window()
        store.begin_window(5)
        for wrong in (store.begin_window, store.checkpointed, store.committed, store.commit):
            with pytest.raises(WindowOrder):
                wrong(6)
        store.merge("a", 1)
        store.end_window()
        for number in (5, 4):
            with pytest.raises(WindowOrder, match="must increase"):
                store.begin_window(number)
        store.merge("a", 1)
        with pytest.raises(WindowOrder, match="changes without a window"):
            store.begin_window(6)
        with pytest.raises(WindowOrder, match="must be greater"):
            store.commit(5)
        store.commit()
        assert (store.last_window, store.recorded_window, store.get("a")) == (6, 6, 2)
        store.committed(3)
        store.committed(6)
        store.commit(6)
        assert store.get("a") == 2


def test_23_a_restore_to_before_recorded_windows_is_refused(fs: CrashingFileSystem) -> None:
    with open_store(fs, **COUNTS) as store:
        window(store, 1, a=1)
        window(store, 2, a=1)
        store.committed(2)
    with pytest.raises(WindowOrder, match="up to 2 are recorded"):
        open_store(fs, **COUNTS, restore=1)
    with open_store(fs, **COUNTS, restore=2) as store:
        assert store.get("a") == 2


def test_22_a_zombie_is_fenced(fs: CrashingFileSystem) -> None:
    zombie = open_store(fs, **COUNTS)
    window(zombie, 1, a=1)
    zombie.begin_window(2)
    zombie.merge("a", 10)
    with open_store(fs, **COUNTS) as store:
        for call in (zombie.end_window, zombie.commit, lambda: zombie.committed(1)):
            with pytest.raises(Fenced, match="epoch 2"):
                call()
        window(store, 2, a=100)
        zombie.close()
        store.committed(2)
        assert store.get("a") == 101
    with open_store(fs, **COUNTS) as store:
        assert (store.last_window, store.read("a")) == (2, 101)
    assert list_wal(fs, "w") == []


def test_19_a_kill_within_end_window_leaves_it_or_nothing(fs: CrashingFileSystem) -> None:
    store = open_store(fs, **COUNTS)
    window(store, 1, a=1)
    begin = len(fs.journal)
    window(store, 2, a=10)
    last_windows = []
    for point in range(begin, len(fs.journal) + 1):
        with open_store(fs.after_kill(point), **COUNTS) as again:
            assert again.read("a") == {1: 1, 2: 11}[again.last_window]
            last_windows.append(again.last_window)
    assert {*last_windows} == {1, 2}
    assert last_windows == sorted(last_windows)


@parametrize("number", [0, 1], quick=1)
def test_20_damage_of_windows_is_an_error_until_they_are_forgotten(fs: CrashingFileSystem, number: int) -> None:
    with open_store(fs, **COUNTS) as store:
        for each in (1, 2, 3):
            window(store, each, a=1)
        store.committed(1)
    path = layout.wal_path("w", list_wal(fs, "w")[number])
    whole = fs.read(path)
    fs.put(path, whole[:50] + b"?" + whole[51:])
    for restore in (None, 2, None):
        with pytest.raises(CorruptData, match=f"{path}.*restore=1"):
            open_store(fs, **COUNTS, restore=restore)
    with open_store(fs, **COUNTS, restore=1) as store:
        assert (store.last_window, store.read("a")) == (1, 1)
    with open_store(fs, **COUNTS) as store:
        assert (store.last_window, store.read("a")) == (1, 1)


def test_21_windows_that_are_recorded_are_skipped(fs: CrashingFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    from ftfile.kv.operator.wal import Wal

    store = open_store(fs, **COUNTS)
    window(store, 1, a=1)
    monkeypatch.setattr(Wal, "trim", lambda *_: None)
    store.committed(1)
    monkeypatch.undo()
    assert list_wal(fs, "w")
    with open_store(fs, **COUNTS) as again:
        assert (again.last_window, again.get_uncommitted("a"), again.get("a")) == (1, None, 1)
        window(again, 2, a=1)
        again.committed(2)
        assert again.get("a") == 2


def test_windows_of_which_no_reply_came_are_not_recorded_again_with_later_ones(
    fs: CrashingFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(fs, **COUNTS) as store:
        window(store, 1, a=1)
        window(store, 2, a=1)

        def commit_without_reply(*arguments: Any) -> None:
            commit(*arguments)
            raise CommitOutcomeUnknown("no reply")

        monkeypatch.setattr(recording, "commit", commit_without_reply)
        with pytest.raises(CommitOutcomeUnknown):
            store.committed(1)
        monkeypatch.undo()
        store.committed(2)
        assert (store.recorded_window, store.get("a")) == (2, 2)


@contextlib.contextmanager
def failing_commit(monkeypatch: pytest.MonkeyPatch, *, takes_effect: bool = False) -> Iterator[None]:
    """Let commits fail, before or after they took effect."""

    def commit_and_fail(*arguments: Any) -> None:
        if takes_effect:
            commit(*arguments)
        raise CommitOutcomeUnknown("no reply")

    with monkeypatch.context() as patch:
        patch.setattr(recording, "commit", commit_and_fail)
        yield


def store_with_failed_commit(
    fs: CrashingFileSystem, monkeypatch: pytest.MonkeyPatch, *, takes_effect: bool = False
) -> KeyValueStore:
    """Return a store whose window 4 is durable, and whose commit of window 5 failed."""
    store = open_store(fs, **COUNTS)
    window(store, 4, a=1)
    store.merge("a", 10)
    with failing_commit(monkeypatch, takes_effect=takes_effect), pytest.raises(CommitOutcomeUnknown):
        store.commit(5)
    return store


@pytest.mark.parametrize("rows", [{"b": 1}, {}], ids=["changes of a window", "empty"])
def test_a_window_whose_commit_failed_is_as_durable_as_the_next_one(
    fs: CrashingFileSystem, rows: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_with_failed_commit(fs, monkeypatch)
    window(store, 6, **rows)
    with open_store(fs, **COUNTS) as again:
        assert (again.read("a"), again.read("b")) == (11, rows.get("b"))
        again.committed(again.last_window)
        assert (again.get("a"), again.get("b")) == (11, rows.get("b"))


def test_windows_whose_epoch_could_not_be_read_are_logged_again(
    fs: CrashingFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_with_failed_commit(fs, monkeypatch)
    store.begin_window(6)
    store.merge("a", 100)

    def fail(_: object) -> None:
        raise StorageError("list", "_ftfile/log", "the storage is away")

    with monkeypatch.context() as patch:
        patch.setattr(recording.Recorder, "head", fail)
        with pytest.raises(StorageError):
            store.end_window()
    with pytest.raises(WindowOrder, match="in memory"):
        store.checkpointed(5)
    store.merge("a", 1000)
    store.end_window()
    with open_store(fs, **COUNTS) as again:
        assert (again.last_window, again.read("a")) == (6, 1111)


def test_a_window_in_memory_alone_is_no_checkpoint(
    fs: CrashingFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with store_with_failed_commit(fs, monkeypatch) as store:
        store.checkpointed(4)
        with pytest.raises(WindowOrder, match=r"window 5 is only in memory.*committed\(5\)"):
            store.checkpointed(5)
        store.committed(5)
        store.checkpointed(5)
        store.merge("a", 10)
        with failing_commit(monkeypatch), pytest.raises(CommitOutcomeUnknown):
            store.commit(6)
        window(store, 7)
        store.checkpointed(6)
        store.checkpointed(7)
    assert "only in memory" not in caplog.text


def test_a_close_warns_of_a_window_whose_commit_failed(
    fs: CrashingFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store_with_failed_commit(fs, monkeypatch).close()
    assert "windows 5 to 5, whose commit failed, are only in memory" in caplog.text


def test_a_window_that_is_recorded_though_its_commit_failed_counts_once(
    fs: CrashingFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_with_failed_commit(fs, monkeypatch, takes_effect=True)
    window(store, 6, a=100)
    with open_store(fs, **COUNTS) as again:
        assert (again.recorded_window, again.last_window) == (5, 6)
        assert (again.get("a"), again.read("a")) == (11, 111)


@pytest.mark.slow
def test_windows_stay_until_their_record_survives_a_power_cut() -> None:
    """A commit fails whose record is there, under a name that is not durable; a repetition meets it."""
    fs = UnsyncedDisk()
    store = open_store(fs, **COUNTS)
    window(store, 1, a=1)
    fs.unsynced = layout.LOG
    with pytest.raises(CommitOutcomeUnknown):
        store.committed(1)
    fs.note("failed")
    with pytest.raises(StorageError, match="could not be made durable"):
        store.committed(1)
    fs.unsynced = None
    store.committed(1)
    fs.note("recorded")
    states = [state for state in crash_states(fs) if "failed" in state.notes]
    assert states
    for state in states:
        with open_store(state.filesystem(), **COUNTS) as again:
            assert again.read("a") == 1, state
            assert again.recorded_window == 1 or "recorded" not in state.notes, state


def test_changes_of_no_window_are_lost_with_the_process(
    fs: CrashingFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(fs, **COUNTS)
    store.merge("a", 1)
    with caplog.at_level(logging.WARNING):
        store.close()
        store.close()
    assert "has not ended" in caplog.text
    for change in (store.merge, store.put):
        with pytest.raises(ConfigError, match="closed"):
            change("a", 1)
    with pytest.raises(ConfigError, match="closed"):
        store.delete("a")
    with pytest.raises(ConfigError, match="closed"):
        store.purge(everything=True)
    for ending in (store.end_window, store.commit):
        with pytest.raises(ConfigError, match="closed"):
            ending()
    with open_store(fs, **COUNTS) as again:
        assert again.read("a") is None


def test_windows_without_changes_write_nothing(fs: CrashingFileSystem) -> None:
    with open_store(fs, **COUNTS) as store:
        version = store.version
        for number in range(3):
            store.begin_window(number)
            store.end_window()
            store.committed(number)
        assert (store.last_window, store.version) == (2, version)
        assert list_wal(fs, "w") == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"writer": "a/b"}, "letters"),
        ({"writer": ""}, "letters"),
        ({"maintenance": "sometimes"}, "background, inline or none"),
        ({**COUNTS, "codec": Visits()}, "one binary key column"),
        ({**COUNTS, "buckets": 3}, "buckets"),
        ({"merge": "sum"}, "sum"),
        ({"options": {"colour": "red"}}, "colour"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_store(CrashingFileSystem(), **options)


def test_17_another_definition_is_refused(fs: CrashingFileSystem) -> None:
    open_store(fs, **COUNTS).close()
    for other in ({**COUNTS, "buckets": 8}, {**COUNTS, "merge": "max"}, NUMBERS):
        with pytest.raises(ConfigError, match="the store has"):
            open_store(fs, **other)
