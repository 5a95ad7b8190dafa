"""Staged files that the storage's answer confirmed: a commit lists them only if a vacuum may have deleted them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import StaleFiles
from ftfile.log.format import layout
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import ManualClock, current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.storage.api import FileInfo

ROWS = [{"value": "a"}]


class Listed(WrapperFileSystem):
    """Remembers the listed directories of the stage, and the staged files whose status is read."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(CrashingFileSystem(clock=clock, storage="s3"))
        self._paths: list[str] = []

    def staged(self) -> list[str]:
        """Return the paths, and forget them."""
        listed = [path for path in self._paths if path.startswith(layout.STAGED)]
        self._paths.clear()
        return listed

    def stat(self, path: str) -> FileInfo:
        self._paths.append(path)
        return super().stat(path)

    def list(self, path: str) -> list[FileInfo]:
        self._paths.append(path)
        return super().list(path)


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    clock = ManualClock()
    with repeatable(clock):
        yield clock


def vacuum(url: str, retention: str) -> None:
    ftfile.vacuum(url, retention=retention, force=True, dry_run=False, context=current())


@pytest.mark.parametrize("options", [{}, {"rolling": "policy"}, {"badRecords": "deadLetter"}])
def test_files_are_not_listed_without_a_vacuum(clock: ManualClock, options: dict[str, str]) -> None:
    with mounted(fs := Listed(clock)) as url:
        query = MicroBatch(url, {"value": "string"}, {"fileFormat": "text"} | options)
        query.run(0, [ROWS, ROWS])
        fs.staged()
        bad = [{"value": "two\nlines"}] if "badRecords" in options else ROWS
        query.run(1, [ROWS, bad])
        assert fs.staged() == []


@pytest.mark.parametrize("seconds", [0, 1, 2, 3, 4, 5])
def test_vacuum_between_task_and_commit(clock: ManualClock, seconds: int) -> None:
    """A vacuum three seconds after the task deletes the file, unless its retention is longer; the batch is refused."""
    with mounted(fs := Listed(clock)) as url:
        query = MicroBatch(url, {"value": "string"}, {"fileFormat": "text"})
        query.run(0, [ROWS])
        clock.advance(10)
        messages = query.run_tasks(1, [ROWS])
        assert messages[0].stored_ms == {messages[0].parts[0].path: clock.now_ms()}
        clock.advance(3)
        # The horizon never passes the newest record.
        other = MicroBatch(url, query.columns, dict(query.options) | {"onNewQuery": "continue"}, "1" * 36)
        other.run(0, [ROWS])
        vacuum(url, f"{seconds}s")
        fs.staged()
        if seconds <= 3:
            with pytest.raises(StaleFiles):
                query.commit(1, messages)
            assert fs.staged()
            clock.advance(1)
            query.run(1, [ROWS])
        else:
            query.commit(1, messages)
            assert fs.staged() == []
        assert ftfile.open(url).count() == 3


def test_due_files_are_assembled_by_first_attempts(clock: ManualClock) -> None:
    with mounted(Listed(clock)) as url:
        query = MicroBatch(url, {"value": "string"}, {"fileFormat": "text", "maxBatchesPerFile": "2"})
        for batch in range(3):
            query.run(batch, [ROWS])
        assert [file.rows for file in ftfile.open(url).files()] == [2]
