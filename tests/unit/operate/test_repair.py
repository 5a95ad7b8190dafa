"""Repairs of states that older versions, other programs and lost files cause; no repair deletes a file."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import BatchGap, CommitError, ConfigError, CorruptData
from ftfile.log.checkpoints import encode_checkpoint, list_checkpoints, write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.compacted import encode_compacted
from ftfile.log.format.model import MaintenanceAuthor, Remove
from ftfile.log.places import open_add
from ftfile.log.publish import publish
from ftfile.log.read.compacted_records import list_compacted, read_compacted
from ftfile.log.records import PublishedHint, write_published
from ftfile.log.state import Unpublished
from ftfile.operate import repair as run
from ftfile.operate import repair_actions
from ftfile.operate.findings import ACTIONS
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import ManualClock
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.log.conftest import Driver
from tests.unit.operate.test_verify import DAY_MS, World, _often, walk, world
from tests.unit.writing.files.encrypted import committed, out, ring, rows_of, stream

if TYPE_CHECKING:
    from ftfile.log.format.model import Add
    from ftfile.operate.repair import RepairReport
    from ftfile.storage.api import FileSystem, OutputStream
    from ftfile.testing.fs.volume import Storage

__all__ = ("_often", "out", "ring", "world")


def repair(world: World, **asked: Any) -> RepairReport:
    """Repair. A dry run changes no file, the repair deletes no file, and a second repair does nothing."""
    before = world.content()
    planned = ftfile.repair(world.url, **asked)
    assert world.content() == before
    assert planned.dry_run
    report = ftfile.repair(world.url, dry_run=False, **asked)
    assert not [step for step in report.steps if step.error], report.steps
    assert {step.code for step in planned.steps} <= {step.code for step in report.steps}
    assert_kept(before, world.content())
    again = ftfile.repair(world.url, dry_run=False)
    assert again.steps == ()
    return report


def assert_kept(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """Check that the content of every file still exists somewhere, except for rewritten files."""
    derived = (layout.COMPACTED, layout.CHECKPOINTS, layout.HINTS)
    kept = Counter(content for path, content in before.items() if not path.startswith(derived))
    assert not kept - Counter(after.values())


def rows(world: World) -> list[bytes]:
    """Return the rows that ftfile's readers return for the newest version."""
    snapshot = ftfile.open(world.url).snapshot()
    return sorted(line for add in snapshot.adds.values() for line in open_add(add, world.fs.read).splitlines())


def visible(world: World) -> list[bytes]:
    """Return the rows that plain readers return."""
    return sorted(line for path in world.driver.visible() for line in world.fs.read(path).splitlines())


def quarantined(world: World) -> list[str]:
    """Return the original paths of the quarantined files."""
    notes = [path for path in walk(world.fs, layout.QUARANTINE) if path.endswith(".origin")]
    return sorted(json.loads(world.fs.read(path))["path"] for path in notes)


def part(world: World, batch: int, name: str | None = None) -> Add:
    """Stage a part with separate rows."""
    return world.driver.stage(batch, f"row {batch}\n".encode(), name)


def record(world: World, batch: int, *adds: Add, **fields: Any) -> None:
    """Create the record of a batch as an older version did, without publishing it."""
    world.driver.create_record(author=world.driver.author(batch), adds=adds, **fields)


class TestParts:
    def test_pending_is_published(self, world: World) -> None:
        record(world, 0, add := part(world, 0))
        assert [file.state for file in ftfile.open(world.url).files()] == ["pending"]
        assert repair(world).ok
        assert world.driver.visible() == {add.final_path}
        assert [file.state for file in ftfile.open(world.url).files()] == ["published"]

    def test_published_by_the_hint_and_not_in_truth(self, world: World) -> None:
        add = world.driver.commit_new(0)
        world.move(add.final_path, add.path)
        assert repair(world).ok
        assert world.driver.visible() == {add.final_path}

    def test_a_foreign_file_in_the_way(self, world: World) -> None:
        record(world, 0, add := part(world, 0))
        world.write(add.final_path or "", b"mine")
        with pytest.raises(CommitError):
            world.driver.commit_new(1)
        assert repair(world).ok
        assert quarantined(world) == [add.final_path]
        world.driver.restart()
        world.driver.commit_new(1)
        assert visible(world) == [b"row", b"row 0"]

    def test_a_foreign_file_in_the_place_of_a_directory(self, world: World) -> None:
        record(world, 0, part(world, 0, "key=1/part.txt"))
        world.write("key=1", b"mine")
        assert repair(world).ok
        assert quarantined(world) == ["key=1"]
        assert world.fs.read("key=1/part.txt") == b"row 0\n"

    @pytest.mark.parametrize("name", [f"{'long' * 70}.txt.gz", "a\0b.txt"])
    def test_a_name_that_cannot_exist(self, world: World, name: str) -> None:
        record(world, 0, part(world, 0, name))
        with pytest.raises(CommitError):
            world.driver.commit_new(1)
        assert repair(world).ok
        world.driver.restart()
        world.driver.commit_new(1)
        assert visible(world) == rows(world) == [b"row", b"row 0"]
        (renamed,) = (path for path in world.driver.visible() if "repaired" in path)
        assert renamed.endswith(name[-7:] if name.endswith(".gz") else ".txt")

    def test_the_record_of_another_name_can_be_published_by_anybody(self, world: World) -> None:
        """A name that is too long cannot exist, so no file must be hidden at this name."""
        record(world, 0, part(world, 0, f"{'long' * 70}.txt"))
        report = repair(world)
        log = CommitLog(world.fs)
        repaired = log.read_record(report.version)
        assert repaired is not None
        assert publish(log, Unpublished(report.version, None, repaired.adds, repaired.removes), 0) is None

    def test_a_compaction_to_a_name_that_cannot_exist(self, world: World) -> None:
        """The inputs of the compaction are hidden, so plain readers see no rows."""
        old = [part(world, batch) for batch in range(2)]
        for batch, add in enumerate(old):
            world.driver.commit(batch, add)
        new = world.driver.stage(1, b"row 0\nrow 1\n", f"{'long' * 60}-{'more' * 9}.txt")
        removes = tuple(map(Remove.of, old))
        world.driver.create_record(author=MaintenanceAuthor("compact", "c"), adds=(new,), removes=removes)
        for add in old:
            world.move(add.final_path, layout.retired_path(add.id))
        assert visible(world) == []
        assert repair(world).ok
        assert visible(world) == rows(world) == [b"row 0", b"row 1"]

    def test_a_missing_part_is_given_up_by_name_only(self, world: World) -> None:
        adds = [part(world, batch) for batch in range(3)]
        for batch, add in enumerate(adds):
            world.driver.commit(batch, add)
        world.fs.delete(adds[1].final_path or "")
        assert [file.state for file in ftfile.open(world.url).files()] == ["published", "missing", "published"]
        left = ftfile.repair(world.url, dry_run=False)
        assert (left.ok, left.steps, [found.code for found in left.findings]) == (False, (), ["missing-part"])
        assert repair(world, give_up=[adds[1].final_path]).ok
        assert rows(world) == visible(world) == [b"row 0", b"row 2"]
        assert ftfile.open(world.url).history()[-1].operation == "repair"

    def test_a_damaged_part_is_put_aside_when_it_is_given_up(self, world: World) -> None:
        world.driver.commit(0, add := part(world, 0))
        world.write(add.final_path or "", b"row 9\n")
        with pytest.raises(ConfigError, match="full=True"):
            ftfile.repair(world.url, give_up=[add.final_path or ""])
        assert repair(world, give_up=[add.final_path], full=True).ok
        assert (rows(world), visible(world), quarantined(world)) == ([], [], [add.final_path])

    def test_a_live_part_that_was_retired(self, world: World) -> None:
        """A late completion of an old removal hid the newer file with the same name."""
        world.driver.commit(0, add := part(world, 0))
        world.move(add.final_path, layout.retired_path("another"))
        assert repair(world).ok
        assert visible(world) == rows(world) == [b"row 0"]
        assert world.fs.exists(layout.retired_path("another"))

    def test_a_live_part_that_was_retired_as_itself(self, world: World) -> None:
        world.driver.commit(0, add := part(world, 0))
        world.move(add.final_path, layout.retired_path(add.id))
        assert repair(world).ok
        assert visible(world) == rows(world) == [b"row 0"]

    @pytest.mark.parametrize("is_retired_too", [False, True])
    def test_old_and_new_rows_side_by_side(self, world: World, is_retired_too: bool) -> None:
        adds = [part(world, batch) for batch in range(2)]
        for batch, add in enumerate(adds):
            world.driver.commit(batch, add)
        world.compact(1, *adds)
        for add in adds:
            content = world.fs.read(layout.retired_path(add.id))
            if not is_retired_too:
                world.fs.delete(layout.retired_path(add.id))
            world.write(add.final_path or "", content)
        assert visible(world) == [b"row 0", b"row 0", b"row 1", b"row 1"]
        assert repair(world).ok
        assert visible(world) == rows(world) == [b"row 0", b"row 1"]
        assert ftfile.open(world.url).files(1)[0].state == "retired"

    def test_a_removed_part_that_is_still_staged(self, world: World) -> None:
        world.driver.commit(0, old := part(world, 0))
        world.compact(0, old)
        world.move(layout.retired_path(old.id), old.path)
        assert repair(world).ok
        assert world.fs.exists(layout.retired_path(old.id)), "older versions have the file"

    def test_foreign_files_stay_unless_they_are_named(self, world: World) -> None:
        world.driver.commit(0, old := part(world, 0))
        world.compact(0, old)
        world.write(old.final_path or "", b"mine, and not that of before")
        world.write("key=1/mine.txt", b"mine")
        assert repair(world).steps == ()
        repair(world, quarantine=[old.final_path])
        assert quarantined(world) == [old.final_path]
        assert world.fs.exists("key=1/mine.txt")

    def test_what_is_not_foreign_is_refused(self, world: World) -> None:
        world.driver.commit(0, add := part(world, 0))
        for path in (add.final_path or "", layout.record_path(0), "nothing"):
            with pytest.raises(ConfigError, match="is not a foreign file"):
                ftfile.repair(world.url, quarantine=[path])

    def test_what_is_not_lost_is_refused(self, world: World) -> None:
        world.driver.commit(0, add := part(world, 0))
        with pytest.raises(ConfigError, match="is not known to be lost"):
            ftfile.repair(world.url, give_up=[add.final_path or ""])

    def test_dead_letters_are_published(self, world: World) -> None:
        letter = structs.replace(part(world, 0), final_path=layout.dead_letter_path("query-1", 0, 0, "id"))
        record(world, 0, dead_letters=(letter,))
        assert repair(world).ok
        assert world.fs.exists(letter.final_path or "")


class TestLeftBehind:
    """States that older versions left behind, with and without later commits."""

    def test_a_removed_part_whose_directory_is_gone(self, world: World) -> None:
        """The removal was never published, and no later version either."""
        world.driver.commit(0, old := part(world, 0, "month=7/old.txt"))
        record(world, 1, new := part(world, 1), removes=(Remove.of(old),))
        world.fs.delete("month=7/old.txt")
        world.fs.remove_directory("month=7")
        assert repair(world).ok
        assert rows(world) == visible(world) == [b"row 1"]
        world.driver.restart()
        world.driver.commit(2, part(world, 2))
        assert ftfile.open(world.url).status().unpublished == ()
        assert world.fs.exists(new.final_path or "")

    def test_a_replaced_part_that_has_nowhere_to_be_hidden(self, world: World) -> None:
        world.driver.commit(0, old := part(world, 0))
        record(world, 1, part(world, 1), removes=(Remove.of(old),))
        for info in world.fs.list(layout.RETIRED):
            world.fs.delete(info.path)
        world.fs.remove_directory(layout.RETIRED)
        assert repair(world).ok
        assert rows(world) == visible(world) == [b"row 1"]

    def test_a_checkpoint_that_forgot_what_is_not_published(self, world: World) -> None:
        world.driver.commit_new(0)
        record(world, 1, add := part(world, 1))
        head = CommitLog(world.fs).refresh()
        write_checkpoint(world.fs, SYSTEM.ids, replace(head, unpublished={}))
        write_published(world.fs, PublishedHint(head.version, head.nonce))
        world.driver.restart()
        assert ftfile.open(world.url).status().unpublished == ()
        assert repair(world).ok
        assert world.fs.exists(add.final_path or "")
        assert rows(world) == visible(world) == [b"row", b"row 1"]

    @pytest.mark.parametrize("is_published", [False, True])
    def test_dead_letters_that_somebody_deleted(self, world: World, is_published: bool) -> None:
        letter = structs.replace(part(world, 0), final_path=layout.dead_letter_path("query-1", 0, 0, "id"))
        record(world, 0, dead_letters=(letter,))
        if is_published:
            world.driver.commit_new(1)
        world.fs.delete((letter.final_path or "") if is_published else letter.path)
        world.fs.put(layout.PUBLISHED_HINT, b"lost")
        world.fs.delete(layout.PUBLISHED_HINT)
        assert repair(world).ok
        world.driver.with_policy(on_missing_part="fail").restart()
        world.driver.commit_new(1 + is_published)

    def test_files_that_are_lost_together_are_one_record(self, world: World) -> None:
        adds = [world.driver.commit_new(batch) for batch in range(4)]
        for add in adds[1:3]:
            world.fs.delete(add.final_path or "")
        assert repair(world, give_up=[add.final_path for add in adds[1:3]]).ok
        removed = ftfile.open(world.url).history()[-1]
        assert (removed.version, removed.operation, removed.files_removed, removed.rows_removed) == (4, "repair", 2, 2)


class TestOneNameTwice:
    """Two files of the same name: with `ifExists=fail`, a consumer moved the first file away."""

    def two(self, world: World) -> list[Add]:
        adds = [part(world, batch, "latest.txt") for batch in range(2)]
        for batch, add in enumerate(adds):
            record(world, batch, add)
        return adds

    def test_the_lost_one_is_given_up_and_the_other_stays(self, world: World) -> None:
        old, new = self.two(world)
        world.fs.delete(old.path)
        world.move(new.path, "latest.txt")
        assert repair(world, give_up=["latest.txt"]).ok
        assert visible(world) == rows(world) == [b"row 1"]

    def test_the_staged_one_gets_another_name(self, world: World) -> None:
        old, _ = self.two(world)
        world.move(old.path, "latest.txt")
        with pytest.raises(CommitError):
            world.driver.commit_new(2)
        assert repair(world).ok
        assert visible(world) == rows(world) == [b"row 0", b"row 1"]
        world.driver.restart()
        world.driver.commit_new(2)

    def test_the_hidden_one_gets_another_name(self, world: World) -> None:
        old, new = self.two(world)
        world.move(old.path, layout.retired_path("late"))
        world.move(new.path, "latest.txt")
        assert repair(world).ok
        assert visible(world) == rows(world) == [b"row 0", b"row 1"]


class TestLog:
    @pytest.fixture(autouse=True)
    def _committed(self, world: World) -> None:
        for batch in range(5):
            world.driver.commit(batch, part(world, batch))

    def expected(self, *batches: int) -> list[bytes]:
        return [f"row {batch}".encode() for batch in batches]

    @pytest.mark.parametrize(
        "fields", [{"version": "4", "nonce": "x"}, {"version": 4}, {"version": 4, "nonce": "x"}, {"version": None}]
    )
    def test_a_hint_of_another_type_or_history(self, world: World, fields: dict[str, Any]) -> None:
        world.hint(**fields)
        assert repair(world).ok
        world.driver.restart()
        world.driver.commit_new(5)

    def test_the_newest_record_is_lost(self, world: World) -> None:
        lost = ftfile.open(world.url).files()[-1]
        world.lose(4)
        assert not ftfile.repair(world.url, dry_run=False).ok
        assert repair(world, accept_lost_records=True).ok
        assert rows(world) == self.expected(0, 1, 2, 3)
        # The lost file is unknown: its record is lost, so its origin cannot be determined.
        assert ftfile.open(world.url).verify().findings[0].code == "unknown-files"
        repair(world, quarantine=[lost.path])
        assert visible(world) == self.expected(0, 1, 2, 3)
        world.driver.restart()
        world.driver.commit_new(4)

    def test_writers_tell_the_call_that_goes_on(self, world: World) -> None:
        world.lose(4)
        world.driver.restart()
        with pytest.raises(CorruptData) as raised:
            world.driver.commit_new(4)
        call = re.search(r"ftfile\.repair\(path, (.*?)\)", str(raised.value))
        assert call is not None
        asked: dict[str, Any] = {}
        for argument in call[1].split(", "):
            name, _, value = argument.partition("=")
            asked[name] = value == "True"
        assert ftfile.repair(world.url, **asked).ok
        world.driver.commit_new(4)

    def test_a_hole(self, world: World) -> None:
        world.lose(2)
        assert not ftfile.repair(world.url, dry_run=False).ok
        report = repair(world, accept_lost_records=True)
        assert report.ok
        assert report.version == 1
        assert rows(world) == self.expected(0, 1)
        # The file of the lost record is not in any record; the files of later records were quarantined.
        assert visible(world) == self.expected(0, 1, 2)
        world.driver.restart()
        with pytest.raises(BatchGap):
            world.driver.commit_new(5)

    def test_what_the_records_that_are_put_aside_removed_is_back(self, world: World) -> None:
        adds = list(ftfile.open(world.url).snapshot().adds.values())
        world.compact(4, *adds)
        world.lose(4)
        assert repair(world, accept_lost_records=True).ok
        assert rows(world) == self.expected(0, 1, 2, 3)

    def test_a_hole_that_another_commit_filled(self, world: World) -> None:
        world.fs.delete(layout.PUBLISHED_HINT)
        later = [world.fs.read(layout.record_path(version)) for version in (3, 4)]
        for version in (2, 3, 4):
            world.lose(version)
        world.driver.restart()
        world.driver.commit(2, world.driver.stage(2, b"other row\n"))
        for version, content in zip((3, 4), later, strict=True):
            world.write(layout.record_path(version), content)
        report = repair(world, accept_lost_records=True)
        assert report.ok
        assert rows(world) == [b"other row", *self.expected(0, 1)]

    def test_a_damaged_record(self, world: World) -> None:
        world.write(layout.record_path(3), b"nonsense")
        assert repair(world, accept_lost_records=True).ok
        assert rows(world) == self.expected(0, 1, 2)
        assert layout.record_path(3) in quarantined(world)

    def test_the_horizon_is_in_the_future(self, world: World) -> None:
        horizon_ms = world.driver.log.clock.now_ms() + 400 * DAY_MS
        world.driver.create_record(author=MaintenanceAuthor("vacuum", "old"), horizon_ms=horizon_ms)
        with pytest.raises(CommitError):
            world.driver.commit_new(5)
        assert repair(world).ok
        world.driver.restart()
        world.driver.commit_new(5)


@pytest.mark.usefixtures("_often")
class TestDerived:
    @pytest.fixture(autouse=True)
    def _committed(self, world: World, _often: None) -> None:
        for batch in range(9):
            world.driver.commit(batch, part(world, batch))

    def check(self, world: World, **asked: Any) -> None:
        assert repair(world, **asked).ok
        assert rows(world) == visible(world) == [f"row {batch}".encode() for batch in range(9)]
        world.driver.restart()
        world.driver.commit(9, part(world, 9))

    def test_ranges_of_other_adds(self, world: World) -> None:
        for name in list_compacted(world.fs):
            content = read_compacted(world.fs, name, ended=True)
            world.write(layout.compacted_path(name), encode_compacted(structs.replace(content, kept=())))
        self.check(world)

    def test_a_range_beyond_the_head(self, world: World) -> None:
        name = max(list_compacted(world.fs))
        content = read_compacted(world.fs, name, ended=True)
        beyond = structs.replace(content, first=0, last=99)
        world.write(layout.compacted_path(name._replace(first=0, last=99)), encode_compacted(beyond))
        self.check(world, accept_lost_records=True)

    def test_damaged_ranges(self, world: World) -> None:
        for name in list_compacted(world.fs):
            world.write(layout.compacted_path(name), b"nonsense")
        self.check(world)

    def test_ranges_of_another_history(self, world: World) -> None:
        for name in list_compacted(world.fs):
            content = read_compacted(world.fs, name, ended=True)
            world.write(layout.compacted_path(name), encode_compacted(structs.replace(content, nonce="other", kept=())))
        self.check(world)

    def test_checkpoints_of_another_story(self, world: World) -> None:
        for name in list_checkpoints(world.fs):
            from ftfile.log.checkpoints import decode_checkpoint

            checkpoint = decode_checkpoint(world.fs.read(layout.log_checkpoint_path(name)), "")
            world.write(layout.log_checkpoint_path(name), encode_checkpoint(replace(checkpoint, horizon_ms=7)))
        self.check(world)

    @pytest.mark.slow
    def test_damaged_checkpoints(self, world: World) -> None:
        for name in list_checkpoints(world.fs):
            world.write(layout.log_checkpoint_path(name), b"nonsense")
        self.check(world)

    def test_a_hole_behind_a_checkpoint(self, world: World) -> None:
        world.lose(min(list_checkpoints(world.fs)).version - 1)
        assert not ftfile.repair(world.url, dry_run=False).ok
        self.check(world, accept_lost_records=True)
        assert ftfile.open(world.url).oldest_version() > 0

    def test_a_hole_behind_a_checkpoint_that_no_range_stands_for(self, world: World) -> None:
        """If the log began after the missing record, the versions before it would be lost permanently, too."""
        version = min(list_checkpoints(world.fs)).version - 1
        world.lose(version)
        for name in list_compacted(world.fs):
            world.fs.delete(layout.compacted_path(name))
        report = ftfile.repair(world.url, dry_run=False)
        assert not report.ok
        assert not any("checkpoints and compacted logs replace them" in finding.remedy for finding in report.findings)
        assert repair(world, accept_lost_records=True).ok
        assert rows(world) == [f"row {batch}".encode() for batch in range(version)]
        world.driver.restart()
        with pytest.raises(BatchGap):
            world.driver.commit(9, part(world, 9))


def test_directories_are_missing(tmp_path: Path) -> None:
    fs = LocalFileSystem(str(tmp_path / "out"), SYSTEM)
    add = Driver(fs).commit_new(0)
    assert add.final_path
    for name in (layout.RETIRED, layout.COMPACTED, layout.CHECKPOINTS):
        (tmp_path / "out" / name).rmdir()
    assert ftfile.repair(str(tmp_path / "out"), dry_run=False).ok
    assert all(fs.exists(name) for name in layout.DIRECTORIES)


ROLLED = {"fileFormat": "json", "rolling": "policy", "maxBatchesPerFile": "100"}


def rolled(tmp_path: Path, **options: str) -> MicroBatch:
    return MicroBatch(str(tmp_path / "out"), {"id": "long"}, ROLLED | options)


def damage_spool(tmp_path: Path, batch: int) -> str:
    (spool,) = (tmp_path / "out" / layout.STAGED).rglob(f"_{batch}-*.spool")
    content = spool.read_bytes()
    spool.write_bytes(bytes(byte ^ 1 for byte in content))
    return spool.relative_to(tmp_path / "out").as_posix()


@pytest.mark.slow
def test_a_damaged_segment_is_given_up(tmp_path: Path) -> None:
    query = rolled(tmp_path)
    for batch in range(3):
        query.run(batch, [[{"id": batch}]])
    path = str(tmp_path / "out")
    spool = damage_spool(tmp_path, 1)
    assert ftfile.open(path).verify().ok
    (found,) = ftfile.open(path).verify(full=True).findings
    assert (found.code, found.path, found.repair) == ("damaged-segment", spool, "on request")
    assert ftfile.repair(path, dry_run=False, full=True, give_up=[spool]).ok
    assert ftfile.open(path).to_arrow()["id"].to_pylist() == [0, 2]
    ftfile.flush(path)
    query.run(3, [[{"id": 3}]])
    assert sorted(ftfile.open(path).to_arrow()["id"].to_pylist()) == [0, 2, 3]


def test_a_missing_segment_is_given_up(tmp_path: Path) -> None:
    query = rolled(tmp_path)
    for batch in range(2):
        query.run(batch, [[{"id": batch}]])
    path = str(tmp_path / "out")
    (spool,) = (tmp_path / "out" / layout.STAGED).rglob("_0-*.spool")
    spool.unlink()
    (found,) = ftfile.open(path).verify().findings
    assert found.code == "missing-segment"
    assert ftfile.repair(path, dry_run=False, give_up=[found.path]).ok
    assert ftfile.open(path).to_arrow()["id"].to_pylist() == [1]


@parametrize("file_format", ["text", "parquet"], quick=1)
def test_an_encrypted_part_gets_another_name(ring: Path, out: str, file_format: str) -> None:
    """The content is bound to its path, and readable at the new path."""
    stream(out, ring, fileFormat=file_format).run(0, [rows_of("secret")])
    directory = ftfile.open(out)
    log = CommitLog(directory.file_system)
    (add,) = directory.snapshot().adds.values()
    log.fs.make_directories(layout.parent(add.path))
    log.fs.rename(add.final_path or "", add.path)
    broken = structs.replace(add, id=layout.unique_part(add.id) + "0" * 20, final_path=f"{'long' * 70}.x")
    removed = structs.replace(Remove.of(add), final_path=f"{layout.RETIRED}/gone")
    Driver(log.fs).create_record(log, author=MaintenanceAuthor("old", "x"), adds=(broken,), removes=(removed,))
    report = ftfile.repair(out, dry_run=False)
    assert report.ok, report
    assert directory.verify(full=True).ok
    assert committed(out) == ["secret"]
    assert [file.state for file in directory.files()] == ["published"]


def harm(world: World) -> None:
    """Leave a hidden, a returned, a taken, an impossible and a repeated file behind. Rows 0 to 6 stay live."""
    adds = [part(world, batch) for batch in range(4)]
    for batch, add in enumerate(adds):
        world.driver.commit(batch, add)
    world.compact(3, *adds[:2])
    world.move(layout.retired_path(adds[0].id), adds[0].final_path)
    world.move(adds[2].final_path, layout.retired_path("late"))
    for batch, name in ((4, f"{'long' * 70}.txt"), (5, "taken.txt"), (6, adds[3].final_path)):
        record(world, batch, part(world, batch, name))
    world.write("taken.txt", b"mine\n")


ALL_ROWS = [f"row {batch}".encode() for batch in range(7)]


@pytest.mark.parametrize("storage", ["disk", "hdfs", "s3"])
def test_on_storage_of_each_kind(storage: Storage) -> None:
    fs = CrashingFileSystem(clock=ManualClock(1_700_000_000_000), storage=storage)
    with mounted(fs) as url:
        world = World(fs, url, Driver(fs))
        harm(world)
        report = ftfile.repair(url, dry_run=False)
        assert report.ok, report
        assert rows(world) == visible(world) == ALL_ROWS
        assert quarantined(world)[-1] == "taken.txt"
        assert ftfile.repair(url, dry_run=False).steps == ()


class _Dies(WrapperFileSystem):
    """Kills its process at a call that changes files, before or after the call has its effect."""

    def __init__(self, inner: FileSystem, at: int, *, after: bool) -> None:
        super().__init__(inner)
        self.left = at
        self._after = after

    def _call(self, call: Any, *args: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self._after:
            raise KeyboardInterrupt
        done = call(*args)
        if self.left == 0:
            raise KeyboardInterrupt
        return done

    def create(self, path: str) -> OutputStream:
        stream: OutputStream = self._call(super().create, path)
        return stream

    def rename(self, source: str, target: str) -> None:
        self._call(super().rename, source, target)

    def create_exclusive(self, path: str, content: bytes) -> None:
        self._call(super().create_exclusive, path, content)

    def put(self, path: str, content: bytes) -> None:
        self._call(super().put, path, content)

    def delete(self, path: str) -> None:
        self._call(super().delete, path)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_repair_that_is_killed_is_repeated(after: bool) -> None:
    at = 0
    is_killed = True
    while is_killed:
        at += 1
        MemoryFileSystem.drop("killed")
        fs = MemoryFileSystem("killed")
        with mounted(fs) as url:
            world = World(fs, url, Driver(fs))
            harm(world)
        dying = _Dies(fs, at, after=after)
        with mounted(dying) as url:
            try:
                ftfile.repair(url, dry_run=False)
            except KeyboardInterrupt:
                pass
            else:
                is_killed = False
        with mounted(fs) as url:
            world = World(fs, url, Driver(fs))
            report = ftfile.repair(url, dry_run=False)
            assert report.ok, (at, report)
            assert rows(world) == visible(world) == ALL_ROWS, at
            world.driver.commit(7, part(world, 7))
    MemoryFileSystem.drop("killed")
    assert at > 20


def test_more_rounds_than_are_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report names the remaining findings, and the next repair continues."""
    add = world.driver.commit_new(0)
    world.move(add.final_path, layout.retired_path(add.id))
    monkeypatch.setattr(run, "ROUNDS", 0)
    report = ftfile.repair(world.url, dry_run=False)
    assert not report.ok
    assert report.steps == ()
    monkeypatch.undo()
    assert repair(world).ok
    assert rows(world) == [b"row"]


@pytest.mark.slow
@pytest.mark.parametrize("more", [-1, 0])
def test_records_of_others_at_more_tries_than_are_made(world: World, more: int) -> None:
    """Each record takes the version that the repair is about to create."""
    add, busy = world.driver.commit_new(0), repair_actions.TRIES + more

    class Faster(WrapperFileSystem):
        def create_exclusive(self, path: str, content: bytes) -> None:
            nonlocal busy
            if path.endswith(".record") and busy:
                busy -= 1
                world.driver.create_record(author=MaintenanceAuthor("test", "x"))
            super().create_exclusive(path, content)

    log, author = CommitLog(Faster(world.fs)), MaintenanceAuthor("repair", "r")
    if more < 0:
        repair_actions.record_changes(log, author, [add], [])
    else:
        with pytest.raises(CommitError, match="repair again later"):
            repair_actions.record_changes(log, author, [add], [])
    assert busy == 0
    assert bool(rows(world)) == (more == 0)


@pytest.mark.slow
def test_a_file_of_more_than_one_piece_is_copied(world: World) -> None:
    content = random.Random(0).randbytes(2 * repair_actions.PIECE_BYTES + 1)
    add = world.driver.stage(0, content)
    copy = structs.replace(add, path=f"{layout.parent(add.path)}/copy.staged")
    repair_actions.copy_to(world.fs, copy, add.path)
    assert world.fs.read(copy.path) == content


@pytest.mark.parametrize("content", [b"", b"ftfile directory, layout 1\n", b"ftfile directory, layout 3\n"])
def test_a_damaged_format_file_is_put_aside_and_written_again(world: World, content: bytes) -> None:
    world.driver.commit_new(0)
    right = world.fs.read(layout.FORMAT_FILE)
    world.write(layout.FORMAT_FILE, content)
    for opens in (ftfile.open, ftfile.flush):
        with pytest.raises(CorruptData, match=r"ftfile\.repair\(path, dry_run=False\) writes it again"):
            opens(world.url)
    assert {step.code for step in repair(world).steps} == {"bad-format"}
    assert world.fs.read(layout.FORMAT_FILE) == right
    assert quarantined(world) == [layout.FORMAT_FILE]
    world.driver.restart()
    world.driver.commit_new(1)


def test_a_damaged_marker_is_put_aside_where_none_is_needed(world: World) -> None:
    world.driver.commit_new(0)
    world.write(layout.MARKER, b"\xff")
    assert world.codes() == ["bad-marker"]
    assert repair(world).ok
    assert not world.fs.exists(layout.MARKER)
    assert quarantined(world) == [layout.MARKER]


def test_a_damaged_marker_stops_nothing_and_is_written_again(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path), {"word": "string"}, {"fileFormat": "text"})
    query.run(0, [[{"word": "a"}]])
    (tmp_path / layout.MARKER).write_bytes(b"\xff")
    query.restart()
    query.run(1, [[{"word": "b"}]])
    (damage,) = ftfile.open(tmp_path).verify().findings
    assert (damage.code, damage.severity) == ("bad-marker", "warning")
    assert ftfile.repair(tmp_path, dry_run=False).ok
    assert re.fullmatch(rb"[0-9a-f]{32}\ncrc32:[0-9a-f]{8}\n", (tmp_path / layout.MARKER).read_bytes())


def test_the_damaged_format_file_of_an_encrypted_directory_is_restored(out: str, ring: Path) -> None:
    stream(out, ring).run(0, [rows_of("a")])
    path = Path(out, layout.FORMAT_FILE)
    right = path.read_bytes()
    opened = ftfile.open(out, key_provider=f"file:{ring}")
    path.write_bytes(right.replace(b"layout 1", b"layout 3"))
    for key_provider in (f"file:{ring}", None):
        with pytest.raises(CorruptData, match="Restore it from a copy"):
            ftfile.repair(out, dry_run=False, key_provider=key_provider)
    (damage,) = [finding for finding in opened.verify().findings if finding.code == "bad-format"]
    assert (damage.severity, damage.repair, damage.actions) == ("error", "no", ())
    path.write_bytes(right)
    assert committed(out) == ["a"]


def test_every_action_has_a_function() -> None:
    assert repair_actions.REPAIRS.keys() | {"give-up"} == ACTIONS.keys()
