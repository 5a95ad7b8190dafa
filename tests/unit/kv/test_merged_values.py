"""Merged values of all types and functions, with nulls and NaN, and ties of a sequence: the same by every read."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import EncodingError
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import ManualClock, SeededIds, current, open_filesystem, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import StoreBatch
from ftfile.writing.options import forget_logs
from tests.kit.parameters import parametrize
from tests.kit.store_check import check_store

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "memory://merged/store"
NAN = math.nan
UTC = datetime.timezone.utc
EARLY, LATE = datetime.datetime(1900, 1, 1, tzinfo=UTC), datetime.datetime(2024, 2, 29, 1, 2, 3, 4, UTC)
DAY, NEXT = datetime.date(1969, 12, 31), datetime.date(1970, 1, 1)
LIST = {"type": "array", "elementType": "double", "containsNull": True}
# Type, function, the values of a key, old to new, and the merged one.
CASES: list[tuple[Any, str, list[Any], Any]] = [
    ("long", "sum", [1, None, -3, None], -2),
    ("long", "sum", [None, None, None], None),
    ("byte", "sum", [127, 127, 127], 381),
    ("double", "sum", [0.5, None, 0.25], 0.75),
    ("double", "sum", [1.0, NAN, 1.0], NAN),
    ("float", "sum", [0.5, math.inf, 1.0], math.inf),
    ("decimal(20,2)", "sum", [Decimal("0.10"), None, Decimal("-9999999999.99")], Decimal("-9999999999.89")),
    ("long", "min", [3, None, -5], -5),
    ("long", "max", [3, None, 7, 5], 7),
    ("double", "max", [1.0, NAN, 2.0], NAN),
    ("double", "max", [-math.inf, None, -1.0], -1.0),
    ("double", "min", [NAN, 1.0, 2.0], 1.0),
    ("float", "min", [NAN, None, NAN], NAN),
    ("float", "max", [1.0, 2.0, NAN], NAN),
    ("decimal(38,10)", "max", [Decimal("1e-10"), None, Decimal("-1")], Decimal("1e-10")),
    ("timestamp", "max", [EARLY, None, LATE, EARLY], LATE),
    ("timestamp", "min", [LATE, EARLY, None], EARLY),
    ("timestamp_ntz", "max", [EARLY.replace(tzinfo=None), LATE.replace(tzinfo=None)], LATE.replace(tzinfo=None)),
    ("date", "min", [NEXT, None, DAY], DAY),
    ("string", "max", ["é", None, "z", ""], "é"),
    ("binary", "min", [b"\xff", b"", None], b""),
    ("string", "append", ["a", None, "", "b"], "ab"),
    ("binary", "append", [b"a", b"\x00", None], b"a\x00"),
    (LIST, "append", [[1.0], None, [], [None, 2.0]], [1.0, None, 2.0]),
    ("boolean", "coalesce", [True, None, False, None], False),
    (LIST, "coalesce", [[1.0], None], [1.0]),
    ("long", "last", [1, 2, None], None),
]  # fmt: skip


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with repeatable(ManualClock(tick_ms=1), SeededIds(0)):
        yield
    MemoryFileSystem.drop("merged")
    forget_logs()


def reads(key: str, merge: str | None = None) -> list[Any]:
    """Return the row of a key by each kind of read."""
    with kv.open(PATH, merge=merge, context=current()) as reader:
        table = reader.lookup(pa.array([key, "none"]))
        scanned = [tuple(row.values())[1:] for batch in reader.scan() for row in batch.to_pylist() if row["k"] == key]
        names = reader.definition.values
        looked_up = [tuple(row[name] for name in names) for row in table.to_pylist() if row["_found"]]
        singles = [reader.get(key), reader.multi_get([key])[0]]
    rows = [(each,) if each is not None and len(names) == 1 else each for each in singles]
    return [*[[tuple(each)] if each is not None else [] for each in rows], looked_up, scanned]


def shown(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize(
    ("kind", "function", "values", "expected"), CASES, ids=[f"{number}-{case[1]}" for number, case in enumerate(CASES)]
)
def test_merges_of_all_types(kind: Any, function: str, values: list[Any], expected: Any) -> None:
    """In a task, in jobs, in reads of many runs and of one; beside a value that tells a row of nulls from none."""
    given = {"keyColumns": "k", "merge": f"n:{function}", "buckets": "1", "vacuumInterval": "0s"}
    query = StoreBatch(PATH, {"k": "string", "n": kind, "m": "long"}, given | {"flushIntervalCount": "3"})
    batches = [{"k": "batches", "n": value, "m": 7} for value in values]
    query.run(0, [[{"k": "task", "n": value, "m": 7} for value in values], [{"k": "tasks", "n": values[0], "m": 7}]])
    query.run(1, [batches[:1], [{"k": "tasks", "n": value, "m": 7} for value in values[1:]]])
    for number, row in enumerate(batches[1:], start=2):
        query.run(number, [[row]])
    for _ in range(2):
        for key in ("task", "tasks", "batches"):
            assert [[(shown(n), m)] for [(n, m)] in reads(key)] == [[(shown(expected), 7)]] * 4
        kv.compact(PATH, full=True, context=current())
    check_store(open_filesystem(PATH))


@parametrize(
    ("kind", "half"),
    [("long", 2**62), ("decimal(38,0)", Decimal(6 * 10**37)), ("decimal(38,38)", Decimal("0.6"))],
    quick=1,
)
def test_a_sum_that_no_column_can_hold_leaves_other_keys_alone(
    kind: str, half: Any, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"keyColumns": "k", "merge": "n:sum", "buckets": "1", "flushIntervalCount": "2", "deleteColumn": "gone"}
    query = StoreBatch(PATH, {"k": "string", "n": kind, "gone": "boolean"}, options)
    for batch in range(2):
        query.run(batch, [[{"k": key, "n": half, "gone": False} for key in ("a", f"b{batch}")]])
    query.run(2, [[]])
    assert "will be retried: merge=n:sum: the values of key ('a') have no result" in caplog.text
    with kv.open(PATH, context=current()) as reader:
        assert reader.get("b0") == reader.multi_get(["b1"])[0] == half
        for read in (reader.get, lambda key: reader.multi_get([key]), lambda key: reader.lookup(pa.array([key]))):
            with pytest.raises(EncodingError, match="merge=n:sum"):
                read("a")
    query.run(3, [[{"k": "a", "n": half, "gone": True}]])
    query.run(4, [[{"k": "a", "n": half, "gone": False}]])
    assert reads("a") == [[(half,)]] * 4
    kv.compact(PATH, full=True, context=current())
    assert reads("a") == [[(half,)]] * 4


@parametrize(
    ("kind", "function", "values", "expected"),
    [
        ("long", "sum", [2**63 - 1, 1, -5], 2**63 - 5),
        ("decimal(38,0)", "sum", [Decimal(9 * 10**37)] * 2 + [Decimal(-(10**38) + 1)], Decimal(8 * 10**37 + 1)),
        ("long", "tests.unit.kv.user_merges:Balance", [1, -1, 5], 5),
    ],
    quick=1,
)
def test_what_merges_go_through_is_in_no_result(kind: str, function: str, values: list[Any], expected: Any) -> None:
    """Sums beyond the column, and nulls: together in a task, apart in runs of several, and merged."""
    options = {"keyColumns": "k", "merge": f"n:{function}", "buckets": "1", "vacuumInterval": "0s"}
    query = StoreBatch(PATH, {"k": "string", "n": kind}, options)
    query.run(0, [[{"k": "task", "n": value} for value in values]])
    query.run(1, [[{"k": "tasks", "n": value}] for value in values])
    for _ in range(2):
        assert reads("task", function) == reads("tasks", function) == [[(expected,)]] * 4
        changes = kv.changes(PATH, merge=function, context=current())
        newest = {row["k"]: row["new"]["n"] for batch in changes for row in batch.to_pylist()}
        assert newest == {"task": expected, "tasks": expected}
        kv.compact(PATH, full=True, merge=function, context=current())
    check_store(open_filesystem(PATH))


@pytest.mark.parametrize("bad_records", ["drop", "deadLetter"])
def test_a_sum_of_one_task_that_no_column_can_hold_fails_the_batch(bad_records: str) -> None:
    """No row of it is bad: each can be written."""
    options = {"keyColumns": "k", "merge": "n:sum", "badRecords": bad_records}
    query = StoreBatch(PATH, {"k": "string", "n": "long"}, options)
    with pytest.raises(EncodingError, match=r"merge=n:sum: the values of key \('a'\) have no result"):
        query.run(0, [[{"k": key, "n": 2**62} for key in ("a", "b", "a")]])
    query.columns = {"k": "string", "n": "decimal(38,0)"}
    query.run(0, [[{"k": key, "n": Decimal(2**62)} for key in ("a", "b", "a")]])
    assert reads("a") == [[(Decimal(2**63),)]] * 4


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("long", -1, 1),
        ("string", "", "é"),
        ("timestamp", EARLY, LATE),
        ("date", DAY, NEXT),
        ("decimal(18,3)", Decimal("-0.001"), Decimal(0)),
        ("boolean", False, True),
        ("binary", b"\x7f", b"\x80"),
    ],
)
def test_of_equal_sequences_the_last_row_counts(kind: str, low: Any, high: Any) -> None:
    options = {"keyColumns": "k", "sequenceColumn": "at", "deleteColumn": "gone", "buckets": "1", "tombstoneTtl": "9d"}
    columns = {"k": "string", "at": kind, "text": "string", "gone": "boolean"}
    query = StoreBatch(PATH, columns, options | {"flushIntervalCount": "3", "badRecords": "drop"})

    def row(key: str, at: Any, text: str, *, gone: bool = False) -> dict[str, Any]:
        return {"k": key, "at": at, "text": text, "gone": gone}

    query.run(0, [[row("a", high, "1"), row("a", high, "2"), row("b", high, "1"), row("c", low, "1")],
                  [row("a", low, "late"), row("b", high, "2"), row("c", None, "bad")]])  # fmt: skip
    query.run(1, [[row("b", high, "3"), row("c", low, "", gone=True), row("d", low, "", gone=True)]])
    query.run(2, [[row("b", low, "late"), row("d", low, "again"), row("e", high, "1"), row("e", high, "", gone=True)]])
    query.run(3, [[row("e", low, "late"), row("f", low, "", gone=True), row("f", low, "same")]])
    expected = {"a": (high, "2"), "b": (high, "3"), "c": None, "d": (low, "again"), "e": None, "f": (low, "same")}
    for _ in range(2):
        for key, values in expected.items():
            assert reads(key) == [[] if values is None else [values]] * 4, key
        kv.compact(PATH, full=True, context=current())
    query.run(4, [[row("c", low, "tied"), row("e", low, "late")]])
    assert reads("c") == [[(low, "tied")]] * 4
    assert reads("e") == [[]] * 4
    assert len(CommitLog(open_filesystem(PATH)).refresh().segments) > 1
    check_store(open_filesystem(PATH))
