"""Random histories of a directory and of streams that follow it: each new row is read once."""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ChangedRows, ConfigError, HistoryGone
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import ManualClock, SeededIds, current, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.testing.source_run import Killed, SourceRun, check_followed
from ftfile.writing.files.file_writer import forget_caches
from tests.histories.decoding import decoded_once
from tests.histories.small_limits import small_limits
from tests.settings import settled_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem
    from ftfile.testing.source_run import Moment

HISTORIES = int(os.environ.get("FTFILE_FOLLOW_HISTORIES", "160"))
AT_ONCE = 20
STEPS = 30
DAY_S = 86_400
COLUMNS = {"id": "long", "k": "string"}
WRITERS: tuple[dict[str, str], ...] = (
    {},
    {"maxBatchesPerFile": "2"},
    {"rolling": "policy", "maxRecordsPerFile": "3"},
    {"maxBatchesPerFile": "3", "maxSegmentsPerPart": "2"},
)
FOLLOWERS: tuple[dict[str, str], ...] = (
    {},
    {"maxFilesPerTrigger": "1"},
    {"maxRowsPerTrigger": "4"},
    {"maxBytesPerTrigger": "30"},
    {"startingVersion": "latest"},
    {"startingVersion": "0", "maxFilesPerTrigger": "2"},
)
MOMENTS: tuple[Moment, ...] = ("planned", "offsets written", "partitions asked", "rows read")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Directory:
    """The rows of a directory by version: the new rows, and the live rows."""

    def __init__(self, url: str, fs: FileSystem, rng: random.Random) -> None:
        self.url, self.fs, self.rng = url, fs, rng
        self.numbers = itertools.count()
        self.new: dict[int, set[int]] = {}
        self.live: dict[int, set[int]] = {-1: set()}
        self.bucket: dict[int, str] = {}
        self.queries = [self._query(number) for number in range(2)]
        self.next = [0, 0]

    def _query(self, number: int) -> MicroBatch:
        options = {"fileFormat": "json", "partitionBy": "k", "onNewQuery": "continue", **self.rng.choice(WRITERS)}
        return MicroBatch(self.url, COLUMNS, options, query_id=f"00000000-0000-0000-0000-{number:012d}")

    def tasks(self) -> list[list[dict[str, Any]]]:
        tasks: list[list[dict[str, Any]]] = [
            [{"id": next(self.numbers), "k": self.rng.choice("ab")} for _ in range(self.rng.randrange(3))]
            for _ in range(self.rng.randrange(1, 4))
        ]
        self.bucket |= {row["id"]: row["k"] for task in tasks for row in task}
        return tasks

    def batch(self) -> None:
        number = self.rng.randrange(2)
        tasks = self.tasks()
        done = self.queries[number].run(self.next[number], tasks)
        self.next[number] += 1
        self._added(done.version, tasks)

    def job(self) -> None:
        tasks = self.tasks()
        job = MicroBatch(self.url, COLUMNS, {"fileFormat": "json", "partitionBy": "k", "onNewQuery": "continue"})
        self._added(job.run_batch_write(current().ids.unique(), tasks).version, tasks)

    def overwrite(self) -> None:
        tasks = self.tasks()
        options = {"fileFormat": "json", "partitionBy": "k", "onNewQuery": "continue"}
        job = MicroBatch(self.url, COLUMNS, options, overwrite=True)
        before = self.rows()
        done = job.run_batch_write(current().ids.unique(), tasks)
        rows = {row["id"] for task in tasks for row in task}
        self._note(done.version, set() if before else rows, rows)

    def drop(self) -> None:
        gone = self.rng.choice("ab")
        if self.version() >= 0:
            ftfile.drop(self.url, {"k": gone}, context=current())
            self._note(self.version(), set(), {row for row in self.rows() if self.bucket[row] != gone})

    def maintain(self) -> None:
        if self.version() < 0:
            return
        kind = self.rng.randrange(3)
        if kind == 0:
            ftfile.flush(self.url, context=current())
        elif kind == 1:
            ftfile.compact(self.url, context=current())
        else:
            current().clock.sleep(self.rng.choice((0, 1, 1, 4)) * DAY_S)
            ftfile.vacuum(self.url, dry_run=False, context=current())
        self._note(self.version(), set(), self.rows())

    def rows(self) -> set[int]:
        return self.live[max(self.live)]

    def version(self) -> int:
        return CommitLog(self.fs).refresh().version

    def _added(self, version: int, tasks: list[list[dict[str, Any]]]) -> None:
        rows = {row["id"] for task in tasks for row in task}
        self._note(version, rows, self.rows() | rows)

    def _note(self, version: int, new: set[int], live: set[int]) -> None:
        if version > max(self.live):
            before = self.rows()
            self.live |= dict.fromkeys(range(max(self.live) + 1, version), before)
            self.new[version], self.live[version] = new, live


class Follower:
    """A stream that is run at times, killed, and started again."""

    def __init__(self, directory: Directory, rng: random.Random) -> None:
        self.directory, self.rng = directory, rng
        self.is_lost = False
        options = dict(rng.choice(FOLLOWERS))
        self.run = SourceRun(directory.url, COLUMNS, options, rng.choice(("4.0", "4.2")))

    def go(self) -> None:
        choice = self.rng.randrange(6)
        if choice == 0:
            self.run.kill_at = self.rng.choice(MOMENTS)
        if choice == 1:
            self.run.restart()
        run = self.run.run_available if choice == 2 else lambda: self.run.run(self.rng.choice((1, 1000)))
        try:
            self._attempt(run)
        except Killed:
            self._attempt(run)

    def finish(self) -> None:
        self.run.kill_at = None
        for _ in range(2):
            if not self.is_lost and self._attempt(self.run.run):
                break
        if not self.is_lost:
            self._check(self.directory.version())

    def _attempt(self, run: Callable[[], int]) -> bool:
        """Return True if the run ended without an error. After `ChangedRows`, skip commits that change rows."""
        try:
            run()
        except ChangedRows:
            self.run.options = {**self.run.options, "skipChangeCommits": "true"}
            self.run.restart()
            return False
        except (ConfigError, HistoryGone):
            self._check_gone()
            return False
        return True

    def _check_gone(self) -> None:
        """Only rows that a vacuum deleted are missing, and no row was read twice before."""
        self.is_lost = True
        assert ftfile.open(self.directory.url).oldest_version() > 0 or self.run.offsets
        operations = {record.operation for record in ftfile.open(self.directory.url).history()}
        assert "vacuum" in operations
        assert max(Counter(row["id"] for row in self.run.rows).values(), default=1) == 1

    def _check(self, last: int) -> None:
        begins = [offset for offset in map(json.loads, self.run.offsets) if offset["kind"] != "start"]
        if not begins:
            assert last < 0
            return
        first = begins[0]
        if "from" in first:
            expected: set[int] = set()
            begin = first["from"]
        else:
            snapshot = first.get("snapshot", first.get("version"))
            expected = set(self.directory.live[snapshot])
            begin = snapshot + 1
        for version in range(begin, last + 1):
            expected |= self.directory.new.get(version, set())
        found = Counter(row["id"] for row in self.run.rows)
        assert max(found.values(), default=1) == 1
        assert found.keys() == expected
        check_followed(self.directory.fs, self.run)


@pytest.fixture
def _found_once() -> Iterator[None]:
    """Cache decoded records and checked settings, which take half of the time of a history."""
    with decoded_once(), settled_once():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("_found_once")
@pytest.mark.parametrize("place", range(0, HISTORIES, AT_ONCE))
def test_every_new_row_is_read_once(place: int) -> None:
    lost = 0
    for seed in range(place, min(place + AT_ONCE, HISTORIES)):
        rng = random.Random(seed)
        clock = ManualClock(tick_ms=1)
        fs = MemoryFileSystem(f"follow-{seed}-{place}", clock=clock)
        with repeatable(clock, SeededIds(seed)), small_limits(use=rng.random() < 0.5), mounted(fs) as url:
            forget_caches()
            directory = Directory(url, fs, rng)
            followers = [Follower(directory, rng) for _ in range(3)]
            for _ in range(STEPS):
                clock.advance(60)
                step = rng.choice(["batch"] * 8 + ["job", "maintain", "maintain"] + ["go"] * 6)
                if rng.random() < 0.02:
                    step = rng.choice(("overwrite", "drop"))
                if step == "go":
                    follower = rng.choice(followers)
                    if not follower.is_lost:
                        follower.go()
                else:
                    getattr(directory, step)()
            for follower in followers:
                if not follower.is_lost:
                    follower.finish()
            lost += sum(follower.is_lost for follower in followers)
            forget_caches()
    assert lost < AT_ONCE, "too few streams were followed to the end"
