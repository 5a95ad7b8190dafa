"""The log of windows: acknowledged windows are read back from the valid files, after any stop of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ftfile.core.errors import AlreadyExists, CorruptData, Fenced, FtfileError, OutcomeUnknown, StorageError
from ftfile.filters.chain import Chain
from ftfile.kv.definition import define
from ftfile.kv.operator.wal import Wal, read_wal
from ftfile.kv.operator.windows import Buffer, Window
from ftfile.log.format import layout
from ftfile.log.format.layout import WalName
from ftfile.log.wal import WalFiles, list_wal
from ftfile.testing.fs.crashing import CrashingFileSystem, crash_states, kill_states
from ftfile.testing.fs.faulty import STANDARD_FAULTS, fault_sweep
from tests.unit.kv.operator.stores import UnsyncedDisk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.storage.api import FileSystem
    from ftfile.testing.fs.crashing import CrashState, KillState
    from ftfile.testing.fs.faulty import Fault
    from ftfile.testing.fs.volume import Storage

DEFINITION = define(pa.schema([("key", pa.binary()), ("value", pa.int64())]), ["key"], merge="sum")
STORAGE_KINDS: list[Storage] = ["disk", "hdfs", "s3"]


def new_store(storage: Storage = "disk") -> CrashingFileSystem:
    fs = CrashingFileSystem(storage=storage)
    fs.make_directories(layout.META)
    for directory in (layout.META, ""):
        fs.sync_directory(directory)
    return fs


def wal_of(fs: FileSystem, epoch: int = 1, recorded: int = -1, windows: Sequence[Window] = ()) -> Wal:
    """Return the log of windows of a process that took some over."""
    wal = Wal(WalFiles(fs, "w", Chain(), "id"), epoch, DEFINITION, recorded)
    wal.begin(windows)
    return wal


def back(fs: FileSystem, recorded: int = -1, epoch: int = 1) -> list[Window]:
    """Return the windows that would come back, if the log names an epoch."""
    return [window for file in read_wal(WalFiles(fs, "w", Chain(), "id"), epoch, recorded) for window in file.windows]


def append(wal: Wal, *windows: Window) -> None:
    wal.append(windows, lambda: None)


def append_in_vain(wal: Wal, *windows: Window) -> None:
    """Append windows that are not acknowledged."""

    def fail() -> None:
        raise Fenced("no")

    last = wal.last
    with pytest.raises(Fenced):
        wal.append(windows, fail)
    assert wal.last == last


def window(number: int, keys: int = 1) -> Window:
    buffer = Buffer()
    for place in range(keys):
        buffer.put((b"%d/%d" % (number, place),), (number,))
    buffer.delete((b"gone",))
    buffer.merge((b"sum",), (number,))
    buffer.purge((b"p%d" % number,), (b"q",))
    return Window(number, buffer.to_rows(DEFINITION), buffer.purges)


def contents(windows: list[Window]) -> list[tuple[int, list[dict[str, object]], object]]:
    return [(each.number, each.rows.to_pylist(), each.purges) for each in windows]


def numbers(windows: list[Window]) -> list[int]:
    return [each.number for each in windows]


@pytest.mark.parametrize("storage", STORAGE_KINDS)
def test_windows_come_back_until_they_are_recorded(storage: Storage) -> None:
    fs = new_store(storage)
    wal = wal_of(fs)
    for number in (3, 4, 7):
        append(wal, window(number, number))
    for recorded, expected in ((-1, [3, 4, 7]), (3, [4, 7]), (5, [7]), (7, [])):
        assert contents(back(fs, recorded)) == contents([window(number, number) for number in expected])


@pytest.mark.parametrize("storage", STORAGE_KINDS)
def test_hd_10_a_window_is_a_file(storage: Storage) -> None:
    fs = new_store(storage)
    wal = wal_of(fs)
    for number in range(8):
        append(wal, window(number))
        assert wal.last == number
    assert list_wal(fs, "w") == [(1, number) for number in range(1, 9)]
    assert contents(back(fs)) == contents([window(number) for number in range(8)])


@pytest.mark.parametrize("storage", STORAGE_KINDS)
def test_hd_12_files_of_recorded_windows_go(storage: Storage) -> None:
    fs = new_store(storage)
    wal = wal_of(fs, windows=[window(0), window(1)])
    for number in range(2, 6):
        append(wal, window(number))
    for recorded, files in ((0, [0, 1, 2, 3, 4]), (2, [2, 3, 4]), (5, [])):
        wal.trim(recorded)
        assert list_wal(fs, "w") == [(1, number) for number in files]
        assert numbers(back(fs, recorded)) == [*range(recorded + 1, 6)]
    wal.trim(8)
    append(wal, window(9))
    assert numbers(back(fs, 8)) == [9]


def test_hd_14_windows_are_taken_over_again_and_again() -> None:
    fs = new_store()
    for epoch in range(1, 5):
        wal = wal_of(fs, epoch, windows=back(fs, epoch=epoch - 1))
        append(wal, window(epoch))
        wal.trim_older()
        assert {name.epoch for name in list_wal(fs, "w")} == {epoch}
        assert numbers(back(fs, epoch=epoch)) == [*range(1, epoch + 1)]


def test_files_of_other_epochs_mean_nothing() -> None:
    fs = new_store()
    for epoch, number in ((1, 3), (2, 4), (4, 5)):
        append(wal_of(fs, epoch), window(number))
    for epoch, expected in ((1, [3]), (2, [4]), (3, []), (4, [5])):
        assert numbers(back(fs, epoch=epoch)) == expected


def test_what_was_not_acknowledged_does_not_come_back_beside_what_replaces_it() -> None:
    fs = new_store()
    wal = wal_of(fs)
    append(wal, window(1))
    append_in_vain(wal, window(2))
    append_in_vain(wal, window(2), window(3, keys=3))
    assert numbers(back(fs)) == [1, 2, 3], "nothing says yet that they were not acknowledged"
    append(wal, window(2, keys=5))
    assert contents(back(fs)) == contents([window(1), window(2, keys=5)])
    append_in_vain(wal, window(4))
    append(wal, window(6), window(7))
    assert numbers(back(fs)) == [1, 2, 6, 7]
    assert numbers(back(fs, 6)) == [7]


def test_a_file_stays_for_a_window_that_was_not_acknowledged() -> None:
    """A newer process may have taken it over."""
    fs = new_store()
    wal = wal_of(fs)
    append_in_vain(wal, window(1), window(2))
    wal.trim(1)
    assert numbers(back(fs, 1)) == [2]
    wal.trim(2)
    assert list_wal(fs, "w") == []


def test_20_windows_that_are_gone_are_an_error() -> None:
    fs = new_store()
    wal = wal_of(fs, windows=[window(1)])
    for number in (2, 3):
        append(wal, window(number))
    paths = [layout.wal_path("w", name) for name in list_wal(fs, "w")]
    for path, gone in zip(paths[:-1], ("windows after -1 up to 1", "windows after 1 up to 2"), strict=True):
        content = fs.read(path)
        fs.delete(path)
        with pytest.raises(CorruptData, match=rf"{gone}, which no record contains.*no file.*restore=-1"):
            back(fs)
        fs.create_exclusive(path, content)
    fs.delete(paths[0])
    assert numbers(back(fs, 1)) == [2, 3]


@pytest.mark.parametrize("took_over", [[], [1]])
def test_an_acknowledged_file_is_not_replaced_by_one_that_was_not(took_over: list[int]) -> None:
    """The attempt before has the same windows, with other rows."""
    fs = new_store()
    wal = wal_of(fs, windows=[window(number) for number in took_over])
    append_in_vain(wal, window(2), window(3))
    append(wal, window(2, keys=5), window(3, keys=5))
    append(wal, window(4))
    name = WalName(1, 2)
    content = fs.read(layout.wal_path("w", name))
    fs.delete(layout.wal_path("w", name))
    with pytest.raises(CorruptData, match=r"windows after .* up to 3, which no record contains"):
        back(fs)
    assert numbers(back(fs, 3)) == [4]
    fs.create_exclusive(layout.wal_path("w", name), content)
    assert contents(back(fs)[-3:]) == contents([window(2, keys=5), window(3, keys=5), window(4)])


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
def test_20_any_damage_is_an_error(number: int) -> None:
    fs = new_store()
    wal = wal_of(fs, windows=[window(1)])
    for each in (2, 3):
        append(wal, window(each))
    path = layout.wal_path("w", list_wal(fs, "w")[number])
    whole = fs.read(path)
    flipped = (whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole)))
    for damaged in [*flipped, *(whole[:length] for length in range(0, len(whole), 9)), whole + b"\n"]:
        fs.put(path, damaged)
        with pytest.raises(CorruptData, match=rf"{path}.*restore=0"):
            back(fs, 0)


def test_a_file_that_goes_while_files_are_read_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous process deletes recorded windows at any moment."""
    fs = new_store()
    wal = wal_of(fs)
    for number in (1, 2):
        append(wal, window(number))
    names = list_wal(fs, "w")
    wal.trim(1)
    monkeypatch.setattr(WalFiles, "names", lambda _: names)
    assert numbers(back(fs, 1)) == [2]


def test_a_file_whose_reply_was_lost_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = new_store()
    wal = wal_of(fs)
    create = fs.create_exclusive

    def create_twice(path: str, content: bytes) -> None:
        create(path, content)
        create(path, content)

    monkeypatch.setattr(fs, "create_exclusive", create_twice)
    append(wal, window(1))
    monkeypatch.undo()
    assert numbers(back(fs)) == [1]
    fs.create_exclusive(layout.wal_path("w", layout.WalName(1, 2)), b"another's")
    with pytest.raises(AlreadyExists):
        append(wal, window(2))
    assert wal.last == 1


def test_a_file_whose_reply_was_lost_is_as_durable_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another try finds the file under its name, which a power cut may still take."""
    fs = UnsyncedDisk()
    fs.make_directories(layout.META)
    wal = wal_of(fs)
    for directory in (layout.META, ""):
        fs.sync_directory(directory)
    create = fs.create_exclusive

    def create_twice(path: str, content: bytes) -> None:
        fs.unsynced = layout.wal_directory("w")
        with pytest.raises(OutcomeUnknown):
            create(path, content)
        fs.unsynced = None
        create(path, content)

    monkeypatch.setattr(fs, "create_exclusive", create_twice)
    append(wal, window(1))
    fs.note("acknowledged")
    states = [state for state in crash_states(fs) if "acknowledged" in state.notes]
    assert states
    assert all(numbers(back(state.filesystem())) == [1] for state in states)


def play(fs: CrashingFileSystem) -> None:
    """Write and trim, restore and write; note each window that is acknowledged, and each that is recorded."""
    wal = wal_of(fs)
    for number in range(4):
        append(wal, window(number))
        fs.note(f"synced {number}")
    fs.note("recorded 1")
    wal.trim(1)
    second = wal_of(fs, 2, 1, [each for each in back(fs, 1) if each.number <= 2])
    fs.note("taken over up to 2")
    second.trim_older()
    append(second, window(5))
    fs.note("synced 5")
    fs.note("recorded 5")
    second.trim(5)


class Expected:
    """What is known outside, from notes."""

    def __init__(self, notes: Sequence[str]) -> None:
        self.recorded, self.epoch = -1, 1
        self.acknowledged: set[int] = set()
        for note in notes:
            what, _, number = note.rpartition(" ")
            if what == "synced":
                self.acknowledged.add(int(number))
            elif what == "recorded":
                self.recorded = int(number)
            else:
                self.epoch = 2
                self.acknowledged = {each for each in self.acknowledged if each <= int(number)}
        self.acknowledged = {each for each in self.acknowledged if each > self.recorded}
        # The window in progress may exist.
        self.allowed = self.acknowledged | ({5} if self.epoch == 2 else {max(self.acknowledged, default=-1) + 1})


@pytest.mark.slow
@pytest.mark.parametrize("storage", STORAGE_KINDS)
def test_k9_a_synced_window_survives_every_crash(storage: Storage) -> None:
    fs = new_store(storage)
    first = len(fs.journal)
    play(fs)
    every: list[CrashState | KillState] = [*crash_states(fs), *kill_states(fs)]
    states = [state for state in every if state.point >= first]
    assert len(states) > 20
    for state in states:
        expected, left = Expected(state.notes), state.filesystem()
        windows = back(left, expected.recorded, expected.epoch)
        assert expected.acknowledged <= {*numbers(windows)} <= expected.allowed, f"{state}: {numbers(windows)}"
        append(wal_of(left, 3, expected.recorded, windows), window(20))
        assert contents(back(left, expected.recorded, 3)) == contents([*windows, window(20)]), state


@pytest.mark.slow
@pytest.mark.parametrize("storage", STORAGE_KINDS)
@pytest.mark.parametrize("fault", STANDARD_FAULTS, ids=str)
def test_a_window_whose_writing_fails_is_given_again(storage: Storage, fault: Fault) -> None:
    acknowledged: list[int] = []

    def scenario(fs: FileSystem) -> None:
        acknowledged.clear()
        failure: FtfileError | None = None
        wal = Wal(WalFiles(fs, "w", Chain(), "id"), 1, DEFINITION, -1)
        try:
            wal.begin([])
        except StorageError:
            wal.begin([])
        for number in range(4):
            try:
                append(wal, window(number))
            except StorageError as error:
                failure = error
                append(wal, window(number, keys=2))
            acknowledged.append(number)
            wal.trim(0)
        if failure is not None:
            raise failure

    runs = 0
    for run in fault_sweep(fault, lambda: new_store(storage), scenario):
        runs += 1
        assert acknowledged == [*range(4)], str(run)
        assert numbers(back(run.file_system, 0)) == [1, 2, 3], str(run)
    assert runs >= 8  # three to prepare, four files, one deleted
