"""Line formats: rows become bytes slice by slice, files end after the right row, and whole lines are read back."""

from __future__ import annotations

import re
from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import string_parts
from ftfile.core.errors import EncodingError, UnencodableRows
from ftfile.encoding.api import Encoder, LineFormat
from ftfile.encoding.base.reading import corrupt
from ftfile.encoding.base.segments import EncodedRows, LineJoiner, LineSegments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ftfile.encoding.api import ByteWriter, Joiner, Limits, SegmentCodec

__all__ = (
    "Encode",
    "EncodedRows",
    "LineEncoder",
    "Lines",
    "ends_as_it_begins",
    "naming",
    "rows_of",
    "separator_ends",
    "whole_lines",
)

_BLOCK_BYTES = 4 << 20

# A slice's text, and what is made on the way to it, stays far below the limit of 2 GiB for one column.
_SLICE_ROWS_MAX = 65_536
_SLICE_BYTES_MAX = 8 << 20


Encode: TypeAlias = "Callable[[pa.RecordBatch], EncodedRows]"


def rows_of(lines: pa.StringArray) -> EncodedRows:
    """Return the rows that are the strings of a column without nulls."""
    offsets, _ = string_parts(lines)
    data = memoryview(lines.buffers()[2] or b"")[offsets[0] : offsets[-1]]
    return EncodedRows(data, lambda: offsets[1:] - offsets[0])


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn errors about values into `EncodingError` that names where they are."""
    try:
        yield
    except (ValueError, pa.ArrowException) as error:
        raise EncodingError(f"{what} cannot be encoded: {error}") from error


class Lines(LineFormat):
    """A line format made of a function from rows to text.

    Attributes:
        line_sep: stands after each row, and nowhere else.
    """

    line_sep: str = "\n"

    @abstractmethod
    def rows(self, schema: pa.Schema) -> Encode:
        """Return the function that encodes batches of `schema`, none of them empty.

        It raises `EncodingError` for a value that cannot be encoded, and names the column.
        """

    def head(self, schema: pa.Schema) -> bytes:  # noqa: ARG002 - for those that have one
        """Return the bytes before the first row of a file."""
        return b""

    def without_head(self, schema: pa.Schema) -> Lines:  # noqa: ARG002 - for those that have one
        """Return the format of the same rows without a head, for reading."""
        return self

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        return LineEncoder(target, self.rows(schema), self.head(schema))

    def segments(self, schema: pa.Schema) -> SegmentCodec:
        encode = self.rows(schema)
        return LineSegments(lambda batch: _encoded_rows(encode, batch), self.without_head(schema))

    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:
        head = self.head(schema)
        return LineJoiner(target, target.write(head) if head else 0, self.row_ends, limits)

    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        return separator_ends(data, self.line_sep.encode())


class LineEncoder(Encoder):
    """Writes rows as text, exact to the row; the head of the file is written at once."""

    def __init__(self, target: ByteWriter, encode: Encode, head: bytes) -> None:
        self._target = target
        self._encode = encode
        self._rows = 0
        self._start_bytes = target.position
        if head:
            target.write(head)

    def write(self, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
        taken = 0
        while taken < batch.num_rows:
            rows = self._slice_rows(batch.slice(taken), limit_bytes)
            try:
                encoded = _encoded(self._encode, batch.slice(taken, rows))
            except UnencodableRows:
                if taken:
                    break
                raise
            data, missing = encoded.data, (limit_bytes or 0) - self.size_bytes
            ended = limit_bytes is not None and len(data) >= missing
            if ended:
                ends = encoded.ends()
                rows = int(np.searchsorted(ends, missing)) + 1
                data = data[: ends[rows - 1]]
            self._target.write(data)
            taken += rows
            self._rows += rows
            if ended:
                break
        return taken

    @property
    def size_bytes(self) -> int:
        return self._target.position - self._start_bytes

    def finish(self) -> None:
        """Nothing is buffered and there is no footer."""

    def _slice_rows(self, batch: pa.RecordBatch, limit_bytes: int | None) -> int:
        """Return how many rows to encode at once: within bounds of memory, and few beyond the limit."""
        rows = _slice_rows(batch)
        if limit_bytes is not None:
            encoded = self.size_bytes / self._rows if self._rows else _row_bytes(batch)
            rows = min(rows, int(max(limit_bytes - self.size_bytes, 0) / encoded * 1.1) + 2)
        return rows


def _row_bytes(batch: pa.RecordBatch) -> float:
    """Return the average memory of a row, at least 1."""
    return float(batch.nbytes / batch.num_rows + 1)


def _slice_rows(batch: pa.RecordBatch) -> int:
    rows: int = min(batch.num_rows, _SLICE_ROWS_MAX, int(_SLICE_BYTES_MAX / _row_bytes(batch)) + 1)
    return rows


def _encoded_rows(encode: Encode, batch: pa.RecordBatch) -> Iterator[tuple[EncodedRows, int]]:
    """Yield the text of all rows, some at a time, with their number."""
    done = 0
    while done < batch.num_rows:
        rows = _slice_rows(batch.slice(done))
        yield _encoded(encode, batch.slice(done, rows)), rows
        done += rows


def _encoded(encode: Encode, batch: pa.RecordBatch) -> EncodedRows:
    try:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            with naming(f"column `{name}`"):
                column.validate(full=True)  # Spark's strings may hold any bytes, and text is UTF-8
        with naming("a row"):
            return encode(batch)
    except EncodingError as error:
        raise UnencodableRows(str(error)) from error


def ends_as_it_begins(separator: bytes | str) -> bool:
    """Return True if a separator can be found too early, as `||` in `a|||`."""
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
