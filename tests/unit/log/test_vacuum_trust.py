"""The inputs that vacuum trusts: records and content of files; not a momentary clock, hints, or deletions by others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.context import SYSTEM, Context
from ftfile.core.errors import CommitError, NotPublished, PermissionDenied, StaleFiles
from ftfile.log import checkpoints, garbage
from ftfile.log import publish as keeping
from ftfile.log import vacuum as vacuuming
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, Body, MaintenanceAuthor
from ftfile.log.format.version_blocks import fewest_intervals_of
from ftfile.log.protocol import commit
from ftfile.log.read.compacted_records import list_compacted
from ftfile.log.read.snapshot import take_snapshot
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, SeededIds
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from tests.unit.log.conftest import Driver
from tests.unit.log.test_vacuum import DAY_S, World, world

if TYPE_CHECKING:
    from typing import Any

    from ftfile.log.format.model import Add
    from ftfile.storage.api import Capabilities

__all__ = ("world",)

AHEAD_S = 400 * DAY_S
START_MS = 1_700_000_000_000


def versions(world: World) -> list[int]:
    names = [layout.parse_log_name(info.path) for info in world.fs.list(layout.LOG)]
    return sorted(name.version for name in names if name is not None)


def at_look(monkeypatch: pytest.MonkeyPatch, number: int, act: Any) -> None:
    """Let something happen after the vacuum has read the head for a look, and before it looks."""
    inner, looks = garbage.find_garbage, []

    def look(*args: Any, **versions: Any) -> Any:
        looks.append(args)
        if len(looks) == number:
            act()
        return inner(*args, **versions)

    monkeypatch.setattr(garbage, "find_garbage", look)


class TestClock:
    """The storage's clock is 400 days ahead for a moment."""

    def test_commits_after_one_vacuum_are_accepted(self, world: World) -> None:
        world.driver.commit_new(0)
        world.clock.advance(1)
        world.driver.stage(1)
        world.clock.advance(AHEAD_S)
        world.vacuum()
        world.clock.advance(-AHEAD_S)
        assert CommitLog(world.fs).refresh().horizon_ms < world.clock.now_ms()
        world.clock.advance(1)
        add = world.driver.commit_new(1)
        assert world.exists(add.final_path)
        check_directory(world.fs)

    def test_it_leaves_what_a_batch_is_writing(self, world: World) -> None:
        world.driver.commit_new(0)
        world.clock.advance(1)
        add = world.driver.stage(1)
        world.clock.advance(AHEAD_S)
        world.vacuum()
        world.clock.advance(1 - AHEAD_S)
        world.driver.commit(1, add)
        assert world.exists(add.final_path)

    def test_it_keeps_nothing_longer(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The vacuum's own record has a time in the future; what came before it is old in eight days."""
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
        world.driver.stage(0)
        world.driver.commit_new(0)
        world.clock.advance(AHEAD_S)
        ahead = world.vacuum().version
        assert ahead is not None
        world.clock.advance(1 - AHEAD_S)
        for batch in range(1, 8):
            world.driver.commit(batch, world.driver.stage(batch), overwrite=True)
        world.days(8)
        world.driver.commit_new(8)
        world.vacuum()
        world.vacuum()
        assert ahead < versions(world)[0] == CommitLog(world.fs).refresh().log_start
        assert world.fs.list(layout.RETIRED) == []

    def test_a_part_that_was_hidden_meanwhile_is_deleted(self, world: World) -> None:
        """On object stores, a hidden part is a copy, and has the time at which it was hidden."""
        world.driver.commit_new(0)
        world.clock.advance(AHEAD_S)
        hidden = layout.retired_path("of a removed part")
        world.fs.create_exclusive(hidden, b"row\n")
        world.clock.advance(1 - AHEAD_S)
        world.driver.commit_new(1)
        world.days(8)
        for _ in range(2):
            world.vacuum()
        assert not world.exists(hidden)

    def test_a_directory_without_records(self, world: World) -> None:
        world.driver.log.prepare_directory()
        world.clock.advance(1)
        world.driver.stage(0)
        world.clock.advance(AHEAD_S)
        world.vacuum()
        world.clock.advance(1 - AHEAD_S)
        world.driver.commit_new(0)

    def test_two_runs_free_what_is_younger_than_the_newest_record(self, world: World) -> None:
        world.driver.commit_new(0)
        world.clock.advance(1)
        lost = world.driver.stage(1)
        world.days(8)
        assert ftfile.vacuum(world.url).files == ()
        first = world.vacuum()
        assert (first.files, first.version) == ((), 1)
        assert [file.path for file in world.vacuum().files] == [lost.path]
        assert world.vacuum().version is None


@pytest.mark.parametrize("reader_s", [-7200, 0, 7200])
@pytest.mark.parametrize(("back_s", "codes"), [(0, []), (3600, ["horizon-ahead"])])
def test_a_horizon_is_compared_with_the_time_of_the_storage(reader_s: int, back_s: int, codes: list[str]) -> None:
    """Whatever the clock of the reader shows."""
    storage_clock = ManualClock(START_MS + 1)
    fs = MemoryFileSystem("ahead", clock=storage_clock)
    with mounted(fs) as url:
        Driver(fs).create_record(author=MaintenanceAuthor("vacuum", "v"), horizon_ms=START_MS)
        storage_clock.set(START_MS + 1 - back_s * 1000)
        Driver(fs).create_record(author=MaintenanceAuthor("compact", "c"))
        context = Context(clock=ManualClock(START_MS + (reader_s - back_s) * 1000), ids=SeededIds())
        directory = ftfile.open(url, context=context)
        assert [finding.code for finding in directory.verify().findings] == codes
        assert [finding.code for finding in directory.status().findings] == codes
    MemoryFileSystem.drop("ahead")


def test_an_older_horizon_brings_no_file_back(world: World) -> None:
    for vacuumed_to in (3, 2):
        author = MaintenanceAuthor("vacuum", f"to {vacuumed_to}")
        world.driver.create_record(author=author, horizon_ms=1, vacuumed_to=vacuumed_to)
    assert CommitLog(world.fs).refresh().vacuumed_to == 3


def test_without_a_file_written_now_no_horizon_is_called_ahead() -> None:
    fs = MemoryFileSystem("unwritable", clock=ManualClock(START_MS + 1))
    Driver(fs).create_record(author=MaintenanceAuthor("vacuum", "v"), horizon_ms=START_MS)
    refusing = FaultyFileSystem(fs, [Fault(PermissionDenied, operations=frozenset({"put"}))])
    with mounted(refusing) as url:
        context = Context(clock=ManualClock(START_MS - 7_200_000), ids=SeededIds())
        assert ftfile.open(url, context=context).status().findings == ()
    MemoryFileSystem.drop("unwritable")


class TestHorizonInTheFuture:
    """An older version left it, or a vacuum of a storage system whose clock was ahead for long."""

    @pytest.fixture(autouse=True)
    def _ahead(self, world: World) -> None:
        world.driver.commit_new(0)
        commit(
            CommitLog(world.fs),
            MaintenanceAuthor("vacuum", "old"),
            lambda *_: Body(horizon_ms=world.clock.now_ms() + AHEAD_S * 1000),
        )
        world.clock.advance(1)

    def test_the_error_says_what_to_do(self, world: World) -> None:
        with pytest.raises(StaleFiles, match=r"up to 2024-12-18.*clock was ahead.*dry_run=False"):
            world.driver.commit_new(1)

    def test_vacuum_takes_it_back(self, world: World) -> None:
        world.driver.stage(1)
        ftfile.vacuum(world.url)
        assert CommitLog(world.fs).refresh().horizon_ms > world.clock.now_ms()
        world.vacuum()
        assert CommitLog(world.fs).refresh().horizon_ms <= world.clock.now_ms()
        before = world.driver.stage(1)
        with pytest.raises(StaleFiles):
            world.driver.commit(1, before)
        world.clock.advance(1)
        world.driver.commit_new(1)
        check_directory(world.fs)

    def test_there_is_nothing_to_take_back_twice(self, world: World) -> None:
        log = CommitLog(world.fs)
        assert vacuuming.lower_horizon(log, "a")
        head = log.refresh().version
        assert not vacuuming.lower_horizon(log, "b")
        assert log.refresh().version == head

    def test_another_vacuum_meanwhile_makes_it_begin_again(self, world: World) -> None:
        """The other horizon counts, and the other vacuum may have listed files younger than the horizon of this one."""

        def vacuum() -> None:
            world.fs.before_record = None
            log = CommitLog(world.fs)
            late_ms = world.clock.now_ms() + AHEAD_S * 1000
            commit(log, MaintenanceAuthor("vacuum", "other"), lambda *_: Body(horizon_ms=late_ms))

        def at_third_creation(left: int = 2) -> None:
            """Let the format and the first record pass."""
            world.fs.before_record = (lambda: at_third_creation(left - 1)) if left > 1 else vacuum

        world.fs.before_record = at_third_creation
        assert vacuuming.lower_horizon(CommitLog(world.fs), "a")
        operations = [record.author.operation for record in _records(world)[1:]]
        assert operations == ["vacuum", "lowerHorizon", "vacuum", "lowerHorizon", "lowerHorizon"]
        assert CommitLog(world.fs).refresh().horizon_ms <= world.clock.now_ms()

    @pytest.mark.slow
    def test_others_that_never_stop(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(vacuuming, "_horizons_since", lambda *_: {"vacuum"})
        before = CommitLog(world.fs).refresh()
        version, then = before.version, before.horizon_ms
        with pytest.raises(CommitError, match="try again later"):
            vacuuming.lower_horizon(CommitLog(world.fs), "a")
        after = CommitLog(world.fs).refresh()
        assert (after.version, after.horizon_ms) == (version + vacuuming.TRIES, then)

    def test_a_vacuum_that_began_before_deletes_nothing(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """It lists a file that is written after the horizon was taken back, and committed before it deletes."""
        log = CommitLog(world.fs)
        vacuuming.lower_horizon(log, "settled")
        world.clock.advance(AHEAD_S)
        world.driver.stage(1)
        world.driver.commit_new(1)
        late: list[Add] = []
        ask = vacuuming.is_horizon_taken_back

        def lower() -> None:
            world.clock.advance(-AHEAD_S)
            assert vacuuming.lower_horizon(CommitLog(world.fs), "repair")
            world.clock.advance(1)
            late.append(world.driver.stage(2))

        def is_taken_back(log: CommitLog, version: int) -> bool:
            world.driver.commit(2, *late)
            return ask(log, version)

        monkeypatch.setattr(vacuuming, "is_horizon_taken_back", is_taken_back)
        at_look(monkeypatch, 2, lower)
        report = ftfile.vacuum(world.url, dry_run=False, retention="0s", force=True)
        assert report.version is not None
        assert report.files == ()
        assert world.exists(late[0].final_path)
        assert late[0].id in take_snapshot(log).adds


def _records(world: World) -> list[Any]:
    log = CommitLog(world.fs)
    return [log.read_record(version) for version in range(log.refresh().version + 1)]


class TestForeignFiles:
    @pytest.mark.parametrize("content", [b"owr\n", b"somebody's\n"])
    def test_at_the_name_of_a_removed_part(
        self, world: World, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        old = world.driver.commit_new(0)
        world.driver.commit(1, overwrite=True)
        world.fs.create_exclusive(old.final_path or "", content)
        assert ftfile.vacuum(world.url).files == ()
        assert f"'{old.final_path}'" in caplog.text
        for _ in range(3):
            world.days(8)
            ftfile.vacuum(world.url, dry_run=False)
        assert world.fs.read(old.final_path or "") == content
        assert not world.exists(layout.retired_path(old.id))

    def test_they_keep_no_record(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
        old = world.driver.commit_new(0)
        world.driver.commit(1, overwrite=True)
        world.fs.create_exclusive(old.final_path or "", b"somebody's\n")
        for batch in range(2, 12):
            world.driver.commit_new(batch)
        world.days(8)
        assert ftfile.vacuum(world.url, dry_run=False).oldest_version > 1


class TestUnpublished:
    def test_records_stay_that_are_not_published(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Both checkpoints and all ranges are newer."""
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 1)
        world.driver.commit_new(0)
        stuck = world.driver.stage(0)
        world.fs.unmovable = stuck.path
        world.driver.create_record(author=BatchWriteAuthor("j"), adds=(stuck,))
        for batch in range(1, 6):
            world.driver.commit_new(batch)
        self.write_checkpoints(world)
        world.days(8)
        world.driver.commit_new(6)
        assert ftfile.vacuum(world.url, dry_run=False).oldest_version <= 1
        world.fs.unmovable = "nothing"
        world.driver.restart()
        world.driver.commit_new(7)
        assert world.exists(stuck.final_path)

    @pytest.mark.slow
    def test_a_part_that_takes_the_name_of_one_that_was_hidden_late(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The checkpoints list the hiding as pending, and nothing records that it was done: no hint exists."""
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 1)
        world.driver.with_policy(on_new_query="continue")
        old = world.driver.stage(0, name="same")
        world.driver.commit(0, old)
        world.fs.unmovable = "same"
        with pytest.raises(NotPublished):
            world.driver.commit(1, overwrite=True)
        other = Driver(world.fs, "query-2").with_policy(on_new_query="continue")
        for batch in range(3):
            other.commit_new(batch)
            self.write_checkpoints(world, 1)
        world.fs.unmovable = "nothing"
        other.commit_new(3)
        world.days(8)
        other.commit_new(4)
        assert ftfile.vacuum(world.url, dry_run=False).oldest_version > 1
        assert CommitLog(world.fs).refresh().reserved == {}
        new = other.stage(5, name="same")
        other.commit(5, new)
        world.fs.delete(layout.PUBLISHED_HINT)
        other.restart()
        other.commit_new(6)
        assert world.exists("same")
        world.days(30)
        world.vacuum()
        world.vacuum()
        assert world.fs.read("same") == b"row\n"
        assert new.id in take_snapshot(CommitLog(world.fs)).adds

    def write_checkpoints(self, world: World, count: int = 2) -> None:
        for _ in range(count):
            write_checkpoint(world.fs, SYSTEM.ids, CommitLog(world.fs).refresh())


class TestTwoAtOnce:
    @pytest.mark.parametrize("look", [1, 2])
    def test_the_later_looks_again(self, world: World, monkeypatch: pytest.MonkeyPatch, look: int) -> None:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
        for batch in range(12):
            world.driver.commit_new(batch)
        world.driver.stage(0)
        world.days(8)
        for batch in range(12, 17):
            world.driver.commit_new(batch)
        others = []
        at_look(monkeypatch, look, lambda: others.append(ftfile.vacuum(world.url, dry_run=False)))
        ftfile.vacuum(world.url, dry_run=False)
        assert others[0].version is not None
        assert versions(world)[0] > 0
        check_directory(world.fs)

    def test_a_log_that_is_damaged_is_told_of(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.driver.commit_new(0)
        world.driver.commit_new(1)
        at_look(monkeypatch, 1, lambda: world.fs.delete(layout.record_path(0)))
        with pytest.raises(Exception, match=r"00000\.record"):
            ftfile.vacuum(world.url, dry_run=False)

    @pytest.mark.slow
    def test_one_that_can_never_look(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.driver.commit_new(0)
        busy = []

        def look(*_: object, **__: object) -> None:
            busy.append(world.driver.create_record(author=BatchWriteAuthor("busy")))
            raise ftfile.core.errors.CorruptData("log", "a record", "none")

        monkeypatch.setattr(garbage, "find_garbage", look)
        with pytest.raises(CommitError, match="nothing was deleted"):
            ftfile.vacuum(world.url, dry_run=False)
        assert len(busy) == vacuuming.TRIES


class TestGoneDirectories:
    @pytest.mark.parametrize("dry_run", [True, False])
    def test_without_hints(self, world: World, *, dry_run: bool) -> None:
        world.driver.commit_new(0)
        lost = world.driver.stage(0)
        for info in world.fs.list(layout.HINTS):
            world.fs.delete(info.path)
        world.fs.remove_directory(layout.HINTS)
        world.days(8)
        world.driver.restart()
        assert ftfile.vacuum(world.url, dry_run=dry_run).horizon_ms > 0
        ftfile.vacuum(world.url, dry_run=False)
        ftfile.vacuum(world.url, dry_run=False)
        assert not world.exists(lost.path)

    def test_without_any_empty_one(self, world: World) -> None:
        world.driver.commit_new(0)
        for directory in layout.DIRECTORIES:
            if not world.fs.list(directory):
                world.fs.remove_directory(directory)
        world.days(8)
        ftfile.vacuum(world.url, dry_run=False)
        world.driver.commit(1, world.driver.stage(1), overwrite=True)
        check_directory(world.fs)


class TestLimits:
    def test_more_files_than_threads(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        wide: Capabilities = replace(world.fs.capabilities, concurrency=64)
        monkeypatch.setattr(type(world.fs), "capabilities", wide)
        lost = [world.driver.stage(0) for _ in range(100)]
        world.driver.commit_new(0)
        world.days(8)
        assert {file.path for file in world.vacuum().files} == {add.path for add in lost}
        assert not any(world.exists(add.path) for add in lost)

    def test_more_ranges_than_are_kept_apart(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 1)
        monkeypatch.setattr("ftfile.log.read.compacted_writer.MERGED_BYTES", 0)
        count = vacuuming.MANY_COMPACTED + 8
        for batch in range(count):
            world.driver.commit_new(batch)
        assert len(list_compacted(world.fs)) == count
        world.vacuum()
        assert len(list_compacted(world.fs)) == len(fewest_intervals_of(count))
        assert len(take_snapshot(CommitLog(world.fs)).adds) == count
