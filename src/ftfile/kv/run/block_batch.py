"""Compression of blocks, and decoding of several blocks to Arrow at once, as a whole or for selected rows."""

from __future__ import annotations

from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.errors import CorruptData
from ftfile.kv.run.block import ALIGNMENT, START_BYTES
from ftfile.rows.buffers import from_numpy, strings_from
from ftfile.rows.messages import with_binaries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ftfile.kv.run.block import Block, Buffer, Column, Layout

    Numbers = NDArray[np.int64]


_OFFSET_MAX = (1 << 31) - 1  # greatest offset of a value in an Arrow column
COLUMN_BYTES_MAX = (1 << 31) - 1  # maximum size of the gathered strings of a column


COMPRESSIONS = ("none", "lz4", "zstd")
# Maximum size of a decompressed block: its compressed bytes times `EXPANSION_MAX` (the limit of LZ4), or
# `SMALL_PLAIN_BYTES` if that is greater.
EXPANSION_MAX = 256
SMALL_PLAIN_BYTES = 1 << 20
_LZ4_RAW, _LZ4_FRAMES = pa.Codec("lz4_raw"), pa.Codec("lz4")
_ZSTD = pa.Codec("zstd", compression_level=1)
_ZSTD_SKIPPED = b"\x50\x2a\x4d\x18"  # the magic number of a skippable frame
_PREFIX_BYTES = 4  # the length before an LZ4 block
# An LZ4 frame of independent blocks: the maximum size of a block, the head and the end of the frame.
_FRAME_BYTES = 64 << 10
_FRAME_HEAD, _FRAME_END = b"\x04\x22\x4d\x18\x60\x40\x82", bytes(4)


class TooManyBytes(Exception):
    """The rows have more bytes in a column than one batch can contain: read fewer rows."""


def compress(content: bytes, compression: str) -> bytes:
    """Return the stored bytes of a block."""
    if compression == "none":
        return content
    if compression == "lz4":
        compressed = _LZ4_RAW.compress(content, asbytes=True)
        return b"".join((len(compressed).to_bytes(_PREFIX_BYTES, "little"), compressed))
    compressed = _ZSTD.compress(content, asbytes=True)
    if len(content) <= max(SMALL_PLAIN_BYTES, EXPANSION_MAX * len(compressed)):
        return bytes(compressed)
    # Append a skippable frame, so that a well-compressed block does not exceed the maximum expansion.
    skipped = len(content) // EXPANSION_MAX
    return b"".join((compressed, _ZSTD_SKIPPED, skipped.to_bytes(4, "little"), bytes(skipped)))


def decompress(stored: Buffer, size: int, compression: str) -> Buffer:
    """Return the decompressed bytes of a block with a known size; ValueError or OSError for invalid input.

    Only the checksum verifies the size, because pyarrow 26 does not report where LZ4 output ends.
    """
    if compression == "lz4":
        _check_prefix(stored)
        return bytes(_LZ4_RAW.decompress(stored[_PREFIX_BYTES:], size, asbytes=True))
    if compression == "zstd":
        return bytes(_ZSTD.decompress(stored, size, asbytes=True))
    if len(stored) != size:
        raise ValueError(f"{len(stored)} bytes")
    return stored


def decompress_all(stored: Sequence[Buffer], sizes: Sequence[int], compression: str) -> list[Buffer]:
    """Return the decompressed bytes of blocks as `decompress` does, in one call where possible."""
    is_framed = compression == "lz4" and max(chain(sizes, map(len, stored))) <= _FRAME_BYTES
    if not is_framed and compression != "zstd":
        blocks = []
        for block, size in zip(stored, sizes, strict=True):
            blocks.append(decompress(block, size, compression))
        return blocks
    if is_framed:
        for block in stored:
            _check_prefix(block)
        content = _LZ4_FRAMES.decompress(b"".join((_FRAME_HEAD, *stored, _FRAME_END)), sum(sizes), asbytes=True)
    else:
        content = _ZSTD.decompress(b"".join(stored), sum(sizes), asbytes=True)
    view = memoryview(content)
    bounds = pairwise(accumulate(sizes, initial=0))
    return [view[start:end] for start, end in bounds]


def _check_prefix(stored: Buffer) -> None:
    if int.from_bytes(stored[:_PREFIX_BYTES], "little") != len(stored) - _PREFIX_BYTES:
        raise ValueError(f"{len(stored)} bytes, and a prefix with another length")


class BlockBatch:
    """Blocks whose rows are decoded together; any damage raises `CorruptData` with the number of the block."""

    def __init__(
        self,
        blocks: Sequence[Buffer],
        rows: NDArray[np.integer],
        layout: Layout,
        path: str,
        numbers: Sequence[object],
    ) -> None:
        """Check the bounds of the buffers. `rows` has the row count of each block, `numbers` its number for errors."""
        self._blocks = blocks
        self._rows = rows.astype(np.int64)
        self._path = path
        self._numbers = numbers
        self._layout = layout
        self._bounds = self._read_bounds(layout)

    @classmethod
    def of(cls, blocks: Sequence[Block], layout: Layout, path: str, numbers: Sequence[object]) -> BlockBatch:
        """Return a batch of open blocks."""
        rows = np.array([block.rows for block in blocks], np.int64)
        return cls([block.data for block in blocks], rows, layout, path, numbers)

    def batch(self, places: Sequence[int] | None = None) -> pa.RecordBatch:
        """Return all rows; `places` selects columns by number, in this order."""
        if places is None:
            places = range(len(self._layout.schema))
        try:
            columns = [self.column(place) for place in places]
        except TooManyBytes as error:
            raise CorruptData(
                self._path, f"in block {self._numbers[0]} columns with fewer bytes", "too many"
            ) from error
        fields = [self._layout.schema.field(place) for place in places]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def column(self, place: int) -> pa.Array:
        """Return a column of all rows, by its number."""
        array = self._array(self._layout.columns[place], self._rows)
        if pa.types.is_nested(array.type) or pa.types.is_decimal(array.type):
            self._check_values(array)
        return array

    def gather(self, ends: Sequence[int], rows: Numbers) -> pa.RecordBatch:
        """Return selected rows, at least one of each block, as one batch; raises `TooManyBytes`.

        `rows` are row numbers within blocks, ordered by block; `ends` are the end indexes in `rows` for each block.
        """
        bounds = [*pairwise([0, *ends])]
        counts = np.diff([0, *ends])
        firsts = np.cumsum(self._rows) - self._rows
        numbers = from_numpy(rows + np.repeat(firsts, counts), pa.int64())
        arrays = []
        for place, column in enumerate(self._layout.columns):
            if column.form == "bytes":
                array = self._byte_values(column, bounds, rows)
            else:
                array = self.column(place).take(numbers)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._layout.schema)

    def _byte_values(self, column: Column, bounds: Sequence[tuple[int, int]], rows: Numbers) -> pa.Array:
        """Return selected values of a column of strings or binaries; `bounds` are the ranges of `rows` by block."""
        validity, value_starts, content = column.first, column.first + 1, column.first + 2  # numbers of its buffers
        counts = [end - start for start, end in bounds]
        content_begins = np.repeat(self._bounds[:, content], counts)
        sizes = self._sizes(content)
        has_starts = self._sizes(value_starts) > 0
        # Values of equal length are stored without starts.
        lengths = np.repeat(sizes // np.maximum(self._rows, 1), counts)
        starts = rows * lengths
        for number in np.flatnonzero(has_starts).tolist():
            selected = slice(*bounds[number])
            offsets = self._numbers_in(number, value_starts, "<u4").astype(np.int64)
            starts[selected] = offsets[rows[selected]]
            lengths[selected] = offsets[rows[selected] + 1] - starts[selected]
        if lengths.sum() > COLUMN_BYTES_MAX:
            raise TooManyBytes
        starts += content_begins
        pairs = [*zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]
        pieces: list[Buffer] = []
        for block, (start, end) in zip(self._blocks, bounds, strict=True):
            pieces += [block[low:high] for low, high in pairs[start:end]]
        joined_values = np.frombuffer(b"".join(pieces), np.uint8)
        is_valid = None
        has_validity = self._sizes(validity) > 0
        if has_validity.any():
            is_valid = np.ones(len(rows), np.bool_)
            for number in np.flatnonzero(has_validity).tolist():
                selected = slice(*bounds[number])
                is_valid[selected] = self._numbers_in(number, validity, "u1")[rows[selected]] != 0
        return strings_from(np.append(0, np.cumsum(lengths)), joined_values, column.kind, is_valid)

    def _numbers_in(self, block: int, buffer: int, dtype: str) -> NDArray[Any]:
        """Return the values of a buffer of one block."""
        begin, end = self._bounds[block, buffer : buffer + 2].tolist()
        return np.frombuffer(self._blocks[block][begin:end], dtype)

    def _read_bounds(self, layout: Layout) -> Numbers:
        """Return the start of each buffer of each block, and the end of the last buffer."""
        head_bytes = layout.head.size
        sizes = np.array([len(block) for block in self._blocks], np.int64)
        self._require(sizes >= head_bytes, "the bounds of its buffers")
        heads = b"".join([block[:head_bytes] for block in self._blocks])
        bounds = np.frombuffer(heads, "<u4").reshape(len(self._blocks), -1).astype(np.int64)
        padding = sizes - bounds[:, -1]
        is_ordered = (bounds[:, 0] == head_bytes) & (bounds[:, 1:] >= bounds[:, :-1]).all(axis=1)
        self._require(is_ordered & (padding >= 0) & (padding < ALIGNMENT), "buffers that follow each other")
        return bounds

    def _sizes(self, buffer: int) -> Numbers:
        """Return the size of a buffer in each block."""
        return self._bounds[:, buffer + 1] - self._bounds[:, buffer]

    def _pieces(self, buffer: int) -> list[Buffer]:
        """Return the bytes of a buffer in each block."""
        begins, ends = self._bounds[:, buffer].tolist(), self._bounds[:, buffer + 1].tolist()
        return [block[begin:end] for block, begin, end in zip(self._blocks, begins, ends, strict=True)]

    def _join_buffer(self, buffer: int) -> bytes:
        return b"".join(self._pieces(buffer))

    def _require(self, fits: NDArray[np.bool_], expected: str) -> None:
        """Raise CorruptData for the first block that does not fit."""
        if not fits.all():
            block = int(np.argmin(fits))
            actual = f"{len(self._blocks[block])} bytes without them"
            raise CorruptData(self._path, f"in block {self._numbers[block]} {expected}", actual)

    def _check_values(self, array: pa.Array) -> None:
        """Raise CorruptData for decimals with more digits than their type, and for null keys of maps."""
        try:
            # Viewed as binaries, strings may contain any bytes.
            array.view(with_binaries(array.type)).validate(full=True)
        except pa.ArrowInvalid as error:
            expected = f"in blocks {self._numbers[0]} to {self._numbers[-1]} values of {array.type}"
            raise CorruptData(self._path, expected, f"{error}") from error

    def _array(self, column: Column, rows: Numbers) -> pa.Array:
        """Return a column, or a nested column, with `rows` values in each block."""
        first = column.first
        buffers: list[pa.Buffer] = []
        # The validity is read last, because its memory depends on the number of rows. The other buffers are checked to
        # have bytes for each row.
        children: list[pa.Array] = []
        if column.form == "fixed":
            self._require(self._sizes(first + 1) == rows * column.width, f"{column.kind} values of all rows")
            content = self._join_buffer(first + 1)
            if pa.types.is_boolean(column.kind):
                content = np.packbits(np.frombuffer(content, np.uint8), bitorder="little").tobytes()
            buffers.append(pa.py_buffer(content))
        elif column.form == "bytes":
            offsets = self._byte_offsets(column, rows)
            buffers += [_offset_buffer(offsets), pa.py_buffer(self._join_buffer(first + 2))]
        elif column.form == "list":
            offsets, counts = self._offsets(column, rows, self._pieces(first + 1), self._sizes(first + 1))
            children.append(self._array(column.children[0], counts))
            buffers.append(_offset_buffer(offsets))
        else:
            children += [self._array(child, rows) for child in column.children]
        bitmap, nulls = self._validity(column, rows, is_needed=column.first + 1 == column.end)
        return pa.Array.from_buffers(column.kind, int(rows.sum()), [bitmap, *buffers], nulls, 0, children)

    def _validity(self, column: Column, rows: Numbers, *, is_needed: bool) -> tuple[pa.Buffer | None, int]:
        """Return the validity bitmap and the number of nulls. If it is needed, no block may omit the validity."""
        sizes = self._sizes(column.first)
        self._require((sizes == rows) | (not is_needed and sizes == 0), "the validity of all rows")
        if not sizes.any():
            return None, 0
        pieces = self._pieces(column.first)
        for number, count in enumerate(rows.tolist()):
            if not len(pieces[number]):
                pieces[number] = b"\1" * count
        is_valid = np.frombuffer(b"".join(pieces), np.uint8) != 0
        return pa.py_buffer(np.packbits(is_valid, bitorder="little")), len(is_valid) - np.count_nonzero(is_valid)

    def _byte_offsets(self, column: Column, rows: Numbers) -> Numbers:
        """Return the concatenated starts of the values of all blocks."""
        start_sizes, sizes = self._sizes(column.first + 1), self._sizes(column.first + 2)
        counts = np.maximum(rows, 1)
        # Values of equal length have no starts. Each has at least one byte, so a block has no more rows than bytes.
        is_even = (start_sizes == 0) & (sizes % counts == 0) & ((sizes > 0) == (rows > 0))
        self._require(is_even | (start_sizes > 0), "starts of all values")
        widths = sizes // counts
        if is_even.all():
            if (widths[rows > 0] == widths.max()).all():
                return np.arange(int(rows.sum()) + 1) * int(widths.max())
            return np.append(0, np.cumsum(np.repeat(widths, rows)))
        pieces = self._pieces(column.first + 1)
        for number in np.flatnonzero(start_sizes == 0).tolist():
            width, size = int(widths[number]), int(sizes[number])
            if width:
                pieces[number] = np.arange(0, size + 1, width, dtype="<u4").tobytes()
            else:
                pieces[number] = bytes(START_BYTES)
        offsets, ends = self._offsets(column, rows, pieces, np.where(is_even, START_BYTES * (rows + 1), start_sizes))
        self._require(ends == sizes, "starts that end with the last byte")
        return offsets

    def _offsets(
        self, column: Column, rows: Numbers, pieces: Sequence[Buffer], sizes: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Return the concatenated starts of the values of all blocks, and the last start of each block."""
        self._require(sizes == START_BYTES * (rows + 1), f"starts of all values of {column.kind}")
        starts = np.frombuffer(b"".join(pieces), "<u4").astype(np.int64)
        ends = np.cumsum(rows + 1)
        firsts = ends - rows - 1
        steps = np.diff(starts, prepend=0)
        steps[firsts] = 0
        is_falling = np.add.reduceat(steps < 0, firsts) > 0
        self._require((starts[firsts] == 0) & ~is_falling, f"rising starts of values of {column.kind}")
        lasts = starts[ends - 1]
        before = np.cumsum(lasts) - lasts
        # The last start of a block equals the first start of the next block: keep only one of them.
        is_kept = np.ones(len(starts), np.bool_)
        is_kept[ends[:-1] - 1] = False
        return (starts + np.repeat(before, rows + 1))[is_kept], lasts


def _offset_buffer(offsets: Numbers) -> pa.Buffer:
    if offsets[-1] > _OFFSET_MAX:
        raise TooManyBytes
    return pa.py_buffer(offsets.astype(np.int32))


def join_batches(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of all batches as one batch."""
    if len(batches) == 1:
        return batches[0]
    combined = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    if combined:
        return combined[0]
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)
