"""Lines of text as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import strings_from
from ftfile.encoding.base.reading import batch_of
from ftfile.source.files.decoding.lines import as_utf_8, line_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.source.files.decoding.opened import OpenedFile
    from ftfile.source.files.decoding.settings import FileDecoding
    from ftfile.source.files.decoding.split import Cut

_NEWLINE = ord("\n")


def text_rows(opened: OpenedFile, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a cut without their ends; a column of binary values has their bytes as they are."""
    is_raw = bool(len(schema)) and pa.types.is_binary(schema.types[0])
    separator = decoding.separator if is_raw else decoding.line_sep.encode()
    for block in line_blocks(opened, cut, decoding.separator):
        lines = _split(block if is_raw else as_utf_8(block, decoding), separator)
        columns = [lines.view(kind) for kind in schema.types]
        yield batch_of(columns, schema, len(lines))


def _split(block: bytes, separator: bytes) -> pa.BinaryArray:
    """Return the lines of a block without their ends: a carriage return before a line feed is of the end."""
    if separator != b"\n":
        return pa.array(block.split(separator)[:-1], pa.binary())
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends - np.arange(len(ends))
    return strings_from(offsets, np.frombuffer(block.replace(b"\n", b""), np.uint8), pa.binary())
