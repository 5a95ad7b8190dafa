"""Hash pages, which map the hash of a key to the place of its row, and the cache of blocks and pages.

A slot is a number of 32 bits. An empty slot is 0. The other slots contain a fingerprint in the high bits, and the place
of a row plus one in the low bits. The upper 32 bits of a hash select its page and its fingerprint, and the next 12 bits
select its first slot. The lowest bits are not used, because they are equal for all keys of a bucket.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ftfile.core.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Slots = NDArray[np.uint32]


_Value = TypeVar("_Value")

# The cache removes the entries of dropped values when their number exceeds the number of values plus this number.
_ENTRIES_MIN = 100

PAGE_SHIFT = 32
FIRST_SLOT_SHIFT = 20
_SLOTS = 4096
_ROWS_MEAN = 2457  # mean number of rows in a page, for a load factor of 0.6
_SLOT_BITS = 32
_CHUNK_PAGES = 64  # number of pages that are built at a time


class Shelf(Generic[_Value]):
    """The cached values of one kind of one run, by number. A reader sets `used` of each value that it uses."""

    __slots__ = ("sizes_bytes", "used", "values")

    def __init__(self, count: int) -> None:
        self.values: list[_Value | None] = [None] * count  # None if the value is not cached
        # Reference bits of the clock algorithm: 1 if a value was used since it was put, or since the hand passed it.
        self.used = bytearray(count)
        self.sizes_bytes: dict[int, int] = {}  # of the cached values


class Cache:
    """A cache of values on shelves, with at most `capacity_bytes` in total. Thread-safe."""

    def __init__(self, capacity_bytes: int) -> None:
        self.size_bytes = 0  # of all cached values
        self.capacity_bytes = capacity_bytes  # maximum of `size_bytes`; see `resize`
        # Shelf and number of each value, and of some dropped values. It is a clock whose hand is at the left end.
        self._entries: deque[tuple[Shelf[Any], int]] = deque()
        self._values = 0  # number of cached values
        self._lock = threading.Lock()

    def resize(self, capacity_bytes: int) -> None:
        """Change the capacity, which may evict values."""
        with self._lock:
            self.capacity_bytes = capacity_bytes
            self._evict()

    def put(self, shelf: Shelf[_Value], number: int, value: _Value, size_bytes: int) -> _Value:
        """Cache a value and return it. If a value with this number is already cached, return that. May evict values."""
        with self._lock:
            if (present := shelf.values[number]) is not None:
                return present
            shelf.values[number] = value
            shelf.used[number] = 0
            shelf.sizes_bytes[number] = size_bytes
            self._entries.append((shelf, number))
            self._values += 1
            self.size_bytes += size_bytes
            self._evict()
        return value

    def grow(self, shelf: Shelf[_Value], number: int, value: _Value, size_bytes: int) -> None:
        """Set the size of a value. May evict other values or this value.

        Does nothing if the value is not cached.
        """
        with self._lock:
            if shelf.values[number] is not value:
                return
            self.size_bytes += size_bytes - shelf.sizes_bytes[number]
            shelf.sizes_bytes[number] = size_bytes
            self._evict()

    def drop(self, *shelves: Shelf[Any]) -> None:
        """Drop all values of shelves, in time proportional to the number of these values."""
        with self._lock:
            for shelf in shelves:
                for number in shelf.sizes_bytes:
                    shelf.values[number] = None
                self.size_bytes -= sum(shelf.sizes_bytes.values())
                self._values -= len(shelf.sizes_bytes)
                shelf.sizes_bytes.clear()
            if len(self._entries) > _ENTRIES_MIN + 2 * self._values:
                cached: dict[tuple[Shelf[Any], int], None] = {}  # a set that keeps the order
                for shelf, number in self._entries:
                    if number in shelf.sizes_bytes:
                        cached[shelf, number] = None
                self._entries = deque(cached)

    def _evict(self) -> None:
        while self.size_bytes > self.capacity_bytes:
            entry = self._entries.popleft()
            shelf, number = entry
            if number not in shelf.sizes_bytes:
                continue
            if shelf.used[number]:
                shelf.used[number] = 0
                self._entries.append(entry)
            else:
                shelf.values[number] = None
                self._values -= 1
                self.size_bytes -= shelf.sizes_bytes.pop(number)


@dataclass(frozen=True, slots=True)
class PageShape:
    """The layout of the pages of a run."""

    pages: int  # number of pages
    slots: int  # number of slots in a page, a power of two
    place_bits: int  # number of low bits of a slot, for a place plus one; the high bits are the fingerprint

    @property
    def fingerprint_mask(self) -> int:
        """Return the mask of the fingerprint in `hash >> PAGE_SHIFT`."""
        return (1 << (_SLOT_BITS - self.place_bits)) - 1

    @property
    def place_end(self) -> int:
        """Return the exclusive end of the places that a slot can hold."""
        return (1 << self.place_bits) - 1

    def has_places_in(self, slots: Slots, blocks: int, row_bits: int) -> bool:
        """Return True if all slots of a page are valid: each is empty or has a place in a block.

        At least one slot must be empty, or searches would not end. The caller checks that the block has the row.
        """
        places = slots & np.uint32(self.place_end)  # plus one
        filled = int(np.count_nonzero(places))
        has_empty_slot = filled < len(slots)
        each_has_place = np.count_nonzero(slots) == filled
        return has_empty_slot and each_has_place and int(places.max()) <= blocks << row_bits

    def pages_of(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the page of each hash."""
        pages: Hashes = (hashes >> np.uint64(PAGE_SHIFT)) * np.uint64(self.pages) >> np.uint64(PAGE_SHIFT)
        return pages.astype(np.int64)

    def first_slots_of(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the slot in its page at which the search for each hash begins."""
        slots: Hashes = hashes >> np.uint64(FIRST_SLOT_SHIFT) & np.uint64(self.slots - 1)
        return slots.astype(np.int64)

    def fingerprints_of(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the fingerprint of each hash, shifted to its position in a slot."""
        fingerprints: Hashes = hashes >> np.uint64(PAGE_SHIFT) & np.uint64(self.fingerprint_mask)
        fingerprints <<= np.uint64(self.place_bits)
        return fingerprints.astype(np.int64)


NO_PAGES = PageShape(0, 0, 0)


def places_of(block_rows: Sequence[int] | NDArray[np.uint32], row_bits: int) -> NDArray[np.int64]:
    """Return the place of each row: the number of its block, then `row_bits` with its number within the block."""
    counts = np.array(block_rows, np.int64)
    starts = (np.arange(len(counts)) << row_bits) - (np.cumsum(counts) - counts)
    places: NDArray[np.int64] = np.arange(counts.sum()) + np.repeat(starts, counts)
    return places


def one_page(rows: int, place_max: int) -> PageShape:
    """Return the shape of a single page for all rows."""
    return PageShape(pages=1, slots=1 << (2 * rows).bit_length(), place_bits=(place_max + 1).bit_length())


def shape_for(hashes: Hashes, place_max: int) -> PageShape:
    """Return the shape of the pages of a run; `place_max` is the greatest place. EncodingError for too many rows."""
    bits = (place_max + 1).bit_length()
    if bits > _SLOT_BITS:
        raise EncodingError(f"{len(hashes)} rows are too many for one run")
    pages = -(-len(hashes) // _ROWS_MEAN) or 1  # rounded up
    shape = PageShape(pages, _SLOTS, bits)
    rows_max = int(np.bincount(shape.pages_of(hashes), minlength=1).max())
    while shape.slots <= rows_max:  # one slot stays empty, or a search for an absent key would not end
        shape = PageShape(pages, 2 * shape.slots, bits)
    return shape


def build_pages(shape: PageShape, hashes: Hashes, places: NDArray[np.int64]) -> Iterator[Slots]:
    """Yield the slots of several consecutive pages at a time, one array row for each page."""
    # Sort by page, first slot and content of the slot, packed into one integer. Twice the number of slots separates the
    # overflow of a page from the next page.
    spread = 2 * shape.slots
    order = shape.pages_of(hashes) * spread + shape.first_slots_of(hashes)
    order <<= _SLOT_BITS
    order |= shape.fingerprints_of(hashes)
    order += places
    order += 1
    order.sort()
    firsts = np.arange(0, shape.pages + _CHUNK_PAGES, _CHUNK_PAGES)
    bounds = np.searchsorted(order, firsts * spread << _SLOT_BITS).tolist()
    for number, first in enumerate(firsts[:-1].tolist()):
        chunk = order[bounds[number] : bounds[number + 1]]
        yield _fill_pages(chunk, first, min(_CHUNK_PAGES, shape.pages - first), shape.slots)


def _fill_pages(order: NDArray[np.int64], first: int, pages: int, slots: int) -> Slots:
    values = (order & ((1 << _SLOT_BITS) - 1)).astype(np.uint32)
    home_slots = (order >> _SLOT_BITS) - first * 2 * slots
    # Each entry takes its first slot, or the slot after the slot of the previous entry.
    numbers = np.arange(len(order))
    taken = np.maximum.accumulate(home_slots - numbers) + numbers
    page, slot = np.divmod(taken, 2 * slots)
    table = np.zeros((pages, slots), np.uint32)
    fits = slot < slots
    table[page[fits], slot[fits]] = values[fits]
    # Entries beyond the end wrap around to the empty slots of their page.
    overflow, overflow_page = values[~fits], page[~fits]
    for number in np.unique(overflow_page).tolist():
        wrapped = overflow[overflow_page == number]
        table[number, np.flatnonzero(table[number] == 0)[: len(wrapped)]] = wrapped
    return table


class PageTable:
    """The slots of all pages of a run in one array, one array row for each page; pages are filled on demand.

    Several threads may fill it. The operating system allocates memory only for filled pages.
    """

    def __init__(self, shape: PageShape) -> None:
        self.slots: Slots = np.zeros((shape.pages, shape.slots), np.uint32)
        self._is_filled = np.zeros(shape.pages, np.bool_)

    @property
    def size_bytes(self) -> int:
        """Return the memory of the filled pages."""
        return int(self._is_filled.sum() * self.slots.shape[1] * self.slots.itemsize)

    def list_missing(self, pages: NDArray[np.int64]) -> list[int]:
        """Return the pages that are not filled."""
        numbers: list[int] = pages[~self._is_filled[pages]].tolist()
        return numbers

    def fill(self, pages: Mapping[int, memoryview]) -> None:
        """Store the slots of pages."""
        for page, slots in pages.items():
            self.slots[page] = slots
            self._is_filled[page] = True


class Probes:
    """Searches for many hashes in pages at once; the number of a search is the index of its hash."""

    def __init__(self, shape: PageShape, hashes: Hashes, table: PageTable) -> None:
        """Start before the first slot of each hash; `table` contains the pages of all hashes."""
        self._table = table.slots
        self._rows = shape.pages_of(hashes)
        self._slots = shape.first_slots_of(hashes)
        # A slot with the fingerprint of a hash contains this number plus a place.
        self._place_zero = shape.fingerprints_of(hashes) + 1
        self._slot_mask = shape.slots - 1
        self._place_end = shape.place_end

    def next_places(self, numbers: NDArray[np.intp]) -> NDArray[np.int64]:
        """Continue searches by number; return for each the next place with its fingerprint, or -1 at the end."""
        places = np.full(len(numbers), -1)
        remaining = np.arange(len(numbers))
        while remaining.size:
            searches = numbers[remaining]
            slots = self._slots[searches]
            entries = self._table[self._rows[searches], slots].astype(np.int64)
            self._slots[searches] = slots + 1 & self._slot_mask
            candidates = entries - self._place_zero[searches]
            is_hit = (candidates >= 0) & (candidates < self._place_end)
            places[remaining[is_hit]] = candidates[is_hit]
            remaining = remaining[(entries != 0) & ~is_hit]
        return places
