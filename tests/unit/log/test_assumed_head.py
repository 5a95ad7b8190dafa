"""A process that wrote the last records alone assumes that its newest record is the head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import BatchGap, UserCodeError
from ftfile.log.commit_log import ALONE_FROM, CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Body, JobAuthor, MaintenanceAuthor
from ftfile.log.protocol import Committed, commit
from ftfile.storage.registry import WrapperFileSystem

if TYPE_CHECKING:
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from tests.unit.log.conftest import Driver


class Reads(WrapperFileSystem):
    """Remembers the versions of the records that are read."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.versions: list[int] = []

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        name = layout.parse_log_name(path)
        if name is not None:
            self.versions.append(name.version)
        return super().read(path, bytes_max)


@pytest.fixture
def alone(driver: Driver) -> Driver:
    """Return a driver with the batches 0 to 2 as the versions 0 to 2."""
    for batch in range(3):
        driver.commit_new(batch)
    return driver


def by_others(driver: Driver, batch: int) -> None:
    """Commit a batch of the same query in another process."""
    driver.create_record(CommitLog(driver.fs), author=driver.author(batch), adds=(driver.stage(batch),))


def test_one_read_is_sufficient(alone: Driver) -> None:
    alone.log.fs = reads = Reads(alone.fs)
    alone.commit_new(3)
    assert reads.versions == [2]


def test_after_a_restart_the_log_is_read_to_its_end(alone: Driver) -> None:
    alone.restart()
    for batch in range(3, 3 + ALONE_FROM):
        alone.log.fs = reads = Reads(alone.fs)
        alone.commit_new(batch)
        assert batch in reads.versions
    alone.log.fs = reads = Reads(alone.fs)
    alone.commit_new(3 + ALONE_FROM)
    assert reads.versions == [2 + ALONE_FROM]


def test_a_record_of_others_is_read_before_the_next_assumption(alone: Driver) -> None:
    for number in range(2):
        alone.create_record(CommitLog(alone.fs), author=MaintenanceAuthor("test", str(number)))
        assert alone.commit(3 + number, alone.stage(3)) == Committed(4 + 2 * number, replayed=False)
        assert alone.log.assumed_head() is None


def test_a_gap_is_decided_at_the_real_head(alone: Driver) -> None:
    """Another process has committed the batch in between."""
    by_others(alone, 3)
    assert alone.commit(4, alone.stage(4)) == Committed(4, replayed=False)
    with pytest.raises(BatchGap):
        alone.commit(6, alone.stage(6))


def test_a_batch_that_others_committed_is_a_replay(alone: Driver) -> None:
    alone.create_record(CommitLog(alone.fs), author=alone.author(3))
    with pytest.raises(Exception, match="batch 3"):
        alone.commit(3, alone.stage(3), digest="other rows")
    assert alone.log.refresh().version == 3


def test_a_replay_needs_no_record(alone: Driver) -> None:
    assert alone.commit(2, alone.stage(2)) == Committed(2, replayed=True)


def test_that_nothing_is_to_be_recorded_is_decided_at_the_real_head(alone: Driver) -> None:
    def prepare(head: LogState, _: object) -> Body | None:
        return Body() if head.version == 3 else None

    by_others(alone, 3)
    assert commit(alone.log, JobAuthor("upkeep"), prepare).version == 4
    assert commit(alone.log, JobAuthor("upkeep"), prepare) == Committed(4, replayed=False)


def test_an_error_of_the_user_is_raised_once(alone: Driver) -> None:
    heads = []

    def prepare(head: LogState, _: object) -> Body:
        heads.append(head.version)
        raise UserCodeError("the user's")

    with pytest.raises(UserCodeError):
        commit(alone.log, JobAuthor("upkeep"), prepare)
    assert heads == [2]


def test_a_replaced_directory_is_noticed(alone: Driver) -> None:
    """The directory was emptied, and another process has begun a new log."""
    for version in range(3):
        alone.fs.delete(layout.record_path(version))
    alone.fs.delete(layout.PUBLISHED_HINT)
    alone.create_record(CommitLog(alone.fs), author=JobAuthor("another"))
    with pytest.raises(BatchGap):
        alone.commit(3, alone.stage(3))
    assert alone.log.refresh().version == 0
