"""Purges: one record ends rows in a range, even if rows are written, merged or lost around it."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError
from ftfile.kv.definition import define
from ftfile.kv.run import writer
from ftfile.kv.user_keys import UserKeys
from ftfile.testing.context import current
from tests.unit.kv.upkeep.stores import PATH, counts, rows_of

if TYPE_CHECKING:
    from ftfile.testing.micro_batch import StoreBatch

WORDS = [f"w{number}" for number in range(10)]


def write(query: StoreBatch, batch: int) -> None:
    query.run(batch, [[{"word": word, "n": 1} for word in WORDS]])


class TestPurge:
    @pytest.mark.slow
    def test_rows_end_and_later_ones_stay(self) -> None:
        query = counts(buckets="4")
        write(query, 0)
        report = kv.purge(PATH, "w2", "w5", context=current())
        assert report.version == 1
        assert 1 <= report.buckets <= 4
        left = {word: 1 for word in WORDS if not "w2" <= word < "w5"}
        assert rows_of(PATH) == left
        assert rows_of(PATH, 0) == dict.fromkeys(WORDS, 1)
        write(query, 1)
        assert rows_of(PATH) == {word: 1 + left.get(word, 0) for word in WORDS}
        kv.compact(PATH, full=True, context=current())
        assert rows_of(PATH) == {word: 1 + left.get(word, 0) for word in WORDS}

    def test_all_and_nothing(self) -> None:
        write(counts(buckets="4"), 0)
        assert kv.purge(PATH, "x", context=current()) == kv.upkeep.purge.PurgeReport()
        kv.purge(PATH, everything=True, context=current())
        assert rows_of(PATH) == {}

    @pytest.mark.slow
    def test_what_a_job_merged_meanwhile_is_ended_too(self) -> None:
        query = counts(buckets="1", flushIntervalCount="3")
        for batch in range(3):
            write(query, batch)
        planned, writer = query.pickled_plan(), query.identity(3)
        message = query.run_task(planned, writer, 0, [])
        assert message.rewritten
        kv.purge(PATH, "w3", context=current())
        done = query.commit(3, [message])
        assert done.record is not None
        assert done.record.removes
        assert rows_of(PATH) == dict.fromkeys(WORDS[:3], 3)

    @pytest.mark.slow
    def test_a_purge_across_cuts_is_in_all_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "BLOCK_BYTES", 4096)
        query = counts(buckets="1", flushIntervalCount="1000", maxFileSize="4096")
        words = [f"w{number:04d}" for number in range(3000)]
        for batch in range(2):
            query.run(batch, [[{"word": word, "n": 1} for word in words]])
        kv.purge(PATH, "w0100", "w2900", context=current())
        query.run(2, [[{"word": word, "n": 1} for word in words]])
        expected = {word: 1 if "w0100" <= word < "w2900" else 3 for word in words}
        report = kv.compact(PATH, full=True, context=current())
        assert report.records == 2
        for version in range(3, report.version + 1):
            assert rows_of(PATH, version) == expected

    def test_buckets_that_get_rows_before_the_record_are_purged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        query = counts(buckets="4")
        query.run(0, [[{"word": "w0", "n": 1}]])
        prepare = kv.upkeep.purge._PurgeRuns.prepare  # noqa: SLF001
        heads: list[int] = []

        def prepare_late(self: Any, head: Any, snapshot: Any) -> Any:
            body = prepare(self, head, snapshot)
            heads.append(head.version)
            if len(heads) == 1:
                write(query, 1)
            return body

        monkeypatch.setattr(kv.upkeep.purge._PurgeRuns, "prepare", prepare_late)  # noqa: SLF001
        assert kv.purge(PATH, everything=True, context=current()).version == 2
        assert heads == [0, 1]
        assert rows_of(PATH) == {}

    def test_it_ends_before_it_begins(self) -> None:
        write(counts(), 0)
        with pytest.raises(ConfigError, match="the range is empty"):
            kv.purge(PATH, "b", "a", context=current())


KINDS = {"a": pa.string(), "b": pa.int8(), "c": pa.bool_(), "d": pa.date32(), "e": pa.decimal128(3, 1)}


def a_range(keys: str, *arguments: Any) -> Any:
    definition = define(pa.schema([*((name, KINDS[name]) for name in keys), ("v", pa.int64())]), [*keys])
    return UserKeys(definition).range_of(*arguments)


class TestRange:
    def test_of_one_column(self) -> None:
        assert a_range("b", None, None) == ((), None)
        assert a_range("b", 3, 7) == ((3,), (7,))
        assert a_range("a", "x", None) == ((b"x",), None)

    def test_of_several_columns(self) -> None:
        assert a_range("ab", ("x", 3), "y") == ((b"x", 3), (b"y",))
        assert a_range("ab", 3, 7, ("x",)) == ((b"x", 3), (b"x", 7))
        assert a_range("ab", None, 7, ("x",)) == ((b"x",), (b"x", 7))
        assert a_range("ab", 3, None, ("x",)) == ((b"x", 3), (b"x\0",))
        assert a_range("ab", None, None, ("x",)) == ((b"x",), (b"x\0",))

    def test_the_greatest_value_has_another_one_behind_it_in_the_column_before(self) -> None:
        assert a_range("bc", None, None, (127, True)) == ((127, 1), None)
        assert a_range("abc", None, None, ("x", 127, True)) == ((b"x", 127, 1), (b"x\0",))
        assert a_range("bc", None, None, (126, True)) == ((126, 1), (127,))
        assert a_range("ed", None, None, (Decimal("99.9"),)) == ((999,), None)
        day = datetime.date(1970, 1, 2)
        assert a_range("de", None, None, (day,)) == ((1,), (2,))
