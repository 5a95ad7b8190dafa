"""A 64-bit hash for each row of a batch: vectorised, the same on every machine and in every library version.

A row's hash is the mixed sum of one word per column, each multiplied by an odd number made from the column's
name: columns match by name, and a value moved to another row or column changes the hashes.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import is_valid
from ftfile.arrays.words import byte_ranges, fixed_words, is_byte_like, is_list_like, list_lengths, plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

__all__ = ("row_hashes",)

# Longer values are hashed one by one; shorter ones a word at a time over all rows, which is faster.
_LONG_BYTES = 512

_NULL = np.uint64(0xD6E8_FEB8_6659_FD93)
_STEP = np.uint64(0x9FB2_1C65_1E98_DF25)
_PLACE = np.uint64(0x9E37_79B9_7F4A_7C15)
_MIX_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_MIX_SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_TAIL_MASKS = np.array([(1 << 8 * size_bytes) - 1 for size_bytes in range(8)], np.uint64)


def row_hashes(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """Return the hashes of the rows of a batch, in order; a SchemaError says that a column's type has none."""
    return _mixed(_combined(zip(batch.schema.names, batch.columns, strict=True), batch.num_rows))


@functools.lru_cache(maxsize=4096)
def _multiplier(name: str) -> np.uint64:
    odd: np.uint64 = np.uint64(_blake2b(name.encode()) | 1)
    return odd


def _blake2b(data: bytes | pa.Buffer) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _combined(columns: Iterable[tuple[str, pa.Array]], rows: int) -> Words:
    total = np.zeros(rows, np.uint64)
    for name, column in columns:
        # Folded first: in a sum of products, changes of the highest bit of two columns would cancel out.
        words = _folded(_hashed(column, name), 32)
        words *= _multiplier(name)
        total += words
    return total


def _folded(words: Words, bits: int) -> Words:
    folded: Words = words >> np.uint64(bits)
    folded ^= words
    return folded


def _mixed(words: Words) -> Words:
    """Apply SplitMix64's finaliser: a bijection in which each bit of the input reaches the whole output."""
    words = _folded(words, 30)
    words *= _MIX_FIRST
    words = _folded(words, 27)
    words *= _MIX_SECOND
    return _folded(words, 31)


def _hashed(array: pa.Array, column: str) -> Words:
    """Return a word for each value: the same for the same value, whatever its physical type."""
    ordered = not pa.types.is_map(array.type)
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL)
    if isinstance(array, pa.StructArray):
        children = zip((field.name for field in array.type), array.flatten(), strict=True)
        words = _mixed(_combined(children, len(array)))
    elif is_list_like(kind):
        words = _hashed_lists(array, column, ordered=ordered)
    elif is_byte_like(kind):
        words = _hashed_bytes(array)
    else:
        words = fixed_words(array, column)
    if array.null_count:
        words = np.where(is_valid(array), words, _NULL)
    return words


def _hashed_lists(array: pa.Array, column: str, *, ordered: bool) -> Words:
    lengths = list_lengths(array)
    ends = np.cumsum(lengths)
    elements = _folded(_hashed(array.flatten(), f"{column}[]"), 32)
    if ordered:
        places = np.arange(1, len(elements) + 1) - np.repeat(ends - lengths, lengths)
        elements += places.view(np.uint64) * _PLACE
    sums = np.zeros(len(elements) + 1, np.uint64)
    np.cumsum(_mixed(elements), out=sums[1:])
    words = sums[ends] - sums[ends - lengths]
    words += lengths.view(np.uint64) * _PLACE
    return _mixed(words)


def _hashed_bytes(array: pa.Array) -> Words:
    offsets, data = byte_ranges(array)
    first, end = int(offsets[0]), int(offsets[-1])
    lengths = offsets[1:] - offsets[:-1]
    if end + 8 > data.size:
        # Whole words are read, also where the last value ends within one.
        padded = np.zeros(end - first + 8, np.uint8)
        padded[:-8] = np.frombuffer(data, np.uint8)[first:end]
        data, offsets = pa.py_buffer(padded), offsets - first
    # Overlapping words: one begins at every byte.
    window = np.ndarray((data.size - 7,), "<u8", data, 0, (1,))
    counts = lengths >> 3
    words = window[offsets[:-1] + (counts << 3)]
    words &= _TAIL_MASKS[lengths & 7]
    words ^= lengths.view(np.uint64) * _PLACE
    words *= _STEP
    long = np.flatnonzero(lengths > _LONG_BYTES)
    counts[long] = 0
    words = _hashed_words(_folded(words, 32), window, offsets[:-1], counts)
    for row in long.tolist():
        words[row] = _blake2b(data[int(offsets[row]) : int(offsets[row + 1])])
    return words


def _hashed_words(words: Words, window: Words, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Words:
    """Take `counts` words from each start on into the hashes, one word of all values at a time."""
    finished = np.cumsum(np.bincount(counts, minlength=1)).tolist()
    order = np.argsort(counts.astype(np.uint8), kind="stable") if any(finished[:-1]) else None
    if order is not None:
        words, starts = words[order], starts[order]
    for index, done in enumerate(finished[:-1]):
        live = words[done:]
        live ^= window[starts[done:] + 8 * index]
        live *= _STEP
        live ^= live >> np.uint64(32)
    if order is None:
        return words
    result = np.empty_like(words)
    result[order] = words
    return result
