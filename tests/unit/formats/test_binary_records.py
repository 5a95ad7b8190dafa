from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError, CorruptData, EncodingError, SchemaError
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import SinkOptions
from ftfile.formats.api import format_from_options
from ftfile.formats.binary_records import BinaryRecords
from tests.unit.formats.rows import decode, encode, for_reading, one_column, write_and_read

BINARY = format_from_options("binary", {})
VALUES = [b"", b"\n", b"abc\x00\xff", b"x" * 300]


def given(**options: str) -> dict[str, Any]:
    """Return options as the table parses them."""
    return parse_options({"path": "/out", "fileFormat": "binary", **options}, SinkOptions).for_format("binary")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"delimiter": "|"}, b"".join(value + b"|" for value in VALUES)),
        ({"delimiter": r"\x00\xFFend"}, b"".join(value + b"\x00\xffend" for value in VALUES)),
        ({"lengthPrefix": "int32"}, b"".join(struct.pack(">i", len(value)) + value for value in VALUES)),
        ({"lengthPrefix": "INT32LE"}, b"".join(struct.pack("<i", len(value)) + value for value in VALUES)),
        ({"lengthPrefix": "varint"}, b"\0" + b"\x01\n" + b"\x05abc\0\xff" + b"\xac\x02" + VALUES[3]),
    ],
)
def test_framings(options: dict[str, str], expected: bytes) -> None:
    assert write_and_read("binary", given(**options), one_column(pa.binary(), *VALUES)) == expected


def test_protobuf_reads_varint_lengths() -> None:
    proto, wrappers = (pytest.importorskip(f"google.protobuf.{name}") for name in ("proto", "wrappers_pb2"))
    if not hasattr(proto, "parse_length_prefixed"):
        pytest.skip("this protobuf is older than the function")
    messages = [wrappers.BytesValue(value=value) for value in VALUES]
    records = one_column(pa.binary(), *(message.SerializeToString() for message in messages))
    file = io.BytesIO(write_and_read("binary", given(lengthPrefix="varint"), records))
    assert [proto.parse_length_prefixed(wrappers.BytesValue, file) for _ in messages] == messages
    assert proto.parse_length_prefixed(wrappers.BytesValue, file) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [("\\n", b"\n"), ("\\r\\n", b"\r\n"), ("\\0", b"\0"), ("\\\\", b"\\"), ("é", "é".encode()), ("\x01", b"\x01")],
)
def test_delimiters_as_text(text: str, meant: bytes) -> None:
    assert encode(format_from_options("binary", given(delimiter=text)), one_column(pa.binary(), b"a")) == b"a" + meant


@pytest.mark.parametrize("text", ["\\", "\\x0", "a\\q", "\\xzz"])
def test_delimiters_that_are_not_understood(text: str) -> None:
    with pytest.raises(ConfigError, match=r"option delimiter=.* is not understood: it takes text, with any byte as in"):
        given(delimiter=text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delimiter": b""}, "option delimiter='': it must have at least one byte"),
        ({"delimiter": b"||"}, r"option delimiter=b'\|\|': its end must differ from its beginning"),
        ({"delimiter": b"aba"}, "its end must differ from its beginning"),
        ({"delimiter": b"|", "lengthPrefix": "int32"}, "delimiter and lengthPrefix are both given"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        format_from_options("binary", options)


def test_the_delimiter_of_csv_is_called_sep() -> None:
    with pytest.raises(ConfigError, match=r"'delimiter' is for fileFormat=binary, but fileFormat is csv; use sep"):
        parse_options({"fileFormat": "csv", "delimiter": ";"}, SinkOptions).for_format("csv")


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_a_record_with_the_delimiter_in_it_is_refused(kind: pa.DataType) -> None:
    batch = one_column(kind, *pa.array([b"ok", b"a\nb"], pa.binary()).cast(kind).to_pylist())
    with pytest.raises(EncodingError, match=r"column `v`: a record contains the delimiter b'\\n'.*lengthPrefix=int32"):
        encode(BINARY, batch)


@pytest.mark.parametrize("options", [{}, {"lengthPrefix": "int32"}])
def test_null_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(EncodingError, match="column `v`: a null has no bytes"):
        encode(format_from_options("binary", options), one_column(pa.binary(), b"a", None))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (pa.schema([("v", pa.int32())]), r"column `v`: int32; use cast\(`v` AS BINARY\)"),
        (pa.schema([("a", pa.string()), ("b", pa.string())]), "columns a, b: binary has exactly one column; .*encoder"),
    ],
)
def test_schemas_that_are_refused(schema: pa.Schema, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        BINARY.check_schema(schema)


def test_the_log_knows_what_the_column_is_called() -> None:
    batch = one_column(pa.string(), "a")
    wanted = pa.schema([("new", pa.int32()), ("v", pa.string())])
    assert decode(for_reading(BINARY, batch.schema), encode(BINARY, batch), wanted) == [{"new": None, "v": "a"}]
    assert BINARY.definition(batch.schema) == {"delimiter": "0a", "column": "v"}


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("options", [{}, {"lengthPrefix": "int32"}, {"lengthPrefix": "varint"}])
def test_files_are_read_in_pieces(options: dict[str, Any]) -> None:
    values = [b"x" * 3_000_000, b"", b"y" * 9_000_000, b"\xff" * 3_000_000, b"z"]
    batch = one_column(pa.binary(), *values)
    file_format = format_from_options("binary", options)
    found = list(file_format.decode(io.BytesIO(encode(file_format, batch)), batch.schema))
    assert len(found) > 1
    assert [value for piece in found for value in piece.column(0).to_pylist()] == values


@pytest.mark.parametrize("prefix", ["int32", "int32le", "varint"])
def test_every_truncation_is_noticed(prefix: str) -> None:
    file_format = format_from_options("binary", {"lengthPrefix": prefix})
    batch = one_column(pa.binary(), b"a" * 200, b"", b"bc")
    data = encode(file_format, batch)
    assert isinstance(file_format, BinaryRecords)
    for length in {*range(len(data))} - {0, *file_format.row_ends(data).tolist()}:
        with pytest.raises(CorruptData, match="expected whole records"):
            decode(file_format, data[:length], batch.schema)


@pytest.mark.parametrize(
    ("prefix", "data"),
    [("varint", b"\xff" * 20), ("int32", b"\xff" * 20), ("int32", b"\0\0\1"), ("int32le", b"\5\0\0\0abc")],
)
def test_corrupt_files(prefix: str, data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode(format_from_options("binary", {"lengthPrefix": prefix}), data, pa.schema([("v", pa.binary())]))


def test_bytes_that_are_no_text_are_corrupt_text() -> None:
    with pytest.raises(CorruptData, match="records for v"):
        decode(BINARY, b"\xff\n", pa.schema([("v", pa.string())]))
