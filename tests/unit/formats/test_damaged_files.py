"""Damaged files and segments: reading raises an error that names the file, or returns other rows, and nothing else.

pyarrow reads Parquet, ORC and Arrow files, and may end the process on other content.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import CorruptData
from ftfile.formats.api import format_from_options
from ftfile.formats.columnar import RowSegments
from tests.unit.damage import damaged
from tests.unit.formats.rows import Target

WORDS = pa.schema([("word", pa.string())])
ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("word", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("raw", pa.binary()),
    ]
)
FLAT = pa.schema([field for field in ROWS if field.name != "raw"])
FORMATS: dict[str, tuple[str, pa.Schema, dict[str, Any]]] = {
    "text": ("text", WORDS, {}),
    "csv": ("csv", FLAT, {"header": True}),
    "json": ("json", ROWS, {}),
    "binary": ("binary", WORDS, {}),
    "binary, varint": ("binary", WORDS, {"lengthPrefix": "varint"}),
    "binary, int32": ("binary", WORDS, {"lengthPrefix": "int32"}),
    **{f"avro, {codec}": ("avro", ROWS, {"compression": codec}) for codec in ("none", "deflate", "snappy", "zstd")},
}
VALUES = {"id": [1, None, 3], "word": ["some", "more", "words"], "at": [0, 1, None], "price": [None, None, None]}


def rows_of(schema: pa.Schema) -> pa.RecordBatch:
    values = {**VALUES, "raw": [b"\x00", b"", None]}
    return pa.RecordBatch.from_arrays([pa.array(values[each.name], each.type) for each in schema], schema=schema)


def written(name: str) -> bytes:
    kind, schema, options = FORMATS[name]
    target = Target()
    encoder = format_from_options(kind, options).encoder(schema, target)
    encoder.write(rows_of(schema))
    encoder.finish()
    return bytes(target.data)


FILES = {name: written(name) for name in FORMATS}


def read(name: str, content: bytes) -> int:
    kind, schema, options = FORMATS[name]
    file = io.BytesIO(content)
    file.name = "part"
    return sum(batch.num_rows for batch in format_from_options(kind, options).decode(file, schema))


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_files(name: str, data: st.DataObject) -> None:
    with contextlib.suppress(CorruptData):
        read(name, data.draw(damaged(FILES[name])))


@pytest.mark.parametrize("name", FORMATS)
def test_as_they_were_written(name: str) -> None:
    assert read(name, FILES[name]) == 3


SEGMENT = b"".join(bytes(data) for _, data in RowSegments(ROWS).encode(rows_of(ROWS), [3]))


@pytest.mark.slow
@pytest.mark.packages
@given(damaged(SEGMENT))
def test_segments(content: bytes) -> None:
    with contextlib.suppress(CorruptData):
        list(RowSegments(ROWS).decode(content, "spool", ROWS))


def test_a_segment_that_claims_to_be_huge() -> None:
    with pytest.raises(CorruptData, match="bytes that claim to decompress to"):
        list(RowSegments(ROWS).decode((1 << 40).to_bytes(8, "little") + SEGMENT[8:], "spool", ROWS))
