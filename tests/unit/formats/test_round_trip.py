from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ftfile.formats.api import FORMATS, format_from_options
from ftfile.rows.buffers import leaf_types
from ftfile.rows.spark_types import arrow_schema, spark_schema_json
from tests.unit.formats.rows import (
    LEAF_TYPES,
    TEXTUAL_TYPES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    batches,
    decode,
    encode,
    encode_files,
    for_reading,
    nested_types,
    only_of_orc,
    write_and_read,
)

ZONES = st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata", "Europe/London", "-03:30"])
EXACT_PATTERNS = st.sampled_from(["yyyy-MM-dd HH:mm:ss.SSSSSSXXX", "ss''mm'h'HH'T'dd.MM.yyyy/SSSSSS[XXX]"])
TIMES = {
    "timeZone": ZONES,
    "timestampFormat": EXACT_PATTERNS,
    "timestampNTZFormat": st.sampled_from(["yyyyMMddHHmmssSSSSSS", "dd-MM-uuuu'T'HH:mm:ss.SSSSSS"]),
    "dateFormat": st.sampled_from(["dd/MM/yyyy", "yyyyMMdd"]),
}
JSON_OPTIONS = st.fixed_dictionaries(
    {},
    optional={"ignoreNullFields": st.booleans(), "lineSep": st.sampled_from(["\n", "\r\n", "\x1e", "|\r|"]), **TIMES},
)
CSV_OPTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "header": st.booleans(),
        "sep": st.sampled_from([",", ";", "|", "\t", "-", "1", "N"]),
        "quote": st.sampled_from(['"', "'"]),
        "escape": st.sampled_from(["\\", '"', "'", "#"]),
        "quoteAll": st.booleans(),
        "nullValue": st.sampled_from(["", "\\N", "NULL", "true", "0", "é", "a.b", "\\\\"]),
        "lineSep": st.sampled_from(["\n", "\r\n", "\r"]),
        **TIMES,
    },
)
PARQUET_OPTIONS = st.fixed_dictionaries(
    {}, optional={"compression": st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4", "brotli"])}
)


@pytest.mark.slow
@given(batches(nested_types(st.just(pa.string()))), JSON_OPTIONS)
def test_json(batch: pa.RecordBatch, options: dict[str, Any]) -> None:
    write_and_read("json", options, batch)


@pytest.mark.slow
@given(batches(TEXTUAL_TYPES, columns_min=2), CSV_OPTIONS)
def test_csv(batch: pa.RecordBatch, options: dict[str, Any]) -> None:
    assume(not {options.get("sep", ","), options.get("quote", '"')} & set(options.get("nullValue", "")))
    write_and_read("csv", options, batch)


@pytest.mark.slow
@pytest.mark.packages
@given(batches(st.sampled_from([pa.string(), pa.binary()])), st.sampled_from(["\n", "\r\n", "|;"]))
def test_text(batch: pa.RecordBatch, line_sep: str) -> None:
    kind = batch.schema.field(0).type
    sep = line_sep if pa.types.is_string(kind) else line_sep.encode()
    values = [value for value in batch.column(0).to_pylist() if value is not None and sep not in value]
    write_and_read("text", {"lineSep": line_sep}, pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["line"]))


@pytest.mark.slow
@pytest.mark.packages
@given(batches(nested_types(LEAF_TYPES)), PARQUET_OPTIONS)
def test_parquet(batch: pa.RecordBatch, options: dict[str, Any]) -> None:
    write_and_read("parquet", options, batch)


@pytest.mark.slow
@pytest.mark.packages
@given(batches(nested_types(LEAF_TYPES)), st.sampled_from(["none", "snappy", "zlib", "zstd"]))
def test_orc(batch: pa.RecordBatch, compression: str) -> None:
    assume(not any(pa.types.is_time(leaf) for kind in batch.schema.types for leaf in leaf_types(kind)))
    write_and_read("orc", {"compression": compression}, only_of_orc(batch))


@pytest.mark.slow
@given(batches(nested_types(LEAF_TYPES)), st.sampled_from(["none", "lz4", "zstd"]))
def test_arrow(batch: pa.RecordBatch, compression: str) -> None:
    write_and_read("arrow", {"compression": compression}, batch)


@pytest.mark.slow
@pytest.mark.packages
@given(batches(nested_types(st.just(pa.string()))), st.sampled_from(["none", "deflate", "snappy", "zstd"]))
def test_avro(batch: pa.RecordBatch, compression: str) -> None:
    write_and_read("avro", {"compression": compression}, batch)


FRAMINGS = st.one_of(
    st.sampled_from(["int32", "int32le", "varint"]).map(lambda prefix: {"lengthPrefix": prefix}),
    st.sampled_from([b"\n", b"\xff", b"\0\1", b"aab"]).map(lambda delimiter: {"delimiter": delimiter}),
)


@pytest.mark.slow
@pytest.mark.packages
@given(batches(st.sampled_from([pa.string(), pa.binary()])), FRAMINGS)
def test_binary(batch: pa.RecordBatch, framing: dict[str, Any]) -> None:
    kind = batch.schema.field(0).type
    kept = [value for value in batch.column(0).to_pylist() if value is not None]
    delimiter = framing.get("delimiter")
    if delimiter is not None:
        kept = [value for value in kept if delimiter not in (value.encode() if isinstance(value, str) else value)]
    write_and_read("binary", framing, pa.RecordBatch.from_arrays([pa.array(kept, kind)], names=["v"]))


@pytest.mark.slow
@pytest.mark.packages
@given(batches(nested_types(LEAF_TYPES)))
def test_spark_schema(batch: pa.RecordBatch) -> None:
    text = spark_schema_json(batch.schema)
    assert spark_schema_json(arrow_schema(text)) == text


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("json", {}), ("json", {"lineSep": "\r\n"}), ("csv", {"lineSep": "\r\n"}), ("text", {}), ("parquet", {})),
        *(("binary", {}), ("binary", {"lengthPrefix": "varint"}), ("avro", {}), ("orc", {}), ("arrow", {})),
    ],
    ids=[
        *("json", "json with CRLF", "csv with CRLF", "text", "parquet"),
        *("binary", "binary with varints", "avro", "orc", "arrow"),
    ],
)
@settings(max_examples=settings().max_examples // 2)  # for each of nine
@given(data=st.data(), limit_bytes=st.integers(1, 300))
def test_limit(name: str, options: dict[str, Any], data: st.DataObject, limit_bytes: int) -> None:
    """Files end right after the row that reaches the limit, and together hold every row once, in order."""
    # One column type: the text of floats and times in JSON depends on the other rows.
    columns = 1 if name in ("text", "binary") else 2
    drawn = data.draw(st.lists(batches(st.just(pa.string()), columns, rows_max=30), min_size=1, max_size=3))
    schema = pa.schema([(f"c{index}", pa.string()) for index in range(columns)])
    given_batches = [
        pa.RecordBatch.from_arrays([one_line(batch.column(index)) for index in range(columns)], schema=schema)
        for batch in drawn
    ]
    file_format = format_from_options(name, options)
    files = encode_files(file_format, given_batches, limit_bytes)
    rows = [row for batch in given_batches for row in batch.to_pylist()]
    read = [decode(for_reading(file_format, schema), file, schema) for file in files]
    assert [row for file in read for row in file] == rows
    if name in ("json", "csv", "text", "binary"):
        for file, found in zip(files[:-1], read[:-1], strict=True):
            last = len(encode(file_format, pa.RecordBatch.from_pylist(found[-1:], schema)))
            assert len(file) - last < limit_bytes <= len(file)
        assert len(files[-1]) < limit_bytes


def one_line(column: pa.Array) -> pa.Array:
    return pa.array(["" if text is None else text.replace("\n", "") for text in column.to_pylist()], pa.string())


@pytest.mark.parametrize("name", ["json", "csv", "parquet", "avro", "orc", "arrow"])
def test_reading_other_columns(name: str) -> None:
    """Columns are found by name. Columns that the file lacks are null; columns that are not requested are omitted."""
    written = pa.schema([("a", pa.int32()), ("b", pa.string()), ("t", TIMESTAMP)])
    file_format = format_from_options(name, {})
    data = encode(file_format, pa.RecordBatch.from_pylist([{"a": 1, "b": "x", "t": 0}], written))
    reading = for_reading(file_format, written)
    wanted = pa.schema([("new", TIMESTAMP_NTZ), ("b", pa.string()), ("a", pa.int64())])
    assert decode(reading, data, wanted) == [{"new": None, "b": "x", "a": 1}]


@pytest.mark.parametrize("name", FORMATS)
def test_reading_no_columns_counts_rows(name: str, tmp_path: Any) -> None:
    schema = pa.schema([pa.field("v", pa.string(), nullable=False)])
    file_format = format_from_options(name, {})
    path = tmp_path / "file"
    path.write_bytes(encode(file_format, pa.RecordBatch.from_pylist([{"v": "a"}, {"v": "b"}], schema)))
    with path.open("rb") as file:
        found = list(for_reading(file_format, schema).decode(file, pa.schema([])))
    assert sum(batch.num_rows for batch in found) == 2


@pytest.mark.parametrize("name", FORMATS)
def test_no_rows(name: str) -> None:
    schema = pa.schema([pa.field("v", pa.string(), nullable=False)])
    file_format = format_from_options(name, {})
    data = encode(file_format, pa.RecordBatch.from_pylist([], schema))
    assert decode(for_reading(file_format, schema), data, schema) == []
