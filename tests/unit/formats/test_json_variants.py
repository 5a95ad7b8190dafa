"""Columns of VARIANT in JSON lines."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ftfile.core.errors import CorruptData, SchemaError, UnencodableRows
from ftfile.formats.api import format_from_options
from ftfile.rows.spark_types import arrow_schema
from ftfile.rows.variant_encoding import json_value, variant_of
from ftfile.testing.micro_batch import spark_schema
from tests.unit.formats.rows import TIMESTAMP, decode, encode, one_column, write_and_read

V = arrow_schema(spark_schema({"v": "variant"})).field(0).type
WITHIN = pa.struct([("x", V), ("y", pa.binary()), ("z", pa.list_(pa.struct([("q", V)])))])
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("v", V),
        ("list", pa.list_(V)),
        ("map", pa.map_(pa.string(), V)),
        ("within", WITHIN),
        ("ratio", pa.float64()),
        ("at", TIMESTAMP),
    ]
)
LINES = (
    '{"id":1,"v":{"a":[1,2.5,{"z":null}]},"list":[1,null],"map":{"k":"}"},"within":{"y":"MTI=","z":[{},{"q":"x"}]},'
    '"ratio":"NaN","at":"1970-01-01T00:00:00.000000Z"}\n'
    '{"id":2,"ratio":1.5}\n'
    '{"id":3,"v":null,"list":[],"map":{},"within":{"x":null}}\n'
)


def variant(text: str) -> dict[str, bytes]:
    value, metadata = variant_of(json_value(text, 0)[0])
    return {"value": value, "metadata": metadata}


def rows() -> pa.RecordBatch:
    first: dict[str, Any] = {
        "id": 1,
        "v": variant('{"a":[1,2.5,{"z":null}]}'),
        "list": [variant("1"), variant("null")],
        "map": [("k", variant('"}"'))],
        "within": {"x": None, "y": b"12", "z": [{"q": None}, {"q": variant('"x"')}]},
        "ratio": float("nan"),
        "at": 0,
    }
    third = {"id": 3, "v": variant("null"), "list": [], "map": [], "within": {"x": variant("null")}}
    return pa.RecordBatch.from_pylist([first, {"id": 2, "ratio": 1.5}, third], COLUMNS)


@pytest.mark.parametrize("options", [{}, {"lineSep": "\r\n"}, {"timeZone": "Europe/Berlin"}])
def test_values_come_back_at_every_place(options: dict[str, str]) -> None:
    written = write_and_read("json", options, rows())
    if not options:
        assert written.decode() == LINES


def test_slices_are_written_as_such() -> None:
    file_format = format_from_options("json", {})
    assert encode(file_format, rows().slice(1, 1)).decode() == '{"id":2,"ratio":1.5}\n'


def test_timestamps_have_the_zone_of_the_file() -> None:
    instant = {"value": b"\x30" + bytes(8), "metadata": b"\x01\x00\x00"}
    data = encode(format_from_options("json", {"timeZone": "Europe/Berlin"}), one_column(V, instant))
    assert data == b'{"v":"1970-01-01 01:00:00+01:00"}\n'


def test_other_columns_are_read_without_it() -> None:
    schema = pa.schema([("id", pa.int64())])
    assert decode(format_from_options("json", {}), LINES.encode(), schema) == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_every_json_value_is_read() -> None:
    line = b' { "o" : {"v":1} , "v" : [ 1 , {"a" : "\\u0041\\n"} ] , "w\\u0041" : {} , "v2":[]} \n'
    schema = pa.schema([("v", V), ("wA", V)])
    (row,) = decode(format_from_options("json", {}), line, schema)
    assert row == {"v": variant('[1,{"a":"A\\n"}]'), "wA": variant("{}")}


@pytest.mark.parametrize("kind", [pa.list_(V), pa.map_(pa.string(), V), pa.struct([("x", pa.list_(V))])])
def test_null_within_arrays_and_maps_is_refused(kind: pa.DataType) -> None:
    values = {"list": [None], "map": [("k", None)], "struct": {"x": [variant("1"), None]}}
    batch = one_column(kind, values[str(kind).partition("<")[0]])
    with pytest.raises(UnencodableRows, match="column `v` cannot be encoded: NULL in an array or map of VARIANT"):
        encode(format_from_options("json", {}), batch)


@pytest.mark.parametrize("value", [{"value": None, "metadata": b"\x01\x00\x00"}, {"value": b"\x00", "metadata": None}])
def test_a_value_without_a_part_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(UnencodableRows, match="column `v` cannot be encoded: a VARIANT without"):
        encode(format_from_options("json", {}), one_column(V, value))


@pytest.mark.parametrize(("kind", "path"), [(V, "v"), (pa.list_(pa.struct([("x", V)])), "v.element.x")])
def test_nulls_that_are_written_are_refused(kind: pa.DataType, path: str) -> None:
    schema = pa.schema([("v", kind)])
    with pytest.raises(SchemaError, match=rf"column `{path}`: VARIANT with ignoreNullFields=false"):
        format_from_options("json", {"ignoreNullFields": False}).check_schema(schema)
    format_from_options("json", {"ignoreNullFields": False}).check_schema(pa.schema([("v", pa.int64())]))


@pytest.mark.parametrize(
    "line",
    [
        *("", "[]", "1", "{", '{"v"', '{"v":', '{"v":1', '{"v":1,', '{"v":1,}', '{"v" 1}', "{v:1}", '{"v":1 2}'),
        *('{"v":1}{"v":2}', '{"v":1} x', '{"v":01}', '{"v":NaN}', '{"v":"\x01"}', '{"v":"\\ud800"}', "{\"v\":'a'}"),
        *('{"v":{"a":1,"a":2}}', '{"a":{}}', '{"a":[1', '{"a":[1 2]}', '{"a":[1,]}', '{"a":1}', '{"m":[]}', '{"s":1}'),
        *('{"m":{"k":1', '{"m":{"k"}}', '{"s":[1]}', '{"s":{"x":[}}', '{"v":' + "[" * 100_000, '{"o":' + "[" * 100_000),
        '{"v":"\xff"}',
    ],
)
def test_other_lines_are_corrupt(line: str) -> None:
    schema = pa.schema([("v", V), ("a", pa.list_(V)), ("m", pa.map_(pa.string(), V)), ("s", pa.struct([("x", V)]))])
    data = line.encode("latin-1") + b"\n"
    with pytest.raises(CorruptData):
        decode(format_from_options("json", {}), data, schema)
