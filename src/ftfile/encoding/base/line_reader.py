"""Reading line formats back: whole lines at a time, and errors that name the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa

from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ("batch_of", "corrupt", "ends_as_it_begins", "separator_ends", "whole_lines")

_BLOCK_BYTES = 4 << 20


def corrupt(file: BinaryIO, expected: str, found: object) -> CorruptData:
    """Return the error for a file that is not what a format writes."""
    return CorruptData(str(getattr(file, "name", "")), expected, str(found))


def ends_as_it_begins(separator: bytes | str) -> bool:
    """Say whether a separator is found too early after a record that ends so, too, as `||` is in `a|||`."""
    return any(separator[start:] == separator[: len(separator) - start] for start in range(1, len(separator)))


def whole_lines(file: BinaryIO, line_sep: bytes) -> Iterator[bytes]:
    """Yield blocks of some megabytes, or of one line if it is longer, that end with a line separator.

    Raises:
        CorruptData: the file does not end with one.
    """
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        rest += block
        end = rest.rfind(line_sep) + len(line_sep)
        if end >= len(line_sep):
            yield rest[:end]
            rest = rest[end:]
    if rest:
        raise corrupt(file, "a line separator at the end", f"an unfinished line of {len(rest)} bytes")


def separator_ends(data: bytes, line_sep: bytes) -> NDArray[np.integer]:
    """Return the offset after each line separator, in data that has it at the end of each row and nowhere else."""
    if len(line_sep) == 1:
        return np.flatnonzero(np.frombuffer(data, np.uint8) == line_sep[0]) + 1
    return np.array([match.end() for match in re.finditer(re.escape(line_sep), data)], np.int64)


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch that knows its number of rows even if it has no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["none"]).select([])
