"""Directory paths: Spark's names, no two values in one directory that need two, and the same values back."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import CorruptData, EncodingError, SchemaError
from ftfile.formats.partition_paths import (
    NULL_NAME,
    check_partition_column,
    parse_partition_path,
    partition_names,
    rescaled_columns,
)

INSTANT, WALL = pa.timestamp("us", "UTC"), pa.timestamp("us")
PARIS = "Europe/Paris"


def name(value: object, kind: pa.DataType, time_zone: str = "UTC") -> str:
    (found,) = partition_names("k", pa.array([value], kind), time_zone)
    return found.removeprefix("k=")


def parsed(text: str, kind: pa.DataType, time_zone: str = "UTC") -> Any:
    return parse_partition_path(f"k={text}", pa.schema([("k", kind)]), time_zone)["k"]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.bool_(), True, "true"),
        (pa.bool_(), False, "false"),
        (pa.int8(), -1, "-1"),
        (pa.int64(), 2**63 - 1, "9223372036854775807"),
        (pa.decimal128(10, 2), Decimal("1.5"), "1.50"),
        (pa.decimal128(38, 18), Decimal(0), "0.000000000000000000"),
        (pa.decimal128(38, 18), Decimal("1E-11"), "0.000000000010000000"),
        (pa.decimal128(5, 0), Decimal(-12), "-12"),
        (pa.float64(), 1e10, "1.0E10"),
        (pa.float64(), 123456789.125, "1.23456789125E8"),
        (pa.float64(), 1e7, "1.0E7"),
        (pa.float64(), 9999999.0, "9999999.0"),
        (pa.float64(), -1234567.125, "-1234567.125"),
        (pa.float64(), 0.001, "0.001"),
        (pa.float64(), 0.00123, "0.00123"),
        (pa.float64(), 1e-4, "1.0E-4"),
        (pa.float64(), -0.0, "-0.0"),
        (pa.float64(), 5e-324, "4.9E-324"),
        (pa.float64(), 2e23, "2.0E23"),
        (pa.float64(), math.inf, "Infinity"),
        (pa.float64(), -math.inf, "-Infinity"),
        (pa.float64(), math.nan, "NaN"),
        (pa.float32(), 0.1, "0.1"),
        (pa.float32(), 3.4028235e38, "3.4028235E38"),
        (pa.float32(), 1.4e-45, "1.4E-45"),
        (pa.float32(), 16777216.0, "1.6777216E7"),
        (pa.string(), "ü€😀 a<b>|c,;&@!$()+~`-_}.", "ü€😀 a<b>|c,;&@!$()+~`-_}."),
        (pa.string(), "\"#%'*/:=?\\{[]^", "%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%5B%5D%5E"),
        (pa.string(), "\x01\t\n\r\x1f\x7f\x85", "%01%09%0A%0D%1F%7F\x85"),
        (pa.string(), "a%2Fb", "a%252Fb"),
        (pa.string(), "..", ".."),
        (pa.large_string(), "a=b", "a%3Db"),
        (pa.dictionary(pa.int8(), pa.string()), "a:b", "a%3Ab"),
        (pa.date32(), dt.date(2024, 2, 29), "2024-02-29"),
        (pa.date32(), dt.date(1, 1, 1), "0001-01-01"),
        (pa.date32(), 10_000_000, "+29349-01-26"),
        (pa.date32(), -800_000, "-0221-09-04"),
        (WALL, dt.datetime(2024, 2, 29), "2024-02-29 00%3A00%3A00"),  # noqa: DTZ001
        (WALL, dt.datetime(2024, 2, 29, 12, 34, 56, 120_000), "2024-02-29 12%3A34%3A56.12"),  # noqa: DTZ001
        (INSTANT, -1, "1969-12-31 23%3A59%3A59.999999"),
        (INSTANT, 253402300800000000, "+10000-01-01 00%3A00%3A00"),
        (INSTANT, -9223372036854775807, "-290308-12-21 19%3A59%3A05.224193"),
        (pa.timestamp("s", "UTC"), 1, "1970-01-01 00%3A00%3A01"),
        (pa.timestamp("ms"), 1_500, "1970-01-01 00%3A00%3A01.5"),
    ],
    ids=str,
)
def test_text_of_values(kind: pa.DataType, value: object, text: str) -> None:
    assert name(value, kind) == text
    back = parsed(text, kind)
    expected = pa.array([value], kind).cast(back.type)[0]
    assert back.equals(expected) or repr(back.as_py()) == repr(expected.as_py()) == "nan"
    assert name(None, kind) == NULL_NAME
    assert parsed(NULL_NAME, kind).as_py() is None


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_an_empty_string_is_refused_by_column(kind: pa.DataType) -> None:
    with pytest.raises(EncodingError, match=r"column 'k' contains an empty string.*null.*nullif\(`k`, ''\)"):
        name("", kind)


@pytest.mark.parametrize("text", [NULL_NAME, "a._COPYING_", "\0", "_COPYING_", "%", "a%", "%5F", "%2", " "])
def test_texts_that_look_like_something_else_come_back(text: str) -> None:
    written = name(text, pa.string())
    assert written != NULL_NAME
    assert not written.endswith("._COPYING_")
    assert "\0" not in written
    assert parsed(written, pa.string()).as_py() == text


@pytest.mark.slow
@pytest.mark.packages
@given(first=st.text(min_size=1, max_size=12), second=st.text(min_size=1, max_size=12))
def test_no_two_strings_share_a_directory(first: str, second: str) -> None:
    names = [name(text, pa.string()) for text in (first, second)]
    assert (names[0] == names[1]) == (first == second)
    assert [parsed(written, pa.string()).as_py() for written in names] == [first, second]
    assert not any("/" in written or "=" in written for written in names)


@given(value=st.floats(allow_nan=False))
def test_doubles_come_back(value: float) -> None:
    assert repr(parsed(name(value, pa.float64()), pa.float64()).as_py()) == repr(value)


@given(value=st.floats(width=32, allow_nan=False))
def test_floats_come_back(value: float) -> None:
    assert repr(parsed(name(value, pa.float32()), pa.float32()).as_py()) == repr(value)


@pytest.mark.slow
@pytest.mark.packages
@given(value=st.integers(-(2**62), 2**62), zone=st.sampled_from(["UTC", PARIS, "America/New_York", "Asia/Kolkata"]))
def test_timestamps_come_back_in_any_zone(value: int, zone: str) -> None:
    for kind in (INSTANT, WALL):
        assert parsed(name(value, kind, zone), kind, zone) == pa.scalar(value, kind)


def test_instants_are_shown_by_the_clocks_of_the_zone() -> None:
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=dt.timezone.utc)
    assert name(noon, INSTANT, PARIS) == "2024-07-01 14%3A00%3A00"
    assert name(noon.replace(tzinfo=None), WALL, PARIS) == "2024-07-01 12%3A00%3A00"
    assert name(noon, pa.timestamp("us", "Asia/Tokyo"), PARIS) == "2024-07-01 14%3A00%3A00"
    assert name(dt.datetime(1874, 12, 7, 18, 40, tzinfo=dt.timezone.utc), INSTANT, PARIS) == ("1874-12-07 18%3A49%3A21")


def test_an_hour_that_comes_twice_has_two_directories() -> None:
    first = dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.timezone.utc)
    second = first + dt.timedelta(hours=1)
    assert name(first, INSTANT, PARIS) == "2024-10-27 02%3A30%3A00"
    assert name(second, INSTANT, PARIS) == "2024-10-27 02%3A30%3A00+01%3A00"
    assert parsed("2024-10-27 02%3A30%3A00", INSTANT, PARIS).as_py() == first
    assert parsed("2024-10-27 02%3A30%3A00+01%3A00", INSTANT, PARIS).as_py() == second


def test_paths_of_several_columns() -> None:
    values = {"day": pa.scalar(0, pa.date32()), "a/b": pa.scalar("x/y"), ".dot": pa.scalar(None, pa.int8())}
    path = "/".join(name for column, value in values.items() for name in partition_names(column, pa.repeat(value, 1)))
    assert path == f"day=1970-01-01/a%2Fb=x%2Fy/%2Edot={NULL_NAME}"
    schema = pa.schema([(column, value.type) for column, value in values.items()])
    assert parse_partition_path(path, schema) == values
    assert list(parse_partition_path(path, pa.schema([schema.field("a/b")]))) == ["a/b"]


def test_names_that_readers_overlook_are_escaped() -> None:
    assert partition_names("_k", pa.array(["_v"])) == ["%5Fk=_v"]
    assert partition_names(".k", pa.array([".v"])) == ["%2Ek=.v"]


def test_values_keep_their_order() -> None:
    assert partition_names("k", pa.array(["b", None, "a", None, "b"])) == [
        "k=b",
        f"k={NULL_NAME}",
        "k=a",
        f"k={NULL_NAME}",
        "k=b",
    ]


def test_long_names_are_refused_by_column() -> None:
    assert len(name("x" * 253, pa.string())) == 253
    assert name("é" * 126, pa.string())
    for text in ("x" * 254, "é" * 127, "/" * 85):
        with pytest.raises(EncodingError, match=r"value of column 'k' gives a directory name of \d{3} bytes"):
            name(text, pa.string())


def test_what_has_no_text_is_refused_by_column() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]
    )
    with pytest.raises(EncodingError, match=r"column 'k' contains a value .* cannot be part of a path: .*utf-8"):
        partition_names("k", broken)
    for far in (2**63 - 1, -(2**63)):
        with pytest.raises(EncodingError, match="column 'k' contains a value that cannot be part of a path"):
            name(far, INSTANT, PARIS)


REFUSED = [
    pa.binary(),
    pa.list_(pa.int8()),
    pa.struct([("x", pa.int8())]),
    pa.map_(pa.string(), pa.int8()),
    pa.null(),
    pa.timestamp("ns"),
    pa.duration("us"),
    pa.time64("us"),
    pa.month_day_nano_interval(),
    pa.dictionary(pa.int8(), pa.binary()),
]


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_types_that_cannot_be_in_a_path(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"column 'k' of type .* cannot be part of a path; use a boolean"):
        check_partition_column(pa.field("k", kind))


def test_columns_that_can_be_in_a_path() -> None:
    numbers = (pa.bool_(), pa.int16(), pa.float32(), pa.decimal128(5, 1))
    for kind in (*numbers, pa.string(), pa.date32(), INSTANT, WALL):
        check_partition_column(pa.field("k", kind))
    with pytest.raises(SchemaError, match="without a name"):
        check_partition_column(pa.field("", pa.string()))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("maybe", pa.bool_()),
        ("1.5", pa.int32()),
        ("300", pa.int8()),
        ("one", pa.float64()),
        ("one", pa.decimal128(5, 1)),
        ("1.25", pa.decimal128(5, 1)),
        ("2024-13-01", pa.date32()),
        ("yesterday", pa.date32()),
        ("+999999999-01-01", pa.date32()),
        ("2024-01-01", WALL),
        ("2024-01-01 25%3A00%3A00", INSTANT),
        ("", pa.string()),
    ],
)
def test_paths_that_hold_no_such_value(text: str, kind: pa.DataType) -> None:
    with pytest.raises(CorruptData, match=r"'k=.*' is corrupt: expected a value of column 'k' of type "):
        parsed(text, kind)


def test_a_path_that_lacks_a_column() -> None:
    with pytest.raises(CorruptData, match="expected a value of column 'day' of type date32"):
        parse_partition_path("k=1", pa.schema([("day", pa.date32())]))


def test_directories_below_the_partition_columns_are_not_read() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    values = parse_partition_path("a=1/b=x/a=2/b=y//c=z", schema)
    assert [values["a"].as_py(), values["b"].as_py()] == [1, "x"]


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("m=1.25/b=1", []),
        ("m=1.2/b=1", ["m"]),
        (f"m={NULL_NAME}", []),
        ("m=1", ["m"]),
        ("m\udcff=1/\udcc3\udcff=1", []),
    ],
)
def test_decimals_of_another_scale_in_paths_of_any_bytes(path: str, columns: list[str]) -> None:
    schema = pa.schema([("m", pa.decimal128(10, 2)), ("b", pa.int64())])
    assert rescaled_columns(path, schema) == columns
