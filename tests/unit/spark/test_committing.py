"""If Spark only commits or aborts the batches of a stream, the writer that it creates does not plan."""

from __future__ import annotations

import importlib
import logging
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructType

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.spark import shipping as worker
from ftfile.spark.datasource import FtFileDataSource, FtKvDataSource
from ftfile.spark.writers import TaskMessage
from ftfile.testing.micro_batch import MicroBatch, StoreBatch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.datasource import DataSource

COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"
PLANNER = "pyspark.sql.worker.write_into_data_source"
SCHEMA = StructType().add("id", LongType()).add("n", LongType())
ROWS = [{"id": 1, "n": 1}]
SOURCES: dict[str, type[DataSource]] = {"files": FtFileDataSource, "store": FtKvDataSource}


def writer_of(kind: str, out: Path) -> Any:
    options = {"keyColumns": "id"} if kind == "store" else {"fileFormat": "json"}
    options |= {"path": str(out), "onNewQuery": "continue"}
    return SOURCES[kind](options).streamWriter(SCHEMA, overwrite=False)


def query_of(kind: str, out: Path) -> MicroBatch | StoreBatch:
    columns = {"id": "long", "n": "long"}
    if kind == "store":
        return StoreBatch(str(out), columns, {"keyColumns": "id"})
    return MicroBatch(str(out), columns, {"fileFormat": "json"})


def messages_of(query: MicroBatch | StoreBatch, batch: int) -> list[TaskMessage]:
    return [pickle.loads(pickle.dumps(TaskMessage(task))) for task in query.run_tasks(batch, [ROWS])]


def run_as(monkeypatch: pytest.MonkeyPatch, program: str, arguments: list[str]) -> None:
    monkeypatch.setattr(worker, "main_module", lambda: program)
    monkeypatch.setattr(sys, "argv", ["program", *arguments])


@pytest.fixture
def committing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as the worker in which Spark commits."""
    run_as(monkeypatch, "pyspark.daemon", [COMMITTER])


@pytest.mark.parametrize(
    ("program", "arguments", "expected"),
    [
        ("pyspark.daemon", [COMMITTER], True),  # forked and reused
        (COMMITTER, [], True),  # started for this batch
        ("pyspark.daemon", [PLANNER], False),
        ("pyspark.daemon", ["pyspark.worker"], False),  # runs tasks
        (PLANNER, [], False),
        ("", [COMMITTER], False),  # the user's program, with any arguments
    ],
)
def test_which_processes_only_commit(
    monkeypatch: pytest.MonkeyPatch, program: str, arguments: list[str], expected: bool
) -> None:
    """A daemon may have imported all programs before it forks."""
    importlib.import_module(COMMITTER)
    run_as(monkeypatch, program, arguments)
    assert worker.only_commits() is expected


@pytest.mark.usefixtures("committing")
@pytest.mark.parametrize("kind", SOURCES)
def test_it_has_no_plan_and_commits(tmp_path: Path, kind: str) -> None:
    query = query_of(kind, tmp_path)
    for batch in range(2):
        messages = messages_of(query, batch)
        writer = writer_of(kind, tmp_path)
        assert writer._plan is None  # noqa: SLF001 - no public attribute shows it
        writer.commit(messages, batch)
    assert query.run(1, [ROWS]).replayed


@pytest.mark.parametrize("kind", SOURCES)
def test_without_that_program_it_plans(tmp_path: Path, kind: str) -> None:
    writer = writer_of(kind, tmp_path)
    assert writer._plan is not None  # noqa: SLF001
    writer.commit(messages_of(query_of(kind, tmp_path), 0), 0)


@pytest.mark.usefixtures("committing")
def test_a_batch_write_has_the_plan_that_was_shipped(tmp_path: Path) -> None:
    source = FtFileDataSource({"path": str(tmp_path)})
    writer: Any = source.writer(SCHEMA, overwrite=False)
    assert writer._plan is not None  # noqa: SLF001


@pytest.mark.usefixtures("committing")
@pytest.mark.parametrize("kind", SOURCES)
def test_an_abort_says_nothing_of_a_directory_that_became_another(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A plan would refuse the directory, and its error would hide the error for which Spark aborts."""
    out = tmp_path / "out"
    messages = messages_of(query_of(kind, tmp_path / "elsewhere"), 0)
    another = query_of("files" if kind == "store" else "store", out)
    another.query_id = "another"
    another.run(0, [ROWS])
    with caplog.at_level(logging.WARNING, "ftfile"):
        writer_of(kind, out).abort(messages, 0)
    assert "Spark aborts" in caplog.text
    with pytest.raises(ConfigError, match="a store of keys and values"):
        writer_of(kind, out).commit(messages, 0)


def test_what_a_new_directory_surprises_with_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "another.json").write_text("{}")
    with caplog.at_level(logging.WARNING, "ftfile"):
        messages = messages_of(query_of("files", tmp_path), 0)  # the test kit plans here
        monkeypatch.setattr("ftfile.spark.writers.only_commits", lambda: True)
        writer_of("files", tmp_path).commit(messages, 0)
    assert caplog.text.count("is not empty") == 1
    assert ftfile.open(tmp_path).to_arrow().num_rows == 1
