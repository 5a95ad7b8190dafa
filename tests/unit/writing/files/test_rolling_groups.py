"""Parts that stay open over batches, of several queries in one directory, and during a flush."""

from __future__ import annotations

import datetime as dt
import logging
import pickle
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import CorruptData, SchemaError, StaleFiles, UserCodeError
from ftfile.formats.text_lines import TextLines
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.log.read.snapshot import read_records
from ftfile.operate.flush import flush
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files import file_writer as writer
from ftfile.writing.files import rolling_plan as plan
from ftfile.writing.files import spool
from ftfile.writing.files.assembler import Assembler
from ftfile.writing.files.part_writer import PartWriter
from ftfile.writing.files.rolling_plan import jobs_of
from ftfile.writing.files.rolling_rules import ALL_END
from ftfile.writing.messages import TaskIdentity
from ftfile.writing.stage import Stage
from ftfile.writing.task import write_task
from tests.kit.rolling import AT_ONCE
from tests.unit.writing.files import user_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.log.checks import Rewrite
    from ftfile.log.format.model import Job
    from ftfile.writing.files.rolling_groups import GroupTotals
    from ftfile.writing.files.rolling_plan import RollingPlanner

COLUMNS = {"word": "string", "k": "string"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def rows_of(*words: str) -> list[dict[str, Any]]:
    return [{"word": word, "k": word[0]} for word in words]


def query_of(out: str, query_id: str = "a", **options: str) -> MicroBatch:
    shared = {"fileFormat": "text", "rolling": "policy", "partitionBy": "k", "onNewQuery": "continue"}
    return MicroBatch(out, COLUMNS, {**shared, **options}, query_id)


def visible(out: str) -> dict[str, list[str]]:
    files = sorted(file for file in Path(out).rglob("*") if file.is_file() and "_ftfile" not in file.parts)
    return {str(file.relative_to(out)): file.read_text().split() for file in files}


def committed(out: str) -> list[str]:
    return sorted(ftfile.open(out).to_arrow()["word"].to_pylist())


def due_of(out: str, query_id: str) -> list[Job]:
    head = CommitLog(open_filesystem(out)).refresh()
    return [job for job in head.jobs if job.inputs[0].origin.query_id == query_id]


def planner_of(query_id: str = "a") -> RollingPlanner:
    planners = writer._planners._objects.here.made  # noqa: SLF001
    *_, latest = (planner for key, (_, planner) in planners.items() if key.query_id == query_id)
    return latest


class TestQueries:
    def pair(self, out: str, **options: str) -> list[MicroBatch]:
        return [query_of(out, name, partPrefix=name, maxBatchesPerFile="1", **options) for name in "ab"]

    @pytest.mark.slow
    def test_each_calls_its_files_its_own_way(self, out: str) -> None:
        one, two = self.pair(out)
        for number in range(3):
            one.run(number, [rows_of(f"x{number}")])
            two.run(number, [rows_of(f"y{number}")])
        assert {name.split("/")[1][:12]: words for name, words in visible(out).items()} == {
            "a-0000000001": ["x0"],
            "a-0000000002": ["x1"],
            "b-0000000001": ["y0"],
            "b-0000000002": ["y1"],
        }
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_each_tells_its_own_listener(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        heard: list[Any] = []
        monkeypatch.setattr(user_code, "HEARD", heard)
        one, two = self.pair(out)
        one.options = {**one.options, "onPublish": "tests.unit.writing.files.user_code:hear"}
        for number in range(3):
            one.run(number, [rows_of(f"x{number}")])
            two.run(number, [rows_of(f"y{number}")])
        assert [part.query_id for part in heard] == ["a", "a"]

    def test_tasks_share_the_jobs_whoever_wrote_last(self, out: str) -> None:
        one, two = self.pair(out)
        one.run(0, [rows_of(*"stuv"), rows_of(*"wxyz")])
        two.run(0, [rows_of("x")])
        planned, identity = one.pickled_plan(), one.identity(1)
        shares = [one.run_task(planned, identity, partition, []).rewritten for partition in range(3)]
        assert [len(done) for done in shares] == [4, 4, 0]

    def test_a_batch_write_leaves_them_to_their_query(self, out: str) -> None:
        one = query_of(out, maxBatchesPerFile="1")
        one.run(0, [rows_of("x0")])
        due = due_of(out, "a")
        # It reads the log, to see whether it was committed before.
        query_of(out, rolling="batch", txnAppId="app", txnVersion="0").run_batch_write("job", [rows_of("y0")])
        assert due_of(out, "a") == due
        assert list(visible(out).values()) == [["y0"]]
        one.run(1, [[]])
        assert sorted(visible(out).values()) == [["x0"], ["y0"]]

    @pytest.mark.slow
    def test_records_do_not_repeat_for_ever_what_a_query_that_is_gone_left_due(
        self, out: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(plan, "FOREIGN_JOB_RECORDS", 3)
        one, two = self.pair(out)
        one.run(0, [rows_of("x0")])
        found = []
        for number in range(5):
            two.run(number, [[]])
            found.append(len(due_of(out, "a")))
        assert found == [1, 1, 1, 0, 0]
        # When the query resumes, it determines the due files again; a flush may also end them.
        one.run(1, [[]])
        assert [job.reason for job in due_of(out, "a")] == ["batches"]
        one.run(2, [[]])
        assert [*visible(out).values()] == [["x0"]]

    def test_records_go_on_repeating_it_in_a_log_that_is_long(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "FOREIGN_JOB_RECORDS", 3)
        one, two = self.pair(out)
        for number in range(4):
            two.run(number, [[]])
        one.run(0, [rows_of("x0")])
        two.run(4, [[]])
        assert len(due_of(out, "a")) == 1

    def test_what_one_left_due_takes_no_room_from_the_other(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "DUE_SEGMENTS_MAX", 2)
        one, two = self.pair(out)
        one.run(0, [rows_of(*"xyz")])
        two.run(0, [rows_of(*"xyz")])
        assert (len(due_of(out, "a")), len(due_of(out, "b"))) == (2, 2)

    @pytest.mark.slow
    def test_failures_are_counted_over_the_records_of_the_other(self, out: str) -> None:
        one, two = self.pair(out)
        one.run(0, [rows_of("x0")])
        for file in Path(out).rglob("*.spool"):
            file.write_bytes(b"\0" * file.stat().st_size)
        for number in range(3):
            two.run(number, [[]])
            assert [job.attempts for job in due_of(out, "a")] == [number]
            one.run(number + 1, [[]])

    @pytest.mark.slow
    def test_each_keeps_what_it_knows_of_its_files(self, out: str) -> None:
        planners = set()
        for number in range(3):
            for query in self.pair(out):
                query.run(number, [rows_of(f"x{number}")])
            planners |= {planner_of("a"), planner_of("b")}
        assert len(planners) == 2


class TestTold:
    """The log's message without a listener."""

    def lines(self, caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
        found = [(line.levelno, line.getMessage()) for line in caplog.records if "in progress" in line.getMessage()]
        caplog.clear()
        return found

    @pytest.mark.slow
    def test_what_is_in_progress_and_how_it_is_published(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "ftfile")
        query = query_of(out, maxBatchesPerFile="2")
        query.run(0, [[]])
        assert self.lines(caplog) == []
        query.run(1, [rows_of("x", "y")])
        ((level, text),) = self.lines(caplog)
        assert level == logging.WARNING
        assert "2 files are in progress" in text
        assert f"ftfile.flush('{query.config().path}')" in text
        assert "ftfile.spark.attach(spark)" in text
        found = []
        for number, words in enumerate([["x", "z"], [], ["y"], []], start=2):
            query.run(number, [rows_of(*words)])
            found += [(level, text[text.index("] ") + 2 :][:2]) for level, text in self.lines(caplog)]
        assert found == [(logging.INFO, "3 "), (logging.INFO, "2 "), (logging.INFO, "2 "), (logging.INFO, "1 ")]

    def test_nothing_is_in_progress_once_the_last_file_has_ended(
        self, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "ftfile")
        query = query_of(out, maxBatchesPerFile="2")
        for number in range(2):
            query.run(number, [rows_of("x")])
        assert len(self.lines(caplog)) == 2
        ftfile.flush(out)
        query.run(2, [[]])
        assert self.lines(caplog) == []
        assert planner_of("a").in_progress == 0
        query.run(3, [rows_of("x")])
        assert planner_of("a").in_progress == 1

    def test_nothing_without_open_files(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = query_of(out)
        query.options = {**query.options, "rolling": "batch"}
        query.run(0, [rows_of("x")])
        assert self.lines(caplog) == []


class TestDeadlines:
    @pytest.mark.slow
    def test_a_file_that_changes_often_is_noted_once(self, out: str) -> None:
        query = query_of(out)
        for number in range(20):
            query.run(number, [rows_of("x")])
        deadlines = planner_of()._index._deadlines  # noqa: SLF001
        assert len(deadlines.noted) == len(deadlines._in_order) == 1  # noqa: SLF001

    def test_one_that_moves_is_looked_at_when_it_passes(self, out: str) -> None:
        with repeatable(clock := ManualClock()):
            query = query_of(out, inactivityInterval="10min", rolloverInterval="15min")
            for number in range(3):
                query.run(number, [rows_of("x")])
                clock.advance(299)
            query.run(3, [[]])
            assert due_of(out, "a") == []
            clock.advance(3)
            query.run(4, [[]])
            assert [job.reason for job in due_of(out, "a")] == ["age"]

    @pytest.mark.parametrize(
        ("period", "begun", "ends"),
        [
            # In Berlin it is two o'clock twice: at midnight UTC and an hour later.
            ("15min", "00:10", "00:15"),
            ("15min", "01:10", "01:15"),
            ("1h", "00:10", "01:00"),
            ("1h", "01:10", "02:00"),
            ("2h", "00:10", "03:00"),
            ("1d", "00:10", "23:00"),
        ],
    )
    def test_clocks_that_are_set_back_end_files_at_every_multiple(
        self, out: str, period: str, begun: str, ends: str
    ) -> None:
        def at(time: str) -> int:
            hour, minute = map(int, time.split(":"))
            return int(dt.datetime(2024, 10, 27, hour, minute, tzinfo=dt.timezone.utc).timestamp())

        with repeatable(clock := ManualClock(1000 * at(begun))):
            query = query_of(out, rolloverSchedule=period, timeZone="Europe/Berlin", inactivityInterval="30d")
            query.run(0, [rows_of("x")])
            clock.advance(at(ends) - at(begun) - 1)
            query.run(1, [[]])
            assert due_of(out, "a") == []
            clock.advance(1)
            query.run(2, [[]])
            assert [job.reason for job in due_of(out, "a")] == ["schedule"]


class TestFlush:
    @pytest.fixture
    def meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
        """A hook that is called once, after the first file of a flush was made."""
        calls: list[Any] = []
        assemble = Assembler.assemble

        def assemble_and_call(self: Assembler, job: Job, *goes_on: Any) -> Rewrite:
            done = assemble(self, job, *goes_on)
            if calls:
                calls.pop()()
            return done

        monkeypatch.setattr(Assembler, "assemble", assemble_and_call)
        yield calls
        assert not calls

    def test_takes_again_what_it_lost_in_part(self, out: str, meanwhile: list[Any]) -> None:
        """Somebody took the second of three pieces, so that the file of all three is none; the others are left."""
        query = query_of(out)
        for number in range(3):
            query.run(number, [rows_of(f"x{number}")])
        fs, identity = open_filesystem(out), query.identity(3)

        def take_the_second() -> None:
            head = CommitLog(fs).refresh()
            second = [*head.segments.values()][1]
            (job,) = jobs_of([second], "age", ALL_END, current().ids)
            stage = Stage(fs, TaskIdentity(identity, 0, 0))
            done = Assembler(fs, stage, head.definitions, head.version).assemble(job)
            message = query.run_task(query.pickled_plan(), identity, 0, [])
            query.commit(3, [replace(message, rewritten=(done,))])

        meanwhile.append(take_the_second)
        report = ftfile.flush(out, context=current())
        assert (report.files, report.rows) == (1, 2)
        assert sorted(visible(out).values()) == [["x0", "x2"], ["x1"]]
        check_directory(open_filesystem(out))

    def test_makes_again_what_a_vacuum_made_too_old(self, out: str, meanwhile: list[Any]) -> None:
        query_of(out).run(0, [rows_of("x")])

        def vacuum() -> None:
            ftfile.vacuum(out, dry_run=False, retention="0s", force=True, context=current())
            time.sleep(0.01)

        meanwhile.append(vacuum)
        assert ftfile.flush(out, context=current()).files == 1
        assert [*visible(out).values()] == [["x"]]

    def test_says_so_when_a_vacuum_makes_everything_too_old(self, out: str) -> None:
        query_of(out).run(0, [rows_of("x")])
        log = CommitLog(open_filesystem(out))
        commit(log, MaintenanceAuthor("vacuum", "v"), lambda *_: Body(horizon_ms=10**15))
        with pytest.raises(StaleFiles, match="use a longer retention for vacuum"):
            ftfile.flush(out, context=current())
        assert committed(out) == ["x"]

    @pytest.mark.slow
    def test_of_a_file_with_a_damaged_piece_the_others_are_finished(self, out: str) -> None:
        query = query_of(out)
        for number in range(3):
            query.run(number, [rows_of(f"x{number}")])
        damaged = sorted(Path(out).rglob("*.spool"))[1]
        damaged.write_bytes(b"y1\n")
        with pytest.raises(CorruptData, match="Another program changed it"):
            ftfile.flush(out, context=current())
        assert [*visible(out).values()] == [["x0", "x2"]]
        damaged.write_bytes(b"x1\n")
        assert ftfile.flush(out, context=current()).files == 1

    @pytest.mark.slow
    def test_again_before_the_next_batch_gives_other_names(self, out: str) -> None:
        names = {"partFileName": "{name}-{batch}-{index}{ext}", "ifExists": "fail"}
        query = query_of(out, maxRecordsPerFile="2", **names)
        query.run(0, [rows_of("x0", "x1", "x2")])
        assert ftfile.flush(out, due_only=True, context=current()).files == 1
        assert ftfile.flush(out, context=current()).files == 1
        query.run(1, [rows_of("x3")])
        assert ftfile.flush(out, context=current()).files == 1
        assert [name[4:] for name in visible(out)] == [
            "part-0000000000-50000.txt",
            "part-0000000000-51000.txt",
            "part-0000000001-50000.txt",
        ]


class TestTasks:
    @pytest.mark.slow
    def test_a_thousand_directories_are_one_file_and_one_sync(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "parquet", "rolling": "policy", "partitionBy": "k"})
        query.run(0, [[]])
        planned, identity = query.pickled_plan(), query.identity(1)
        rows = [{"word": f"w{number}", "k": f"{number % 1000}"} for number in range(3000)]
        syncs: list[int] = []
        monkeypatch.setattr("os.fsync", syncs.append)
        message = query.run_task(planned, identity, 0, rows)
        assert len(syncs) == 1
        assert len([file for file in Path(out).rglob("staged/**/*") if file.is_file()]) == 1
        assert len({segment.path for segment in message.segments}) == 1
        assert len({segment.directory_key for segment in message.segments}) == 1000
        query.commit(1, [message])
        assert len(committed(out)) == 3000

    @pytest.mark.slow
    def test_no_more_files_are_open_than_may_be(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spool, "LARGE_BYTES_MIN", 1)
        monkeypatch.setattr(TextLines, "open_files_max", 2)
        query = query_of(out, maxBytesPerFile="20", maxOpenBytes="1")
        planned, identity = query.pickled_plan(), query.identity(0)
        schema = query.config().schema
        batches = [pa.RecordBatch.from_pylist(rows_of(*"uvwxyz"), schema) for _ in range(30)]
        opened: list[int] = []
        write_rows = PartWriter.write_rows

        def write_and_count(self: PartWriter, directory: str, batch: pa.RecordBatch) -> None:
            write_rows(self, directory, batch)
            opened.append(len(self._open))

        monkeypatch.setattr(PartWriter, "write_rows", write_and_count)
        message = write_task(pickle.loads(planned), TaskIdentity(identity, 0, 0), batches, current())
        assert max(opened) == 2
        query.commit(0, [message])
        (record,) = read_records(CommitLog(open_filesystem(out)))
        assert record.metrics["partsByReason"] == {"large": len(message.parts)}
        assert Counter(committed(out)) == dict.fromkeys("uvwxyz", 30)
        flush(out, context=current())
        assert Counter(word for words in visible(out).values() for word in words) == dict.fromkeys("uvwxyz", 30)

    @pytest.mark.parametrize("file_format", ["json", "parquet"])
    def test_a_column_must_be_left_beside_that_which_ends_files(self, out: str, file_format: str) -> None:
        query = MicroBatch(out, {"last": "boolean"}, {"fileFormat": file_format, "finalizeColumn": "last"})
        with pytest.raises(SchemaError, match="'last' leaves no column for the files"):
            query.run(0, [[{"last": True}]])


@pytest.mark.slow
def test_a_name_that_cannot_be_made_never_fails_a_batch(out: str) -> None:
    query = query_of(out, maxBatchesPerFile="1", partFileName="tests.unit.writing.files.user_code:failing_later")
    for number in range(3):
        query.run(number, [rows_of("x")])
    assert (committed(out), visible(out)) == (["x"] * 3, {})
    with pytest.raises(UserCodeError, match="failing_later"):
        ftfile.flush(out, code=["tests.unit.writing.files.user_code:failing_later"], context=current())
    query.options = {**query.options, "partFileName": "{name}"}
    query.run(3, [[]])
    query.run(4, [[]])
    assert sorted(visible(out).values()) == [["x"]] * 3


class AtOnce:
    def reason_to_end(self, group: GroupTotals, now_ms: int) -> str | None:
        assert now_ms >= group.last_ms
        return "own"

    def deadline_ms(self, group: GroupTotals) -> int | None:
        assert group.rows
        return None


def test_every_rule_says_its_reason(out: str) -> None:
    """In the record of the file, counted, and in the job."""
    with repeatable(clock := ManualClock(1_700_000_000_000)):
        options = {
            **AT_ONCE,
            "own": {"rollingPolicy": f"{__name__}:AtOnce"},
            "encoding": {},
            "flush": {},
        }
        for reason, chosen in options.items():
            query = query_of(f"{out}/{reason}", **{"inactivityInterval": "9h"} | chosen)
            query.run(0, [rows_of("x", "y")])
            if reason == "flush":
                ftfile.flush(query.path, context=current())
            clock.advance(3600)
            query.options = {
                **query.options,
                **({"lineSep": ";", "onFormatChange": "accept"} if reason == "encoding" else {}),
            }
            query.run(1, [[]])
            assert {job.reason for job in due_of(query.path, "a")} <= {reason}
            query.run(2, [[]])
            records = [*read_records(CommitLog(open_filesystem(query.path)))]
            rolled = sum((Counter(record.metrics.get("partsByReason", {})) for record in records), Counter[str]())
            assert set(rolled) == {reason}, (reason, rolled)
            assert rolled[reason] == len(visible(query.path))
