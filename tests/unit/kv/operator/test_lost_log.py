"""A store whose log is lost: it is no new one, whatever it is on, until somebody says that it is to begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import CommitOutcomeUnknown, CorruptData
from ftfile.kv.operator import opening, recording
from ftfile.kv.operator.wal import read_wal
from ftfile.log.format import layout
from ftfile.log.protocol import commit
from ftfile.log.records import read_published
from ftfile.log.wal import list_wal_writers
from ftfile.operate.verify.verify_directory import verify
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.kit.parameters import parametrize
from tests.unit.kv.operator.stores import keys_of, open_store

if TYPE_CHECKING:
    from ftfile.kv.operator.store import KeyValueStore
    from ftfile.kv.operator.wal import WalFile
    from ftfile.log.wal import WalFiles
    from ftfile.testing.fs.volume import Storage

STORAGE_KINDS: list[Storage] = ["disk", "hdfs", "s3"]
SHAPE: dict[str, Any] = {"keys": {"word": "string"}, "values": {"n": "long"}, "merge": "sum", "buckets": 2}
LOST = r"the log has lost its newest records.*accept_lost_records=True"


def end_window(store: KeyValueStore, window: int) -> None:
    store.begin_window(window)
    store.merge(f"w{window}", 1)
    store.end_window()


def written(kind: Storage, windows: int, *, recorded: int) -> CrashingFileSystem:
    """Return a store in which some windows ended; one process recorded the first, another one has the rest."""
    fs = CrashingFileSystem(storage=kind)
    for process in (range(recorded + 1), range(recorded + 1, windows)):
        with open_store(fs, **SHAPE) as store:
            for window in process:
                end_window(store, window)
            store.committed(recorded)
    return fs


def take_log(fs: CrashingFileSystem) -> dict[str, bytes]:
    """Delete the records of a store, and return them."""
    taken = {info.path: fs.read(info.path) for info in fs.list(layout.LOG)}
    for path in taken:
        fs.delete(path)
    return taken


def record_without_reply(store: KeyValueStore, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record windows, and do not learn of it."""

    def lost(*arguments: Any) -> None:
        commit(*arguments)
        raise CommitOutcomeUnknown("no reply")

    with monkeypatch.context() as patch:
        patch.setattr(recording, "commit", lost)
        with pytest.raises(CommitOutcomeUnknown):
            store.committed(window)


@parametrize("options", [SHAPE, {}, {"merge": "n:sum"}], ids=["its definition", "none", "a part of it"], quick=1)
@pytest.mark.parametrize("kind", STORAGE_KINDS)
def test_it_is_refused_until_the_log_is_back(kind: Storage, options: dict[str, Any]) -> None:
    fs = written(kind, 3, recorded=1)
    taken = take_log(fs)
    for _ in range(2):
        with pytest.raises(CorruptData, match=LOST):
            open_store(fs, **options)
    assert not fs.list(layout.LOG)
    for path, content in taken.items():
        fs.create_exclusive(path, content)
    with open_store(fs, **options) as store:
        assert (store.recorded_window, store.last_window) == (1, 2)
        assert keys_of(store) == ["w0", "w1"]


@pytest.mark.parametrize("kind", STORAGE_KINDS)
def test_it_begins_anew_where_the_loss_is_accepted(kind: Storage) -> None:
    fs = written(kind, 3, recorded=1)
    take_log(fs)
    assert ftfile.repair("operator://store", accept_lost_records=True, dry_run=False).ok
    for _ in range(2):
        with pytest.raises(CorruptData, match=r"files of process 2, and no opening after 0.*restore=-1"):
            open_store(fs, **SHAPE)
    for restore in (-1, None):
        with open_store(fs, restore=restore, **SHAPE) as store:
            assert (store.recorded_window, store.last_window) == (-1, -1)
    with open_store(fs) as store:
        end_window(store, 0)
        store.committed(0)
        assert keys_of(store) == ["w0"]


@parametrize("kind", STORAGE_KINDS, quick=1)
def test_windows_behind_lost_records_do_not_come_back_as_if_nothing_were_lost(kind: Storage) -> None:
    fs = written(kind, 2, recorded=1)
    kept = {info.path for info in fs.list(layout.LOG)}
    with open_store(fs) as store:
        for window in range(2, 6):
            end_window(store, window)
        store.committed(4)
    with open_store(fs) as store:
        assert (store.recorded_window, store.last_window) == (4, 5)
    for path in {info.path for info in fs.list(layout.LOG)} - kept:
        fs.delete(path)
    fs.delete(layout.PUBLISHED_HINT)  # a copy that left it out
    for restore in (None, 3):
        with pytest.raises(CorruptData, match=r"files of process 4, and no opening after 2.*restore=1"):
            open_store(fs, restore=restore)
    with open_store(fs, restore=1) as store:
        assert store.last_window == 1
        end_window(store, 2)
    with open_store(fs) as store:
        assert (store.recorded_window, store.last_window) == (1, 2)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_log_that_ends_within_an_opening(lost: int) -> None:
    """It has lost the record by which a process took over, or that by which it fenced the one before, too."""
    fs = written("disk", 1, recorded=0)
    with open_store(fs) as store:
        for window in (1, 2):
            end_window(store, window)
    for path in sorted(info.path for info in fs.list(layout.LOG))[-lost:]:
        fs.delete(path)
    fs.delete(layout.PUBLISHED_HINT)  # a copy that left it out
    with pytest.raises(CorruptData, match=r"files of process 3, and no opening after 2.*restore=0"):
        open_store(fs)
    with open_store(fs, restore=0) as store:
        assert (store.recorded_window, store.last_window) == (0, 0)


def test_windows_of_a_process_that_lost_its_records_are_missed() -> None:
    """The log contains the process, but not its last records."""
    fs = written("disk", 1, recorded=0)
    with open_store(fs) as store:
        for window in (1, 2, 3):
            end_window(store, window)
        before = {info.path for info in fs.list(layout.LOG)}
        store.committed(2)
    for path in {info.path for info in fs.list(layout.LOG)} - before:
        fs.delete(path)
    fs.delete(layout.PUBLISHED_HINT)
    with pytest.raises(CorruptData, match=r"windows after 0 up to 2, which no record contains.*restore=0"):
        open_store(fs)
    with open_store(fs, restore=0) as store:
        assert (store.recorded_window, store.last_window) == (0, 0)


def test_it_is_lost_while_the_store_is_open() -> None:
    fs = written("disk", 1, recorded=0)
    store = open_store(fs)
    end_window(store, 1)
    taken = take_log(fs)
    store.begin_window(2)
    store.merge("w2", 1)
    for call in (store.end_window, store.end_window):
        with pytest.raises(CorruptData, match=r"epoch 3 of writer 'w'.*restore the log"):
            call()
    with pytest.raises(CorruptData, match="the log has lost its newest records"):
        store.commit()
    for path, content in taken.items():
        fs.create_exclusive(path, content)
    with open_store(fs) as again:
        assert again.last_window in {1, 2}, "what was not acknowledged may come back"


@pytest.mark.parametrize("kind", STORAGE_KINDS)
def test_windows_behind_a_record_of_an_unknown_outcome_are_no_loss(
    kind: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has the last window with changes, and not the empty one that is committed with it later."""
    fs = CrashingFileSystem(storage=kind)
    store = open_store(fs, **SHAPE)
    end_window(store, 0)
    record_without_reply(store, 0, monkeypatch)
    store.begin_window(1)
    store.end_window()
    store.committed(1)
    end_window(store, 2)
    with open_store(fs) as again:
        assert (again.recorded_window, again.last_window) == (0, 2)
        again.committed(2)
        assert keys_of(again) == ["w0", "w2"]


def test_a_record_of_an_unknown_outcome_may_have_later_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(CrashingFileSystem(), **SHAPE)
    for window in range(2):
        end_window(store, window)
    record_without_reply(store, 1, monkeypatch)
    store.committed(0)
    assert [store.read(key) for key in ("w0", "w1")] == [1, 1], "a recorded window counts once"


@pytest.mark.parametrize("content", [b"", b"{}\n", None], ids=["emptied", "replaced", "a wrong bit"])
def test_damaged_windows_are_verified(content: bytes | None) -> None:
    fs = CrashingFileSystem()
    with open_store(fs, **SHAPE) as store:
        end_window(store, 0)
        end_window(store, 1)
        store.committed(0)
    (writer,) = list_wal_writers(fs)
    path = max(info.path for info in fs.list(writer))
    assert not verify(fs).findings
    stored = bytearray(fs.read(path))
    stored[7] ^= 1
    fs.put(path, bytes(stored) if content is None else content)
    (damage,) = verify(fs).findings
    assert (damage.code, damage.path, damage.severity, damage.repair) == ("damaged-windows", path, "error", "no")


def test_windows_of_another_store_are_verified() -> None:
    """As with a store that was restored next to the log of another store."""
    paths: list[str] = []
    stores = [CrashingFileSystem() for _ in range(2)]
    for fs in stores:
        with open_store(fs, **SHAPE) as store:
            end_window(store, 0)
        (writer,) = list_wal_writers(fs)
        paths = [info.path for info in fs.list(writer)]
    (path,) = paths
    stores[0].put(path, stores[1].read(path))
    (damage,) = verify(stores[0]).findings
    assert (damage.code, damage.path) == ("damaged-windows", path)
    assert "this store" in damage.expected


def test_windows_that_are_gone_before_others_are_verified() -> None:
    fs = CrashingFileSystem()
    with open_store(fs, **SHAPE) as store:
        for window in range(3):
            end_window(store, window)
    (writer,) = list_wal_writers(fs)
    fs.delete(sorted(info.path for info in fs.list(writer))[1])
    (damage,) = verify(fs).findings
    assert (damage.code, damage.path) == ("damaged-windows", writer)
    assert "windows after 0 up to 1" in damage.expected


def test_windows_that_are_recorded_while_one_verifies_are_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = CrashingFileSystem()
    with open_store(fs, **SHAPE) as store:
        for window in range(3):
            end_window(store, window)

        def read_late(files: WalFiles, epoch: int, recorded: int) -> list[WalFile]:
            if recorded < 0:
                store.committed(0)
            return read_wal(files, epoch, recorded)

        monkeypatch.setattr(opening, "read_wal", read_late)
        assert not verify(fs).findings


@pytest.mark.slow
def test_what_tells_of_it_is_written_behind_each_record() -> None:
    fs = CrashingFileSystem()
    with open_store(fs, **SHAPE) as store:
        for window in range(10):
            end_window(store, window)
            store.committed(window)
            hint = read_published(fs)
            assert hint is not None
            assert layout.record_path(hint.version) == max(info.path for info in fs.list(layout.LOG))
