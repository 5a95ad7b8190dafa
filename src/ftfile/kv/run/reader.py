"""Reading a run: single keys, many keys at once, ranges of keys, and all of it to verify it."""

from __future__ import annotations

import bisect
import mmap
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from ftfile.core.errors import CorruptData
from ftfile.kv.hashing import hash_rows
from ftfile.kv.key_columns import bools_of, first_fall, key_reader
from ftfile.kv.run.blocks import MAPPED_BYTES, Block, gathered, joined
from ftfile.kv.run.directory import (
    END_OF_STREAM,
    EXPANSION_MAX,
    SMALL_PLAIN_BYTES,
    bytes_behind_pages,
    decode_directory,
    padded,
    require_crc,
)
from ftfile.kv.run.pages import FIRST_SLOT_SHIFT, PAGE_SHIFT, PageTable, Probes, Shelf, build_pages, one_page, places_of
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_numpy
from ftfile.rows.messages import decompressed_bytes, validated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.kv.run.pages import Cache

    Key = tuple[Any, ...]
    Bytes = bytes | bytearray | memoryview
    Parallel = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


END_BYTES = 256 << 10  # of the first read: directory and end of most runs, all of a small one
SCAN_BYTES = 2 << 20  # of one read of a scan
_HASHED_BLOCKS = 8  # at once: rows of a small file may take far more memory than the file
_ARROW_ALIGNMENT = 8  # of its buffers, which a run has within its file

_Value = TypeVar("_Value")


def _in_turn(call: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    return [call(item) for item in items]


class RunReader:
    """A run on storage. Several threads may use it.

    Every byte that it uses was verified; each method raises `CorruptData` for others, and the error of `read_range`
    where that fails. Keys are tuples of stored values, hashes those of `hash_rows` over the key columns.

    Attributes:
        schema: of the rows.
        rows: their number.
        first_key: None without rows.
        last_key: likewise.
    """

    def __init__(
        self,
        read_range: Callable[[int, int], Bytes],
        length_bytes: int,
        path: str,
        cache: Cache,
        parallel: Parallel = _in_turn,
    ) -> None:
        """Read directory and schema of a run, of which `read_range` returns bytes by offset and length.

        The cache keeps blocks and pages, and `parallel` calls a function with every item, some at once. CorruptData
        tells that there is no run of this length.
        """
        self._read_range = read_range
        self._length_bytes = length_bytes
        self._path = path
        self._cache = cache
        self._parallel = parallel
        self._whole: Shelf[memoryview] = Shelf(1)  # all bytes of a run that the first read has
        end, needed = self._read_end()
        behind_pages = memoryview(bytes(end[-needed:]))  # of its own: a view would keep all that was read
        self._directory, self.schema = decode_directory(behind_pages, length_bytes, path)
        directory = self._directory
        self._schema_message = bytes(self.schema.serialize())
        self.rows = directory.rows
        self._first_key_of = key_reader(directory.first_keys.columns)
        self.first_key = self._first_key_of(0) if directory.blocks else None
        self.last_key = self._first_key_of(directory.blocks) if directory.blocks else None
        self._blocks: Shelf[Block] = Shelf(directory.blocks)
        self._may_map = True
        self._row_bits, self._row_mask = directory.row_bits, (1 << directory.row_bits) - 1
        has_pages = len(directory.page_crcs) > 0
        self._shape = directory.shape if has_pages else one_page(self.rows, directory.blocks << self._row_bits)
        self._pages: Shelf[memoryview] = Shelf(self._shape.pages)
        self._table: Shelf[PageTable] = Shelf(1)
        self._keeps_table = True
        if len(end) == length_bytes:
            cache.put(self._whole, 0, end, length_bytes)

    def get(self, key: Key, hashed: int) -> tuple[Any, ...] | None:
        """Return the columns behind the key of the row with this key, as values of Python; None if there is none."""
        return self.getter()(key, hashed)

    def getter(self) -> Callable[[Key, int], tuple[Any, ...] | None]:
        """Return `get` as a function for many calls, which need not look attributes up."""
        shape, row_bits, row_mask = self._shape, self._row_bits, self._row_mask
        page_count, slot_mask, place_bits = shape.pages, shape.slots - 1, shape.place_bits
        fingerprint_mask, place_end = shape.fingerprint_mask, shape.place_end
        pages, pages_used, load_page = self._pages.values, self._pages.used, self._load_page
        blocks, blocks_used, load_block = self._blocks.values, self._blocks.used, self._load_block

        def get(key: Key, hashed: int) -> tuple[Any, ...] | None:
            high = hashed >> PAGE_SHIFT
            page = high * page_count >> PAGE_SHIFT
            slots = pages[page] or load_page(page)
            pages_used[page] = 1
            slot = hashed >> FIRST_SLOT_SHIFT & slot_mask
            before = ((high & fingerprint_mask) << place_bits) + 1
            while entry := slots[slot]:
                place = entry - before
                if 0 <= place < place_end:
                    number = place >> row_bits
                    block = blocks[number] or load_block(number)
                    blocks_used[number] = 1
                    if (row := block.find(place & row_mask, key)) is not None:
                        return row
                slot = slot + 1 & slot_mask
            return None

        return get

    def multi_get(self, keys: pa.RecordBatch, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Return the numbers of the keys that the run has, and their rows, in one order; keys may be in any."""
        probes, remaining = self._probes(hashes), np.arange(len(hashes))
        numbers, batches = [remaining[:0]], []
        while remaining.size:
            places = probes.next_places(remaining)
            order = np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]
            remaining = remaining[order]
            rows = self._rows_at(places[order])
            same = _equal(rows, keys.take(from_numpy(remaining, pa.int64())))
            numbers.append(remaining[same])
            batches.append(rows if same.all() else rows.take(from_numpy(np.flatnonzero(same), pa.int64())))
            remaining = remaining[~same]  # another key has the fingerprint
        return np.concatenate(numbers), joined(batches, self.schema)

    def scan(
        self,
        start: Key | None = None,
        end: Key | None = None,
        columns: Sequence[str] | None = None,
        *,
        read_bytes: int = SCAN_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows from one key on and before another, sorted, in blocks; either may be a prefix of a key.

        None stands for the first row, all rows behind, all columns. It reads `read_bytes` or a block at a time.
        """
        blocks = range(self._directory.blocks)
        first = bisect.bisect_right(blocks, start, key=self._first_key_of) - 1 if start is not None else 0
        behind = bisect.bisect_left(blocks, end, key=self._first_key_of) if end is not None else len(blocks)
        names = self.schema.names
        key_names = names[: self._directory.key_columns] if (start, end) != (None, None) else []
        fields = None if columns is None else sorted({names.index(name) for name in (*key_names, *columns)})
        for batch in self._read_blocks(range(max(first, 0), behind), fields, read_bytes):
            low, high = 0, batch.num_rows
            if key_names:
                key = key_reader([batch.column(name) for name in key_names])
                low = bisect.bisect_left(range(high), start, key=key) if start is not None else 0
                high = bisect.bisect_left(range(high), end, key=key) if end is not None else high
            if low < high:
                yield (batch if columns is None else batch.select(columns)).slice(low, high - low)

    def block_starts(self) -> list[tuple[Key, int]]:
        """Return the first key of each block, and its bytes."""
        ends = self._directory.block_ends.tolist()
        starts = [self._directory.header_bytes, *ends[:-1]]
        bounds = zip(starts, ends, strict=True)
        return [(self._first_key_of(block), end - start) for block, (start, end) in enumerate(bounds)]

    def verify(self) -> None:
        """Read all bytes; raise `CorruptData` unless they are those written, keys rise, and pages find every row."""
        directory = self._directory
        header = self._read(0, directory.header_bytes)
        require_crc(header, directory.header_crc, "the header of the Arrow file", self._path)
        behind_blocks = directory.block_range(directory.blocks - 1)[1] if directory.blocks else len(header)
        gap = self._read(behind_blocks, directory.pages_offset)
        if gap != END_OF_STREAM.ljust(padded(behind_blocks + len(END_OF_STREAM)) - behind_blocks, b"\0"):
            raise CorruptData(self._path, "an end of stream behind the blocks", f"{bytes(gap)!r}")
        last: Key | None = None
        for number, batch in enumerate(self._read_blocks(range(directory.blocks))):
            keys = batch.columns[: directory.key_columns]
            key = key_reader(keys)
            rises = first_fall(keys) is None and (last is None or last < key(0))
            if not rises or key(0) != self._first_key_of(number):
                raise self._corrupt(number, "keys that rise from the first one in the directory", f"{key(0)!r}")
            last = key(batch.num_rows - 1)
            self._require_found(number, hash_rows(keys), (number << self._row_bits) + np.arange(batch.num_rows))

    def release(self) -> None:
        """Take everything of this run out of the cache; the reader can still be used."""
        self._cache.drop(self._pages, self._table, self._blocks, self._whole)

    def _require_found(self, block: int, hashes: NDArray[np.uint64], expected: NDArray[np.int64]) -> None:
        probes, remaining = self._probes(hashes), np.arange(len(hashes))
        while remaining.size:
            places = probes.next_places(remaining)
            if (places < 0).any():
                raise self._corrupt(block, "pages that find each row", "a row that they do not find")
            remaining = remaining[places != expected[remaining]]

    def _read_end(self) -> tuple[memoryview, int]:
        """Return the last bytes of the run, and how many of them its directory begins at, from the end."""
        needed = END_BYTES
        while True:
            size = min(needed, self._length_bytes)
            end = self._read(self._length_bytes - size, self._length_bytes)
            needed = bytes_behind_pages(end, self._length_bytes, self._path)
            if needed <= size:
                return end, needed

    def _read(self, start: int, end: int) -> memoryview:
        if (whole := self._whole.values[0]) is not None:
            return whole[start:end]
        data = memoryview(self._read_range(start, end - start)).cast("B")
        if len(data) != end - start:
            raise CorruptData(self._path, f"{end - start} bytes at {start}", f"{len(data)} bytes")
        return data

    def _corrupt(self, block: int, expected: str, actual: str) -> CorruptData:
        return CorruptData(self._path, f"in block {block} {expected}", actual)

    def _load_page(self, page: int) -> memoryview:
        directory = self._directory
        if not len(directory.page_crcs):
            return self._build_page()
        data = self._read(*directory.page_range(page))
        require_crc(data, int(directory.page_crcs[page]), f"page {page}", self._path)
        if not self._shape.has_places_of(np.frombuffer(data, "<u4"), directory.block_rows, self._row_bits):
            raise CorruptData(self._path, f"in page {page} places of rows, and an empty slot", "others")
        return self._cache.put(self._pages, page, data.cast("I"), MAPPED_BYTES if _is_mapped(data) else len(data))

    def _build_page(self) -> memoryview:
        """Return a page for all rows of a run that has none."""
        directory = self._directory
        hashes = []
        for first in range(0, directory.blocks, _HASHED_BLOCKS):
            some = range(first, min(first + _HASHED_BLOCKS, directory.blocks))
            blocks = _cached(self._blocks, some, self._load_block, self._parallel)
            hashes += [hash_rows(block.batch.columns[: directory.key_columns]) for block in blocks.values()]
        places = places_of(directory.block_rows, self._row_bits)
        (slots,) = build_pages(self._shape, np.concatenate([np.empty(0, np.uint64), *hashes]), places)
        return self._cache.put(self._pages, 0, memoryview(slots[0]), slots.nbytes)

    def _load_block(self, number: int) -> Block:
        window = self._check_block(number, self._read(*self._directory.block_range(number)))
        block = self._mapped_block(window, number) if self._may_map else None
        if block is None:
            (batch,) = self._decoded(window, [number])
            block = Block(batch, self._directory.key_columns)
        return self._cache.put(self._blocks, number, block, block.size_bytes)

    def _mapped_block(self, window: memoryview, number: int) -> Block | None:
        """Return a block whose rows stay where they are, in a mapped file; None where blocks have to be decoded."""
        message = pa.py_buffer(window)
        if _is_mapped(window) and message.address % _ARROW_ALIGNMENT == 0:
            batch = self._checked(lambda: pa.ipc.read_record_batch(message, self.schema), number)
            places = [buffer.address for column in batch.columns for buffer in column.buffers() if buffer is not None]
            if all(message.address <= place <= message.address + message.size for place in places):
                return Block(batch, self._directory.key_columns, is_mapped=True)
        self._may_map = False
        return None

    def _decoded(
        self, window: memoryview, numbers: Sequence[int], fields: list[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
        stream = pa.ipc.open_stream(b"".join((self._schema_message, window)), options=options)
        for number in numbers:
            yield self._checked(stream.read_next_batch, number)

    def _checked(self, decode: Callable[[], pa.RecordBatch], number: int) -> pa.RecordBatch:
        """Return the rows of a block; CorruptData if they are not what ftfile writes."""
        try:
            batch = validated(decode())
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise self._corrupt(number, "rows as Arrow has them", f"{error!r}") from error
        if batch.num_rows != (rows := int(self._directory.block_rows[number])):
            raise self._corrupt(number, f"{rows} rows", f"{batch.num_rows}")
        return batch

    def _read_blocks(
        self, numbers: range, fields: list[int] | None = None, read_bytes: int = SCAN_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of blocks that follow each other, a few of which are read at a time.

        With numbers of columns, these alone are decoded.
        """
        ends = self._directory.block_ends
        while numbers:
            start, end = self._directory.block_range(numbers[0])
            count = max(int(np.searchsorted(ends, np.uint64(start + read_bytes), side="right")) - numbers[0], 1)
            some, numbers = numbers[:count], numbers[count:]
            window = self._read(start, self._directory.block_range(some[-1])[1])
            for number in some:
                first, end = self._directory.block_range(number)
                self._check_block(number, window[first - start : end - start])
            yield from self._decoded(window, some, fields)

    def _check_block(self, number: int, data: memoryview) -> memoryview:
        """Return the bytes of a block; CorruptData for others, or if to decode them takes memory out of proportion."""
        require_crc(data, int(self._directory.block_crcs[number]), f"block {number}", self._path)
        try:
            plain_bytes = decompressed_bytes(data)
        except pa.ArrowInvalid as error:
            raise self._corrupt(number, "rows as Arrow has them", f"{error!r}") from error
        if plain_bytes > (plain_max := max(SMALL_PLAIN_BYTES, EXPANSION_MAX * len(data))):
            raise self._corrupt(number, f"at most {plain_max} bytes, decompressed", f"{plain_bytes}")
        return data

    def _probes(self, hashes: NDArray[np.uint64]) -> Probes:
        pages = np.unique(self._shape.pages_of(hashes))
        table = self._table.values[0] or PageTable(self._shape)
        if self._keeps_table:
            table = self._cache.put(self._table, 0, table, 0)
        self._table.used[0] = 1
        if missing := table.missing(pages):
            table.fill(_cached(self._pages, missing, self._load_page, self._parallel))
            if table.size_bytes <= self._cache.capacity_bytes // 4:
                self._cache.grow(self._table, 0, table, table.size_bytes)
            elif self._keeps_table:  # it would take the place of blocks; its pages are cached one by one
                self._keeps_table = False
                self._cache.drop(self._table)
        return Probes(self._shape, hashes, table)

    def _rows_at(self, places: NDArray[np.int64]) -> pa.RecordBatch:
        """Return rows by their places, which are sorted."""
        if not len(places):
            return joined([], self.schema)
        numbers = places >> self._row_bits
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        block_numbers = numbers[[end - 1 for end in ends]].tolist()
        blocks = _cached(self._blocks, block_numbers, self._load_block, self._parallel)
        return gathered([*blocks.values()], ends, places & self._row_mask, self.schema)


def _cached(
    shelf: Shelf[_Value], numbers: Sequence[int], load: Callable[[int], _Value], parallel: Parallel
) -> dict[int, _Value]:
    """Return values of a shelf by their numbers, once those that are missing are loaded."""
    held = shelf.values
    values = {number: held[number] for number in numbers}
    if missing := [number for number, value in values.items() if value is None]:
        values.update(zip(missing, parallel(load, missing), strict=True))
    cached_values: dict[int, Any] = values
    for number in cached_values:
        shelf.used[number] = 1
    return cached_values


def _is_mapped(data: memoryview) -> bool:
    """Return True if these bytes are of a file that is mapped into memory."""
    return isinstance(data.obj, mmap.mmap)


def _equal(rows: pa.RecordBatch, keys: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return where the first columns of rows are equal to the columns of keys."""
    same = np.ones(rows.num_rows, np.bool_)
    for column, key_column in zip(rows.columns, keys.columns, strict=False):
        same &= bools_of(pc.equal(column, key_column))
    return same
