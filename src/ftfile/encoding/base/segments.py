"""How rows lie in a spool until a part is made of them.

A segment is the rows that one attempt gave one bucket. Those of line formats are bytes of the file to be, without what
stands at its head: parts are made by joining them. Those of columnar formats are Arrow batches, encoded once, when the
part is made.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.core.errors import CorruptData
from ftfile.encoding.api import Joiner, SegmentCodec, Taken
from ftfile.encoding.base.reading import batch_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.encoding.api import ByteWriter, Encoder, Format, Limits

__all__ = ("EncodedRows", "LineJoiner", "LineSegments", "RowJoiner", "RowSegments")


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The text of some rows."""

    data: bytes | memoryview  # with line ends
    ends: Callable[[], NDArray[np.integer]]  # the offset after each row; called only where a file ends among them


class LineSegments(SegmentCodec):
    """Segments whose data is that of the file.

    Args:
        encode: yields the text of rows, some at a time, with their number.
        headless: the format without the head of a file, for reading.
    """

    def __init__(self, encode: Callable[[pa.RecordBatch], Iterator[tuple[EncodedRows, int]]], headless: Format) -> None:
        self._encode = encode
        self._headless = headless

    def encode(self, batch: pa.RecordBatch, counts: Sequence[int]) -> Iterator[tuple[int, bytes | memoryview]]:
        bounds = np.cumsum([0, *counts])
        row = 0
        for encoded, rows in self._encode(batch):
            first = int(np.searchsorted(bounds, row, side="right")) - 1
            last = int(np.searchsorted(bounds, row + rows, side="left")) - 1
            ends = encoded.ends() if last > first else None
            start = 0
            for number in range(first, last + 1):
                done = int(bounds[number + 1]) - row
                end = int(ends[done - 1]) if ends is not None and done < rows else len(encoded.data)
                yield number, encoded.data[start:end]
                start = end
            row += rows

    def decode(self, data: bytes, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        file = io.BytesIO(data)
        file.name = path  # what errors call it
        return self._headless.decode(file, schema)


class LineJoiner(Joiner):
    """Joins segments byte by byte, exact to the row; a rest begins later in the data.

    Args:
        target: where the file goes, with its head written.
        head_bytes: length of the head.
        row_ends: returns the offset after each row of some data; called only where a part ends within it.
        limits: when the part is full.
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

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def take(self, data: bytes, rows: int, skip_rows: int) -> Taken:
        assert not skip_rows, "the rest of a line segment starts later in the spool"
        taken = rows
        if not self._has_room(len(data), rows):
            ends = self._row_ends(data)
            taken = min(self._fitting(ends), rows)
            data = data[: int(ends[taken - 1])] if taken else b""
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
        """Return True if that much more passes no limit; a limit of rows may be reached, one of bytes if strict."""
        limits, end = self._limits, self._size_bytes + size_bytes
        if limits.max_rows is not None and self.rows + rows > limits.max_rows:
            return False
        return limits.max_bytes is None or (end <= limits.max_bytes if limits.strict else end < limits.max_bytes)

    def _count(self, size_bytes: int, rows: int) -> None:
        self._size_bytes += size_bytes
        self.rows += rows
        if self._limits.max_rows is not None and self.rows >= self._limits.max_rows:
            self._is_full = True

    def _fitting(self, ends: NDArray[np.integer]) -> int:
        limits, count = self._limits, len(ends)
        if limits.max_bytes is not None:
            room = limits.max_bytes - self._size_bytes
            # A record that is longer than any part makes one of its own.
            first = int(not self.rows)
            if limits.strict:
                count = min(count, max(int(np.searchsorted(ends, room, side="right")), first))
            else:
                count = min(count, int(np.searchsorted(ends, room)) + 1)
        return count if limits.max_rows is None else min(count, limits.max_rows - self.rows)

    def is_full(self) -> bool:
        return self._is_full

    def finish(self) -> None:
        """Nothing follows the last row."""


class RowSegments(SegmentCodec):
    """Segments that are one Arrow batch in one LZ4 frame: they live for a few batches, so speed counts more than size.

    `check` raises `UnencodableRows` for rows that no part could hold.
    """

    def __init__(self, schema: pa.Schema, check: Callable[[pa.RecordBatch], None] | None = None) -> None:
        self._schema = schema
        self._check = check

    def encode(self, batch: pa.RecordBatch, counts: Sequence[int]) -> Iterator[tuple[int, bytes | memoryview]]:
        if self._check is not None:
            self._check(batch)
        codec, start = pa.Codec(_SEGMENT_CODEC), 0
        for number, count in enumerate(counts):
            message = batch.slice(start, count).serialize()
            yield number, message.size.to_bytes(_LENGTH_BYTES, "little") + codec.compress(message, asbytes=True)
            start += count

    def decode(self, data: bytes, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield batch_as(self.batch(data, path), schema)

    def batch(self, data: bytes, path: str) -> pa.RecordBatch:
        """Return all rows of a segment."""
        size_bytes = int.from_bytes(data[:_LENGTH_BYTES], "little")
        if size_bytes > _LZ4_RATIO_MAX * len(data):
            raise CorruptData(path, "an Arrow batch in an LZ4 frame", f"{len(data)} bytes that shall be {size_bytes}")
        try:
            message = pa.Codec(_SEGMENT_CODEC).decompress(data[_LENGTH_BYTES:], size_bytes)
            return pa.ipc.read_record_batch(message, self._schema)
        except (pa.ArrowException, OSError) as error:
            raise CorruptData(path, "an Arrow batch in an LZ4 frame", str(error)) from error


class RowJoiner(Joiner):
    """Encodes the rows of segments as one file; a rest skips rows. Sizes are estimates, `strict` or not."""

    def __init__(self, encoder: Encoder, segments: RowSegments, limits: Limits) -> None:
        self.rows = 0
        self._encoder = encoder
        self._segments = segments
        self._limits = limits

    @property
    def size_bytes(self) -> int:
        return self._encoder.size_bytes

    def take(self, data: bytes, rows: int, skip_rows: int) -> Taken:
        batch = self._segments.batch(data, "a segment").slice(skip_rows)
        room = rows if self._limits.max_rows is None else min(rows, self._limits.max_rows - self.rows)
        taken = self._encoder.write(batch.slice(0, room), self._limits.max_bytes)
        self.rows += taken
        return Taken(taken, 0)

    def is_full(self) -> bool:
        max_bytes, max_rows = self._limits.max_bytes, self._limits.max_rows
        return (max_rows is not None and self.rows >= max_rows) or (
            max_bytes is not None and self._encoder.size_bytes >= max_bytes
        )

    def finish(self) -> None:
        self._encoder.finish()


_LENGTH_BYTES = 8
_SEGMENT_CODEC = "lz4"
_LZ4_RATIO_MAX = 255
