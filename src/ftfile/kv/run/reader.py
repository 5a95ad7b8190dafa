"""The reader of a run, for single keys, many keys, key ranges, and verification."""

from __future__ import annotations

import bisect
import mmap
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from ftfile.core.checksum import crc32
from ftfile.core.errors import CorruptData
from ftfile.kv.hashing import hash_rows
from ftfile.kv.key_columns import StoredKeys, bools_of, first_fall
from ftfile.kv.run.block import RowFinder, layout_of, open_block
from ftfile.kv.run.block_batch import BlockBatch, decompress, decompress_all, join_batches
from ftfile.kv.run.index import decode_index, index_bytes_of, require_crc
from ftfile.kv.run.pages import FIRST_SLOT_SHIFT, PAGE_SHIFT, PageTable, Probes, Shelf, build_pages, one_page, places_of
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.kv.run.block import Block
    from ftfile.kv.run.pages import Cache

    Key = tuple[Any, ...]
    Bytes = bytes | bytearray | memoryview
    Parallel = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


END_BYTES = 256 << 10  # of the first read: the index of most runs, or a whole small run
SCAN_BYTES = 2 << 20  # of one read of a scan
_WINDOW_BYTES = 1 << 20  # decompressed at a time by a scan, if it reads at least this much
# Memory of the objects of a block or a page in a mapped file, without bounds; and memory of each bound.
MAPPED_BYTES, _BOUND_BYTES = 512, 36

_Value = TypeVar("_Value")


class RunReader:
    """A run on storage. Thread-safe.

    All bytes are verified before use; each method raises `CorruptData` for damaged bytes, and the errors of
    `read_range`. Keys are tuples of stored values; hashes are results of `hash_rows` over the key columns.

    Attributes:
        schema: of the rows.
        rows: number of rows.
        first_key: None without rows.
        last_key: None without rows.
    """

    def __init__(
        self,
        read_range: Callable[[int, int], Bytes],
        length_bytes: int,
        path: str,
        cache: Cache,
        parallel: Parallel = lambda call, items: [*map(call, items)],
    ) -> None:
        """Read the index of a run; `read_range` returns bytes of the run by offset and length.

        The cache stores blocks and pages. `parallel` calls a function with every item, in parallel if possible.
        CorruptData means that this is not a run of this length.
        """
        self._read_range = read_range
        self._length_bytes = length_bytes
        self._path = path
        self._cache = cache
        self._parallel = parallel
        self._whole: Shelf[memoryview] = Shelf(1)  # the whole run, if the first read contains it
        end, needed = self._read_end()
        # Copy the bytes of the index: a view would keep all bytes of the read.
        self._index = index = decode_index(memoryview(bytes(end[-needed:])), length_bytes, path)
        self.schema, self.rows = index.schema, index.rows
        self._layout = layout_of(index.schema)
        self._find = RowFinder(self._layout, index.key_columns).find
        # Items of memoryviews are Python ints.
        self._ends: memoryview[int] = index.block_ends.data
        self._sizes: memoryview[int] = index.plain_bytes.data
        self._counts: memoryview[int] = index.block_rows.data
        self._crcs: memoryview[int] = index.block_crcs.data
        self._plain_ends = np.cumsum(index.plain_bytes, dtype=np.uint64)
        # The first keys of blocks, and the last key of the run.
        self._first_keys = StoredKeys(index.first_keys.columns)
        self.first_key = self._first_keys[0] if index.blocks else None
        self.last_key = self._first_keys[-1] if index.blocks else None
        self._blocks: Shelf[Block] = Shelf(index.blocks)
        self._row_bits, self._row_mask = index.row_bits, (1 << index.row_bits) - 1
        has_pages = len(index.page_crcs) > 0
        self._shape = index.shape if has_pages else one_page(self.rows, index.blocks << self._row_bits)
        self._pages: Shelf[memoryview] = Shelf(self._shape.pages)
        shape = self._shape
        # One tuple for `get`, which loads it with a single attribute access.
        numbers = shape.pages, shape.slots - 1, shape.place_bits, shape.fingerprint_mask, shape.place_end
        self._probe = (*numbers, self._pages.values, self._blocks.values, self._blocks.used)
        self._table: Shelf[PageTable] = Shelf(1)
        self._keeps_table = True
        if len(end) == length_bytes:
            cache.put(self._whole, 0, end, length_bytes)

    def get(self, key: Key, hashed: int) -> tuple[Any, ...] | None:
        """Return the non-key columns of the row with a key, as Python values; None if the run has no such row."""
        # A slot is 0 if it is empty, else one more than this number of 32 bits:
        #
        #   | fingerprint      | place                          |
        #   |                  | block       | row in the block |
        #                        place_bits - row_bits  row_bits
        #
        # Slots with the wanted fingerprint are less than `place_end` above `before`, the slot of the first place. Keys
        # of other fingerprints can be in the next slots, up to the first empty slot.
        page_count, slot_mask, place_bits, fingerprint_mask, place_end, pages, blocks, blocks_used = self._probe
        high = hashed >> PAGE_SHIFT
        page = high * page_count >> PAGE_SHIFT
        if (slots := pages[page]) is None:
            slots = self._load_page(page)
        else:
            self._pages.used[page] = 1
        slot = hashed >> FIRST_SLOT_SHIFT & slot_mask
        before = ((high & fingerprint_mask) << place_bits) + 1
        while entry := slots[slot]:
            place = entry - before
            if 0 <= place < place_end:
                number = place >> self._row_bits
                if (block := blocks[number]) is None:
                    block = self._load_block(number)
                else:
                    blocks_used[number] = 1
                row = place & self._row_mask
                if row >= block.rows:
                    raise self._no_row(number, row)
                if (values := self._find(block, row, key)) is not None:
                    return values
            slot = slot + 1 & slot_mask
        return None

    def multi_get(self, keys: pa.RecordBatch, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Return the indexes of the keys that the run contains, and their rows in this order; keys may be unsorted."""
        probes, remaining = self._probes(hashes), np.arange(len(hashes))
        numbers, batches = [remaining[:0]], []
        while remaining.size:
            places = probes.next_places(remaining)
            order = np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]
            remaining = remaining[order]
            rows = self._rows_at(places[order])
            same = np.ones(len(remaining), np.bool_)
            for column, key_column in zip(rows.columns, keys.take(from_numpy(remaining, pa.int64())), strict=False):
                same &= bools_of(pc.equal(column, key_column))
            numbers.append(remaining[same])
            batches.append(rows if same.all() else rows.take(from_numpy(np.flatnonzero(same), pa.int64())))
            remaining = remaining[~same]  # another key has the same fingerprint
        return np.concatenate(numbers), join_batches(batches, self.schema)

    def scan(
        self,
        start: Key | None = None,
        end: Key | None = None,
        columns: Sequence[str] | None = None,
        *,
        read_bytes: int = SCAN_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a key range (end exclusive), sorted, by block; the bounds may be prefixes of keys.

        None stands for the first row, no end, all columns. Reads `read_bytes`, or at least a block, at a time.
        """
        blocks = self._index.blocks
        first = 0
        if start is not None:
            first = bisect.bisect_right(self._first_keys, start, 0, blocks) - 1
        behind = blocks
        if end is not None:
            behind = bisect.bisect_left(self._first_keys, end, 0, blocks)
        names = self.schema.names
        if (start, end) != (None, None):
            key_names = names[: self._index.key_columns]
        else:
            key_names = []
        if columns is None:
            places = None
        else:
            places = sorted({names.index(name) for name in (*key_names, *columns)})
        for _, batch in self._windows(range(max(first, 0), behind), places, read_bytes):
            low, high = 0, batch.num_rows
            if key_names:
                keys = StoredKeys(batch.select(key_names).columns)
                low = 0
                if start is not None:
                    low = bisect.bisect_left(keys, start)
                if end is not None:
                    high = bisect.bisect_left(keys, end)
            if low < high:
                yield (batch if columns is None else batch.select(columns)).slice(low, high - low)

    def verify(self) -> None:
        """Read all bytes; raise `CorruptData` unless the bytes are intact, keys ascend, and pages find every row."""
        last: Key | None = None
        for numbers, batch in self._windows(range(self._index.blocks)):
            columns = batch.columns[: self._index.key_columns]
            keys = StoredKeys(columns)
            rows = self._index.block_rows[numbers[0] : numbers[-1] + 1]
            firsts = [0, *np.cumsum(rows)[:-1].tolist()]
            rises = first_fall(columns) is None and (last is None or last < keys[0])
            first_keys = [keys[row] for row in firsts]
            if not rises or first_keys != [self._first_keys[number] for number in numbers]:
                raise self._corrupt(numbers[0], "keys that rise from the first one in the index", f"{keys[0]!r}")
            last = keys[-1]
            self._check_pages(
                numbers[0], hash_rows(columns), (numbers[0] << self._row_bits) + places_of(rows, self._row_bits)
            )
        if last != self.last_key:
            raise CorruptData(self._path, f"the last key {self.last_key!r:.200}", f"{last!r:.200}")
        checksum = 0
        for start in range(0, self._index.pages_offset, SCAN_BYTES):
            checksum = crc32(self._read(start, min(start + SCAN_BYTES, self._index.pages_offset)), checksum)
        if checksum != self._index.blocks_crc:
            raise CorruptData(self._path, f"blocks with crc32:{self._index.blocks_crc:08x}", f"crc32:{checksum:08x}")

    def release(self) -> None:
        """Remove all data of this run from the cache; the reader can still be used."""
        self._cache.drop(self._pages, self._table, self._blocks, self._whole)

    def _check_pages(self, block: int, hashes: NDArray[np.uint64], expected: NDArray[np.int64]) -> None:
        probes, remaining = self._probes(hashes), np.arange(len(hashes))
        while remaining.size:
            places = probes.next_places(remaining)
            if (places < 0).any():
                raise self._corrupt(block, "pages that find each row", "a row that they do not find")
            remaining = remaining[places != expected[remaining]]

    def _read_end(self) -> tuple[memoryview, int]:
        """Return the last bytes of the run, and the length of its index."""
        needed = END_BYTES
        while True:
            size = min(needed, self._length_bytes)
            end = self._read(self._length_bytes - size, self._length_bytes)
            needed = index_bytes_of(end, self._length_bytes, self._path)
            if needed <= size:
                return end, needed

    def _read(self, start: int, end: int) -> memoryview:
        if (whole := self._whole.values[0]) is not None:
            return whole[start:end]
        data = memoryview(self._read_range(start, end - start))
        if len(data) != end - start:
            raise CorruptData(self._path, f"{end - start} bytes at {start}", f"{len(data)} bytes")
        return data

    def _corrupt(self, block: int, expected: str, actual: str) -> CorruptData:
        return CorruptData(self._path, f"in block {block} {expected}", actual)

    def _no_row(self, block: int, row: int) -> CorruptData:
        """Return the error for a page that refers to a missing row of a block."""
        return self._corrupt(block, f"row {row}, which a page has", f"{self._counts[block]} rows")

    def _load_page(self, page: int) -> memoryview:
        index = self._index
        if not len(index.page_crcs):  # all rows are in one page
            windows = self._windows(range(index.blocks), range(index.key_columns))
            hashes = [np.empty(0, np.uint64)]
            for _, batch in windows:
                hashes.append(hash_rows(batch.columns))
            places = places_of(index.block_rows, self._row_bits)
            (slots,) = build_pages(self._shape, np.concatenate(hashes), places)
            return self._cache.put(self._pages, 0, memoryview(slots[0]), slots.nbytes)
        data = self._read(*index.page_range(page))
        require_crc(data, int(index.page_crcs[page]), f"page {page}", self._path)
        if not self._shape.has_places_in(np.frombuffer(data, "<u4"), index.blocks, self._row_bits):
            raise CorruptData(self._path, f"in page {page} places of rows, and an empty slot", "others")
        return self._cache.put(self._pages, page, data.cast("I"), MAPPED_BYTES if _is_mapped(data) else len(data))

    def _start_of(self, block: int) -> int:
        """Return the start offset of a block."""
        if block:
            return self._ends[block - 1]
        return 0

    def _load_block(self, number: int) -> Block:
        stored = self._read(self._start_of(number), self._ends[number])
        try:
            content = decompress(stored, self._sizes[number], self._index.compression)
        except (ValueError, OSError) as error:
            raise self._corrupt(number, f"{self._sizes[number]} bytes, decompressed", f"{error}") from error
        is_mapped = content is stored and _is_mapped(stored)
        if content is stored and not is_mapped:
            content = bytes(stored)  # a view would keep all bytes of the read
        require_crc(content, self._crcs[number], f"block {number}", self._path)
        block = open_block(content, self._counts[number], layout=self._layout, path=self._path, number=number)
        size_bytes = MAPPED_BYTES + _BOUND_BYTES * len(block.bounds) + (0 if is_mapped else len(content))
        return self._cache.put(self._blocks, number, block, size_bytes)

    def _windows(
        self, numbers: range, places: Sequence[int] | None = None, read_bytes: int = SCAN_BYTES
    ) -> Iterator[tuple[range, pa.RecordBatch]]:
        """Yield consecutive blocks as ranges of block numbers, with their rows; `places` selects columns by number.

        Reads `read_bytes`, or at least a block, at a time, and decompresses no more at a time.
        """
        while numbers:
            some = _first_of(numbers, self._index.block_ends, read_bytes)
            numbers = numbers[len(some) :]
            start = self._start_of(some[0])
            data = self._read(start, self._ends[some[-1]])
            while some:
                window = _first_of(some, self._plain_ends, min(read_bytes, _WINDOW_BYTES))
                some = some[len(window) :]
                yield window, self._decode_blocks(window, data, start, places)

    def _decode_blocks(
        self, numbers: range, data: memoryview, start: int, places: Sequence[int] | None
    ) -> pa.RecordBatch:
        """Return the rows of blocks, given bytes of the run from offset `start`."""
        stored = []
        for number in numbers:
            stored.append(data[self._start_of(number) - start : self._ends[number] - start])
        sizes = self._sizes[numbers[0] : numbers[-1] + 1].tolist()
        try:
            contents = decompress_all(stored, sizes, self._index.compression)
        except (ValueError, OSError) as error:
            expected = f"{sum(sizes)} bytes in the blocks up to {numbers[-1]}, decompressed"
            raise self._corrupt(numbers[0], expected, f"{error}") from error
        for number, content in zip(numbers, contents, strict=True):
            require_crc(content, self._crcs[number], f"block {number}", self._path)
        rows = self._index.block_rows[numbers[0] : numbers[-1] + 1]
        return BlockBatch(contents, rows, layout=self._layout, path=self._path, numbers=numbers).batch(places)

    def _probes(self, hashes: NDArray[np.uint64]) -> Probes:
        pages = np.unique(self._shape.pages_of(hashes))
        table = self._table.values[0] or PageTable(self._shape)
        if self._keeps_table:
            table = self._cache.put(self._table, 0, table, 0)
        self._table.used[0] = 1
        if missing := table.list_missing(pages):
            table.fill(_read_cached(self._pages, missing, self._load_page, self._parallel))
            if table.size_bytes <= self._cache.capacity_bytes // 4:
                self._cache.grow(self._table, 0, table, table.size_bytes)
            elif self._keeps_table:  # it would displace blocks; its pages are cached separately
                self._keeps_table = False
                self._cache.drop(self._table)
        return Probes(self._shape, hashes, table)

    def _rows_at(self, places: NDArray[np.int64]) -> pa.RecordBatch:
        """Return rows by their places, which are sorted."""
        if not len(places):
            return join_batches([], self.schema)
        numbers, rows = places >> self._row_bits, places & self._row_mask
        beyond = rows >= self._index.block_rows[numbers]
        if beyond.any():
            first = int(np.argmax(beyond))
            raise self._no_row(int(numbers[first]), int(rows[first]))
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        block_numbers = numbers[[end - 1 for end in ends]].tolist()
        blocks = _read_cached(self._blocks, block_numbers, self._load_block, self._parallel)
        block_batch = BlockBatch.of([*blocks.values()], self._layout, self._path, block_numbers)
        return block_batch.gather(ends, rows)


def _read_cached(
    shelf: Shelf[_Value], numbers: Sequence[int], load: Callable[[int], _Value], parallel: Parallel
) -> dict[int, _Value]:
    """Return values of a shelf by number, and load the missing ones."""
    held = shelf.values
    values: dict[int, Any] = {number: held[number] for number in numbers}
    missing = [number for number, value in values.items() if value is None]
    for number in numbers:
        shelf.used[number] = 1
    if missing:
        values.update(zip(missing, parallel(load, missing), strict=True))
    return values


def _first_of(blocks: range, ends: NDArray[np.uint64], size_bytes: int) -> range:
    """Return the first blocks with at most `size_bytes` in total, at least one; `ends` are the ends of all blocks."""
    if blocks[0]:
        before = ends[blocks[0] - 1]
    else:
        before = np.uint64(0)
    count = int(np.searchsorted(ends, before + np.uint64(size_bytes), side="right")) - blocks[0]
    return blocks[: max(count, 1)]


def _is_mapped(data: memoryview) -> bool:
    """Return True if these bytes are from a memory-mapped file."""
    return isinstance(data.obj, mmap.mmap)
