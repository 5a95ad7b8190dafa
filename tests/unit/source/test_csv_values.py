"""pyarrow's CSV parser is used only for columns in which it reads the same values as a cast of the texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.source.decoding.csv_lines import CsvRows
from ftfile.source.decoding.records import LineBlock, finished_rows
from ftfile.source.settings import FileDecoding, own_columns
from tests.unit.source.planned import Files

if TYPE_CHECKING:
    from pathlib import Path

BAD = pa.field("_corrupt_record", pa.string())
NUMBERS = ["1", "-0", "+5", "007", "0x1F", "1e3", "1.5", ".5", "1_000", "99999999999", "inf", "NaN", "1\xa0", "1\x0b"]
TIMES = [
    *("2024-07-01", "2024-7-1", "2024-02-30", "20240701", "1719835200", "2024-07-01 12:00:00", "2024-07-01T25:00:00Z"),
    *("2024-07-01T12:00:00Z", "2024-07-01T12:00:00.1234567Z", "2024-07-01T14:00:00+02:00", "2024-07-01T12:00"),
]
VALUES: dict[pa.DataType, list[str]] = {
    pa.int8(): [*NUMBERS, "127", "128"],
    pa.int64(): [*NUMBERS, "9223372036854775807", "9223372036854775808"],
    pa.float32(): [*NUMBERS, "16777217", "3.5e38"],
    pa.float64(): [*NUMBERS, "1e400", "-Infinity"],
    pa.bool_(): ["true", "False", "TRUE", "tRuE", "1", "t"],
    pa.date32(): TIMES,
    pa.timestamp("us", tz="UTC"): TIMES,
    pa.timestamp("us"): TIMES,
    pa.decimal128(10, 2): NUMBERS,
}
AROUND = ["{}", " {}", "{} ", "{}\t", '"{}"', '" {}"', '"{} "', "", '""']


def rows(text: str, schema: pa.Schema, **options: Any) -> list[str]:
    decoding = FileDecoding("csv", **options)
    lines = LineBlock(text.encode())
    found = CsvRows(schema, own_columns(schema, decoding).names, decoding).rows(lines)
    batches = finished_rows(found, lines, schema, decoding, "data")
    return [repr(row) for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("kind", VALUES, ids=str)
@pytest.mark.parametrize("options", [{}, {"sep": "\t", "escape": '"'}], ids=str)
def test_a_value_is_read_alone_as_among_others_and_at_once_as_text_is(
    kind: pa.DataType, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("a", kind), ("s", pa.string()), BAD])
    sep = options.get("sep", ",")
    lines = [f"{around.format(value)}{sep}x\n" for value in VALUES[kind] for around in AROUND]
    single = [row for line in lines for row in rows(line, schema, **options)]
    assert rows("".join(lines), schema, **options) == single
    monkeypatch.setattr(CsvRows, "_types_read_at_once", lambda _: {})
    assert rows("".join(lines), schema, **options) == single


def test_decimals_with_large_exponents_are_bad_records() -> None:
    """Arrow's cast of these texts would end the process."""
    schema = pa.schema([("a", pa.decimal128(10, 2)), BAD])
    good = ["1e3", "125E-2", "0e500", "1e-1000"]
    bad = ["1e999999999", "1e-999999999", "1e2147483648", "0e99999999999", "0e1001"]
    found = rows("".join(f"{text}\n" for text in (*good, *bad)), schema)
    values = ["Decimal('1000.00')", "Decimal('1.25')", "Decimal('0.00')", "Decimal('0.00')"]
    assert found == [f"({value}, None)" for value in values] + [f"(None, {text!r})" for text in bad]


@pytest.mark.parametrize(
    ("data", "characters"),
    [(b"\xed\xa0\x80", 1), (b"\xed\xa0", 1), (b"\xc0\x80", 2), (b"\xe2\x82", 1), (b"\xed\x9f\xbf", 0)],
)
def test_as_many_bytes_are_replaced_as_in_java(tmp_path: Path, data: bytes, characters: int) -> None:
    files = Files(tmp_path)
    files.write("data", b"x" + data + b"\n")
    schema = pa.schema([("s", pa.string())])
    expected = "x" + "\ufffd" * characters if characters else f"x{data.decode()}"
    assert files.rows(files.range("data"), schema, FileDecoding("csv")) == [(expected,)]
    assert files.rows(files.whole("data"), schema, FileDecoding("csv", multi_line=True)) == [(expected,)]


@pytest.mark.parametrize("text", ["92718285264553833960121636487168", "-271654242607540783175172096", "1" + "0" * 60])
def test_decimals_with_too_many_digits_before_the_point_are_bad_records(text: str) -> None:
    """Arrow's cast of these texts returns wrong numbers."""
    schema = pa.schema([("a", pa.decimal128(38, 18)), BAD])
    assert rows(f"{text}\n00000000000000000000001\n", schema) == [
        f"(None, {text!r})",
        "(Decimal('1.000000000000000000'), None)",
    ]


def test_typed_columns_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser reads typed columns until a value has another spelling."""
    asked: list[dict[str, pa.DataType]] = []
    parsed = CsvRows._parse_lines  # noqa: SLF001

    def note(reader: CsvRows, data: bytes, types: dict[str, pa.DataType]) -> Any:
        asked.append(types)
        return parsed(reader, data, types)

    monkeypatch.setattr(CsvRows, "_parse_lines", note)
    schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
    assert rows("1,x y\n2,z\n", schema) == ["(1, 'x y')", "(2, 'z')"]
    assert asked == [{"0": pa.int64()}]
    asked.clear()
    assert rows("1,x\n+2,z\n", schema) == ["(1, 'x')", "(2, 'z')"]
    assert asked == [{"0": pa.int64()}, {}]


def test_a_field_may_be_read_as_two_types() -> None:
    """The names of the columns differ only in case."""
    schema = pa.schema([("a", pa.int64()), ("A", pa.string())])
    found = CsvRows(schema, ["a"], FileDecoding("csv")).rows(LineBlock(b"1\n007\n"))
    assert [batch.to_pydict() for batch, _ in found.pieces] == [{"a": [1, 7], "A": ["1", "007"]}]


def test_values_that_options_spell_are_read_as_text_first() -> None:
    """pyarrow's parser would read a null value as a number, and ISO 8601 as a date despite another `dateFormat`."""
    assert rows("1\n2\n", pa.schema([("a", pa.int64())]), null_value="1") == ["(None,)", "(2,)"]
    times = TimeFormats.from_options({"dateFormat": "dd.MM.yyyy"})
    schema = pa.schema([("a", pa.date32()), BAD])
    assert rows("2024-07-01\n", schema, times=times) == ["(None, '2024-07-01')"]
    assert rows("01.07.2024\n", schema, times=times) == ["(datetime.date(2024, 7, 1), None)"]
