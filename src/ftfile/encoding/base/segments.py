"""Segments of columnar formats: Arrow batches in a spool, which are encoded once, when a part is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.errors import CorruptData
from ftfile.encoding.api import Joiner, SegmentCodec, Taken
from ftfile.encoding.base.reading import batch_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.encoding.api import Encoder, Limits

__all__ = ("RowJoiner", "RowSegments")

_LENGTH_BYTES = 8
_SEGMENT_CODEC = "lz4"
_LZ4_RATIO_MAX = 255


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
