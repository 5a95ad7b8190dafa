"""The writer of a run: blocks as rows arrive, then pages, then the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.checksum import crc32
from ftfile.core.errors import EncodingError
from ftfile.kv.hashing import hash_rows
from ftfile.kv.key_columns import StoredKeys, first_fall
from ftfile.kv.run.block import encode_blocks, layout_of
from ftfile.kv.run.block_batch import compress, join_batches
from ftfile.kv.run.index import Index, encode_index, padded_length_of
from ftfile.kv.run.pages import NO_PAGES, PageShape, build_pages, places_of, shape_for
from ftfile.rows.buffers import from_numpy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from _typeshed import SupportsWrite
    from numpy.typing import NDArray

    from ftfile.kv.key_columns import Key


BLOCK_BYTES = 16 << 10  # before compression: a lookup reads one block; larger blocks make scans faster
PAGED_ROWS_MIN = 4096  # runs of fewer rows have no pages, which would be as long as the rows; they are read completely
_WINDOW_ROWS_MAX = 16_384  # collected, and split into blocks, at a time
_WINDOW_BLOCKS = 32


class RunSummary(NamedTuple):
    """The number of rows and the key bounds of a written run."""

    rows: int  # number of rows
    keys: tuple[Key, Key] | None  # of the first and of the last row; None without rows


def write_run(
    stream: SupportsWrite[bytes],
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    keys: Sequence[str],
    *,
    compression: str = "lz4",
    block_bytes: int | None = None,
) -> RunSummary:
    """Write rows as a run, which begins at the current position of `stream`.

    Memory is bounded by some blocks, and 48 bytes for each row. The rows of all batches must be sorted by their keys,
    which are the first columns of the schema and distinct. Blocks have about `block_bytes` before compression, or
    `BLOCK_BYTES` if it is None.

    Raises:
        EncodingError: keys do not ascend, a key is null, or there are too many rows.
    """
    if block_bytes is None:
        block_bytes = BLOCK_BYTES
    writer = _RunWriter(stream, schema, len(keys), compression)
    for window in _windows(batches, schema, block_bytes):
        writer.write(window, -(-window.nbytes // block_bytes))
    return writer.finish()


def _windows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, block_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches for several blocks, or of the maximum number of rows; the last one may be smaller."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _WINDOW_ROWS_MAX):
            piece = batch.slice(start, _WINDOW_ROWS_MAX)
            held.append(piece)
            rows += piece.num_rows
            size_bytes += piece.nbytes
            if size_bytes >= _WINDOW_BLOCKS * block_bytes or rows >= _WINDOW_ROWS_MAX:
                yield join_batches(held, schema)
                held, rows, size_bytes = [], 0, 0
    if held:
        yield join_batches(held, schema)


class _RunWriter:
    def __init__(self, stream: SupportsWrite[bytes], schema: pa.Schema, key_columns: int, compression: str) -> None:
        self._stream = stream
        self._schema = schema
        self._layout = layout_of(schema)
        self._key_columns = key_columns
        self._compression = compression
        self._position = 0
        self._crc = 0  # of all bytes up to the position
        self._block_ends: list[int] = []
        self._plain_bytes: list[int] = []
        self._block_rows: list[int] = []
        self._block_crcs: list[int] = []
        self._rows = 0
        self._unhashed: list[pa.RecordBatch] = []  # keys that are hashed only if there are enough rows for pages
        self._hashes: list[NDArray[np.uint64]] = []
        self._first_keys: list[pa.RecordBatch] = []
        self._last_key: pa.RecordBatch | None = None

    def write(self, window: pa.RecordBatch, blocks: int) -> None:
        """Write rows, at least one, as about `blocks` blocks."""
        keys = window.select(range(self._key_columns))
        self._check_keys(keys)
        self._unhashed.append(keys)
        self._rows += window.num_rows
        if self._rows >= PAGED_ROWS_MIN:
            self._hashes += [hash_rows(key_batch.columns) for key_batch in self._unhashed]
            self._unhashed.clear()
        rows = -(-window.num_rows // max(blocks, 1))
        cuts = [*range(0, window.num_rows, rows), window.num_rows]
        written, end = [], self._position
        for content in encode_blocks(window, cuts, self._layout):
            data = compress(content, self._compression)
            written.append(data)
            end += len(data)
            self._block_ends.append(end)
            self._plain_bytes.append(len(content))
            self._block_crcs.append(crc32(content))
        self._block_rows += np.diff(cuts).tolist()
        self._append(b"".join(written))
        self._first_keys.append(_copy_rows(keys, np.arange(0, window.num_rows, rows)))
        self._last_key = _copy_rows(keys, np.array([window.num_rows - 1]))

    def _check_keys(self, keys: pa.RecordBatch) -> None:
        if any(column.null_count for column in keys.columns):
            raise EncodingError(f"a key of the columns {keys.schema.names} is null: a run cannot store such a row")
        stored = StoredKeys(keys.columns)
        if self._last_key is not None and not (last := StoredKeys(self._last_key.columns)[0]) < stored[0]:
            raise EncodingError(f"keys do not rise: {last!r}, and then {stored[0]!r}")
        if (row := first_fall(keys.columns)) is not None:
            raise EncodingError(f"keys do not rise: {stored[row]!r}, and then {stored[row + 1]!r}")

    def finish(self) -> RunSummary:
        """Write pages and index, and return the summary of the run."""
        self._append(bytes(padded_length_of(self._position) - self._position))
        pages_offset, blocks_crc, rows = self._position, self._crc, self._rows
        row_bits = (max(self._block_rows, default=1) - 1).bit_length()
        if rows >= PAGED_ROWS_MIN:
            shape, page_crcs = self._write_pages(row_bits)
        else:
            shape, page_crcs = (NO_PAGES, [])
        keys = [*self._first_keys]
        if self._last_key is not None:
            keys.append(self._last_key)
        index = Index(
            schema=self._schema,
            rows=rows,
            key_columns=self._key_columns,
            compression=self._compression,
            row_bits=row_bits,
            block_ends=np.array(self._block_ends, "<u8"),
            plain_bytes=np.array(self._plain_bytes, "<u4"),
            block_rows=np.array(self._block_rows, "<u4"),
            block_crcs=np.array(self._block_crcs, "<u4"),
            blocks_crc=blocks_crc,
            shape=shape,
            pages_offset=pages_offset,
            page_crcs=np.array(page_crcs, "<u4"),
            first_keys=join_batches(keys, pa.schema([*self._schema][: self._key_columns])),
        )
        self._append(encode_index(index, self._position))
        if keys:
            first, last = StoredKeys(keys[0].columns)[0], StoredKeys(keys[-1].columns)[0]
        else:
            first, last = ((), ())
        return RunSummary(rows, (first, last) if keys else None)

    def _write_pages(self, row_bits: int) -> tuple[PageShape, list[int]]:
        hashes = np.concatenate(self._hashes)
        self._hashes.clear()
        places = places_of(self._block_rows, row_bits)
        shape = shape_for(hashes, int(places[-1]))
        crcs = []
        for pages in build_pages(shape, hashes, places):
            data = pages.astype("<u4", copy=False)
            crcs += [crc32(page) for page in data]
            self._append(data.tobytes())
        return shape, crcs

    def _append(self, data: bytes) -> None:
        self._stream.write(data)
        self._position += len(data)
        self._crc = crc32(data, self._crc)


def _copy_rows(rows: pa.RecordBatch, numbers: NDArray[np.int64]) -> pa.RecordBatch:
    """Return a copy of rows: a slice would keep all rows in memory."""
    return rows.take(from_numpy(numbers, pa.int64()))
