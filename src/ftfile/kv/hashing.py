"""The hash of rows or keys, equal to Spark's function `xxhash64`, and the bucket that it selects."""

from __future__ import annotations

import re
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from xxhash import xxh64_intdigest

from ftfile.core.errors import CorruptData
from ftfile.kv.key_columns import is_byte_key, is_hashed_as_int, key_integers
from ftfile.log.format import layout
from ftfile.rows.buffers import byte_ranges, from_numpy, is_valid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.kv.definition import StoreDefinition

    Words = NDArray[np.uint64]
    Rows = NDArray[np.intp] | slice


_WRAP = (1 << 64) - 1
_1, _2, _3, _4, _5 = (
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
)
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = map(np.uint64, (_1, _2, _3, _4, _5))
_INT_START, _LONG_START = np.uint64(_5 + 4), np.uint64(_5 + 8)
_LANE_STARTS = [np.uint64(start & _WRAP) for start in (_1 + _2, _2, 0, -_1)]
_LANE_TURNS = (1, 7, 12, 18)
_STRIPE_BYTES = 32
_ALL = slice(None)
# Longer values are hashed separately, because the stripes of one value must be hashed sequentially.
_LONG_BYTES = 2048
_CHUNK_ROWS = 8_192  # so that temporaries stay in the CPU cache
_PREFIX = "b="
_NAME = re.compile(rf"{_PREFIX}[0-9]{{5}}")


def _hash_bytes(offsets: NDArray[np.int64], data: NDArray[np.uint8], seeds: Words) -> Words:
    """Return the hashes of the ranges of `data` between consecutive offsets."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    long = np.flatnonzero(lengths >= _LONG_BYTES)
    lengths[long] = 0
    hashes = _hash_in_chunks(partial(_hash_ranges, data), seeds, starts, lengths)
    for row in long.tolist():
        hashes[row] = xxh64_intdigest(data[starts[row] : offsets[row + 1]].data, int(seeds[row]))
    return hashes


def _hash_in_chunks(hash_chunk: Callable[..., Words], seeds: Words, *values: NDArray[Any]) -> Words:
    hashes = np.empty(len(seeds), np.uint64)
    for first in range(0, len(seeds), _CHUNK_ROWS):
        rows = slice(first, first + _CHUNK_ROWS)
        hashes[rows] = hash_chunk(seeds[rows], *(array[rows] for array in values))
    return hashes


def _hash_ints(seeds: Words, words: Words) -> Words:
    return _finish_hash(_with_half_word(seeds + _INT_START, words & np.uint64(0xFFFF_FFFF)))


def _hash_longs(seeds: Words, words: Words) -> Words:
    return _finish_hash(_with_word(seeds + _LONG_START, words))


def _hash_ranges(data: NDArray[np.uint8], seeds: Words, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Words:
    words = _Windows(starts, lengths, data)
    state = seeds + _PRIME_5
    if (long := words.rows_with(lengths >= _STRIPE_BYTES)) is not None:
        state[long] = _hash_stripes(starts[long], lengths[long] // _STRIPE_BYTES, data, seeds[long])
    state += lengths.view(np.uint64)
    rest = lengths % _STRIPE_BYTES
    for end in (8, 16, 24):
        if (rows := words.rows_with(rest >= end)) is not None:
            state[rows] = _with_word(state[rows], words.next("<u8", rows))
    if (rows := words.rows_with(lengths & 4 != 0)) is not None:
        state[rows] = _with_half_word(state[rows], words.next("<u4", rows))
    for end in (1, 2, 3):
        if (rows := words.rows_with(lengths & 3 >= end)) is not None:
            turned = _rotate_words(state[rows] ^ words.next("<u1", rows) * _PRIME_5, 11)
            state[rows] = turned * _PRIME_1
    return _finish_hash(state)


class _Windows:
    """Reads consecutive values from byte ranges, after their whole stripes."""

    def __init__(self, starts: NDArray[np.int64], lengths: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        self._data = data
        self._places = starts + lengths // _STRIPE_BYTES * _STRIPE_BYTES
        # Adjacent ranges of equal length are read as a slice, without an index array.
        length = int(lengths[0])
        alike = length > 0 and bool((lengths == length).all())
        if alike and int(starts[-1]) - int(starts[0]) == length * (len(starts) - 1):
            self._step = length
        else:
            self._step = 0

    @staticmethod
    def rows_with(mask: NDArray[np.bool_]) -> Rows | None:
        if mask.all():
            return _ALL
        rows = np.flatnonzero(mask)
        if rows.size:
            return rows
        return None

    def next(self, kind: str, rows: Rows) -> Words:
        dtype = np.dtype(kind)
        first, last = int(self._places[0]), int(self._places[-1])
        words = _window(self._data, dtype)[slice(first, last + 1, self._step) if self._step else self._places[rows]]
        self._places[rows] += dtype.itemsize
        return words.astype(np.uint64)


def _window(data: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array with a value for every byte offset; the values overlap."""
    window: NDArray[Any] = np.ndarray((max(data.size - dtype.itemsize + 1, 0),), dtype, data, 0, (1,))
    return window


def _hash_stripes(starts: NDArray[np.int64], counts: NDArray[np.int64], data: NDArray[np.uint8], seeds: Words) -> Words:
    """Return the state after the whole stripes of each range; each range has at least one."""
    order = np.argsort(-counts, kind="stable")
    starts, seeds = starts[order], seeds[order]
    lanes = [seeds + start for start in _LANE_STARTS]
    window = _window(data, np.dtype("<u8"))
    # Ranges with more stripes come first.
    live = np.searchsorted(-counts[order], -np.arange(int(counts.max())), side="left").tolist()
    for stripe, rows in enumerate(live):
        for number, lane in enumerate(lanes):
            words = window[starts[:rows] + (_STRIPE_BYTES * stripe + 8 * number)]
            words *= _PRIME_2
            words += lane[:rows]
            lane[:rows] = _rotate_words(words, 31) * _PRIME_1
    state = np.zeros(len(seeds), np.uint64)
    for lane, bits in zip(lanes, _LANE_TURNS, strict=True):
        state += _rotate_words(lane, bits)
    for lane in lanes:
        state ^= _mix_words(lane)
        state *= _PRIME_1
        state += _PRIME_4
    hashes = np.empty_like(state)
    hashes[order] = state
    return hashes


def _with_word(state: Words, words: Words) -> Words:
    turned = _rotate_words(state ^ _mix_words(words), 27)
    turned *= _PRIME_1
    turned += _PRIME_4
    return turned


def _with_half_word(state: Words, words: Words) -> Words:
    turned = _rotate_words(state ^ words * _PRIME_1, 23)
    turned *= _PRIME_2
    turned += _PRIME_3
    return turned


def _mix_words(words: Words) -> Words:
    turned = _rotate_words(words * _PRIME_2, 31)
    turned *= _PRIME_1
    return turned


def _rotate_words(words: Words, bits: int) -> Words:
    turned: Words = words << np.uint64(bits)
    turned |= words >> np.uint64(64 - bits)
    return turned


def _finish_hash(state: Words) -> Words:
    state ^= state >> np.uint64(33)
    state *= _PRIME_2
    state ^= state >> np.uint64(29)
    state *= _PRIME_3
    state ^= state >> np.uint64(32)
    return state


SEED = 42


def hash_rows(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Return the hash of each row over one or more columns of key types.

    The hash over the previous columns is the seed for the next column; a null does not change it.
    """
    hashes = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        if is_byte_key(column.type):
            offsets, data = byte_ranges(column)
            column_hashes = _hash_bytes(offsets, np.frombuffer(data, np.uint8), hashes)
        else:
            words = key_integers(column).astype(np.int64, copy=False).view(np.uint64)
            column_hashes = _hash_in_chunks(_hash_ints if is_hashed_as_int(column.type) else _hash_longs, hashes, words)
        if column.null_count:
            hashes = np.where(is_valid(column), column_hashes, hashes)
        else:
            hashes = column_hashes
    return hashes


def buckets_of(hashes: NDArray[np.uint64], buckets: int) -> NDArray[np.int64]:
    """Return the bucket of each hash, `pmod(hash, buckets)` in Spark; `buckets` is a power of two."""
    numbers: NDArray[np.uint64] = hashes & np.uint64(buckets - 1)
    return numbers.astype(np.int64)


class KeyHasher:
    """Hashes keys, which are tuples of stored values. `kinds` are the types of the key columns."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        # None for values that are already bytes.
        self._packers: list[Any] = []
        for encoding in map(_encoding, kinds):
            self._packers.append(None if encoding is None else encoding.pack)
        # Returns the hash of a key, from 0 to 2**64 - 1.
        self.hash: Callable[[tuple[Any, ...]], int] = self._of_values
        if len(kinds) == 1:
            (self._pack,) = self._packers
            if self._packers[0] is None:
                self.hash = self._of_bytes
            else:
                self.hash = self._of_number

    def _of_bytes(self, key: tuple[Any, ...]) -> int:
        return xxh64_intdigest(key[0], SEED)

    def _of_number(self, key: tuple[Any, ...]) -> int:
        return xxh64_intdigest(self._pack(key[0]), SEED)

    def _of_values(self, key: tuple[Any, ...]) -> int:
        hashed = SEED
        for value, pack in zip(key, self._packers, strict=True):
            hashed = xxh64_intdigest(value if pack is None else pack(value), hashed)
        return hashed


def _encoding(kind: pa.DataType) -> struct.Struct | None:
    """Return the encoding of a value for the hash; None for a type whose values are bytes."""
    if is_byte_key(kind):
        return None
    if is_hashed_as_int(kind):
        return struct.Struct("<i")
    return struct.Struct("<q")


def bucket_name(number: int) -> str:
    """Return the name of a bucket in the log; names sort in numeric order."""
    return f"{_PREFIX}{number:05d}"


def bucket_number(name: str) -> int:
    """Return the number of a bucket from its name; raise CorruptData for another name."""
    if _NAME.fullmatch(name) is None:
        raise CorruptData(layout.LOG, f"buckets with names such as {bucket_name(1)}", f"{name!r:.80}")
    return int(name.removeprefix(_PREFIX))


def by_bucket(rows: pa.Table, definition: StoreDefinition) -> Iterator[tuple[str, pa.Table]]:
    """Yield the name and the rows of each non-empty bucket. Rows keep their order; key columns contain no nulls."""
    if not rows.num_rows:
        return
    keys = rows.select(definition.bucket_by).combine_chunks().to_batches()[0]
    numbers = buckets_of(hash_rows(keys.columns), definition.buckets)
    if (numbers == numbers[0]).all():
        yield bucket_name(int(numbers[0])), rows
        return
    groups, start = rows_by_number(numbers), 0
    sorted_rows = rows.take(from_numpy(np.concatenate([*groups.values()]), pa.int64()))
    for number, places in groups.items():
        yield bucket_name(number), sorted_rows.slice(start, len(places))
        start += len(places)


def rows_by_number(numbers: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Return the indexes at which each number occurs. Numbers and indexes ascend."""
    order = np.argsort(numbers, kind="stable")
    sorted_numbers = numbers[order]
    starts = np.flatnonzero(np.diff(sorted_numbers, prepend=-1))
    return dict(zip(sorted_numbers[starts].tolist(), np.split(order, starts[1:]), strict=False))
