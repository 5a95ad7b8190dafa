"""Parts that stay open over batches."""

from __future__ import annotations

import pickle
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, StillOpen, UserCodeError
from ftfile.formats.api import Taken
from ftfile.formats.columnar import RowJoiner
from ftfile.log.commit_log import CommitLog
from ftfile.log.protocol import commit
from ftfile.log.read.snapshot import read_records
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files import rolling_plan as plan
from ftfile.writing.files import spool, task
from ftfile.writing.files.assembler import Assembler
from ftfile.writing.files.prepared_files import PreparedFiles
from ftfile.writing.messages import TaskIdentity, author_of
from ftfile.writing.task import write_task
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from ftfile.storage.api import OutputStream
    from ftfile.writing.files.rolling_groups import GroupTotals

FORMATS = ["json", "csv", "text", "parquet"]
Words = list[str]


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def rows_of(*words: str) -> list[dict[str, Any]]:
    return [{"word": word} for word in words]


def stream(out: str, **options: str) -> MicroBatch:
    return MicroBatch(out, {"word": "string"}, {"fileFormat": "text", **options})


def visible(out: str) -> list[Words]:
    files = sorted(file for file in Path(out).rglob("*") if file.is_file() and "_ftfile" not in file.parts)
    return [file.read_text().split() for file in files]


def committed(out: str) -> Words:
    return sorted(ftfile.open(out).to_arrow()["word"].to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_are_read_at_once_and_files_are_seen_when_they_end(out: str, file_format: str) -> None:
    query = stream(out, fileFormat=file_format, maxBatchesPerFile="3", nullValue="-")
    if file_format != "csv":
        query.options = {name: text for name, text in query.options.items() if name != "nullValue"}
    for batch in range(8):
        query.run(batch, [rows_of(f"{batch}a", f"{batch}b"), rows_of(f"{batch}c")])
        assert committed(out) == sorted(f"{n}{letter}" for n in range(batch + 1) for letter in "abc")
        check_directory(
            open_filesystem(out),
            rows_of=lambda content: [content] if file_format == "parquet" else content.splitlines(),
        )
    assert [file.rows for file in ftfile.open(out).files()] == [9, 9]


class TestSizes:
    """Of text: a letter is two bytes long."""

    def batches(self, out: str, *batches: str, **options: str) -> list[Words]:
        query = stream(out, **options)
        for number, letters in enumerate([*batches, "", ""]):
            query.run(number, [rows_of(*letters)])
        return visible(out)

    def test_a_file_ends_after_the_record_that_reaches_the_size(self, out: str) -> None:
        assert self.batches(out, "abc", "defg", maxBytesPerFile="5", maxBatchesPerFile="99") == [
            ["a", "b", "c"],
            ["d", "e", "f"],
        ]
        assert committed(out) == list("abcdefg")

    def test_strictly_before_the_record_that_would_pass_it(self, out: str) -> None:
        options = {"maxBytesPerFile": "5", "strictFileSize": "true", "rolling": "policy"}
        assert self.batches(out, "abc", "de", "fg", **options) == [["a", "b"], ["c", "d"], ["e", "f"]]

    def test_strictly_also_what_one_task_has_much_of(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spool, "LARGE_BYTES_MIN", 1)
        query = stream(out, maxBytesPerFile="5", strictFileSize="true", rolling="policy", maxOpenBytes="1")
        planned, writer = query.pickled_plan(), query.identity(0)
        batches = [pa.RecordBatch.from_pylist(rows_of(letter), query.config().schema) for letter in "abcdefg"]
        query.commit(0, [write_task(pickle.loads(planned), TaskIdentity(writer, 0, 0), batches, current())])
        query.run(1, [[]])
        assert visible(out) == [["a", "b"], ["c", "d"], ["e", "f"]]

    @pytest.mark.parametrize("option", ["strictFileSize", "maxSegmentsPerPart", "maxOpenSegments"])
    def test_what_is_for_open_files_is_refused_without_them(self, out: str, option: str) -> None:
        value = "true" if option == "strictFileSize" else "9"
        with pytest.raises(ConfigError, match=f"{option}: only for files that stay open.*set rolling=policy"):
            stream(out, maxBytesPerFile="5", **{option: value}).run(0, [rows_of("a")])

    def test_a_record_longer_than_a_file_has_one_of_its_own(self, out: str) -> None:
        options = {"maxBytesPerFile": "3", "strictFileSize": "true", "rolling": "policy"}
        query = stream(out, **options)
        for number, words in enumerate([["long-word", "a"], ["b"], [], []]):
            query.run(number, [rows_of(*words)])
        assert visible(out) == [["long-word"], ["a"]]
        assert committed(out) == ["a", "b", "long-word"]

    def test_records(self, out: str) -> None:
        assert self.batches(out, "ab", "cde", "f", maxRecordsPerFile="4", rolling="policy") == [["a", "b", "c", "d"]]

    def test_a_big_batch_makes_many_files_at_once(self, out: str) -> None:
        letters = "abcdefghijklmnopqrstuvwxyz"
        found = self.batches(out, letters, maxRecordsPerFile="5", rolling="policy")
        assert found == [list(letters[start : start + 5]) for start in range(0, 25, 5)]
        assert committed(out) == list(letters)

    def test_never_a_part_without_data(self, out: str) -> None:
        assert self.batches(out, "abc", *[""] * 6, maxBatchesPerFile="1") == [["a", "b", "c"]]


class TestFlush:
    @pytest.mark.slow
    def test_everything_that_is_open_is_finished(self, out: str) -> None:
        query = stream(out, rolling="policy")
        query.run(0, [rows_of("a"), rows_of("b")])
        query.run(1, [rows_of("c"), []])
        assert visible(out) == []
        report = ftfile.flush(out, context=current())
        assert (report.files, report.rows) == (1, 3)
        assert visible(out) == [["a", "b", "c"]]
        assert ftfile.flush(out, context=current()).files == 0
        query.run(2, [rows_of("d")])
        ftfile.flush(out, context=current())
        assert visible(out) == [["a", "b", "c"], ["d"]]
        check_directory(open_filesystem(out))
        assert [version.operation for version in ftfile.open(out).history()] == [
            *["stream"] * 2,
            "flush",
            "stream",
            "flush",
        ]

    def test_only_what_is_due(self, out: str) -> None:
        with repeatable(clock := ManualClock()):
            query = stream(out, rolloverInterval="1h")
            query.run(0, [rows_of("a")])
            clock.advance(3599)
            assert ftfile.flush(out, due_only=True, context=current()).files == 0
            clock.advance(1)
            assert ftfile.flush(out, due_only=True, context=current()).files == 1

    def test_jobs_that_a_flush_has_done_are_dropped(self, out: str) -> None:
        query = stream(out, maxBatchesPerFile="1")
        query.run(0, [rows_of("a")])
        planned, writer = query.pickled_plan(), query.identity(1)
        message = query.run_task(planned, writer, 0, rows_of("b"))
        assert len(message.rewritten) == 1
        ftfile.flush(out, context=current())
        query.commit(1, [message])
        rolled = [record.metrics.get("partsByReason") for record in read_records(CommitLog(open_filesystem(out)))]
        assert rolled == [None, {"flush": 1}, None]
        assert committed(out) == ["a", "b"]
        assert visible(out) == [["a"]]
        check_directory(open_filesystem(out))


class TestTime:
    def files_at(self, out: str, options: dict[str, str], *steps: tuple[float, str]) -> list[list[Words]]:
        """Run a batch after each wait; return the visible files after each batch."""
        found = []
        with repeatable(clock := ManualClock(1_700_000_000_000)):  # 22:13:20 UTC
            query = stream(out, **options)
            for number, (wait_s, letters) in enumerate(steps):
                clock.advance(wait_s)
                query.run(number, [rows_of(*letters)])
                found.append(visible(out))
        return found

    def test_age(self, out: str) -> None:
        found = self.files_at(out, {"rolloverInterval": "1h"}, (0, "a"), (3599, "b"), (1, "c"), (1, ""))
        assert found == [[], [], [], [["a", "b"]]]

    def test_inactivity(self, out: str) -> None:
        options = {"inactivityInterval": "10min"}
        found = self.files_at(out, options, (0, "a"), (599, "b"), (599, ""), (1, ""), (0, ""))
        assert found == [[], [], [], [], [["a", "b"]]]

    def test_the_clock_of_a_zone(self, out: str) -> None:
        # In Kathmandu it is 3:58:20 the next morning: 100 s to four.
        options = {"rolloverSchedule": "1h", "timeZone": "Asia/Kathmandu"}
        found = self.files_at(out, options, (0, "a"), (99, "b"), (1, ""), (0, "c"))
        assert found == [[], [], [], [["a", "b"]]]


class TestMarks:
    def test_a_true_value_ends_the_file_after_its_row(self, out: str) -> None:
        query = MicroBatch(out, {"word": "string", "last": "boolean"}, {"fileFormat": "text", "finalizeColumn": "LAST"})
        for number, letters in enumerate(["aB", "cDeFg", "h", ""]):
            query.run(number, [[{"word": letter, "last": letter.isupper() or None} for letter in letters]])
        assert visible(out) == [["a", "B"], ["c", "D"], ["e", "F"]]
        assert committed(out) == sorted("aBcDeFgh")
        assert ftfile.open(out).to_arrow().column_names == ["word"]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (
                {"finalizeColumn": "nosuch"},
                "finalizeColumn names a column that does not exist: 'nosuch'; the columns are word",
            ),
            ({"finalizeColumn": "word"}, "finalizeColumn: column 'word' is string, but a boolean column is needed"),
            ({"eventTimeInterval": "word:1h"}, "eventTimeInterval: column 'word' is string, but a timestamp is needed"),
            (
                {"rolling": "batch", "rolloverInterval": "1h"},
                "rolling=batch ends every file with its batch, so",
            ),
            ({"rollingPolicy": "nosuch:Policy"}, "rollingPolicy='nosuch:Policy' cannot be loaded"),
            ({"rollingPolicy": "builtins:object"}, r"rollingPolicy='builtins:object' has no method reason_to_end"),
        ],
    )
    def test_what_cannot_be_is_refused(self, out: str, options: dict[str, str], said: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(said)):
            stream(out, **options).pickled_plan()

    @pytest.mark.parametrize(("option", "value"), [("finalizeColumn", "eu"), ("eventTimeInterval", "eu:1h")])
    def test_a_column_of_the_path_is_refused(self, out: str, option: str, value: str) -> None:
        options = {"fileFormat": "text", "partitionBy": "eu", option: value}
        said = (
            f"{option} names a column that does not exist: 'eu'; the columns are word; eu is in the paths, not in the"
        )
        with pytest.raises(ConfigError, match=re.escape(said)):
            MicroBatch(out, {"word": "string", "eu": "boolean"}, options).pickled_plan()


class EveryThird:
    """Ends files when they have three rows or more."""

    def reason_to_end(self, group: GroupTotals, now_ms: int) -> str | None:
        assert now_ms >= group.last_ms > 0
        return "third" if group.rows >= 3 else None

    def deadline_ms(self, group: GroupTotals) -> int | None:
        assert group.rows
        return None


def test_a_policy_of_ones_own(out: str) -> None:
    query = stream(out, rollingPolicy=f"{__name__}:EveryThird")
    for number, letters in enumerate(["ab", "cd", "e"]):
        query.run(number, [rows_of(*letters)])
    assert visible(out) == [["a", "b", "c", "d"]]
    reasons = [record.metrics.get("partsByReason") for record in read_records(CommitLog(open_filesystem(out)))]
    assert reasons == [None, None, {"third": 1}]


class Broken:
    def reason_to_end(self, group: GroupTotals, now_ms: int) -> Any:
        assert now_ms
        return 1 / 0 if group.rows == 2 else group.rows == 3 or None

    def deadline_ms(self, group: GroupTotals) -> Any:
        return "soon" if group.rows == 4 else None


@pytest.mark.parametrize(
    ("letters", "said"),
    [
        ("ab", r"reason_to_end\(\) raised ZeroDivisionError"),
        ("abc", r"reason_to_end\(\) returned True, not str or None"),
    ],
)
def test_a_policy_that_is_broken_is_named(out: str, letters: str, said: str) -> None:
    query = stream(out, rollingPolicy=f"{__name__}:Broken")
    with pytest.raises(UserCodeError, match=f"Broken'.*{said}"):
        query.run(0, [rows_of(*letters)])
    query.options = {**query.options, "rollingPolicy": f"{__name__}:EveryThird"}
    query.run(0, [rows_of(*letters)])
    assert committed(out) == sorted(letters)


def test_a_deadline_that_is_none_is_named(out: str) -> None:
    query = stream(out, rollingPolicy=f"{__name__}:Broken")
    query.run(0, [rows_of(*"abcd")])
    with pytest.raises(UserCodeError, match=r"deadline_ms\(\) returned 'soon', not int or None"):
        query.run(1, [[]])


class RaisesOnce:
    """Raises at two rows, once; notes the rows of the files that it is asked about."""

    rows: ClassVar[list[int]] = []

    def reason_to_end(self, group: GroupTotals, now_ms: int) -> None:
        assert now_ms
        self.rows.append(group.rows)

    def deadline_ms(self, group: GroupTotals) -> None:
        if group.rows == 2 and -2 not in self.rows:
            self.rows.append(-2)
            raise ValueError


def test_no_rows_are_counted_twice_after_a_policy_raised(out: str) -> None:
    RaisesOnce.rows.clear()
    query = stream(out, rollingPolicy=f"{__name__}:RaisesOnce")
    for number in range(2):
        query.run(number, [rows_of("a")])
    with pytest.raises(UserCodeError, match="RaisesOnce"):
        query.run(2, [rows_of("a")])
    query.run(2, [rows_of("a")])
    assert max(RaisesOnce.rows) == 3


class TestLimitsOfWhatIsOpen:
    def test_a_file_of_many_pieces_ends(self, out: str) -> None:
        query = stream(out, rolling="policy", maxSegmentsPerPart="4")
        for number in range(3):
            query.run(number, [rows_of("a"), rows_of("b")])
        assert visible(out) == [["a", "b", "a", "b"]]

    @pytest.mark.slow
    def test_with_too_many_pieces_open_the_oldest_files_end(self, out: str) -> None:
        query = MicroBatch(out, {"word": "string", "k": "string"}, {"fileFormat": "text", "partitionBy": "k"})
        query.options = {**query.options, "rolling": "policy", "maxOpenSegments": "5"}
        for number in range(8):
            query.run(number, [[{"word": f"w{number}", "k": f"{number:02}"}]])
        assert [file.directory for file in ftfile.open(out).files()] == ["k=00", "k=01"]
        assert len(committed(out)) == 8


class TestChange:
    """Open files when the query returns with other options."""

    def left_open(self, out: str) -> MicroBatch:
        query = stream(out, rolling="policy")
        query.run(0, [rows_of("a"), rows_of("b"), rows_of("c")])
        query.restart()
        return query

    @parametrize("partitions", [1, 2, 7], quick=1)
    def test_other_partition_counts(self, out: str, partitions: int) -> None:
        query = self.left_open(out)
        query.options = {**query.options, "maxBatchesPerFile": "2"}
        query.run(1, [rows_of("d"), *[[]] * (partitions - 1)])
        query.run(2, [[]] * partitions)
        assert visible(out) == [["a", "b", "c", "d"]]

    @pytest.mark.slow
    def test_fewer_tasks_than_jobs_leave_nothing_behind(self, out: str) -> None:
        query = MicroBatch(out, {"word": "string", "k": "string"}, {"fileFormat": "text", "partitionBy": "k"})
        query.options = {**query.options, "maxBatchesPerFile": "1"}
        rows = [{"word": letter, "k": letter} for letter in "abcdef"]
        query.run(0, [rows[:3], rows[3:]])
        query.restart()
        query.run(1, [[]])
        assert len(visible(out)) == 3
        query.run(2, [[]])
        assert len(visible(out)) == 6

    @pytest.mark.parametrize(
        "options",
        [
            {"fileFormat": "json", "onFormatChange": "accept"},
            {"lineSep": "\r\n", "onFormatChange": "accept"},
            {"rolling": "batch"},
        ],
        ids=["format", "lineSep", "batch"],
    )
    def test_another_encoding_ends_it(self, out: str, options: dict[str, str]) -> None:
        query = self.left_open(out)
        query.options = {**query.options, **options}
        query.run(1, [rows_of("d")])
        query.run(2, [[]])
        assert ["a", "b", "c"] in visible(out)
        assert committed(out) == list("abcd")

    @pytest.mark.slow
    def test_another_limit_is_that_of_what_is_open(self, out: str) -> None:
        query = self.left_open(out)
        query.options = {**query.options, "maxRecordsPerFile": "2"}
        query.run(1, [[]])
        query.run(2, [[]])
        assert visible(out) == [["a", "b"]]

    def test_a_wider_schema_ends_it(self, out: str) -> None:
        query = MicroBatch(out, {"n": "integer"}, {"fileFormat": "parquet", "rolling": "policy"})
        query.run(0, [[{"n": 1}]])
        query.restart()
        query.columns, query.options = {"n": "long", "m": "long"}, {**query.options, "onSchemaChange": "widen"}
        query.run(1, [[{"n": 2**40, "m": 3}]])
        query.run(2, [[]])
        assert [file.rows for file in ftfile.open(out).files()] == [1]
        assert sorted(ftfile.open(out).to_arrow()["n"].to_pylist()) == [1, 2**40]

    def test_a_directory_may_be_moved(self, out: str, tmp_path: Path) -> None:
        query = self.left_open(out)
        Path(out).rename(tmp_path / "moved")
        query.path = str(tmp_path / "moved")
        query.options = {**query.options, "maxBatchesPerFile": "1"}
        query.run(1, [[]])
        query.run(2, [[]])
        assert visible(query.path) == [["a", "b", "c"]]


def batch_of(spool: Path) -> int:
    """Return the batch that wrote a spool, from its name."""
    return int(spool.name.removeprefix("_").partition("-")[0])


class TestFailures:
    def damage(self, out: str) -> None:
        spool = min(Path(out).rglob("*.spool"), key=batch_of)
        content = bytearray(spool.read_bytes())
        content[0] ^= 1
        spool.write_bytes(content)

    @pytest.mark.slow
    def test_a_damaged_segment_keeps_no_other_back(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = stream(out, maxBatchesPerFile="2")
        query.run(0, [rows_of("a")])
        self.damage(out)
        for number in range(1, 10):
            query.run(number, [rows_of("bcdefghij"[number - 1])])
        assert visible(out) == [["b"], ["c", "d"], ["e", "f"], ["g", "h"]]
        named = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
        assert len(named) == 1
        assert re.search(
            r"bytes 0 to 2 of _ftfile/staged/.*\.spool cannot be assembled.* 1 records .* Restore the file from a copy",
            named[0],
        )
        with pytest.raises(CorruptData, match="Another program changed it"):
            ftfile.flush(out, context=current())
        assert visible(out) == [["b"], ["c", "d"], ["e", "f"], ["g", "h"], ["i", "j"]]
        self.damage(out)  # and it is whole again
        query.run(10, [[]])
        assert sorted(visible(out))[0] == ["a"]
        assert not CommitLog(open_filesystem(out)).refresh().jobs
        check_directory(open_filesystem(out))

    def test_a_flush_names_each_damaged_segment_and_finishes_all_others(self, out: str) -> None:
        query = stream(out, rolling="policy")
        for number, letter in enumerate("abcd"):
            query.run(number, [rows_of(letter)])
        spools = sorted(Path(out).rglob("*.spool"), key=batch_of)
        for each in spools[1:3]:
            each.write_bytes(b"x\n")
        with pytest.raises(StillOpen) as caught:
            ftfile.flush(out, context=current())
        assert all(each.name in str(caught.value) for each in spools[1:3])
        assert visible(out) == [["a", "d"]]
        assert len(CommitLog(open_filesystem(out)).refresh().segments) == 2

    def test_a_flush_names_each_segment_where_all_are_damaged(self, out: str) -> None:
        query = stream(out, rolling="policy")
        for number, letter in enumerate("ab"):
            query.run(number, [rows_of(letter)])
        spools = list(Path(out).rglob("*.spool"))
        for each in spools:
            each.write_bytes(b"x\n")
        with pytest.raises(StillOpen) as caught:
            ftfile.flush(out, context=current())
        assert all(each.name in str(caught.value) for each in spools)

    def test_a_damaged_segment_is_an_error_for_readers(self, out: str) -> None:
        stream(out, rolling="policy").run(0, [rows_of("a")])
        self.damage(out)
        with pytest.raises(CorruptData, match=r"spool.*Another program changed it"):
            ftfile.open(out).to_arrow()

    def test_what_was_staged_for_a_failed_job_is_dropped(self, out: str) -> None:
        query = stream(out, maxBatchesPerFile="2")
        query.run(0, [rows_of("a")])
        query.run(1, [rows_of("b")])
        for each in Path(out).rglob("*.spool"):
            each.write_bytes(b"x\n")
        query.run(2, [[]])
        assert not list(Path(out).rglob("*.staged"))
        head = CommitLog(open_filesystem(out)).refresh()
        assert [segment.rows for segment in head.segments.values()] == [1, 1]
        assert [job.attempts for job in head.jobs] == [1]

    def test_any_other_fails_no_batch_and_is_tried_again(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        query = stream(out, maxBatchesPerFile="2")
        query.run(0, [rows_of("a")])
        query.run(1, [rows_of("b")])
        with monkeypatch.context() as patch:
            patch.setattr(Assembler, "assemble", lambda *_: 1 // 0)
            query.run(2, [[]])
        assert visible(out) == []
        query.run(3, [[]])
        assert visible(out) == [["a", "b"]]

    def test_a_file_that_lost_a_row_is_none(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        query = stream(out, fileFormat="parquet", maxBatchesPerFile="1")
        query.run(0, [rows_of("a", "b")])
        take = RowJoiner.take

        def lose_one(self: RowJoiner, data: bytes, rows: int, skip_rows: int) -> Taken:
            take(self, data, rows - 1, skip_rows)
            return Taken(rows, 0)

        monkeypatch.setattr(RowJoiner, "take", lose_one)
        query.run(1, [[]])
        assert not list(Path(out).glob("*.parquet"))
        assert [job.attempts for job in CommitLog(open_filesystem(out)).refresh().jobs] == [1]
        with pytest.raises(CorruptData, match="expected 2 rows, found 1 rows"):
            ftfile.flush(out, context=current())
        monkeypatch.undo()
        query.run(2, [[]])
        assert committed(out) == ["a", "b"]
        assert len(list(Path(out).glob("*.parquet"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["json", "parquet"])
def test_what_is_large_already_is_not_collected(out: str, file_format: str) -> None:
    words = random.Random(0).randbytes(9_000_000).hex()
    rows = [{"word": words[start : start + 18_000]} for start in range(0, len(words), 18_000)]
    query = stream(out, fileFormat=file_format, rolling="policy", maxOpenBytes="1m", maxBytesPerFile="6m")
    planned, writer = query.pickled_plan(), query.identity(0)
    config = query.config()
    batches = [pa.RecordBatch.from_pylist(rows[start : start + 50], config.schema) for start in range(0, 1000, 50)]
    message = write_task(pickle.loads(planned), TaskIdentity(writer, 0, 0), batches, current())
    assert 4 << 20 <= sum(segment.length for segment in message.segments) < 6 << 20
    assert all(part.length >= 6 << 20 for part in message.parts[:-1])
    query.commit(0, [message])
    assert committed(out) == sorted(row["word"] for row in rows)


@pytest.mark.slow
def test_rests_of_columnar_segments(out: str) -> None:
    query = stream(out, fileFormat="parquet", rolling="policy", maxRecordsPerFile="2")
    for number, letters in enumerate(["abc", "", "def", "", ""]):
        query.run(number, [rows_of(*letters)])
        assert committed(out) == list("abcdef")[: 3 if number < 2 else 6]
    assert [file.rows for file in ftfile.open(out).files()] == [2, 2, 2]
    rows = [row for file in sorted(Path(out).glob("*.parquet")) for row in pq.read_table(file)["word"].to_pylist()]
    assert rows == list("abcdef")


class TestShares:
    def test_every_job_falls_to_one_task(self, out: str) -> None:
        query = MicroBatch(out, {"word": "string", "k": "string"}, {"fileFormat": "text", "partitionBy": "k"})
        query.options = {**query.options, "maxBatchesPerFile": "1"}
        query.run(0, [[{"word": letter, "k": letter} for letter in letters] for letters in ("abc", "de")])
        planned, writer = query.pickled_plan(), query.identity(1)
        shares = [query.run_task(planned, writer, partition, []).rewritten for partition in range(4)]
        assert [len(done) for done in shares] == [3, 2, 0, 0]
        assert len({each.inputs[0].id for done in shares for each in done}) == 5

    @pytest.mark.slow
    def test_a_task_begins_no_second_job_when_it_is_late(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(task, "BUDGET_S", -1)
        query = MicroBatch(out, {"word": "string", "k": "string"}, {"fileFormat": "text", "partitionBy": "k"})
        query.options = {**query.options, "maxBatchesPerFile": "1"}
        found = []
        for number, letters in enumerate(["abcdefg", "", "", "", ""]):
            rows = [{"word": letter, "k": letter} for letter in letters]
            query.run(number, [rows[:4], rows[4:]])
            found.append(len(visible(out)))
        # Each task does one all the same, or nothing would ever be done.
        assert found == [0, 2, 4, 6, 7]

    @pytest.mark.parametrize("directories", ["abcdefg", "aaaaaaa"])
    def test_a_task_makes_files_for_as_long_as_it_has_time(
        self, request: pytest.FixtureRequest, directories: str
    ) -> None:
        """Of seven jobs of a file each, and of one job of seven files; each takes two fifths of the time."""
        clock = ManualClock()

        class Slow(WrapperFileSystem, PickledByReference):
            def create(self, path: str) -> OutputStream:
                stream = super().create(path)
                clock.advance(0.4 * task.BUDGET_S if path.endswith(".staged") else 0)
                return stream

        storage = MemoryFileSystem(request.node.name, clock=clock)
        options = {"fileFormat": "text", "partitionBy": "k", "maxRecordsPerFile": "1", "rolloverInterval": "1h"}
        with repeatable(clock), mounted(Slow(storage)) as url:
            query = MicroBatch(url, {"word": "string", "k": "string"}, options)
            query.run(0, [[{"word": f"{number}", "k": k} for number, k in enumerate(directories)]])
            found = []
            for batch in range(1, 4):
                query.run(batch, [[]])
                found.append(check_directory(storage).visible_rows.total())
        assert found == [3, 6, 7]
        MemoryFileSystem.drop(request.node.name)


@pytest.mark.slow
def test_many_files_that_are_due_wait_for_their_turn(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "DUE_SEGMENTS_MAX", 2)
    with repeatable(clock := ManualClock()):
        query = MicroBatch(out, {"word": "string", "k": "string"}, {"fileFormat": "text", "partitionBy": "k"})
        query.options = {**query.options, "rolloverInterval": "1h"}
        query.run(0, [[{"word": letter, "k": letter} for letter in "abcde"]])
        clock.advance(3600)
        found = []
        for number in range(1, 6):
            query.run(number, [[]])
            found.append(len(visible(out)))
    assert found == [0, 2, 4, 5, 5]


def test_an_overwrite_takes_no_parts_of_older_rows(out: str) -> None:
    """It removes the segments that they are made of itself, and keeps no rows of before."""
    query = stream(out, maxBatchesPerFile="1")
    query.run(0, [rows_of("old")])
    messages = query.run_tasks(1, [rows_of("new")])
    assert any(message.rewritten for message in messages)
    config = replace(query.config(), overwrite=True)
    log = CommitLog(open_filesystem(out))
    author = author_of(messages[0].identity.writer, None, None, current())
    commit(log, author, PreparedFiles(config, author, messages, log).body, config.common.policy)
    assert committed(out) == ["new"]
    assert visible(out) == []
