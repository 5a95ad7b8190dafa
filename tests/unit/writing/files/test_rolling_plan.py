"""Everything due becomes a file: beyond each limit, next to damaged files, and for any clock."""

from __future__ import annotations

import datetime as dt
import logging
import pickle
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

import ftfile
from ftfile.core.errors import ConfigError, NotPublished, PermissionDenied, Unavailable, UserCodeError
from ftfile.log.checks import accept_rewrites
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Author, BatchWriteAuthor, Body, MaintenanceAuthor, Origin
from ftfile.log.format.record import encode_record
from ftfile.log.protocol import Prepare, commit
from ftfile.log.read.snapshot import read_records
from ftfile.operate import flush as flushing
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.batch import commit_batch
from ftfile.writing.files import file_writer as sink_writer
from ftfile.writing.files import rolling_plan as jobs
from ftfile.writing.files import rolling_plan as plan
from ftfile.writing.files import task
from ftfile.writing.files.assembler import Assembler
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.files.prepared_files import PreparedFiles
from ftfile.writing.files.rolling_plan import jobs_of
from ftfile.writing.files.rolling_rules import ALL_END
from ftfile.writing.messages import OperationIdentity, TaskIdentity, author_of
from ftfile.writing.stage import Stage
from ftfile.writing.task import write_task
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem, InputFile
    from ftfile.writing.files.rolling_groups import GroupTotals

COLUMNS = {"word": "string", "k": "string"}
YEAR_S = 365 * 86_400


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


class Silent(WrapperFileSystem):
    """Answers nothing, when it is silent, when it is asked for open files."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.clock = ManualClock()
        self.is_silent = False
        self.asked = 0

    def open(self, path: str) -> InputFile:
        if self.is_silent and path.startswith("_ftfile/staged/"):
            self.asked += 1
            self.clock.advance(60)
            raise Unavailable("open", path, "no answer within 60 s")
        return super().open(path)


def query_of(out: str, **options: str) -> MicroBatch:
    return MicroBatch(out, COLUMNS, {"fileFormat": "text", "rolling": "policy", "partitionBy": "k", **options})


def rows_of(*words: str, k: str = "x") -> list[dict[str, Any]]:
    return [{"word": word, "k": k} for word in words]


def files(out: str) -> list[list[str]]:
    found = sorted(file for file in Path(out).rglob("*.txt") if "_ftfile" not in file.parts)
    return [file.read_text().split() for file in found]


def committed(out: str) -> list[str]:
    return sorted(ftfile.open(out).to_arrow()["word"].to_pylist())


def head_of(out: str) -> LogState:
    return CommitLog(open_filesystem(out)).refresh()


def reasons(out: str) -> Counter[str]:
    records = read_records(CommitLog(open_filesystem(out)))
    return sum((Counter(record.metrics.get("partsByReason", {})) for record in records), Counter[str]())


class TestFlush:
    @pytest.mark.slow
    @pytest.mark.parametrize("directories", [65, 200])
    def test_more_files_than_a_record_has(self, out: str, directories: int) -> None:
        query = query_of(out)
        query.run(0, [[{"word": f"w{number}", "k": str(number)} for number in range(directories)]])
        report = ftfile.flush(out, context=current())
        assert (report.files, report.rows) == (directories, directories)
        assert len(files(out)) == directories
        assert not head_of(out).segments
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_more_files_of_one_directory_than_a_record_has(self, out: str) -> None:
        names = {"partFileName": "{name}-{batch}-{index}{ext}", "ifExists": "fail"}
        query = query_of(out, maxRecordsPerFile="1", **names)
        query.run(0, [rows_of(*(f"{number:03}" for number in range(150)))])
        assert ftfile.flush(out, context=current()).files == 150
        assert files(out) == [[f"{number:03}"] for number in range(150)]
        assert max(len(record.adds) for record in read_records(CommitLog(open_filesystem(out)))) <= 65

    def test_what_comes_meanwhile_stays_open(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """It would never end otherwise."""
        query = query_of(out)
        query.run(0, [rows_of("a")])
        batches = iter(range(1, 50))

        def commit_after_another(*args: Any) -> Any:
            query.run(next(batches), [rows_of("later")])
            return commit(*args)

        monkeypatch.setattr(flushing, "commit", commit_after_another)
        assert ftfile.flush(out, context=current()).files == 1
        assert files(out) == [["a"]]

    def test_takes_again_what_it_lost_twice(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each time somebody else takes the last of its pieces before it commits."""
        query = query_of(out)
        for number in range(4):
            query.run(number, [rows_of(str(number))])
        losses = iter([3, 2])

        def commit_after_another(log: CommitLog, author: Author, prepare: Prepare) -> Any:
            if (number := next(losses, None)) is not None:
                head = log.refresh()
                (last,) = (each for each in head.segments.values() if each.origin.last_batch == number)
                (job,) = jobs_of([last], "flush", ALL_END, current().ids)
                stage = Stage(log.fs, TaskIdentity(OperationIdentity(f"j{number}"), 0, 0))
                done = Assembler(log.fs, stage, head.definitions, head.version).assemble(job)
                (part,) = (
                    structs.replace(add, final_path=f"part-{layout.unique_part(add.id)}.txt") for add in done.adds
                )
                rewrite = replace(done, adds=(part,))

                def take(head: LogState, _: object) -> Body:
                    accepted = accept_rewrites(log, head, [rewrite])
                    return Body(adds=accepted.adds, removes=accepted.removes)

                commit(log, author, take)
            return commit(log, author, prepare)

        monkeypatch.setattr(flushing, "commit", commit_after_another)
        assert ftfile.flush(out, context=current()).files == 1
        assert sorted(files(out)) == [["0", "1"], ["2"], ["3"]]

    def test_a_name_that_cannot_be_made_keeps_no_other_back(self, out: str) -> None:
        name = "tests.unit.writing.files.user_code:failing_for_y"
        query = query_of(out, partFileName=name)
        query.run(0, [[*rows_of("a"), *rows_of("b", k="y"), *rows_of("c", k="z")]])
        with pytest.raises(UserCodeError, match="failing_for_y"):
            ftfile.flush(out, code=[name], context=current())
        assert files(out) == [["a"], ["c"]]

    def test_settings_are_known_however_many_others_came_since(self, out: str) -> None:
        query_of(out, partPrefix="mine", maxRecordsPerFile="2").run(0, [rows_of("a", "b", "c")])
        log = CommitLog(open_filesystem(out))
        for number in range(2):
            definitions = {f"{number}-{each}": {"number": each} for each in range(200)}
            commit(log, MaintenanceAuthor("test", str(number)), lambda *_, new=definitions: Body(definitions=new))
        assert len(head_of(out).definitions) < 200
        assert ftfile.flush(out, context=current()).files == 2
        assert sorted(map(len, files(out))) == [1, 2]
        assert all(file.name.startswith("mine-") for file in Path(out).rglob("*.txt"))

    def test_segments_of_a_writer_that_is_no_query(self, out: str) -> None:
        query = query_of(out)
        message = query.run_task(query.pickled_plan(), query.identity(0), 0, rows_of("a"))
        log = CommitLog(open_filesystem(out))
        author = author_of(message.identity.writer, None, None, current())
        commit(log, BatchWriteAuthor("j"), PreparedFiles(query.config(), author, [message], log).body)
        assert ftfile.flush(out, due_only=True, context=current()).files == 1
        assert files(out) == [["a"]]

    def test_what_is_due_is_what_the_stream_would_end(self, out: str) -> None:
        with repeatable(clock := ManualClock()):
            query = query_of(out, rolloverInterval="1h", maxBatchesPerFile="2")
            query.run(0, [[*rows_of("a"), *rows_of("b", k="y")]])
            query.run(1, [rows_of("c", k="y")])
            assert [len(job.inputs) for job in head_of(out).jobs] == [2]
            assert ftfile.flush(out, due_only=True, context=current()).files == 1
            assert files(out) == [["b", "c"]]
            clock.advance(3600)
            assert ftfile.flush(out, due_only=True, context=current()).files == 1
        assert reasons(out) == {"batches": 1, "age": 1}

    def test_due_are_files_in_another_encoding_than_the_last(self, out: str) -> None:
        query = query_of(out)
        query.run(0, [rows_of("a")])
        query.options = {**query.options, "lineSep": ";", "onFormatChange": "accept"}
        planned, identity = query.pickled_plan(), query.identity(1)
        query.commit(1, [query.run_task(planned, identity, 0, rows_of("b"))])
        log = CommitLog(open_filesystem(out))
        commit(log, MaintenanceAuthor("test", "t"), lambda *_: Body(jobs=()))
        assert ftfile.flush(out, due_only=True, context=current()).files == 1
        assert reasons(out) == {"encoding": 1}

    def test_makes_the_log_durable_before_it_publishes_what_another_left(self) -> None:
        disk = CrashingFileSystem()
        broken = Fault(PermissionDenied, times=1 << 30, operations=frozenset({"rename"}))
        sink_writer.forget_caches()
        with mounted(FaultyFileSystem(disk, [broken])) as url:
            query = MicroBatch(url, COLUMNS, {"fileFormat": "json"})
            with repeatable(), pytest.raises(NotPublished):
                query.run(0, [rows_of("a")])
        sink_writer.forget_caches()
        watched = FaultyFileSystem(disk, [])
        with mounted(watched) as url:
            ftfile.flush(url, context=current())
        done = [(call.operation, call.path) for call in watched.calls]
        renames = [place for place, (operation, _) in enumerate(done) if operation == "rename"]
        assert ("sync_directory", "_ftfile/log") in done[: renames[0]]

    @pytest.mark.slow
    def test_asks_storage_that_is_away_for_one_segment(self) -> None:
        silent = Silent(CrashingFileSystem())
        with repeatable(silent.clock), mounted(silent) as url:
            query = query_of(url)
            for batch in range(3):
                query.run(batch, [[*rows_of("a"), *rows_of("b", k="y")] for _ in range(2)])
            silent.is_silent = True
            with pytest.raises(Unavailable, match="no answer within 60 s"):
                ftfile.flush(url, context=current())
        assert silent.asked == 5, "by one call, with its tries"


class TestLimits:
    @pytest.mark.slow
    @pytest.mark.parametrize("tasks", [1, 4])
    def test_the_backlog_of_many_small_files_does_not_grow(self, out: str, tasks: int) -> None:
        query = query_of(out, maxRecordsPerFile="10")
        count = 0
        for number in range(12):
            words = [f"{count + each:06}" for each in range(1000)]
            query.run(number, [rows_of(*words[task::tasks]) for task in range(tasks)])
            count += 1000
            waiting = sum(segment.rows for segment in head_of(out).segments.values())
            assert waiting <= 1000 + 10 * tasks
            assert max((len(segment.id) for segment in head_of(out).segments.values()), default=0) < 80
        ftfile.flush(out, context=current())
        assert Counter(map(len, files(out))) == {10: count // 10}
        assert len(committed(out)) == count
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    @pytest.mark.parametrize("file_format", ["json", "parquet"])
    def test_what_is_left_of_what_was_left_has_as_short_an_id(
        self, out: str, file_format: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(task, "BUDGET_S", -1)  # each job makes one file
        query = query_of(out, fileFormat=file_format, maxRecordsPerFile="10")
        query.run(0, [rows_of(*map(str, range(995)))])
        ids: set[str] = set()
        for number in range(1, 31):
            query.run(number, [[]])
            ids |= {segment.id for segment in head_of(out).segments.values()}
        assert len(ids) == 30
        assert max(map(len, ids)) < 50
        assert [file.rows for file in ftfile.open(out).files()] == [10] * 30
        assert len(committed(out)) == 995
        ftfile.flush(out, context=current())
        check_directory(
            open_filesystem(out), rows_of=lambda content: content.splitlines() if file_format == "json" else ()
        )

    @parametrize("tasks", [4, 5, 9], quick=1)
    def test_a_final_row_beyond_the_segments_of_a_part(self, out: str, tasks: int) -> None:
        query = MicroBatch(out, {"word": "string", "last": "boolean"}, {"fileFormat": "text", "finalizeColumn": "last"})
        query.options = {**query.options, "maxSegmentsPerPart": "4"}
        query.run(0, [[{"word": f"{task}", "last": task == tasks - 1}] for task in range(tasks)])
        query.run(1, [[]] * tasks)
        rest = (tasks - 1) % 4 + 1
        assert sorted(map(len, files(out))) == sorted([4] * ((tasks - rest) // 4) + [rest])
        expected = Counter({"segments": (tasks - rest) // 4, "finalize": 1})
        assert reasons(out) == +expected

    @pytest.mark.slow
    def test_more_segments_are_due_than_a_record_names(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of one group, with others behind it: each record names some, and the next ones the others."""
        monkeypatch.setattr(plan, "DUE_SEGMENTS_MAX", 4)
        with repeatable(clock := ManualClock()):
            query = query_of(out, rolloverInterval="1h")
            query.run(0, [rows_of("a")] * 10)
            clock.advance(1)
            query.run(1, [[row for k in "uvwyz" for row in rows_of("b", k=k)]])
            clock.advance(3600)
            named = []
            for number in range(2, 6):
                query.run(number, [[]])
                named.append(sorted(len(job.inputs) for job in head_of(out).jobs))
        assert named == [[10], [1, 1, 1, 1], [1], []]
        assert sorted(map(len, files(out))) == [1] * 5 + [10]

    @pytest.mark.slow
    def test_a_group_of_more_segments_than_a_part_has(self, out: str) -> None:
        query = query_of(out, maxSegmentsPerPart="3", maxBatchesPerFile="1")
        query.run(0, [rows_of("a")] * 10)
        query.run(1, [[]] * 10)
        assert sorted(map(len, files(out))) == [1, 3, 3, 3]
        assert not head_of(out).segments

    @pytest.mark.slow
    def test_open_segments_are_bounded_beside_damaged_ones(self, out: str) -> None:
        query = query_of(out, maxOpenSegments="5", inactivityInterval="90d")
        for number in range(8):
            query.run(number, [rows_of(f"w{number}", k=f"{number:02}")])
            if number < 3:
                for spool in Path(out).rglob("*.spool"):
                    spool.write_bytes(b"??\n")
        for number in range(8, 30):
            query.run(number, [rows_of(f"w{number}", k=f"{number:02}")])
        head = head_of(out)
        assert sum(job.attempts > 0 for job in head.jobs) == 3
        assert len(head.segments) <= 3 + 5 + 1
        assert len(files(out)) == 30 - len(head.segments)

    @pytest.mark.slow
    def test_failed_jobs_take_no_room_from_others(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "DUE_SEGMENTS_MAX", 1)
        query = query_of(out, maxBatchesPerFile="1")
        query.run(0, [rows_of("a")])
        query.run(1, [rows_of("b")])
        for spool in Path(out).rglob("*.spool"):
            spool.write_bytes(b"?\n")
        for number in range(2, 8):
            query.run(number, [rows_of(f"{number}")])
        assert files(out)[-5:] == [[f"{number}"] for number in range(2, 7)]
        assert [job.attempts > 0 for job in head_of(out).jobs] == [False, True]

    def test_a_record_with_many_jobs_has_a_companion(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        query = query_of(out, maxBatchesPerFile="1")
        query.run(0, [[{"word": "w", "k": str(number)} for number in range(20)]])
        (record,) = read_records(CommitLog(open_filesystem(out)))
        assert len(record.jobs) == 20
        monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 1000)
        encoded = encode_record(record)
        assert encoded.companion is not None
        assert len(encoded.content) < 3000 < len(encoded.companion)

    @pytest.mark.parametrize("limit", [("IN_ORDER_PARTS", 1), ("IN_ORDER_BYTES", 10)], ids=str)
    def test_many_files_are_made_by_as_many_tasks_as_there_are(
        self, out: str, limit: tuple[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs, *limit)
        query = query_of(out, maxRecordsPerFile="5")
        query.run(0, [rows_of(*"abcdefghij") for _ in range(4)])
        planned, identity = query.pickled_plan(), query.identity(1)
        messages = [query.run_task(planned, identity, task, []) for task in range(4)]
        assert [sum(len(each.adds) for each in message.rewritten) for message in messages] == [2, 2, 2, 2]
        query.commit(1, messages)
        assert Counter(map(len, files(out))) == {5: 8}


class EndsAfterAnHour:
    """A policy like `inactivityInterval=1h`."""

    def reason_to_end(self, group: GroupTotals, now_ms: int) -> str | None:
        return "idle" if now_ms - group.last_ms >= 3_600_000 else None

    def deadline_ms(self, group: GroupTotals) -> int:
        return group.last_ms + 3_600_000


class TestTime:
    def run(self, out: str, options: dict[str, str], waits_s: Sequence[float]) -> list[int]:
        """Run a batch of one row after each wait; return how many rows are in each file."""
        with repeatable(clock := ManualClock(1_700_000_000_000)):  # 22:13:20 UTC
            query = query_of(out, **options)
            for number, wait_s in enumerate(waits_s):
                clock.advance(wait_s)
                query.run(number, [rows_of(f"{number:03}")])
        return [len(words) for words in files(out)]

    def test_a_file_is_over_before_the_next_row(self, out: str) -> None:
        """As `testRolloverInterval` of BucketingSink has it: rows at 0 and at 101 ms are in two files."""
        assert self.run(out, {"rolloverInterval": "100ms"}, [0, 0.101, 0.101, 0.101]) == [1, 1]

    @pytest.mark.slow
    def test_inactive_between_any_two_batches(self, out: str) -> None:
        assert self.run(out, {"inactivityInterval": "1h"}, [0] + [7200] * 5) == [1] * 4

    @pytest.mark.slow
    def test_a_batch_every_ten_minutes_and_a_file_every_hour(self, out: str) -> None:
        # The first file has what came until 23:00, from 22:13:20 on; the others have six batches each.
        assert self.run(out, {"rolloverSchedule": "1h", "inactivityInterval": "9h"}, [0] + [600] * 24) == [5, 6, 6, 6]

    @parametrize(
        "options",
        [{"rolloverInterval": "1h"}, {"inactivityInterval": "1h"}, {"rolloverSchedule": "1h"}],
        ids=str,
        quick=1,
    )
    def test_a_clock_that_was_wrong_for_a_while_keeps_no_file_open(self, out: str, options: dict[str, str]) -> None:
        waits_s = [0, YEAR_S, -YEAR_S, 60, 60, 60]
        found = self.run(out, {"inactivityInterval": "9000d"} | options, waits_s)
        # The first is a year old when the second comes, and that is of a year to come when the third does.
        assert found == [1, 1]
        with repeatable(clock := ManualClock(1_700_000_000_000)):
            clock.advance(120 + 7200)
            assert ftfile.flush(out, due_only=True, context=current()).files == 1

    @parametrize(
        "rule", [{"inactivityInterval": "1h"}, {"rollingPolicy": f"{__name__}:EndsAfterAnHour"}], ids=str, quick=1
    )
    def test_a_file_that_was_over_before_the_next_row_stays_over(
        self, out: str, monkeypatch: pytest.MonkeyPatch, rule: dict[str, str]
    ) -> None:
        """Also where a record has no room for its segments, and rows come meanwhile."""
        monkeypatch.setattr(plan, "DUE_SEGMENTS_MAX", 2)
        with repeatable(clock := ManualClock(1_700_000_000_000)):
            query = query_of(out, **{"inactivityInterval": "9000d"} | rule)
            for number in range(6):
                clock.advance(3600 if number == 1 else 60)
                query.run(number, [[{"word": f"{k}{number}", "k": k} for k in "vwxyz"]])
        assert sorted(files(out)) == [[f"{k}0"] for k in "vwxyz"]

    def test_a_clock_that_is_set_back_a_little_ends_nothing(self, out: str) -> None:
        assert self.run(out, {"rolloverInterval": "1h"}, [0, 60, -90, 60, 60]) == []

    def test_a_pause_is_measured_from_the_last_rows_after_the_clock_is_set_back(self, out: str) -> None:
        assert self.run(out, {"inactivityInterval": "5min"}, [0, -250, 400, 60]) == [2]


class TestEventTime:
    NOON = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001 - as NTZ is

    def query(self, out: str, interval: str = "10min", **options: str) -> MicroBatch:
        columns = {"at": "timestamp_ntz", "k": "string"}
        shared = {"fileFormat": "parquet", "partitionBy": "k", "eventTimeInterval": f"at:{interval}"}
        return MicroBatch(out, columns, {**shared, **options})

    def rows(self, *minutes: float | None, k: str = "x") -> list[dict[str, Any]]:
        return [{"at": None if each is None else self.NOON + dt.timedelta(minutes=each), "k": k} for each in minutes]

    def spans(self, out: str) -> list[tuple[float, float]]:
        found = []
        for file in sorted(Path(out).rglob("*.parquet")):
            times = [at for at in pq.ParquetFile(file).read()["at"].to_pylist() if at is not None]
            found.append(tuple((at - self.NOON).total_seconds() / 60 for at in (min(times), max(times))))
        return sorted(found)

    def flushed(self, out: str) -> list[tuple[float, float]]:
        ftfile.flush(out, context=current())
        check_directory(open_filesystem(out), rows_of=lambda _: ())
        return self.spans(out)

    @parametrize("tasks", [1, 3], quick=1)
    @pytest.mark.parametrize("k", ["x", "xyz"])
    def test_a_batch_with_an_hour_of_records(self, out: str, tasks: int, k: str) -> None:
        query = self.query(out)
        rows = [row for each in k for row in self.rows(*range(60), k=each)]
        random.Random(0).shuffle(rows)
        query.run(0, [rows[task::tasks] for task in range(tasks)])
        query.run(1, [[]] * tasks)
        assert self.spans(out) == []
        assert self.flushed(out) == sorted([(10 * each, 10 * each + 9) for each in range(6)] * len(k))

    @pytest.mark.slow
    @pytest.mark.parametrize("tasks", [1, 2])
    def test_late_rows_join_the_file_of_their_window(self, out: str, tasks: int) -> None:
        """Two hours of minutes, whose every third batch has a row that is ten minutes late."""
        minutes: list[int] = []
        with repeatable(clock := ManualClock(1_700_000_000_000)):
            query = self.query(out, "1h")
            for number in range(120):
                clock.advance(60)
                batch = [number, number - 10] if number % 3 == 0 and number >= 10 else [number]
                rows = self.rows(*batch)
                query.run(number, [rows[task::tasks] for task in range(tasks)])
                minutes += batch
            assert self.spans(out) == []
            clock.advance(3600)
            query.run(120, [[]])
            query.run(121, [[]] * tasks)
        assert self.spans(out) == [(0, 59), (60, 119)]
        assert reasons(out) == {"inactivity": 2}
        times = sorted(ftfile.open(out).to_arrow()["at"].to_pylist())
        assert times == [row["at"] for row in self.rows(*sorted(minutes))]

    @parametrize(
        ("rule", "files"),
        [
            ({"inactivityInterval": "5min"}, [(0, 1)]),
            ({"rolloverInterval": "5min"}, [(0, 1), (10, 14)]),
            ({"maxRecordsPerFile": "2"}, [(0, 1), (10, 11), (12, 13), (14, 15)]),
            ({"maxBatchesPerFile": "6"}, [(10, 15)]),
            ({"maxOpenSegments": "2"}, [(0, 1), (10, 12), (13, 15)]),
        ],
        ids=str,
        quick=1,
    )
    def test_every_other_rule_goes_by_the_files_of_windows(
        self, out: str, rule: dict[str, str], files: list[tuple[float, float]]
    ) -> None:
        """The first window gets a row in two batches, and the second one in the six after them."""
        with repeatable(clock := ManualClock(1_700_000_000_000)):
            query = self.query(out, **rule)
            for number, minute in enumerate((0, 1, 10, 11, 12, 13, 14, 15)):
                query.run(number, [self.rows(minute)])
                clock.advance(60)
            query.run(8, [[]])
            query.run(9, [[]])
        assert self.spans(out) == files

    @pytest.mark.slow
    def test_rows_of_earlier_windows_after_a_restart(self, out: str) -> None:
        query = self.query(out)
        for number, minutes in enumerate([(0, 3), (5,), (9, 12), (4, 15), (14,), (-100, 6)]):
            query.run(number, [self.rows(*minutes)])
            query.restart()
        assert self.flushed(out) == [(-100, -100), (0, 9), (12, 15)]

    def test_rows_without_a_time_go_with_the_others(self, out: str) -> None:
        query = self.query(out)
        query.run(0, [self.rows(None, 1, None, 22, None), self.rows(None)])
        query.run(1, [self.rows(2, None)])  # which comes late, and takes the other one along
        ftfile.flush(out, context=current())
        assert sorted(file.rows for file in ftfile.open(out).files()) == [1, 3, 4]

    @pytest.mark.parametrize("time_us", [2**63 - 1, 2**63 - 2, -(2**63), 1 - 2**63])
    def test_a_time_at_the_ends_of_all_times(self, out: str, time_us: int) -> None:
        """Spark has such times, and programs write them for none."""
        query = self.query(out)
        planned, writer = query.pickled_plan(), query.identity(0)
        schema = query.config().schema
        times = pa.array([0, time_us], pa.int64()).cast(schema.field("at").type)
        rows = pa.RecordBatch.from_arrays([times, pa.array(["x", "x"])], schema=schema)
        query.commit(0, [write_task(pickle.loads(planned), TaskIdentity(writer, 0, 0), [rows], current())])
        assert ftfile.flush(out, context=current()).files == 2

    @pytest.mark.slow
    def test_with_final_rows(self, out: str) -> None:
        query = self.query(out, finalizeColumn="last", fileFormat="csv", nullValue="-")
        query.columns = {**query.columns, "last": "boolean"}
        marked = [row | {"last": place == 2} for place, row in enumerate(self.rows(0, 11, 2, 3, 12))]
        query.run(0, [marked])
        query.run(1, [[]])
        assert self.minutes(out) == [["00", "02"]]
        query.run(2, [[row | {"last": True} for row in self.rows(4)]])
        query.run(3, [[]])
        assert self.minutes(out) == [["00", "02"], ["03", "04"]]
        assert sum(segment.rows for segment in head_of(out).segments.values()) == 2  # 11 and 12: no final row is theirs

    def minutes(self, out: str) -> list[list[str]]:
        files = (file for file in Path(out).rglob("*.csv") if "_ftfile" not in file.parts)
        return sorted(sorted(line[14:16] for line in file.read_text().split("\n") if line) for file in files)

    @pytest.mark.slow
    def test_another_interval_after_a_restart(self, out: str) -> None:
        self.query(out, "1h").run(0, [self.rows(0, 55)])
        self.query(out, "10min").run(1, [self.rows(1, 56)])
        self.query(out, "1h").run(2, [self.rows(2)])
        assert self.flushed(out) == [(0, 55), (1, 1), (56, 56)]

    def test_no_interval_after_a_restart(self, out: str) -> None:
        self.query(out).run(0, [self.rows(0, 55)])
        query = self.query(out)
        query.options = {"fileFormat": "parquet", "partitionBy": "k", "rolling": "policy"}
        query.run(1, [self.rows(1, 56)])
        assert self.flushed(out) == [(0, 0), (1, 56), (55, 55)]


class TestBatchWrites:
    @pytest.mark.slow
    def test_finish_their_files(self, out: str) -> None:
        query = query_of(out, maxBatchesPerFile="9", maxRecordsPerFile="2", onNewQuery="continue")
        query.run_batch_write("j", [rows_of(*"abc"), rows_of("d")])
        assert sorted(files(out)) == [["a", "b"], ["c"], ["d"]]
        assert not head_of(out).segments
        query.run(0, [rows_of("e")])
        query.run_batch_write("k", [rows_of("f")])
        assert sorted(files(out)) == [["a", "b"], ["c"], ["d"], ["f"]]
        assert ftfile.flush(out, context=current()).files == 1
        check_directory(open_filesystem(out))

    @pytest.mark.parametrize("option", [{"finalizeColumn": "last"}, {"strictFileSize": "true"}])
    def test_refuse_rules_that_they_cannot_keep(self, out: str, option: dict[str, str]) -> None:
        query = query_of(out, **option)
        query.columns = {**COLUMNS, "last": "boolean"}
        query.options = {**query.options, "fileFormat": "json"}
        with pytest.raises(ConfigError, match="a batch write finishes its files: leave out"):
            query.run_batch_write("j", [[{"word": "a", "k": "x", "last": True}]])

    def test_do_no_jobs_of_streams(self, out: str) -> None:
        query = query_of(out, maxBatchesPerFile="1")
        query.run(0, [rows_of("a")])
        assert len(head_of(out).jobs) == 1
        query.options = {**query.options, "txnAppId": "app", "txnVersion": "1"}
        message = query.run_task(query.pickled_plan(), OperationIdentity("j"), 0, rows_of("b"))
        assert (message.rewritten, message.failed) == ((), ())
        commit_batch(FileSink(), query.config(), [message], None, current())
        assert head_of(out).transactions["app"].last == 1


class TestJobs:
    def test_what_is_left_of_a_job_is_planned_anew(self, out: str) -> None:
        """Somebody else took one of its two pieces."""
        query = query_of(out, maxBatchesPerFile="2")
        query.run(0, [rows_of("a")])
        query.run(1, [rows_of("b")])
        head = head_of(out)
        assert [len(job.inputs) for job in head.jobs] == [2]
        (job,) = jobs_of([head.jobs[0].inputs[0]], "age", ALL_END, current().ids)
        fs = open_filesystem(out)
        stage = Stage(fs, TaskIdentity(query.identity(2), 0, 0))
        done = Assembler(fs, stage, head.definitions, head.version).assemble(job)
        (part,) = done.adds
        assert (part.rows, len(part.ranges)) == (1, 1)
        query.commit(2, [replace(query.run_task(query.pickled_plan(), query.identity(2), 0, []), rewritten=(done,))])
        assert head_of(out).jobs == ()
        query.run(3, [rows_of("c")])
        query.run(4, [[]])
        assert sorted(files(out)) == [["a"], ["b", "c"]]

    def test_a_file_says_of_which_batches_it_is(self, out: str) -> None:
        query = query_of(out, maxBatchesPerFile="3")
        for number in range(4):
            query.run(number, [rows_of("a")])
        records = list(read_records(CommitLog(open_filesystem(out))))
        origins = [add.origin for record in records for add in record.adds if add.kind == "part"]
        assert origins == [Origin(query.query_id, 0, 2)]

    @pytest.mark.slow
    def test_storage_that_is_out_of_order_splits_no_file(
        self, out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        query = query_of(out, maxBatchesPerFile="5")
        for number in range(5):
            query.run(number, [rows_of(f"{number}")])

        def fail(*_: object) -> None:
            raise PermissionDenied("create", "staged", "out of order")

        create = Stage.create
        monkeypatch.setattr(Stage, "create", fail)
        for number in range(5, 12):
            query.run(number, [[]])
        monkeypatch.setattr(Stage, "create", create)
        assert [job.attempts for job in head_of(out).jobs] == [7]
        assert not [line for line in caplog.records if line.levelno >= logging.ERROR]
        query.run(12, [[]])
        assert files(out) == [["0", "1", "2", "3", "4"]]
