"""Hints, checkpoints and ranges decide nothing: deleted, damaged, of another type, directory or history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import CorruptData
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.log.apply import state_after
from ftfile.log.checkpoints import list_checkpoints, write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, MaintenanceAuthor, Record
from ftfile.log.format.record import to_checked_text
from ftfile.log.format.version_blocks import fewest_intervals_of
from ftfile.log.protocol import Committed
from ftfile.log.read.add_table import compact_records
from ftfile.log.read.compacted_records import cover, list_compacted, reach, write_compacted
from ftfile.log.read.compacted_writer import write_due_compacted, write_fewest_compacted
from ftfile.log.read.snapshot import read_records, take_snapshot
from ftfile.log.records import PublishedHint, read_published, write_published
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from tests.kit.parameters import parametrize
from tests.unit.log.conftest import Driver

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileSystem

SHARED = 10
KINDS = (layout.HINTS, layout.CHECKPOINTS, layout.COMPACTED)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranges and checkpoints be due every few versions."""
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 4)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 5 * checkpoints.RECORD_COST_BYTES)


def names_of(fs: FileSystem, directory: str) -> list[str]:
    return sorted(info.path for info in fs.list(directory))


def assert_right(driver: Driver, batches: int) -> None:
    """Check that old and new committers and readers see the rows of `batches` batches, and can commit more."""
    driver.restart()
    assert len(take_snapshot(CommitLog(driver.fs)).adds) == batches
    assert driver.commit(batches - 1, driver.stage(batches - 1)).replayed
    for batch in range(batches, batches + 9):
        driver.commit_new(batch)
        assert len(take_snapshot(CommitLog(driver.fs)).adds) == batch + 1
    driver.restart()
    assert driver.log.refresh().queries["query-1"].last_batch == batches + 8
    assert [record.version for record in read_records(CommitLog(driver.fs))] == list(range(batches + 9))
    report = check_directory(driver.fs)
    assert len(report.visible) == batches + 9


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("harm", ["deleted", "empty", "torn", "flipped", "no object", "nested", "numbers are texts"])
def test_harmed(driver: Driver, kind: str, harm: str) -> None:
    for batch in range(13):
        driver.commit_new(batch)
    paths = names_of(driver.fs, kind)
    assert paths
    for path in paths:
        content = driver.fs.read(path)
        driver.fs.delete(path)
        head, _, rest = content.partition(b"\n")
        changed = {
            "deleted": None,
            "empty": b"",
            "torn": content[: len(content) // 2],
            "flipped": bytes([content[0] ^ 1]) + content[1:],
            "no object": to_checked_text([b"7"]),
            "nested": to_checked_text([b"[" * 100_000]),
            "numbers are texts": to_checked_text([_as_texts(head)]) + rest.partition(b"\n")[2] if rest else b"",
        }[harm]
        if changed is not None:
            driver.fs.create_exclusive(path, changed)
    driver.restart()
    assert len(take_snapshot(CommitLog(driver.fs)).adds) == 13
    for batch in range(13, 22):
        driver.commit_new(batch)
    assert len(take_snapshot(CommitLog(driver.fs)).adds) == 22
    assert driver.commit(21, driver.stage(21)).replayed


def _as_texts(line: bytes) -> bytes:
    """Return a line of JSON in which numbers have become texts."""

    def change(value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    found = json.loads(line)
    kept = {"ftfileCheckpoint", "ftfileCompacted", "removes"}
    return json.dumps({key: value if key in kept else change(value) for key, value in found.items()}).encode()


@parametrize("text", [{"version": "3", "nonce": "x"}, {"version": 3, "nonce": 7}, [3, "x"], {"version": True}], quick=1)
def test_a_hint_of_another_type_is_none(driver: Driver, text: object) -> None:
    driver.commit_new(0)
    driver.fs.put(layout.PUBLISHED_HINT, to_checked_text([json.dumps(text).encode()]))
    assert read_published(driver.fs) is None
    assert_right(driver, 1)


class TestAnotherHistory:
    """Only the log is restored from an older copy, and different batches are committed after it."""

    @pytest.fixture
    def other(self, driver: Driver) -> Driver:
        """Return a driver of the second history; hints, checkpoints and ranges of the first are still there."""
        for batch in range(SHARED):
            driver.commit_new(batch)
        copy = {path: driver.fs.read(path) for path in names_of(driver.fs, layout.LOG)}
        late = [driver.commit_new(batch) for batch in range(SHARED, 3 * SHARED)]
        for path in names_of(driver.fs, layout.LOG):
            if path not in copy:
                driver.fs.delete(path)
        for add in late:
            driver.fs.delete(add.final_path or "")
        for name in list_compacted(driver.fs):
            if name.last >= SHARED:  # of two compacted logs for the same versions, readers take the first by name
                first = layout.CompactedName(name.first, name.last, "0" * 16)
                driver.fs.rename(layout.compacted_path(name), layout.compacted_path(first))
        driver.restart()
        return driver

    def test_nothing_is_written_before_somebody_accepts_the_loss(self, other: Driver) -> None:
        with pytest.raises(CorruptData, match=r"lost its newest records.*ftfile\.repair"):
            CommitLog(other.fs).refresh(durable=True)
        with pytest.raises(CorruptData, match=r"ftfile\.repair"):
            other.commit(SHARED, other.stage(SHARED))
        assert not other.fs.exists(layout.record_path(SHARED))

    @pytest.mark.slow
    def test_readers_go_on_with_a_warning(self, other: Driver, caplog: pytest.LogCaptureFixture) -> None:
        assert len(take_snapshot(other.log).adds) == SHARED
        assert "its newest records are lost" in caplog.text

    @pytest.mark.slow
    def test_what_it_left_behind_is_passed_over(self, other: Driver) -> None:
        """Also long after the new history has passed the end of the old one, with new checkpoints and ranges."""
        foreign = {name for name in list_compacted(other.fs) if name.last >= SHARED}
        assert foreign
        assert max(list_checkpoints(other.fs)).version > SHARED
        other.fs.delete(layout.PUBLISHED_HINT)
        assert_right(other, SHARED)
        for batch in range(SHARED + 9, 5 * SHARED):
            other.commit_new(batch)
            assert len(take_snapshot(CommitLog(other.fs)).adds) == batch + 1
        found = set(list_compacted(other.fs))
        assert reach(cover(found - foreign)) >= 5 * SHARED - 4
        other.restart()
        assert other.log.refresh().queries["query-1"].last_batch == 5 * SHARED - 1
        assert len(check_directory(other.fs).live) == 5 * SHARED

    @pytest.mark.slow
    def test_also_of_more_versions_ago_than_are_remembered(
        self, other: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ftfile.log.apply.RECENT_RECORDS", 3)
        self.test_what_it_left_behind_is_passed_over(other)

    @pytest.mark.slow
    def test_merging_all_leaves_it_out(self, other: Driver) -> None:
        other.fs.delete(layout.PUBLISHED_HINT)
        for batch in range(SHARED, 4 * SHARED):
            other.commit_new(batch)
        log = CommitLog(other.fs)
        write_fewest_compacted(log, log.refresh())
        assert sorted((name.first, name.last) for name in list_compacted(other.fs)) == fewest_intervals_of(4 * SHARED)
        assert_right(other, 4 * SHARED)

    @pytest.mark.slow
    def test_a_hint_that_names_another_record_is_not_believed(self, other: Driver) -> None:
        write_published(other.fs, PublishedHint(3, "of another history"))
        waiting = other.stage(99)
        other.create_record(author=BatchWriteAuthor("waiting"), adds=(waiting,))
        other.restart()
        other.commit_new(SHARED)
        assert waiting.final_path in other.visible()


@pytest.mark.slow
def test_a_checkpoint_of_another_directory(driver: Driver, tmp_path: Path) -> None:
    other = Driver(LocalFileSystem(str(tmp_path / "other"), SYSTEM))
    for batch in range(4):
        other.commit_new(batch)
        driver.commit_new(batch)
    hint = other.fs.read(layout.PUBLISHED_HINT)
    write_checkpoint(other.fs, SYSTEM.ids, other.log.refresh())
    (checkpoint,) = list_checkpoints(other.fs)
    driver.fs.create_exclusive(
        layout.log_checkpoint_path(checkpoint), other.fs.read(layout.log_checkpoint_path(checkpoint))
    )
    for path in names_of(other.fs, layout.COMPACTED):
        driver.fs.create_exclusive(path, other.fs.read(path))
    driver.fs.put(layout.PUBLISHED_HINT, hint)
    assert_right(driver, 4)


def test_a_foreign_checkpoint_does_not_decide_whether_a_record_is_dead(driver: Driver) -> None:
    """It appears while the record is created; taken for the log's own, it would have the batch written twice."""
    for batch in range(3):
        driver.commit_new(batch)
    state = driver.log.refresh()
    foreign = state_after(state, Record(3, "foreign", MaintenanceAuthor("test", "x"), 0, previous_nonce=state.nonce))

    class Copied(WrapperFileSystem):
        def create_exclusive(self, path: str, content: bytes) -> None:
            if path == layout.record_path(3):
                for each in (state, foreign):
                    write_checkpoint(driver.fs, SYSTEM.ids, each)
            super().create_exclusive(path, content)

    log = CommitLog(Copied(driver.fs))
    assert driver.commit(3, driver.stage(3), log=log) == Committed(3, replayed=False)
    driver.commit_new(4)
    driver.restart()
    assert len(take_snapshot(driver.log).adds) == 5


@pytest.mark.slow
def test_own_ranges_are_not_dropped_for_a_foreign_one(driver: Driver) -> None:
    """A foreign range that covers more versions would replace the ranges that it contains."""
    foreign = [
        Record(version, f"other{version}", MaintenanceAuthor("test", "x"), 0, previous_nonce=f"other{version - 1}")
        for version in range(32)
    ]
    driver.commit_new(0)
    name = write_compacted(driver.fs, SYSTEM.ids, compact_records(foreign, 0))
    for batch in range(1, 60):
        driver.commit_new(batch)
        assert len(take_snapshot(CommitLog(driver.fs)).adds) == batch + 1
        assert reach(cover(set(list_compacted(driver.fs)) - {name})) >= batch - 4


@pytest.mark.slow
def test_old_ranges_are_proven_by_what_follows_them(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """If records are deleted and no nonce is cached, later records or ranges name their predecessors."""
    monkeypatch.setattr("ftfile.log.apply.RECENT_RECORDS", 3)
    for batch in range(40):
        driver.commit_new(batch)
    write_due_compacted(driver.log, driver.log.refresh())
    write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
    driver.create_record(author=MaintenanceAuthor("vacuum", "v"), log_start=30)
    for version in range(30):
        driver.fs.delete(layout.record_path(version))
    for version in (35, 40):
        log = CommitLog(driver.fs)
        assert len(take_snapshot(log, version).adds) == min(version + 1, 40)
    check_directory(driver.fs)
