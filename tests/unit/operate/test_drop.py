"""Drops of directories."""

from __future__ import annotations

import datetime
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

import ftfile
from ftfile.core.errors import ConfigError, NameCollision
from ftfile.log.records import read_published
from ftfile.operate.rewriting import RewriteReport
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from pathlib import Path

MONTHS = [{"id": number, "month": str(number)} for number in (6, 7, 8)]


@pytest.fixture
def query(tmp_path: Path) -> MicroBatch:
    columns = {"id": "long", "month": "string"}
    found = MicroBatch(str(tmp_path / "out"), columns, {"fileFormat": "json", "partitionBy": "month"})
    found.run(0, [MONTHS, MONTHS[:2]])
    return found


def ids(out: str, version: int | None = None) -> list[int]:
    report = check_directory(open_filesystem(out))
    assert version is not None or report.live_rows == report.visible_rows
    rows: list[int] = sorted(ftfile.open(out).to_arrow(version)["id"].to_pylist())
    return rows


def test_the_directories_named_are_gone_and_the_others_stay(query: MicroBatch) -> None:
    report = ftfile.drop(query.path, where={"month": "7"})
    assert report == RewriteReport(
        version=1, records=1, files_removed=2, rows_removed=2, bytes_removed=2 * len(b'{"id":7}\n')
    )
    assert ids(query.path) == [6, 6, 8]
    assert ids(query.path, 0) == [6, 6, 7, 7, 8]
    history = ftfile.open(query.path).history()[-1]
    assert (history.operation, history.files, history.files_removed, history.rows_removed) == ("drop", 0, 2, 2)


def test_everything_goes_by_a_word_that_nobody_writes_by_accident(query: MicroBatch) -> None:
    assert ftfile.drop(query.path, "all").rows_removed == 5
    assert ids(query.path) == []
    assert ftfile.open(query.path).to_arrow().column_names == ["id", "month"]
    query.run(1, [MONTHS[:1]])
    assert ids(query.path) == [6]


@parametrize(
    ("where", "message"),
    [
        (None, 'or "all" for every row'),
        ({}, 'or "all" for every row'),
        ("", "is empty"),
        ("7", "a comparison is expected"),
        ("month = 7", "month=7 is not a value of the column's type string"),
        ("id = 7", "'id' is not one of the partition columns, which are month"),
        ("ALL", "'ALL' is not one of the partition columns"),
        (7, "where=7 is not a condition"),
    ],
    quick=3,
)
def test_what_does_not_say_what_to_drop_drops_nothing(query: MicroBatch, where: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ftfile.drop(query.path, where)
    assert len(ids(query.path)) == 5


@pytest.mark.parametrize("where", ["month > '6'", pc.field("month") > "6"])
def test_a_condition_drops_the_directories_that_match(query: MicroBatch, where: Any) -> None:
    assert ftfile.drop(query.path, where).rows_removed == 3
    assert ids(query.path) == [6, 6]


class TestDirectoryPattern:
    @pytest.fixture
    def hours(self, tmp_path: Path) -> str:
        """A directory with one row in each of four hours, and one row in a directory without a time."""
        out, columns = str(tmp_path / "hours"), {"id": "long", "kind": "string", "ts": "timestamp_ntz"}
        begin = datetime.datetime(2024, 6, 30, 22, 30)  # noqa: DTZ001 - a clock
        rows = [{"id": n, "kind": "ab"[n % 2], "ts": begin + datetime.timedelta(hours=n)} for n in range(4)]
        options = {"fileFormat": "json", "partitionBy": "kind", "directoryPattern": "ts:yyyy-MM-dd/HH"}
        MicroBatch(out, columns, options).run(0, [rows])
        MicroBatch(out, columns, options | {"directoryPattern": "'later'yyyy"}).run(1, [[rows[0] | {"id": 9}]])
        return out

    @parametrize(
        ("where", "left"),
        [
            ("directoryTime < TIMESTAMP '2024-07-01 00:00:00'", [2, 3, 9]),
            ("directorytime >= DATE '2024-07-01' AND kind = 'a'", [0, 1, 3, 9]),
            ("directoryTime IS NOT NULL", [9]),
            ({"directoryTime": "2024-06-30 23:00:00"}, [0, 2, 3, 9]),
            (pc.field("directoryTime") < datetime.datetime(2024, 7, 1, 0, 30), [3, 9]),  # noqa: DTZ001
        ],
        quick=2,
    )
    def test_directories_by_time_go_by_their_time(self, hours: str, where: Any, left: list[int]) -> None:
        ftfile.drop(hours, where, directory_pattern="ts:yyyy-MM-dd/HH")
        assert ids(hours) == left

    def test_the_pattern_is_needed_and_checked(self, hours: str) -> None:
        with pytest.raises(ConfigError, match="'directoryTime' is not one of the partition columns, which are kind"):
            ftfile.drop(hours, "directoryTime IS NULL")
        with pytest.raises(ConfigError, match="directoryPattern='yyyy-QQ'"):
            ftfile.drop(hours, "directoryTime IS NULL", directory_pattern="yyyy-QQ")


def test_nothing_to_drop_is_no_commit(query: MicroBatch) -> None:
    assert ftfile.drop(query.path, where={"month": "1"}) == RewriteReport()
    assert ftfile.drop(query.path, where={"month": []}) == RewriteReport()
    ftfile.drop(query.path, "all")
    assert ftfile.drop(query.path, "all") == RewriteReport()
    assert ftfile.open(query.path).version() == 1


def test_an_unknown_column_drops_nothing(query: MicroBatch) -> None:
    with pytest.raises(ConfigError, match="which are month"):
        ftfile.drop(query.path, where={"month": "7", "day": "1"})
    assert len(ids(query.path)) == 5


@pytest.mark.slow
def test_what_is_still_open_goes_as_well(tmp_path: Path) -> None:
    options = {"fileFormat": "json", "partitionBy": "month", "rolling": "policy", "maxRecordsPerFile": "2"}
    query = MicroBatch(str(tmp_path / "out"), {"id": "long", "month": "string"}, options)
    for batch in range(3):
        query.run(batch, [MONTHS])
    before = ftfile.open(query.path).to_arrow().num_rows
    assert before == 9
    assert ftfile.drop(query.path, where={"month": "7"}).rows_removed == 3
    query.run(3, [MONTHS])
    ftfile.flush(query.path)
    assert ids(query.path) == [6, 6, 6, 6, 7, 8, 8, 8, 8]
    assert ftfile.open(query.path).to_arrow(2).num_rows == 9


def test_no_ftfile_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not an ftfile directory"):
        ftfile.drop(tmp_path, "all")


def test_what_comes_before_its_record_goes_and_what_comes_after_stays() -> None:
    """Another driver commits a batch into the directory just before the drop, and a batch just after it."""

    class Rival(WrapperFileSystem):
        armed = False

        def create_exclusive(self, path: str, content: bytes) -> None:
            if path.endswith(".record") and self.armed:
                self.armed = False
                rival.run(1, [[{"id": 70, "month": "7"}, {"id": 80, "month": "8"}]])
            super().create_exclusive(path, content)

    inner = CrashingFileSystem()
    fs = Rival(inner)
    with mounted(inner) as plain, mounted(fs) as raced:
        columns = {"id": "long", "month": "string"}
        rival = MicroBatch(plain, columns, {"fileFormat": "json", "partitionBy": "month"})
        rival.run(0, [MONTHS])
        fs.armed = True
        assert ftfile.drop(raced, where={"month": "7"}).rows_removed == 2
        rival.run(2, [[{"id": 71, "month": "7"}]])
        assert ids(plain) == [6, 8, 71, 80]


@pytest.mark.slow
def test_it_waits_for_what_it_removes(query: MicroBatch, tmp_path: Path) -> None:
    """An unpublished part would reappear after its drop, so the drop waits until the part can be published."""
    messages = query.run_tasks(1, [MONTHS])
    staged = next(part for part in messages[0].parts if part.directory_key == "month=7")
    blocked = tmp_path / f"out/month=7/part-0000000001-00000-{staged.id[:12]}.json"
    blocked.write_text("foreign")
    with pytest.raises(NameCollision):
        query.commit(1, messages)
    with pytest.raises(NameCollision):
        ftfile.drop(query.path, where={"month": "7"})
    blocked.unlink()
    assert ftfile.drop(query.path, where={"month": "7"}).rows_removed == 3
    assert ids(query.path) == [6, 6, 6, 8, 8]


def test_a_directory_that_somebody_deleted_is_dropped(query: MicroBatch, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(f"{query.path}/month=7")
    report = ftfile.drop(query.path, where={"month": ["6", "7"]})
    assert (report.files_removed, report.rows_removed) == (4, 4)
    assert "2 of 4 removed parts did not exist any more" in caplog.text
    assert sorted(ftfile.open(query.path).to_arrow()["id"].to_pylist()) == [8]
    query.run(1, [MONTHS[:1]])
    assert len(ftfile.vacuum(query.path, retention="0s", force=True, dry_run=False).files) == 2


@pytest.mark.parametrize("overwrite", [True, False], ids=["complete", "append"])
def test_batches_after_a_directory_was_deleted(query: MicroBatch, *, overwrite: bool) -> None:
    shutil.rmtree(f"{query.path}/month=7")
    query = replace(query, overwrite=overwrite)
    for batch in range(1, 3):
        query.run(batch, [MONTHS])
    hint = read_published(open_filesystem(query.path))  # all files are published
    assert hint is not None
    assert hint.version == 2
