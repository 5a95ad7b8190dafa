"""Values that an operator's store takes: reads give them back as the commit has them, and none is changed."""

from __future__ import annotations

import itertools
import math
from collections import namedtuple
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError, EncodingError
from ftfile.kv.definition import MERGE, SET, define
from ftfile.kv.fold import fold_values
from ftfile.kv.operator.codecs import RowMaker
from ftfile.kv.operator.store import KeyValueStore
from ftfile.kv.user_keys import UserKeys
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.unit.kv.building import Builder
from tests.unit.kv.operator.stores import open_store

if TYPE_CHECKING:
    from pathlib import Path

LONG, SHORT, NTZ, UTC = pa.int64(), pa.int16(), pa.timestamp("us"), pa.timestamp("us", "UTC")
PAIR = pa.struct([("a", LONG), ("b", pa.string())])
TWO_HOURS = timezone(timedelta(hours=2))
NOON = datetime(2024, 2, 29, 12, 0, 0, 1)  # noqa: DTZ001 - a timestamp without a zone
Row = namedtuple("Row", ["a", "b"])  # noqa: PYI024 - as reads of a store make them


class Text(str):
    """A str of a user's own class."""

    __slots__ = ()


class Nanoseconds(datetime):
    """A time between two microseconds, as pandas has them."""

    def __sub__(self, other: Any) -> Any:
        return NanosecondsSince()


class NanosecondsSince:
    def __divmod__(self, unit: timedelta) -> tuple[int, timedelta]:
        return 1, unit


@pytest.mark.parametrize(
    ("kind", "given", "made"),
    [
        (LONG, None, None),
        (LONG, 1, 1),
        (LONG, np.int64(-1), -1),
        (LONG, np.uint8(255), 255),
        (LONG, pa.scalar(5, pa.int8()), 5),
        (SHORT, -(1 << 15), -(1 << 15)),
        (pa.float64(), 0.1, 0.1),
        (pa.float64(), 2, 2.0),
        (pa.float64(), np.float32(0.5), 0.5),
        (pa.float64(), math.nan, math.nan),
        (pa.float32(), 0.1, float(np.float32(0.1))),
        (pa.float32(), np.float64(0.1), float(np.float32(0.1))),
        (pa.float32(), np.float32(0.1), float(np.float32(0.1))),
        (pa.float32(), 3, 3.0),
        (pa.float32(), math.inf, math.inf),
        (pa.float32(), math.nan, math.nan),
        (pa.bool_(), True, True),
        (pa.bool_(), np.False_, False),
        (pa.string(), "a", "a"),
        (pa.string(), "é", "é"),
        (pa.string(), Text("a"), "a"),
        (pa.string(), np.str_("a"), "a"),
        (pa.binary(), bytearray(b"a"), b"a"),
        (pa.binary(), memoryview(b"a"), b"a"),
        (pa.date32(), date(2024, 2, 29), date(2024, 2, 29)),
        (NTZ, NOON, NOON),
        (UTC, NOON, NOON.replace(tzinfo=timezone.utc)),
        (UTC, NOON.replace(tzinfo=timezone.utc), NOON.replace(tzinfo=timezone.utc)),
        (UTC, NOON.replace(tzinfo=TWO_HOURS), NOON.replace(tzinfo=timezone.utc) - timedelta(hours=2)),
        (pa.decimal128(10, 2), Decimal("1.5"), Decimal("1.50")),
        (pa.decimal128(10, 2), 7, Decimal("7.00")),
        (pa.list_(LONG), (1, None), [1, None]),
        (pa.list_(LONG), np.array([1, 2], np.int16), [1, 2]),
        (pa.list_(pa.float32()), np.array([0.1], np.float32), [float(np.float32(0.1))]),
        (pa.list_(LONG), pa.array([1, None]), [1, None]),
        (pa.list_(LONG), {1}, [1]),
        (pa.list_(pa.list_(pa.binary())), [[bytearray(b"a")], None], [[b"a"], None]),
        (pa.list_(LONG, 2), (1, 2), [1, 2]),
        (PAIR, {"b": "x"}, {"a": None, "b": "x"}),
        (PAIR, (1, "x"), {"a": 1, "b": "x"}),
        (PAIR, Row(np.int8(1), "x"), {"a": 1, "b": "x"}),
        (pa.map_(pa.string(), LONG), {"a": 1}, [("a", 1)]),
        (pa.map_(pa.string(), LONG), [["a", None]], [("a", None)]),
        (pa.map_(pa.string(), PAIR), {"a": (1, "x")}, [("a", {"a": 1, "b": "x"})]),
        (pa.map_(pa.string(), LONG), None, None),
        (PAIR, None, None),
    ],
    ids=itertools.count(),
)
def test_values_are_as_a_commit_gives_them_back(kind: pa.DataType, given: Any, made: Any) -> None:
    (found,) = RowMaker([pa.field("v", kind)]).make(given)
    (stored,) = pa.array([found], kind).to_pylist()
    assert repr(found) == repr(stored)
    assert found == made or (math.isnan(found) and math.isnan(made))
    assert type(found) is type(made)


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (LONG, 1.5, r"column 'v': 1\.5 cannot be stored as int64: it would be stored as 1"),
        (LONG, 1.0, r"1\.0 cannot be stored as int64: it would be stored as 1"),
        (LONG, Decimal("1.5"), r"Decimal\('1\.5'\) cannot be stored as int64: it would be stored as 1"),
        (LONG, np.float64(2.5), "cannot be stored as int64: it would be stored as 2"),
        (LONG, True, "cannot be stored as int64"),
        (LONG, "1", "cannot be stored as int64"),
        (LONG, 1 << 63, "cannot be stored as int64"),
        (LONG, math.nan, "cannot be stored as int64"),
        (SHORT, 1 << 15, "cannot be stored as int16"),
        (SHORT, 0.5, "cannot be stored as int16: it would be stored as 0"),
        (pa.float64(), (1 << 53) + 1, "cannot be stored as double"),
        (pa.float64(), Decimal("0.1"), "cannot be stored as double"),
        (pa.float32(), (1 << 24) + 1, "cannot be stored as float"),
        (pa.float32(), 1e300, "cannot be stored as float"),
        (pa.bool_(), 1, "cannot be stored as bool"),
        (pa.string(), b"a", "cannot be stored as string: it would be stored as 'a'"),
        (pa.string(), "\ud800", "cannot be stored as string"),
        (pa.string(), 1, "cannot be stored as string"),
        (pa.binary(), "a", "column 'v' takes bytes, not str: 'a'"),
        (pa.date32(), NOON, r"cannot be stored as date32\[day\]: it would be stored as datetime\.date\(2024, 2, 29\)"),
        (pa.date32(), datetime(2024, 2, 29), "cannot be stored as date32"),  # noqa: DTZ001
        (pa.date32(), 5, "cannot be stored as date32"),
        (NTZ, 5, "cannot be stored as timestamp.*: it would be stored as datetime"),
        (NTZ, date(2024, 2, 29), "cannot be stored as timestamp"),
        (NTZ, NOON.replace(tzinfo=TWO_HOURS), r"cannot be stored as timestamp\[us\]: it would be stored as datetime"),
        (NTZ, NOON.replace(tzinfo=timezone.utc), "it would be stored as datetime"),
        (NTZ, pa.scalar(NOON.replace(tzinfo=timezone.utc)), "it would be stored as datetime"),
        (pa.list_(NTZ), [NOON.replace(tzinfo=TWO_HOURS)], "it would be stored as datetime"),
        (pa.date32(), pa.scalar(3_000_000, pa.date32()), r"column 'v': this date32\[day\] has no value in Python"),
        (pa.decimal128(10, 2), Decimal("0.001"), "cannot be stored as decimal128"),
        (pa.decimal128(10, 2), 0.5, "cannot be stored as decimal128"),
        (pa.decimal128(10, 2), Decimal("NaN"), "cannot be stored as decimal128"),
        (pa.decimal128(10, 2), Decimal("sNaN"), "cannot be stored as decimal128"),
        (pa.list_(LONG), [1.5], r"column 'v': 1\.5 cannot be stored as int64: it would be stored as 1"),
        (pa.list_(LONG), [[1]], "cannot be stored as int64"),
        (pa.list_(LONG), "12", r"'12' cannot be stored as list<.*>: it must be a list, not str"),
        (pa.list_(pa.string()), {"a": 1}, "it must be a list, not dict"),
        (pa.list_(pa.binary()), ["a"], "column 'v' takes bytes, not str: 'a'"),
        (PAIR, {"a": 1.5}, r"1\.5 cannot be stored as int64: it would be stored as 1"),
        (PAIR, {"a": 1, "c": 2}, "cannot be stored as struct<.*>: it must be a dictionary by field name"),
        (PAIR, (1, "x", 2), "it must be a dictionary by field name, or have a value for each field"),
        (pa.map_(pa.string(), LONG), {"a": 1.5}, r"1\.5 cannot be stored as int64: it would be stored as 1"),
        (pa.map_(LONG, LONG), {1.5: 1}, r"1\.5 cannot be stored as int64: it would be stored as 1"),
        (pa.map_(pa.string(), LONG), [(None, 1)], "a key is null"),
        (pa.map_(pa.string(), LONG), ["abc"], "it must be a dictionary or a list of pairs"),
        (pa.map_(pa.string(), LONG), 7, "it must be a dictionary or a list of pairs"),
    ],
    ids=itertools.count(),
)
def test_values_that_would_be_others_are_refused(kind: pa.DataType, given: Any, told: str) -> None:
    with pytest.raises(EncodingError, match=told):
        RowMaker([pa.field("v", kind)]).make(given)


def user_keys(kind: pa.DataType) -> UserKeys:
    return UserKeys(define(pa.schema([("k", kind), ("n", LONG)]), ["k"]))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.decimal128(10, 2), Decimal("0.001")),
        (pa.decimal128(10, 2), Decimal("1." + "0" * 40 + "1")),
        (pa.decimal128(10, 2), Decimal("1e1000000")),
        (pa.decimal128(10, 2), Decimal("123456789.01")),
        (pa.decimal128(10, 2), Decimal("NaN")),
        (NTZ, Nanoseconds(2024, 2, 29)),
    ],
)
def test_keys_that_would_be_others_are_refused(kind: pa.DataType, given: Any) -> None:
    keys = user_keys(kind)
    with pytest.raises(ConfigError, match="key column 'k' cannot have"):
        keys.to_stored(given)


def test_keys_of_decimals_have_many_forms() -> None:
    keys = user_keys(pa.decimal128(10, 2))
    forms = ["1.5", "1.50", "1.5" + "0" * 40, "15e-1"]
    assert {keys.to_stored(Decimal(form)) for form in forms} == {(150,)}
    assert keys.to_stored(Decimal("0e100")) == (0,)
    assert keys.to_stored(-99999999) == (-9999999900,)


def test_reads_before_and_after_a_commit_are_the_same() -> None:
    rows: list[Any] = [(np.int64(2), Row(1, "x"), {"a": np.int16(3)}), {"n": 5, "m": [("b", None)]}, (None, None, None)]
    shape: dict[str, Any] = {"n": LONG, "p": PAIR, "m": pa.map_(pa.string(), LONG)}
    with open_store(CrashingFileSystem(), keys={"k": "long"}, values=shape, merge="n:sum") as store:
        for number, row in enumerate(rows):
            store.put(number, row)
            store.merge(number, (np.int64(1), None, ()))
        before = [(store.read(number), store.get_uncommitted(number)) for number in range(len(rows))]
        store.commit()
        after = store.multi_get(range(len(rows)))
        assert [repr(row) for row in after] == [repr(row) for row, _ in before] == [repr(row) for _, row in before]
        assert (after[0].n, after[1].n, after[2].n) == (3, 6, 1)
        with pytest.raises(EncodingError, match=r"column 'n': 2\.9 cannot be stored as int64"):
            store.put(0, (2.9, None, None))
        with pytest.raises(EncodingError, match=r"column 'n': 2\.9 cannot be stored as int64"):
            store.merge(0, (2.9, None, None))


def test_sums_of_numbers_of_numpy_are_exact() -> None:
    definition = define(pa.schema([("k", LONG), ("n", LONG)]), ["k"], merge="sum")
    assert fold_values([(MERGE, (np.int64(2),)), (SET, (np.int64(1),))], (1,), definition) == (3,)
    assert fold_values([(MERGE, (2,)), (SET, (1,))], (1,), definition) == (3,)
    with pytest.raises(EncodingError):
        fold_values([(MERGE, (2,)), (SET, ((1 << 63) - 1,))], (1,), definition)


def test_reads_of_days_that_python_does_not_have_name_the_key(tmp_path: Path) -> None:
    path, far = f"{tmp_path}/store", pa.array([3_000_000], pa.date32())
    store = Builder(path, define(pa.schema([("k", pa.string()), ("day", pa.date32())]), ["k"], buckets=1))
    store.write_tables({0: pa.table({"k": ["far"], "day": far})})
    with KeyValueStore(path, writer="w", maintenance="none") as operator:
        for read in (operator.get, operator.read, lambda key: operator.multi_get([key])):
            with pytest.raises(ConfigError, match=r"key 'far': column 'day' .* after the year 9999.*lookup or scan"):
                read("far")
        operator.put("far", date.max)
        assert operator.read("far") == date.max
