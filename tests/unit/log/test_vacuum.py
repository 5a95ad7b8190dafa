"""Vacuum: deleted files, kept files and the report, on a storage system whose clock the tests move."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

import ftfile
from ftfile.core.checksum import checksum
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, PermissionDenied, StaleFiles
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.log import vacuum as vacuuming
from ftfile.log.checks import Rewrite
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout, record
from ftfile.log.format.model import Add, BatchWriteAuthor, Body, MaintenanceAuthor, Record, Remove
from ftfile.log.format.record import encode_record
from ftfile.log.places import open_add
from ftfile.log.protocol import commit
from ftfile.log.read.compacted_records import list_compacted, read_compacted
from ftfile.log.read.snapshot import read_records, take_snapshot
from ftfile.operate.compact import compact_log
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from tests.kit.parameters import parametrize
from tests.unit.log.conftest import Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.log.vacuum import VacuumReport
    from ftfile.storage.api import FileInfo, FileSystem


DAY_S = 86_400


class Storage(WrapperFileSystem, PickledByReference):
    """Storage on which something can happen just before a record is created, a file is moved, or a file deleted."""

    before_record: Callable[[], object] | None = None
    before_stat: Callable[[], object] | None = None  # of the file "same"
    undeletable: str = "nothing"
    unmovable: str = "nothing"

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.deleted: list[str] = []

    def create_exclusive(self, path: str, content: bytes) -> None:
        act, self.before_record = self.before_record, None
        if act is not None:
            act()
        super().create_exclusive(path, content)

    def stat(self, path: str) -> FileInfo:
        act = self.before_stat
        if act is not None and path == "same":
            self.before_stat = None
            act()
        return super().stat(path)

    def rename(self, source: str, target: str) -> None:
        if source == self.unmovable:
            raise PermissionDenied("rename", source, "no")
        super().rename(source, target)

    def delete(self, path: str) -> None:
        if self.undeletable in path:
            raise PermissionDenied("delete", path, "no")
        super().delete(path)
        self.deleted.append(path)


@dataclass
class World:
    """A directory with its clock and one query."""

    fs: Storage
    clock: ManualClock
    url: str
    driver: Driver

    def days(self, days: float) -> None:
        self.clock.advance(days * DAY_S)

    def vacuum(self, **settings: Any) -> VacuumReport:
        report = ftfile.vacuum(self.url, **({"dry_run": False} | settings), context=current())
        check_directory(self.fs)
        return report

    def compact(self, batch: int, *inputs: Add) -> Add:
        """Replace parts by one with the same rows."""
        head = self.driver.log.refresh()
        content = b"".join(open_add(add, self.fs.read)[add.offset :][: add.length] for add in inputs)
        new = self.driver.stage(batch, content)
        author = MaintenanceAuthor("compact", f"compact-{batch}")
        self.driver.commit_as(author, rewrites=(Rewrite(inputs, (new,), head.version),))
        return new

    def exists(self, path: str | None) -> bool:
        return self.fs.exists(path or "nowhere")


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    clock = ManualClock()
    fs = Storage(MemoryFileSystem(request.node.name, clock=clock))
    with repeatable(clock), mounted(fs) as url:
        yield World(fs, clock, url, Driver(fs))
    MemoryFileSystem.drop(request.node.name)


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints at every second record or so, ranges too."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)


class TestArguments:
    def test_a_dry_run_is_the_default_and_changes_nothing(self, world: World) -> None:
        garbage = world.driver.stage(0)
        world.driver.commit_new(0)
        world.days(8)
        report = ftfile.vacuum(world.url, context=current())
        assert report.dry_run
        assert report.version is None
        assert [(file.path, file.size_bytes, file.kind) for file in report.files] == [(garbage.path, 4, "staged")]
        assert report.size_bytes == 4
        assert "no record" in report.files[0].why
        assert world.exists(garbage.path)
        assert world.driver.log.refresh().version == 0

    def test_the_retention_has_a_floor(self, world: World) -> None:
        world.driver.commit_new(0)
        garbage = world.driver.stage(1)
        world.days(0.5)
        with pytest.raises(ConfigError, match=r"retention='1h' is below 24h.*force=True"):
            world.vacuum(retention="1h")
        assert world.exists(garbage.path)
        world.vacuum(retention="1h", force=True)
        assert not world.exists(garbage.path)

    def test_a_retention_that_is_none(self, world: World) -> None:
        world.driver.commit_new(0)
        with pytest.raises(ConfigError, match=r"retention='soon'.*'7d'"):
            world.vacuum(retention="soon")

    def test_a_directory_that_is_none(self, world: World) -> None:
        with pytest.raises(ConfigError, match="not an ftfile directory"):
            ftfile.vacuum(world.url, context=current())

    def test_nothing_to_do_makes_no_record(self, world: World) -> None:
        world.driver.commit_new(0)
        world.days(30)
        report = world.vacuum()
        assert (report.version, report.files, report.dry_run) == (None, (), False)
        assert world.driver.log.refresh().version == 0


class TestStaged:
    def test_what_attempts_left_goes_after_the_retention(self, world: World) -> None:
        lost, kept = world.driver.stage(0), world.driver.commit_new(0)
        world.days(6)
        young = world.driver.stage(1)
        assert world.vacuum().files == ()
        world.days(1.5)
        report = world.vacuum()
        assert [file.path for file in report.files] == [lost.path]
        assert not world.exists(lost.path)
        assert world.exists(young.path)
        assert world.exists(kept.final_path)
        record = world.driver.log.read_record(report.version or 0)
        assert record is not None
        assert isinstance(record.author, MaintenanceAuthor)
        assert record.author.operation == "vacuum"
        # Not the time of the retention: files younger than the newest record wait for another vacuum.
        assert record.horizon_ms == report.horizon_ms == world.fs.stat(layout.record_path(0)).modified_ms

    def test_a_longer_retention_does_not_take_a_horizon_back(self, world: World) -> None:
        lost = world.driver.stage(0)
        world.days(40)
        world.driver.commit_new(0)
        late_ms = world.clock.now_ms() - 1
        commit(world.driver.log, MaintenanceAuthor("vacuum", "v"), lambda *_: Body(horizon_ms=late_ms))
        world.days(1)
        report = world.vacuum(retention="30d")
        assert [file.path for file in report.files] == [lost.path]
        assert report.version == 2
        assert world.driver.log.refresh().horizon_ms == late_ms

    def test_by_the_storages_clock_not_this_machines(self, world: World) -> None:
        """The machine that vacuums is a year ahead."""
        world.driver.commit_new(0)
        young = world.driver.stage(1)
        with repeatable(ManualClock(world.clock.now_ms() + 365 * DAY_S * 1000)):
            assert world.vacuum().files == ()
        assert world.exists(young.path)

    def test_a_live_part_that_is_not_published_stays(self, world: World) -> None:
        part = world.driver.stage(0)
        world.fs.create_exclusive(part.final_path or "", b"foreign")
        with pytest.raises(Exception, match="cannot be published"):
            world.driver.commit(0, part)
        lost = world.driver.stage(0)
        world.days(30)
        ftfile.vacuum(world.url, dry_run=False, context=current())
        assert not world.exists(lost.path)
        world.fs.delete(part.final_path or "")
        world.driver.restart()
        world.driver.commit(0, part)
        assert world.exists(part.final_path)
        check_directory(world.fs)

    def test_what_is_committed_while_it_looks_stays(self, world: World) -> None:
        """Staged 8 days ago, and recorded after the first look: just before the record with the horizon."""
        world.driver.commit_new(0)
        lost, late = world.driver.stage(1), world.driver.stage(1)
        world.days(8)
        world.fs.before_record = lambda: world.driver.commit(1, late)
        world.vacuum()
        assert not world.exists(lost.path)
        assert world.exists(late.final_path)
        assert len(take_snapshot(world.driver.log).adds) == 2

    def test_what_is_recorded_but_not_yet_published_while_it_looks_stays(self, world: World) -> None:
        world.driver.commit_new(0)
        lost, late = world.driver.stage(1), world.driver.stage(1)
        world.days(8)
        world.fs.before_record = lambda: world.driver.create_record(author=BatchWriteAuthor("late"), adds=(late,))
        world.vacuum()
        assert not world.exists(lost.path)
        assert open_add(late, world.fs.read) == b"row\n"

    def test_a_commit_that_comes_after_is_refused(self, world: World) -> None:
        world.driver.commit_new(0)
        late = world.driver.stage(1)
        world.days(8)
        world.vacuum()
        fresh = world.driver.stage(1)
        with pytest.raises(Exception, match="does not exist"):
            world.driver.commit(1, late)
        world.driver.commit(1, fresh)

    def test_a_commit_that_had_looked_before_is_refused(self, world: World) -> None:
        """It has checked its files and is about to create its record when the vacuum runs."""
        world.driver.commit_new(0)
        late = world.driver.stage(1)
        world.days(8)
        world.fs.before_record = lambda: ftfile.vacuum(world.url, dry_run=False, context=current())
        with pytest.raises((StaleFiles, CorruptData)):
            world.driver.commit(1, late)
        assert len(take_snapshot(world.driver.log).adds) == 1

    def test_emptied_directories_go(self, world: World) -> None:
        """Except the directory of a query that may resume, and a directory that may have been created a moment ago."""
        world.driver.commit_new(0)
        world.driver.stage(7)
        Driver(world.fs, "query-9").stage(0)
        made = f"{layout.STAGED}/query-1/8"
        world.fs.make_directories(made)
        world.days(8)
        assert len(world.vacuum().files) == 2
        assert [info.path for info in world.fs.list(layout.STAGED)] == [f"{layout.STAGED}/query-1"]
        assert [info.path for info in world.fs.list(f"{layout.STAGED}/query-1")] == [made]

    def test_directories_that_are_empty_for_long_go(self, tmp_path: Path) -> None:
        driver = Driver(LocalFileSystem(str(tmp_path / "out"), SYSTEM))
        driver.commit_new(0)
        for name, age_s in (("old", 8 * DAY_S), ("new", 0)):
            directory = tmp_path / "out" / layout.STAGED / name
            directory.mkdir()
            os.utime(directory, (time.time() - age_s,) * 2)
        assert ftfile.vacuum(tmp_path / "out", dry_run=False, context=current()).files == ()
        assert sorted(path.name for path in (tmp_path / "out" / layout.STAGED).iterdir()) == ["new", "query-1"]

    def test_nothing_else_is_touched(self, world: World) -> None:
        world.driver.commit_new(0)
        for path in ("foreign.txt", "_temporary", f"{layout.META}/notes", f"{layout.RETIRED}/mine", "_other/x"):
            world.fs.make_directories(layout.parent(path))
            world.fs.create_exclusive(path, b"mine")
        world.days(30)
        assert ftfile.vacuum(world.url, dry_run=False, context=current()).files == ()


class TestRemoved:
    def test_a_replaced_part_stays_for_the_retention(self, world: World) -> None:
        old = [world.driver.commit_new(batch) for batch in range(2)]
        world.days(20)
        world.compact(2, *old)
        retired = [layout.retired_path(add.id) for add in old]
        world.days(6)
        assert world.vacuum().files == ()
        assert ftfile.open(world.url).snapshot(1).adds.keys() == {add.id for add in old}
        assert all(map(world.exists, retired))
        world.days(1.5)
        report = world.vacuum()
        assert {file.path: file.kind for file in report.files} == dict.fromkeys(retired, "retired")
        assert not any(map(world.exists, retired))

    def test_ages_count_from_the_removal_not_from_the_writing(self, world: World) -> None:
        old = world.driver.commit_new(0)
        world.days(100)
        world.compact(1, old)
        world.days(1)
        assert world.vacuum().files == ()
        assert world.exists(layout.retired_path(old.id))

    def test_what_comes_back_is_hidden_again(self, world: World) -> None:
        old = world.driver.commit_new(0)
        world.compact(1, old)
        world.fs.create_exclusive(old.final_path or "", b"row\n")  # a late copy
        report = ftfile.vacuum(world.url, context=current())
        assert [(file.path, file.kind) for file in report.files] == [(old.final_path, "returned")]
        world.vacuum()
        assert not world.exists(old.final_path)
        assert world.exists(layout.retired_path(old.id))

    @pytest.mark.parametrize("hidden", [True, False])
    def test_what_came_back_long_ago_is_hidden_again(self, world: World, *, hidden: bool) -> None:
        """No vacuum ran within the retention after the removal."""
        old = world.driver.commit_new(0)
        world.compact(1, old)
        if hidden:
            world.fs.create_exclusive(old.final_path or "", b"row\n")
        else:
            world.fs.rename(layout.retired_path(old.id), old.final_path or "")
        world.days(30)
        assert (old.final_path, "returned") in {
            (file.path, file.kind) for file in ftfile.vacuum(world.url, context=current()).files
        }
        world.vacuum()
        assert not world.exists(old.final_path)
        world.days(30)
        world.vacuum()
        assert not world.exists(layout.retired_path(old.id))

    @pytest.mark.usefixtures("_often")
    def test_a_vacuum_that_stands_still_keeps_a_newer_part_with_the_name_and_the_content(self, world: World) -> None:
        """Meanwhile another vacuum deletes the file that came back, and releases its name."""
        old = world.driver.stage(0, name="same")
        world.driver.commit(0, old)
        world.driver.commit(1, overwrite=True)
        world.fs.create_exclusive("same", b"row\n")  # a late copy

        def others() -> None:
            world.fs.delete("same")
            for batch in range(2, 12):
                world.driver.commit_new(batch)
                world.days(8)
                world.vacuum()
            world.driver.commit(12, world.driver.stage(12, name="same"))

        world.fs.before_stat = others
        world.vacuum()
        assert world.fs.read("same") == b"row\n"

    def test_what_comes_back_when_its_hidden_copy_is_gone(self, world: World) -> None:
        old = world.driver.commit_new(0)
        world.compact(1, old)
        world.fs.rename(layout.retired_path(old.id), old.final_path or "")
        world.vacuum()
        assert not world.exists(old.final_path)
        assert world.exists(layout.retired_path(old.id))


class TestSpools:
    def spool(self, world: World, count: int = 3) -> tuple[Add, ...]:
        """Write one file with a segment for each row."""
        whole = world.driver.stage(0, b"".join(b"%d\n" % number for number in range(count)))
        return tuple(
            structs.replace(
                whole,
                id=f"{whole.id}s{number}",
                kind="segment",
                final_path=None,
                offset=2 * number,
                length=2,
                logical_length=2,
                checksum=checksum(b"%d\n" % number),
                rows=1,
            )
            for number in range(count)
        )

    def test_one_goes_when_all_its_segments_may(self, world: World) -> None:
        segments = self.spool(world)
        world.driver.commit(0, *segments)
        spool = segments[0].path
        world.compact(1, *segments[:2])
        world.days(30)
        assert world.vacuum().files == ()
        assert world.exists(spool)
        world.compact(2, segments[2])
        world.days(6)
        assert world.vacuum().files == ()
        assert open_add(segments[0], world.fs.read) == b"0\n1\n2\n"
        world.days(1.5)
        assert [file.path for file in world.vacuum().files] == [spool]
        assert not world.exists(spool)

    def test_one_that_is_recorded_while_it_looks_stays(self, world: World) -> None:
        world.driver.commit_new(0)
        world.driver.stage(0)
        segments = self.spool(world)
        world.days(8)
        world.fs.before_record = lambda: world.driver.create_record(author=BatchWriteAuthor("late"), adds=segments)
        assert len(world.vacuum().files) == 1
        assert world.exists(segments[0].path)

    def test_what_is_left_of_a_segment_keeps_it(self, world: World) -> None:
        """Some of its rows were assembled into a part; the remaining rows are another segment in the same file."""
        (segment, *_) = self.spool(world, count=1)
        world.driver.commit(0, segment)
        rest = structs.replace(segment, id="rest")
        world.driver.create_record(
            author=MaintenanceAuthor("assemble", "a"), adds=(rest,), removes=(Remove.of(segment),)
        )
        world.days(30)
        assert world.vacuum().files == ()
        assert open_add(rest, world.fs.read) == b"0\n"


@pytest.mark.usefixtures("_often")
class TestLog:
    def fill(self, world: World, batches: int, first: int = 0) -> list[Add]:
        return [world.driver.commit_new(batch) for batch in range(first, first + batches)]

    def versions(self, world: World) -> list[int]:
        names = [layout.parse_log_name(info.path) for info in world.fs.list(layout.LOG)]
        return sorted(name.version for name in names if name is not None)

    def test_records_go_that_checkpoints_and_ranges_stand_for(self, world: World) -> None:
        adds = self.fill(world, 12)
        world.days(8)
        adds += self.fill(world, 6, first=12)
        report = world.vacuum()
        assert report.oldest_version == 11  # the newest that is older than the retention
        assert self.versions(world) == [*range(11, 19)]
        assert {file.kind for file in report.files} == {"record"}
        assert ftfile.open(world.url).oldest_version() == 11
        assert [version.version for version in ftfile.open(world.url).history()] == [*range(11, 19)]
        world.driver.restart()
        world.driver.commit_new(18)
        for version in (11, 12, 17):
            assert list(take_snapshot(CommitLog(world.fs), version).adds) == [add.id for add in adds[: version + 1]]
        with pytest.raises(ConfigError, match="the oldest 11"):
            ftfile.open(world.url).files(10)

    @pytest.mark.slow
    def test_again_and_again(self, world: World) -> None:
        batches = 0
        for _ in range(6):
            self.fill(world, 7, first=batches)
            batches += 7
            world.days(3)
            world.vacuum()
            assert len(self.versions(world)) < 30
        assert len(take_snapshot(CommitLog(world.fs)).adds) == batches
        assert self.versions(world)[0] > 20

    def test_a_young_log_keeps_them(self, world: World) -> None:
        world.driver.stage(0)
        world.days(2)
        self.fill(world, 12)
        world.days(6)
        report = world.vacuum()
        assert ({file.kind for file in report.files}, report.oldest_version) == ({"staged"}, 0)

    @pytest.mark.parametrize("lost", [layout.CHECKPOINTS, layout.COMPACTED])
    def test_they_stay_where_nothing_stands_for_them(self, world: World, lost: str) -> None:
        self.fill(world, 12)
        for info in world.fs.list(lost):
            world.fs.delete(info.path)
        world.days(8)
        assert world.vacuum().files == ()
        assert len(self.versions(world)) == 12

    @parametrize("lost", [layout.CHECKPOINTS, layout.COMPACTED], quick=1)
    @pytest.mark.parametrize("number", [0, -1])
    def test_they_stay_where_what_stands_for_them_is_damaged(self, world: World, lost: str, number: int) -> None:
        self.fill(world, 16)
        damaged = sorted(info.path for info in world.fs.list(lost))[number]
        world.fs.put(damaged, b"damaged\n")
        world.days(8)
        report = ftfile.vacuum(world.url, dry_run=False, context=current())
        assert report.oldest_version <= (0 if lost == layout.CHECKPOINTS or number == 0 else 15)
        assert len(take_snapshot(CommitLog(world.fs)).adds) == 16
        assert len(self.versions(world)) >= 16 - (12 if lost == layout.COMPACTED and number == -1 else 0)

    @pytest.mark.parametrize("harm", ["gone", "damaged", "one bit"])
    def test_two_runs_free_them_where_ranges_are_lost(self, world: World, harm: str) -> None:
        self.fill(world, 16)
        for info in world.fs.list(layout.COMPACTED):
            content = world.fs.read(info.path)
            world.fs.delete(info.path)
            if harm != "gone":
                middle = len(content) // 2
                flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
                world.fs.put(info.path, b"damaged" if harm == "damaged" else flipped)
        world.days(8)
        ftfile.vacuum(world.url, dry_run=False, context=current())
        told = ftfile.vacuum(world.url, context=current())
        done = ftfile.vacuum(world.url, dry_run=False, context=current())
        assert done.files == told.files != ()
        assert 0 < done.oldest_version == told.oldest_version == self.versions(world)[0]
        check_directory(world.fs)

    def test_two_runs_free_them_where_one_checkpoint_and_no_range_is_left(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The record of the first run is due for the second log checkpoint."""
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 1000)
        world.driver.stage(100)
        self.fill(world, 13)
        for name in sorted(checkpoints.list_checkpoints(world.fs))[:-1]:
            world.fs.delete(layout.log_checkpoint_path(name))
        world.days(8)
        assert world.vacuum().oldest_version == 0
        assert len(checkpoints.list_checkpoints(world.fs)) == 2
        world.days(8)
        assert 0 < world.vacuum().oldest_version == self.versions(world)[0]

    @pytest.mark.parametrize("harm", ["removed", "statistics"])
    def test_they_stay_where_the_newest_snapshot_does_not_read_what_is_damaged(self, world: World, harm: str) -> None:
        """A compacted log must be complete before the records go that could replace it."""
        world.driver.commit(0, structs.replace(world.driver.stage(0), statistics={"id": [1, 2, 0]}))
        if harm == "removed":
            world.compact(90, *take_snapshot(CommitLog(world.fs)).adds.values())
        self.fill(world, 14, first=1)
        path = min(info.path for info in world.fs.list(layout.COMPACTED))
        content = world.fs.read(path)
        world.fs.put(path, content[:-1] + bytes([content[-1] ^ 1]))
        world.days(8)
        assert world.vacuum().oldest_version == 0
        assert world.vacuum().oldest_version > 0
        for name in list_compacted(world.fs):
            read_compacted(world.fs, name, ended=True, statistics=True)

    def test_adds_that_were_removed_before_the_oldest_version_may_be_damaged(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No reader needs them, so the compacted log is merged without them."""
        world.compact(90, *self.fill(world, 2))
        self.fill(world, 10, first=2)
        world.days(8)
        assert world.vacuum().oldest_version > 8
        (path,) = (info.path for info in world.fs.list(layout.COMPACTED) if "-00000000000000000007-" in info.path)
        content = world.fs.read(path)
        world.fs.put(path, content[:-1] + bytes([content[-1] ^ 1]))
        self.fill(world, 16, first=12)
        world.days(8)
        world.vacuum()
        assert not world.exists(path)
        assert "not merged" not in caplog.text

    @pytest.mark.parametrize("beyond", [0, 1])
    def test_lost_ranges_are_made_again_though_they_hold_nothing_back(
        self, world: World, monkeypatch: pytest.MonkeyPatch, beyond: int
    ) -> None:
        """Of a young log: every reader would read all of its records."""
        monkeypatch.setattr(vacuuming, "UNCOVERED_RECORDS", 8)
        self.fill(world, 8 + beyond)
        for info in world.fs.list(layout.COMPACTED):
            world.fs.delete(info.path)
        assert ftfile.vacuum(world.url, dry_run=False).files == ()
        assert sorted((name.first, name.last) for name in list_compacted(world.fs)) == [(0, 7), (8, 8)][: 2 * beyond]

    def test_the_newer_checkpoint_may_be_lost_afterwards(self, world: World) -> None:
        self.fill(world, 16)
        world.days(8)
        world.vacuum()
        newest = max(checkpoints.list_checkpoints(world.fs))
        world.fs.delete(layout.log_checkpoint_path(newest))
        world.driver.restart()
        world.driver.commit_new(16)
        assert len(take_snapshot(CommitLog(world.fs)).adds) == 17

    def test_with_records_goes_what_they_keep_elsewhere(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 100)
        self.fill(world, 12)
        world.days(8)
        world.vacuum()
        names = [layout.parse_log_name(info.path) for info in world.fs.list(layout.LOG)]
        companions = sorted(name.version for name in names if name and name.nonce)
        assert companions == self.versions(world)[:-1:2] == [*range(companions[0], 12)]
        assert companions[0] > 5
        assert len(take_snapshot(CommitLog(world.fs)).adds) == 12

    def test_records_go_before_what_they_keep_elsewhere(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A reader that finds a record without its adds checks that the record is still there."""
        monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 100)
        self.fill(world, 12)
        world.days(8)
        world.vacuum()
        deleted = [path for path in world.fs.deleted if path.startswith(layout.LOG)]
        assert [path.endswith(".changes") for path in deleted] == [False] * (len(deleted) // 2) + [True] * 9

    def test_companions_of_records_that_never_were(self, world: World) -> None:
        self.fill(world, 3)
        lost = layout.companion_path(1, "another")
        ahead = layout.companion_path(7, "ahead")
        for path in (lost, ahead):
            world.fs.create_exclusive(path, b"x")
        world.days(8)
        report = world.vacuum()
        assert [file.path for file in report.files] == [lost]
        assert "has its version" in report.files[0].why
        assert world.exists(ahead)

    def test_dead_records_go_too(self, world: World) -> None:
        self.fill(world, 16)
        world.days(8)
        world.vacuum()
        dead = Record(3, "dead", BatchWriteAuthor("left behind"), 0)
        world.fs.create_exclusive(layout.record_path(3), encode_record(dead).content)
        assert world.vacuum().files == ()
        world.days(8)
        assert [file.path for file in world.vacuum().files][:1] == [layout.record_path(3)]

    def test_a_dead_record_may_have_lost_its_companion(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Vacuum deleted the companion before a process that stood still created the record."""
        self.fill(world, 16)
        world.days(8)
        world.vacuum()
        monkeypatch.setattr(record, "COMPANION_FROM_BYTES", 0)
        encoded = encode_record(Record(3, "dead", BatchWriteAuthor("left behind"), 0))
        assert encoded.companion is not None
        world.fs.create_exclusive(layout.record_path(3), encoded.content)
        check_directory(world.fs)
        self.fill(world, 1, first=16)
        world.days(8)
        world.vacuum()
        assert not world.exists(layout.record_path(3))

    def test_a_checkpoint_that_appears_meanwhile_does_not_widen_what_goes(self, world: World) -> None:
        """Only records before the version that the vacuum's own record names may be deleted."""
        self.fill(world, 6)
        world.driver.stage(6)
        world.days(8)
        announced = ftfile.vacuum(world.url, context=current()).oldest_version

        def go_on() -> None:
            self.fill(world, 6, first=6)

        world.fs.before_record = go_on
        report = world.vacuum()
        assert report.oldest_version == announced
        assert self.versions(world)[0] == announced

    def test_leftovers_of_killed_processes(self, world: World) -> None:
        self.fill(world, 2)
        left = [f"{directory}/.{'0' * 32}.tmp" for directory in (layout.LOG, layout.CHECKPOINTS, layout.COMPACTED)]
        for path in left:
            world.fs.create_exclusive(path, b"x")
        world.days(8)
        assert [(file.path, file.kind) for file in world.vacuum().files] == [(path, "temporary") for path in left]

    def test_ranges_and_checkpoints_that_others_replace(self, world: World) -> None:
        self.fill(world, 4)
        (name, *_) = sorted(list_compacted(world.fs))
        again = layout.CompactedName(name.first, name.last, "f" * 16)
        world.fs.create_exclusive(layout.compacted_path(again), world.fs.read(layout.compacted_path(name)))
        oldest = layout.log_checkpoint_path(layout.CheckpointName(0, "f" * 16))
        world.fs.create_exclusive(oldest, b"x")
        world.days(8)
        report = ftfile.vacuum(world.url, context=current())
        kinds = {file.kind: file.path for file in report.files if file.kind != "record"}
        assert kinds == {"checkpoint": oldest, "range": layout.compacted_path(again)}

    def test_ranges_forget_what_is_too_old(self, world: World) -> None:
        adds = self.fill(world, 6)
        world.compact(6, *adds)
        self.fill(world, 5, first=6)
        world.days(8)
        self.fill(world, 5, first=11)
        world.vacuum()
        # The range from version 0 on forgets as it grows.
        self.fill(world, 16, first=16)
        (name, *_) = sorted(list_compacted(world.fs))
        content = read_compacted(world.fs, name, ended=True)
        assert (content.first, content.last) == (0, 31)
        assert content.log_start > 6
        assert content.ended == ()
        assert len(take_snapshot(CommitLog(world.fs)).adds) == 27


@pytest.mark.usefixtures("_often")
class TestNames:
    """Of parts whose names lack what makes them unique."""

    def replaced(self, world: World) -> Add:
        old = world.driver.stage(0, name="same.txt")
        world.driver.commit(0, old)
        world.compact(1, old)
        assert world.driver.log.refresh().reserved.keys() == {"same.txt"}
        return old

    def test_names_are_reserved_for_the_retention(self, world: World) -> None:
        self.replaced(world)
        for batch in range(1, 9):
            world.driver.commit_new(batch)
        world.days(6)
        assert ftfile.vacuum(world.url, dry_run=False, context=current()).oldest_version == 0
        assert CommitLog(world.fs).refresh().reserved
        world.days(2)
        assert ftfile.vacuum(world.url, dry_run=False, context=current()).oldest_version > 1
        assert CommitLog(world.fs).refresh().reserved == {}
        world.driver.commit(9, world.driver.stage(9, b"new\n", name="same.txt"))
        ftfile.vacuum(world.url, dry_run=False, context=current())
        assert world.fs.read("same.txt") == b"new\n"

    def test_what_came_back_keeps_its_name_until_a_vacuum_does_not_find_it(self, world: World) -> None:
        """Another vacuum may be about to hide it, and must not hide another part of that name."""
        self.replaced(world)
        for batch in range(1, 9):
            world.driver.commit_new(batch)
        world.fs.create_exclusive("same.txt", b"row\n")
        world.days(8)
        world.fs.unmovable = "same.txt"
        report = ftfile.vacuum(world.url, dry_run=False, context=current())
        assert (report.failed, report.oldest_version) == (1, 0)
        world.fs.unmovable = "nothing"
        report = ftfile.vacuum(world.url, dry_run=False, context=current())
        assert (report.failed, report.oldest_version) == (0, 0)
        assert not world.exists("same.txt")
        assert CommitLog(world.fs).refresh().reserved.keys() == {"same.txt"}
        assert ftfile.vacuum(world.url, dry_run=False, context=current()).oldest_version > 1
        assert CommitLog(world.fs).refresh().reserved == {}

    def test_what_is_still_to_be_hidden_keeps_its_name(self, world: World) -> None:
        """Hiding it fails for days; the process that succeeds at last must not hide another part of that name."""
        old = world.driver.stage(0, name="same.txt")
        world.driver.create_record(author=BatchWriteAuthor("first"), adds=(old,))
        world.driver.commit_new(0)
        world.fs.unmovable = "same.txt"
        world.driver.create_record(author=MaintenanceAuthor("drop", "d"), removes=(Remove.of(old),))
        for batch in range(1, 9):
            world.driver.commit_new(batch)
        world.days(8)
        assert ftfile.vacuum(world.url, dry_run=False, context=current()).oldest_version <= 2
        assert CommitLog(world.fs).refresh().reserved.keys() == {"same.txt"}

    def test_a_live_part_of_the_same_name_stays(self, world: World) -> None:
        """With the same content even."""
        self.replaced(world)
        world.driver.create_record(author=world.driver.author(1), adds=(world.driver.stage(1, name="same.txt"),))
        ftfile.vacuum(world.url, dry_run=False, context=current())
        assert world.fs.read("same.txt") == b"row\n"


class TestDeadLetters:
    def test_they_stay_until_they_are_published_and_then(self, world: World) -> None:
        letter = world.driver.stage(0, name=layout.dead_letter_path("query-1", 0, 0, "letter"))
        world.driver.create_record(author=world.driver.author(0), dead_letters=(letter,), lineage_start=0)
        lost = world.driver.stage(0)
        world.fs.unmovable = letter.path
        world.days(30)
        assert [file.path for file in ftfile.vacuum(world.url, dry_run=False, context=current()).files] == [lost.path]
        assert world.exists(letter.path)
        world.fs.unmovable = "nothing"
        world.driver.commit_new(1)
        assert world.exists(letter.final_path)
        world.days(30)
        world.vacuum()
        assert world.exists(letter.final_path)


class TestFailing:
    @pytest.mark.slow
    def test_what_cannot_be_deleted_is_left_to_the_next(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        lost = [world.driver.stage(0) for _ in range(2)]
        world.driver.commit_new(0)
        world.days(8)
        world.fs.undeletable = lost[0].path
        report = world.vacuum()
        assert [file.path for file in report.files if file.kind == "staged"] == [lost[1].path]
        assert report.failed == 1
        assert "the next vacuum tries again" in caplog.text
        world.fs.undeletable = "nothing"
        assert [file.path for file in world.vacuum().files if file.kind == "staged"] == [lost[0].path]

    def test_nothing_goes_when_the_log_is_damaged(self, world: World) -> None:
        lost = world.driver.stage(0)
        for batch in range(3):
            world.driver.commit_new(batch)
        world.fs.delete(layout.record_path(1))
        world.days(8)
        with pytest.raises(CorruptData, match=r"00001\.record"):
            ftfile.vacuum(world.url, dry_run=False, context=current())
        assert world.exists(lost.path)


@pytest.mark.usefixtures("_often")
class TestMergeRanges:
    def test_one_range_of_all(self, world: World) -> None:
        for batch in range(11):
            world.driver.commit_new(batch)
        assert compact_log(world.url) == 10
        names = sorted(list_compacted(world.fs))
        assert [(name.first, name.last) for name in names] == [(0, 7), (8, 9), (10, 10)]
        assert compact_log(world.url) == 10
        assert sorted(list_compacted(world.fs)) == names
        check_directory(world.fs)

    @parametrize("number", [0, 1, -1], quick=1)
    @pytest.mark.parametrize("harm", ["gone", "damaged"])
    def test_what_is_missing_is_made_anew(self, world: World, number: int, harm: str) -> None:
        for batch in range(12):
            world.driver.commit_new(batch)
        paths = sorted(layout.compacted_path(name) for name in list_compacted(world.fs))
        if harm == "gone":
            world.fs.delete(paths[number])
        else:
            world.fs.put(paths[number], b"damaged")
        compact_log(world.url)
        assert sorted((name.first, name.last) for name in list_compacted(world.fs)) == [(0, 7), (8, 11)]
        check_directory(world.fs)

    @pytest.mark.parametrize("unique", ["0" * 16, "f" * 16])
    def test_a_damaged_one_of_all_versions_is_replaced(self, world: World, unique: str) -> None:
        for batch in range(3):
            world.driver.commit_new(batch)
        path = layout.compacted_path(layout.CompactedName(0, 1, unique))
        world.fs.create_exclusive(path, b"damaged")
        compact_log(world.url)
        assert not world.exists(path)
        check_directory(world.fs)

    def test_an_empty_log_has_none(self, world: World) -> None:
        world.driver.log.prepare_directory()
        assert compact_log(world.url) == -1
        assert list_compacted(world.fs) == {}

    def test_what_nothing_stands_for_is_an_error(self, world: World) -> None:
        for batch in range(16):
            world.driver.commit_new(batch)
        world.days(8)
        world.vacuum()
        for name in list_compacted(world.fs):
            world.fs.delete(layout.compacted_path(name))
        with pytest.raises(CorruptData, match="neither"):
            compact_log(world.url)


@pytest.mark.slow
def test_beside_a_running_query(world: World) -> None:
    """Rows never change while vacuums run, and every kept version reads the same rows."""
    live: list[Add] = []
    history: dict[int, set[str]] = {}
    for batch in range(40):
        world.driver.stage(batch)
        live.append(world.driver.commit_new(batch))
        if batch % 5 == 4:
            live = [world.compact(batch, *live)]
        world.days(0.7)
        if batch % 3 == 0:
            world.vacuum(retention="48h")
        head = world.driver.log.refresh()
        history[head.version] = {add.id for add in live}
        for version in [at for at in history if at >= head.log_start]:
            snapshot = take_snapshot(CommitLog(world.fs), version)
            assert set(snapshot.adds) == history[version]
    assert sum(record.horizon_ms is not None for record in read_records(world.driver.log)) > 5
    staged = list(world.fs.list(layout.STAGED))
    assert len(staged) <= 1
