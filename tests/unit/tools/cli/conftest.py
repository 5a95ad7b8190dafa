"""Directories for commands that only read. Tests that write create separate directories."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ftfile.testing.micro_batch import MicroBatch, StoreBatch

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"id": "long", "month": "string", "word": "string"}
BATCHES = 3


def rows(batch: int) -> list[dict[str, object]]:
    return [{"id": 10 * batch + number, "month": str(6 + number % 2), "word": "日本" * number} for number in range(4)]


@pytest.fixture(autouse=True)
def workers_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark's workers use this Python, so that `doctor` accepts it even if `python3` is another program."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.fixture
def query(tmp_path: Path) -> MicroBatch:
    """A query that wrote three batches to two partitions. The test may write more batches."""
    options = {"fileFormat": "json", "partitionBy": "month", "compression": "gzip"}
    found = MicroBatch(str(tmp_path / "out"), COLUMNS, options, checkpoint=str(tmp_path / "checkpoint"))
    for batch in range(BATCHES):
        found.run(batch, [rows(batch)])
    return found


@pytest.fixture
def out(query: MicroBatch) -> str:
    return query.path


@pytest.fixture
def rolled(tmp_path: Path) -> str:
    """A directory in which all files are open."""
    options = {"fileFormat": "json", "partitionBy": "month", "rolling": "policy", "rolloverInterval": "1h"}
    query = MicroBatch(str(tmp_path / "rolled"), COLUMNS, options)
    for batch in range(BATCHES):
        query.run(batch, [rows(batch)])
    return query.path


@pytest.fixture
def store(tmp_path: Path) -> str:
    store = StoreBatch(str(tmp_path / "store"), {"word": "string", "n": "long"}, {"keyColumns": "word"})
    for batch in range(BATCHES):
        store.run(batch, [[{"word": word, "n": batch} for word in ("a", "b", "日本")]])
    return store.path
