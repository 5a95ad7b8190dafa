"""Attempts and the contents of their messages: early failures, and the work left to other processes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, InvalidMessages, PermissionDenied, SchemaError
from ftfile.log import checkpoints
from ftfile.log.format import layout
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_writer import FileSink

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileInfo

ROWS = [{"value": "a"}, {"value": "b"}]


@pytest.fixture
def query(tmp_path: Path) -> MicroBatch:
    options = {"fileFormat": "text", "onNewQuery": "continue"}
    return MicroBatch(str(tmp_path / "out"), {"value": "string"}, options)


def test_storage_that_loses_bytes_fails_the_attempt() -> None:
    """Spark runs the task again; the commit, which looks, too, could only fail the batch."""

    class Lossy(WrapperFileSystem, PickledByReference):
        def stat(self, path: str) -> FileInfo:
            info = super().stat(path)
            return info._replace(size_bytes=info.size_bytes - path.endswith(".staged"))

    with mounted(Lossy(CrashingFileSystem())) as url:
        query = MicroBatch(url, {"value": "string"}, {"fileFormat": "text"})
        with pytest.raises(CorruptData, match=r"expected 4 bytes, found 3 bytes. Spark runs the task again"):
            query.run_tasks(0, [ROWS])


def test_a_failing_attempt_leaves_the_files_of_others_alone(query: MicroBatch) -> None:
    planned, writer = query.pickled_plan(), query.identity(0)
    message = query.run_task(planned, writer, 0, ROWS)
    with pytest.raises(ConnectionError):
        query.run_task(planned, writer, 1, ROWS, error=ConnectionError("executor lost"))
    query.commit(0, [message])
    assert ftfile.open(query.path).to_arrow().to_pylist() == ROWS


def test_files_that_cannot_be_removed_do_not_hide_why_the_attempt_failed() -> None:
    stuck = Fault(PermissionDenied, times=9, operations=frozenset({"delete"}))
    with mounted(FaultyFileSystem(CrashingFileSystem(), [stuck])) as url:
        query = MicroBatch(url, {"value": "string"}, {"fileFormat": "text", "maxRecordsPerFile": "1"})
        planned, writer = query.pickled_plan(), query.identity(0)
        with pytest.raises(ConnectionError, match="executor lost"):
            query.run_task(planned, writer, 0, ROWS, error=ConnectionError("executor lost"))


def test_a_replay_of_one_task_alone_commits_nothing(query: MicroBatch) -> None:
    """It drained its rows: without a record of the batch they would be lost."""
    first, second = query.run_tasks(0, [ROWS, ROWS])
    with pytest.raises(InvalidMessages, match="no record"):
        query.commit(0, [first, replace(second, parts=(), found_committed=True)])
    with pytest.raises(ConfigError, match="Nothing was ever committed there"):
        ftfile.open(query.path)


def test_a_task_planned_long_ago_starts_over_from_a_checkpoint(
    query: MicroBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records behind a checkpoint may be deleted: the gap looks like the end of the log."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 0)
    query.run(0, [ROWS])
    planned = query.pickled_plan()
    for batch in range(1, 4):
        query.run(batch, [ROWS])
    fs = open_filesystem(query.path)
    for version in (1, 2):
        fs.delete(layout.record_path(version))
    message = query.run_task(planned, query.identity(2), 0, ROWS, attempt=1)
    assert message.found_committed
    assert not message.parts


def test_a_schema_that_changed_since_the_plan_is_refused(query: MicroBatch) -> None:
    messages = query.run_tasks(0, [ROWS])
    plan = plan_write(FileSink(), query.config(), current())
    MicroBatch(query.path, {"other": "string"}, query.options, "another").run(0, [[{"other": "x"}]])
    with pytest.raises(SchemaError):
        commit_batch(plan.sink, plan.config, messages, 0, current())
    assert len(ftfile.open(query.path).history()) == 1
