"""Records before a checkpoint may be deleted or dead. Nothing depends on them: a process that reads one starts over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import CorruptData
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Add, BatchWriteAuthor, MaintenanceAuthor, Record, Remove
from ftfile.log.format.record import encode_record
from ftfile.log.policy import DEFAULT_POLICY
from ftfile.log.protocol import Committed
from ftfile.log.publish import roll_forward
from ftfile.log.read.compacted_writer import write_due_compacted
from ftfile.log.read.snapshot import read_records, take_snapshot
from ftfile.log.records import PublishedHint, write_published
from ftfile.storage.registry import WrapperFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import FileInfo, FileSystem
    from tests.unit.log.conftest import Driver


def keep_only(driver: Driver, log_start: int) -> None:
    """Trim the log as vacuum does: commit the new start, write checkpoints and ranges, then delete the records."""
    head = driver.log.refresh()
    write_checkpoint(driver.fs, SYSTEM.ids, head)
    driver.create_record(author=MaintenanceAuthor("vacuum", "v"), log_start=log_start)
    write_due_compacted(driver.log, head)
    delete_records(driver, log_start)


def delete_records(driver: Driver, log_start: int) -> None:
    for version in range(log_start):
        if driver.fs.exists(layout.record_path(version)):
            driver.fs.delete(layout.record_path(version))


def bury(driver: Driver, version: int, **fields: Any) -> Record:
    """Create a record in an emptied slot, as a committer does that was left behind long ago."""
    author = BatchWriteAuthor("left behind")
    dead = Record(version, "dead", author, 0, **fields)
    driver.fs.create_exclusive(layout.record_path(version), encode_record(dead).content)
    return dead


class Meanwhile(WrapperFileSystem):
    """Lets something happen once, when a file is first looked at."""

    def __init__(self, inner: FileSystem, path: str, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._path = path
        self._act: Callable[[], object] | None = act

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        if path == self._path:
            self.act()
        return super().read(path, bytes_max)

    def list(self, path: str) -> list[FileInfo]:
        found = super().list(path)
        if path == self._path:
            self.act()
        return found

    def act(self) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()


class TestReaders:
    def test_every_version_that_is_kept_can_be_read(self, driver: Driver) -> None:
        adds = [driver.commit_new(batch) for batch in range(6)]
        driver.commit(6, driver.stage(6), overwrite=True)
        keep_only(driver, 3)
        for version in range(3, 6):
            assert set(take_snapshot(CommitLog(driver.fs), version).adds) == {add.id for add in adds[: version + 1]}
        assert len(take_snapshot(CommitLog(driver.fs)).adds) == 1
        assert [record.version for record in read_records(CommitLog(driver.fs))] == [3, 4, 5, 6, 7]

    def test_a_dead_record_is_in_no_snapshot_and_in_no_history(self, driver: Driver) -> None:
        adds = [driver.commit_new(batch).id for batch in range(6)]
        keep_only(driver, 4)
        for version in range(4):
            bury(driver, version, adds=(driver.stage(9),))
        log = CommitLog(driver.fs)
        assert list(take_snapshot(log).adds) == adds
        assert list(take_snapshot(log, 4).adds) == adds[:5]
        assert [record.version for record in read_records(log)] == [4, 5, 6]

    @pytest.mark.parametrize("path", [layout.record_path(0), layout.record_path(2), layout.COMPACTED])
    def test_records_that_go_while_a_snapshot_is_made(self, driver: Driver, path: str) -> None:
        """No range stood for them when it began, and a dead one is read in the place of one of them."""
        adds = {driver.commit_new(batch).id for batch in range(6)}

        def vacuum() -> None:
            keep_only(driver, 4)
            for version in range(4):
                bury(driver, version, adds=(driver.stage(9),))

        reader = CommitLog(driver.fs)
        reader.refresh()
        reader.fs = Meanwhile(driver.fs, path, vacuum)
        assert set(take_snapshot(reader).adds) == adds

    def test_records_that_go_while_history_is_read(self, driver: Driver) -> None:
        for batch in range(6):
            driver.commit_new(batch)
        reader = CommitLog(driver.fs)
        reader.refresh()
        reader.fs = Meanwhile(driver.fs, layout.record_path(2), lambda: keep_only(driver, 4))
        assert [record.version for record in read_records(reader)] == [0, 1, 4, 5]

    def test_a_missing_record_that_is_kept_is_an_error(self, driver: Driver) -> None:
        for batch in range(6):
            driver.commit_new(batch)
        keep_only(driver, 2)
        reader = CommitLog(driver.fs)
        reader.refresh()
        driver.fs.delete(layout.record_path(4))
        with pytest.raises(CorruptData, match=r"00004\.record"):
            list(read_records(reader))
        for info in driver.fs.list(layout.COMPACTED):
            driver.fs.delete(info.path)
        with pytest.raises(CorruptData, match=r"record.*neither"):
            take_snapshot(reader)

    def test_a_record_whose_adds_lie_elsewhere_and_which_goes_meanwhile(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver.log.prepare_directory()
        record = Record(0, "n", driver.author(0), 0, adds=(driver.stage(0),), lineage_start=0)
        companion = layout.companion_path(0, "n")
        monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 1)
        encoded = encode_record(record)
        assert encoded.companion is not None
        driver.fs.create_exclusive(layout.record_path(0), encoded.content)
        with pytest.raises(CorruptData, match="the adds of a record"):
            driver.log.read_record(0)
        gone = CommitLog(Meanwhile(driver.fs, companion, lambda: driver.fs.delete(layout.record_path(0))))
        assert gone.read_record(0) is None


class TestCommitters:
    def test_an_overwrite_needs_no_old_record(self, driver: Driver) -> None:
        for batch in range(6):
            driver.commit_new(batch)
        keep_only(driver, 5)
        driver.restart()
        last = driver.stage(6)
        driver.commit(6, last, overwrite=True)
        assert driver.visible() == {last.final_path}

    def test_replays_and_batches_go_on(self, driver: Driver) -> None:
        for batch in range(6):
            driver.commit_new(batch)
        keep_only(driver, 5)
        driver.restart()
        assert driver.commit(5, driver.stage(5)) == Committed(6, replayed=True)
        driver.commit_new(6)
        assert len(driver.visible()) == 7

    def test_a_hint_that_names_a_dead_record_is_not_believed(self, driver: Driver) -> None:
        """The checkpoint lists unpublished parts. A hint from a dead record must not remove parts from the list."""
        driver.commit_new(0)
        waiting = driver.stage(1)
        driver.create_record(author=BatchWriteAuthor("waiting"), adds=(waiting,))
        for number in range(3):
            driver.create_record(author=MaintenanceAuthor("test", str(number)))
        write_checkpoint(driver.fs, SYSTEM.ids, CommitLog(driver.fs).refresh())
        delete_records(driver, 4)
        dead = bury(driver, 3)
        write_published(driver.fs, PublishedHint(dead.version, dead.nonce))
        head = CommitLog(driver.fs).refresh()
        assert roll_forward(CommitLog(driver.fs), head, DEFAULT_POLICY, driver.author(1)) == []
        assert waiting.final_path in driver.visible()

    def test_a_hint_whose_record_is_gone_is_still_true(self, driver: Driver) -> None:
        for batch in range(4):
            driver.commit_new(batch)
        head = driver.log.refresh()
        unpublished = CommitLog(driver.fs).refresh().unpublished
        write_checkpoint(driver.fs, SYSTEM.ids, replace(head, unpublished=unpublished))
        delete_records(driver, 3)
        looked: list[str] = []

        class Watched(WrapperFileSystem):
            def rename(self, source: str, target: str) -> None:
                looked.append(source)
                super().rename(source, target)

        log = CommitLog(Watched(driver.fs))
        roll_forward(log, log.refresh(), DEFAULT_POLICY, driver.author(3))
        assert looked == []

    def test_a_dead_record_behind_the_cached_head_is_not_folded(self, driver: Driver) -> None:
        """Vacuum deletes files in any order: the cached head can exist longer than the records after it."""
        driver.commit_new(0)
        others = CommitLog(driver.fs)
        for number in range(3):
            driver.create_record(others, author=MaintenanceAuthor("test", str(number)))
        write_checkpoint(driver.fs, SYSTEM.ids, others.refresh())
        for version in (1, 2):
            driver.fs.delete(layout.record_path(version))
        dead = Record(1, "dead", driver.author(1), 0, previous_nonce=driver.log.refresh(confirm=False).nonce)
        driver.fs.create_exclusive(layout.record_path(1), encode_record(dead).content)
        assert driver.commit(1, driver.stage(1)) == Committed(4, replayed=False)

    def test_a_committer_left_behind_by_a_vacuum_starts_over(self, driver: Driver) -> None:
        """It sleeps before it creates version 1, and wakes up to an emptied slot."""
        driver.commit_new(0)
        add = driver.stage(1)
        theirs: list[Add] = []

        def go_on() -> None:
            others = type(driver)(driver.fs, "query-2").with_policy(on_new_query="continue")
            theirs.extend(others.commit_new(batch) for batch in range(4))
            keep_only(others, 4)

        class Sleepy(WrapperFileSystem):
            slept = False

            def create_exclusive(self, path: str, content: bytes) -> None:
                if path == layout.record_path(1) and not self.slept:
                    self.slept = True
                    go_on()
                super().create_exclusive(path, content)

        assert driver.commit(1, add, log=CommitLog(Sleepy(driver.fs))).version == 6
        log = CommitLog(driver.fs)
        assert set(take_snapshot(log).adds) >= {add.id, *(other.id for other in theirs)}
        assert len(take_snapshot(log).adds) == 6
        assert [record.version for record in read_records(log)] == [4, 5, 6]

    def test_a_removed_part_that_vacuum_took_is_not_missing(self, driver: Driver) -> None:
        """A process that publishes a record again, long after, finds the part nowhere."""
        old = driver.commit_new(0)
        entry = CommitLog(driver.fs).refresh().unpublished[0]
        driver.create_record(author=MaintenanceAuthor("drop", "d"), removes=(Remove.of(old),))
        driver.commit_new(1)
        driver.fs.delete(layout.retired_path(old.id))
        head = replace(driver.log.refresh(), unpublished={0: entry})
        driver.with_policy(on_missing_part="fail")
        assert roll_forward(driver.log, head, driver.policy, driver.author(9)) == []
