from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import ConfigError, CorruptData, EncodingError, SchemaError
from ftfile.formats import json_lines
from ftfile.formats.api import format_from_options
from ftfile.formats.json_lines import object_text
from tests.unit.formats.rows import (
    DATE,
    FIRST_US,
    LAST_US,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    batches,
    decode,
    encode,
    one_column,
    write_and_read,
)

JSON = format_from_options("json", {})
NAN, INFINITY = float("nan"), float("inf")


def lines(batch: pa.RecordBatch, **options: Any) -> list[str]:
    text = write_and_read("json", options, batch).decode()
    assert text.endswith("\n")
    return text[:-1].split("\n")


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_non_finite_floats_are_strings_as_in_spark(kind: pa.DataType) -> None:
    assert lines(one_column(kind, 0.5, NAN, INFINITY, -INFINITY, None, 1.0)) == [
        '{"v":0.5}',
        '{"v":"NaN"}',
        '{"v":"Infinity"}',
        '{"v":"-Infinity"}',
        "{}",
        '{"v":1.0}',
    ]


def test_non_finite_floats_deep_inside() -> None:
    kind = pa.list_(pa.field("element", pa.struct([("m", pa.map_(pa.string(), pa.float64()))])))
    assert lines(one_column(kind, [{"m": [("k", NAN)]}, None], [])) == ['{"v":[{"m":{"k":"NaN"}},null]}', '{"v":[]}']


def test_binary_is_base64_as_in_spark() -> None:
    batch = one_column(pa.binary(), b"", b"\x00", b"\x00\xff", b"abc", None, b"Man is")
    expected = ['""', '"AA=="', '"AP8="', '"YWJj"', None, '"TWFuIGlz"']
    assert lines(batch) == ["{}" if value is None else f'{{"v":{value}}}' for value in expected]


def test_binary_inside_lists_and_structs() -> None:
    kind = pa.struct([("b", pa.binary()), ("l", pa.list_(pa.field("element", pa.binary())))])
    assert lines(one_column(kind, {"b": b"a", "l": [b"\xff", None]})) == ['{"v":{"b":"YQ==","l":["/w==",null]}}']


def test_map_entries_without_a_value_are_kept() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    assert lines(one_column(kind, [("a", None), ("", 1)], [("b", 2)])) == ['{"v":{"a":null,"":1}}', '{"v":{"b":2}}']


def test_timestamps_keep_microseconds_and_their_kind() -> None:
    values = [FIRST_US, -1, 0, 1_000, 1_700_000_000_123_456, LAST_US]
    zulu = [json.loads(line)["v"] for line in lines(one_column(TIMESTAMP, *values))]
    assert zulu == [
        "0001-01-01T00:00:00Z",
        "1969-12-31T23:59:59.999999Z",
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:00.001Z",
        "2023-11-14T22:13:20.123456Z",
        "9999-12-31T23:59:59.999999Z",
    ]
    local = [json.loads(line)["v"] for line in lines(one_column(TIMESTAMP_NTZ, *values))]
    assert [f"{text}Z" for text in local] == zulu


def test_dates() -> None:
    batch = one_column(DATE, dt.date(1, 1, 1), dt.date(9999, 12, 31))
    assert lines(batch) == ['{"v":"0001-01-01"}', '{"v":"9999-12-31"}']


@pytest.mark.parametrize("options", [{}, {"timeZone": "Asia/Tokyo"}])
@pytest.mark.parametrize(
    ("kind", "value"),
    [(TIMESTAMP, FIRST_US - 1), (TIMESTAMP, LAST_US + 1), (TIMESTAMP_NTZ, 2**62), (DATE, 2_932_897), (DATE, -719_163)],
    ids=str,
)
def test_years_that_text_cannot_hold(options: dict[str, Any], kind: pa.DataType, value: int) -> None:
    inside = one_column(pa.struct([("x", pa.float64()), ("t", kind)]), {"x": NAN, "t": value})
    for batch in (one_column(kind, None, value), inside):
        with pytest.raises(EncodingError, match=r"column `v` cannot be encoded: .* outside the years 0001 to 9999"):
            encode(format_from_options("json", options), batch)


def test_decimals_are_exact_numbers() -> None:
    values = [Decimal("99999999999999999999.999999999999999999"), Decimal("-1E-18"), Decimal(0)]
    found = [json.loads(line, parse_float=Decimal)["v"] for line in lines(one_column(pa.decimal128(38, 18), *values))]
    assert found == values


def test_floats_of_four_bytes_are_short() -> None:
    assert lines(one_column(pa.float32(), 0.1, 1e-45)) == ['{"v":0.1}', '{"v":1.0e-45}']


def test_escapes() -> None:
    text = 'a"b\\c/\b\f\n\r\t\x00\x1f\x7f\u2028é😀'
    (line,) = lines(one_column(pa.string(), text))
    assert line == '{"v":"a\\"b\\\\c/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\u2028é😀"}'


def test_null_fields_are_left_out_unless_asked_for() -> None:
    kind = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    batch = one_column(kind, {"x": 1, "y": None}, None)
    assert lines(batch) == ['{"v":{"x":1}}', "{}"]
    assert lines(batch, ignoreNullFields=False) == ['{"v":{"x":1,"y":null}}', '{"v":null}']


def test_null_fields_beside_values_that_the_fast_encoder_gets_wrong() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"a": pa.array([None, 1]), "b": pa.array([NAN, None]), "c": pa.array(["x", None])}
    )
    assert lines(batch) == ['{"b":"NaN","c":"x"}', '{"a":1}']
    assert lines(batch, ignoreNullFields=False) == ['{"a":null,"b":"NaN","c":"x"}', '{"a":1,"b":null,"c":null}']


def test_rows_of_nulls_are_empty_objects() -> None:
    assert lines(one_column(pa.int32(), None, None)) == ["{}", "{}"]


def test_names_are_escaped() -> None:
    batch = pa.RecordBatch.from_pydict({'a"b\\': [1.0], "\n": [NAN], "": [0.5]})
    assert lines(batch) == ['{"a\\"b\\\\":1.0,"\\n":"NaN","":0.5}']


def test_slices_of_structs_within_structs() -> None:
    """arro3 panics at them, as they are."""
    inner = pa.struct([("y", pa.struct([("z", pa.string())]))])
    batch = one_column(inner, {"y": {"z": "hidden"}}, {"y": {"z": "a"}}, {"y": None}).slice(1)
    assert lines(batch) == ['{"v":{"y":{"z":"a"}}}', '{"v":{}}']


ARRO3_IS_RIGHT = st.recursive(
    st.sampled_from([pa.bool_(), pa.int64(), pa.string(), pa.decimal128(20, 3)]),
    lambda children: st.one_of(
        children.map(lambda kind: pa.struct([("x", kind), ("y", pa.string())])),
        children.map(lambda kind: pa.list_(pa.field("element", kind))),
    ),
    max_leaves=3,
)


def test_what_lies_beneath_nulls_is_not_written() -> None:
    hidden, offsets = pa.array([True, False]), pa.array([0, 2, 3], pa.int32())
    inner = pa.StructArray.from_arrays([pa.array([NAN, NAN, 0.5])], names=["x"])
    values = [
        pa.ListArray.from_arrays(offsets, inner, mask=hidden),
        pa.StructArray.from_arrays([pa.array([b"secret", b"a"])], names=["x"], mask=hidden),
    ]
    batch = pa.RecordBatch.from_arrays(values, names=["l", "s"])
    assert lines(batch) == ["{}", '{"l":[{"x":0.5}],"s":{"x":"YQ=="}}']


def test_nested_columns_of_nulls_only() -> None:
    kind = pa.list_(pa.field("element", pa.map_(pa.string(), pa.struct([("t", TIMESTAMP)]))))
    assert lines(one_column(kind, None, None), timeZone="Europe/Berlin") == ["{}", "{}"]


@pytest.mark.slow
@pytest.mark.packages
@given(batches(ARRO3_IS_RIGHT), st.booleans())
def test_both_ways_to_text_are_one(batch: pa.RecordBatch, ignore_nulls: bool) -> None:
    """Where the fast encoder is right, the kernels give the same bytes, but for the digits of floats."""
    text = object_text(batch.schema.names, batch.columns, ignore_nulls=ignore_nulls).to_pylist()
    by_arro3 = encode(format_from_options("json", {"ignoreNullFields": ignore_nulls}), batch).decode()
    assert [json.loads(line, parse_float=Decimal) for line in text] == [
        json.loads(line, parse_float=Decimal) for line in by_arro3.split("\n")[:-1]
    ]


@pytest.mark.parametrize("line_sep", ["\r\n", "\x1e", "\n\n", "--\x00--"])
def test_line_separators(line_sep: str) -> None:
    batch = one_column(pa.string(), "a\r\n\x1e\x00--", None)
    data = write_and_read("json", {"lineSep": line_sep}, batch)
    assert data == (r'{"v":"a\r\n\u001e\u0000--"}' + line_sep + "{}" + line_sep).encode()


@pytest.mark.parametrize("line_sep", ["", ",", "}", "||"])
def test_line_separators_that_records_may_contain(line_sep: str) -> None:
    with pytest.raises(ConfigError, match="control character"):
        format_from_options("json", {"lineSep": line_sep})


def test_map_keys_must_be_strings() -> None:
    schema = pa.schema([("a", pa.list_(pa.field("element", pa.map_(pa.int32(), pa.string())))), ("b", pa.int8())])
    with pytest.raises(SchemaError, match=r"column `a.element`: map<int32, string>; .* cast the keys to STRING"):
        JSON.check_schema(schema)


@pytest.mark.parametrize(
    "data",
    [
        b'{"v":1}\n{"v":2',
        b'{"v":1}\n{"v":\n',
        b"garbage\n",
        b'{"v":1}{"v":2}\n',
        b'{"v":1}\n\n',
        b'{"v":"x"}\n',
        b"[1]\n",
        b'{"v":99999999999999}\n',
        b"\x1f\x8b\x08\x00\n",
        b'{"v"\0:1}\n',
        b'{"v":"\\u0000"}\n',
    ],
)
def test_corrupt_files(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode(JSON, data, pa.schema([("v", pa.int32())]))


@pytest.mark.parametrize(
    ("kind", "text"), [(pa.binary(), "abc"), (pa.binary(), "ab=c"), (pa.binary(), "a b="), (pa.binary(), "====")]
)
def test_corrupt_values(kind: pa.DataType, text: str) -> None:
    with pytest.raises(CorruptData):
        decode(JSON, f'{{"v":"{text}"}}\n'.encode(), pa.schema([("v", kind)]))


def test_corruption_names_the_file() -> None:
    file = io.BytesIO(b"garbage\n")
    file.name = "out/part-7.json"  # as files opened by name have
    with pytest.raises(CorruptData, match=r"'out/part-7.json' is corrupt: expected JSON lines, found .*unexpected"):
        list(JSON.decode(file, pa.schema([("v", pa.int32())])))


@pytest.mark.parametrize(
    ("line", "is_deep"),
    [
        (b'[{"a":[1]}]', False),
        (b'[{"a":[[1]]}]', True),
        (b'{"a":"[[[[[["}', False),
        (b'{"a":"\\"[[[[[["}', False),
        (b'["]]]",[[[1]]]]', True),
        (b'["\\\\",[[[1]]]]', True),
        (b"[[1]],[[1]],[[1]]", False),
    ],
)
def test_lines_of_many_levels_are_found(line: bytes, monkeypatch: pytest.MonkeyPatch, *, is_deep: bool) -> None:
    monkeypatch.setattr(json_lines, "_PIECE_BYTES", 5)
    block = b"{}\n" + line + b"\n" + b'{"b":1}\n'
    assert list(json_lines.unbounded_lines(block, 3)) == [(3, "more than 3 levels")] * is_deep


@pytest.mark.parametrize(
    ("line", "has_many"),
    [
        (b'{"a":[1,2,3]}', False),
        (b'{"a":[1,2,3,4]}', True),
        (b'{"a":[1,2,3,"4,[{"]}', True),
        (b'{"a":"1,2,3,4,[]{}","b":1}', False),
        (b"[[],[],[]]", True),
    ],
)
def test_lines_of_many_values_are_found(line: bytes, monkeypatch: pytest.MonkeyPatch, *, has_many: bool) -> None:
    """Opening brackets and commas count, outside of strings."""
    monkeypatch.setattr(json_lines, "VALUES_MAX", 4)
    monkeypatch.setattr(json_lines, "_LINE_BYTES", 5)
    monkeypatch.setattr(json_lines, "_PIECE_BYTES", 5)
    block = b"{}\n" + line + b"\n" + b'{"b":1}\n'
    assert list(json_lines.unbounded_lines(block, 2)) == [(3, "more than 4 values")] * has_many


def test_lines_of_many_levels_are_corrupt() -> None:
    deep = b'{"n":' + b"[" * 10_001 + b"]" * 10_001 + b"}\n"
    with pytest.raises(CorruptData, match="a line of more than 10000 levels"):
        list(JSON.decode(io.BytesIO(b'{"n":"a"}\n' + deep), pa.schema([("n", pa.string())])))


@pytest.mark.slow
@pytest.mark.packages
def test_files_are_read_in_pieces() -> None:
    long = one_column(pa.string(), "x" * 9_000_000, "y", "z" * 6_000_000, "")
    data = encode(JSON, long)
    found = list(JSON.decode(io.BytesIO(data), long.schema))
    assert len(found) > 1
    assert pa.Table.from_batches(found) == pa.Table.from_batches([long])


@pytest.mark.slow
@pytest.mark.packages
def test_many_rows_are_encoded_in_slices() -> None:
    batch = one_column(pa.int32(), *range(150_000))
    assert write_and_read("json", {}, batch).count(b"\n") == 150_000


def test_definition_is_plain_json_and_complete() -> None:
    given_options = {
        "timeZone": "Europe/Berlin",
        "ignoreNullFields": False,
        "lineSep": "\r\n",
        "dateFormat": "yyyyMMdd",
    }
    settled = format_from_options("json", given_options)
    assert json.loads(json.dumps(settled.definition(pa.schema([])))) == given_options
    assert type(settled).from_definition(given_options) == settled
