"""Test cases of Apex Malhar's `FSWindowDataManagerTest` (WDM) and `FileSystemWALTest` (WAL), by the ids of the tables.

A window is a plan. An operator is a source. The largest completed window is the newest plan, and `committed` is
`commit`.
"""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import CorruptData, StateLost
from ftfile.log.format import layout
from ftfile.source.known_files import KnownFiles
from ftfile.source.plan import PlanPosition
from ftfile.source.plan_log import PlanLog
from ftfile.testing.fs.memory import RootedFileSystem
from ftfile.testing.source_run import Killed
from tests.kit.parameters import parametrize
from tests.kit.plan_check import read_plans
from tests.unit.source.plans import Source, add_plans, begin, driver, plan_of, small_bounds

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.testing.fs.memory import MemoryFileSystem

pytestmark = pytest.mark.usefixtures("nobody_waits")


def operator(fs: MemoryFileSystem, number: int) -> PlanLog:
    """Return the log of one source. Several sources have the same location."""
    log_id = f"{number:032x}"
    return PlanLog(RootedFileSystem(fs, log_id), log_id, "run")


def first_of(log: PlanLog) -> PlanPosition:
    return PlanPosition(log.id, -1, "")


def read_all(log: PlanLog, positions: list[PlanPosition], first: int = 0) -> list[int]:
    """Return the numbers of the plans that are read, from one plan on."""
    found = []
    for number in range(first, len(positions)):
        plan = log.read(positions[number], positions[number - 1] if number else None)
        assert plan == plan_of(number)
        found.append(plan.ranges[0].start // 10)
    return found


def test_wdm_1_nothing_saved(fs: MemoryFileSystem) -> None:
    log = driver(fs)
    assert log.position_after(begin()) is None
    assert log.head == begin()
    assert log.head is not None
    assert log.head.plan == -1


def test_wdm_2_what_is_saved_is_retrieved(fs: MemoryFileSystem) -> None:
    """Each of several operators reads its own plan."""
    saved = {}
    for number in range(1, 4):
        log = operator(fs, number)
        saved[number] = log.add(first_of(log), plan_of(0, ranges=number))
    for number, position in saved.items():
        assert operator(fs, number).read(position, None) == plan_of(0, ranges=number)


def test_wdm_3_of_two_operators_one_is_ahead(tmp_path: Path) -> None:
    """A query with two sources died after one had planned. The plan is reused, and the other source skips no plan."""
    (tmp_path / "other").mkdir()
    source, other = Source(tmp_path), Source(tmp_path / "other")
    other.state = source.state
    first, second = source.query(), other.query()
    for run, lines in ((first, source), (second, other)):
        lines.add("a")
        run.run()
        lines.add("a")
    first.kill_at = "planned"
    with pytest.raises(Killed):
        first.run()
    source.add("a")
    other.add("a")
    assert first.run() == 2
    assert second.run() == 1
    source.check(first)
    other.check(second)


@pytest.mark.parametrize("number", [1, 2])
def test_wdm_4_committed_windows_go_for_every_operator(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    small_bounds(monkeypatch, 0)
    logs = {each: operator(fs, each) for each in (1, 2)}
    heads = {each: add_plans(log, 12, first_of(log))[-1] for each, log in logs.items()}
    logs[number].commit(heads[number])
    found = {each: read_plans(RootedFileSystem(fs, log.id)) for each, log in logs.items()}
    assert all(each.state.log_start > 1 for each in found.values())
    assert all(11 in each.plans for each in found.values())
    for each, log in logs.items():
        assert not fs.exists(f"{log.id}/{layout.record_path(0)}"), each


@pytest.mark.parametrize("name", ["x.tmp", f"_{12:020d}.record.abc.tmp"])
def test_wdm_5_wal_7_what_a_dead_writer_left_is_no_plan(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The file does not disturb later plans. Trimming does not delete a file whose name is not the name of a record."""
    small_bounds(monkeypatch, 0)
    positions = add_plans(driver(fs), 12)
    fs.create_exclusive(f"{layout.LOG}/{name}", b'{"ftfileRecord":1')
    log = driver(fs)
    assert log.position_after(positions[-1]) is None
    add_plans(log, 6, positions[-1])
    assert fs.exists(f"{layout.LOG}/{name}")


def test_wdm_6_an_absolute_location_is_used_as_it_is(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.add("a")
    run = source.query()
    run.run()
    assert source.log_of(run).is_dir()
    (tmp_path / "checkpoint").mkdir()
    below = source.query(checkpointLocation=str(tmp_path / "checkpoint"))
    below.options = {name: value for name, value in below.options.items() if name != "stateLocation"}
    below.run()
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["ftfile-source"]
    source.check(run)


def test_wal_1_a_driver_is_known_by_its_position_alone(fs: MemoryFileSystem) -> None:
    positions = pickle.loads(pickle.dumps(add_plans(driver(fs), 5)))
    assert driver(fs).position_after(positions[3]) == positions[4]


@pytest.mark.parametrize(("first", "count"), [(0, 100), (70, 30)])
def test_wal_2_a_hundred_entries_and_those_behind_seventy(fs: MemoryFileSystem, first: int, count: int) -> None:
    positions = add_plans(driver(fs), 100)
    assert read_all(driver(fs), positions, first) == [*range(first, first + count)]


def test_wal_3_reading_across_checkpoints_and_companions(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    small_bounds(monkeypatch, 1000)
    monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 100)
    positions = add_plans(driver(fs), 40)
    listed = [info.path for info in fs.list(layout.LOG)]
    assert len([path for path in listed if path.endswith(".changes")]) == 40
    assert len(fs.list(layout.CHECKPOINTS)) == 2
    assert read_all(driver(fs), positions) == [*range(40)]


def test_wal_4_half_a_record_is_damage_and_no_end(fs: MemoryFileSystem) -> None:
    """Records are created atomically, so a crash cannot leave a part of a record: a cut record was damaged later."""
    positions = add_plans(driver(fs), 3)
    path = layout.record_path(2)
    fs.put(path, fs.read(path)[:-20])
    with pytest.raises(CorruptData):
        driver(fs).position_after(positions[1])


def test_wal_5_nothing_goes_before_it_is_committed(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    small_bounds(monkeypatch, 0)
    log, position, positions = driver(fs), begin(), []
    for number in range(12):
        position = log.add(position, plan_of(number))
        positions.append(position)
    assert len(read_plans(fs).plans) == 12
    for _ in range(3):
        log.commit(positions[5])
        position = log.add(position, plan_of(position.plan + 1))
    assert read_plans(fs).state.log_start <= 5
    assert read_all(driver(fs), positions, 6) == [*range(6, 12)]


def test_wal_6_entries_behind_the_checkpoint_come_again_and_writing_goes_on(fs: MemoryFileSystem) -> None:
    """The later plans are not deleted, because another driver may have read them already."""
    positions = add_plans(driver(fs), 5)
    log = driver(fs)
    assert [log.position_after(position) for position in positions[2:4]] == positions[3:]
    assert log.add(positions[2], plan_of(77)) == positions[3]
    assert log.add(positions[4], plan_of(5)).plan == 5
    assert read_all(driver(fs), positions) == [*range(5)]


def test_wal_8_a_reader_survives_trimming(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    small_bounds(monkeypatch, 2)
    positions = add_plans(driver(fs), 4)
    reader = driver(fs)
    assert reader.position_after(positions[2]) == positions[3]
    positions += add_plans(driver(fs), 20, positions[-1])
    assert reader.read(positions[3], positions[2]) == plan_of(3)  # the reader had read up to this plan
    with pytest.raises(StateLost, match="is missing"):
        driver(fs).read(positions[3], positions[2])
    assert reader.read(positions[-1], positions[-2]) == plan_of(23)


@parametrize("count", range(8, 16), quick=3)
def test_wal_9_the_head_is_cut_off_wherever_it_is(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """With a checkpoint at the head, and without: the remaining plans and the known files do not change."""
    small_bounds(monkeypatch, 0)
    positions = add_plans(driver(fs), count)
    start = read_plans(fs).state.log_start
    assert start
    assert read_all(driver(fs), positions, start) == [*range(start, count)]
    known = KnownFiles()
    for number in range(count):
        known = known.apply(plan_of(number))
    log = driver(fs)
    assert log.position_after(positions[-1]) is None
    assert log.read_known().to_bytes() == known.to_bytes()


def test_wal_10_positions_are_in_the_order_of_plans(fs: MemoryFileSystem) -> None:
    positions = add_plans(driver(fs), 12)
    assert all(one < other for one, other in itertools.pairwise(positions))
