"""A process that wrote the last records, without others, assumes that its newest record is the head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import BatchGap, UserCodeError
from ftfile.log.commit_log import ALONE_FROM, CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, Body, MaintenanceAuthor
from ftfile.log.protocol import Committed, commit
from ftfile.storage.api import StoredFile
from ftfile.storage.registry import WrapperFileSystem

if TYPE_CHECKING:
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileInfo, FileSystem
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
def warm(driver: Driver) -> Driver:
    """Return a driver with the batches 0 to 2 as the versions 0 to 2."""
    for batch in range(3):
        driver.commit_new(batch)
    return driver


def by_others(driver: Driver, batch: int) -> None:
    """Commit a batch of the same query in another process."""
    driver.create_record(CommitLog(driver.fs), author=driver.author(batch), adds=(driver.stage(batch),))


def test_one_read_is_sufficient(warm: Driver) -> None:
    warm.log.fs = reads = Reads(warm.fs)
    warm.commit_new(3)
    assert reads.versions == [2]


def test_after_a_restart_the_log_is_read_to_its_end(warm: Driver) -> None:
    warm.restart()
    for batch in range(3, 3 + ALONE_FROM):
        warm.log.fs = reads = Reads(warm.fs)
        warm.commit_new(batch)
        assert batch in reads.versions
    warm.log.fs = reads = Reads(warm.fs)
    warm.commit_new(3 + ALONE_FROM)
    assert reads.versions == [2 + ALONE_FROM]


def test_a_record_of_others_is_read_before_the_next_assumption(warm: Driver) -> None:
    for number in range(2):
        warm.create_record(CommitLog(warm.fs), author=MaintenanceAuthor("test", str(number)))
        assert warm.commit(3 + number, warm.stage(3)) == Committed(4 + 2 * number, replayed=False)
        assert warm.log.assumed_head() is None


def test_a_gap_is_decided_at_the_real_head(warm: Driver) -> None:
    """Another process has committed the batch in between."""
    by_others(warm, 3)
    assert warm.commit(4, warm.stage(4)) == Committed(4, replayed=False)
    with pytest.raises(BatchGap):
        warm.commit(6, warm.stage(6))


def test_a_batch_that_others_committed_is_a_replay(warm: Driver) -> None:
    warm.create_record(CommitLog(warm.fs), author=warm.author(3))
    with pytest.raises(Exception, match="batch 3"):
        warm.commit(3, warm.stage(3), digest="other rows")
    assert warm.log.refresh().version == 3


def test_a_replay_needs_no_record(warm: Driver) -> None:
    assert warm.commit(2, warm.stage(2)) == Committed(2, replayed=True)


def test_that_nothing_is_to_be_recorded_is_decided_at_the_real_head(warm: Driver) -> None:
    def prepare(head: LogState, _: object) -> Body | None:
        return Body() if head.version == 3 else None

    by_others(warm, 3)
    assert commit(warm.log, BatchWriteAuthor("upkeep"), prepare).version == 4
    assert commit(warm.log, BatchWriteAuthor("upkeep"), prepare) == Committed(4, replayed=False)


def test_an_error_of_the_user_is_raised_once(warm: Driver) -> None:
    heads = []

    def prepare(head: LogState, _: object) -> Body:
        heads.append(head.version)
        raise UserCodeError("the user's")

    with pytest.raises(UserCodeError):
        commit(warm.log, BatchWriteAuthor("upkeep"), prepare)
    assert heads == [2]


def test_a_replaced_directory_is_noticed(warm: Driver) -> None:
    """The directory was emptied, and another process has begun a new log."""
    for version in range(3):
        warm.fs.delete(layout.record_path(version))
    warm.fs.delete(layout.PUBLISHED_HINT)
    warm.create_record(CommitLog(warm.fs), author=BatchWriteAuthor("another"))
    with pytest.raises(BatchGap):
        warm.commit(3, warm.stage(3))
    assert warm.log.refresh().version == 0


class Answers(WrapperFileSystem):
    """Storage that answers with these times, one for each created record, and counts listings of checkpoints."""

    def __init__(self, inner: FileSystem, answers: list[StoredFile | None]) -> None:
        super().__init__(inner)
        self.answers = answers
        self.listings = 0

    def create_exclusive(self, path: str, content: bytes) -> StoredFile | None:
        super().create_exclusive(path, content)
        if path.endswith(".record"):
            return self.answers.pop(0)
        return None

    def list(self, path: str) -> list[FileInfo]:
        self.listings += path == layout.CHECKPOINTS
        return super().list(path)


MINUTE_MS = 60_000
NOW_MS = 1000 * MINUTE_MS


def answer(began_minutes: float, took_minutes: float = 0) -> StoredFile:
    """Return the answer to a request that began, and took, this time after `NOW_MS`."""
    began_ms = NOW_MS + int(began_minutes * MINUTE_MS)
    return StoredFile(1, modified_ms=began_ms, answered_ms=began_ms + int(took_minutes * MINUTE_MS))


@pytest.mark.parametrize(
    ("before", "after", "listings"),
    [
        (answer(0), answer(0), 0),  # also a stopped clock
        (answer(0), answer(49), 0),
        (answer(0), answer(51), 1),
        (answer(0), answer(29, took_minutes=20), 0),
        (answer(0), answer(31, took_minutes=20), 1),  # a proxy held the request
        (answer(0, took_minutes=40), answer(41), 0),
        (answer(0, took_minutes=40), answer(51), 1),
        (answer(0), answer(-1), 1),  # a clock that was set back
        (answer(0), answer(100_000), 1),
        (None, answer(0), 1),
        (answer(0), None, 1),
    ],
)
def test_the_age_of_the_previous_record_by_the_storage(
    driver: Driver, before: StoredFile | None, after: StoredFile | None, listings: int
) -> None:
    driver.log = CommitLog(storage := Answers(driver.fs, [answer(0), answer(0), before, after]))
    for batch in range(3):
        driver.commit_new(batch)
    storage.listings = 0
    driver.commit_new(3)
    assert storage.listings == listings
