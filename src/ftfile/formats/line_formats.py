"""The base of line formats, which encode rows as text in slices.

Their segments are bytes of a file without its header: parts are assembled by joining them.
"""

from __future__ import annotations

import io
import re
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, CorruptData, EncodingError, UnencodableRows
from ftfile.core.options.table import DEFAULTS
from ftfile.formats.api import Encoder, Joiner, LineFormat, SegmentCodec, Taken
from ftfile.formats.reading.read_errors import corrupt
from ftfile.rows.buffers import string_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.filters.api import ByteWriter
    from ftfile.formats.api import Format, Limits


__all__ = (
    "EncodedRows",
    "LineEncoder",
    "LineJoiner",
    "LineSegments",
    "Lines",
    "check_characters",
    "naming",
    "overlaps_itself",
    "rows_of",
    "separator_ends",
    "whole_lines",
)


_BLOCK_BYTES = 4 << 20

# The text of a slice, and intermediate results, stay far below the limit of 2 GiB for one column.
_SLICE_ROWS_MAX = 65_536
_SLICE_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The text of some rows."""

    data: bytes | memoryview  # with line ends
    ends: Callable[[], NDArray[np.integer]]  # returns the offset after each row; only called if a file ends among them


def rows_of(lines: pa.StringArray) -> EncodedRows:
    """Return rows whose text is a column of strings without nulls."""
    offsets, _ = string_parts(lines)
    data = memoryview(lines.buffers()[2] or b"")[offsets[0] : offsets[-1]]
    return EncodedRows(data, lambda: offsets[1:] - offsets[0])


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Translate errors about values into `EncodingError` that names their column."""
    try:
        yield
    except (ValueError, pa.ArrowException) as error:
        raise EncodingError(f"{what} cannot be encoded: {error}") from error


class Lines(LineFormat):
    """A line format whose rows are encoded batch by batch."""

    line_sep: str = DEFAULTS["lineSep"]  # follows each row, and occurs nowhere else

    @abstractmethod
    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Return the rows of a batch, which is not empty, as text.

        Raises:
            EncodingError: a value cannot be encoded; the error names the column.
        """

    def head(self, schema: pa.Schema) -> bytes:  # noqa: ARG002 - for those that have one
        """Return the bytes before the first row of a file."""
        return b""

    def without_head(self, schema: pa.Schema) -> Lines:  # noqa: ARG002 - for those that have one
        """Return the format of the same rows without a header, for reading."""
        return self

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        return LineEncoder(target, self, self.head(schema))

    def segments(self, schema: pa.Schema) -> SegmentCodec:
        return LineSegments(self, self.without_head(schema))

    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:
        head = self.head(schema)
        return LineJoiner(target, target.write(head) if head else 0, self.row_ends, limits)

    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        return separator_ends(data, self.line_sep.encode())


class LineEncoder(Encoder):
    """Writes rows as text, exact to the row; the header of the file is written at once."""

    def __init__(self, target: ByteWriter, lines: Lines, head: bytes) -> None:
        self._target = target
        self._lines = lines
        self._rows = 0
        self._start_bytes = target.position
        if head:
            target.write(head)

    def write(self, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
        taken = 0
        while taken < batch.num_rows:
            rows = self._slice_rows(batch.slice(taken), limit_bytes)
            try:
                encoded = _encode_lines(self._lines, batch.slice(taken, rows))
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
        """Do nothing: nothing is buffered and there is no footer."""

    def _slice_rows(self, batch: pa.RecordBatch, limit_bytes: int | None) -> int:
        """Return how many rows to encode at once: with bounded memory, and few beyond the limit."""
        rows = _slice_rows(batch)
        if limit_bytes is not None:
            if self._rows:
                encoded = self.size_bytes / self._rows
            else:
                encoded = _row_bytes(batch)
            rows = min(rows, int(max(limit_bytes - self.size_bytes, 0) / encoded * 1.1) + 2)
        return rows


class LineSegments(SegmentCodec):
    """Segments with the bytes of the file; `headless` reads them."""

    def __init__(self, lines: Lines, headless: Format) -> None:
        self._lines = lines
        self._headless = headless

    def encode(self, batch: pa.RecordBatch, counts: Sequence[int]) -> Iterator[tuple[int, bytes | memoryview]]:
        bounds = np.cumsum([0, *counts])
        row = 0
        while row < batch.num_rows:
            rows = _slice_rows(batch.slice(row))
            encoded = _encode_lines(self._lines, batch.slice(row, rows))
            first = int(np.searchsorted(bounds, row, side="right")) - 1
            last = int(np.searchsorted(bounds, row + rows, side="left")) - 1
            ends = encoded.ends() if last > first else None
            start = 0
            for number in range(first, last + 1):
                done = int(bounds[number + 1]) - row
                if ends is not None and done < rows:
                    end = int(ends[done - 1])
                else:
                    end = len(encoded.data)
                yield number, encoded.data[start:end]
                start = end
            row += rows

    def decode(self, data: bytes, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        file = io.BytesIO(data)
        file.name = path  # its name in errors
        return self._headless.decode(file, schema)


class LineJoiner(Joiner):
    """Joins segments byte by byte, exact to the row; a rest starts later in the data.

    The target contains the header already. `row_ends` is only called if a part ends within the data.
    """

    def __init__(
        self, target: ByteWriter, head_bytes: int, row_ends: Callable[[bytes], NDArray[np.integer]], limits: Limits
    ) -> None:
        self.rows = 0
        self._target = target
        self._size_bytes = head_bytes
        self._row_ends = row_ends
        self._limits = limits
        self._is_full = False

    def take(self, data: bytes, rows: int, skip_rows: int) -> Taken:
        if skip_rows:  # the rest of a line segment starts later in the spool
            raise CorruptData("a segment", "no rows to pass over", f"{skip_rows}")
        taken = rows
        if not self._has_room(len(data), rows):
            ends = self._row_ends(data)
            taken = min(self._count_fitting(ends), rows)
            if taken:
                data = data[: int(ends[taken - 1])]
            else:
                data = b""
            self._is_full = taken < rows or not self._limits.strict
        self._target.write(data)
        self._count(len(data), taken)
        return Taken(taken, len(data))

    def try_copy_segment(self, size_bytes: int, rows: int, append: Callable[[], object]) -> bool:
        if not self._has_room(size_bytes, rows):
            return False
        append()
        self._count(size_bytes, rows)
        return True

    def _has_room(self, size_bytes: int, rows: int) -> bool:
        """Return True if more rows exceed no limit; they can reach a row limit, and a byte limit if not strict."""
        limits, end = self._limits, self._size_bytes + size_bytes
        if limits.max_rows is not None and self.rows + rows > limits.max_rows:
            return False
        return limits.max_bytes is None or (end <= limits.max_bytes if limits.strict else end < limits.max_bytes)

    def _count(self, size_bytes: int, rows: int) -> None:
        self._size_bytes += size_bytes
        self.rows += rows
        if self._limits.max_rows is not None and self.rows >= self._limits.max_rows:
            self._is_full = True

    def _count_fitting(self, ends: NDArray[np.integer]) -> int:
        limits, count = self._limits, len(ends)
        if limits.max_bytes is not None:
            room = limits.max_bytes - self._size_bytes
            # A record that is longer than a part is a part of its own.
            first = int(not self.rows)
            if limits.strict:
                count = min(count, max(int(np.searchsorted(ends, room, side="right")), first))
            else:
                count = min(count, int(np.searchsorted(ends, room)) + 1)
        if limits.max_rows is None:
            return count
        return min(count, limits.max_rows - self.rows)

    def is_full(self) -> bool:
        return self._is_full

    def finish(self) -> None:
        """Do nothing: the file ends with its last row."""


def _row_bytes(batch: pa.RecordBatch) -> float:
    """Return the average memory of a row, at least 1."""
    return float(batch.nbytes / batch.num_rows + 1)


def _slice_rows(batch: pa.RecordBatch) -> int:
    rows: int = min(batch.num_rows, _SLICE_ROWS_MAX, int(_SLICE_BYTES_MAX / _row_bytes(batch)) + 1)
    return rows


def _encode_lines(lines: Lines, batch: pa.RecordBatch) -> EncodedRows:
    try:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            with naming(f"column `{name}`"):
                column.validate(full=True)  # Spark's strings can be any bytes, but text is UTF-8
        with naming("a row"):
            return lines.encode(batch)
    except EncodingError as error:
        raise UnencodableRows(str(error)) from error


def overlaps_itself(separator: bytes | str) -> bool:
    """Return True if a separator can be found too early, such as `||` in `a|||`."""
    return any(separator[start:] == separator[: len(separator) - start] for start in range(1, len(separator)))


def check_characters(sep: str, quote: str, escape: str) -> None:
    """Raise a `ConfigError` for options with these names that are not distinct characters."""
    for name, character in (("sep", sep), ("quote", quote), ("escape", escape)):
        if len(character) != 1 or not character.isascii() or character in "\r\n\0":
            raise ConfigError(f"option {name}={character!r}: it must be one ASCII character that is not a line end")
    if sep in {quote, escape}:
        same = "quote" if sep == quote else "escape"
        raise ConfigError(f"options sep and {same} are both {sep!r}: change one of them")


def whole_lines(file: BinaryIO, line_sep: bytes) -> Iterator[bytes]:
    """Yield blocks of some megabytes, or of one longer line, that end with a line separator.

    Raises:
        CorruptData: the file does not end with a separator.
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
    """Return the offset after each line separator, in data that contains it at the end of each row only."""
    if len(line_sep) == 1:
        return np.flatnonzero(np.frombuffer(data, np.uint8) == line_sep[0]) + 1
    return np.array([match.end() for match in re.finditer(re.escape(line_sep), data)], np.int64)
