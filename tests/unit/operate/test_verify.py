"""The findings of verify: each case is a state that another program, or an older version, left behind."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.log import checkpoints, garbage
from ftfile.log import publish as keeping
from ftfile.log.checkpoints import encode_checkpoint, list_checkpoints, write_checkpoint
from ftfile.log.checks import Rewrite
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.compacted import encode_compacted
from ftfile.log.format.model import Job, MaintenanceAuthor, Remove
from ftfile.log.format.record import to_checked_text
from ftfile.log.read.add_table import compact_records
from ftfile.log.read.compacted_records import list_compacted, read_compacted, write_compacted
from ftfile.log.read.compacted_writer import write_fewest_compacted
from ftfile.log.vacuum import LOWERING
from ftfile.operate.verify import history
from ftfile.operate.verify import verify_directory as verifying
from ftfile.operate.verify.files import NAMES_TOLD, StoredFiles, list_files
from ftfile.operate.verify.history import read_history
from ftfile.operate.verify.verify_directory import verify
from ftfile.storage.calls import THREADS_MAX
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from tests.kit.parameters import parametrize
from tests.unit.log.conftest import Driver
from tests.without import is_left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.log.format.model import Add
    from ftfile.operate.findings import Finding
    from ftfile.operate.verify.verify_directory import VerifyReport
    from ftfile.storage.api import Capabilities, FileSystem

DAY_MS = 86_400_000


@dataclass
class World:
    """A directory with one query."""

    fs: FileSystem
    url: str
    driver: Driver

    def verify(self, **settings: Any) -> VerifyReport:
        before = self.content()
        report = ftfile.open(self.url).verify(**settings)
        assert self.content() == before, "verifying writes nothing"
        return report

    def codes(self, **settings: Any) -> list[str]:
        return [finding.code for finding in self.verify(**settings).findings]

    def the(self, code: str, **settings: Any) -> Finding:
        (found,) = (finding for finding in self.verify(**settings).findings if finding.code == code)
        return found

    def content(self) -> dict[str, bytes]:
        kept = (path for path in walk(self.fs, "") if path != layout.CLOCK_HINT and not is_left_out(path))
        return {path: self.fs.read(path) for path in kept}

    def write(self, path: str, content: bytes) -> None:
        """Write a file as another program."""
        if self.fs.exists(path):
            self.fs.delete(path)
        self.fs.make_directories(layout.parent(path))
        with self.fs.create(path) as stream:
            stream.write(content)

    def move(self, source: str | None, target: str | None) -> None:
        assert source is not None
        assert target is not None
        self.fs.make_directories(layout.parent(target))
        self.fs.rename(source, target)

    def compact(self, batch: int, *inputs: Add) -> Add:
        """Replace parts by one part with the same rows."""
        content = b"".join(self.fs.read(add.final_path or "") for add in inputs)
        new = self.driver.stage(batch, content)
        author = MaintenanceAuthor("compact", f"compact-{batch}")
        version = self.driver.log.refresh().version
        self.driver.commit_as(author, rewrites=(Rewrite(inputs, (new,), version),))
        return new

    def lose(self, version: int) -> None:
        self.fs.delete(layout.record_path(version))

    def hint(self, **fields: Any) -> None:
        """Overwrite the hint, with a correct checksum."""
        self.fs.put(layout.PUBLISHED_HINT, to_checked_text([json.dumps(fields).encode()]))


def walk(fs: FileSystem, directory: str) -> Iterator[str]:
    for info in fs.list(directory):
        if info.is_directory:
            yield from walk(fs, info.path)
        else:
            yield info.path


class _Slow(WrapperFileSystem):
    """A storage system whose calls are slow enough to run many of them at once."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.readers: set[int] = set()

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, concurrency=8)

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        self.readers.add(threading.get_ident())
        time.sleep(0.002)
        return super().read(path, bytes_max)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    fs = MemoryFileSystem(request.node.name)
    with mounted(fs) as url:
        yield World(fs, url, Driver(fs))
    MemoryFileSystem.drop(request.node.name)


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write checkpoints and ranges at about every second version."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)


@pytest.mark.usefixtures("_often")
class TestHealthy:
    def test_nothing_is_found(self, world: World) -> None:
        adds = [world.driver.commit_new(batch) for batch in range(9)]
        world.compact(8, *adds[2:5])
        removes = [read_compacted(world.fs, name, ended=True).removes for name in list_compacted(world.fs)]
        assert any(removes)
        report = world.verify(full=True)
        assert report.ok
        assert report.findings == ()
        assert (report.version, report.records, report.files, report.rows) == (9, 10, 7, 9)

    def test_an_empty_directory(self, world: World) -> None:
        world.driver.log.prepare_directory()
        report = world.verify(full=True)
        assert report.ok
        assert (report.version, report.files) == (-1, 0)

    def test_after_a_vacuum(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(garbage, "RECORD_AGE_MIN_MS", 0)
        adds = [world.driver.commit_new(batch) for batch in range(9)]
        world.compact(8, *adds[:3])
        for _ in range(2):
            ftfile.vacuum(world.url, dry_run=False, retention="0s", force=True)
        for batch in range(9, 12):
            world.driver.commit_new(batch)
        report = world.verify(full=True)
        assert report.findings == ()
        assert 0 < report.oldest_version < report.version

    def test_what_lost_attempts_left_is_counted(self, world: World) -> None:
        world.driver.commit_new(0)
        world.driver.stage(1, b"lost\n")
        report = world.verify()
        assert report.ok
        assert (report.unrecorded_files, report.unrecorded_bytes) == (1, 5)

    def test_what_no_record_knows_is_told(self, world: World) -> None:
        world.driver.commit_new(0)
        world.write("mine.txt", b"mine")
        report = world.verify()
        assert report.ok
        assert [(found.code, found.severity) for found in report.findings] == [("unknown-files", "info")]
        assert "mine.txt" in report.findings[0].actual

    @pytest.mark.parametrize("step", [list_files, read_history])
    def test_commits_meanwhile_are_no_findings(
        self, world: World, monkeypatch: pytest.MonkeyPatch, step: Callable[..., Any]
    ) -> None:
        adds = [world.driver.commit_new(batch) for batch in range(4)]

        def late(*args: Any) -> Any:
            world.driver.commit_new(4)
            world.compact(4, *adds)
            world.driver.commit_new(5)
            return step(*args)

        monkeypatch.setattr(f"ftfile.operate.verify.verify_directory.{step.__name__}", late)
        assert ftfile.open(world.url).verify().findings == ()

    def test_a_vacuum_meanwhile_is_no_finding(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(garbage, "RECORD_AGE_MIN_MS", 0)
        for batch in range(9):
            world.driver.commit_new(batch)
        looks: list[object] = []

        def late(*args: Any) -> Any:
            looks.append(args)
            if len(looks) == 1:
                for _ in range(2):
                    ftfile.vacuum(world.url, dry_run=False, retention="0s", force=True)
            return read_history(*args)

        monkeypatch.setattr("ftfile.operate.verify.verify_directory.read_history", late)
        report = ftfile.open(world.url).verify()
        assert report.findings == ()
        assert len(looks) == 2


class TestBounds:
    def test_more_foreign_files_than_are_named(self, world: World) -> None:
        world.driver.commit_new(0)
        for number in range(NAMES_TOLD + 1):
            world.write(f"foreign-{number:02d}.txt", b"somebody's\n")
        found = world.the("unknown-files")
        assert found.actual.startswith(f"{NAMES_TOLD + 1} files, among them 'foreign-00.txt'")
        assert f"foreign-{NAMES_TOLD:02d}" not in found.actual

    @pytest.mark.slow
    def test_more_records_than_are_read_side_by_side(self, world: World) -> None:
        for batch in range(THREADS_MAX + 2):
            world.driver.commit_new(batch)
        slow = _Slow(world.fs)
        report = verify(slow)
        assert (report.findings, report.records, report.version) == ((), THREADS_MAX + 2, THREADS_MAX + 1)
        assert len(slow.readers) > 1

    @parametrize(("at_once", "batches"), [(3, 25), (history.RECORDS_AT_ONCE, 300)], quick=1)
    def test_more_records_than_are_folded_together(
        self, world: World, monkeypatch: pytest.MonkeyPatch, at_once: int, batches: int
    ) -> None:
        monkeypatch.setattr(history, "RECORDS_AT_ONCE", at_once)
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 9 * checkpoints.RECORD_COST_BYTES)
        for batch in range(batches):
            world.driver.commit_new(batch)
        assert len(checkpoints.list_checkpoints(world.fs)) == 2
        report = world.verify()
        assert (report.findings, report.records) == ((), batches)

    @pytest.mark.parametrize(
        ("vacuums", "looks"), [(0, 1), (1, 2), (verifying.TRIES, verifying.TRIES), (99, verifying.TRIES)]
    )
    def test_vacuums_at_more_looks_than_are_made(
        self, world: World, monkeypatch: pytest.MonkeyPatch, vacuums: int, looks: int
    ) -> None:
        """A vacuum may have deleted the missing file. The file is reported after several listings."""
        add, made = world.driver.commit_new(0), 0
        world.fs.delete(add.final_path or "")

        def look(fs: FileSystem) -> StoredFiles:
            nonlocal made
            files, made = list_files(fs), made + 1
            if made <= vacuums:
                other = CommitLog(world.fs)
                write_fewest_compacted(other, other.refresh())
                log_start = other.refresh().version + 1
                world.driver.create_record(other, author=MaintenanceAuthor("vacuum", "v"), log_start=log_start)
            return files

        monkeypatch.setattr(verifying, "list_files", look)
        assert "missing-part" in {finding.code for finding in verify(world.fs).findings}
        assert made == looks


class TestParts:
    def test_pending(self, world: World) -> None:
        add = world.driver.commit_new(0)
        world.move(add.final_path, add.path)
        found = world.the("not-published")
        assert (found.path, found.severity, found.repair) == (add.final_path, "warning", "yes")

    def test_missing(self, world: World) -> None:
        add = world.driver.commit_new(0)
        world.driver.commit_new(1)
        world.fs.delete(add.final_path or "")
        found = world.the("missing-part")
        assert (found.path, found.severity, found.repair) == (add.final_path, "error", "on request")
        assert f"give_up=['{add.final_path}']" in found.remedy

    def test_of_another_length(self, world: World) -> None:
        add = world.driver.commit_new(0)
        world.write(add.final_path or "", b"longer than before\n")
        found = world.the("damaged-part")
        assert found.actual == "19 bytes"

    def test_of_other_bytes(self, world: World) -> None:
        add = world.driver.commit_new(0)
        world.write(add.final_path or "", b"raw\n")
        assert world.verify().ok
        assert world.the("damaged-part", full=True).actual == "other bytes"

    def test_a_foreign_file_at_the_name(self, world: World) -> None:
        add = world.driver.commit_new(0)
        world.move(add.final_path, add.path)
        world.write(add.final_path or "", b"mine")
        assert world.codes() == ["taken-name"]

    def test_a_foreign_file_of_the_same_length_at_the_name(self, world: World) -> None:
        add = world.driver.commit_new(0)
        world.move(add.final_path, add.path)
        world.write(add.final_path or "", b"raw\n")
        assert world.codes() == ["taken-name"]
        assert [file.state for file in ftfile.open(world.url).files()] == ["pending"]

    def test_a_file_where_its_directory_should_be(self, world: World) -> None:
        add = world.driver.stage(0, name="key=1/part.txt")
        world.driver.create_record(author=world.driver.author(0), adds=(add,))
        world.write("key=1", b"mine")
        assert world.codes() == ["taken-name"]

    def test_a_name_that_cannot_exist(self, world: World) -> None:
        add = world.driver.stage(0, name=f"{'long' * 70}.txt")
        world.driver.create_record(author=world.driver.author(0), adds=(add,))
        found = world.the("impossible-name")
        assert (found.path, found.repair) == (add.final_path, "yes")
        assert "280" in found.actual or "284" in found.actual

    def test_a_removed_part_is_there_again(self, world: World) -> None:
        adds = [world.driver.commit_new(batch) for batch in range(2)]
        world.compact(1, *adds)
        world.move(layout.retired_path(adds[0].id), adds[0].final_path)
        found = world.the("returned-part")
        assert (found.path, found.severity, found.repair) == (adds[0].final_path, "error", "yes")

    def test_a_removed_part_is_still_there(self, world: World) -> None:
        """The removal is not published yet. The next commit publishes it."""
        add = world.driver.commit_new(0)
        world.driver.create_record(author=MaintenanceAuthor("drop", "x"), removes=(Remove.of(add),))
        found = world.the("not-hidden")
        assert (found.path, found.severity, found.repair) == (add.final_path, "warning", "yes")

    def test_a_foreign_file_where_a_removed_part_was(self, world: World) -> None:
        adds = [world.driver.commit_new(batch) for batch in range(2)]
        world.compact(1, *adds)
        world.write(adds[0].final_path or "", b"raw\n")
        report = world.verify()
        assert report.ok
        assert [found.code for found in report.findings] == ["foreign-files"]

    def test_a_removed_part_is_still_staged(self, world: World) -> None:
        adds = [world.driver.commit_new(batch) for batch in range(2)]
        world.compact(1, *adds)
        world.move(layout.retired_path(adds[0].id), adds[0].path)
        assert world.the("removed-part-staged").path == adds[0].path

    def test_what_a_vacuum_under_a_wrong_clock_deleted_is_not_missed(self, world: World) -> None:
        """The horizon was lowered since then. The record of the vacuum contains the horizon that it used."""
        adds = [world.driver.commit_new(batch) for batch in range(2)]
        world.compact(1, *adds)
        for add in adds:
            world.fs.delete(layout.retired_path(add.id))
        assert world.codes() == ["damaged-old-file"] * 2
        version = CommitLog(world.fs).refresh().version
        world.driver.create_record(author=MaintenanceAuthor("vacuum", "job"), horizon_ms=2, vacuumed_to=version)
        world.driver.create_record(author=MaintenanceAuthor(LOWERING, "job"), horizon_ms=1)
        assert world.codes() == []

    def test_a_live_part_is_hidden(self, world: World) -> None:
        """A late completion of an old removal hid the file with the same name."""
        old, live = world.driver.commit_new(0), world.driver.stage(1, b"only here\n")
        world.driver.commit(1, live)
        world.move(live.final_path, layout.retired_path(f"{old.id}x"))
        found = world.the("hidden-part")
        assert found.repair == "yes"

    def test_one_name_twice(self, world: World) -> None:
        """A consumer moved the first file away, and a writer used the name again."""
        adds = [world.driver.stage(batch, f"row {batch}\n".encode(), "latest.txt") for batch in range(2)]
        for batch, add in enumerate(adds):
            world.driver.create_record(author=world.driver.author(batch), adds=(add,))
        world.fs.delete(adds[0].path)
        world.move(adds[1].path, "latest.txt")
        found = world.the("repeated-name")
        assert (found.path, found.repair) == ("latest.txt", "on request")
        assert "batch 0 of" in found.remedy


class TestLog:
    @pytest.fixture(autouse=True)
    def _committed(self, world: World) -> None:
        for batch in range(5):
            world.driver.commit_new(batch)

    def test_a_hole(self, world: World) -> None:
        world.lose(2)
        report = world.verify()
        assert not report.complete
        assert not report.ok
        assert report.version == 1
        assert [(found.code, found.path) for found in report.findings] == [("missing-record", layout.record_path(2))]

    def test_a_damaged_record(self, world: World) -> None:
        path = layout.record_path(3)
        content = world.fs.read(path)
        world.write(path, content[:-9] + b"00000000\n")
        assert world.the("damaged-record").path == path

    def test_a_hole_that_another_commit_filled(self, world: World) -> None:
        world.lose(2)
        world.fs.delete(layout.PUBLISHED_HINT)
        later = [world.fs.read(layout.record_path(version)) for version in (3, 4)]
        for version in (3, 4):
            world.lose(version)
        world.driver.restart()
        world.driver.commit_new(2)
        for version, content in zip((3, 4), later, strict=True):
            world.write(layout.record_path(version), content)
        found = world.the("foreign-record")
        assert found.path == layout.record_path(2)
        assert "the original record was lost, and another commit has its number" in found.remedy

    def test_the_newest_record_is_lost(self, world: World) -> None:
        world.lose(4)
        found = world.the("lost-records")
        assert (found.expected, found.actual) == (
            "version 4, which '_ftfile/hints/_published' contains",
            "version 3 as the newest version",
        )

    @pytest.mark.parametrize(
        "fields", [{"version": "4", "nonce": "x"}, {"version": 4}, {"version": 4, "nonce": "x"}, {"version": None}]
    )
    def test_a_hint_of_another_type_or_history(self, world: World, fields: dict[str, Any]) -> None:
        world.hint(**fields)
        assert world.codes() == ["bad-hint"]

    def test_the_horizon_is_in_the_future(self, world: World) -> None:
        world.driver.create_record(
            author=MaintenanceAuthor("vacuum", "old"), horizon_ms=world.driver.log.clock.now_ms() + 400 * DAY_MS
        )
        found = world.the("horizon-ahead")
        assert found.repair == "yes"

    def test_a_record_that_removes_what_is_not_live(self, world: World) -> None:
        world.driver.create_record(
            author=MaintenanceAuthor("drop", "odd"),
            removes=(structs.replace(Remove.of(world.driver.stage(9)), id="nobody"),),
        )
        assert "bad-record" in world.codes()

    def test_a_job_that_no_task_can_execute(self, world: World) -> None:
        world.driver.create_record(author=MaintenanceAuthor("flush", "odd"), jobs=(Job("job", "age", (), payload={}),))
        assert "bad-record" in world.codes()


@pytest.mark.usefixtures("_often")
class TestDerived:
    @pytest.fixture(autouse=True)
    def _committed(self, world: World, _often: None) -> None:
        for batch in range(9):
            world.driver.commit_new(batch)

    def test_a_range_of_other_adds(self, world: World) -> None:
        name = max(list_compacted(world.fs), key=lambda name: name.last - name.first)
        content = read_compacted(world.fs, name, ended=True)
        columns = content.kept[0].all_columns()
        columns.fields["rows"][0] += 1
        other = structs.replace(content, kept=(type(content.kept[0]).of(columns), *content.kept[1:]))
        world.write(layout.compacted_path(name), encode_compacted(other))
        assert world.the("bad-compacted-log").actual == "other adds than in its records"

    def test_damaged_statistics(self, world: World) -> None:
        add = structs.replace(world.driver.stage(9), statistics={"id": (1, 2, 0)})
        world.driver.commit(9, add)
        name = max(list_compacted(world.fs), key=lambda name: (name.last, name.first))
        path = layout.compacted_path(name)
        world.write(path, world.fs.read(path)[:-1] + b"?")
        assert add.id in ftfile.open(world.url).snapshot().adds
        assert "bytes of statistics" in world.the("bad-compacted-log").actual

    @pytest.mark.parametrize("what", ["kept", "removes", "ended"])
    def test_a_range_without_some_of_it(self, world: World, what: str) -> None:
        live = list(ftfile.open(world.url).snapshot().adds.values())
        world.compact(8, live[0], live[-1])
        world.driver.commit_new(9)
        world.driver.commit_new(10)
        changed = False
        for name in list_compacted(world.fs):
            content = read_compacted(world.fs, name, ended=True)
            if getattr(content, what):
                without: dict[str, Any] = {what: {} if what == "removes" else ()}
                world.write(layout.compacted_path(name), encode_compacted(structs.replace(content, **without)))
                changed = True
                break
        if changed:
            assert "bad-compacted-log" in world.codes()
        else:
            assert what == "ended"

    @pytest.mark.parametrize("kind", ["part", "segment"])
    def test_ranges_that_bring_removed_adds_back(self, world: World, kind: str) -> None:
        """Without the older records, only the state of the log shows that the adds were removed."""
        driver = world.driver
        first = driver.stage(9)
        if kind == "segment":
            first = structs.replace(first, kind="segment", final_path=None)
        driver.create_record(author=driver.author(9), adds=(first,))
        driver.create_record(author=driver.author(10), removes=(Remove.of(first),))
        for batch in range(11, 16):
            driver.commit_new(batch)
        records = [record for version in range(16) if (record := driver.log.read_record(version)) is not None]
        for name in list_compacted(world.fs):
            world.fs.delete(layout.compacted_path(name))
        records[10] = structs.replace(records[10], removes=())
        write_compacted(world.fs, SYSTEM.ids, compact_records(records, 0))
        write_checkpoint(world.fs, SYSTEM.ids, CommitLog(world.fs).refresh())
        driver.create_record(author=MaintenanceAuthor("vacuum", "v"), log_start=15)
        for version in range(15):
            world.fs.delete(layout.record_path(version))
        finding = world.the("bad-compacted-log")
        assert (finding.repair, finding.severity) == ("no", "error")
        assert first.id in finding.actual

    def test_a_range_for_versions_that_none_stands_for(self, world: World) -> None:
        name = max(list_compacted(world.fs))
        content = world.fs.read(layout.compacted_path(name))
        path = layout.compacted_path(name._replace(first=1, last=6))
        world.write(path, content)
        finding = world.the("bad-compacted-log")
        assert (finding.path, finding.severity, finding.repair) == (path, "warning", "yes")

    def test_a_damaged_range(self, world: World) -> None:
        path = layout.compacted_path(max(list_compacted(world.fs)))
        world.write(path, world.fs.read(path)[:-3])
        assert [(found.code, found.path, found.severity) for found in world.verify().findings] == [
            ("bad-compacted-log", path, "warning")
        ]

    def test_a_range_beyond_the_head(self, world: World) -> None:
        name = max(list_compacted(world.fs))
        content = read_compacted(world.fs, name, ended=True)
        beyond = name._replace(first=0, last=127)
        world.write(layout.compacted_path(beyond), encode_compacted(structs.replace(content, first=0, last=127)))
        found = world.the("lost-records")
        assert "version 127" in found.expected
        assert world.verify().files == 9

    def test_a_range_of_another_history(self, world: World) -> None:
        name = max(list_compacted(world.fs))
        content = read_compacted(world.fs, name, ended=True)
        world.write(layout.compacted_path(name), encode_compacted(structs.replace(content, nonce="other")))
        assert "another history" in world.the("bad-compacted-log").actual

    def test_a_checkpoint_of_another_story(self, world: World) -> None:
        name = max(list_checkpoints(world.fs))
        checkpoint = checkpoints.decode_checkpoint(world.fs.read(layout.log_checkpoint_path(name)), "")
        world.write(layout.log_checkpoint_path(name), encode_checkpoint(replace(checkpoint, log_start=0, horizon_ms=7)))
        found = world.the("bad-checkpoint")
        assert (found.path, found.severity) == (layout.log_checkpoint_path(name), "warning")

    @pytest.mark.parametrize("content", [b"", b"{}\n", to_checked_text([b"{}"]), to_checked_text([b"[1]"])])
    def test_a_damaged_checkpoint(self, world: World, content: bytes) -> None:
        path = layout.log_checkpoint_path(max(list_checkpoints(world.fs)))
        world.write(path, content)
        assert world.codes() == ["bad-checkpoint"]

    def test_a_hole_behind_a_checkpoint(self, world: World) -> None:
        """No file of the newest version is lost, but some kept versions cannot be read."""
        oldest = min(list_checkpoints(world.fs)).version
        world.lose(oldest - 1)
        report = world.verify()
        assert report.complete
        assert report.files == 9
        assert "missing-record" in [found.code for found in report.findings]

    def test_records_before_the_checkpoints_are_gone_and_so_are_those(self, world: World) -> None:
        for name in list_checkpoints(world.fs):
            world.fs.delete(layout.log_checkpoint_path(name))
        for version in range(3):
            world.lose(version)
        assert "missing-checkpoint" in world.codes()


def test_directories_are_missing(tmp_path: Any) -> None:
    from ftfile.storage.local import LocalFileSystem

    fs = LocalFileSystem(str(tmp_path / "out"), SYSTEM)
    Driver(fs).commit_new(0)
    (tmp_path / "out" / layout.RETIRED).rmdir()
    found = ftfile.open(str(tmp_path / "out")).verify().findings
    assert [(each.code, each.path, each.severity) for each in found] == [
        ("missing-directory", layout.RETIRED, "warning")
    ]


def test_a_cut_off_log_is_no_reason_to_raise(world: World) -> None:
    for batch in range(3):
        world.driver.commit_new(batch)
    assert CommitLog(world.fs).refresh().version == 2
    for version in range(3):
        world.lose(version)
    assert "lost-records" in world.codes()
