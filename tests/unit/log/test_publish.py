"""Publishing: the order of the moves, occupied names, missing files, and faults that are or are not tolerated."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import (
    AlreadyExists,
    NameCollision,
    NotPublished,
    OutcomeUnknown,
    PermissionDenied,
    StorageError,
    Unavailable,
)
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, Remove
from ftfile.log.publish import publish
from ftfile.log.state import SharedMap
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import ManualClock
from ftfile.testing.fs.faulty import Call, Fault, FaultyFileSystem
from tests.wrappers import InContext

if TYPE_CHECKING:
    from ftfile.log.format.model import Add
    from ftfile.log.state import Unpublished
    from ftfile.storage.api import Capabilities, FileSystem
    from tests.unit.log.conftest import Driver

FOR_EVER = 10**9


class Storage(WrapperFileSystem):
    """Says how many calls it takes side by side; a rename begins when enough have come together."""

    def __init__(self, inner: FileSystem, concurrency: int, together: int = 1) -> None:
        super().__init__(inner)
        self.threads: set[int] = set()
        self._concurrency = concurrency
        self._together = threading.Barrier(together, timeout=300)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, concurrency=self._concurrency)

    def rename(self, source: str, target: str) -> None:
        self._together.wait()
        self.threads.add(threading.get_ident())
        super().rename(source, target)


class TestDurability:
    def test_both_ends_of_a_retirement_are_durable_before_the_hint(self, driver: Driver) -> None:
        """Else a power cut could leave the part at both names, or at none, and nothing would repair it."""
        old = driver.stage(0, name="a=1/part")
        driver.commit(0, old)
        watched = FaultyFileSystem(driver.fs)
        driver.commit(1, overwrite=True, log=CommitLog(watched))
        calls = watched.calls[watched.calls.index(Call("rename", "a=1/part")) :]
        after = calls[: calls.index(Call("put", layout.PUBLISHED_HINT))]
        assert {"a=1", layout.RETIRED} <= {call.path for call in after if call.operation == "sync_directory"}


class TestRollForward:
    def test_oldest_first(self, driver: Driver) -> None:
        first, second = driver.stage(0), driver.stage(1)
        driver.create_record(author=driver.author(0), adds=(first,), lineage_start=0)
        driver.create_record(author=driver.author(1), adds=(second,), removes=(Remove.of(first),))
        driver.commit(2)
        assert driver.visible() == {second.final_path}

    def test_a_removed_part_that_a_late_copy_brought_back_is_hidden_again(self, driver: Driver) -> None:
        old = driver.commit_new(0)
        driver.commit(1, overwrite=True)
        driver.fs.create_exclusive(old.final_path or "", b"row\n")
        driver.fs.delete(layout.PUBLISHED_HINT)
        driver.restart()
        driver.commit(2)
        assert driver.visible() == set()
        assert driver.text(layout.retired_path(old.id)) == b"row\n"

    def test_a_hint_does_not_speak_for_later_records(self, driver: Driver) -> None:
        first, second = driver.commit_new(0), driver.stage(1)
        driver.create_record(author=driver.author(1), adds=(second,))
        driver.restart()
        driver.commit(2)
        assert driver.visible() == {first.final_path, second.final_path}


class TestCollisions:
    def test_a_file_of_equal_length_and_other_bytes(self, driver: Driver) -> None:
        add = driver.stage(0, b"row\n")
        driver.fs.create_exclusive(add.final_path or "", b"owr\n")
        with pytest.raises(NameCollision, match="another file of 4 bytes"):
            driver.commit(0, add)
        assert driver.text(add.final_path or "") == b"owr\n"
        assert driver.text(add.path) == b"row\n"

    def test_a_published_part_that_has_another_length_now(self, driver: Driver) -> None:
        add = driver.commit_new(0)
        driver.fs.delete(add.final_path or "")
        driver.fs.create_exclusive(add.final_path or "", b"another row\n")
        driver.fs.delete(layout.PUBLISHED_HINT)
        driver.restart()
        with pytest.raises(NameCollision, match="another program wrote or changed it"):
            driver.commit_new(1)

    def test_a_part_that_another_publisher_settles_meanwhile(self, driver: Driver) -> None:
        """Where renames take two steps, both names are there until the other publisher deletes the first."""
        add = driver.stage(0)
        root = driver.root
        os.link(f"{root}/{add.path}", f"{root}/{add.final_path}")

        class Faster(WrapperFileSystem):
            def rename(self, source: str, target: str) -> None:
                try:
                    super().rename(source, target)
                except AlreadyExists:
                    self.inner.delete(source)
                    raise

        driver.with_policy(on_missing_part="fail")
        driver.commit(0, add, log=CommitLog(Faster(driver.fs)))
        assert driver.visible() == {add.final_path}


class TestNowhere:
    """A slow publisher of version 0 searches for a part that version 1 removed."""

    @pytest.fixture
    def old(self, driver: Driver) -> Add:
        return driver.commit_new(0)

    @pytest.fixture
    def entry(self, driver: Driver, old: Add) -> Unpublished:
        (entry,) = CommitLog(driver.fs).refresh().unpublished.values()
        assert entry.adds == (old,)
        driver.commit(1, overwrite=True)
        return entry

    def test_a_part_that_was_removed_and_vacuumed(self, driver: Driver, old: Add, entry: Unpublished) -> None:
        driver.fs.delete(layout.retired_path(old.id))
        assert publish(CommitLog(driver.fs), entry, timeout_s=1) is None

    def test_a_part_that_was_removed_too_long_ago_to_tell(self, driver: Driver, old: Add, entry: Unpublished) -> None:
        write_checkpoint(driver.fs, SYSTEM.ids, replace(driver.log.refresh(), removed=SharedMap(), removed_since=2))
        driver.fs.delete(layout.retired_path(old.id))  # as vacuum does
        assert publish(CommitLog(driver.fs), entry, timeout_s=1) is None


def test_what_is_missing_is_named_and_nothing_else(driver: Driver) -> None:
    there, gone = driver.stage(0), driver.stage(0)
    driver.commit(0, there, gone)
    (entry,) = CommitLog(driver.fs).refresh().unpublished.values()
    driver.fs.delete(gone.final_path or "")
    problem = publish(CommitLog(driver.fs), entry, timeout_s=1)
    assert problem is not None
    assert [*problem.adds] == [gone]
    assert repr(gone.final_path) in str(problem.error)
    assert repr(there.final_path) not in str(problem.error)


class TestPool:
    def threads(self, driver: Driver, storage: Storage, parts: int) -> set[int]:
        """Publish that many parts of one batch and return the threads that moved them."""
        adds = [driver.stage(0) for _ in range(parts)]
        driver.commit(0, *adds, log=CommitLog(storage))
        assert driver.visible() == {add.final_path for add in adds}
        return storage.threads

    def test_parts_are_moved_side_by_side_where_that_pays(self, driver: Driver) -> None:
        """Each of two calls waits for the other."""
        assert len(self.threads(driver, Storage(driver.fs, concurrency=2, together=2), parts=4)) == 2

    def test_no_more_than_the_storage_takes(self, driver: Driver) -> None:
        assert self.threads(driver, Storage(driver.fs, concurrency=1), parts=4) == {threading.get_ident()}


class TestRetries:
    def slept_s(self, driver: Driver, error: type[StorageError]) -> float:
        """Commit where no part can be moved, and return how long that was tried."""
        clock, stuck = ManualClock(), Fault(error, times=FOR_EVER, operations=frozenset({"rename"}))
        with pytest.raises(NotPublished):
            driver.commit(
                0, driver.stage(0), log=CommitLog(InContext(FaultyFileSystem(driver.fs, [stuck]), clock=clock))
            )
        return sum(clock.slept_s)

    def test_a_refusal_is_raised_at_once(self, driver: Driver) -> None:
        assert self.slept_s(driver, PermissionDenied) == 0

    def test_what_may_pass_is_tried_until_the_timeout(self, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
        assert 50 < self.slept_s(driver, Unavailable) <= keeping.PUBLISH_TIMEOUT_S
        assert "attempt 2 to publish version 0 failed, next attempt in 0.1 s: _ftfile/staged/" in caplog.text

    def test_a_lost_reply_is_as_good_as_none(self, driver: Driver) -> None:
        """Whatever has happened to a part, publishing finds it."""
        assert 50 < self.slept_s(driver, OutcomeUnknown) <= keeping.PUBLISH_TIMEOUT_S


class TestHarmless:
    @pytest.mark.parametrize(
        ("operation", "path"),
        [
            ("remove_directory", "*"),
            ("put", layout.PUBLISHED_HINT),
            ("create_exclusive", "*.checkpoint"),
            ("create_exclusive", "*.compacted"),
        ],
        ids=["the stage", "the hint", "a checkpoint", "a range"],
    )
    def test_what_cannot_be_tidied_after_the_record(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch, operation: str, path: str
    ) -> None:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 0)
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 1)
        denied = Fault(PermissionDenied, times=FOR_EVER, operations=frozenset({operation}), path=path)
        faulty = FaultyFileSystem(driver.fs, [denied])
        add = driver.stage(0)
        driver.commit_as(BatchWriteAuthor("job"), adds=(add,), log=CommitLog(faulty))
        assert faulty.injected
        assert driver.visible() == {add.final_path}
        driver.with_policy(on_new_query="continue").commit_new(0)
