"""Conditions on rows, each kind by an example; `tests/unit/operate/test_random_conditions.py` draws others."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ftfile.core.errors import ConfigError
from ftfile.rows.conditions import predicate
from tests.kit.parameters import parametrize

NAN = float("nan")
DAY = datetime.date(2024, 7, 1)
LONG = "-1234567890123456789012345678901.2"  # more digits than Python's arithmetic has
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)


def chosen(where: Any, kind: pa.DataType, values: list[Any], **options: Any) -> list[Any]:
    table = pa.table({"key": pa.array(values, kind)})
    found = predicate(where, table.schema, **options)
    rows: list[Any] = (table if found is None else table.filter(found))["key"].to_pylist()
    return rows


@parametrize(
    ("where", "kind", "values", "expected"),
    [
        (None, pa.int32(), [7, None], [7, None]),
        ({}, pa.int32(), [7, None], [7, None]),
        ({"KEY": 7}, pa.int32(), [7, 8, None], [7]),
        ({"key": ["7", None]}, pa.int32(), [7, 8, None], [7, None]),
        ({"key": []}, pa.int32(), [7, None], []),
        ({"key": range(7, 100_000)}, pa.int32(), [6, 7], [7]),
        ({"key": [0.0, NAN]}, pa.float64(), [-0.0, 0.0, NAN, 1.0], [-0.0, 0.0, NAN]),
        ({"key": range(7, 9)}, pa.int64(), [6, 7, 8], [7, 8]),
        ({"key": pa.scalar(7)}, pa.int8(), [6, 7], [7]),
        ({"key": 7.5}, pa.decimal128(4, 2), [Decimal("7.5")], [Decimal("7.50")]),
        ({"key": DAY}, pa.timestamp("us", "UTC"), [NOON - datetime.timedelta(hours=12), NOON], [NOON.replace(hour=0)]),
        ({"key": "TRUE"}, pa.bool_(), [True, False], [True]),
        (pc.field("key") > 7, pa.int32(), [7, 8, None], [8]),
        ("`key` = 'a'", pa.binary(), [b"a", b"b"], [b"a"]),
        ("key = 'a'", pa.dictionary(pa.int8(), pa.string()), ["a", "b"], ["a"]),
        ('key = "it""s"', pa.string(), ['it"s', "its"], ['it"s']),
        ("key >= TIMESTAMP '2024-07-01T12:00:00Z'", pa.timestamp("us", "UTC"), [NOON, None], [NOON]),
        ("key = TIMESTAMP '2024-07-01 00:00:00'", pa.date32(), [DAY, None], [DAY]),
        (f"key <= {LONG}5", pa.decimal128(38, 2), [*map(Decimal, (f"{LONG}4", f"{LONG}5"))], [f"{LONG}5"]),
        ("key IS NULL", pa.list_(pa.int8()), [[1], None], [None]),
        (" OR ".join(f"key = {number}" for number in range(1000)), pa.int32(), [7, -1], [7]),
        ("NOT " * 20_000 + "key = 7", pa.int32(), [7, 8], [7]),
    ],
    quick=3,
    packages=True,
)
def test_what_a_condition_chooses(where: Any, kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    assert [*map(str, chosen(where, kind, values))] == [*map(str, expected)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("key IN (0, 1)", [0.0, -0.0]),
        ("key NOT IN (7, 8)", [0.0, -0.0]),
        ("key NOT IN (7, NULL)", []),
        ("key > 1 OR NULL", [7.0]),
        ("key > 1 OR NOT NULL", [7.0]),
    ],
)
def test_null_is_neither_true_nor_false_and_zero_has_no_sign(where: str, expected: list[float]) -> None:
    assert repr(chosen(where, pa.float64(), [0.0, -0.0, 7.0, None])) == repr(expected)


def test_columns_may_be_named_like_the_types_of_literals() -> None:
    table = pa.table({"date": [DAY], "timestamp": [7], "in": [1]})
    text = "date = DATE '2024-07-01' AND timestamp = 7 AND `IN` = 1"
    assert table.filter(predicate(text, table.schema)).num_rows == 1


def test_timestamps_without_an_offset_are_by_the_clocks_of_the_zone() -> None:
    text, kind = "key = '2024-07-01 14:00:00'", pa.timestamp("us", "UTC")
    assert chosen(text, kind, [NOON], time_zone="Europe/Berlin") == [NOON]
    assert chosen(text, kind, [NOON]) == []


@pytest.mark.parametrize("text", ["'2024-07-01T12:00:00Z'", "TIMESTAMP '2024-07-01 07:00:00-05:00'"])
def test_local_times_are_compared_with_an_instant_by_the_clocks_of_the_zone(text: str) -> None:
    kind, local = pa.timestamp("ms"), NOON.replace(tzinfo=None)
    assert chosen(f"key = {text}", kind, [local]) == [local]
    assert chosen(f"key = {text}", kind, [local], time_zone="Europe/Berlin") == []
    assert chosen(f"key < {text}", kind, [local], time_zone="+02:00") == [local]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (7, r"where=7 is not a condition: it takes values by column, .*; a text, .*; or a pyarrow expression"),
        ({1: 7}, "is not a condition"),
        ("", "where='' is empty"),
        ("key = ", r"where='key = ': a literal, such as .* is expected after 'key =', not 'nothing'"),
        ("key = 7 7", "AND, OR or the end is expected after 'key = 7', not '7'"),
        ("= 7", "a literal, .* is expected at the start, not '='"),
        ("(key = 7", r"\) is expected after '\(key = 7', not 'nothing'"),
        ("key LIKE 7", "a comparison by a sign, IN, BETWEEN or IS NULL is expected after 'key', not 'LIKE'"),
        ("upper(city) = 'X'", r"a comparison by a sign, .* is expected after 'upper', not '\('"),
        ("a.b = 7", r"'\.b = 7' is not understood; it takes .* as in pyarrow\.compute\.field\('a', 'b'\)"),
        ("key NOT 7", "IN or BETWEEN is expected after 'key NOT'"),
        ("7", "a comparison is expected after '7'"),
        ("7 = 7", "a column is expected after '7 ='"),
        ("key = -'a'", "a literal"),
        ("key = 'a", '"\'a" is not understood'),
        ("key = 7x", "'7x' is not understood"),
        ("key = \u0666", "is not understood"),
        ("key = " + "9" * 5000, "^where: 9{20} is too long, or too large"),
        ("key = -1e99999999999999999999", "^where: -1e9{17} is too long, or too large"),
        ("key = --7", "'--7': comments are not supported"),
        ("key = 7 -- AND key = 8", "'-- AND key = 8': comments are not supported"),
        ("key = /* 7 */ 8", "comments are not supported"),
        ("key = 7 OR " * 1000 + "key = 7", "more than 1000 comparisons; use IN, which accepts any number"),
        ("key; DROP", "'; DROP' is not understood"),
        ("(" * 1000 + "key = 7" + ")" * 1000, "parentheses nested more than 100 levels"),
        ("nosuch = 7", "'nosuch' is not one of the columns, which are key, city, day"),
        ({"nosuch": 7, "other": 7}, "'nosuch', 'other' is not one of the columns"),
        ("nosuch = 7 OR other = 7", "'nosuch', 'other' is not one of the columns"),
        ("nosuch = 7 OR", "a literal, .* is expected after 'nosuch = 7 OR', not 'nothing'"),
        ("key AND city = 'a'", "a comparison by a sign, .* is expected after 'key', not 'AND'"),
        (pc.field("nosuch") == 7, "is not a condition on the columns, which are key, city, day"),
        (pc.field("key"), "is not a condition on the columns"),
        ("key = 7.5", r"key=7.5 is not a value of the column's type int32: it would be compared as 7"),
        ("key = 99999999999", "is not a value of the column's type int32"),
        ("key < 99999999999999999999", "is not a value of the column's type int32: it is out of range"),
        ("key = 1e99", "is not a value of the column's type int32"),
        ("key = 'x'", "is not a value of the column's type int32: not a whole number"),
        ("key = '1_0'", "is not a value of the column's type int32: not a whole number"),
        ("key = TRUE", "is not a value of the column's type int32"),
        ("city = 7", "city=7 is not a value of the column's type string: it must be a text, such as '7'$"),
        ({"city": False}, "is not a value of the column's type string: it must be a text, such as 'False'$"),
        (
            "city = DATE '2024-07-01'",
            r"city=DATE '2024-07-01' is not a value of the column's type string: it can only be compared",
        ),
        ("day = '2024-7-1'", "not a date such as 2024-12-31"),
        ("day = TIMESTAMP '2024-07-01 12:00:00'", "not a date such as 2024-12-31"),
    ],
)
def test_what_is_no_condition_is_an_error_that_says_where(where: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predicate(where, pa.schema([("key", pa.int32()), ("city", pa.string()), ("day", pa.date32())]))
