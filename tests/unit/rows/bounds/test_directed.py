"""Bounds that are easily misread, each by an example."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ftfile.core.bounds import BoundsColumn
from ftfile.rows.bounds.guarantees import FILES_MAX, possible_by_expression
from ftfile.rows.bounds.masks import VALUES_MAX, FileBounds
from ftfile.rows.conditions import text_of
from ftfile.rows.statistics.columns import key_of
from tests.kit.file_statistics import BoundedFiles, entry_of

NAN, INFINITY = float("nan"), float("inf")
LONG, DOUBLE, TEXT, BINARY = pa.int64(), pa.float64(), pa.string(), pa.binary()
INSTANT = pa.timestamp("us", "UTC")
LAST = "\U0010ffff"
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
LAST_MILLISECOND = NOON.replace(hour=23, minute=59, second=59, microsecond=999_999)


def file_bounds(
    kind: pa.DataType, *entries: list[Any], rows: int | None = 3, time_zone: str = "UTC", name: str = "x"
) -> BoundedFiles:
    """Return the bounds of the column `x` in some files, and of the column `other` that is unknown in all files."""
    lists = [[entry[place] for entry in entries] for place in range(3)]
    schema = pa.schema({name: kind, "other": LONG, "items": pa.list_(LONG)})
    return BoundedFiles(schema, {key_of((name,)): BoundsColumn(*lists)}, [rows] * len(entries), time_zone)


def may(where: Any, kind: pa.DataType, entry: list[Any], rows: int | None = 3) -> bool:
    """Return True if a file with this entry of the column `x` may contain a matching row."""
    return bool(file_bounds(kind, entry, rows=rows).possible(where)[0])


def all_match(where: Any, kind: pa.DataType, entry: list[Any], rows: int | None = 3) -> bool:
    return bool(file_bounds(kind, entry, rows=rows).certain(where)[0])


def may_contain(where: Any, kind: pa.DataType, values: list[Any]) -> bool:
    return may(where, kind, entry_of(values, kind), len(values))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = 5", True),
        ("x = 0", False),
        ("x = 10", False),
        ("x != 5", True),
        ("x < 1", False),
        ("x <= 1", True),
        ("x > 9", False),
        ("x >= 9", True),
        ("9 <= x", True),
        ("9 < x", False),
        ("NOT (x >= 1)", False),
        ("x BETWEEN 10 AND 20", False),
        ("x NOT BETWEEN 1 AND 9", False),
        ("x NOT BETWEEN 1 AND 8", True),
        ("x IN (0, 10)", False),
        ("x IN (0, 4)", True),
        ("x = NULL", False),
        ("x NOT IN (5, NULL)", False),
        ("x IS NULL", False),
        ("x IS NOT NULL", True),
        ("x = 10 OR NULL", False),
        ("x = 10 OR TRUE", True),
        ("x > 9 AND other = 5", False),
        ("x > 9 OR other = 5", True),
        ({"x": [0, None]}, False),
        ({"x": [0, 4, None]}, True),
        ({"x": 4, "other": 5}, True),
        ({}, True),
    ],
)
def test_a_file_is_excluded_by_its_least_and_its_greatest_value(where: Any, expected: bool) -> None:
    assert may(where, LONG, [1, 9, 0]) == expected


@pytest.mark.parametrize("entry", [[5, 5, 0], [5, 5, 1]])
def test_a_file_with_one_value_is_excluded_by_another_value(entry: list[Any]) -> None:
    assert not may("x != 5", LONG, entry)
    assert not may("x NOT IN (4, 5)", LONG, entry)
    assert may("x != 4", LONG, entry)
    assert may("x != 5", LONG, [5, 6, 0])
    assert may("x != 6", LONG, [5, 6, 0])


CONDITIONS = ["x = 0", "x != 0", "x < 0", "x <= 0", "x > 0", "x >= 0", "x IN (0, 1)", "x NOT IN (0, 1)", "x IS NULL"]
CONDITIONS += ["x IS NOT NULL", "x BETWEEN 0 AND 1", "x NOT BETWEEN 0 AND 1"]


@pytest.mark.parametrize("where", CONDITIONS)
def test_nothing_is_concluded_from_unknown_statistics(where: str) -> None:
    entry = [None, None, None]
    assert may(where, LONG, entry)
    assert not all_match(where, LONG, entry)
    missing = file_bounds(LONG, [1, 1, 0], name="y")
    assert missing.possible(where.replace("x", "other")).tolist() == [True]
    assert missing.certain(where.replace("x", "other")).tolist() == [False]


@pytest.mark.parametrize("where", [where for where in CONDITIONS if "!=" not in where and "NOT" not in where])
def test_an_unknown_bound_excludes_by_the_other_bound_only(where: str) -> None:
    assert may(where, LONG, [None, 9, None])
    assert may(where, LONG, [-9, None, None])
    assert not may("x = 10", LONG, [None, 9, None])
    assert not may("x = -10", LONG, [-9, None, None])


def test_an_unknown_number_of_nulls_is_neither_zero_nor_all() -> None:
    assert may("x IS NULL", LONG, [1, 9, None])
    assert may({"x": None}, LONG, [1, 9, None])
    assert may("x IS NOT NULL", LONG, [None, None, None])
    assert may("x IS NOT NULL", LONG, [None, None, 3], rows=None)
    assert not all_match("x IS NOT NULL", LONG, [1, 9, None])
    assert not all_match("x IS NULL", LONG, [None, None, None])
    assert not all_match("x > 0", LONG, [1, 9, None])


def test_missing_bounds_do_not_mean_that_all_values_are_null() -> None:
    assert may("x = 5", LONG, [None, None, 2])
    assert may("x IS NOT NULL", LONG, [None, None, 2])


@pytest.mark.parametrize("where", [where for where in CONDITIONS if where != "x IS NULL"])
def test_a_file_of_nulls_is_excluded_by_their_number(where: str) -> None:
    assert not may(where, LONG, [None, None, 3])
    assert may("x IS NULL", LONG, [None, None, 3])
    assert all_match("x IS NULL", LONG, [None, None, 3])
    assert not all_match("x IS NULL", LONG, [1, 1, 2])


NAN_WITH_ONE = entry_of([1.0, NAN], DOUBLE)


@pytest.mark.parametrize(
    "where",
    [
        "x > 5",
        "x >= 5",
        "x >= 'NaN'",
        "x = 'NaN'",
        "x != 1",
        "x NOT BETWEEN 0 AND 2",
        "x NOT IN (1, 2)",
        "NOT (x <= 5)",
        "x IN (7, 'NaN')",
        {"x": NAN},
        {"x": [*map(float, range(7, 9 + VALUES_MAX)), NAN]},
    ],
)
@pytest.mark.parametrize("values", [[1.0, NAN], [NAN, 1.0], [NAN, 1.0, -1.0], [NAN]])
def test_nan_is_greater_than_all_numbers_at_any_place(where: Any, values: list[float]) -> None:
    assert may_contain(where, DOUBLE, values)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = 'NaN'", False),
        ("x >= 'NaN'", False),
        ("x > 'NaN'", False),
        ("x != 'NaN'", True),
        ("x < 'NaN'", True),
        ("x <= 'NaN'", True),
        ("x IN (7, 'NaN')", False),
    ],
)
def test_a_known_greatest_number_excludes_nan(where: str, expected: bool) -> None:
    assert may_contain(where, DOUBLE, [1.0, 5.0]) == expected
    assert all_match(where, DOUBLE, [1.0, 5.0, 0]) == expected


def test_a_bound_that_is_nan_is_unknown() -> None:
    for where in CONDITIONS[:8]:
        assert may(where, DOUBLE, [NAN, NAN, 0])


def test_numbers_below_all_other_numbers_do_not_match_by_nan() -> None:
    assert not may_contain("x < 1", DOUBLE, [1.0, NAN])
    assert not all_match("x < 5", DOUBLE, NAN_WITH_ONE)
    assert all_match("x >= 1", DOUBLE, NAN_WITH_ONE)


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("x > 5", [INFINITY]),
        ("x < -5", [-INFINITY]),
        ("x = 'Infinity'", [1.0, INFINITY]),
        ("x >= 'Infinity'", [INFINITY]),
        ("x <= '-Infinity'", [-INFINITY, 1.0]),
        ("x IN (7, 'Infinity')", [INFINITY]),
    ],
)
def test_an_infinite_bound_is_unknown(where: str, values: list[float]) -> None:
    assert may_contain(where, DOUBLE, values)


@pytest.mark.parametrize("where", ["x = 0", "x = -0.0", "x <= -0.0", "x >= 0.0", "x IN (0, 7)", "x IN (-0.0, 7)"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_have_no_sign(where: str, zero: float) -> None:
    assert may_contain(where, DOUBLE, [zero])
    assert not may_contain("x < 0", DOUBLE, [zero])
    assert not may_contain("x != 0", DOUBLE, [zero])
    assert all_match(where, DOUBLE, entry_of([zero], DOUBLE))


def test_floats_are_compared_as_their_type() -> None:
    kind = pa.float32()
    tenth = np.float32(0.1).item()
    assert may_contain("x = 0.1", kind, [tenth])
    assert all_match("x = 0.1", kind, entry_of([tenth], kind))
    assert not may_contain("x > 0.1", kind, [tenth])


TEXTS = ["", "x" * 32, "x" * 33, "x" * 31 + LAST * 3, LAST * 40, "\ud7ff" * 33, "x" * 31 + "\ud7ff" * 2, "a\0", "é"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_long_text_is_between_its_bounds(text: str) -> None:
    for where in ({"x": text}, {"x": [text, "q"]}, {"x": [text, *map(str, range(VALUES_MAX))]}):
        assert may_contain(where, TEXT, [text])
    for sign in ("=", "<=", ">="):
        assert may_contain(f"x {sign} '{text}'", TEXT, [text])
    assert may_contain(f"x > '{text[:-1]}'", TEXT, [text + "a"])


def test_a_short_text_is_its_own_greatest_bound() -> None:
    assert entry_of(["x" * 32], TEXT) == ["x" * 32, "x" * 32, 0]
    assert not may_contain("x > 'b'", TEXT, ["a", "b"])


BYTES = [b"", b"\0", b"a\0", b"a\0\0", b"\xff", b"\x80", b"a" * 33, b"\xff" * 31 + b"a" * 9, b"\xff" * 40]


@pytest.mark.parametrize("value", BYTES)
def test_bytes_are_unsigned_and_may_end_with_zeros(value: bytes) -> None:
    for where in ({"x": value}, {"x": [value, b"q"]}, {"x": [value, *map(str, range(VALUES_MAX))]}):
        assert may_contain(where, BINARY, [value])
        assert may_contain(where, BINARY, [b"a", value, b"z"])
    assert may_contain("x < 'a'", BINARY, [b"\0", b"\xff"])
    assert may_contain("x > 'z'", BINARY, [b"a", b"\x80"])


def test_bytes_that_differ_by_a_zero_are_different() -> None:
    assert not may_contain({"x": b"a"}, BINARY, [b"a\0"])
    assert may_contain("x > 'a'", BINARY, [b"a\0"])
    assert may_contain("x != 'a'", BINARY, [b"a\0"])
    assert not all_match("x = 'a'", BINARY, entry_of([b"a\0"], BINARY))


def test_times_are_exact_to_the_microsecond() -> None:
    late = [NOON, LAST_MILLISECOND]
    text = "TIMESTAMP '2024-07-01 23:59:59.{}Z'"
    assert may_contain(f"x = {text.format(999_999)}", INSTANT, late)
    assert may_contain(f"x > {text.format(999)}", INSTANT, late)
    assert not may_contain(f"x > {text.format(999_999)}", INSTANT, late)


def test_times_without_an_offset_are_in_the_time_zone_of_the_directory() -> None:
    entry = entry_of([NOON], INSTANT)
    for time_zone, hour in (("UTC", 12), ("Europe/Berlin", 14), ("+05:30", 17)):
        columns = file_bounds(INSTANT, entry, time_zone=time_zone)
        text = f"TIMESTAMP '2024-07-01 {hour}:{'30' if time_zone == '+05:30' else '00'}:00'"
        assert columns.possible(f"x = {text}").all()
        assert columns.certain(f"x = {text}").all()
        assert not columns.possible(f"x != {text}").any()


def test_decimals_are_exact() -> None:
    kind, digits = pa.decimal128(38, 6), "99999999999999999999999999999999.99999"
    assert not may_contain(f"x > {digits}8", kind, [Decimal(f"{digits}8")])
    assert may_contain(f"x > {digits}7", kind, [Decimal(f"{digits}8")])
    assert may("x = 7.505", pa.decimal128(6, 3), ["7.505", "7.505", 0])
    assert may("x = 1", pa.decimal128(5, 2), ["7.505", "7.505", 0]), "a bound of another scale is unknown"


def test_whole_numbers_keep_their_bounds_when_their_type_is_widened() -> None:
    assert not may("x = 9223372036854775807", LONG, [-128, 127, 0])
    assert not may("x > 9007199254740992", LONG, [0, 2**53, 0])
    assert may("x > 9007199254740992", LONG, [0, 2**53 + 1, 0])


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        (LONG, "7"),
        (LONG, 7.5),
        (LONG, True),
        (LONG, 2**64),
        (TEXT, 7),
        (TEXT, chr(55296)),
        (BINARY, "é"),
        (BINARY, "a"),
        (pa.decimal128(5, 2), "x"),
        (pa.decimal128(5, 2), 7),
        (pa.bool_(), 1),
        (INSTANT, "2024-07-01"),
        (DOUBLE, "1"),
    ],
)
def test_a_bound_that_is_not_a_value_of_the_type_is_unknown(kind: pa.DataType, bounds: Any) -> None:
    where = {"x": {pa.bool_(): False, INSTANT: NOON, TEXT: "q", BINARY: b"q"}.get(kind, 5)}
    columns = file_bounds(kind, [bounds, bounds, 0])
    assert columns.possible(where).all()
    assert not columns.certain(where).any()


def test_an_unknown_bound_of_a_file_does_not_change_other_files() -> None:
    columns = file_bounds(LONG, [1, 3, 0], ["1", "3", 0], [None, None, 0], [4, 9, 0])
    assert columns.possible("x = 5").tolist() == [False, True, True, True]
    decimals = file_bounds(pa.decimal128(5, 2), ["1.00", "3.00", 0], ["1.005", "x", 0], ["4.00", "9.00", 0])
    assert decimals.possible("x = 5").tolist() == [False, True, True]


def test_columns_without_an_order_are_unknown() -> None:
    for kind in (pa.list_(LONG), pa.struct({"a": LONG}), pa.time64("us"), pa.timestamp("ms"), pa.timestamp("s", "UTC")):
        assert may("x IS NULL", kind, [1, 1, 0])
    assert may("x > TIMESTAMP '2024-07-01 00:00:00'", pa.timestamp("ms"), [0, 0, 0])


def test_names_with_dots_are_not_fields_of_structs() -> None:
    columns = file_bounds(LONG, [1, 9, 0], name="a.b")
    assert not columns.possible("`A.B` = 10").any()


def test_many_values_are_compared_by_the_least_and_the_greatest() -> None:
    many = range(10, 11 + VALUES_MAX)
    assert not may({"x": many}, LONG, [1, 9, 0])
    assert may({"x": many}, LONG, [1, 10, 0])
    assert may({"x": [0, *many]}, LONG, [1, 9, 0])
    assert may({"x": [*many, 4]}, LONG, [1, 9, 0])
    assert may({"x": [*map(float, many), NAN]}, DOUBLE, [1000.0, None, 0]), "NaN is above the bounds"
    listed = ", ".join(map(str, many))
    assert may(f"x NOT IN ({listed})", LONG, [10, 11, 0])
    assert not may(f"x NOT IN ({listed}, NULL)", LONG, [1, 9, 0])
    assert not may({"x": [NAN] * (VALUES_MAX + 1)}, DOUBLE, [1.0, 9.0, 0])


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x > 0", True),
        ("x >= 1 AND x <= 9", True),
        ("x BETWEEN 1 AND 9", True),
        ("x BETWEEN 1 AND 8", False),
        ("x = 5", False),
        ("x != 10", True),
        ("x NOT IN (0, 10)", True),
        ("x NOT IN (0, 5)", False),
        ("NOT (x = 10)", True),
        ("x > 0 OR other = 5", True),
        ("x > 0 AND other = 5", False),
        ("x IS NOT NULL", True),
        ("x IS NULL", False),
        ("TRUE", True),
        ("NOT FALSE", True),
        ({}, True),
        ({"x": [4, None]}, False),
    ],
)
def test_all_rows_match_if_no_row_can_match_the_opposite(where: Any, expected: bool) -> None:
    assert all_match(where, LONG, [1, 9, 0]) == expected


def test_rows_with_nulls_do_not_match_with_the_other_rows() -> None:
    for where in ("x > 0", "x != 10", "x NOT IN (0, 10)", "x BETWEEN 1 AND 9", "NOT (x < 1)", "x IS NOT NULL"):
        assert all_match(where, LONG, [1, 9, 0])
        assert not all_match(where, LONG, [1, 9, 1])
    assert all_match("x IN (4, 5)", LONG, [5, 5, 0])
    assert not all_match("x IN (4, 5)", LONG, [5, 5, 1])
    assert not all_match({"x": [5, None]}, LONG, [5, 5, 1]), "no conclusion from both together"


@pytest.mark.parametrize(
    "where",
    [
        "NULL",
        "NOT NULL",
        "x = NULL",
        "NOT (x = NULL)",
        "x IN (10, NULL)",
        "x NOT IN (10, NULL)",
        "x BETWEEN 1 AND NULL",
        "x NOT BETWEEN NULL AND 10",
        "NOT (x IN (10, NULL))",
        "x = 10 OR NULL",
        "x > 0 AND NULL",
        "FALSE",
    ],
)
def test_no_row_matches_by_a_comparison_with_null(where: str) -> None:
    """Neither the condition nor its opposite matches a row."""
    assert not all_match(where, LONG, [1, 9, 0])


def test_a_column_has_one_entry_for_each_file() -> None:
    with pytest.raises(ValueError, match="column 'x' does not have 2 entries"):
        FileBounds({"x": BoundsColumn([1], [9], [0])}, rows=[3, 3])


def by_expression(where: pc.Expression, kind: pa.DataType, *entries: list[Any], rows: int | None = 3) -> list[bool]:
    columns = file_bounds(kind, *entries, rows=rows)
    schema = pa.schema([columns.schema.field("x")])
    answers: list[bool] = possible_by_expression(where, schema, columns.bounds, columns.rows).tolist()
    return answers


X = pc.field("x")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (X == 5, [False, True, True, True]),
        (X > 3, [False, True, True, True]),
        (~(X <= 3), [False, True, True, True]),
        (X.is_null(), [False, True, True, False]),
        (X.is_null() | (X == 2), [True, True, True, True]),
        (X.isin([2, 7]), [True, True, True, True]),
        (X.isin([7, None]), [False, True, True, True]),
        (X == 100, [False, False, True, True]),
        (X.is_valid() & (X < 0), [False, False, True, True]),
    ],
)
def test_arrow_excludes_files_by_a_guarantee(where: pc.Expression, expected: list[bool]) -> None:
    entries: list[list[Any]] = [[1, 3, 0], [4, 9, 1], [None, None, None], [None, None, 0]]
    assert by_expression(where, LONG, *entries) == expected


def test_a_file_of_nulls_is_possible_by_null_only() -> None:
    nulls: list[Any] = [None, None, 3]
    assert by_expression(X > 3, LONG, nulls) == [False]
    assert by_expression(X.is_null(), LONG, nulls) == [True]
    assert by_expression(X > 3, LONG, nulls, rows=None) == [True]


def test_a_guarantee_says_nothing_about_floats() -> None:
    assert by_expression(X > 10, DOUBLE, [1.0, 5.0, 0]) == [True]
    assert by_expression(~(X > 10), DOUBLE, [11.0, 12.0, 0]) == [True]


def test_a_guarantee_says_nothing_about_converted_values() -> None:
    number = 16_777_217  # as a 32-bit float, it is 16,777,216
    converted = X.cast(pa.float32(), safe=False)
    for where in (converted.isin([16_777_216.0]), converted == 16_777_216.0):
        assert by_expression(where, pa.int32(), [number, number, 0]) == [True]
    moment = pa.scalar(1, pa.timestamp("us"))
    assert by_expression(X.isin([moment]), pa.date32(), [0, 0, 0]) == [True], "Arrow converts the moment to a day"
    assert by_expression(X.isin([3]), LONG, [5, 5, 0]) == [False]


def test_an_expression_that_arrow_cannot_print_or_compare_excludes_nothing() -> None:
    # Some versions of Arrow shorten a text within a character, and cannot print it.
    where = X.isin(["x" + "é" * 100])
    assert by_expression(where, TEXT, ["a", "b", 0]) == [text_of(where) is None]
    assert by_expression(X > 0.5, LONG, [2**53 + 1, 2**53 + 1, 0]) == [True]


def test_more_files_than_arrow_compares_quickly_are_possible() -> None:
    assert by_expression(X == 5, LONG, *[[1, 3, 0]] * (FILES_MAX + 1)) == [True] * (FILES_MAX + 1)


def test_many_columns_that_may_be_null_have_few_guarantees() -> None:
    names = [f"c{number}" for number in range(12)]
    schema = pa.schema(dict.fromkeys(names, LONG))
    bounds = {name: BoundsColumn([1, 4], [3, 9], [1, 1]) for name in names}
    where = (pc.field("c0") == 5) & (pc.field("c11") > 0)
    assert possible_by_expression(where, schema, bounds, [3, 3]).tolist() == [False, True]
