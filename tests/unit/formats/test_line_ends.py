"""Line ends within values of CSV files, at each position of pyarrow's blocks."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.context import SYSTEM
from ftfile.formats import csv_lines
from ftfile.formats.api import format_from_options
from ftfile.formats.reading.line_ends import WholeLineEnds
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.tools.load import csv_files
from ftfile.tools.load.file_rows import LoadedRows, TextColumns
from ftfile.tools.load.input_files import input_files
from tests.unit.formats.rows import decode, encode

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_BYTES = 100
SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string()})


def rows_after(start: str) -> pa.RecordBatch:
    texts = [start, *["a\r\nb", "\r\n", "\r\r\n\n", "c\r", "\nd"] * 20]
    return pa.RecordBatch.from_pydict({"id": [*range(len(texts))], "text": texts}, schema=SCHEMA)


@pytest.mark.parametrize("line_sep", ["\n", "\r\n", "\r"])
def test_files_of_the_sink(line_sep: str) -> None:
    csv = format_from_options("csv", {"lineSep": line_sep})
    with mock.patch.multiple(csv_lines, _BLOCK_BYTES=BLOCK_BYTES, _BUFFER_BYTES=10):
        for shift in range(BLOCK_BYTES // 2):
            rows = rows_after("x" * shift)
            assert decode(csv, encode(csv, rows), SCHEMA) == rows.to_pylist()


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_loaded_files(line_end: str, tmp_path: Path) -> None:
    path, columns = tmp_path / "a.csv", TextColumns({}, TimeFormats.from_options({}))
    with mock.patch.object(csv_files, "BLOCK_BYTES", BLOCK_BYTES):
        for shift in range(BLOCK_BYTES // 2):
            rows = rows_after("x" * shift)
            lines = ["id,text", *(f'{row["id"]},"{row["text"]}"' for row in rows.to_pylist())]
            path.write_bytes(line_end.join([*lines, ""]).encode())
            loaded = LoadedRows(input_files([str(path)], "csv"), columns, context=SYSTEM)
            assert pa.Table.from_batches([*loaded]).to_pylist() == rows.to_pylist()


@given(text=st.text("\r\n", max_size=30), sizes=st.lists(st.integers(2, 9), min_size=2))
def test_each_byte_is_read_once(text: str, sizes: list[int]) -> None:
    content = text.encode()
    file = WholeLineEnds(io.BytesIO(content))
    reads = [file.read(size) for size in sizes]
    for size, data, following in zip(sizes, reads, [*reads[1:], b""], strict=False):
        assert len(data) <= size
        assert not (data.endswith(b"\r") and following.startswith(b"\n"))
        assert data or not following
    assert b"".join(reads) + file.read() == content
