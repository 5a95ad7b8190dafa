"""Reads of only the newest files and versions return the end of the full result, with fewer calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.compacted import Document
from ftfile.operate.compact import compact_log
from ftfile.read import shares as finished_files
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.log.format.model import Add

BATCHES = 12


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A directory with documents of four adds in its range, later records, and removed files."""
    monkeypatch.setattr("ftfile.log.read.add_table.DOCUMENT_ADDS", 4)
    query = MicroBatch(str(tmp_path / "out"), {"id": "long", "p": "integer"}, {"partitionBy": "p"})
    for batch in range(BATCHES):
        query.run(batch, [[{"id": batch, "p": p} for p in range(2)]])
        if batch == BATCHES // 2:
            ftfile.compact(query.path, {"p": 0})
    compact_log(query.path)
    query.run(BATCHES, [[{"id": BATCHES, "p": 0}]])
    return query.path


@parametrize("listed", [0, 1_000], ids=["looked up", "listed"], quick=1)
def test_files(listed: int, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_files, "LISTED_AT_ONCE", listed)
    directory = ftfile.open(out)
    every = directory.files()
    Path(out, every[-2].path).unlink()
    every = directory.files()
    assert [file.path for file in every] == [add.final_path for add in directory.snapshot().adds.values()]
    assert [file.state for file in every[-3:]] == ["published", "missing", "published"]
    for limit in (0, 1, 2, 3, len(every) - 1, len(every), 10**30):
        assert directory.files(limit=limit) == every[max(0, len(every) - limit) :]
    old = directory.files(5)
    assert directory.files(5, 3) == old[-3:]


def test_few_files_of_many_are_not_all_decoded_and_listed(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    adds = Document.adds

    def decode(document: Document, ids: Sequence[str]) -> Iterator[Add]:
        decoded.append(len(ids))
        return adds(document, ids)

    monkeypatch.setattr(Document, "adds", decode)
    monkeypatch.setattr(finished_files, "list_or_empty", None)
    monkeypatch.setattr(finished_files, "LISTED_AT_ONCE", 2)
    assert [file.batch_id for file in ftfile.open(out).files(limit=2)] == [BATCHES - 1, BATCHES]
    assert len(decoded) == 1


@pytest.mark.slow
def test_versions(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = ftfile.open(out)
    every = directory.history()
    for limit in (0, 1, 5, len(every), 99):
        assert directory.history(limit) == every[max(0, len(every) - limit) :]
    store = StoreBatch(str(tmp_path / "store"), {"word": "string", "n": "long"}, {"keyColumns": "word"})
    for batch in range(3):
        store.run(batch, [[{"word": "a", "n": batch}]])
    with ftfile.kv.open(store.path) as opened:
        assert opened.history(2) == opened.history()[-2:]
    read = []
    real = CommitLog.read_record

    def note(log: CommitLog, version: int) -> object:
        read.append(version)
        return real(log, version)

    monkeypatch.setattr(CommitLog, "read_record", note)
    ftfile.open(out).history(2)
    assert read == [len(every) - 2, len(every) - 1]


@pytest.mark.slow
def test_a_negative_number(out: str) -> None:
    for call in (ftfile.open(out).files, ftfile.open(out).history):
        with pytest.raises(ConfigError, match="limit=-1: it must be a number, 0 or more"):
            call(limit=-1)
