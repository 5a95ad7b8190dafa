"""A delete removes exactly the rows that a read with the same condition returns."""

from __future__ import annotations

import csv
import datetime
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import ftfile
from ftfile.core.arguments import Access
from ftfile.core.errors import (
    ChangedRows,
    CommitError,
    ConfigError,
    CorruptData,
    FtfileError,
    NameCollision,
    OutOfSpace,
    StillOpen,
)
from ftfile.log.checks import FinalPaths, accept_rewrites
from ftfile.log.opening import open_log
from ftfile.operate import rewriting
from ftfile.operate.rewriting import RewriteReport
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("ring",)

COLUMNS = {"id": "long", "word": "string", "day": "string"}
FORMATS = ["parquet", "json", "csv", "orc", "arrow", "avro"]
# Each condition with its value for a row. A condition that is unknown for a null is not true.
CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "id = 3": lambda row: row["id"] == 3,
    "word = 'w1' AND day = 'a'": lambda row: row["word"] == "w1" and row["day"] == "a",
    "day = 'b'": lambda row: row["day"] == "b",
    "word IS NULL": lambda row: row["word"] is None,
    "id = 99": lambda row: row["id"] == 99,
    "NOT (word = 'w1')": lambda row: row["word"] is not None and row["word"] != "w1",
}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def some_rows(first: int, count: int) -> list[dict[str, Any]]:
    numbers = range(first, first + count)
    return [{"id": n % 7, "word": None if n % 5 == 0 else f"w{n % 3}", "day": "ab"[n % 2]} for n in numbers]


def written(out: str, **options: str) -> MicroBatch:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"} | options)
    for batch in range(3):
        query.run(batch, [some_rows(10 * batch, 10), some_rows(10 * batch + 3, 5)])
    return query


def key(row: dict[str, Any]) -> str:
    return repr(sorted(row.items(), key=lambda item: item[0]))


def rows_of(out: str, where: Any = None, **more: Any) -> Counter[str]:
    return Counter(map(key, ftfile.open(out, **more).to_arrow(where=where).to_pylist()))


def check(out: str, where: Any, **more: Any) -> RewriteReport:
    """Delete, and compare the remaining rows with a read before. A second delete removes no rows."""
    before, matches = rows_of(out, **more), rows_of(out, where, **more)
    plan = ftfile.delete(out, where, dry_run=True, **more)
    assert (plan.rows_removed, plan.dry_run, plan.version) == (matches.total(), True, None)
    assert rows_of(out, **more) == before
    report = ftfile.delete(out, where, **more)
    assert rows_of(out, **more) == before - matches
    assert report.rows_removed == matches.total()
    assert ftfile.open(out, **more).verify(full=True).ok
    version = ftfile.open(out, **more).version()
    assert ftfile.delete(out, where, **more).version is None
    assert ftfile.open(out, **more).version() == version
    return report


def read_by_others(out: str, file_format: str) -> list[dict[str, Any]]:
    """Return the rows of the visible files, as plain readers read them."""
    rows: list[dict[str, Any]] = []
    for path in sorted(Path(out).rglob("part-*")):
        if "_ftfile" in path.parts:
            continue
        partition = dict(part.split("=") for part in path.parts if "=" in part)
        if file_format == "json":
            found = [json.loads(line) for line in path.read_text().splitlines()]
        elif file_format == "csv":
            names = [name for name in COLUMNS if name not in partition]
            lines = list(csv.reader(path.read_text().splitlines()))
            if lines and lines[0] == names:
                lines = lines[1:]
            found = [dict(zip(names, line, strict=True)) for line in lines]
            found = [row | {"id": int(row["id"]), "word": row["word"] or None} for row in found]
        elif file_format == "avro":
            with path.open("rb") as file:
                found = [dict(row) for row in fastavro.reader(file)]  # type: ignore[arg-type] # JSON's
        else:
            readers = {"parquet": _parquet, "orc": _orc, "arrow": _arrow}
            found = readers[file_format](path).to_pylist()
        rows += [dict.fromkeys(COLUMNS) | row | partition for row in found]
    return rows


def _parquet(path: Path) -> pa.Table:
    return pq.ParquetFile(path).read()


def _orc(path: Path) -> pa.Table:
    return orc.ORCFile(path).read()


def _arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("partition_by", ["", "day"])
@pytest.mark.parametrize("where", CONDITIONS)
def test_the_rows_that_a_read_returns_go_and_no_others(
    out: str, file_format: str, partition_by: str, where: str
) -> None:
    written(out, fileFormat=file_format, **({"partitionBy": partition_by} if partition_by else {}))
    before = read_by_others(out, file_format)
    assert len(before) == 45
    expected = [row for row in before if not CONDITIONS[where](row)]
    report = check(out, where)
    assert Counter(map(key, read_by_others(out, file_format))) == Counter(map(key, expected))
    assert report.rows_removed == 45 - len(expected)


class TestFiles:
    def test_those_without_a_match_stay_those_with_no_other_row_end_the_rest_is_written_anew(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
        for batch, numbers in enumerate(([1, 2], [3, 3], [3, 4, 5])):
            query.run(batch, [[{"id": number, "word": "w", "day": "a"} for number in numbers]])
        names = {path.name for path in Path(out).glob("part-*")}
        report = ftfile.delete(out, "id = 3", context=current())
        assert (report.files_removed, report.files_written, report.rows, report.rows_removed) == (2, 1, 2, 3)
        assert report.bytes_removed > report.bytes_written > 0
        assert (report.version, report.records, report.where) == (3, 1, "id = 3")
        assert len(names & {path.name for path in Path(out).glob("part-*")}) == 1
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_a_plan_says_how_many_rows_files_and_bytes(self, out: str) -> None:
        written(out)
        plan = ftfile.delete(out, "id = 3", dry_run=True)
        report = ftfile.delete(out, "id = 3")
        for name in ("files_removed", "files_written", "rows", "rows_removed", "bytes_removed", "where"):
            assert getattr(plan, name) == getattr(report, name), name
        assert (plan.version, plan.records, plan.bytes_written) == (None, 0, 0)

    @pytest.mark.slow
    def test_whole_directories_end_unread(self, out: str) -> None:
        written(out, partitionBy="day")
        for path in Path(out).glob("day=b/part-*"):
            path.write_bytes(b"damaged")
        report = ftfile.delete(out, "day = 'b'")
        assert report.rows_removed
        assert report.files_written == 0
        assert {row["day"] for row in ftfile.open(out).to_arrow().to_pylist()} == {"a"}

    @pytest.mark.slow
    @pytest.mark.parametrize("file_format", ["json", "parquet"])
    def test_the_condition_of_each_directory_is_its_own(self, out: str, file_format: str) -> None:
        """In one directory, the rest of the condition refers to other columns. In another, it is always false."""
        written(out, partitionBy="day", fileFormat=file_format)
        check(out, "(day = 'a' AND id = 3) OR (day = 'b' AND id = 4)")
        check(out, "(day = 'a' AND id = 1) OR day = 'b'")

    def test_files_without_a_match_are_read_for_the_columns_of_the_condition_alone(self, out: str) -> None:
        written(out, fileFormat="parquet")
        assert ftfile.delete(out, "id = 99") == RewriteReport(where="id = 99")
        assert ftfile.open(out).version() == 2

    @pytest.mark.slow
    def test_the_version_says_so_and_followers_end(self, out: str) -> None:
        written(out)
        *_, (offset, _) = ftfile.open(out).follow()
        count = rows_of(out, "id = 3").total()
        ftfile.delete(out, "id = 3")
        version = list(ftfile.open(out).history())[-1]
        assert (version.operation, version.rows_removed, version.replaces) == ("delete", count, "id = 3")
        with pytest.raises(ChangedRows):
            list(ftfile.open(out).follow(offset))

    @pytest.mark.slow
    def test_older_versions_have_them_until_a_vacuum(self, out: str) -> None:
        written(out)
        before = rows_of(out)
        ftfile.delete(out, "id = 3")
        assert Counter(map(key, ftfile.open(out).to_arrow(2).to_pylist())) == before
        assert any(b'"id":3' in path.read_bytes() for path in Path(out).rglob("*") if path.is_file())
        ftfile.vacuum(out, retention="0s", force=True, dry_run=False)
        assert not any(b'"id":3' in path.read_bytes() for path in Path(out).rglob("*") if path.is_file())


class TestConditions:
    @pytest.mark.parametrize("where", [None, {}])
    def test_nothing_is_none(self, out: str, where: Any) -> None:
        written(out)
        with pytest.raises(ConfigError, match="does not choose rows to delete"):
            ftfile.delete(out, where)

    @pytest.mark.parametrize("where", ["nothing = 1", "id = 'x'", "all"])
    def test_of_no_column_are_refused(self, out: str, where: str) -> None:
        written(out)
        with pytest.raises(ConfigError):
            ftfile.delete(out, where)
        assert ftfile.open(out).version() == 2

    def test_that_fail_on_values_remove_nothing(self, out: str) -> None:
        written(out)
        with pytest.raises(ConfigError, match="fails on values of 'id'"):
            ftfile.delete(out, pc.divide(pc.scalar(1), pc.field("id")) > 0)
        assert ftfile.open(out).version() == 2

    @pytest.mark.slow
    def test_values_by_column(self, out: str) -> None:
        written(out)
        check(out, {"id": [3, 4], "day": "a"})

    @pytest.mark.slow
    @pytest.mark.parametrize("file_format", ["parquet", "json", "orc"])
    @pytest.mark.parametrize(
        "where", ["c IS NULL", "c = 'x'", "id > 3000000000 OR id = 2", "c IS NULL AND id < 2", "NOT (c = 'x')"]
    )
    def test_of_columns_that_came_later_and_grew(self, out: str, file_format: str, where: str) -> None:
        MicroBatch(out, {"id": "integer"}, {"fileFormat": file_format}).run(0, [[{"id": n} for n in range(5)]])
        query = MicroBatch(out, {"id": "long", "c": "string"}, {"fileFormat": file_format, "onSchemaChange": "widen"})
        query.run(1, [[{"id": 2 * n + 4000000000 * (n % 2), "c": "x" if n % 2 else None} for n in range(5)]])
        check(out, where)

    @pytest.mark.parametrize("file_format", ["parquet", "json"])
    @parametrize(
        "where",
        [
            pc.field("s", "a") > 4,
            pc.field("s", "a").is_null(),
            pc.field("d").is_nan(),
            "d > 2",
            "NOT (d > 2)",
            "t < TIMESTAMP '2023-12-31 23:00:00'",
            {"t": datetime.datetime(2024, 1, 1, 3, tzinfo=datetime.timezone.utc)},
        ],
        ids=str,
        quick=1,
    )
    def test_of_nested_fields_nan_and_times_by_a_zone(self, out: str, file_format: str, where: Any) -> None:
        within = [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]
        columns = {"id": "long", "s": {"type": "struct", "fields": within}, "t": "timestamp", "d": "double"}
        hours = [datetime.datetime(2024, 1, 1, hour, tzinfo=datetime.timezone.utc) for hour in range(9)]
        rows = [
            {"id": n, "s": None if n == 3 else {"a": n}, "t": hours[n], "d": float("nan") if n % 3 == 0 else n / 2}
            for n in range(9)
        ]
        query = MicroBatch(out, columns, {"fileFormat": file_format, "timeZone": "America/New_York"})
        query.run(0, [rows[:5]])
        query.run(1, [rows[5:]])
        before, matches = rows_of(out), rows_of(out, where)
        assert 0 < matches.total() < 9
        assert ftfile.delete(out, where).rows_removed == matches.total()
        assert rows_of(out) == before - matches

    @pytest.mark.slow
    @pytest.mark.parametrize("file_format", ["json", "parquet"])
    def test_of_encrypted_rows(self, out: str, ring: Path, file_format: str) -> None:
        provider = f"file:{ring}"
        options = {"fileFormat": file_format, "encryption": "aes-gcm", "keyProvider": provider}
        query = MicroBatch(out, {"id": "long"}, options)
        for batch in range(3):
            query.run(batch, [[{"id": number} for number in range(10)]])
        assert check(out, "id = 3", key_provider=provider).rows_removed == 3

    @pytest.mark.slow
    def test_of_the_column_of_file_names(self, out: str) -> None:
        query = MicroBatch(out, {"id": "long", "f": "string"}, {"fileFormat": "json", "fileNameColumn": "f"})
        for batch in range(2):
            query.run(batch, [[{"id": number, "f": "ab"[number % 2]} for number in range(10)]])
        assert check(out, "f = 'a' AND id > 4").rows_removed == 4
        assert check(out, "f = 'b'").files_written == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("options", [{"compression": "gzip"}, {"partFileName": "{number}{ext}"}])
    def test_of_filtered_and_named_files(self, out: str, options: dict[str, str]) -> None:
        written(out, **options)
        check(out, "id = 3")


class TestOpenFiles:
    @pytest.mark.slow
    @pytest.mark.parametrize("more", [{}, {"maxRecordsPerFile": "4"}], ids=["whole", "in pieces"])
    def test_with_such_rows_are_finished_first(self, out: str, more: dict[str, str]) -> None:
        written(out, rolling="policy", **more)
        check(out, "id = 3")
        assert [version.operation for version in ftfile.open(out).history()][-2:] == ["flush", "delete"]
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_the_rest_of_a_segment_of_which_a_file_was_made(self, out: str) -> None:
        options = {"fileFormat": "json", "compression": "gzip", "rolling": "policy", "maxRecordsPerFile": "4"}
        query = MicroBatch(out, COLUMNS, options)
        query.run(0, [[{"id": 3, "word": f"w{n}", "day": "a"} for n in first] for first in ((0, 1, 2), (3, 4, 5))])
        query.run(1, [[]])
        (segment,) = open_log(out, Access(context=current())).refresh().segments.values()
        assert (segment.skip_rows, segment.rows) == (1, 2)
        check(out, "word = 'w4'")
        assert check(out, "id = 3").rows_removed == 5

    @pytest.mark.slow
    def test_without_such_rows_stay_open(self, out: str) -> None:
        written(out, rolling="policy", partitionBy="day")
        count = len(ftfile.open(out).status(lag=False).open)
        ftfile.delete(out, "id = 99")
        assert len(ftfile.open(out).status(lag=False).open) == count
        check(out, "day = 'a' AND id = 4")
        assert {file.directory for file in ftfile.open(out).status(lag=False).open} == {"day=b"}

    @pytest.mark.slow
    def test_of_which_all_rows_match_end_open(self, out: str) -> None:
        written(out, rolling="policy", partitionBy="day")
        check(out, "day = 'a'")
        assert "flush" not in {version.operation for version in ftfile.open(out).history()}

    @pytest.mark.slow
    def test_files_of_a_flush_that_are_recorded_are_not_deleted(self) -> None:
        """The files are still staged when the delete fails."""
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            query = written(url, rolling="policy")
            before = rows_of(url)

        class Stuck(WrapperFileSystem):
            def rename(self, source: str, target: str) -> None:
                if source.endswith(".staged") and query.query_id not in source:
                    raise OutOfSpace("rename", source, "for files of the flush")
                super().rename(source, target)

        with mounted(Stuck(inner)) as url, pytest.raises(FtfileError):
            ftfile.delete(url, "id = 3", context=current())
        with mounted(inner) as url:
            assert rows_of(url) == before
            ftfile.delete(url, "id = 3", context=current())
            assert ftfile.open(url).count(where="id = 3") == 0
            check_directory(open_filesystem(url))

    def test_that_cannot_be_finished_keep_all_rows(self, out: str) -> None:
        written(out, rolling="policy")
        before = ftfile.open(out).version()
        (spool, *_) = Path(out, "_ftfile").rglob("*.spool")
        spool.write_bytes(b"x" * spool.stat().st_size)
        with pytest.raises((CorruptData, StillOpen)):
            ftfile.delete(out, "id = 3")
        assert ftfile.open(out).version() == before


class TestRaces:
    """Another driver commits between the listing of the directory and the record, once or each time."""

    def race(self, inner: CrashingFileSystem, what: Callable[[], object], times: int, where: str) -> RewriteReport:
        class Rival(WrapperFileSystem):
            armed = times

            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record") and self.armed and self is rival:
                    self.armed -= 1
                    what()
                super().create_exclusive(path, content)

        rival = Rival(inner)
        with mounted(rival) as raced:
            report = ftfile.delete(raced, where, context=current())
            assert rival.armed == 0
            return report

    def check(self, url: str, ids: list[int]) -> None:
        report = check_directory(open_filesystem(url))
        assert report.live_rows == report.visible_rows
        assert sorted(ftfile.open(url).to_arrow()["id"].to_pylist()) == ids

    @parametrize("times", [1, 3], quick=1)
    def test_a_compaction_puts_the_rows_into_other_files(self, times: int) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            query = written(url)
            left = sorted(n for n in ftfile.open(url).to_arrow()["id"].to_pylist() if n != 3)
            batches = iter(range(3, 3 + times))

            def compact() -> None:
                batch = next(batches)
                query.run(batch, [[{"id": 3, "word": "late", "day": "a"}]])
                ftfile.compact(url, context=current())

            report = self.race(inner, compact, times, "id = 3")
            assert ftfile.open(url).count(where="id = 3 AND word <> 'late'") == 0
            # Late rows are deleted only if they are in a file with other rows that were selected again.
            ids = sorted(ftfile.open(url).to_arrow()["id"].to_pylist())
            assert [n for n in ids if n != 3] == left
            assert report.rows_removed
            self.check(url, ids)

    @pytest.mark.slow
    def test_one_that_never_ends_is_an_error_and_no_row_goes(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            query = written(url)
            batches = iter(range(3, 99))

            def compact() -> None:
                query.run(next(batches), [some_rows(0, 3)])
                ftfile.compact(url, context=current())

            with pytest.raises(CommitError, match="at each of 5 attempts, and nothing was recorded: delete again"):
                self.race(inner, compact, rewriting.TRIES, "id = 3")
            assert "delete" not in {version.operation for version in ftfile.open(url).history()}
            check_directory(open_filesystem(url))

    @pytest.mark.slow
    def test_an_append_stays(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            query = written(url)
            left = [n for n in ftfile.open(url).to_arrow()["id"].to_pylist() if n != 3]
            append = lambda: query.run(3, [[{"id": 3, "word": "late", "day": "a"}]])  # noqa: E731
            self.race(inner, append, 1, "id = 3")
            self.check(url, sorted([*left, 3]))

    @pytest.mark.slow
    def test_rows_that_are_opened_meanwhile_stay(self) -> None:
        """The rows are later than the delete, which never rewrites a segment."""
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            written(url)
            options = {"fileFormat": "json", "rolling": "policy", "onNewQuery": "continue"}
            query = MicroBatch(url, COLUMNS, options, "another")
            left = [n for n in ftfile.open(url).to_arrow()["id"].to_pylist() if n != 3]

            def write_and_compact() -> None:
                query.run(0, [[{"id": 3, "word": "late", "day": "a"}]])
                ftfile.compact(url, context=current())

            self.race(inner, write_and_compact, 1, "id = 3")
            assert ftfile.open(url).status(lag=False).open
            ids = sorted([*left, 3])
            assert sorted(ftfile.open(url).to_arrow()["id"].to_pylist()) == ids

    @pytest.mark.slow
    def test_an_overwrite_with_such_rows(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            written(url)
            rival = MicroBatch(url, COLUMNS, {"fileFormat": "json"}, overwrite=True)
            rows = [{"id": number, "word": "w", "day": "a"} for number in (3, 4)]
            self.race(inner, lambda: rival.run_batch_write("job", [rows]), 1, "id = 3")
            self.check(url, [4])

    @pytest.mark.slow
    def test_a_restore_of_what_had_them(self) -> None:
        """The rows that exist after the restore are selected again."""
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            written(url)
            before = sorted(ftfile.open(url).to_arrow(0)["id"].to_pylist())
            self.race(inner, lambda: ftfile.restore(url, 0, context=current()), 1, "id = 3")
            self.check(url, [n for n in before if n != 3])

    @pytest.mark.slow
    def test_a_flush_of_the_same_rows(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            written(url, rolling="policy")
            left = sorted(n for n in ftfile.open(url).to_arrow()["id"].to_pylist() if n != 3)
            self.race(inner, lambda: ftfile.flush(url, context=current()), 1, "id = 3")
            self.check(url, left)

    @pytest.mark.slow
    def test_files_that_move_while_they_are_read(self) -> None:
        """A vacuum deletes the moved files before the delete reads them."""
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            written(url)
            left = sorted(n for n in ftfile.open(url).to_arrow()["id"].to_pylist() if n != 3)

            class Rival(WrapperFileSystem):
                armed = True

                def read(self, path: str, bytes_max: int | None = None) -> bytes:
                    if "part-" in path and self.armed:
                        self.armed = False
                        ftfile.compact(url, context=current())
                        for retired in [file.path for file in inner.list("_ftfile/retired")]:
                            inner.delete(retired)
                    return super().read(path, bytes_max)

            with mounted(Rival(inner)) as raced:
                ftfile.delete(raced, "id = 3", context=current())
            assert sorted(ftfile.open(url).to_arrow()["id"].to_pylist()) == left


@pytest.mark.slow
def test_a_name_that_is_taken_is_raised_at_once(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written(out)
    tries, honest = list[object](), accept_rewrites

    def accept(*arguments: Any) -> Any:
        tries.append(arguments)
        return honest(*arguments)

    def claim(_: object, adds: Any) -> None:
        if adds:
            raise NameCollision("taken")

    monkeypatch.setattr(rewriting, "accept_rewrites", accept)
    monkeypatch.setattr(FinalPaths, "claim", claim)
    with pytest.raises(NameCollision, match="taken"):
        ftfile.delete(out, "id = 3")
    assert len(tries) == 1
    assert ftfile.open(out).version() == 2


@pytest.mark.slow
def test_rows_that_cannot_be_published_are_an_error(out: str) -> None:
    query = written(out)
    messages = query.run_tasks(3, [[{"id": 3, "word": "w", "day": "a"}]])
    (part,) = (part for message in messages for part in message.parts)
    name = f"part-{3:010d}-00000-{part.id[:12]}.json"
    Path(out, name).write_text("another program's")
    with pytest.raises(FtfileError):
        query.commit(3, messages)
    with pytest.raises(FtfileError, match=name):
        ftfile.delete(out, "id = 3")
    Path(out, name).unlink()
    ftfile.delete(out, "id = 3")
    assert ftfile.open(out).count(where="id = 3") == 0


@pytest.mark.slow
def test_damage_is_an_error_and_no_row_goes(out: str) -> None:
    written(out)
    before = ftfile.open(out).version()
    path = sorted(Path(out).glob("part-*"))[1]
    path.write_bytes(path.read_bytes().replace(b"w", b"v"))
    with pytest.raises(CorruptData, match=path.name):
        ftfile.delete(out, "id = 3")
    assert ftfile.open(out).version() == before


@pytest.mark.slow
def test_rows_that_a_read_returns_and_a_rewrite_keeps_are_an_error(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written(out)
    monkeypatch.setattr("ftfile.read.selection.Without.apply", lambda _, rows, __: (batch for _, batch in rows))
    with pytest.raises(CorruptData, match="without the removed rows"):
        ftfile.delete(out, "id = 3")
    assert ftfile.open(out).version() == 2


def test_a_store_and_another_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        ftfile.delete(str(tmp_path), "id = 3")
