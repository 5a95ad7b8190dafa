"""Writing a run: blocks as they come, then pages and directory, then the end of the Arrow file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.checksum import crc32
from ftfile.core.errors import EncodingError
from ftfile.kv.hashing import hash_rows
from ftfile.kv.key_columns import first_fall, key_reader
from ftfile.kv.run.blocks import joined
from ftfile.kv.run.directory import (
    END_OF_STREAM,
    EXPANSION_MAX,
    SMALL_PLAIN_BYTES,
    Directory,
    encode_directory,
    padded,
)
from ftfile.kv.run.pages import NO_PAGES, PageShape, build_pages, places_of, shape_for
from ftfile.rows.buffers import from_numpy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from _typeshed import SupportsWrite
    from numpy.typing import NDArray

    from ftfile.kv.key_columns import Key


BLOCK_BYTES = 128 << 10  # before compression
PAGED_ROWS_MIN = 4096  # runs of fewer rows are read whole: their pages would be as long as they are
COMPRESSIONS: dict[str, tuple[str, int | None] | None] = {"none": None, "lz4": ("lz4", None), "zstd": ("zstd", 1)}
_HEAD = struct.Struct("<8s4sI")  # of an Arrow file: magic bytes, mark and length of the schema
_WINDOW_ROWS_MAX = 16_384  # collected, and cut into blocks, at a time
_WINDOW_BLOCKS = 8


class RunSummary(NamedTuple):
    """The rows of a run that was written."""

    rows: int  # their number
    keys: tuple[Key, Key] | None  # of the first and of the last one; None without rows


def write_run(
    stream: SupportsWrite[bytes],
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    keys: Sequence[str],
    *,
    compression: str = "lz4",
    block_bytes: int = BLOCK_BYTES,
) -> RunSummary:
    """Write rows as a run, which begins where `stream` is.

    Memory is that of some blocks, and of 48 bytes for each row. Batches of any size have the rows, sorted by their
    keys, the first columns of the schema, each key once; blocks have about `block_bytes` before compression.

    Raises:
        EncodingError: keys do not rise, a key is null, or there are too many rows.
    """
    writer = _RunWriter(stream, schema, len(keys), compression)
    for window in _windows(batches, schema, block_bytes):
        writer.write(window, -(-window.nbytes // block_bytes))
    return writer.finish()


def _windows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, block_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that make several blocks, or are the last ones, or have the most rows."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _WINDOW_ROWS_MAX):
            piece = batch.slice(start, _WINDOW_ROWS_MAX)
            held.append(piece)
            rows += piece.num_rows
            size_bytes += piece.nbytes
            if size_bytes >= _WINDOW_BLOCKS * block_bytes or rows >= _WINDOW_ROWS_MAX:
                yield joined(held, schema)
                held, rows, size_bytes = [], 0, 0
    if held:
        yield joined(held, schema)


class _Pieces:
    """The file for pyarrow's writer: keeps its bytes until they are taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[Any] = []
        self._position = 0

    def write(self, data: Any) -> int:  # noqa: ANN401 - bytes, or a buffer of pyarrow
        self._pieces.append(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Keep the bytes."""

    close = flush

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class _RunWriter:
    def __init__(self, stream: SupportsWrite[bytes], schema: pa.Schema, key_columns: int, compression: str) -> None:
        self._stream = stream
        self._key_columns = key_columns
        self._key_schema = pa.schema([schema.field(number) for number in range(key_columns)])
        self._pieces = _Pieces()
        codec = pa.Codec(*named) if (named := COMPRESSIONS[compression]) else None
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        self._is_padded = compression == "zstd"  # LZ4 cannot exceed what readers admit
        self._arrow = pa.ipc.new_file(pa.PythonFile(self._pieces, mode="w"), schema, options=options)
        self._position = 0
        self._header = b""
        self._block_ends: list[int] = []
        self._block_rows: list[int] = []
        self._block_crcs: list[int] = []
        self._rows = 0
        self._unhashed: list[pa.RecordBatch] = []  # keys of fewer rows than have pages: they may need no hashes
        self._hashes: list[NDArray[np.uint64]] = []
        self._first_keys: list[pa.RecordBatch] = []
        self._last_key: pa.RecordBatch | None = None

    def write(self, window: pa.RecordBatch, blocks: int) -> None:
        """Write some rows, at least one, as about that many blocks."""
        keys = window.select(range(self._key_columns))
        self._check_keys(keys)
        self._unhashed.append(keys)
        self._rows += window.num_rows
        if self._rows >= PAGED_ROWS_MIN:
            self._hashes += [hash_rows(key_batch.columns) for key_batch in self._unhashed]
            self._unhashed.clear()
        rows = -(-window.num_rows // max(blocks, 1))
        written = []
        for start in range(0, window.num_rows, rows):
            block = window.slice(start, rows)
            self._arrow.write_batch(block, _padding(block) if self._is_padded else None)
            data = self._taken()
            written.append(data)
            self._block_ends.append((self._block_ends[-1] if self._block_ends else self._position) + len(data))
            self._block_rows.append(block.num_rows)
            self._block_crcs.append(crc32(data))
        self._append(b"".join(written))
        self._first_keys.append(_copied(keys, np.arange(0, window.num_rows, rows)))
        self._last_key = _copied(keys, np.array([window.num_rows - 1]))

    def _check_keys(self, keys: pa.RecordBatch) -> None:
        if any(column.null_count for column in keys.columns):
            raise EncodingError(f"a key of the columns {keys.schema.names} is null: no run has such a row")
        key = key_reader(keys.columns)
        if self._last_key is not None and not (last := key_reader(self._last_key.columns)(0)) < key(0):
            raise EncodingError(f"keys do not rise: {last!r}, and then {key(0)!r}")
        if (row := first_fall(keys.columns)) is not None:
            raise EncodingError(f"keys do not rise: {key(row)!r}, and then {key(row + 1)!r}")

    def finish(self) -> RunSummary:
        """Write pages, directory and end, and return the run."""
        self._arrow.close()
        end = self._taken()
        self._append(END_OF_STREAM)
        self._append(bytes(padded(self._position) - self._position))
        pages_offset, rows = self._position, self._rows
        row_bits = (max(self._block_rows, default=1) - 1).bit_length()
        shape, page_crcs = self._write_pages(row_bits) if rows >= PAGED_ROWS_MIN else (NO_PAGES, [])
        keys = [*self._first_keys, *([] if self._last_key is None else [self._last_key])]
        directory = Directory(
            rows=rows,
            key_columns=self._key_columns,
            header_bytes=len(self._header),
            header_crc=crc32(self._header),
            row_bits=row_bits,
            block_ends=np.array(self._block_ends, "<u8"),
            block_rows=np.array(self._block_rows, "<u4"),
            block_crcs=np.array(self._block_crcs, "<u4"),
            shape=shape,
            pages_offset=pages_offset,
            page_crcs=np.array(page_crcs, "<u4"),
            first_keys=joined(keys, self._key_schema),
            end_crc=crc32(end),
        )
        self._append(encode_directory(directory, self._position, len(end)))
        self._append(end)
        first, last = (key_reader(batch.columns)(0) for batch in (keys[0], keys[-1])) if keys else ((), ())
        return RunSummary(rows, (first, last) if keys else None)

    def _taken(self) -> bytes:
        """Return the bytes from pyarrow; append the header, which comes with the first block or the end, by itself."""
        data = self._pieces.take()
        if self._header:
            return data
        header_bytes = _HEAD.size + _HEAD.unpack_from(data)[-1]
        self._header = data[:header_bytes]
        self._append(self._header)
        return data[header_bytes:]

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


def _padding(block: pa.RecordBatch) -> dict[str, str] | None:
    """Return metadata by which a large block is long enough for its readers, however well its rows are compressed."""
    plain_bytes = 2 * block.nbytes  # buffers have a little more than their rows
    return {"padding": " " * (plain_bytes // EXPANSION_MAX)} if plain_bytes > SMALL_PLAIN_BYTES else None


def _copied(rows: pa.RecordBatch, numbers: NDArray[np.int64]) -> pa.RecordBatch:
    """Return some rows in memory of their own: slices would keep all of it."""
    return rows.take(from_numpy(numbers, pa.int64()))
