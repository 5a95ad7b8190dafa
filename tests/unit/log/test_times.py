"""Times of versions: by the storage's clock, independent of the authors' clocks, also in copies."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ftfile
from ftfile.core.errors import ConfigError, HistoryGone, OutOfSpace
from ftfile.log.commit_log import PLANS_LAYOUT, CommitLog
from ftfile.log.format import layout
from ftfile.log.places import walk
from ftfile.log.read import times as reading
from ftfile.log.read.times import COPIED_MS, first_since, time_of, version_at
from ftfile.log.records import CLOCK_ERROR_MS, StorageClock
from ftfile.testing.context import ManualClock, SeededIds, current, open_filesystem, repeatable
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.file_writer import forget_caches
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ftfile.testing.fs.volume import VolumeFileSystem

START_MS, HOUR_MS = 1_700_000_000_000, 3_600_000
CLOCKS = {
    "right": (0.0, 0.0, 0.0, 0.0),
    "ahead": (8.0, 8.0, 8.0, 8.0),
    "behind": (-8.0, -8.0, -8.0, -8.0),
    "apart": (0.0, -8.0, 8.0, 0.0),
    "seconds apart": (0.002, -0.002, 0.0, 0.002),
}


@pytest.fixture
def storage() -> Iterator[MemoryFileSystem]:
    """A storage system with a separate clock."""
    yield MemoryFileSystem("times", clock=ManualClock(START_MS))
    MemoryFileSystem.drop("times")
    forget_caches()


def clock_of(storage: VolumeFileSystem) -> ManualClock:
    clock = storage._volume.clock  # noqa: SLF001 - the storage's clock, not that of its users
    assert isinstance(clock, ManualClock)
    return clock


def write(storage: MemoryFileSystem, hours_ahead: tuple[float, ...]) -> None:
    """Commit version n at hour n of the storage's clock, each by a process with another clock. Version 2 is a drop."""
    ids = SeededIds()
    for number, ahead in enumerate(hours_ahead):
        clock_of(storage).set(START_MS + number * HOUR_MS)
        forget_caches()
        author = ManualClock(START_MS + int((number + ahead) * HOUR_MS))
        with mounted(storage) as url, repeatable(author, ids) as context:
            if number == 2:
                ftfile.drop(url, {"id": 0}, context=context)
                continue
            query = MicroBatch(url, {"id": "long", "n": "long"}, {"partitionBy": "id"}, query_id="q")
            query.run(min(number, 2), [[{"id": number, "n": number}]])


def on_disk(storage: MemoryFileSystem, path: Path) -> Path:
    """Return the directory as a disk with the storage's clock has it."""
    for name, info in walk(storage, "").items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(storage.read(name))
        os.utime(path / name, ns=(info.modified_ms * 1_000_000,) * 2)
    for directory in layout.DIRECTORIES:
        (path / directory).mkdir(exist_ok=True)
    return path


def uploaded(path: Path, target: Path) -> Path:
    """Return a copy as object stores have it: each file is as old as its upload, one after the other, in any order."""
    shutil.copytree(path, target, copy_function=shutil.copyfile)
    for number, file in enumerate(sorted(target.rglob("*"), reverse=True)):
        if file.is_file():
            os.utime(file, ns=((START_MS + 100 * HOUR_MS + number * 1000) * 1_000_000,) * 2)
    return target


def copied(path: Path, target: Path) -> Path:
    return shutil.copytree(path, target, copy_function=shutil.copy)


def text_at(hours: float) -> str:
    return dt.datetime.fromtimestamp((START_MS + hours * HOUR_MS) / 1000, dt.timezone.utc).isoformat()


def check_times(path: Path) -> None:
    """Check that each version is found by the time that the storage's clock showed, within some seconds."""
    directory = ftfile.open(path)
    for version in range(4):
        for hours in (0.01, 0.5, 0.99):
            assert directory.version_at(text_at(version + hours)) == version
    with pytest.raises(ConfigError, match="no version is as old as"):
        directory.version_at(text_at(-0.01))
    times = [(entry.time_ms - START_MS) / HOUR_MS for entry in directory.history()]
    assert times == pytest.approx(range(4), abs=0.01)
    assert (directory.status().time_ms or 0) / 1000 == pytest.approx((START_MS + 3 * HOUR_MS) / 1000, abs=20)
    assert directory.version_details(1).commit.time_ms == directory.history()[1].time_ms


@parametrize("clocks", CLOCKS, quick=1)
@pytest.mark.parametrize("copy", [None, copied, uploaded])
def test_versions_are_found_by_their_times(
    storage: MemoryFileSystem, tmp_path: Path, clocks: str, copy: Callable[[Path, Path], Path] | None
) -> None:
    write(storage, CLOCKS[clocks])
    path = on_disk(storage, tmp_path / "original")
    check_times(path if copy is None else copy(path, tmp_path / "copy"))


@pytest.mark.slow
def test_a_copy_goes_on(storage: MemoryFileSystem, tmp_path: Path) -> None:
    write(storage, CLOCKS["right"])
    path = copied(on_disk(storage, tmp_path / "original"), tmp_path / "copy")
    query = MicroBatch(str(path), {"id": "long", "n": "long"}, {"partitionBy": "id"}, query_id="q")
    query.run(3, [[{"id": 9, "n": 9}]])
    directory = ftfile.open(path)
    assert [directory.version_at(text_at(hours)) for hours in (0.5, 3.5)] == [0, 3]
    assert directory.version_at("2999-01-01") == 4
    restored = ftfile.restore(path, timestamp=text_at(1.5), dry_run=False)
    assert restored.restored_version == 1
    assert sorted(row["id"] for row in ftfile.open(path).to_arrow().to_pylist()) == [0, 1]


def test_a_vacuum_of_a_copy_takes_what_is_copied_for_young(storage: MemoryFileSystem, tmp_path: Path) -> None:
    """The modification times of the files, not the records, determine the versions that can still be read."""
    write(storage, CLOCKS["right"])
    original = on_disk(storage, tmp_path / "original")
    copy = copied(original, tmp_path / "copy")
    assert ftfile.vacuum(original, retention="1d").files
    assert ftfile.vacuum(copy, retention="1d").files == ()


@pytest.mark.slow
def test_what_is_vacuumed_is_not_promised_by_a_copy(storage: MemoryFileSystem, tmp_path: Path) -> None:
    write(storage, CLOCKS["right"])
    original = on_disk(storage, tmp_path / "original")
    ftfile.vacuum(original, retention="1d", dry_run=False)
    copy = copied(original, tmp_path / "copy")
    assert ftfile.open(copy).oldest_version() == ftfile.open(original).oldest_version() > 0


class TestStorageClockThatIsSetBack:
    """By NTP, or since another NameNode answers, or the machine moved."""

    def written(self, storage: MemoryFileSystem, steps_s: Sequence[int]) -> list[int]:
        """Commit one version after each step of the storage's clock, and return their times."""
        clock = clock_of(storage)
        times = []
        with mounted(storage) as url, repeatable(clock):
            query = MicroBatch(url, {"id": "long", "n": "long"}, {}, query_id="q")
            for number, step_s in enumerate(steps_s):
                clock.set(clock.now_ms() + step_s * 1000)
                query.run(number, [[{"id": number, "n": 0}]])
                times.append(clock.now_ms())
        return times

    @settings(max_examples=30)
    @given(st.lists(st.sampled_from([1, 1, 5, 60, 700, -1, -30, -3600]), min_size=1, max_size=40), st.integers(0, 40))
    def test_versions_are_found_by_their_times(self, steps_s: list[int], place: int) -> None:
        # The clock is set back once, and rises by the other steps.
        steps = [
            step if step > 0 or number == steps_s.index(min(steps_s)) else 1 for number, step in enumerate(steps_s)
        ]
        storage = MemoryFileSystem("set back", clock=ManualClock(START_MS))
        times = self.written(storage, steps)
        log = CommitLog(storage)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "THREADS_MAX", 2)  # fewer than the versions of an hour
            self.check(log, times, times[place % len(times)])
        MemoryFileSystem.drop("set back")

    def check(self, log: CommitLog, times: list[int], time_ms: int) -> None:
        time = dt.datetime.fromtimestamp(time_ms / 1000, dt.timezone.utc)
        assert version_at(log, time) == max(version for version, at_ms in enumerate(times) if at_ms <= time_ms)
        assert first_since(log, time) == min(version for version, at_ms in enumerate(times) if at_ms >= time_ms)

    @pytest.mark.parametrize("back_s", [1, 30, 3600])
    def test_what_is_vacuumed_is_not_promised(self, storage: MemoryFileSystem, back_s: int) -> None:
        """The versions before the clock is set back lie in its future, and are vacuumed."""
        clock = clock_of(storage)
        rows: dict[int, list[int]] = {}
        with mounted(storage) as url, repeatable(clock):
            query = MicroBatch(url, {"id": "long", "n": "long"}, {"partitionBy": "id"}, query_id="q")

            def write(batch: int, then_s: int) -> None:
                query.run(batch, [[{"id": batch, "n": 0}]])
                clock.advance(then_s)
                directory = ftfile.open(url, context=current())
                rows[directory.version()] = sorted(directory.to_arrow().column("id").to_pylist())
                if batch:
                    ftfile.drop(url, {"id": batch - 1}, context=current())
                    clock.advance(then_s)

            for batch in range(6):
                write(batch, 5)
            clock.set(clock.now_ms() - back_s * 1000)
            for batch in range(6, 9):
                write(batch, 2)
            retired = len(storage.list(layout.RETIRED))
            ftfile.vacuum(url, retention="1s", force=True, dry_run=False, context=current())
            assert len(storage.list(layout.RETIRED)) < retired
            directory = ftfile.open(url, context=current())
            oldest = directory.oldest_version()
            assert directory.status().oldest_readable == oldest
            for version, ids in rows.items():
                if version >= oldest:
                    assert sorted(directory.to_arrow(version).column("id").to_pylist()) == ids
                else:
                    with contextlib.suppress(HistoryGone):
                        directory.to_arrow(version)

    def test_a_restore_takes_no_file_that_a_vacuum_deletes(self, storage: MemoryFileSystem) -> None:
        """It plans between the record of the vacuum and its deletions."""
        clock = clock_of(storage)
        with mounted(storage) as url, repeatable(clock):
            query = MicroBatch(url, {"id": "long", "n": "long"}, {"partitionBy": "id"}, query_id="q")
            for batch in range(6):
                query.run(batch, [[{"id": batch, "n": 0}]])
                clock.advance(5)
            ftfile.drop(url, {"id": 0}, context=current())
            clock.set(clock.now_ms() - 29_000)
            query.run(6, [[{"id": 6, "n": 0}]])
            clock.advance(1)
            query.run(7, [[{"id": 7, "n": 0}]])
            retired = storage.list(layout.RETIRED)
            contents = [(info.path, storage.read(info.path)) for info in retired]
            ftfile.vacuum(url, retention="1s", force=True, dry_run=False, context=current())
            for path, content in contents:
                if not storage.exists(path):
                    storage.create_exclusive(path, content)  # as long as the vacuum has not deleted it
            with pytest.raises(HistoryGone, match="1 of its files were vacuumed"):
                ftfile.restore(url, version=5, dry_run=False, context=current())


class TestStorageClock:
    def test_it_is_that_of_the_machine_while_they_agree(self, storage: MemoryFileSystem) -> None:
        clock = clock_of(storage)
        with mounted(storage) as url, repeatable(ManualClock(START_MS + CLOCK_ERROR_MS)):
            fs = open_filesystem(url)
            assert StorageClock(fs).time_at(START_MS + CLOCK_ERROR_MS) is None
            clock.set(START_MS - 1)
            assert StorageClock(fs).time_at(START_MS + CLOCK_ERROR_MS) == START_MS - 1

    def test_it_is_looked_at_again_when_the_machine_was_set_right(self, storage: MemoryFileSystem) -> None:
        clock = clock_of(storage)
        machine = _SetClock(START_MS - 8 * HOUR_MS)
        with mounted(storage) as url, repeatable(machine):
            storage_clock = StorageClock(open_filesystem(url))
            assert storage_clock.time_at(machine.now_ms()) == START_MS
            machine.advance(60)
            assert storage_clock.time_at(machine.now_ms()) == START_MS + 60_000, (
                "without a look: the storage's own stands still"
            )
            clock.set(START_MS + 120_000)
            machine.set_right(START_MS + 120_000)
            assert storage_clock.time_at(machine.now_ms()) is None

    def test_storage_that_does_not_tell_fails_no_commit(self, storage: MemoryFileSystem) -> None:
        faulty = FaultyFileSystem(storage, [Fault(OutOfSpace, operations=frozenset({"put"}))])
        with mounted(faulty) as url, repeatable(ManualClock(START_MS + HOUR_MS)):
            clock = StorageClock(open_filesystem(url))
            assert clock.time_at(START_MS + HOUR_MS) is None
            assert clock.time_at(START_MS + HOUR_MS) == START_MS, "and it is asked again"


class _SetClock(ManualClock):
    """A wall clock that somebody sets."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self._set_by_ms = 0.0

    def set_right(self, now_ms: int) -> None:
        self._set_by_ms += now_ms - self.now_ms()
        self.set(now_ms)

    def monotonic_s(self) -> float:
        return super().monotonic_s() - self._set_by_ms / 1000


@pytest.mark.parametrize(("late_ms", "is_copy"), [(-HOUR_MS, False), (COPIED_MS, False), (COPIED_MS + 1, True)])
def test_a_file_that_is_much_younger_than_its_record_is_a_copy(late_ms: int, is_copy: bool) -> None:
    assert time_of(START_MS, START_MS + late_ms) == (START_MS if is_copy else START_MS + late_ms)


def test_logs_of_plans_have_no_clock_of_storage(storage: MemoryFileSystem) -> None:
    assert CommitLog(storage, layout_line=PLANS_LAYOUT).storage_clock is None
    assert CommitLog(storage).storage_clock is not None
