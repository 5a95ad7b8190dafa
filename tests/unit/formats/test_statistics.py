"""The rows that readers get from a file are within the statistics of the rows that were written."""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ftfile.formats.api import format_from_options
from ftfile.formats.binary_records import BinaryRecords, UserEncoder, framing_from_options
from ftfile.rows.statistics.collector import Collector
from ftfile.rows.statistics.columns import first_columns, key_of, leaves
from tests.kit.file_statistics import as_lists
from tests.unit.formats.rows import (
    DATE,
    LEAF_TYPES,
    TEXTUAL_TYPES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Target,
    batches,
    decode,
    for_reading,
    nested_types,
    one_column,
    only_of_orc,
)

# Some patterns lose a part of the value.
TIMES = {
    "timeZone": st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata"]),
    "timestampFormat": st.sampled_from(
        ["yyyy-MM-dd'T'HH:mm:ssXXX", "yyyy-MM-dd HH:mm", "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"]
    ),
    "timestampNTZFormat": st.sampled_from(["yyyy-MM-dd HH:mm:ss", "yyyyMMddHH"]),
    "dateFormat": st.sampled_from(["yyyy-MM", "dd/MM/yyyy"]),
}
JSON = st.fixed_dictionaries({}, optional={"ignoreNullFields": st.booleans(), **TIMES})
CSV: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "header": st.booleans(),
        "quoteAll": st.booleans(),
        "nullValue": st.sampled_from(["", "NULL", "0"]),
        **TIMES,
    },
)
EXAMPLES = settings(max_examples=300, deadline=None)
ONE_COLUMN = st.sampled_from([pa.string(), pa.binary()])


def check(name: str, options: dict[str, Any], batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """Compare the rows of a file with its statistics, and return these."""
    schema = batch.schema
    file_format = format_from_options(name, options)
    file_format.check_schema(schema)
    columns = first_columns(schema, file_format.keeps)
    target = Target()
    encoder = file_format.encoder(schema, target)
    collector = Collector(schema, columns, compares_text=not encoder.computes_text)
    half = batch.num_rows // 2
    for some in (batch.slice(0, half), batch.slice(half)):
        collector.update(some.slice(0, encoder.write(some)))
        encoder.flush()
    encoder.finish()
    if encoder.computes_text:
        collector.set_text(encoder.text_extremes())
    entries = as_lists(collector.entries())
    rows = decode(for_reading(file_format, schema), bytes(target.data), schema)
    assert len(rows) == batch.num_rows
    for path, field in leaves(schema):
        if key_of(path) in entries:
            values = [value_at(row, path) for row in rows]
            check_within(values, entries[key_of(path)], field.type)
    return entries


def value_at(row: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else value[name]
    return value


def check_within(values: list[Any], entry: list[Any], kind: pa.DataType) -> None:
    low, high, nulls = entry
    present = [comparable(value, kind) for value in values if value is not None]
    assert nulls == len(values) - len(present)
    if low is not None:
        assert all(decoded(low, kind) <= value for value in present)
    if high is not None:
        assert all(value <= decoded(high, kind) for value in present)


def comparable(value: Any, kind: pa.DataType) -> Any:
    """Return a value that is compared as conditions compare it; NaN is greater than all numbers."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.scalar(value, kind).value
    if pa.types.is_string(kind):
        return value.encode()
    if pa.types.is_floating(kind):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


def decoded(bound: Any, kind: pa.DataType) -> Any:
    """Return a bound of the log as `comparable` returns values."""
    if pa.types.is_string(kind):
        return bound.encode()
    if pa.types.is_binary(kind):
        return base64.b64decode(bound)
    if pa.types.is_decimal(kind):
        return Decimal(bound)
    return (False, bound) if pa.types.is_floating(kind) else bound


@pytest.mark.slow
@EXAMPLES
@given(batches(nested_types(st.just(pa.string()))), JSON)
def test_json(batch: pa.RecordBatch, options: dict[str, Any]) -> None:
    check("json", options, batch)


@pytest.mark.slow
@EXAMPLES
@given(batches(TEXTUAL_TYPES, columns_min=2), CSV)
def test_csv(batch: pa.RecordBatch, options: dict[str, Any]) -> None:
    check("csv", options, batch)


@pytest.mark.slow
@EXAMPLES
@given(batches(st.sampled_from([pa.string()])), st.sampled_from(["\n", "|;"]))
def test_text(batch: pa.RecordBatch, line_sep: str) -> None:
    assert check("text", {"lineSep": line_sep}, without(batch, line_sep)) == {}


@pytest.mark.slow
@EXAMPLES
@given(batches(ONE_COLUMN), st.sampled_from(["int32", "varint"]))
def test_binary(batch: pa.RecordBatch, prefix: str) -> None:
    check("binary", {"lengthPrefix": prefix}, without(batch, None))


@pytest.mark.slow
@EXAMPLES
@given(batches(nested_types(LEAF_TYPES)), st.sampled_from(["none", "zstd"]))
def test_parquet(batch: pa.RecordBatch, compression: str) -> None:
    check("parquet", {"compression": compression}, batch)


@pytest.mark.slow
@EXAMPLES
@given(batches(nested_types(LEAF_TYPES)), st.sampled_from(["none", "zstd"]))
def test_orc(batch: pa.RecordBatch, compression: str) -> None:
    assume("time64" not in str(batch.schema))
    check("orc", {"compression": compression}, only_of_orc(batch))


@pytest.mark.slow
@EXAMPLES
@given(batches(nested_types(st.just(pa.string()))), st.sampled_from(["none", "deflate"]))
def test_avro(batch: pa.RecordBatch, compression: str) -> None:
    check("avro", {"compression": compression}, batch)


@pytest.mark.slow
@EXAMPLES
@given(batches(nested_types(LEAF_TYPES)), st.sampled_from(["none", "lz4"]))
def test_arrow(batch: pa.RecordBatch, compression: str) -> None:
    check("arrow", {"compression": compression}, batch)


def without(batch: pa.RecordBatch, excluded: str | None) -> pa.RecordBatch:
    """Return the first column, without the values that contain a text; for None without nulls."""
    kind = batch.schema.field(0).type
    values = batch.column(0).to_pylist()
    if excluded is None:
        return one_column(kind, *(value for value in values if value is not None))
    return one_column(kind, *(value for value in values if value is None or excluded not in value))


@pytest.mark.parametrize("name", ["json", "csv"])
@pytest.mark.parametrize(
    ("kind", "option", "pattern"),
    [
        (TIMESTAMP, "timestampFormat", "yyyy-MM-dd'T'HH:mm:ssXXX"),
        (TIMESTAMP_NTZ, "timestampNTZFormat", "yyyy-MM-dd HH:mm:ss"),
        (DATE, "dateFormat", "yyyy-MM"),
    ],
)
def test_times_that_lose_a_part_have_no_statistics(name: str, kind: pa.DataType, option: str, pattern: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1_500_500], kind), pa.array([7])], names=["t", "id"])
    assert check(name, {}, batch) == {"t": [1_500_500, 1_500_500, 0], "id": [7, 7, 0]}
    assert check(name, {option: pattern}, batch) == {"id": [7, 7, 0]}


def test_records_of_a_users_encoder_have_no_statistics() -> None:
    field = pa.field("v", pa.string())
    assert BinaryRecords(framing_from_options(None, None)).keeps(field)
    assert not BinaryRecords(framing_from_options(None, None), UserEncoder("words", (), ".bin")).keeps(field)


def test_a_null_of_text_is_read_as_an_empty_value_and_has_no_statistics() -> None:
    assert check("text", {}, one_column(pa.string(), "b", None)) == {}


NULLS, VALUES = [None, None], ["b", "a"]
TEXTS = pa.list_(pa.struct([("x", pa.string()), ("y", pa.int64())]))
ENTRIES = pa.map_(pa.string(), pa.string())
PAIR = pa.struct([("b", pa.string()), ("c", ENTRIES), ("d", pa.string())])


@pytest.mark.parametrize(
    ("first", "second", "bounds"),
    [
        (VALUES, NULLS, ["a", "b"]),
        (NULLS, VALUES, ["a", "b"]),
        (NULLS, NULLS, [None, None]),
        (VALUES, ["", "c"], ["", "c"]),
        (VALUES, ["x" * 5_000, "c"], [None, None]),
        (["x" * 5_000, "c"], NULLS, [None, None]),
    ],
)
def test_text_of_parquet_has_bounds_of_all_row_groups(first: list[Any], second: list[Any], bounds: list[Any]) -> None:
    nulls = [*first, *second].count(None)
    assert check("parquet", {}, one_column(pa.string(), *first, *second)) == {"v": [*bounds, nulls]}


def test_text_of_parquet_is_taken_from_its_column() -> None:
    columns = {
        "l": pa.array([[{"x": "wrong", "y": 1}]], TEXTS),
        "a.b": pa.array(["first"]),
        "a": pa.array([{"b": "second", "c": [("key", "value")], "d": "third"}], PAIR),
        "m": pa.array([[("key", "value")]], ENTRIES),
        "z": pa.array(["last"]),
    }
    entries = check("parquet", {}, pa.RecordBatch.from_arrays([*columns.values()], names=[*columns]))
    bounds = {key: low for key, (low, _, _) in entries.items()}
    assert bounds == {"a\\.b": "first", "a.b": "second", "a.d": "third", "z": "last"}
