"""The log of windows: what was synced comes back, in the files that count, whatever stopped the process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ftfile.core.errors import CorruptData, FtfileError, StorageError
from ftfile.filters.chain import Chain
from ftfile.kv.definition import define
from ftfile.kv.operator.wal import FileCodec, Wal
from ftfile.kv.operator.windows import Buffer, Window
from ftfile.log.format import layout
from ftfile.log.wal import list_wal
from ftfile.testing.fs.crashing import CrashingFileSystem, crash_states, kill_states
from ftfile.testing.fs.faulty import STANDARD_FAULTS
from ftfile.testing.sweep import fault_sweep

if TYPE_CHECKING:
    from ftfile.storage.api import FileSystem
    from ftfile.testing.fs.crashing import CrashState, KillState
    from ftfile.testing.fs.faulty import Fault
    from ftfile.testing.fs.volume import Store

DEFINITION = define(pa.schema([("key", pa.binary()), ("value", pa.int64())]), ["key"], merge="sum")
STORES: list[Store] = ["disk", "hdfs", "s3"]


def new_store(store: Store = "disk") -> CrashingFileSystem:
    fs = CrashingFileSystem(store=store)
    fs.make_directories(layout.META)
    for directory in (layout.META, ""):
        fs.sync_directory(directory)
    return fs


def wal_of(fs: FileSystem, epoch: int = 1, max_file_bytes: int = 1 << 20) -> Wal:
    return Wal(fs, "w", epoch, FileCodec(fs, "w", Chain(), DEFINITION), max_file_bytes)


def back(fs: FileSystem, recorded: int = -1, up_to: int | None = None) -> list[Window]:
    """Return the windows that would come back."""
    return FileCodec(fs, "w", Chain(), DEFINITION).read_chain(recorded, up_to).windows


def window(number: int, keys: int = 1) -> Window:
    buffer = Buffer()
    for place in range(keys):
        buffer.put((b"%d/%d" % (number, place),), (number,))
    buffer.delete((b"gone",))
    buffer.merge((b"sum",), (number,))
    buffer.purge((b"p%d" % number,), (b"q",))
    return Window(number, buffer.to_rows(DEFINITION), buffer.purges)


def told(windows: list[Window]) -> list[tuple[int, list[dict[str, object]], object]]:
    return [(each.number, each.rows.to_pylist(), each.purges) for each in windows]


@pytest.mark.parametrize("store", STORES)
def test_windows_come_back_until_they_are_recorded(store: Store) -> None:
    fs = new_store(store)
    wal = wal_of(fs)
    assert wal.recover(-1) == []
    for number in (3, 4, 7):
        wal.append([window(number, number)])
    for recorded, expected in ((-1, [3, 4, 7]), (3, [4, 7]), (5, [7]), (7, [])):
        assert told(back(fs, recorded)) == told([window(number, number) for number in expected])


def test_hd_10_files_roll() -> None:
    fs = new_store()
    wal = wal_of(fs, max_file_bytes=1024)
    for number in range(8):
        wal.append([window(number)])
    names = list_wal(fs, "w")
    assert len(names) > 2
    assert [name.number for name in names] == [*range(len(names))]
    assert [each.number for each in back(fs)] == [*range(8)]


@pytest.mark.parametrize("store", STORES)
def test_hd_12_files_of_recorded_windows_go(store: Store) -> None:
    fs = new_store(store)
    wal = wal_of(fs, max_file_bytes=1)
    for number in range(6):
        wal.append([window(number)])
    assert len(list_wal(fs, "w")) == 6
    wal.trim(2)
    assert [name.number for name in list_wal(fs, "w")] == [3, 4, 5]
    assert [each.number for each in back(fs, 2)] == [3, 4, 5]
    wal.trim(5)
    wal.close(5)
    assert list_wal(fs, "w") == []


def test_hd_14_a_restore_after_a_file_ended_with_its_window() -> None:
    fs = new_store()
    for up_to in range(4):
        wal = wal_of(fs, 2 * up_to + 1, max_file_bytes=1)
        assert [each.number for each in wal.recover(-1)] == [*range(up_to)]
        wal.append([window(up_to)])
        assert [each.number for each in wal_of(fs, 2 * up_to + 2).recover(-1, up_to)] == [*range(up_to + 1)]


@pytest.mark.parametrize("store", STORES)
def test_what_a_restore_leaves_out_never_comes_back(store: Store) -> None:
    fs = new_store(store)
    wal = wal_of(fs)
    for number in range(5):
        wal.append([window(number)])
    second = wal_of(fs, 2)
    assert [each.number for each in second.recover(-1, 2)] == [0, 1, 2]
    assert [each.number for each in back(fs)] == [0, 1, 2]
    third = wal_of(fs, 4)
    third.recover(-1)
    third.append([window(9)])
    wal.append([window(5)])  # by the first process, which does not know yet
    fourth = wal_of(fs, 5)
    assert [each.number for each in fourth.recover(-1)] == [0, 1, 2, 9]
    fourth.append([window(10)])
    fourth.trim(9)
    assert [each.number for each in back(fs, 9)] == [10]


@pytest.mark.parametrize("store", ["disk", "hdfs"])
def test_19_a_window_that_is_torn_was_not_acknowledged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    fs = new_store(store)
    wal = wal_of(fs)
    wal.append([window(1)])
    path = layout.wal_path("w", list_wal(fs, "w")[0])
    acknowledged = len(fs.read(path))
    wal.append([window(2)])
    whole = fs.read(path)
    for length in range(acknowledged, len(whole)):
        caplog.clear()
        fs.put(path, whole[:length])
        with caplog.at_level(logging.WARNING):
            assert [each.number for each in back(fs)] == [1]
        assert ("never acknowledged" in caplog.text) == (length > acknowledged)
    second = wal_of(fs, 2)
    second.recover(-1)
    second.append([window(2)])
    second.append([window(3)])
    assert [each.number for each in back(fs)] == [1, 2, 3]


def test_20_damage_before_is_an_error() -> None:
    fs = new_store()
    wal = wal_of(fs, max_file_bytes=1)
    for number in (1, 2, 3):
        wal.append([window(number)])
    first = layout.wal_path("w", list_wal(fs, "w")[0])
    whole = fs.read(first)
    for place in range(0, len(whole), 7):
        fs.put(first, whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(CorruptData, match="wal"):
            back(fs)
    fs.delete(first)
    with pytest.raises(CorruptData, match="no file"):
        back(fs)
    assert [each.number for each in back(fs, 1)] == [2, 3]


def test_what_was_not_synced_is_durable_once_it_came_back() -> None:
    """A process is killed between a write and its sync; what the next one reads, a power cut must not take."""
    fs = new_store()
    wal = wal_of(fs)
    wal.append([window(1)])
    wal.append([window(2)])
    points = [number for number, step in enumerate(fs.journal) if step.kind == "write" and step.path.endswith("wal")]
    left = fs.after_kill(points[-1] + 1)
    assert [each.number for each in wal_of(left, 2).recover(-1)] == [1, 2]
    left.note("came back")
    for state in crash_states(left):
        found = [each.number for each in back(state.filesystem())]
        assert found == [1, 2] or "came back" not in state.notes


def play(fs: CrashingFileSystem) -> None:
    """Write, roll, restore, and trim; note each window that is acknowledged, and each that is recorded."""
    wal = wal_of(fs, max_file_bytes=600)
    wal.recover(-1)
    for number in range(4):
        wal.append([window(number)])
        fs.note(f"synced {number}")
    fs.note("recorded 1")
    wal.trim(1)
    second = wal_of(fs, 2)
    fs.note("cut 2")
    assert [each.number for each in second.recover(1, 2)] == [2]
    fs.note("restored 2")
    second.append([window(5)])
    fs.note("synced 5")
    fs.note("recorded 5")
    second.close(5)


def expect(notes: tuple[str, ...]) -> tuple[set[int], set[int], int]:
    """The windows that must come back, those that may, and the last recorded one."""
    must: set[int] = set()
    may: set[int] = set()
    recorded = -1
    for note in notes:
        what, number = note.split()
        if what == "synced":
            must.add(int(number))
        elif what == "recorded":
            recorded = int(number)
        elif what == "cut":
            may |= {each for each in must if each > int(number)}
            must -= may
        else:
            may = set()
    return {each for each in must if each > recorded}, may, recorded


@pytest.mark.parametrize("store", STORES)
def test_k9_a_synced_window_survives_every_crash(store: Store) -> None:
    fs = new_store(store)
    first = len(fs.journal)
    play(fs)
    every: list[CrashState | KillState] = [*crash_states(fs), *kill_states(fs)]
    states = [state for state in every if state.point >= first]
    assert len(states) > 20
    for state in states:
        must, may, recorded = expect(state.notes)
        left = state.filesystem()
        wal = wal_of(left, 3)
        found = {each.number for each in wal.recover(recorded)}
        synced_next = {0, 1, 2, 3, 5} - {int(note.split()[1]) for note in state.notes if note.startswith("synced")}
        assert must <= found, f"{state}: {must - found} are gone"
        assert found <= must | may | {min(synced_next, default=0)}, f"{state}: {found} came back"
        wal.append([window(20)])
        assert {each.number for each in back(left, recorded)} == {*found, 20}, state


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("fault", STANDARD_FAULTS, ids=str)
def test_a_window_whose_writing_fails_is_given_again(store: Store, fault: Fault) -> None:
    acknowledged: list[int] = []

    def scenario(fs: FileSystem) -> None:
        acknowledged.clear()
        wal = wal_of(fs, max_file_bytes=600)
        failure: FtfileError | None = None
        try:
            wal.recover(-1)
        except StorageError:
            wal.recover(-1)
        for number in range(4):
            try:
                wal.append([window(number)])
            except StorageError as error:
                failure = error
                wal.append([window(number)])
            acknowledged.append(number)
            wal.trim(0)
        if failure is not None:
            raise failure

    runs = 0
    for run in fault_sweep(fault, lambda: new_store(store), scenario):
        runs += 1
        assert acknowledged == [*range(4)], str(run)
        assert [each.number for each in back(run.file_system, 0)] == [1, 2, 3], str(run)
    assert runs > 10


def test_a_window_that_was_taken_back_is_another_one_when_it_comes_again() -> None:
    for store in STORES:
        fs = new_store(store)
        wal = wal_of(fs)
        wal.append([window(1)])
        wal.append([window(2)])
        wal.take_back(1)
        wal.append([window(2, keys=5)])
        assert told(back(fs)) == told([window(1), window(2, keys=5)])
