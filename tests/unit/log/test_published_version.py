"""Each record gives the version up to which all records were published before it was created."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import CorruptData, NotPublished, Unavailable
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor
from ftfile.log.policy import DEFAULT_POLICY
from ftfile.log.publish import HINT_EVERY, roll_forward
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from tests.unit.log.conftest import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.storage.api import FileInfo, FileSystem


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    with repeatable():
        yield


class Stats(WrapperFileSystem):
    """Remembers the final names whose files are searched."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.paths: list[str] = []

    def stat(self, path: str) -> FileInfo:
        self.paths.append(path)
        return super().stat(path)

    def rename(self, source: str, target: str) -> None:
        self.paths.append(target)
        super().rename(source, target)


def on_objects() -> Driver:
    return Driver(CrashingFileSystem(clock=current().clock, storage="s3"))


def published(driver: Driver) -> list[int | None]:
    log = CommitLog(driver.fs)
    versions: list[int | None] = []
    while (record := log.read_record(len(versions))) is not None:
        versions.append(record.published)
    return versions


def test_is_the_previous_version() -> None:
    driver = on_objects()
    for batch in range(4):
        driver.commit_new(batch)
    assert published(driver) == [None, 0, 1, 2]


def test_is_before_a_record_that_could_not_be_published() -> None:
    driver = on_objects()
    driver.commit_new(0)
    stuck = Fault(Unavailable, operations=frozenset({"rename"}), times=10**9)
    failing = CommitLog(FaultyFileSystem(driver.fs, [stuck]))
    with pytest.raises(NotPublished):
        driver.commit(1, driver.stage(1), log=failing)
    driver.commit_as(BatchWriteAuthor("another"), log=CommitLog(FaultyFileSystem(driver.fs, [stuck])))
    assert published(driver) == [None, 0, 0]
    assert [*CommitLog(driver.fs).refresh().unpublished] == [1]
    driver.restart()
    driver.commit_new(2)
    assert published(driver) == [None, 0, 0, 2]


@pytest.mark.parametrize("last", [*range(3, 3 + HINT_EVERY + 1)])
def test_a_restart_searches_the_files_of_one_version(last: int) -> None:
    """The hint on an object store is up to 15 versions old."""
    driver = on_objects()
    adds = [driver.commit_new(batch) for batch in range(last + 1)]
    restarted = CommitLog(stats := Stats(driver.fs))
    roll_forward(restarted, restarted.refresh(), DEFAULT_POLICY, driver.author(last))
    names = {add.final_path for add in adds}
    assert {path for path in stats.paths if path in names} <= {adds[-1].final_path}


def test_a_disk_notices_each_lost_record() -> None:
    driver = Driver(CrashingFileSystem(clock=current().clock))
    for batch in range(4):
        driver.commit_new(batch)
    driver.fs.delete(layout.record_path(3))
    with pytest.raises(CorruptData, match="lost its newest records"):
        CommitLog(driver.fs).refresh(durable=True)


def test_an_object_store_notices_the_loss_of_the_hinted_version() -> None:
    driver = on_objects()
    for batch in range(HINT_EVERY + 4):
        driver.commit_new(batch)
    for version in range(HINT_EVERY + 3, HINT_EVERY, -1):
        driver.fs.delete(layout.record_path(version))
    assert CommitLog(driver.fs).refresh(durable=True).version == HINT_EVERY
    driver.fs.delete(layout.record_path(HINT_EVERY))
    with pytest.raises(CorruptData, match="lost its newest records"):
        CommitLog(driver.fs).refresh(durable=True)
