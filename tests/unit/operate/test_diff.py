"""Comparison of two versions: the added and removed rows are equal to pyarrow's comparison of the published files."""

from __future__ import annotations

import datetime
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.json
import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.log.format import layout
from ftfile.operate.details import ColumnChange
from ftfile.storage.calls import THREADS_MAX
from ftfile.testing.micro_batch import MicroBatch, StoreBatch

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = {"id": "long"}
OPTIONS = {"fileFormat": "json"}
STEPS: list[Callable[[MicroBatch], object]] = [
    lambda query: query.run(0, [[{"id": 0}, {"id": 1}], [{"id": 2}]]),
    lambda query: query.run(1, [[{"id": 3}], [{"id": 4}]]),
    lambda query: ftfile.compact(query.path),
    lambda query: ftfile.delete(query.path, "id = 1"),
    lambda query: ftfile.restore(query.path, 2),
    lambda query: query.run(2, [[{"id": 5}]]),
    lambda query: ftfile.undo(query.path, dry_run=False),
    lambda query: ftfile.drop(query.path, "all"),
    lambda query: ftfile.undo(query.path, dry_run=False),
    lambda query: ftfile.restore(query.path, 0),
]


def published(out: str) -> dict[str, set[int]]:
    """Return the rows of each visible file."""
    files = Path(out).glob("*.json")
    return {file.name: {*pyarrow.json.read_json(file)["id"].to_pylist()} for file in files}


def stem(name: str) -> str:
    """Return a name without its extension, and without the suffix that a later restore adds."""
    return name.partition(".")[0]


@pytest.mark.slow
def test_rows_and_files_of_every_two_versions(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path / "out"), COLUMNS, OPTIONS)
    contents = []
    for version, step in enumerate(STEPS):
        step(query)
        contents.append(published(query.path))
        assert ftfile.open(query.path).version() == version
    rows = [set().union(*files.values()) for files in contents]
    assert [len(ids) for ids in rows] == [3, 5, 5, 4, 5, 6, 5, 0, 5, 3]
    directory = ftfile.open(query.path)
    for old, new in itertools.product(range(len(STEPS)), repeat=2):
        changes = directory.diff(old, new)
        assert (changes.old_version, changes.new_version) == (old, new)
        assert (changes.rows_added, changes.rows_removed) == (len(rows[new] - rows[old]), len(rows[old] - rows[new]))
        assert sum(file.rows for file in changes.added) - sum(file.rows for file in changes.removed) == len(
            rows[new]
        ) - len(rows[old])
    for old, new in itertools.combinations(range(4), 2):
        changes = directory.diff(old, new)
        assert {stem(file.path) for file in changes.added} == {*map(stem, contents[new].keys() - contents[old].keys())}
        assert {stem(file.path) for file in changes.removed} == {
            *map(stem, contents[old].keys() - contents[new].keys())
        }
    assert directory.diff(9) == directory.diff(9, 9)
    assert directory.diff(8).removed == directory.diff(8, 9).removed


@pytest.mark.slow
def test_more_records_than_are_read_at_once(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path / "out"), COLUMNS, OPTIONS)
    for batch in range(THREADS_MAX + 8):
        query.run(batch, [[{"id": batch}]])
    ftfile.delete(query.path, "id = 3")
    ftfile.compact(query.path)
    newest = THREADS_MAX + 9
    for old, new in ((5, newest), (newest, 5)):
        changes = ftfile.open(query.path).diff(old, new)
        counts = (THREADS_MAX + 2, 1)
        assert (changes.rows_added, changes.rows_removed) == (counts if new > old else counts[::-1])


def test_pieces_of_open_files(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path / "out"), COLUMNS, {**OPTIONS, "maxBatchesPerFile": "9"})
    for batch in range(2):
        query.run(batch, [[{"id": batch}]])
    ftfile.flush(query.path)
    directory = ftfile.open(query.path)
    came, ended = directory.diff(0, 1), directory.diff(1, 2)
    assert [(file.kind, file.rows) for file in came.added] == [("segment", 1)]
    assert (came.rows_added, came.rows_removed) == (1, 0)
    assert [(file.kind, file.rows) for file in ended.added] == [("part", 2)]
    assert [file.kind for file in ended.removed] == ["segment", "segment"]
    assert (ended.rows_added, ended.rows_removed) == (0, 0)


def test_columns(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    options = {**OPTIONS, "onSchemaChange": "widen"}
    for batch, columns in enumerate(({"id": "integer", "a": "string"}, {"id": "long", "a": "string", "b": "date"})):
        MicroBatch(out, columns, options).run(batch, [[{"id": batch}]])
    assert ftfile.open(out).diff(0, 1).columns == (
        ColumnChange("id", "int", "bigint"),
        ColumnChange("b", None, "date"),
    )
    assert ftfile.open(out).diff(1, 0).columns[1] == ColumnChange("b", "date", None)
    assert ftfile.open(out).diff(1, 1).columns == ()


def test_times(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path / "out"), COLUMNS, OPTIONS)
    for batch in range(3):
        query.run(batch, [[{"id": batch}]])
        os.utime(Path(query.path, layout.record_path(batch)), (1_719_835_200 + 60 * batch,) * 2)
    directory = ftfile.open(query.path)
    noon = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
    assert directory.diff(noon, "2024-07-01T12:01:30Z") == directory.diff(0, 1)
    assert directory.diff(0, noon.date() + datetime.timedelta(1)) == directory.diff(0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no version is as old as 2024-06-01"):
        directory.diff("2024-06-01")


@pytest.mark.parametrize(
    ("old", "kind", "text"),
    [
        (7, ConfigError, "there is no version 7"),
        ("soon", ConfigError, "not an ISO 8601 time"),
        (None, TypeError, "a version, or"),
    ],
)
def test_what_is_no_version(tmp_path: Path, old: Any, kind: type[Exception], text: str) -> None:
    query = MicroBatch(str(tmp_path / "out"), COLUMNS, OPTIONS)
    query.run(0, [[{"id": 0}]])
    with pytest.raises(kind, match=text):
        ftfile.open(query.path).diff(old)


@pytest.mark.slow
def test_a_version_that_is_no_longer_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.log.publish.COMPACTED_EVERY", 2)
    monkeypatch.setattr("ftfile.log.checkpoints.CHECKPOINT_MIN_BYTES", 0)
    query = MicroBatch(str(tmp_path / "out"), COLUMNS, OPTIONS)
    for batch in range(9):
        query.run(batch, [[{"id": batch}]])
    for path in Path(query.path, layout.LOG).iterdir():
        os.utime(path, (1_719_835_200,) * 2)
    ftfile.vacuum(query.path, dry_run=False)
    oldest = ftfile.open(query.path).history()[0].version
    assert oldest > 0
    with pytest.raises(ConfigError, match=f"there is no version 0: the newest is .*, the oldest {oldest}"):
        ftfile.open(query.path).diff(0)


def test_a_store_has_changes_of_its_own(tmp_path: Path) -> None:
    store = StoreBatch(str(tmp_path / "store"), {"word": "string", "n": "long"}, {"keyColumns": "word"})
    store.run(0, [[{"word": "a", "n": 0}]])
    with pytest.raises(ConfigError, match=r"is a store of keys and values.*ftfile\.kv\.changes returns"):
        ftfile.open(store.path).diff(0)
