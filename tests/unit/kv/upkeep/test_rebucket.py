"""Another number of buckets: rows stay, writers with the old number fail, and a death changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ftfile import kv
from ftfile.core.errors import CommitError, ConfigError, CorruptData
from ftfile.kv.planning.runs import run_of
from ftfile.kv.upkeep import rebucket as module
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import current, open_filesystem
from tests.unit.kv.upkeep.stores import COLUMNS, PATH, counts, damage, rows_of, runs_of

if TYPE_CHECKING:
    from ftfile.testing.micro_batch import StoreBatch

WORDS = [f"w{number}" for number in range(40)]


def write(query: StoreBatch, batch: int) -> None:
    query.run(batch, [[{"word": word, "n": 1} for word in WORDS[batch:]]])


def expected(batches: int) -> dict[str, int]:
    return {word: min(number + 1, batches) for number, word in enumerate(WORDS)}


class TestRebucket:
    @pytest.mark.slow
    @pytest.mark.parametrize("buckets", [1, 2, 8, 32])
    def test_rows_stay_and_the_query_goes_on_with_the_new_number(self, buckets: int) -> None:
        query = counts(buckets="4")
        for batch in range(3):
            write(query, batch)
        report = kv.rebucket(PATH, buckets, context=current())
        assert (report.version, report.buckets, report.rows) == (3, buckets, len(WORDS))
        assert runs_of(PATH) == report.runs_written <= buckets
        assert {run_of(add).metadata.level for add in CommitLog(open_filesystem(PATH)).refresh().segments.values()} == {
            1
        }
        assert rows_of(PATH) == expected(3)
        assert rows_of(PATH, 2) == expected(3)
        assert CommitLog(open_filesystem(PATH)).refresh().jobs == ()
        query.restart()
        with pytest.raises(ConfigError, match=f"buckets: the store has {buckets}, and 4 is given"):
            write(query, 3)
        query.options = {**query.options, "buckets": str(buckets)}
        write(query, 3)
        assert rows_of(PATH) == expected(4)
        assert kv.rebucket(PATH, buckets, context=current()).version is None
        kv.compact(PATH, full=True, context=current())
        assert rows_of(PATH) == expected(4)

    def test_a_batch_under_way_fails(self) -> None:
        query = counts(buckets="4")
        write(query, 0)
        planned, writer = query.pickled_plan(), query.identity(1)
        message = query.run_task(planned, writer, 0, [{"word": "w0", "n": 1}])
        kv.rebucket(PATH, 8, context=current())
        with pytest.raises(ConfigError, match="buckets"):
            query.commit(1, [message])
        assert rows_of(PATH) == expected(1)

    @pytest.mark.slow
    def test_a_batch_that_came_first_is_taken_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        query = counts(buckets="4")
        write(query, 0)
        self._write_before_records(query, monkeypatch, times=2)
        assert kv.rebucket(PATH, 8, context=current()).version == 3
        assert rows_of(PATH) == expected(3)

    @pytest.mark.slow
    def test_batches_that_come_all_the_time_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        query = counts(buckets="4")
        write(query, 0)
        self._write_before_records(query, monkeypatch, times=100)
        with pytest.raises(CommitError, match="Stop the queries"):
            kv.rebucket(PATH, 8, context=current())
        assert rows_of(PATH) == expected(6)

    def _write_before_records(self, query: StoreBatch, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        write_runs = module._NewBuckets.write  # noqa: SLF001
        calls: list[int] = []

        def write_late(self: Any, head: Any) -> None:
            write_runs(self, head)
            calls.append(1)
            if len(calls) <= times:
                write(query, len(calls))

        monkeypatch.setattr(module._NewBuckets, "write", write_late)  # noqa: SLF001

    @pytest.mark.slow
    def test_who_dies_before_the_record_has_changed_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        query = counts(buckets="4")
        write(query, 0)

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(module._NewBuckets, "prepare", die)  # noqa: SLF001
        with pytest.raises(KeyboardInterrupt):
            kv.rebucket(PATH, 8, context=current())
        write(query, 1)
        assert rows_of(PATH) == expected(2)

    def test_damage_changes_nothing(self) -> None:
        query = counts(buckets="4")
        write(query, 0)
        damage(PATH, next(iter(CommitLog(open_filesystem(PATH)).refresh().segments.values())))
        with pytest.raises(CorruptData):
            kv.rebucket(PATH, 8, context=current())
        assert CommitLog(open_filesystem(PATH)).refresh().version == 0

    @pytest.mark.slow
    def test_purges_and_deletes_of_one_old_bucket_touch_no_other(self) -> None:
        query = counts(buckets="4", merge="last", deleteColumn="gone")
        query.columns = {**COLUMNS, "gone": "boolean"}
        rows = [{"word": word, "n": 1, "gone": False} for word in WORDS]
        query.run(0, [rows])
        kv.purge(PATH, "w2", "w3", context=current())
        query.run(1, [rows[:4]])
        query.run(2, [[{"word": "w0", "n": None, "gone": True}]])
        before = rows_of(PATH)
        kv.rebucket(PATH, 1, context=current())
        assert rows_of(PATH) == before
        assert sum(add.rows for add in CommitLog(open_filesystem(PATH)).refresh().segments.values()) == len(before)

    @pytest.mark.parametrize("buckets", [0, 3, 1 << 17])
    def test_a_power_of_two(self, buckets: int) -> None:
        with pytest.raises(ConfigError, match="power of two"):
            kv.rebucket(PATH, buckets, context=current())

    @pytest.mark.slow
    def test_memory_is_bounded_by_windows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        query = counts(buckets="1")
        query.run(0, [[{"word": f"w{number:05d}", "n": 1} for number in range(20_000)]])
        monkeypatch.setattr(module, "_WINDOW_BYTES", 1 << 14)
        monkeypatch.setattr(module, "_HELD_BYTES", 1 << 15)
        report = kv.rebucket(PATH, 4, context=current())
        assert report.runs_written >= 4 * 4
        assert len(rows_of(PATH)) == 20_000
        kv.compact(PATH, full=True, context=current())
        assert len(rows_of(PATH)) == 20_000
