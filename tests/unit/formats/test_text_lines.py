from __future__ import annotations

import io

import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError, CorruptData, EncodingError, SchemaError
from ftfile.formats.api import format_from_options
from tests.unit.formats.rows import decode, encode, for_reading, one_column, write_and_read

TEXT = format_from_options("text", {})


def test_strings_and_bytes() -> None:
    assert write_and_read("text", {}, one_column(pa.string(), "a", "", "é\r")) == "a\n\né\r\n".encode()
    assert write_and_read("text", {"lineSep": "|;"}, one_column(pa.binary(), b"\xff\n", b"")) == b"\xff\n|;|;"


def test_null_is_an_empty_line_and_comes_back_as_one() -> None:
    batch = one_column(pa.string(), "a", None)
    assert encode(TEXT, batch) == b"a\n\n"
    assert decode(TEXT, b"a\n\n", batch.schema) == [{"v": "a"}, {"v": ""}]


@pytest.mark.parametrize(("kind", "value"), [(pa.string(), "a\nb"), (pa.binary(), b"\n")])
def test_a_value_with_a_line_end_is_refused(kind: pa.DataType, value: str | bytes) -> None:
    with pytest.raises(EncodingError, match=r"column `v`: a value contains the line separator '\\n'.*Choose a lineSep"):
        encode(TEXT, one_column(kind, "ok" if isinstance(value, str) else b"ok", value))
    other = format_from_options("text", {"lineSep": "\x1e"})
    assert encode(other, one_column(kind, value)) == (value.encode() if isinstance(value, str) else value) + b"\x1e"


def test_the_log_knows_what_the_column_is_called() -> None:
    batch = one_column(pa.string(), "a")
    wanted = pa.schema([("new", pa.int32()), ("v", pa.string())])
    assert decode(for_reading(TEXT, batch.schema), encode(TEXT, batch), wanted) == [{"new": None, "v": "a"}]
    assert decode(for_reading(TEXT, batch.schema), encode(TEXT, batch), pa.schema([("new", pa.int32())])) == [
        {"new": None}
    ]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (pa.schema([("v", pa.int32())]), r"column `v`: int32; use cast\(`v` AS STRING\)"),
        (pa.schema([("a", pa.string()), ("b", pa.string())]), "columns a, b: text has exactly one column"),
    ],
)
def test_schemas_that_are_refused(schema: pa.Schema, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        TEXT.check_schema(schema)


def test_no_line_separator_is_refused() -> None:
    with pytest.raises(ConfigError, match="option lineSep=''"):
        format_from_options("text", {"lineSep": ""})


@pytest.mark.parametrize("line_sep", ["||", "\n\n", "aba"])
def test_a_line_separator_that_ends_as_it_begins_is_refused(line_sep: str) -> None:
    """After a value that ends so, too, a reader would find it too early."""
    with pytest.raises(ConfigError, match="its end must differ from its beginning"):
        format_from_options("text", {"lineSep": line_sep})


@pytest.mark.parametrize("data", [b"a\nb", b"\xff\xfe\n"])
def test_corrupt_files(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode(TEXT, data, pa.schema([("v", pa.string())]))


@pytest.mark.slow
@pytest.mark.packages
def test_files_are_read_in_pieces() -> None:
    values = [b"x" * 3_000_000, b"", b"y" * 5_000_000, b"\xff" * 3_000_000]
    batch = one_column(pa.binary(), *values)
    found = list(TEXT.decode(io.BytesIO(encode(TEXT, batch)), batch.schema))
    assert len(found) > 1
    assert [value for piece in found for value in piece.column(0).to_pylist()] == values
