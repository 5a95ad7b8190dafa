"""Columns of Parquet, ORC and Arrow files that are read as another type, and the refused pairs of types."""

from __future__ import annotations

import datetime
import io
import runpy
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from ftfile.core.errors import SchemaError, SourceError
from ftfile.source.decoding.casts import CASTS
from ftfile.source.settings import FileDecoding

if TYPE_CHECKING:
    from tests.unit.source.planned import Files

ROOT = Path(__file__).parents[3]
PAGES = runpy.run_path(str(ROOT / ".ci/casts.py"))
FORMATS = ("parquet", "orc", "arrow")
NTZ, LTZ = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
NS, NS_LTZ = pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")
DAY = datetime.date(2024, 7, 1)
NOON_UTC = datetime.datetime(2024, 7, 1, 12, 0, 0, 5, tzinfo=datetime.timezone.utc)
NOON = NOON_UTC.replace(tzinfo=None)


def dec(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


def file_of(file_format: str, columns: dict[str, pa.Array]) -> bytes:
    """Return a file with these columns."""
    sink, table = io.BytesIO(), pa.table(columns)
    if file_format == "parquet":
        pq.write_table(table, sink)
    elif file_format == "orc":
        orc.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def read(files: Files, file_format: str, column: pa.Array, wanted: pa.DataType, **options: Any) -> list[Any]:
    files.write("data", file_of(file_format, {"c": column}))
    schema = pa.schema([("c", wanted)])
    return [value for (value,) in files.rows(files.whole("data"), schema, FileDecoding(file_format, **options))]


EXACT = [
    (pa.int32(), [2, None], pa.int64(), [2, None], FORMATS),
    (pa.int64(), [2, -(2**31)], pa.int32(), [2, -(2**31)], FORMATS),
    (pa.uint64(), [2**63 - 1], pa.int64(), [2**63 - 1], ("parquet", "arrow")),
    (pa.uint64(), [2**64 - 1], dec(20, 0), [Decimal(2**64 - 1)], ("parquet", "arrow")),
    (pa.int32(), [2**31 - 1], pa.float64(), [2.0**31 - 1], FORMATS),
    (pa.int64(), [2**53], pa.float64(), [2.0**53], FORMATS),
    (pa.int64(), [7], dec(5, 2), [Decimal("7.00")], FORMATS),
    (pa.int64(), [2**63 - 1], dec(38, 10), [Decimal(2**63 - 1)], FORMATS),
    (pa.float16(), [0.5], pa.float64(), [0.5], ("parquet", "arrow")),
    (pa.float32(), [0.5], pa.float64(), [0.5], FORMATS),
    (pa.float64(), [0.25, float("inf"), None], pa.float32(), [0.25, float("inf"), None], FORMATS),
    (dec(5, 2), [Decimal("1.25")], dec(20, 4), [Decimal("1.25")], FORMATS),
    (dec(12, 2), [Decimal("1.20")], dec(5, 1), [Decimal("1.2")], FORMATS),
    (dec(20, 0), [Decimal(12)], pa.int32(), [12], FORMATS),
    (pa.decimal256(50, 2), [Decimal("1.20")], dec(5, 1), [Decimal("1.2")], ("parquet", "arrow")),
    (pa.string(), ["ä"], pa.binary(), ["ä".encode()], FORMATS),
    (pa.binary(), ["ä".encode()], pa.string(), ["ä"], ("parquet", "arrow")),
    (pa.binary(2), [b"ab"], pa.binary(), [b"ab"], ("parquet", "arrow")),
    (pa.uuid(), [bytes(16)], pa.binary(), [bytes(16)], ("parquet", "arrow")),
    (pa.large_string(), ["x"], pa.string(), ["x"], ("parquet", "arrow")),
    (pa.string_view(), ["x"], pa.string(), ["x"], ("arrow",)),
    (pa.dictionary(pa.int32(), pa.string()), ["x", "x"], pa.string(), ["x", "x"], ("parquet", "arrow")),
    (pa.date64(), [DAY], pa.date32(), [DAY], ("parquet", "arrow")),
    (pa.date32(), [DAY], NTZ, [datetime.datetime(2024, 7, 1)], ("parquet", "arrow")),  # noqa: DTZ001
    (pa.timestamp("ms"), [1], NTZ, [datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)], ("parquet", "arrow")),  # noqa: DTZ001
    (NTZ, [NOON], LTZ, [NOON_UTC], FORMATS),
    (LTZ, [NOON_UTC], NTZ, [NOON], ("parquet", "arrow")),
    (NTZ, [NOON], NTZ, [NOON], FORMATS),
    (NS, [1_000], NTZ, [datetime.datetime(1970, 1, 1, 0, 0, 0, 1)], ("parquet", "arrow")),  # noqa: DTZ001
    (pa.int64(), [1], NTZ, [datetime.datetime(1970, 1, 1, 0, 0, 0, 1)], ("orc",)),  # noqa: DTZ001
    (NS, [1_500], NTZ, [datetime.datetime(1970, 1, 1, 0, 0, 0, 1)], FORMATS),  # noqa: DTZ001
    (NS, [-1_500], NTZ, [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_998)], ("parquet", "arrow")),  # noqa: DTZ001
    (pa.list_(pa.int64()), [[1], None, []], pa.list_(pa.int32()), [[1], None, []], FORMATS),
    (pa.large_list(pa.int64()), [[1], None], pa.list_(pa.int32()), [[1], None], ("parquet", "arrow")),
    (pa.list_(pa.int64(), 2), [[1, 2]], pa.list_(pa.int32()), [[1, 2]], ("parquet", "arrow")),
    (pa.null(), [None], pa.int32(), [None], ("parquet", "arrow")),
]


@pytest.mark.parametrize(
    ("file_format", "found", "values", "wanted", "expected"),
    [(file_format, *case[:4]) for case in EXACT for file_format in case[4]],
)
def test_a_value_that_fits_is_read(
    files: Files, file_format: str, found: pa.DataType, values: list[Any], wanted: pa.DataType, expected: list[Any]
) -> None:
    assert read(files, file_format, pa.array(values, found), wanted) == expected


MISFITS = [
    (pa.int64(), 5_000_000_000, pa.int32(), FORMATS),
    (pa.int32(), 300, pa.int8(), FORMATS),
    (pa.uint64(), 2**64 - 1, pa.int64(), ("parquet", "arrow")),
    (pa.int64(), 2**53 + 1, pa.float64(), FORMATS),
    (pa.int64(), 1000, dec(5, 2), FORMATS),
    (pa.float64(), 0.1, pa.float32(), FORMATS),
    (pa.float64(), 1e300, pa.float32(), FORMATS),
    (dec(12, 2), Decimal("1.25"), dec(5, 1), FORMATS),
    (dec(12, 2), Decimal("9999.00"), dec(5, 2), FORMATS),
    (dec(20, 0), Decimal(5_000_000_000), pa.int32(), FORMATS),
    (dec(38, 10), Decimal(1467481718443461132763745007), dec(38, 18), FORMATS),
    (pa.int64(), 10**18, dec(38, 30), FORMATS),
    (pa.binary(), b"\xff", pa.string(), ("parquet", "arrow")),
    (pa.timestamp("s"), 2**60, NTZ, ("arrow",)),
    (pa.list_(pa.int64()), [1, 5_000_000_000], pa.list_(pa.int32()), FORMATS),
    (pa.map_(pa.string(), pa.int64()), [("a", 300)], pa.map_(pa.string(), pa.int8()), FORMATS),
    (pa.struct([("a", pa.int64())]), {"a": 300}, pa.struct([("a", pa.int8())]), FORMATS),
]


@pytest.mark.parametrize(
    ("file_format", "found", "value", "wanted"),
    [(file_format, *case[:3]) for case in MISFITS for file_format in case[3]],
)
def test_a_value_that_does_not_fit_is_a_bad_record(
    files: Files, file_format: str, found: pa.DataType, value: object, wanted: pa.DataType
) -> None:
    column = pa.array([None, value, None], found)
    with pytest.raises(SourceError, match=r"'data': row 2 has .* in the column `c`"):
        read(files, file_format, column, wanted)
    assert read(files, file_format, column, wanted, bad_records="drop") == [None, None]


REFUSED = [
    (pa.bool_(), pa.int32(), FORMATS),
    (pa.int64(), pa.bool_(), FORMATS),
    (pa.int64(), LTZ, FORMATS),
    (pa.int64(), NTZ, ("parquet", "arrow")),
    (pa.int32(), pa.date32(), FORMATS),
    (pa.int64(), pa.string(), FORMATS),
    (pa.uint32(), pa.float64(), ("parquet", "arrow")),
    (pa.float32(), pa.int64(), FORMATS),
    (pa.float64(), dec(10, 2), FORMATS),
    (dec(22, 2), pa.float64(), FORMATS),
    (dec(5, 2), pa.int32(), FORMATS),
    (pa.string(), pa.int64(), FORMATS),
    (pa.string(), pa.date32(), FORMATS),
    (pa.binary(), pa.string(), ("orc",)),
    (pa.binary(2), pa.string(), ("parquet", "arrow")),
    (pa.date32(), pa.int32(), FORMATS),
    (pa.date32(), LTZ, FORMATS),
    (NTZ, pa.date32(), FORMATS),
    (NTZ, pa.int64(), FORMATS),
    (LTZ, pa.int64(), FORMATS),
    (NS, pa.int64(), ("parquet", "arrow")),
    (LTZ, NTZ, ("orc",)),
    (pa.time64("us"), pa.int64(), ("parquet", "arrow")),
    (pa.duration("us"), pa.int64(), ("parquet", "arrow")),
    (pa.null(), pa.list_(pa.int64()), ("parquet", "arrow")),
    (pa.list_(pa.uuid()), pa.list_(pa.binary()), ("arrow",)),
    (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64(), ("arrow",)),
    (pa.list_(pa.int64()), pa.int64(), FORMATS),
    (pa.int64(), pa.list_(pa.int64()), FORMATS),
    (pa.list_(pa.int64()), pa.list_(pa.string()), FORMATS),
    (pa.list_(pa.struct([("a", pa.int64())])), pa.list_(pa.struct([("a", pa.string())])), FORMATS),
    (pa.map_(pa.int64(), pa.string()), pa.map_(pa.string(), pa.string()), FORMATS),
]


@pytest.mark.parametrize(
    ("file_format", "found", "wanted"),
    [(file_format, *case[:2]) for case in REFUSED for file_format in case[2]],
)
def test_another_pair_of_types_is_refused_before_rows_are_read(
    files: Files, file_format: str, found: pa.DataType, wanted: pa.DataType
) -> None:
    with pytest.raises(SchemaError, match=r"'data': column `c.*cannot be read as .* cast it in the query"):
        read(files, file_format, pa.nulls(1, found), wanted, bad_records="drop")


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_time_before_1970_is_cut_toward_the_past(files: Files, file_format: str) -> None:
    column = pa.array([-2_000_000_000], NS)
    assert read(files, file_format, column, NTZ) == [datetime.datetime(1969, 12, 31, 23, 59, 58)]  # noqa: DTZ001


@pytest.mark.parametrize("file_format", FORMATS)
def test_fields_of_structs_are_found_by_name_case_aside(files: Files, file_format: str) -> None:
    found = pa.array([[{"A": 1, "b": {"C": "x"}}], None], pa.list_(pa.struct([
        ("A", pa.int64()), ("b", pa.struct([("C", pa.string())]))])))  # fmt: skip
    wanted = pa.list_(
        pa.struct([("a", pa.int32()), ("B", pa.struct([("c", pa.string()), ("d", pa.int8())])), ("e", pa.int8())])
    )
    assert read(files, file_format, found, wanted) == [[{"a": 1, "B": {"c": "x", "d": None}, "e": None}], None]


def test_no_pair_of_types_has_two_rows_in_the_table() -> None:
    pairs = [
        (file_format, found, wanted)
        for cast in CASTS
        for file_format in cast.formats
        for found in cast.stored
        for wanted in cast.target
    ]
    assert len(pairs) == len(set(pairs))


def test_the_page_has_the_table() -> None:
    page = PAGES["PAGE"].read_text()
    assert PAGES["to_markdown"](page) == page, "run `make docs`"
