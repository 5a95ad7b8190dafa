"""The kit's batches do what Spark's do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import FtfileError, InvalidMessages, ReplayMismatch, Unavailable, UnknownQuery
from ftfile.storage.registry import known_schemes
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, SeededIds, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [{"id": 1, "word": "a"}, {"id": 2, "word": "b"}]


@pytest.fixture
def query(tmp_path: Path) -> MicroBatch:
    return MicroBatch(str(tmp_path / "out"), {"id": "long", "word": "string"}, {"fileFormat": "json"})


def seen(query: MicroBatch) -> list[dict[str, Any]]:
    """Every row that a plain lister sees."""
    report = check_directory(open_filesystem(query.path))
    rows = [json.loads(line) for content in report.visible.values() for line in content.splitlines()]
    return sorted(rows, key=lambda row: str(row["id"]))


class TestBatches:
    def test_rows_of_all_tasks_are_seen(self, query: MicroBatch) -> None:
        assert not query.run(0, [[ROWS[0]], [], [ROWS[1]]]).replayed
        assert seen(query) == ROWS

    def test_a_restarted_query_replays(self, query: MicroBatch) -> None:
        query.run(0, [ROWS])
        first_run = query.run_id
        query.restart()
        assert query.run_id != first_run
        assert query.run(0, [[ROWS[1]], [ROWS[0]]]).replayed
        assert seen(query) == ROWS

    def test_an_attempt_that_fails_leaves_nothing_to_see(self, query: MicroBatch) -> None:
        planned, writer = query.pickled_plan(), query.identity(0)
        with pytest.raises(ConnectionError):
            query.run_task(planned, writer, 0, ROWS, error=ConnectionError("executor lost"))
        message = query.run_task(planned, writer, 0, ROWS, attempt=1)
        assert message.identity.attempt == 1
        query.commit(0, [message])
        assert seen(query) == ROWS

    def test_a_losing_attempt_leaves_a_file_that_nobody_sees(self, query: MicroBatch) -> None:
        planned, writer = query.pickled_plan(), query.identity(0)
        loser, winner = (query.run_task(planned, writer, 0, ROWS, attempt) for attempt in range(2))
        query.commit(0, [winner])
        assert seen(query) == ROWS
        assert open_filesystem(query.path).exists(loser.parts[0].path)

    def test_a_task_is_tried_as_often_as_is_asked_for(self, query: MicroBatch) -> None:
        inner = CrashingFileSystem()
        failing = Fault(Unavailable, operations=frozenset({"create"}), path="*.staged", times=3)
        with mounted(FaultyFileSystem(inner, [failing])) as query.path:
            with pytest.raises(Unavailable):
                query.run(0, [ROWS])
            query.attempts = 3
            assert [message.identity.attempt for message in query.run_tasks(0, [ROWS])] == [2]

    def test_a_batch_write_is_a_commit_of_its_own(self, query: MicroBatch) -> None:
        for job in ("first", "second"):
            query.run_batch_write(job, [[ROWS[0]], [ROWS[1]]])
        assert seen(query) == [ROWS[0], ROWS[0], ROWS[1], ROWS[1]]


class Noted(MicroBatch):
    """Records the aborted messages."""

    def abort(self, batch_id: int, messages: Any) -> None:
        self.aborted = (batch_id, [message and message.identity.partition for message in messages])
        super().abort(batch_id, messages)


class TestAbort:
    def test_a_failing_task_aborts_the_batch_with_the_messages_so_far(self, tmp_path: Path) -> None:
        query = Noted(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "json"})
        with pytest.raises(Unavailable, match="gone"):
            query.run(0, [[{"id": 1}], _Unreadable()])
        assert query.aborted == (0, [0, None])

    def test_a_failing_commit_aborts_and_deletes_nothing(self) -> None:
        inner = CrashingFileSystem()
        failing = Fault(Unavailable, operations=frozenset({"create_exclusive"}), path="*.record", times=9)
        query = Noted("", {"id": "long"}, {"fileFormat": "json"})
        with repeatable(), mounted(FaultyFileSystem(inner, [failing])) as query.path:
            with pytest.raises(FtfileError, match=r"is unknown whether version .* was created"):
                query.run(0, [[{"id": 1}]])
            assert query.aborted == (0, [0])
            assert query.run(0, [[{"id": 1}]]).version == 0

    def test_messages_may_be_lost(self, query: MicroBatch) -> None:
        with pytest.raises(InvalidMessages):
            query.commit(0, [*query.run_tasks(0, [ROWS]), None])


class TestCheckpoint:
    @pytest.fixture
    def query(self, tmp_path: Path) -> MicroBatch:
        checkpoint = str(tmp_path / "checkpoint")
        return MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "json"}, checkpoint=checkpoint)

    def test_is_kept_as_spark_keeps_it(self, query: MicroBatch, tmp_path: Path) -> None:
        assert query.next_batch() == 0
        query.run(0, [[{"id": 1}]])
        assert query.next_batch() == 1
        files = {str(path.relative_to(tmp_path / "checkpoint")) for path in (tmp_path / "checkpoint").rglob("*")}
        assert files == {"metadata", "offsets", "offsets/0", "commits", "commits/0"}

    def test_offsets_are_in_the_log_and_stay_over_a_replay(self, query: MicroBatch, tmp_path: Path) -> None:
        query.run(0, [[{"id": 1}]])
        (tmp_path / "checkpoint/commits/0").unlink()
        query.restart()
        assert query.run(query.next_batch(), [[{"id": 2}]]).replayed, "equal offsets are the same batch"
        author = check_directory(open_filesystem(query.path)).authors[0]
        assert getattr(author, "offsets", None) == [{"batch": 0}]

    def test_a_failing_batch_is_not_recorded(self, query: MicroBatch) -> None:
        with pytest.raises(Unavailable, match="gone"):
            query.run(0, [_Unreadable()])
        assert query.next_batch() == 0

    def test_another_history_is_seen(self, query: MicroBatch, tmp_path: Path) -> None:
        query.run(0, [[{"id": 1}]])
        (tmp_path / "checkpoint").rename(tmp_path / "old")
        with pytest.raises(ReplayMismatch), repeatable(ManualClock(5)):
            query.run(0, [[{"id": 1}]])

    def test_another_query_is_seen_early(self, query: MicroBatch, tmp_path: Path) -> None:
        query.run(0, [[{"id": 1}]])
        (tmp_path / "checkpoint").rename(tmp_path / "old")
        query.query_id = "another"
        with pytest.raises(UnknownQuery):
            query.run(0, [[{"id": 1}]])

    def test_what_a_killed_process_left_is_no_batch(self, query: MicroBatch, tmp_path: Path) -> None:
        query.run(0, [[{"id": 1}]])
        (tmp_path / "checkpoint" / "commits" / ".0badcafe.tmp").write_bytes(b"v1")
        assert query.next_batch() == 1

    def test_without_one_there_is_no_next_batch(self) -> None:
        with pytest.raises(ValueError, match="keeps no checkpoint"):
            MicroBatch("/nowhere", {"id": "long"}).next_batch()


class _Unreadable(list[dict[str, Any]]):
    """Rows whose source fails."""

    def __iter__(self) -> Any:
        raise Unavailable("read", "source", "gone")


class TestMounted:
    def test_a_url_for_any_file_system(self) -> None:
        fs = MemoryFileSystem("mounted")
        with mounted(fs) as url:
            open_filesystem(f"{url}/a/b").make_directories("")
            open_filesystem(url).create_exclusive("a/b/c", b"x")
            assert fs.read("a/b/c") == b"x"
            assert open_filesystem(f"{url}/a/b").read("c") == b"x"
            assert url.partition(":")[0] in known_schemes()
        assert url.partition(":")[0] not in known_schemes()
        MemoryFileSystem.drop("mounted")


class TestRepeatable:
    def run(self, seed: int) -> bytes:
        fs = CrashingFileSystem(clock=ManualClock())
        with repeatable(ManualClock(), SeededIds(seed)), mounted(fs) as url:
            query = MicroBatch(url, {"id": "long"}, {"fileFormat": "json"})
            query.run(0, [[{"id": 1}], [{"id": 2}]])
        return fs.digest()

    def test_runs_are_equal_to_the_byte(self) -> None:
        assert self.run(1) == self.run(1) != self.run(2)

    def test_nobody_waits(self) -> None:
        clock = ManualClock()
        always = Fault(Unavailable, operations=frozenset({"list"}), times=10**9)
        unavailable = FaultyFileSystem(CrashingFileSystem(), [always])
        with repeatable(clock), mounted(unavailable) as url, pytest.raises(Unavailable):
            MicroBatch(url, {"id": "long"}, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
        assert sum(clock.slept_s) > 1
