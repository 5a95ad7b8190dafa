"""Nothing of a commit grows with the files or the batches before it: counted, so that it holds on any machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ftfile.log.checkpoints import encode_checkpoint, list_checkpoints
from ftfile.log.commit_log import CommitLog
from ftfile.log.read.compacted_records import list_compacted
from ftfile.log.read.snapshot import take_snapshot
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.unit.log.conftest import Driver
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

# `make long` commits 100,000.
BATCHES = int(os.environ.get("FTFILE_BATCHES", "20000"))


@dataclass(frozen=True)
class Window:
    """The cost of a number of commits, per commit, and the size of the state after them."""

    calls: float
    bytes_read: float
    bytes_written: float
    state_bytes: int


class Run:
    """Commits batch after batch in one process, and measures."""

    def __init__(self, fs: MemoryFileSystem, files: int) -> None:
        self.fs = MeteredFileSystem(fs)
        self.driver = Driver(self.fs)
        self.files = files
        self.batches = 0

    def commits(self, count: int) -> Window:
        """Commit this number of further batches; the cost of staging is not counted."""
        self.fs.counters.calls.clear()
        self.fs.counters.bytes_read = self.fs.counters.bytes_written = 0
        staged = 0
        for batch in range(self.batches, self.batches + count):
            adds = [self.driver.stage(batch) for _ in range(self.files)]
            staged += sum(add.length for add in adds)
            # As the sink numbers the files of each name.
            tables = {"partNumbers": {"set": {add.id: 1 for add in adds}}} if adds else {}
            self.driver.commit(batch, *adds, tables=tables)
        self.batches += count
        counters, head = self.fs.counters, self.driver.log.refresh()
        calls = sum(counters.calls.values()) - count * self.files * 4
        written = counters.bytes_written - staged
        return Window(calls / count, counters.bytes_read / count, written / count, len(encode_checkpoint(head)))


@pytest.fixture
def fs(request: pytest.FixtureRequest) -> Iterator[MemoryFileSystem]:
    yield MemoryFileSystem(request.node.name)
    MemoryFileSystem.drop(request.node.name)


def assert_flat(early: Window, late: Window) -> None:
    assert late.calls < 1.05 * early.calls
    assert late.bytes_read < 1.5 * early.bytes_read  # merging ranges costs a logarithm
    assert late.bytes_written < 1.5 * early.bytes_written
    assert late.state_bytes < 1.05 * early.state_bytes


def assert_small(run: Run) -> None:
    """Check that a new task, driver or reader reads few files, and that the log's directories contain few names."""
    metered = MeteredFileSystem(run.fs.inner)
    log = CommitLog(metered)
    assert log.refresh().version == run.batches - 1
    assert metered.counters.calls["read"] < 300
    assert len(list_checkpoints(run.fs)) <= 2
    metered.counters.calls.clear()
    assert len(take_snapshot(log).adds) == run.batches * run.files
    assert metered.counters.calls["read"] < 80
    assert metered.counters.calls["open"] == len(list_compacted(run.fs)) < 40


def test_100_000_file_names(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.log.apply.ENTRIES_MAX", 10_000)
    run = Run(fs, files=100)
    run.commits(256)
    early = run.commits(128)
    run.commits(1000 - 256 - 2 * 128)
    assert_flat(early, run.commits(128))
    assert_small(run)


def test_many_batches(fs: MemoryFileSystem) -> None:
    run = Run(fs, files=0)
    run.commits(1024)
    early = run.commits(2048)
    run.commits(BATCHES - 1024 - 2 * 2048)
    assert_flat(early, run.commits(2048))
    assert_small(run)


def test_who_only_reads_on_remembers_little(fs: MemoryFileSystem) -> None:
    """The driver's planner reads like this, in a separate process, for the lifetime of the stream."""
    driver = Driver(fs)
    planner = CommitLog(fs)
    most = 0
    for batch in range(600):
        driver.commit_new(batch)
        head = planner.refresh()
        most = max(most, len(head.unpublished))
        assert planner.recent.size_bytes == 0
    assert most < 300


def test_new_processes_pay_what_old_ones_do(fs: MemoryFileSystem) -> None:
    """Batch writes are separate processes: each reads a checkpoint and a bounded number of records."""
    run = Run(fs, files=1)
    run.commits(1000)
    worst = 0
    for batch in range(1000, 1300):
        run.fs.counters.calls.clear()
        run.driver.restart()
        run.driver.commit_new(batch)
        worst = max(worst, sum(run.fs.counters.calls.values()))
    assert worst < 500
