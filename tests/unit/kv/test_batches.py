"""The rows of a store after batches: order, deletes, merges, bad records, overwrites, changes of the schema."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile.kv
from ftfile import kv
from ftfile.core.errors import ConfigError, EncodingError, SchemaError
from ftfile.kv.definition import DELETE, DELETED_MS, MERGE, SET
from ftfile.kv.planning.runs import run_of
from ftfile.kv.upkeep.rebucket import rebucket
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.writing.batch import commit_batch
from ftfile.writing.messages import TaskIdentity
from ftfile.writing.task import write_task
from tests.unit.kv.stores import FIRST, SECOND, counting, head_of, query_of, rows, rows_of, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.log.state import LogState
    from ftfile.writing.messages import TaskCommit

DELETING = {"k": "string", "n": "long", "gone": "boolean"}
TIMED = {"k": "string", "at": "long", "text": "string", "gone": "boolean"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def ops_of(path: str) -> set[int]:
    return {add.rolling_stats["ops"] for add in head_of(path).segments.values()}


class TestOrder:
    @pytest.mark.slow
    def test_is_partition_and_then_row(self, out: str) -> None:
        """All tasks write to one bucket."""
        query = query_of(out, buckets="1")
        tasks = [rows("a", "b", n=1) + rows("a", n=2), rows("b", n=3), rows("c", n=4) + rows("c", n=5)]
        query.run(0, tasks)
        assert rows_of(out) == {"a": 2, "b": 3, "c": 5}
        query.run(1, tasks[::-1])
        assert rows_of(out) == {"a": 2, "b": 1, "c": 5}

    def test_messages_may_come_in_any_order(self, out: str) -> None:
        query = query_of(out)
        messages = query.run_tasks(0, [rows("a", n=1), rows("a", n=2), rows("a", n=3)])
        query.commit(0, messages[::-1])
        assert rows_of(out) == {"a": 3}

    @pytest.mark.slow
    def test_rows_beyond_the_memory_of_a_task_become_further_runs(self, out: str) -> None:
        query = query_of(out, buckets="1", maxOpenBytes="4000")
        schema = query.config().schema
        batches = [pa.RecordBatch.from_pylist(rows(*"abc", n=number), schema=schema) for number in range(200)]
        message = write_task(query.plan(), TaskIdentity(query.identity(0), 0, 0), batches, current())
        assert 3 < len(message.segments) < 100
        query.commit(0, [message])
        assert rows_of(out) == {"a": 199, "b": 199, "c": 199}
        assert len({add.path for add in head_of(out).segments.values()}) == 1

    def test_slices_of_a_batch_count_for_their_own_rows(self, out: str) -> None:
        query = query_of(out, buckets="1", maxOpenBytes="100000")
        whole = pa.RecordBatch.from_pylist(rows(*(f"{number}" for number in range(1000))), schema=query.config().schema)
        slices = [whole.slice(start, 50) for start in range(0, 1000, 50)]
        message = write_task(query.plan(), TaskIdentity(query.identity(0), 0, 0), slices, current())
        assert len(message.segments) == 1

    @pytest.mark.slow
    def test_a_batch_that_scatters_rows_is_warned_of(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = query_of(out, buckets="1")
        query.run(0, [rows("a")] * 4)
        assert "runs for 1 buckets" not in caplog.text
        query.run(1, [rows("a")] * 5)
        assert "a batch writes 5 runs for 1 buckets" in caplog.text
        assert 'repartition(n, expr("pmod(xxhash64(k), 1)"))' in caplog.text


class TestKeys:
    @pytest.mark.slow
    def test_of_several_columns_and_types(self, out: str) -> None:
        columns = {
            "n": "long",
            "s": "string",
            "b": "binary",
            "i": "integer",
            "y": "byte",
            "d": "date",
            "t": "timestamp",
            "u": "timestamp_ntz",
            "x": "decimal(18,3)",
            "f": "boolean",
        }
        keys = [name for name in columns if name != "n"]
        query = query_of(out, columns, keyColumns=",".join(keys), bucketBy="s,x", merge="sum")
        row = {
            "s": "é",
            "b": b"\x00\xff",
            "i": -1,
            "y": 7,
            "d": datetime.date(1969, 12, 31),
            "t": datetime.datetime(2024, 1, 2, 3, 4, 5, 6, datetime.timezone.utc),
            "u": datetime.datetime(1900, 1, 1),  # noqa: DTZ001
            "x": Decimal("-123456789012345.678"),
            "f": False,
        }
        others = [row | change for change in ({"s": ""}, {"b": b""}, {"y": -7}, {"f": True}, {"x": Decimal(0)})]
        for batch in range(2):
            query.run(batch, [[each | {"n": 1} for each in (row, *others)], [row | {"n": 5}]])
        expected = {tuple(each.values()): 2 for each in others} | {tuple(row.values()): 12}
        assert rows_of(out) == expected

    def test_columns_of_rows_may_be_in_any_order(self, out: str) -> None:
        query_of(out).run(0, [rows("a")])
        query = query_of(out, {"n": "long", "k": "string"})
        query.run(1, [[{"n": 5, "k": "b"}]])
        assert rows_of(out) == {"a": 1, "b": 5}
        assert len({add.encoding for add in head_of(out).segments.values()}) == 1


class TestDeletes:
    def query(self, out: str, **options: str) -> StoreBatch:
        return query_of(out, DELETING, deleteColumn="gone", **options)

    def row(self, key: str, n: int | None = None, *, gone: bool | None = False) -> dict[str, Any]:
        return {"k": key, "n": n, "gone": gone}

    @pytest.mark.slow
    def test_the_last_row_of_a_key_counts(self, out: str) -> None:
        query = self.query(out)
        query.run(0, [[self.row(key, 1) for key in "abcd"]])
        query.run(1, [[self.row("a", 9, gone=True), self.row("b", gone=True), self.row("x", gone=True)]])
        assert rows_of(out) == {"c": 1, "d": 1}
        query.run(2, [[self.row("a", 2), self.row("c", gone=True)], [self.row("d", 1, gone=None)]])
        assert rows_of(out) == {"a": 2, "d": 1}
        assert ops_of(out) <= {1 << SET, 1 << DELETE, 1 << SET | 1 << DELETE}

    def test_they_have_no_values(self, out: str) -> None:
        self.query(out, buckets="1").run(0, [[self.row("a", 1), self.row("b", 9, gone=True)]])
        (add,) = head_of(out).segments.values()
        assert table_of(open_filesystem(out), add).to_pylist() == [
            {"k": "a", "n": 1, "_op": SET},
            {"k": "b", "n": None, "_op": DELETE},
        ]

    def test_they_end_what_was_merged_before(self, out: str) -> None:
        query = self.query(out, merge="n:sum")
        query.run(0, [[self.row("a", 1), self.row("a", 2), self.row("b", 1)]])
        query.run(1, [[self.row("a", gone=True), self.row("a", 5)], [self.row("a", 1), self.row("b", 1)]])
        assert rows_of(out) == {"a": 6, "b": 2}

    @pytest.mark.slow
    def test_in_every_run_of_a_job(self, out: str) -> None:
        query = self.query(out, flushIntervalCount="2")
        for batch in range(8):
            query.run(batch, [[self.row("a", batch), self.row("b", batch, gone=batch % 2 == 1)]])
        assert rows_of(out) == {"a": 7}


class TestMerges:
    def test_by_column(self, out: str) -> None:
        texts = {"type": "array", "elementType": "string", "containsNull": True}
        columns: dict[str, Any] = {"k": "string", "n": "integer", "seen": "timestamp", "tags": texts, "last": "string"}
        query = query_of(out, columns, merge="n:sum,seen:max,tags:append")
        when = [datetime.datetime(2024, 1, day, tzinfo=datetime.timezone.utc) for day in (1, 2, 3)]

        def row(n: int | None, day: int, tag: str, last: str | None) -> dict[str, Any]:
            return {"k": "a", "n": n, "seen": when[day], "tags": [tag], "last": last}

        query.run(0, [[row(1, 2, "x", "old")], [row(None, 0, "y", "newer")]])
        query.run(1, [[row(2**31 - 1, 1, "z", None)]])
        assert rows_of(out) == {"a": (2**31, when[2], ["x", "y", "z"], None)}
        assert ops_of(out) == {1 << MERGE}

    def test_a_sum_above_64_bits_fails_its_batch_and_names_the_key(self, out: str) -> None:
        query = counting(out)
        with pytest.raises(EncodingError, match="'a'"):
            query.run(0, [rows("a", "a", n=2**62) + rows("b")])
        assert head_of(out).version == -1

    @pytest.mark.slow
    def test_are_done_by_jobs_of_later_batches(self, out: str) -> None:
        query = counting(out, flushIntervalCount="4")
        counts: dict[str, int] = {}
        for batch in range(30):
            keys = [f"key {(batch * 7 + number) % 23}" for number in range(9)]
            query.run(batch, [rows(*keys[:5]), rows(*keys[5:])])
            for key in keys:
                counts[key] = counts.get(key, 0) + 1
        assert rows_of(out) == counts
        assert len(head_of(out).segments) < 40

    @pytest.mark.slow
    def test_jobs_are_done_by_batch_writes_as_well(self, out: str) -> None:
        query = counting(out, flushIntervalCount="4")
        for job in range(30):
            query.run_batch_write(f"job {job}", [rows("a", "b", "c")])
        assert rows_of(out) == dict.fromkeys("abc", 30)
        assert len(head_of(out).segments) < 30


class TestJobs:
    @pytest.mark.slow
    def test_one_that_fails_fails_no_batch(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = counting(out, buckets="1", flushIntervalCount="4")
        for batch in range(4):
            query.run(batch, [rows("a")])
        _, damaged, *_ = head_of(out).segments.values()
        spool = Path(out, damaged.path)
        content = spool.read_bytes()
        spool.write_bytes(bytes(len(content)))
        query.run(4, [rows("a")])
        assert damaged.path in caplog.text
        (again,) = [task for task in head_of(out).jobs if task.attempts]
        assert (again.id, again.attempts) == (damaged.id, 1)
        spool.write_bytes(content)
        query.run(5, [rows("a")])
        assert rows_of(out) == {"a": 6}
        assert not any(task.attempts for task in head_of(out).jobs)

    @pytest.mark.slow
    def test_one_that_fails_for_ever_keeps_no_other_bucket_from_its_turn(self, out: str) -> None:
        query, words = counting(out, buckets="4", flushIntervalCount="4"), [*"abcdefghijklmnop"]
        for batch in range(4):
            query.run(batch, [rows(*words)])
        broken = next(add for add in head_of(out).segments.values() if add.directory_key == "b=00000")
        spool = Path(out, broken.path)
        content = bytearray(spool.read_bytes())
        content[broken.offset + broken.length // 2] ^= 1
        spool.write_bytes(content)
        for batch in range(4, 40):
            query.run(batch, [rows(*words)])
        counts = Counter(add.directory_key for add in head_of(out).segments.values())
        assert len(counts) == 4
        assert max(counts.values()) < 15

    def moved_on(self, query: StoreBatch, while_it_writes: Callable[[], object]) -> TaskCommit:
        """Write as the only task of the next batch, while something happens behind the head that the task knows."""

        def batches() -> Iterator[pa.RecordBatch]:
            while_it_writes()
            yield pa.RecordBatch.from_pylist(rows("a"), schema=query.config().schema)

        return write_task(query.plan(), TaskIdentity(query.identity(2), 0, 0), batches(), current())

    def test_a_task_whose_head_has_moved_on_compacts_what_is_there(self, out: str) -> None:
        options = {"buckets": "1", "flushIntervalCount": "2", "onNewQuery": "continue"}
        query, other = (counting(out, each, **options) for each in (FIRST, SECOND))
        query.run(0, [rows("a")])
        late = other.run_tasks(0, [rows("a")])
        query.run(1, [rows("a")])
        message = self.moved_on(query, lambda: other.commit(0, late))
        (rewrite,) = message.rewritten
        assert [run_of(add).metadata.at[0] >> 20 for add in rewrite.inputs] == [0, 1, 2]
        query.commit(2, [message])
        assert len(head_of(out).segments) == 2
        assert rows_of(out) == {"a": 4}

    def test_what_is_done_already_is_passed_over(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = counting(out, buckets="1", flushIntervalCount="2")
        for batch in range(2):
            query.run(batch, [rows("a")])
        message = self.moved_on(query, lambda: kv.compact(out, context=current()))
        assert (message.rewritten, message.failed) == ((), ())
        assert not caplog.records
        query.commit(2, [message])
        assert rows_of(out) == {"a": 3}

    def test_a_task_without_a_share_reads_no_state(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        query = counting(out, buckets="1", flushIntervalCount="2")
        for batch in range(2):
            query.run(batch, [rows("a")])
        planned, writer = query.pickled_plan(), query.identity(2)
        states: list[int] = []
        honest = CommitLog.refresh

        def refresh(self: CommitLog, *, durable: bool = False) -> LogState:
            state = honest(self, durable=durable)
            states.append(len(state.segments))
            return state

        monkeypatch.setattr(CommitLog, "refresh", refresh)
        messages = [query.run_task(planned, writer, partition, rows("a")) for partition in (1, 0)]
        assert [len(message.rewritten) for message in messages] == [0, 1]
        assert states == [0, 0, 2], "a view has no runs"

    @pytest.mark.slow
    def test_a_record_names_what_is_due_in_a_few_bytes(self, out: str) -> None:
        query = counting(out, buckets="16")
        words = [f"word {number}" for number in range(200)]
        for batch in range(16):
            query.run(batch, [rows(*words)])
        with kv.KeyValueStore(out, writer="w", maintenance="none", context=current()) as store:
            store.merge("word 0", 1)
            store.commit()
        head = head_of(out)
        assert len(head.jobs) == 16
        assert len(head.segments) == 16 * 16 + 1
        assert Path(out, layout.record_path(head.version)).stat().st_size < 8 << 10

    @pytest.mark.slow
    def test_done_by_two_attempts_are_taken_once(self, out: str) -> None:
        query = counting(out, buckets="1", flushIntervalCount="2")
        for batch in range(2):
            query.run(batch, [rows("a")])
        planned, writer = query.pickled_plan(), query.identity(2)
        first, second = (query.run_task(planned, writer, 0, rows("a"), attempt) for attempt in range(2))
        assert first.rewritten
        assert second.rewritten
        query.commit(2, [first])
        late = query_of(out, merge="n:sum").run_task(planned, query.identity(3), 0, rows("a"), attempt=1)
        assert late.rewritten == () or late.rewritten[0].inputs == first.rewritten[0].inputs
        query.commit(3, [late])
        assert rows_of(out) == {"a": 4}

    def test_of_what_an_overwrite_replaced_are_dropped(self, out: str) -> None:
        query = counting(out, buckets="1", flushIntervalCount="2")
        for batch in range(2):
            query.run(batch, [rows("a")])
        late = query.run_tasks(2, [rows("b")])
        assert late[0].rewritten
        replacing = counting(out, buckets="1")
        replacing.overwrite = True
        replacing.run_batch_write("job", [rows("c")])
        query.commit(2, list(late))
        assert rows_of(out) == {"b": 1, "c": 1}


class TestSequence:
    def query(self, out: str, **options: str) -> StoreBatch:
        return query_of(out, TIMED, sequenceColumn="at", deleteColumn="gone", **options)

    def row(self, key: str, at: int | None, text: str | None = None, *, gone: bool = False) -> dict[str, Any]:
        return {"k": key, "at": at, "text": text or f"{key} at {at}", "gone": gone}

    def test_the_greatest_wins_across_batches(self, out: str) -> None:
        query = self.query(out)
        query.run(0, [[self.row("a", 5), self.row("a", 3), self.row("b", 1)]])
        query.run(1, [[self.row("a", 4), self.row("b", 1, "later")]])
        assert rows_of(out) == {"a": (5, "a at 5"), "b": (1, "later")}

    @pytest.mark.slow
    def test_a_late_row_stays_deleted(self, out: str) -> None:
        query = self.query(out, buckets="1", flushIntervalCount="2")
        with repeatable(ManualClock()) as context:
            query.run(0, [[self.row("a", 5), self.row("b", 5)]])
            query.run(1, [[self.row("a", 7, gone=True), self.row("b", 4, gone=True)]])
            deleted_ms = context.clock.now_ms()
            (add,) = [each for each in head_of(out).segments.values() if each.origin.last_batch == 1]
            found = table_of(open_filesystem(out), add).to_pylist()
            for batch in range(2, 6):
                query.run(batch, [[self.row("a", 6)]])
        assert found[0] == {"k": "a", "at": 7, "text": None, DELETED_MS: deleted_ms, "_op": DELETE}
        assert rows_of(out) == {"b": (5, "b at 5")}
        query.run(6, [[self.row("a", 8)]])
        assert rows_of(out) == {"a": (8, "a at 8"), "b": (5, "b at 5")}

    def test_without_it_a_row_is_bad(self, out: str) -> None:
        with pytest.raises(EncodingError, match="column 'at' is null, and sequenceColumn names it"):
            self.query(out).run(0, [[self.row("a", None)]])


class TestBadRecords:
    BAD = (
        {"k": None, "n": 1},
        {"k": "x" * 2000, "n": 2},
    )
    FAULTS = (
        "column 'k' is null, and keyColumns names it",
        "column 'k' takes 2000 of a record's 2008 bytes, and maxRecordBytes is 1000",
    )

    @pytest.mark.parametrize(("row", "fault"), [*zip(BAD, FAULTS, strict=True)])
    def test_fail(self, out: str, row: dict[str, Any], fault: str) -> None:
        query = query_of(out, maxRecordBytes="1000")
        with pytest.raises(EncodingError, match=f"{fault}.*badRecords=deadLetter"):
            query.run(0, [[*rows("a"), row]])
        assert head_of(out).version == -1
        assert not [*Path(out).rglob("*.spool")]

    def test_drop(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = query_of(out, maxRecordBytes="1000", badRecords="drop")
        query.run(0, [[*self.BAD, *rows("a"), *self.BAD], [*self.BAD]])
        assert rows_of(out) == {"a": 1}
        assert "badRecords=drop: a record is not written" in caplog.text
        assert not (Path(out) / layout.DEAD_LETTERS).exists()

    def test_dead_letter(self, out: str) -> None:
        query = query_of(out, maxRecordBytes="1000", badRecords="deadLetter")
        query.run(0, [[*rows("a"), *self.BAD]])
        query.restart()
        assert query.run(0, [[*self.BAD], rows("a")]).replayed
        assert (Path(out) / layout.DEAD_LETTERS).exists()
        reader = ftfile.kv.open(out)
        assert sorted((letter.reason, letter.row["n"]) for letter in reader.dead_letters()) == [
            (self.FAULTS[0], 1),
            (self.FAULTS[1], 2),
        ]
        assert rows_of(out) == {"a": 1}
        record = reader.log.read_record(0)
        assert record is not None
        assert (record.metrics["badRecords"], record.metrics["rows"]) == (2, 1)

    def test_of_several_key_columns_the_first_is_named(self, out: str) -> None:
        columns = {"a": "string", "b": "long", "n": "long"}
        query = query_of(out, columns, keyColumns="a,b", badRecords="deadLetter")
        found = [(None, None), ("x", None), ("x", 1), (None, 1)]
        query.run(0, [[{"a": a, "b": b, "n": n} for n, (a, b) in enumerate(found)]])
        letters = [*ftfile.kv.open(out).dead_letters()]
        assert [letter.reason.split()[1] for letter in letters] == ["'a'", "'b'", "'a'"]
        assert rows_of(out) == {("x", 1): 2}


class TestOverwrite:
    def test_replaces_all(self, out: str) -> None:
        query = counting(out)
        query.run(0, [rows("a", "b")])
        query.overwrite = True
        query.run(1, [rows("b", "c"), rows("b")])
        assert rows_of(out) == {"b": 2, "c": 1}
        query.restart()
        assert query.run(1, [rows("b", "b", "c")]).replayed
        query.run(2, [[]])
        assert rows_of(out) == {}

    def test_may_define_the_store_anew(self, out: str) -> None:
        counting(out).run(0, [rows("a", "b")])
        query = query_of(out, {"id": "long", "text": "string"}, keyColumns="id", buckets="2")
        with pytest.raises(ConfigError, match="keyColumns: the store has"):
            query.pickled_plan()
        query.overwrite = True
        query.run(1, [[{"id": 1, "text": "x"}]])
        assert rows_of(out) == {1: "x"}

    def test_it_replaces_what_came_meanwhile(self, out: str) -> None:
        first, second = counting(out), counting(out, SECOND, onNewQuery="continue")
        first.run(0, [rows("a")])
        second.overwrite = True
        late = second.run_tasks(0, [rows("c")])
        first.run(1, [rows("b")])
        second.commit(0, list(late))
        assert rows_of(out) == {"c": 1}


class TestDefinition:
    @pytest.mark.parametrize(
        ("columns", "options", "told"),
        [
            ({}, {"keyColumns": "n", "merge": "last"}, r"the store has \['k'\], and \['n'\] is given\. Give k, or"),
            ({"k": "binary"}, {}, r"types of the key columns: .*\. Cast them, or write to a new path"),
            ({}, {"buckets": "8"}, r"buckets: the store has 4, and 8 is given\. Give 4, or write to a new path"),
            ({}, {"merge": "n:max"}, "merge: the store has n:sum, and n:max is given"),
            ({}, {"merge": "last", "sequenceColumn": "n"}, "merge: the store has n:sum, and last is given"),
        ],
    )
    def test_options_that_differ_name_both(
        self, out: str, columns: dict[str, str], options: dict[str, str], told: str
    ) -> None:
        counting(out).run(0, [rows("a")])
        query = query_of(out, {"k": "string", "n": "long"} | columns, **{"merge": "n:sum"} | options)
        with pytest.raises(ConfigError, match=told):
            query.pickled_plan()

    @pytest.mark.slow
    def test_what_is_left_out_is_taken_from_the_store(self, out: str) -> None:
        columns = {"k": "string", "part": "long", "n": "long", "seen": "long"}
        row = {"k": "a", "part": 1, "n": 1, "seen": 5}
        given = {"keyColumns": "part,k", "bucketBy": "k", "buckets": "2", "merge": "n:sum,seen:max"}
        StoreBatch(out, columns, given, FIRST).run(0, [[row]])
        later = StoreBatch(out, columns, {"onNewQuery": "continue"}, SECOND)
        later.run(0, [[row | {"seen": 4}]])
        assert rows_of(out) == {(1, "a"): (2, 5)}
        wider = StoreBatch(
            out, columns | {"more": "string"}, {"onNewQuery": "continue", "onSchemaChange": "widen"}, FIRST
        )
        wider.run(1, [[row | {"more": "x"}]])
        assert rows_of(out) == {(1, "a"): (3, 5, "x")}
        for options, told in (
            ({"bucketBy": "part"}, r"bucketBy: the store has \['k'\], and \['part'\] is given"),
            ({"merge": "n:sum"}, "merge: the store has n:sum,seen:max, and n:sum is given"),
            ({"keyColumns": "k"}, "keyColumns: the store has"),
        ):
            with pytest.raises(ConfigError, match=told):
                StoreBatch(out, columns, options, SECOND).pickled_plan()
        with pytest.raises(ConfigError, match="keyColumns names a column that does not exist: 'part'"):
            StoreBatch(out, {"k": "string", "n": "long"}, {}, SECOND).pickled_plan()
        with pytest.raises(
            SchemaError, match=r"more is missing; seen is missing\. Add more, seen with null values, or write to a new"
        ):
            StoreBatch(out, {"k": "string", "part": "long", "n": "long"}, {}, SECOND).pickled_plan()

    def test_the_sequence_column_is_taken_from_the_store(self, out: str) -> None:
        query_of(out, sequenceColumn="n").run(0, [rows("a", n=5)])
        later = StoreBatch(out, {"k": "string", "n": "long"}, {"onNewQuery": "continue"}, SECOND)
        later.run(0, [rows("a", n=3)])
        assert rows_of(out) == {"a": 5}

    def test_an_overwrite_takes_nothing_from_the_store(self, out: str) -> None:
        counting(out).run(0, [rows("a")])
        query = StoreBatch(out, {"k": "string", "n": "long"}, {}, FIRST)
        query.overwrite = True
        with pytest.raises(ConfigError, match="keyColumns is not given"):
            query.pickled_plan()

    def test_rows_of_another_definition_are_not_committed(self, out: str) -> None:
        """Spark builds the writer of a stream again for the commit; the store may have other buckets by then."""
        query = StoreBatch(out, {"k": "string", "n": "long"}, {"keyColumns": "k", "buckets": "4"}, FIRST)
        query.run(0, [rows("a")])
        query = StoreBatch(out, {"k": "string", "n": "long"}, {}, FIRST)
        written = query.run_tasks(1, [rows(*"bcdef")])
        rebucket(out, 8)
        with pytest.raises(ConfigError, match="definition of the store changed while a batch was written"):
            query.commit(1, written)
        query.run(1, [rows(*"bcdef")])
        assert rows_of(out) == dict.fromkeys("abcdef", 1)
        options = {"keyColumns": "k", "onNewQuery": "continue"}
        with pytest.raises(ConfigError, match=r"store has 8, and 4 is given\. Give 8, or"):
            StoreBatch(out, {"k": "string", "n": "long"}, options | {"buckets": "4"}, FIRST).pickled_plan()
        StoreBatch(out, {"k": "string", "n": "long"}, options | {"buckets": "8"}, FIRST).pickled_plan()

    def test_the_first_record_decides_also_when_two_start_at_once(self, out: str) -> None:
        first = counting(out)
        second = query_of(out, query_id=SECOND, buckets="8", merge="n:sum", onNewQuery="continue")
        plan = second.plan()
        late = second.run_tasks(0, [rows("a")])
        first.run(0, [rows("a")])
        with pytest.raises(ConfigError, match="buckets: the store has 4, and 8 is given"):
            commit_batch(plan.sink, plan.config, late, 0, current())
        assert rows_of(out) == {"a": 1}

    def test_is_in_the_log(self, out: str) -> None:
        query_of(out, {"n": "long", "k": "string"}).run(0, [rows("a")])
        head = head_of(out)
        assert head.encoding is not None
        assert head.schema is not None
        text = head.definitions[head.encoding]
        assert (text["format"], text["filters"], text["partitionBy"]) == ({"name": "run"}, [], [])
        assert text["store"]["keys"] == ["k"]
        assert text["schema"] == head.definitions[head.schema]
        assert [field["name"] for field in json.loads(text["schema"])["fields"]] == ["k", "n"]
        (state,) = head.queries.values()
        assert state.settings is not None
        assert head.definitions[state.settings]["store"]["plan"]["flushRuns"] == 16


class TestKindOfDirectory:
    def test_a_directory_of_files_is_no_store(self, out: str) -> None:
        files = MicroBatch(out, {"k": "string", "n": "long"}, {"fileFormat": "json"})
        files.run(0, [rows("a")])
        for overwrite in (False, True):
            query = query_of(out)
            query.overwrite = overwrite
            with pytest.raises(ConfigError, match="is a directory of files, not a store"):
                query.pickled_plan()

    def test_a_store_takes_no_files(self, out: str) -> None:
        counting(out).run(0, [rows("a")])
        for overwrite in (False, True):
            files = MicroBatch(out, {"k": "string", "n": "long"}, {"fileFormat": "json"}, overwrite=overwrite)
            with pytest.raises(ConfigError, match="is a store of keys and values"):
                files.pickled_plan()
        assert rows_of(out) == {"a": 1}

    def test_a_directory_of_files_that_another_query_creates_before_the_commit(self, out: str) -> None:
        query = query_of(out, None, SECOND, onNewQuery="continue")
        messages = query.run_tasks(0, [rows("a")])
        MicroBatch(out, {"k": "string", "n": "long"}, {"fileFormat": "json"}).run(0, [rows("a")])
        with pytest.raises(ConfigError, match="is a directory of files, not a store"):
            query.commit(0, messages)

    def test_a_store_that_another_query_creates_before_the_commit(self, out: str) -> None:
        options = {"fileFormat": "json", "onNewQuery": "continue"}
        files = MicroBatch(out, {"k": "string", "n": "long"}, options, query_id=SECOND)
        messages = files.run_tasks(0, [rows("a")])
        counting(out).run(0, [rows("a")])
        with pytest.raises(ConfigError, match="is a store of keys and values"):
            files.commit(0, messages)
        assert rows_of(out) == {"a": 1}


class TestSchema:
    WIDE = {"k": "string", "n": "long", "more": "string"}  # noqa: RUF012

    def test_nothing_may_change_by_default(self, out: str) -> None:
        query_of(out).run(0, [rows("a")])
        with pytest.raises(SchemaError, match=r"more is new\. Set onSchemaChange=widen, or write to a new"):
            query_of(out, self.WIDE).pickled_plan()

    def test_the_advice_for_a_column_that_is_gone_works(self, out: str) -> None:
        query_of(out, self.WIDE).run(0, [rows("a", more="x")])
        for policy in ("fail", "widen"):
            with pytest.raises(SchemaError, match=r"more is missing\. Add more with null values, or write to a new"):
                query_of(out, onSchemaChange=policy).pickled_plan()
        other = {"k": "string", "n": "long", "other": "string"}
        with pytest.raises(
            SchemaError, match=r"Set onSchemaChange=widen and add more with null values, or write to a new"
        ):
            query_of(out, other).pickled_plan()
        query = query_of(out, self.WIDE | other, onSchemaChange="widen")
        query.run(1, [rows("b", more=None, other="y")])
        assert rows_of(out) == {"a": (1, "x", None), "b": (1, None, "y")}

    def test_a_new_column_is_null_in_older_rows(self, out: str) -> None:
        query_of(out).run(0, [rows("a", "b")])
        query = query_of(out, self.WIDE, onSchemaChange="widen")
        query.run(1, [rows("b", "c", more="x")])
        assert rows_of(out) == {"a": (1, None), "b": (1, "x"), "c": (1, "x")}
        with pytest.raises(SchemaError, match="more is missing"):
            query_of(out, onSchemaChange="widen").pickled_plan()

    def test_a_new_column_may_be_merged(self, out: str) -> None:
        counting(out).run(0, [rows("a")])
        query = query_of(out, self.WIDE, merge="n:sum,more:append", onSchemaChange="widen")
        query.run(1, [rows("a", more="x")])
        query.run(2, [rows("a", more="y")])
        assert rows_of(out) == {"a": (3, "xy")}

    @pytest.mark.slow
    def test_a_wider_type_takes_older_values(self, out: str) -> None:
        query_of(out, {"k": "string", "n": "integer"}, flushIntervalCount="2").run(0, [rows("a", n=7)])
        query = query_of(out, onSchemaChange="widen", flushIntervalCount="2")
        for batch in range(1, 6):
            query.run(batch, [rows("b", n=2**40 + batch)])
        assert rows_of(out) == {"a": 7, "b": 2**40 + 5}
        with pytest.raises(
            SchemaError, match=r"n was int64 and is int32\. Cast to the recorded type, or write to a new"
        ):
            query_of(out, {"k": "string", "n": "integer"}, onSchemaChange="widen").pickled_plan()

    @pytest.mark.slow
    def test_names_that_differ_by_case_alone_are_those_of_the_store(self, out: str) -> None:
        counting(out).run(0, [rows("a")])
        options = {"keyColumns": "K", "buckets": "4", "onNewQuery": "continue"}
        for merge in ({}, {"merge": "N:sum"}, {"merge": "sum"}):
            query = StoreBatch(out, {"N": "long", "K": "string"}, options | merge, SECOND)
            query.run(head_of(out).version, [[{"K": "a", "N": 1}, {"K": "b", "N": 1}]])
        assert rows_of(out) == {"a": 4, "b": 3}
        assert len({add.encoding for add in head_of(out).segments.values()}) == 1
        wide = StoreBatch(out, {"k": "string", "n": "long", "N": "long"}, options, SECOND)
        with pytest.raises(SchemaError, match="2 columns have this name"):
            wide.pickled_plan()
