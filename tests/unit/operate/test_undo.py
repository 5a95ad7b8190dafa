"""Undo restores the version before the last write. It never removes a write that the caller has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ftfile
from ftfile.core.errors import CommitError, ConfigError, HistoryGone
from ftfile.operate import restore
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

COLUMNS = {"id": "long"}
OPTIONS = {"fileFormat": "json"}


@pytest.fixture
def query(tmp_path: Path) -> MicroBatch:
    query = MicroBatch(str(tmp_path / "out"), COLUMNS, OPTIONS)
    for batch in range(2):
        query.run(batch, [[{"id": batch}], [{"id": 10 + batch}]])
    return query


def ids(out: str) -> list[int]:
    report = check_directory(open_filesystem(out))
    assert report.live_rows == report.visible_rows
    rows: list[int] = sorted(ftfile.open(out).to_arrow()["id"].to_pylist())
    return rows


def undo(out: str, **more: Any) -> restore.RestoreReport:
    return ftfile.undo(out, dry_run=False, **more)


@pytest.mark.slow
def test_a_batch_goes_and_another_undo_brings_it_back(query: MicroBatch) -> None:
    plan = ftfile.undo(query.path)
    assert (plan.version, plan.undone_version, plan.restored_version, plan.dry_run) == (None, 1, 0, True)
    assert [file.rows for file in plan.removed] == [1, 1]
    assert ids(query.path) == [0, 1, 10, 11]
    report = undo(query.path)
    assert (report.version, report.undone_version, report.restored_version) == (2, 1, 0)
    assert ids(query.path) == [0, 10]
    newest = ftfile.open(query.path).history()[-1]
    assert (newest.operation, newest.restored_version, newest.rows_removed) == ("undo", 0, 2)
    assert undo(query.path).undone_version == 2
    assert ids(query.path) == [0, 1, 10, 11]
    query.run(2, [[{"id": 2}]])
    assert ids(query.path) == [0, 1, 2, 10, 11]


def test_the_first_write_leaves_no_rows(tmp_path: Path) -> None:
    out = str(tmp_path)
    MicroBatch(out, COLUMNS, OPTIONS).run(0, [[{"id": 0}]])
    report = undo(out)
    assert (report.version, report.undone_version, report.restored_version) == (1, 0, None)
    assert ids(out) == []
    assert undo(out).undone_version == 1
    assert ids(out) == [0]


@parametrize(
    "write",
    [
        lambda out: ftfile.drop(out, "all"),
        lambda out: ftfile.delete(out, "id > 5"),
        lambda out: MicroBatch(out, COLUMNS, OPTIONS, overwrite=True).run_batch_write("7" * 32, [[{"id": 7}]]),
        lambda out: ftfile.restore(out, 0),
    ],
    ids=["drop", "delete", "overwrite", "restore"],
    quick=1,
)
def test_whatever_ended_rows_is_a_write(query: MicroBatch, write: Any) -> None:
    write(query.path)
    assert ids(query.path) != [0, 1, 10, 11]
    assert undo(query.path).undone_version == 2
    assert ids(query.path) == [0, 1, 10, 11]


def test_upkeep_is_none(query: MicroBatch) -> None:
    ftfile.compact(query.path)
    ftfile.vacuum(query.path, dry_run=False)
    query.run(2, [[]])
    assert undo(query.path).undone_version == 1
    assert ids(query.path) == [0, 10]


def test_open_files_are_open_again(tmp_path: Path) -> None:
    out = str(tmp_path)
    query = MicroBatch(out, COLUMNS, OPTIONS | {"maxBatchesPerFile": "9"})
    for batch in range(2):
        query.run(batch, [[{"id": batch}]])
    ftfile.flush(out)
    assert undo(out).undone_version == 1
    assert sorted(ftfile.open(out).to_arrow()["id"].to_pylist()) == [0]
    check_directory(open_filesystem(out))


@pytest.mark.parametrize("at", ["first", "second"])
def test_a_write_that_comes_meanwhile_stays(query: MicroBatch, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """The write is committed before the head is read for the record, or between that read and the record."""
    honest, calls = restore._last_write, []  # noqa: SLF001

    def last_write(*arguments: Any) -> int | None:
        calls.append(1)
        if len(calls) == 2 and at == "first":
            write = honest(*arguments)
            monkeypatch.setattr(restore, "_last_write", honest)
            query.run(2, [[{"id": 2}]])
            return write
        if len(calls) == 1 and at == "second":
            write = honest(*arguments)
            query.run(2, [[{"id": 2}]])
            return write
        return honest(*arguments)

    monkeypatch.setattr(restore, "_last_write", last_write)
    with pytest.raises(CommitError, match="version 2 was written after version 1, which should be undone"):
        undo(query.path)
    assert ids(query.path) == [0, 1, 2, 10, 11]


def test_what_cannot_be_undone_is_said(tmp_path: Path, query: MicroBatch) -> None:
    out = str(tmp_path / "migrated")
    Path(out).mkdir()
    (Path(out) / "a.json").write_text('{"id": 1}\n')
    ftfile.migrate(out, dry_run=False, schema="id long", context=current())
    with pytest.raises(ConfigError, match=r"version 0 is a migration: ftfile\.undo_migration"):
        ftfile.undo(out)
    empty = str(tmp_path / "empty")
    MicroBatch(empty, COLUMNS, OPTIONS).run(0, [[]])
    with pytest.raises(ConfigError, match="has no write that can be undone"):
        ftfile.undo(empty)
    ftfile.drop(query.path, "all")
    for file in Path(query.path, "_ftfile/retired").iterdir():
        file.unlink()
    assert len(ftfile.undo(query.path).missing) == 4
    with pytest.raises(HistoryGone, match="version 1 cannot be restored: 4 of its files"):
        undo(query.path)
