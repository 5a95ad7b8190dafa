"""Merging runs without a batch: rows stay, runs become few, failures leave the rest alone."""

from __future__ import annotations

from collections import Counter

import pytest

from ftfile import kv
from ftfile.commit.log.log import CommitLog
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.kv.planning import plan
from ftfile.kv.upkeep.due import merge_due
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from tests.unit.kv.upkeep.stores import COLUMNS, PATH, counts, damage, rows_of, runs_of


@pytest.fixture
def query() -> StoreBatch:
    """A store of four buckets, whose jobs wait for kv.compact."""
    return counts(buckets="4", flushIntervalCount="1000")


def write(query: StoreBatch, batches: int, words: int = 20) -> dict[str, int]:
    expected: dict[str, int] = {}
    for batch in range(batches):
        found = [f"w{number % words}" for number in range(batch, batch + words // 2)]
        query.run(batch, [[{"word": word, "n": 1} for word in found]])
        for word in found:
            expected[word] = expected.get(word, 0) + 1
    return expected


class TestCompact:
    def test_nothing_due_is_no_record(self, query: StoreBatch) -> None:
        write(query, 3)
        report = kv.compact(PATH, context=current())
        assert (report.records, report.version) == (0, 2)

    def test_what_is_due_is_merged_until_nothing_is(self) -> None:
        query = counts(buckets="4", flushIntervalCount="4")
        expected = write(query, 4)
        before = runs_of(PATH)
        report = kv.compact(PATH, context=current())
        assert report.records == 1
        assert report.runs_replaced == before - runs_of(PATH) + report.runs_written
        assert runs_of(PATH) < before / 2
        assert rows_of(PATH) == expected
        assert kv.compact(PATH, context=current()).records == 0

    def test_full_leaves_a_run_a_bucket_without_deletes(self) -> None:
        query = counts(buckets="2", deleteColumn="gone", flushIntervalCount="1000", merge="last")
        query.columns = {**COLUMNS, "gone": "boolean"}
        query.run(0, [[{"word": f"w{number}", "n": number, "gone": False} for number in range(9)]])
        query.run(1, [[{"word": f"w{number}", "n": None, "gone": True} for number in range(3)]])
        report = kv.compact(PATH, full=True, context=current())
        assert report.records == 1
        assert runs_of(PATH) == 2
        assert rows_of(PATH) == {f"w{number}": number for number in range(3, 9)}
        assert sum(add.rows for add in CommitLog(open_filesystem(PATH)).read_on().segments.values()) == 6
        assert kv.compact(PATH, full=True, context=current()).records == 0

    def test_a_large_bucket_takes_several_records(self) -> None:
        query = counts(buckets="1", flushIntervalCount="1000", jobBytes="4096", maxFileSize="4096", blockBytes="4096")
        expected = write(query, 3, words=4000)
        report = kv.compact(PATH, full=True, context=current())
        assert report.records > 2
        assert rows_of(PATH) == expected
        assert kv.compact(PATH, full=True, context=current()).records == 0

    def test_batches_go_on_meanwhile(self, query: StoreBatch) -> None:
        write(query, 3)
        planned, writer = query.plan(), query.identity(3)
        message = query.run_task(planned, writer, 0, [{"word": "w0", "n": 10}])
        before = rows_of(PATH)
        kv.compact(PATH, full=True, context=current())
        query.commit(3, [message])
        assert rows_of(PATH) == before | {"w0": before["w0"] + 10}

    def test_runs_that_a_batch_merged_first_are_left_to_it(self) -> None:
        query = counts(buckets="1", flushIntervalCount="3")
        expected = write(query, 3)
        planned, writer = query.plan(), query.identity(3)
        message = query.run_task(planned, writer, 0, [])
        assert message.rewritten
        kv.compact(PATH, context=current())
        done = query.commit(3, [message])
        assert done.record is not None
        assert not done.record.removes
        assert rows_of(PATH) == expected

    def test_a_damaged_bucket_leaves_the_others(self, query: StoreBatch) -> None:
        write(query, 3)
        damage(PATH, next(iter(CommitLog(open_filesystem(PATH)).read_on().segments.values())))
        with pytest.raises(CorruptData):
            kv.compact(PATH, full=True, context=current())
        assert runs_of(PATH) == 3 + 3

    def test_more_damaged_buckets_than_a_record_names_leave_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "_RUNS_MAX", 8)
        write(counts(buckets="4", flushIntervalCount="4"), 4)
        adds = [*CommitLog(open_filesystem(PATH)).read_on().segments.values()]
        *broken, whole = sorted({add.bucket for add in adds})
        for bucket in broken:
            damage(PATH, next(add for add in adds if add.bucket == bucket))
        with pytest.raises(CorruptData):
            kv.compact(PATH, context=current())
        left = Counter(add.bucket for add in CommitLog(open_filesystem(PATH)).read_on().segments.values())
        assert left == {**Counter(add.bucket for add in adds), whole: 1}

    def test_it_is_for_stores(self) -> None:
        with pytest.raises(ConfigError, match="no store"):
            kv.compact("memory://nowhere/x", context=current())
        MicroBatch("memory://files/x", {"id": "long"}, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
        with pytest.raises(ConfigError, match="directory of files"):
            kv.compact("memory://files/x", context=current())


class TestRunDue:
    def test_it_leaves_nothing_due_and_raises_nothing(self) -> None:
        query = counts(buckets="4", flushIntervalCount="4")
        expected = write(query, 4)
        log = CommitLog(open_filesystem(PATH))
        assert [merge_due(log).records for _ in range(2)] == [1, 0]
        assert rows_of(PATH) == expected
