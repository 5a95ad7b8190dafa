"""Restores of older versions."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import ChangedRows, ConfigError, HistoryGone, NameCollision, PermissionDenied
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.read.snapshot import take_snapshot
from ftfile.operate.restore import TRIES, RestoredFile
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.log_check import InvariantViolation
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from tests.kit.parameters import parametrize
from tests.unit.writing.files.encrypted import FIRST, ring_text

PAGE = Path(__file__).parents[3] / "docs" / "restoring.md"
MONTHS = [{"id": number, "month": str(number)} for number in (6, 7, 8)]
OPTIONS = {"fileFormat": "json", "partitionBy": "month"}


@pytest.fixture
def query(tmp_path: Path) -> MicroBatch:
    """A directory with a row in each of three partitions. Version 1 drops one partition."""
    found = MicroBatch(str(tmp_path / "out"), {"id": "long", "month": "string"}, OPTIONS)
    found.run(0, [MONTHS])
    ftfile.drop(found.path, {"month": "7"})
    return found


def ids(out: str, version: int | None = None) -> list[int]:
    report = check_directory(open_filesystem(out))
    assert version is not None or report.live_rows == report.visible_rows
    rows: list[int] = sorted(ftfile.open(out).to_arrow(version)["id"].to_pylist())
    return rows


@pytest.mark.slow
def test_what_was_dropped_comes_back_and_what_came_since_goes(query: MicroBatch) -> None:
    query.run(1, [[{"id": 9, "month": "9"}]])
    report = ftfile.restore(query.path, 0)
    assert (report.version, report.restored_version, report.missing) == (3, 0, ())
    assert [file.rows for file in report.restored] == [1]
    assert [file.path.split("/")[0] for file in report.removed] == ["month=9"]
    assert ids(query.path) == [6, 7, 8]
    assert [ids(query.path, version) for version in range(4)] == [[6, 7, 8], [6, 8], [6, 8, 9], [6, 7, 8]]
    newest = ftfile.open(query.path).history()[-1]
    assert (newest.operation, newest.restored_version, newest.files, newest.files_removed) == ("restore", 0, 1, 1)
    assert newest.rows_removed == 1
    assert ftfile.open(query.path).verify(full=True).findings == ()


def test_the_check_ignores_all_records_of_a_file_that_is_gone(query: MicroBatch) -> None:
    ftfile.restore(query.path, 0)
    (restored,) = Path(query.path).glob("month=7/*")
    restored.write_text("of another program\n")
    fs = open_filesystem(query.path)
    gone = {
        add.id for add in take_snapshot(CommitLog(fs)).newest_first() if add.final_path == f"month=7/{restored.name}"
    }
    check_directory(fs, damaged=gone)
    with pytest.raises(InvariantViolation, match="I5"):
        check_directory(fs)


@pytest.mark.slow
def test_a_restore_is_undone_by_another_one_as_often_as_one_likes(query: MicroBatch) -> None:
    for version, rows in [(0, [6, 7, 8]), (1, [6, 8]), (0, [6, 7, 8]), (3, [6, 8]), (2, [6, 7, 8])]:
        ftfile.restore(query.path, version)
        assert ids(query.path) == rows
    assert [ids(query.path, version) for version in range(7)] == [[6, 7, 8], [6, 8]] * 3 + [[6, 7, 8]]
    assert ftfile.open(query.path).verify(full=True).findings == ()


@pytest.mark.slow
def test_the_newest_rows_need_no_restore(query: MicroBatch) -> None:
    assert ftfile.restore(query.path, 1).version is None
    assert ftfile.restore(query.path, 0).version == 2
    assert ftfile.restore(query.path, 0).version is None
    assert ftfile.open(query.path).version() == 2


def test_a_plan_changes_nothing(query: MicroBatch) -> None:
    before = sorted(str(path) for path in open_filesystem(query.path).list("_ftfile/log"))
    report = ftfile.restore(query.path, 0, dry_run=True)
    assert (report.version, report.dry_run, report.removed) == (None, True, ())
    assert [type(file) for file in report.restored] == [RestoredFile]
    assert sorted(str(path) for path in open_filesystem(query.path).list("_ftfile/log")) == before


def test_a_time_names_the_version() -> None:
    clock = ManualClock()
    with repeatable(clock):
        query = MicroBatch("memory://restored-by-time/out", {"id": "long", "month": "string"}, OPTIONS)
        query.run(0, [MONTHS])
        clock.advance(3600)
        ftfile.drop(query.path, "all", context=current())
        version = ftfile.open(query.path, context=current()).history()[0]
        report = ftfile.restore(query.path, timestamp="2999-01-01", context=current())
        assert report.version is None
        then = datetime.fromtimestamp(version.time_ms / 1000 + 60, timezone.utc)
        assert ftfile.restore(query.path, timestamp=then, context=current()).restored_version == 0
        assert ftfile.open(query.path, context=current()).count() == 3


@parametrize(
    ("arguments", "message"),
    [
        ({}, "either a version"),
        ({"version": 0, "timestamp": "2024-07-01"}, "either a version"),
        ({"version": 7}, "there is no version 7: the newest is 1"),
        ({"version": -1}, "there is no version -1: the newest is 1"),
        ({"timestamp": "yesterday"}, "'yesterday' is not an ISO 8601 time"),
    ],
    quick=3,
)
def test_a_version_that_is_not_there_is_refused(query: MicroBatch, arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ftfile.restore(query.path, **arguments)
    assert ftfile.open(query.path).version() == 1


@pytest.mark.slow
def test_queries_go_on_exactly_once(query: MicroBatch) -> None:
    query.run(1, [[{"id": 9, "month": "9"}]])
    ftfile.restore(query.path, 0)
    query.restart()
    assert query.run(1, [[{"id": 9, "month": "9"}]]).replayed
    query.run(2, [[{"id": 10, "month": "9"}]])
    assert ids(query.path) == [6, 7, 8, 10]


@pytest.mark.slow
def test_files_that_are_open_come_back_open_and_their_jobs_with_them(tmp_path: Path) -> None:
    columns = {"id": "long"}
    query = MicroBatch(
        str(tmp_path / "out"), columns, {"fileFormat": "json", "rolling": "policy", "maxRecordsPerFile": "3"}
    )
    query.run(0, [[{"id": 0}, {"id": 1}]])
    query.run(1, [[{"id": 2}, {"id": 3}]])
    query.run(2, [[]])
    ftfile.flush(query.path)
    assert ids(query.path) == [0, 1, 2, 3]
    for version, rows in [(0, [0, 1]), (1, [0, 1, 2, 3]), (2, [0, 1, 2, 3])]:
        ftfile.restore(query.path, version)
        open_directory = ftfile.open(query.path)
        assert sorted(open_directory.to_arrow()["id"].to_pylist()) == rows
        assert open_directory.verify(full=True).findings == ()
        check_directory(open_filesystem(query.path))
    ftfile.restore(query.path, 1)
    query.run(3, [[{"id": 4}]])
    ftfile.flush(query.path)
    assert ids(query.path) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_after_a_compaction_the_small_files_come_back(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "parquet"})
    for batch in range(3):
        query.run(batch, [[{"id": batch}]])
    ftfile.compact(query.path)
    report = ftfile.restore(query.path, 1)
    assert (len(report.restored), len(report.removed)) == (2, 1)
    rows = ftfile.open(query.path).to_arrow()["id"].to_pylist()
    assert sorted(rows) == [0, 1]
    assert ftfile.open(query.path).verify(full=True).findings == ()
    ftfile.compact(query.path)
    assert ftfile.open(query.path).count() == 2
    ftfile.restore(query.path, 3)
    assert sorted(ftfile.open(query.path).to_arrow()["id"].to_pylist()) == [0, 1, 2]


@pytest.mark.slow
def test_columns_and_partitions_are_those_of_the_older_version(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long", "month": "string"}, OPTIONS).run(0, [MONTHS])
    wide = MicroBatch(
        out, {"id": "long", "day": "string", "more": "long"}, {"fileFormat": "json", "partitionBy": "day"}, "2"
    )
    wide.overwrite = True
    wide.run_batch_write("job", [[{"id": 1, "day": "1", "more": 2}]])
    ftfile.restore(out, 0)
    assert ftfile.open(out).to_arrow().column_names == ["id", "month"]
    assert ids(out) == [6, 7, 8]
    MicroBatch(out, {"id": "long", "month": "string"}, OPTIONS).run(1, [[{"id": 9, "month": "6"}]])
    assert ids(out) == [6, 7, 8, 9]
    ftfile.restore(out, 1)
    assert ftfile.open(out).to_arrow().to_pylist() == [{"id": 1, "day": "1", "more": 2}]


@pytest.mark.slow
def test_a_follower_is_told_and_passes_over_it(query: MicroBatch) -> None:
    directory = ftfile.open(query.path)
    [(offset, _)] = [(offset, list(rows)) for offset, rows in directory.follow()]
    ftfile.restore(query.path, 0)
    query.run(1, [[{"id": 10, "month": "9"}]])
    with pytest.raises(ChangedRows, match="version 2, a restore of version 0, removes 0 files, and restores 1"):
        list(directory.follow(offset))
    [rows] = [pa.Table.from_batches(rows) for _, rows in directory.follow(offset, skipChangeCommits=True)]
    assert rows["id"].to_pylist() == [10]


def test_a_follower_that_is_behind_finds_files_that_moved(query: MicroBatch) -> None:
    ftfile.restore(query.path, 0)
    rows = [
        pa.Table.from_batches(rows)
        for _, rows in ftfile.open(query.path).follow(startingVersion=0, skipChangeCommits=True)
    ]
    assert sorted(pa.concat_tables(rows)["id"].to_pylist()) == [6, 7, 8]


@pytest.mark.slow
def test_names_do_not_grow_however_often_rows_come_back(tmp_path: Path) -> None:
    options = {"fileFormat": "json", "partFileName": "p.r5.{index}", "ifExists": "fail"}
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, options)
    query.run(0, [[{"id": 1}]])
    for _ in range(60):
        ftfile.drop(query.path, "all")
        ftfile.restore(query.path, 0)
    (file,) = ftfile.open(query.path).files()
    assert file.path.startswith("p.r120.r5.")
    ftfile.drop(query.path, "all")
    ((hidden, *_),) = open_filesystem(query.path).list(layout.RETIRED)
    assert re.fullmatch(r".*/[^.]+\.r120\.retired", hidden)
    ftfile.restore(query.path, 120)
    assert ids(query.path) == [1]


def test_names_that_differ_only_in_what_restores_added_are_numbered() -> None:
    parts = [("a.r2", "d/p0.r2.json"), ("b", "d/p0.json"), ("c.r2.r4", "d/p0.r4.r2.json"), ("d.r3", "d/p0.r2.json")]
    assert layout.restored_paths(parts, 6) == ["d/p0.r6.json", "d/p0.r6-2.json", "d/p0.r6-3.json", "d/p0.r6.r2.json"]
    assert layout.restored_paths([("b.r6", "d/p0.r6-2.json"), ("e.r6", "d/q.r61")], 8) == ["d/p0.r8.json", "d/q.r8.r61"]


class Busy(WrapperFileSystem):
    """Lets another writer commit at each listing of removed parts. The listing does not contain the new parts."""

    def __init__(self, inner: Any, other: MicroBatch) -> None:
        super().__init__(inner)
        self.other, self.listed = other, 0

    def list(self, path: str) -> Any:
        if path != layout.RETIRED:
            return super().list(path)
        self.listed += 1
        assert self.listed < 50
        self.other.run(self.listed, [[{"id": 1}]])
        return []


@pytest.mark.slow
def test_others_that_commit_at_more_tries_than_are_made() -> None:
    fs = CrashingFileSystem()
    with mounted(fs) as path:
        query = MicroBatch(path, {"id": "long"}, {"fileFormat": "json"})
        query.run(0, [[{"id": 0}]])
        ftfile.drop(path, "all")
        busy = Busy(fs, query)
        with mounted(busy) as other, pytest.raises(HistoryGone):
            ftfile.restore(other, 0)
        assert busy.listed == TRIES
        ftfile.restore(path, 0)
        assert ids(path) == [0]


@pytest.mark.slow
def test_a_file_at_a_name_that_is_wanted_stays(tmp_path: Path) -> None:
    query = MicroBatch(
        str(tmp_path / "out"),
        {"id": "long"},
        {"fileFormat": "json", "partFileName": "{batch}.{index}", "ifExists": "fail"},
    )
    query.run(0, [[{"id": 1}]])
    [name] = [file.path for file in ftfile.open(query.path).files()]
    ftfile.drop(query.path, "all")
    taken = tmp_path / "out" / name.replace(".", ".r2.", 1)
    taken.write_text("mine")
    with pytest.raises(NameCollision, match=taken.name):
        ftfile.restore(query.path, 0)
    assert (taken.read_text(), ftfile.open(query.path).version()) == ("mine", 1)
    taken.unlink()
    ftfile.restore(query.path, 0)
    assert ids(query.path) == [1]
    assert [file.path for file in ftfile.open(query.path).files()] == [taken.name]


@pytest.mark.slow
def test_what_a_vacuum_deleted_is_named_before_anything_is_changed() -> None:
    clock = ManualClock()
    with repeatable(clock):
        query = MicroBatch("memory://restore-vacuumed/out", {"id": "long", "month": "string"}, OPTIONS)
        query.run(0, [MONTHS])
        ftfile.drop(query.path, {"month": "7"}, context=current())
        clock.advance(8 * 86_400)
        ftfile.drop(query.path, {"month": "8"}, context=current())
        clock.advance(1)
        query.run(1, [[{"id": 9, "month": "9"}]])
        ftfile.vacuum(query.path, dry_run=False, context=current())
        with pytest.raises(HistoryGone, match=r"version 0 cannot be restored: 1 of its files .*'month=7/"):
            ftfile.restore(query.path, 0, context=current())
        report = ftfile.restore(query.path, 0, dry_run=True, context=current())
        assert [path.split("/")[0] for path in report.missing] == ["month=7"]
        ftfile.restore(query.path, 1, context=current())
        assert sorted(ftfile.open(query.path, context=current()).to_arrow()["id"].to_pylist()) == [6, 8]
        # The newest version needs the restored files, wherever they were before the restore.
        clock.advance(8 * 86_400)
        query.run(2, [[{"id": 10, "month": "9"}]])
        ftfile.vacuum(query.path, dry_run=False, context=current())
        assert sorted(ftfile.open(query.path, context=current()).to_arrow()["id"].to_pylist()) == [6, 8, 10]
        check_directory(open_filesystem(query.path))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"rolling": "policy", "maxRecordsPerFile": "2"}])
def test_an_encrypted_directory_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any) -> None:
    monkeypatch.setenv("FTFILE_KEYS_OF_RESTORING", ring_text(first=FIRST))
    options = {"fileFormat": "json", "encryption": "aes-gcm", "keyProvider": "env:FTFILE_KEYS_OF_RESTORING"} | options
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, options)
    query.run(0, [[{"id": 0}, {"id": 1}, {"id": 2}]])
    query.run(1, [[]])
    ftfile.flush(query.path)
    ftfile.drop(query.path, "all")
    newest = ftfile.open(query.path).version()
    for version in range(newest):
        ftfile.restore(query.path, version)
        directory = ftfile.open(query.path)
        assert sorted(directory.to_arrow()["id"].to_pylist()) == [0, 1, 2]
        assert directory.verify(full=True).findings == ()
        ftfile.restore(query.path, newest)
        assert directory.count() == 0
        assert sorted(directory.to_arrow(version)["id"].to_pylist()) == [0, 1, 2]


def test_files_written_under_their_names_come_back() -> None:
    with mounted(CrashingFileSystem(storage="s3")) as path:
        query = MicroBatch(path, {"id": "long"}, {"fileFormat": "json", "publish": "direct"})
        query.run(0, [[{"id": 1}]])
        ftfile.drop(path, "all")
        ftfile.restore(path, 0)
        assert ids(path) == ids(path, 0) == [1]


def test_a_store_is_refused(tmp_path: Path) -> None:
    store = StoreBatch(str(tmp_path / "store"), {"id": "long", "n": "long"}, {"keyColumns": "id"})
    store.run(0, [[{"id": 1, "n": 2}]])
    with pytest.raises(ConfigError, match="store of keys and values"):
        ftfile.restore(store.path, 0)


@pytest.mark.slow
def test_the_example_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = MicroBatch(str(tmp_path / "out"), {"id": "long", "month": "string"}, OPTIONS)
    for batch in range(9):
        query.run(batch, [MONTHS[:1]])
    restoring, undoing = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(restoring.replace("/data/out", query.path), {})
    assert capsys.readouterr().out == "0 files come back, 1 are removed, 0 are missing\n"
    assert ids(query.path) == [6] * 8
    exec(undoing.replace("/data/out", query.path), {})
    assert capsys.readouterr().out == "version 9 would be undone: 0 files go, 1 come back\n"
    assert ids(query.path) == [6] * 9


def test_versions_whose_files_are_vacuumed_are_told_by_name() -> None:
    clock = ManualClock()
    with repeatable(clock):
        options = OPTIONS | {"fileFormat": "parquet"}
        query = MicroBatch("memory://told-vacuumed/out", {"id": "long", "month": "string"}, options)
        query.run(0, [MONTHS])
        began = datetime.fromtimestamp(clock.now_ms() / 1000 + 1, timezone.utc)
        clock.advance(60)
        ftfile.drop(query.path, {"month": "7"}, context=current())
        clock.advance(8 * 86_400)
        query.run(1, [[{"id": 9, "month": "9"}]])
        directory = ftfile.open(query.path, context=current())
        assert (directory.oldest_version(), directory.version_at(began)) == (0, 0)
        ftfile.vacuum(query.path, dry_run=False, context=current())
        assert directory.oldest_version() == 1
        with pytest.raises(
            ConfigError, match=r"version 0 was the newest at this time, and vacuum has deleted it: the oldest .* is 1"
        ):
            directory.version_at(began)
        reads = directory.to_arrow, directory.dataset, partial(directory.tail, 9)
        for read in (*reads, lambda version: directory.to_batches(version).read_all()):
            with pytest.raises(HistoryGone, match=r"version 0 was vacuumed, and 'month=7/.*files is 1"):
                read(0)
        assert sorted(directory.to_arrow(1)["id"].to_pylist()) == [6, 8]
        assert directory.count(0) == 3


def test_versions_to_which_rows_were_only_added_stay() -> None:
    clock = ManualClock()
    with repeatable(clock):
        query = MicroBatch("memory://only-added/out", {"id": "long", "month": "string"}, OPTIONS)
        for batch in range(3):
            query.run(batch, [MONTHS])
            clock.advance(8 * 86_400)
        ftfile.vacuum(query.path, dry_run=False, context=current())
        directory = ftfile.open(query.path, context=current())
        assert (directory.oldest_version(), directory.to_arrow(0).num_rows) == (0, 3)


class Keeping(WrapperFileSystem):
    """Fails all deletes of removed parts."""

    def delete(self, path: str) -> None:
        if path.endswith(".retired"):
            raise PermissionDenied("delete", path, "it is kept")
        super().delete(path)


@pytest.mark.slow
def test_a_file_that_a_vacuum_may_delete_at_any_moment_does_not_come_back() -> None:
    clock = ManualClock()
    fs = CrashingFileSystem(clock=clock)
    with repeatable(clock), mounted(fs) as path, mounted(Keeping(fs)) as keeping:
        query = MicroBatch(path, {"id": "long", "month": "string"}, OPTIONS)
        query.run(0, [MONTHS])
        ftfile.drop(path, {"month": "7"}, context=current())
        clock.advance(8 * 86_400)
        query.run(1, [[{"id": 9, "month": "9"}]])
        assert ftfile.vacuum(keeping, dry_run=False, context=current()).failed == 1
        assert len(fs.list("_ftfile/retired")) == 1
        with pytest.raises(
            HistoryGone, match=r"1 of its files were vacuumed or are missing, the first of them 'month=7/"
        ):
            ftfile.restore(path, 0, context=current())
        assert ftfile.open(path, context=current()).version() == 3
