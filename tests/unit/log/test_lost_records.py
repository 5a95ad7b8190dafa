"""Records that are lost: nothing is written before somebody knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import CorruptData
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor
from ftfile.log.read.snapshot import take_snapshot
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.kit.parameters import parametrize
from tests.unit.log.conftest import Driver
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Sequence


def write_job(driver: Driver) -> None:
    log = CommitLog(driver.fs)
    driver.commit_as(BatchWriteAuthor("job"), adds=(driver.stage(9),), log=log)


@parametrize("lost", [(9,), (8, 9), (3,), (3, 4, 5, 6, 7, 8), tuple(range(9)), (0,)], quick=2)
@pytest.mark.parametrize("hint", ["there", "lost"])
def test_batch_writes_stop(driver: Driver, lost: tuple[int, ...], hint: str) -> None:
    for batch in range(10):
        driver.commit_new(batch)
    for version in lost:
        driver.fs.delete(layout.record_path(version))
    if hint == "lost":
        driver.fs.delete(layout.PUBLISHED_HINT)
        if 9 in lost:
            return  # nothing shows that there were more
    before = {info.path for info in driver.fs.list(layout.LOG)}
    for _ in range(2):
        with pytest.raises(CorruptData, match=r"Restore the missing files.*(ftfile\.repair|start a new log)"):
            write_job(driver)
    assert {info.path for info in driver.fs.list(layout.LOG)} == before


def test_a_warm_committer_stops_too(driver: Driver) -> None:
    for batch in range(3):
        driver.commit_new(batch)
    driver.fs.delete(layout.record_path(2))
    with pytest.raises(CorruptData, match="lost its newest records"):
        driver.commit_new(3)


def test_a_lost_record_without_parts_is_missed(driver: Driver) -> None:
    driver.commit_new(0)
    driver.commit(1)
    driver.fs.delete(layout.record_path(1))
    driver.restart()
    with pytest.raises(CorruptData, match="version 1 was published: the log has lost its newest records"):
        driver.commit_new(1)


def test_a_hole_stops_readers(driver: Driver) -> None:
    for batch in range(3):
        driver.commit_new(batch)
    driver.fs.delete(layout.record_path(1))
    driver.fs.delete(layout.PUBLISHED_HINT)
    with pytest.raises(CorruptData, match="no record, although version 2 exists"):
        take_snapshot(CommitLog(driver.fs))


def test_a_companion_without_its_record_is_no_later_record(driver: Driver) -> None:
    """A committer died, or is about to create the record."""
    driver.commit_new(0)
    driver.fs.create_exclusive(layout.companion_path(1, "abc"), b"{}\n")
    write_job(driver)


def test_a_cold_committer_lists_the_log_once(driver: Driver) -> None:
    driver.commit_new(0)
    listed: list[str] = []

    class Watched(WrapperFileSystem):
        def names_after(self, path: str, name: str) -> Sequence[str]:
            listed.append(path)
            return super().names_after(path, name)

    driver.fs = Watched(driver.fs)
    driver.restart()
    for batch in range(1, 5):
        driver.commit_new(batch)
    assert listed == [layout.LOG]


def test_a_task_lists_nothing() -> None:
    MemoryFileSystem.drop("task")
    driver = Driver(MemoryFileSystem("task"))
    driver.commit_new(0)
    view = driver.log.refresh().view()
    fs = MeteredFileSystem(driver.fs)
    CommitLog(fs, start=view).refresh()
    assert fs.counters.calls["list"] == 1  # of the checkpoints
    MemoryFileSystem.drop("task")


class TestReplaced:
    def test_a_cached_state_is_not_believed_by_its_version_alone(self, driver: Driver) -> None:
        """The directory was replaced by another one with as many versions."""
        for batch in range(2):
            driver.commit_new(batch)
        for info in driver.fs.list(layout.LOG):
            driver.fs.delete(info.path)
        driver.fs.delete(layout.PUBLISHED_HINT)
        for number in range(2):
            driver.create_record(author=BatchWriteAuthor(f"other{number}"))
        assert driver.log.refresh().queries == {}


def test_what_is_repaired_by_hand_is_a_healthy_directory(driver: Driver) -> None:
    """The newest record and the hint are lost; the files that the record added do not block later commits."""
    for batch in range(3):
        driver.commit_new(batch)
    record = driver.log.read_record(2)
    assert record is not None
    driver.fs.delete(layout.record_path(2))
    driver.fs.delete(layout.PUBLISHED_HINT)
    (add,) = record.adds
    driver.fs.delete(add.final_path or "")
    driver.restart()
    driver.commit_new(2)
    assert len(check_directory(driver.fs).live) == 3
