from __future__ import annotations

import io
import json
import re
from typing import Any

import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError, CorruptData, EncodingError, SchemaError
from ftfile.formats.api import format_from_options
from tests.unit.formats.rows import (
    LAST_US,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Target,
    decode,
    encode,
    for_reading,
    one_column,
    write_and_read,
)

CSV = format_from_options("csv", {})


def texts(*values: str | None) -> pa.RecordBatch:
    """Strings next to a number, so that a null is not a whole line."""
    return pa.RecordBatch.from_pydict(
        {"v": pa.array(values, pa.string()), "n": pa.array([1] * len(values), pa.int64())}
    )


def fields(*values: str | None, **options: Any) -> list[str]:
    text = write_and_read("csv", options, texts(*values)).decode()
    return [line[: -len(f"{options.get('sep', ',')}1")] for line in text.split("\n")[:-1]]


def test_what_needs_no_quotes_has_none() -> None:
    plain = ["a b", " a ", "#", "'", "é😀", "\x00", "\t", "null"]
    assert fields(*plain) == plain


def test_backslashes_escape_within_quotes_as_spark_reads_by_default() -> None:
    assert fields('say "hi", ok', "a\\b", "\\", '\\"', "a,b") == [
        r'"say \"hi\", ok"',
        r'"a\\b"',
        r'"\\"',
        r'"\\\""',
        '"a,b"',
    ]


def test_quotes_are_doubled_as_in_rfc_4180() -> None:
    assert fields('say "hi", ok', "a\\b", '\\"', escape='"') == ['"say ""hi"", ok"', "a\\b", '"\\"""']


def test_line_ends_are_quoted() -> None:
    assert write_and_read("csv", {}, texts("a\nb", "\r", "\r\n")) == b'"a\nb",1\n"\r",1\n"\r\n",1\n'


def test_null_and_empty_are_apart() -> None:
    assert fields(None, "", "x") == ["", '""', "x"]
    assert fields(None, "", "NULL", nullValue="NULL") == ["NULL", '""', '"NULL"']


def test_a_null_value_with_an_escape_in_it() -> None:
    """A reader that takes escapes away everywhere sees `N`."""
    assert fields(None, "N", "\\N", "", nullValue="\\N") == ["\\N", '"N"', r'"\\N"', '""']


def test_numbers_that_look_like_null_or_hold_the_separator_are_quoted() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([0, None]), "b": pa.array([-1.5, 0.5])})
    assert write_and_read("csv", {"nullValue": "0", "sep": "-"}, batch) == b'"0"-"-1.5"\n0-0.5\n'


def test_timestamps_that_hold_the_separator_are_quoted() -> None:
    batch = pa.RecordBatch.from_pydict({"t": pa.array([0], TIMESTAMP), "n": [1]})
    assert write_and_read("csv", {"sep": ":"}, batch) == b'"1970-01-01T00:00:00.000000Z":1\n'
    options = {"timestampFormat": "MM/dd, yyyy HH:mm:ss"}
    assert write_and_read("csv", options, batch) == b'"01/01, 1970 00:00:00",1\n'


def test_quote_all_but_null() -> None:
    assert write_and_read("csv", {"quoteAll": True}, texts("a", None, "")) == b'"a","1"\n,"1"\n"","1"\n'


def test_values_as_spark_reads_them() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "x": [float("nan"), float("inf"), float("-inf"), 1.0, 1e20, 0.1],
            "f": pa.array([0.1, 1.0, None, 0.5, float("nan"), 1e-45], pa.float32()),
            "b": [True, False, None, True, True, True],
            "t": pa.array([0, -1, LAST_US, None, 1, 2], TIMESTAMP_NTZ),
        }
    )
    assert write_and_read("csv", {}, batch).decode().splitlines() == [
        "NaN,0.1,true,1970-01-01T00:00:00.000000",
        "Infinity,1.0,false,1969-12-31T23:59:59.999999",
        "-Infinity,,,9999-12-31T23:59:59.999999",
        "1.0,0.5,true,",
        "1e+20,NaN,true,1970-01-01T00:00:00.000001",
        "0.1,1e-45,true,1970-01-01T00:00:00.000002",
    ]


def test_a_byte_order_mark_is_no_longer_one() -> None:
    assert fields("\ufeffx") == ['"\ufeffx"']


def test_header() -> None:
    batch = pa.RecordBatch.from_pydict({"a,b": ["x"], 'say "hi"': ["y"], "": ["z"]})
    assert write_and_read("csv", {"header": True}, batch) == b'"a,b","say \\"hi\\"",""\nx,y,z\n'
    assert write_and_read("csv", {"header": True}, batch.slice(1)) == b'"a,b","say \\"hi\\"",""\n'


def test_the_header_counts_for_the_limit() -> None:
    target = Target()
    encoder = format_from_options("csv", {"header": True}).encoder(texts().schema, target)
    assert encoder.size_bytes == target.position == len(b"v,n\n")
    assert encoder.write(texts("abc", "def"), limit_bytes=len(b"v,n\nabc,1\n")) == 1


@pytest.mark.parametrize("line_sep", ["\n", "\r\n", "\r"])
def test_line_separators(line_sep: str) -> None:
    assert (
        write_and_read("csv", {"lineSep": line_sep}, texts("a", "b\nc")) == f'a,1{line_sep}"b\nc",1{line_sep}'.encode()
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sep": "||"}, "option sep='||': it must be one ASCII character"),
        ({"sep": "\n"}, "option sep="),
        ({"quote": ""}, "option quote=''"),
        ({"escape": "é"}, "option escape='é'"),
        ({"sep": '"'}, "sep and quote are both"),
        ({"sep": ";", "escape": ";"}, "sep and escape are both"),
        ({"lineSep": ";"}, "option lineSep=';': for csv it must be"),
        ({"nullValue": "a,b"}, "must not contain sep"),
        ({"nullValue": "\n"}, "must not contain sep"),
        ({"timeZone": "Mars"}, "option timeZone='Mars'"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        format_from_options("csv", options)


def test_columns_that_are_refused() -> None:
    schema = pa.schema([("l", pa.list_(pa.field("element", pa.int8()))), ("b", pa.binary()), ("ok", pa.string())])
    with pytest.raises(SchemaError) as caught:
        CSV.check_schema(schema)
    assert str(caught.value).splitlines()[1:] == [
        "  column `l`: list<element: int8>; use to_json(`l`), json or parquet",
        "  column `b`: binary; use base64(`b`), json or parquet",
    ]


def test_one_column_that_may_be_null_needs_a_null_value() -> None:
    """Its nulls would be empty lines: Spark's own writer drops such rows, and its reader skips such lines."""
    nullable = pa.schema([("v", pa.string())])
    with pytest.raises(SchemaError, match=r"column `v`: .* set nullValue"):
        CSV.check_schema(nullable)
    CSV.check_schema(pa.schema([pa.field("v", pa.string(), nullable=False)]))
    assert write_and_read("csv", {"nullValue": "-"}, one_column(pa.string(), None, "", "-")) == b'-\n""\n"-"\n'


def test_years_that_text_cannot_hold() -> None:
    with pytest.raises(EncodingError, match=r"column `v` cannot be encoded: .* outside the years"):
        encode(CSV, one_column(TIMESTAMP, LAST_US + 1))


def test_without_a_header_the_log_knows_the_columns() -> None:
    written = texts("a", "b")
    definition = CSV.definition(written.schema)
    assert definition["columns"] == ["v", "n"]
    assert json.loads(json.dumps(definition)) == definition
    reordered = pa.schema([("n", pa.int64()), ("v", pa.string())])
    assert decode(for_reading(CSV, written.schema), encode(CSV, written), reordered) == [
        {"n": 1, "v": "a"},
        {"n": 1, "v": "b"},
    ]
    assert "columns" not in format_from_options("csv", {"header": True}).definition(written.schema)


@pytest.mark.packages
@pytest.mark.slow
def test_records_longer_than_what_is_read_at_once() -> None:
    batch = texts("x" * 100, 'y"\n' * 2_000_000, None, "z" * 5_000_000, "")
    write_and_read("csv", {}, batch)


@pytest.mark.parametrize(
    "data",
    [
        b"a,1\nb,2",
        b'a,1\n"b,2\n',
        b"a,1\nb\n",
        b"a,1,2\n",
        b"a,x\n",
        b"a,1\n\xff\xfe,2\n",
        b"a",
        b"a,99999999999999999999\n",
    ],
)
def test_corrupt_files(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode(CSV, data, texts().schema)


def test_corruption_names_file_and_column() -> None:
    file = io.BytesIO(b"a,1\nb,x\n")
    file.name = "out/part-7.csv"  # as files opened by name have
    with pytest.raises(CorruptData, match=r"'out/part-7.csv' is corrupt: expected int64 in column `n`, found .*'x'"):
        list(CSV.decode(file, texts().schema))


def test_reading_leaves_the_file_open(tmp_path: Any) -> None:
    path = tmp_path / "part.csv"
    path.write_bytes(encode(CSV, texts("a", "b")))
    with path.open("rb") as file:
        batches = CSV.decode(file, texts().schema)
        assert next(batches).num_rows == 2
        del batches
        assert not file.closed
