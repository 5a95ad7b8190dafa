"""Rows of columnar files with a value that does not fit its type: an error, or the row is dropped or kept as text."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ftfile.core.errors import CorruptData, SourceError
from ftfile.source.settings import FileDecoding
from tests.unit.source.test_casts import FORMATS, file_of

if TYPE_CHECKING:
    from tests.unit.source.planned import Files

LARGE = 5_000_000_000
COLUMNS = {
    "id": pa.array([1, LARGE, 3, None, 5]),
    "word": pa.array(["a", "b", "c", "d", "e"]),
    "price": pa.array([Decimal("1.25"), Decimal("2.00"), Decimal("99999.00"), None, Decimal("5.00")]),
    "other": pa.array([1, 2, 3, 4, 5]),
}
SCHEMA = pa.schema([("ID", pa.int32()), ("word", pa.string()), ("price", pa.decimal128(5, 2))])
GOOD = [(1, "a", Decimal("1.25")), (None, "d", None), (5, "e", Decimal("5.00"))]
TEXT = pa.field("_corrupt_record", pa.string())


def invalid_texts(values: list[bytes]) -> pa.Array:
    """Return strings with the given bytes, which may be invalid UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_error_shows_column_value_row_and_path(files: Files, file_format: str) -> None:
    files.write("dir/data", file_of(file_format, COLUMNS))
    with pytest.raises(SourceError) as caught:
        files.rows(files.whole("dir/data"), SCHEMA, FileDecoding(file_format, ignore_corrupt_files=True))
    text = str(caught.value)
    assert text.startswith(f"'dir/data': row 2 has {LARGE} in the column `id`, which does not fit int32 (")
    assert "badRecords=drop" in text
    assert "a column _corrupt_record string" in text


@pytest.mark.parametrize("file_format", FORMATS)
def test_bad_rows_alone_are_dropped(files: Files, file_format: str, caplog: pytest.LogCaptureFixture) -> None:
    files.write("data", file_of(file_format, COLUMNS))
    assert files.rows(files.whole("data"), SCHEMA, FileDecoding(file_format, bad_records="drop")) == GOOD
    assert f"dropped 2 records of data, the first: 'data': row 2 has {LARGE}" in caplog.text


@pytest.mark.parametrize("file_format", FORMATS)
def test_bad_rows_are_kept_as_text_in_their_places(files: Files, file_format: str) -> None:
    files.write("data", file_of(file_format, COLUMNS))
    rows = files.rows(files.whole("data"), SCHEMA.append(TEXT), FileDecoding(file_format))
    assert [row[:3] for row in rows if row[3] is None] == GOOD
    assert [number for number, row in enumerate(rows) if row[3] is not None] == [1, 2]
    assert all(row[:3] == (None, None, None) for row in rows[1:3])
    assert [json.loads(row[3]) for row in rows[1:3]] == [
        {"id": LARGE, "word": "b", "price": "2.00"},
        {"id": 3, "word": "c", "price": "99999.00"},
    ]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_in_which_no_row_fits(files: Files, file_format: str) -> None:
    files.write("data", file_of(file_format, {"id": pa.array([LARGE] * 3)}))
    schema = pa.schema([("id", pa.int32())])
    assert files.rows(files.whole("data"), schema, FileDecoding(file_format, bad_records="drop")) == []
    rows = files.rows(files.whole("data"), schema.append(TEXT), FileDecoding(file_format))
    assert rows == [(None, f'{{"id": {LARGE}}}')] * 3


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_string_that_is_not_utf_8_is_a_bad_record(files: Files, file_format: str) -> None:
    texts = invalid_texts([b"a", b"b\xff", "ä".encode()])
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3], pa.int32()), texts)
    for column, kind in ((texts, pa.string()), (nested, pa.list_(pa.string()))):
        files.write("data", file_of(file_format, {"text": column, "id": pa.array([1, 2, 3])}))
        schema = pa.schema([("text", kind), ("id", pa.int64())])
        with pytest.raises(SourceError, match=r"row 2 has .*b\ufffd"):
            files.rows(files.whole("data"), schema, FileDecoding(file_format))
        rows = files.rows(files.whole("data"), schema, FileDecoding(file_format, bad_records="drop"))
        assert [row[1] for row in rows] == [1, 3]
        rows = files.rows(files.whole("data"), schema.append(TEXT), FileDecoding(file_format))
        assert "b\ufffd" in rows[1][2]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_column_that_is_not_asked_for_has_no_misfits(files: Files, file_format: str) -> None:
    files.write("data", file_of(file_format, {"text": invalid_texts([b"\xff"]), "id": pa.array([1])}))
    schema = pa.schema([("id", pa.int64())])
    assert files.rows(files.whole("data"), schema, FileDecoding(file_format)) == [(1,)]


def test_other_damage_of_an_arrow_file_is_damage(files: Files) -> None:
    offsets = pa.py_buffer(b"\0\0\0\0\x05\0\0\0\x02\0\0\0")
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abcde")])
    files.write("data", file_of("arrow", {"text": broken}))
    with pytest.raises(CorruptData, match="Arrow"):
        files.rows(files.whole("data"), pa.schema([("text", pa.string())]), FileDecoding("arrow"))


def test_a_file_may_have_a_column_of_this_name(files: Files) -> None:
    files.write("data", file_of("parquet", {"_corrupt_record": pa.array(["x", "y"]), "id": pa.array([1, LARGE])}))
    schema = pa.schema([("id", pa.int32()), TEXT])
    assert files.rows(files.whole("data"), schema, FileDecoding("parquet", bad_records="drop")) == [(1, "x")]


def test_times_that_python_does_not_have_are_shown(files: Files) -> None:
    times = pa.array([1_500], pa.timestamp("ns"))
    files.write(
        "data", file_of("parquet", {"t": times, "d": pa.array([4_000_000], pa.date32()), "id": pa.array([LARGE])})
    )
    schema = pa.schema([("t", pa.timestamp("us")), ("d", pa.date32()), ("id", pa.int32()), TEXT])
    [row] = files.rows(files.whole("data"), schema, FileDecoding("parquet"))
    assert json.loads(row[3]) == {"t": "1970-01-01 00:00:00.000001500", "d": "12921-08-18", "id": LARGE}


def test_rows_are_counted_over_batches(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.formats.parquet_files._READ_BATCH_ROWS", 2)
    files.write("data", file_of("parquet", {"id": pa.array([1, 2, 3, LARGE])}))
    with pytest.raises(SourceError, match="row 4 has"):
        files.rows(files.whole("data"), pa.schema([("id", pa.int32())]), FileDecoding("parquet"))
