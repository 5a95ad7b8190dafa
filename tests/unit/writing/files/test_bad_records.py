"""Records that cannot be written: refused with column and value, kept as dead letters exactly once, or counted."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, EncodingError, NotFound
from ftfile.formats.api import format_from_options
from ftfile.formats.partition_paths import NULL_NAME
from ftfile.log.commit_log import CommitLog
from ftfile.log.read.dead_letters import LETTER_BYTES_MAX, LETTER_VALUES_MAX, read_dead_letters
from ftfile.storage.api import RangeFile
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from ftfile.writing.bad_records import row_to_json, value_sizes
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.files.part_writer import unencodable_rows
from ftfile.writing.messages import StreamIdentity, TaskIdentity
from ftfile.writing.task import write_task
from tests.kit.parameters import parametrize
from tests.unit.damage import damaged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.formats.api import Format
    from ftfile.storage.api import InputFile

COLUMNS = {"id": "long", "word": "string"}
TEXT = {"fileFormat": "text"}
FAR = dt.date(9999, 12, 31)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


class FilesByName(WrapperFileSystem):
    """A storage system that looks each range of an open file up by the file's name, as object stores do."""

    def open(self, path: str) -> InputFile:
        size_bytes = self.inner.stat(path).size_bytes
        return RangeFile(path, size_bytes, lambda offset, length: self.inner.read(path)[offset : offset + length])


def rows(*words: str | None) -> list[dict[str, Any]]:
    return [{"id": number, "word": word} for number, word in enumerate(words)]


def ids(out: str) -> list[int]:
    return sorted(ftfile.open(out).to_arrow()["id"].to_pylist())


def letters(out: str) -> list[tuple[int, int, int]]:
    """Batch, partition and id of each dead letter."""
    check_directory(open_filesystem(out))
    found = [(letter.batch_id, letter.partition, letter.row["id"]) for letter in ftfile.open(out).dead_letters()]
    return sorted(found)


class TestFail:
    @parametrize(
        ("options", "columns", "bad", "text"),
        [
            ({"fileNameColumn": "word"}, COLUMNS, {"word": None}, "column 'word' is null"),
            ({"fileNameColumn": "word"}, COLUMNS, {"word": "../x"}, "column 'word' contains '../x'"),
            (
                {"partitionBy": "word"},
                COLUMNS,
                {"word": "x" * 300},
                "'word' gives a directory name of 305 bytes",
            ),
            ({"partitionBy": "word"}, COLUMNS, {"word": ""}, "column 'word' contains an empty string"),
            (
                {"directoryPattern": "word:yyyy"},
                {"id": "long", "word": "date"},
                {"word": None},
                "column 'word' is null",
            ),
            ({"maxRecordBytes": "100"}, COLUMNS, {"word": "x" * 93}, "column 'word' takes 93 of a record's 101 bytes"),
            (
                {"fileFormat": "text", "partitionBy": "id"},
                COLUMNS,
                {"word": "two\nlines"},
                "column `word`: a value contains the line separator",
            ),
            (
                {"fileFormat": "text", "partitionBy": "id"},
                COLUMNS,
                {"word": "two\nlines"},
                r"The value is 'two\nlines'",
            ),
        ],
        quick=3,
    )
    def test_names_column_and_value(
        self, out: str, options: dict[str, str], columns: dict[str, str], bad: dict[str, Any], text: str
    ) -> None:
        query = MicroBatch(out, columns, {"fileFormat": "json", **options})
        good = {"id": 1, "word": "fine" if columns is COLUMNS else dt.date(2024, 1, 1)}
        with pytest.raises(EncodingError, match=re.escape(text)) as raised:
            query.run(0, [[good, good | bad, good]])
        assert "badRecords=deadLetter" in str(raised.value)
        assert not list(Path(out).rglob("*.staged"))
        assert not list(Path(out).rglob("*.deadLetters"))
        query.run(0, [[good]])
        assert ids(out) == [1]

    def test_an_unknown_policy(self) -> None:
        with pytest.raises(ConfigError, match="one of `fail`, `deadLetter`, `drop`"):
            SinkConfig.from_options({"path": "/x", "badRecords": "ignore"}, spark_schema(COLUMNS))


class TestDrop:
    def test_is_counted(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "fileNameColumn": "word", "badRecords": "drop"})
        query.run(0, [rows("a", None, "b", ""), rows(".hidden")])
        query.run(1, [rows("a")])
        assert [(version.rows, version.bad_records) for version in ftfile.open(out).history()] == [(2, 3), (1, 0)]
        assert letters(out) == []
        assert not Path(out, "_ftfile", "deadLetters").exists()

    def test_of_all_records_leaves_no_file(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {**TEXT, "partitionBy": "id", "badRecords": "drop"})
        query.run(0, [rows("a\nb", "c\nd")])
        assert ftfile.open(out).files() == []
        assert not list(Path(out).rglob("*.staged"))
        assert ftfile.open(out).history()[0].bad_records == 2


KEPT = {"fileFormat": "json", "fileNameColumn": "word", "badRecords": "deadLetter"}


class TestDeadLetters:
    def test_say_what_when_where_and_why(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, KEPT)
        query.run(0, [rows("a"), rows("b", None, "/x")])
        null, absolute = ftfile.open(out).dead_letters()
        assert (null.query_id, null.batch_id, null.partition) == (query.query_id, 0, 1)
        assert null.row == {"id": 1, "word": None}
        assert null.reason == "fileNameColumn: column 'word' is null: it names no file"
        assert absolute.row == {"id": 2, "word": "/x"}
        assert "'/x', which is absolute" in absolute.reason
        (file,) = Path(out, "_ftfile", "deadLetters").rglob("*.*")
        assert re.fullmatch(rf"{query.query_id}/_0{{10}}-00001-[0-9a-f]{{12}}\.deadLetters", "/".join(file.parts[-2:]))
        assert [json.loads(line)["partition"] for line in file.read_text().splitlines()] == [1, 1]
        assert ids(out) == [0, 0]

    @pytest.mark.slow
    def test_are_written_once_whatever_is_run_again(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, KEPT)
        batch = [rows("a", None), rows(None)]
        planned, writer = query.pickled_plan(), query.identity(0)
        query.run_task(planned, writer, 0, batch[0])  # another attempt wins
        with pytest.raises(ConnectionError):
            query.run_task(planned, writer, 1, batch[1], error=ConnectionError("lost"))
        messages = [query.run_task(planned, writer, task, rows, attempt=1) for task, rows in enumerate(batch)]
        query.commit(0, messages)
        assert letters(out) == [(0, 0, 1), (0, 1, 0)]
        query.restart()
        assert query.run(0, [[row for rows in batch for row in rows]]).replayed
        late = query.run_task(planned, writer, 0, batch[0], attempt=2)
        assert late.found_committed
        assert letters(out) == [(0, 0, 1), (0, 1, 0)]
        query.run(1, [rows(None)])
        assert letters(out) == [(0, 0, 1), (0, 1, 0), (1, 0, 0)]

    def test_of_a_batch_that_is_not_committed_do_not_count(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, KEPT)
        query.run(0, [rows("a")])
        query.run_tasks(1, [rows(None)])
        assert letters(out) == []

    def test_that_are_committed_and_not_published_yet_are_found(
        self, out: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        query = MicroBatch(out, COLUMNS, KEPT)
        with monkeypatch.context() as patched:
            patched.setattr("ftfile.log.protocol.roll_forward", lambda *_, **__: [])
            query.run(0, [rows(None)])
        assert not Path(out, "_ftfile", "deadLetters").exists()
        assert letters(out) == [(0, 0, 0)]
        query.run(1, [[]])
        assert letters(out) == [(0, 0, 0)]

    def test_that_are_gone_before_the_record_stop_the_batch(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, KEPT)
        messages = query.run_tasks(0, [rows("a", None)])
        for file in Path(out).rglob("*.deadLetters"):
            file.unlink()
        with pytest.raises(CorruptData, match=r"\.deadLetters"):
            query.commit(0, messages)
        query.run(0, [rows("a", None)])
        assert letters(out) == [(0, 0, 1)]

    def test_may_be_deleted_when_they_are_dealt_with(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, KEPT)
        query.run(0, [rows(None)])
        query.run(1, [rows(None)])
        for file in Path(out, "_ftfile", "deadLetters").rglob("_0000000000-*"):
            file.unlink()
        found = [*ftfile.open(out).dead_letters()]
        assert [letter.batch_id for letter in found] == [1]
        query.run(2, [rows("a")])

    def test_that_were_changed_are_an_error(self, out: str) -> None:
        MicroBatch(out, COLUMNS, KEPT).run(0, [rows(None)])
        for file in Path(out, "_ftfile", "deadLetters").rglob("*.deadLetters"):
            file.write_text("{}\n")
        with pytest.raises(CorruptData, match="dead letters, one JSON object a line"):
            list(ftfile.open(out).dead_letters())

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("options", "word", "message"),
        [
            ({}, "," * LETTER_VALUES_MAX, f"more than {LETTER_VALUES_MAX} brackets"),
            ({"maxRecordBytes": "1MiB"}, "a" * LETTER_BYTES_MAX, f"more than {LETTER_BYTES_MAX} bytes"),
        ],
    )
    def test_larger_than_can_be_read_stop_the_batch(
        self, out: str, options: dict[str, str], word: str, message: str
    ) -> None:
        query = MicroBatch(out, COLUMNS, {"maxRecordBytes": "1MB", **KEPT, **options})
        query.run(0, [rows("a")])
        with pytest.raises(EncodingError, match=rf"maxRecordBytes is .*{message}.*badRecords=drop"):
            query.run(1, [rows("b", word)])
        query.options = {**query.options, "badRecords": "drop"}
        query.run(1, [rows("b", word)])
        assert letters(out) == []
        assert ftfile.open(out).to_arrow()["word"].to_pylist() == ["a", "b"]

    def test_that_move_while_they_are_read(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ftfile.log.read.dead_letters._READ_BYTES", 10)
        query = MicroBatch(out, COLUMNS, KEPT)
        with monkeypatch.context() as patched:
            patched.setattr("ftfile.log.protocol.roll_forward", lambda *_, **__: [])
            query.run(0, [[{"id": number, "word": None} for number in range(4)]])
        (staged,) = Path(out).rglob("*.deadLetters")
        fs = FilesByName(open_filesystem(out))
        reading = read_dead_letters(CommitLog(fs))
        assert next(reading).row["id"] == 0
        query.run(1, [[]])
        assert not staged.exists()
        assert [letter.row["id"] for letter in reading] == [1, 2, 3]
        reading = read_dead_letters(CommitLog(fs))
        assert next(reading).row["id"] == 0
        (published,) = Path(out).rglob("*.deadLetters")
        published.unlink()
        with pytest.raises(NotFound):
            next(reading)

    @pytest.mark.slow
    def test_that_are_damaged_are_an_error_or_others(self, out: str) -> None:
        MicroBatch(out, COLUMNS, KEPT).run(0, [rows(None)])
        (file,) = Path(out, "_ftfile", "deadLetters").rglob("*.deadLetters")
        directory = ftfile.open(out)

        @given(damaged(file.read_bytes()))
        def read(content: bytes) -> None:
            file.write_bytes(content)
            with contextlib.suppress(CorruptData):
                list(directory.dead_letters())

        read()

    def test_of_batch_writes(self, out: str) -> None:
        MicroBatch(out, COLUMNS, KEPT).run_batch_write("job", [rows(None)])
        (letter,) = ftfile.open(out).dead_letters()
        assert (letter.query_id, letter.batch_id) == ("job", 0)

    def test_have_the_columns_that_would_have_been_in_the_path(self, out: str) -> None:
        columns = {"id": "long", "word": "string", "text": "string", "day": "date"}
        options = {**TEXT, "partitionBy": "id,day", "fileNameColumn": "word", "badRecords": "deadLetter"}
        row = {"id": 7, "word": "a/b", "text": "two\nlines", "day": dt.date(2024, 2, 29)}
        MicroBatch(out, columns, options).run(0, [[row, row | {"text": "one"}]])
        (letter,) = ftfile.open(out).dead_letters()
        assert letter.row == {"id": 7, "word": "a/b", "text": "two\nlines", "day": "2024-02-29"}
        assert ftfile.open(out).to_arrow().to_pylist() == [row | {"text": "one"}]


class TestEmptyPartitionValues:
    """A directory has no name for the empty string: Spark, and every reader, would get null."""

    def test_are_kept_and_null_is_written(self, out: str) -> None:
        options = {"fileFormat": "json", "partitionBy": "word", "badRecords": "deadLetter"}
        MicroBatch(out, COLUMNS, options).run(0, [rows("", None, "a"), rows(NULL_NAME, "")])
        (empty, _) = ftfile.open(out).dead_letters()
        assert empty.row == {"id": 0, "word": ""}
        assert letters(out) == [(0, 0, 0), (0, 1, 1)]
        assert ftfile.open(out).to_arrow(columns=["word"])["word"].to_pylist() == [None, "a", NULL_NAME]
        names = {path.name for path in Path(out).iterdir() if "=" in path.name}
        assert names == {f"word={NULL_NAME}", f"word={NULL_NAME[:-1]}%5F", "word=a"}

    def test_are_refused_in_any_column(self, out: str) -> None:
        columns = {"id": "long", "word": "string", "n": "integer"}
        query = MicroBatch(out, columns, {"fileFormat": "json", "partitionBy": "id,word"})
        with pytest.raises(
            EncodingError, match=r"column 'word' contains an empty string.* \(and 1 more of these rows\)"
        ):
            query.run(0, [[{"id": 1, "word": "a"}, {"id": 1, "word": ""}, {"id": 2, "word": ""}]])
        query.run(0, [[{"id": 1, "word": None}]])
        assert ftfile.open(out).to_arrow(where="word IS NULL").num_rows == 1
        assert ftfile.delete(out, "word = ''").rows_removed == 0


class TestValuesThatCannotBeEncoded:
    def run(self, out: str, options: dict[str, str], column: pa.Array, kind: Any) -> SinkConfig:
        """Write one batch with `column` next to the row numbers."""
        settings = {"path": out, "badRecords": "deadLetter", **options}
        config = SinkConfig.from_options(settings, spark_schema({"id": "long", "value": kind}))
        plan = plan_write(FileSink(), config, current())
        batch = pa.RecordBatch.from_arrays([pa.array(range(len(column))), column], schema=config.schema)
        message = write_task(plan, TaskIdentity(StreamIdentity("q", "r", 0), 0, 0), [batch], current())
        commit_batch(plan.sink, plan.config, [message], 0, current())
        return config

    @pytest.mark.packages
    @pytest.mark.slow
    @pytest.mark.parametrize("file_format", ["json", "csv"])
    def test_years_of_five_digits(self, out: str, file_format: str) -> None:
        days = np.arange(200_000) % 1000
        bad = [0, 99_999, 100_000, 131_071, 199_999]
        days[bad] = 2_932_897
        self.run(out, {"fileFormat": file_format}, pa.array(days, pa.int32()).cast(pa.date32()), "date")
        assert [row for _, _, row in letters(out)] == bad
        assert ids(out) == sorted(set(range(200_000)) - set(bad))
        (first, *_) = ftfile.open(out).dead_letters()
        assert first.row == {"id": 0, "value": 2_932_897}
        assert "column `value` cannot be encoded: 2932897 days" in first.reason
        assert "The value is '2932897'" in first.reason

    @pytest.mark.parametrize("file_format", ["json", "csv", "text"])
    def test_strings_that_are_not_utf_8(self, out: str, file_format: str) -> None:
        column = pa.array([b"a", b"\xff\xfe", None, b"\xc3", b"\xc3\xa9"], pa.binary()).view(pa.string())
        options = {"fileFormat": file_format} | ({"partitionBy": "id"} if file_format == "text" else {})
        self.run(out, options, column, "string")
        assert [row for _, _, row in letters(out)] == [1, 3]
        assert ids(out) == [0, 2, 4]
        assert next(ftfile.open(out).dead_letters()).row["value"] == {"base64": "//4="}
        assert "column `value`" in next(ftfile.open(out).dead_letters()).reason

    def test_strings_that_are_not_utf_8_are_kept_in_parquet(self, out: str) -> None:
        column = pa.array([b"a", b"\xff\xfe"], pa.binary()).view(pa.string())
        self.run(out, {"fileFormat": "parquet"}, column, "string")
        assert letters(out) == []
        assert ftfile.open(out).to_arrow()["value"].cast(pa.binary()).to_pylist() == [b"a", b"\xff\xfe"]

    @pytest.mark.parametrize("kind", ["string", "struct"])
    def test_and_so_they_are_in_files_that_stay_open(self, out: str, kind: str) -> None:
        words = [b"a", b"\xff\xfe", b"\xc3"]
        column = pa.array(words, pa.binary()).view(pa.string())
        field: Any = "string"
        if kind == "struct":
            column = pa.StructArray.from_arrays([column], names=["x"])
            inner = {"name": "x", "type": "string", "nullable": True, "metadata": {}}
            field = {"type": "struct", "fields": [inner]}
        self.run(out, {"fileFormat": "parquet", "rolling": "policy"}, column, field)
        ftfile.flush(out)
        ftfile.compact(out, target_bytes=1 << 20)
        assert [*ftfile.open(out).dead_letters()] == []
        values = ftfile.open(out).to_arrow()["value"].combine_chunks()
        values = values.field("x") if kind == "struct" else values
        assert sorted(values.view(pa.binary()).to_pylist()) == sorted(words)
        assert not any(finding.severity == "error" for finding in ftfile.open(out).verify(full=True).findings)

    @pytest.mark.slow
    def test_limits_hold_between_bad_records(self, out: str) -> None:
        words = [f"{n:03}" if n % 3 else "a\nb" for n in range(100)]
        options = {**TEXT, "partitionBy": "key", "maxBytesPerFile": "40", "badRecords": "drop"}
        MicroBatch(out, {"key": "long", "word": "string"}, options).run(0, [[{"key": 1, "word": w} for w in words]])
        files = ftfile.open(out).files()
        assert [file.rows for file in files] == [10] * 6 + [6]
        assert ftfile.open(out).to_arrow()["word"].to_pylist() == [word for word in words if word != "a\nb"]
        rows_limit = {**options, "maxRecordsPerFile": "7"}
        MicroBatch(f"{out}2", {"key": "long", "word": "string"}, rows_limit).run(
            0, [[{"key": 1, "word": w} for w in words]]
        )
        assert [file.rows for file in ftfile.open(f"{out}2").files()] == [7] * 9 + [3]


class TestFilesThatStayOpen:
    """Bad records on their way into a spool."""

    OPEN = MappingProxyType({"rolling": "policy", "badRecords": "deadLetter"})

    def write(self, out: str, words: list[str], **options: str) -> None:
        query = MicroBatch(
            out, {"key": "long", "word": "string"}, {**TEXT, "partitionBy": "key", **self.OPEN, **options}
        )
        query.run(0, [[{"key": number % 3, "word": word} for number, word in enumerate(words)]])

    @parametrize("bad", [[], [0], [4, 5, 6], [29], [*range(0, 30, 3)], [*range(30)]], quick=2)
    def test_are_kept_and_the_others_are_there_once(self, out: str, bad: list[int]) -> None:
        words = [f"{number}\n" if number in bad else str(number) for number in range(30)]
        self.write(out, words)
        for finished in (False, True):
            if finished:
                ftfile.flush(out)
            found = ftfile.open(out).to_arrow().to_pylist()
            assert sorted(int(row["word"]) for row in found) == sorted(set(range(30)) - set(bad))
            assert all(row["key"] == int(row["word"]) % 3 for row in found)
            kept = [letter.row for letter in ftfile.open(out).dead_letters()]
            assert sorted(kept, key=lambda row: int(row["word"])) == [
                {"key": number % 3, "word": f"{number}\n"} for number in bad
            ]
        assert not [path for path in Path(out).rglob("*.spool") if not path.stat().st_size]

    @pytest.mark.slow
    def test_after_much_was_appended(self, out: str) -> None:
        words = [str(number) for number in range(70_000)]
        words[69_998] += "\n"
        self.write(out, words)
        found = Counter(map(int, ftfile.open(out).to_arrow()["word"].to_pylist()))
        # Only what differs: of lists as long as these a failure would be explained for minutes.
        assert found - Counter(range(70_000)) == Counter()
        assert Counter(range(70_000)) - found == Counter([69_998])

    @pytest.mark.slow
    def test_after_other_windows_were_appended(self, out: str) -> None:
        """Rows are sorted by window before they are appended."""
        count, columns = 140_000, {"id": "long", "day": "date", "at": "timestamp"}
        numbers = np.arange(count)
        days = np.where(numbers == count - 1, 2_932_897, 0).astype(np.int32)
        hours = (numbers % 2) * 3_600_000_000
        options = {"fileFormat": "json", "eventTimeInterval": "at:1h", **self.OPEN}
        query = MicroBatch(out, columns, options)
        plan = query.plan()
        rows = pa.record_batch(
            [pa.array(numbers), pa.array(days, pa.date32()), pa.array(hours, pa.timestamp("us", "UTC"))],
            schema=plan.config.schema,
        )
        message = write_task(plan, TaskIdentity(query.identity(0), 0, 0), [rows], current())
        query.commit(0, [message])
        found = Counter(ids(out))
        assert found - Counter(range(count - 1)) == Counter()
        assert Counter(range(count - 1)) - found == Counter()
        assert letters(out) == [(0, 0, count - 1)]

    def test_beside_rows_that_end_a_file(self, out: str) -> None:
        columns = {"id": "long", "word": "string", "last": "boolean"}
        options = {"fileFormat": "text", "partitionBy": "id", "finalizeColumn": "last", **self.OPEN}
        words = [("a", False), ("b", True), ("c\n", False), ("d", True), ("e", False)]
        query = MicroBatch(out, columns, options)
        query.run(0, [[{"id": 1, "word": word, "last": last} for word, last in words]])
        query.run(1, [[]])
        query.run(2, [[]])
        assert [Path(out, file.path).read_text() for file in ftfile.open(out).files()] == ["a\nb\n", "d\n"]
        assert [letter.row for letter in ftfile.open(out).dead_letters()] == [{"id": 1, "word": "c\n", "last": False}]
        assert sorted(ftfile.open(out).to_arrow()["word"].to_pylist()) == ["a", "b", "d", "e"]

    def test_fail_the_batch_by_default(self, out: str) -> None:
        with pytest.raises(EncodingError, match="The value is"):
            self.write(out, ["a", "b\n"], badRecords="fail")
        assert not [*Path(out).rglob("*.spool")]


class TestFinding:
    def found(self, words: Sequence[str]) -> list[int]:
        return [*unencodable_rows(self.text(), pa.record_batch({"word": pa.array(words, pa.string())}))]

    def text(self) -> Format:
        return format_from_options("text", {})

    @pytest.mark.parametrize("bad", [[], [0], [6], [0, 1, 2, 3, 4, 5, 6], [2, 3], [1, 5]])
    def test_every_bad_row_and_no_other(self, bad: list[int]) -> None:
        assert self.found(["\n" if number in bad else "fine" for number in range(7)]) == bad

    def test_no_rows(self) -> None:
        assert self.found([]) == []

    def test_good_rows_are_encoded_many_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from ftfile.writing.files import part_writer as encodable

        calls: list[int] = []
        encode = encodable._encode  # noqa: SLF001

        def noted(file_format: Format, rows: pa.RecordBatch) -> None:
            calls.append(rows.num_rows)
            encode(file_format, rows)

        monkeypatch.setattr(encodable, "_encode", noted)
        words = ["fine"] * 65_536
        words[12_345] = "\n"
        assert self.found(words) == [12_345]
        assert len(calls) < 40


class TestSizes:
    def test_values_of_every_kind(self) -> None:
        arrays: list[tuple[pa.Array, list[int]]] = [
            (pa.array(["", "é", None, "abc"]), [0, 2, 0, 3]),
            (pa.array([b"ab", None], pa.large_binary()), [2, 0]),
            (pa.array([1, None], pa.int16()), [2, 2]),
            (pa.array([True, None]), [1, 1]),
            (pa.array([Decimal("1.0")], pa.decimal128(20, 2)), [16]),
            (pa.array([["ab", "c"], None, [], [None]], pa.list_(pa.string())), [3, 0, 0, 0]),
            (pa.array([[1, 2], [3]], pa.list_(pa.int64())), [16, 8]),
            (pa.array([{"a": "xy", "b": 1}, None], pa.struct([("a", pa.string()), ("b", pa.int32())])), [6, 4]),
            (pa.array([[("k", "vv")], []], pa.map_(pa.string(), pa.string())), [3, 0]),
            (pa.array(["a", "bb", "a"]).dictionary_encode(), [1, 2, 1]),
            (pa.nulls(2), [0, 0]),
        ]
        for array, sizes in arrays:
            assert value_sizes(array).tolist() == sizes, array.type
            assert value_sizes(pa.concat_arrays([array, array])[1:]).tolist() == (sizes + sizes)[1:], array.type

    def test_the_limit_is_exact(self, out: str) -> None:
        options = {"fileFormat": "json", "maxRecordBytes": "40", "badRecords": "deadLetter"}
        MicroBatch(out, COLUMNS, options).run(0, [rows("x" * 32, "x" * 33, "1", "x" * 1000)])
        assert ids(out) == [0, 2]
        assert [letter.reason for letter in ftfile.open(out).dead_letters()] == [
            "column 'word' takes 33 of a record's 41 bytes, and maxRecordBytes is 40",
            "column 'word' takes 1000 of a record's 1008 bytes, and maxRecordBytes is 40",
        ]


def test_a_row_as_json() -> None:
    row = pa.record_batch(
        {
            "flag": [True],
            "nan": [float("nan")],
            "infinities": [[float("inf"), float("-inf"), 1.5, None]],
            "decimal": [Decimal("1.50")],
            "day": pa.array([FAR]),
            "far_day": pa.array([2_932_897], pa.int32()).cast(pa.date32()),
            "instant": pa.array([0], pa.timestamp("us", "UTC")),
            "local": pa.array([1], pa.timestamp("us")),
            "far": pa.array([2**62], pa.timestamp("us", "UTC")),
            "binary": [b"\xff"],
            "pair": [{"a": 1, "b": None}],
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "word": pa.array(["é"]).dictionary_encode(),
            "nothing": pa.nulls(1),
        }
    )
    expected = {
        "flag": True,
        "nan": "NaN",
        "infinities": ["Infinity", "-Infinity", 1.5, None],
        "decimal": "1.50",
        "day": "9999-12-31",
        "far_day": 2_932_897,
        "instant": "1970-01-01T00:00:00+00:00",
        "local": "1970-01-01T00:00:00.000001",
        "far": 2**62,
        "binary": "/w==",
        "pair": {"a": 1, "b": None},
        "map": [{"key": "k", "value": 1}],
        "word": "é",
        "nothing": None,
    }
    assert json.loads(json.dumps(row_to_json(row))) == expected
