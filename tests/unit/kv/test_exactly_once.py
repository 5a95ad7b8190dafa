"""A batch of a store is there once, however often and however its tasks, its driver and Spark run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import FtfileError, InvalidMessages, ReplayMismatch, UnknownQuery
from ftfile.testing.context import current
from tests.unit.kv.stores import SECOND, counting, head_of, query_of, rows, rows_of

if TYPE_CHECKING:
    from ftfile.log.protocol import Committed


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


class TestReplay:
    @pytest.mark.slow
    def test_partitioned_otherwise(self, out: str) -> None:
        query = counting(out)
        assert not query.run(0, [rows("a", "b", "a"), rows("b", "c")]).replayed
        query.restart()
        assert query.run(0, [rows("b"), rows("c"), rows("a", "a", "b")]).replayed
        assert rows_of(out) == {"a": 2, "b": 2, "c": 1}
        assert not query.run(1, [rows("a")]).replayed
        assert rows_of(out) == {"a": 3, "b": 2, "c": 1}

    def test_of_an_older_batch(self, out: str) -> None:
        query = counting(out)
        for batch in range(3):
            query.run(batch, [rows("a")])
        query.restart()
        assert query.run(1, [rows("a")]).replayed
        assert rows_of(out) == {"a": 3}

    def test_tasks_of_a_committed_batch_write_nothing(self, out: str) -> None:
        query = counting(out)
        query.run(0, [rows("a")])
        before = sorted(Path(out).rglob("*"))
        messages = query.run_tasks(0, [rows("a")])
        assert messages[0].found_committed
        assert not messages[0].segments
        assert sorted(Path(out).rglob("*")) == before

    def test_tasks_notice_a_commit_after_the_plan(self, out: str) -> None:
        query = counting(out)
        planned = query.pickled_plan()
        query.run(0, [rows("a")])
        assert query.run_task(planned, query.identity(0), 0, rows("a"), attempt=1).found_committed
        first = query.run_task(planned, query.identity(0), 0, rows("a"))
        assert not first.found_committed
        assert query.commit(0, [first]).replayed
        assert rows_of(out) == {"a": 1}

    def test_with_other_rows_is_refused(self, out: str) -> None:
        query = counting(out)
        query.run(0, [rows("a")])
        query.restart()
        with pytest.raises(ReplayMismatch):
            query.run(0, [rows("b")])
        assert rows_of(out) == {"a": 1}

    def test_by_offsets(self, out: str, tmp_path: Path) -> None:
        query = counting(out)
        query.checkpoint = str(tmp_path / "checkpoint")
        query.run(0, [rows("a")])
        query.restart()
        assert query.run(0, [rows("a")]).replayed
        assert rows_of(out) == {"a": 1}

    @pytest.mark.slow
    def test_one_task_alone_commits_nothing(self, out: str) -> None:
        query, other = counting(out), counting(f"{out}-restored")
        query.run(0, [rows("a"), rows("b")])
        found = query.run_task(query.pickled_plan(), query.identity(0), 0, rows("a"))
        message = other.run_task(other.pickled_plan(), other.identity(0), 1, rows("b"))
        with pytest.raises(InvalidMessages, match="wrote nothing because this batch was in the log"):
            other.commit(0, [found, message])


class TestDrivers:
    def test_one_that_died_before_the_record(self, out: str) -> None:
        query = counting(out)
        query.run_tasks(0, [rows("a"), rows("b")])
        query.restart()
        query.run(0, [rows("a", "b")])
        assert rows_of(out) == {"a": 1, "b": 1}

    def test_one_that_died_after_the_record(self, out: str) -> None:
        query = counting(out)
        messages = query.run_tasks(0, [rows("a"), rows("b")])
        query.commit(0, list(messages))
        query.restart()
        assert query.run(0, [rows("b", "a")]).replayed
        assert rows_of(out) == {"a": 1, "b": 1}

    def test_one_that_commits_twice(self, out: str) -> None:
        query = counting(out)
        messages = query.run_tasks(0, [rows("a")])
        assert [query.commit(0, list(messages)).replayed for _ in range(2)] == [False, True]
        assert rows_of(out) == {"a": 1}

    def test_abort_deletes_nothing(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = counting(out)
        messages = query.run_tasks(0, [rows("a"), rows("b")])
        query.abort(0, list(messages))
        assert "batch 0. It is not committed; 2 staged files stay" in caplog.text
        query.commit(0, list(messages))
        query.abort(0, list(messages))
        assert "batch 0 is committed as version 0" in caplog.text
        assert rows_of(out) == {"a": 1, "b": 1}


class TestAttempts:
    def test_two_of_one_task(self, out: str) -> None:
        query = counting(out)
        planned, writer = query.pickled_plan(), query.identity(0)
        first, second = (query.run_task(planned, writer, 0, rows("a", "b"), attempt) for attempt in range(2))
        with pytest.raises(InvalidMessages, match="two messages of one partition"):
            query.commit(0, [first, second])
        query.commit(0, [second])
        assert rows_of(out) == {"a": 1, "b": 1}

    def test_one_that_fails_leaves_no_file(self, out: str) -> None:
        query = counting(out)
        planned, writer = query.pickled_plan(), query.identity(0)
        with pytest.raises(ConnectionError):
            query.run_task(planned, writer, 0, rows("a"), error=ConnectionError("executor lost"))
        assert not [*Path(out).rglob("*.spool")]
        query.commit(0, [query.run_task(planned, writer, 0, rows("a"), attempt=1)])
        assert rows_of(out) == {"a": 1}

    def test_a_missing_message_commits_nothing(self, out: str) -> None:
        query = counting(out)
        messages = query.run_tasks(0, [rows("a"), rows("b")])
        with pytest.raises(InvalidMessages, match="1 of 2 tasks"):
            query.commit(0, [messages[0], None])
        assert head_of(out).version == -1

    def test_a_batch_without_rows_is_recorded(self, out: str) -> None:
        query = counting(out)
        assert query.run(0, [[], []]).version == 0
        assert not [*Path(out).rglob("*.spool")]
        assert query.run(1, [rows("a")]).version == 1
        assert rows_of(out) == {"a": 1}


class TestTransactions:
    def write(self, out: str, version: int, app: str = "app", **options: str) -> Committed:
        query = counting(out, txnAppId=app, txnVersion=str(version), **options)
        return query.run_batch_write(current().ids.unique(), [rows("a"), rows("a", "b")])

    @pytest.mark.slow
    def test_a_repeated_write_is_found(self, out: str) -> None:
        assert [self.write(out, version).replayed for version in (3, 3, 4, 3)] == [False, True, False, True]
        assert rows_of(out) == {"a": 4, "b": 2}

    @pytest.mark.slow
    def test_applications_do_not_know_each_other(self, out: str) -> None:
        assert not self.write(out, 0).replayed
        assert not self.write(out, 0, "other").replayed
        assert rows_of(out) == {"a": 4, "b": 2}

    def test_without_one_a_write_is_new_each_time(self, out: str) -> None:
        for job in ("one", "two"):
            counting(out).run_batch_write(job, [rows("a")])
        assert rows_of(out) == {"a": 2}


class TestQueries:
    @pytest.mark.slow
    def test_two_write_to_one_store_in_the_order_of_versions(self, out: str) -> None:
        first = query_of(out)
        second = query_of(out, query_id=SECOND, onNewQuery="continue")
        first.run(0, [rows("a", "b", n=1)])
        late = first.run_tasks(1, [rows("a", n=2)])
        second.run(0, [rows("a", "c", n=3)])
        first.commit(1, list(late))
        assert rows_of(out) == {"a": 2, "b": 1, "c": 3}
        second.restart()
        assert second.run(0, [rows("a", "c", n=3)]).replayed
        assert rows_of(out) == {"a": 2, "b": 1, "c": 3}

    def test_a_second_one_must_be_wanted(self, out: str) -> None:
        counting(out).run(0, [rows("a")])
        with pytest.raises(UnknownQuery):
            counting(out, SECOND).run(0, [rows("a")])

    @pytest.mark.slow
    def test_races_between_them(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The version for which runs got their positions is another's: they get those of the next one."""
        from ftfile.log.commit_log import CommitLog

        first, second = counting(out), counting(out, SECOND, onNewQuery="continue")
        first.run(0, [rows("a")])
        create = CommitLog.create
        calls: list[Any] = []

        def create_after_another(self: CommitLog, record: Any) -> Any:
            if not calls:
                calls.append(record)
                second.run(0, [rows("a", "b")])
            return create(self, record)

        monkeypatch.setattr(CommitLog, "create", create_after_another)
        assert first.run(1, [rows("a")]).version == 2
        assert rows_of(out) == {"a": 3, "b": 1}
        at = {add.rolling_stats["at"][0] >> 20 for add in head_of(out).segments.values()}
        assert at == {0, 1, 2}


def test_an_error_of_the_commit_is_told(out: str) -> None:
    query = counting(out)
    with pytest.raises(FtfileError, match="batch 1 cannot be committed with the messages of batch 0"):
        query.commit(1, list(query.run_tasks(0, [rows("a")])))
