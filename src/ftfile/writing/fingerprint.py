"""Fingerprints of the rows of a batch, which depend neither on the order of rows nor on their partitioning.

A fingerprint is a set of sums modulo 2**64, so the sums of tasks can be added. The kind `content` sums each column
separately (nulls, values, lengths, bytes). It does not detect values that are swapped between rows, or bytes that are
moved within a column. The kind `strong` sums hashes of whole rows and detects both.
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.buffers import byte_ranges, fixed_words, is_byte_like, is_list_like, is_valid, list_lengths, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    Sums = dict[str, list[int]]
    Words = NDArray[np.uint64]


# Rows per chunk by kind, so that temporary arrays fit into the processor's cache.
_CHUNK_ROWS = {"content": 32_768, "strong": 8_192}
_SUMMED_BYTES = 1 << 24  # per sum: the result fits into 32 bits, which numpy adds twice as fast as 64 bits
_VERSION = 1
_WRAP = (1 << 64) - 1

# Longer values are hashed one by one. Shorter values are faster if one word of all rows is hashed at a time.
_LONG_BYTES = 512

_NULL = np.uint64(0xD6E8_FEB8_6659_FD93)
_STEP = np.uint64(0x9FB2_1C65_1E98_DF25)
_PLACE = np.uint64(0x9E37_79B9_7F4A_7C15)
_MIX_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_MIX_SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_TAIL_MASKS = np.array([(1 << 8 * size_bytes) - 1 for size_bytes in range(8)], np.uint64)


class FingerprintAccumulator:
    """Adds the rows of record batches to a fingerprint; fingerprints of tasks are merged into that of the batch."""

    __slots__ = ("_sums", "kind", "rows")

    def __init__(self, kind: str = "content") -> None:
        if kind not in _CHUNK_ROWS:
            raise ValueError(f"unknown kind of fingerprint {kind!r}: read it with a newer version of ftfile")
        self.kind = kind
        self.rows = 0
        self._sums: Sums = {}

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch. A column whose type has no fingerprint raises a SchemaError."""
        chunk_rows = _CHUNK_ROWS[self.kind]
        for start in range(0, batch.num_rows, chunk_rows):
            chunk = batch.slice(start, chunk_rows)
            sums: Sums = {}
            if self.kind == "strong":
                sums["*"] = [int(np.add.reduce(row_hashes(chunk)))]
            else:
                for name, column in zip(chunk.schema.names, chunk.columns, strict=True):
                    _sum_content(sums, _escape_name(name), column)
            self._add(chunk.num_rows, sums)

    def merge(self, other: FingerprintAccumulator) -> None:
        """Add the sums of another accumulator of the same kind."""
        if other.kind != self.kind:
            raise ValueError(f"fingerprints of the kinds {self.kind!r} and {other.kind!r} cannot be merged")
        self._add(other.rows, other._sums)

    def _add(self, rows: int, sums: Mapping[str, list[int]]) -> None:
        self.rows += rows
        for path, numbers in sums.items():
            present = self._sums.setdefault(path, [0] * len(numbers))
            for index, number in enumerate(numbers):
                present[index] = (present[index] + number) & _WRAP

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON.

        Sums are hexadecimal, because many JSON readers lose precision of 64-bit numbers.
        """
        sums = {}
        for path, numbers in sorted(self._sums.items()):
            sums[path] = [f"{number:x}" for number in numbers]
        return {"kind": self.kind, "version": _VERSION, "rows": self.rows, "sums": sums}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FingerprintAccumulator:
        """Build an accumulator from the result of `to_json()`. An unknown kind or version raises a ValueError."""
        version = document["version"]
        if version != _VERSION:
            raise ValueError(f"unknown version of a fingerprint {version!r}: read it with a newer version of ftfile")
        built = cls(document["kind"])
        sums = {}
        for path, texts in document["sums"].items():
            sums[path] = [int(text, 16) for text in texts]
        built._add(document["rows"], sums)
        return built

    def digest(self) -> str:
        """Return `kind/version:` and 32 hex digits, which are equal for equal content.

        Only equal kinds can be compared.
        """
        text = json.dumps(self.to_json(), sort_keys=True)
        return f"{self.kind}/{_VERSION}:{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def _escape_name(name: str) -> str:
    """Escape a name, so that a column `a.b` differs from the field `b` of a struct `a`."""
    return name.replace("\\", "\\\\").replace(".", "\\.").replace("[", "\\[")


def _sum_content(sums: Sums, path: str, array: pa.Array) -> None:
    """Store the sums of a column under its path, and the sums of its fields and elements under their paths."""
    array = to_plain(array)
    kind, nulls = array.type, array.null_count
    if isinstance(array, pa.StructArray):
        sums[path] = [nulls]
        for field, child in zip(array.type, array.flatten(), strict=True):
            _sum_content(sums, f"{path}.{_escape_name(field.name)}", child)
    elif is_list_like(kind):
        sums[path] = [nulls, *_moments(list_lengths(array).view(np.uint64))]
        _sum_content(sums, f"{path}[]", array.flatten())
    elif pa.types.is_null(kind):
        sums[path] = [nulls]
    elif isinstance(array, pa.BooleanArray):
        sums[path] = [nulls, array.true_count]
    elif is_byte_like(kind):
        sums[path] = [nulls, *_byte_sums(array)]
    else:
        sums[path] = [nulls, *_moments(fixed_words(array.drop_null() if nulls else array, path))]


def _moments(words: Words) -> tuple[int, int]:
    """Return the sum of all words, and a sum of squares in which changes of two values do not cancel out."""
    # The low bits of the square of a double are zero, so the high bits are folded into them.
    folded = _fold_words(words, 32)
    return int(np.add.reduce(words)), int(np.dot(folded, folded))


def _byte_sums(array: pa.Array) -> tuple[int, int, int]:
    """Return the sums of the lengths, of their squares, and of all bytes. Boundaries between values have no effect."""
    offsets, data = byte_ranges(array)
    first, end = int(offsets[0]), int(offsets[-1])
    if array.null_count and pc.sum(pc.binary_length(array)).as_py() != end - first:
        # Bytes of null values are not content.
        return _byte_sums(array.drop_null())
    lengths = offsets[1:] - offsets[:-1]
    if end > first:
        values = np.frombuffer(data, np.uint8, end - first, first)
    else:
        values = np.empty(0, np.uint8)
    pieces = (values[start : start + _SUMMED_BYTES] for start in range(0, len(values), _SUMMED_BYTES))
    total = sum(int(np.add.reduce(piece, dtype=np.uint32)) for piece in pieces)
    return end - first, int(np.dot(lengths, lengths)), total


def row_hashes(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """Return the hashes of the rows of a batch, in order. A column whose type has no hash raises a SchemaError."""
    return _mix_words(_combine_hashes(zip(batch.schema.names, batch.columns, strict=True), batch.num_rows))


@functools.lru_cache(maxsize=4096)
def _multiplier(name: str) -> np.uint64:
    odd: np.uint64 = np.uint64(_blake2b(name.encode()) | 1)
    return odd


def _blake2b(data: bytes | pa.Buffer) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _combine_hashes(columns: Iterable[tuple[str, pa.Array]], rows: int) -> Words:
    total = np.zeros(rows, np.uint64)
    for name, column in columns:
        # Without folding, changes of the highest bit in two columns would cancel out in the sum of products.
        words = _fold_words(_hash_array(column, name), 32)
        words *= _multiplier(name)
        total += words
    return total


def _fold_words(words: Words, bits: int) -> Words:
    folded: Words = words >> np.uint64(bits)
    folded ^= words
    return folded


def _mix_words(words: Words) -> Words:
    """Apply the finalizer of SplitMix64, a bijection in which each input bit affects all output bits."""
    words = _fold_words(words, 30)
    words *= _MIX_FIRST
    words = _fold_words(words, 27)
    words *= _MIX_SECOND
    return _fold_words(words, 31)


def _hash_array(array: pa.Array, column: str) -> Words:
    """Return one word for each value. Equal values have equal words, even if their physical types differ."""
    ordered = not pa.types.is_map(array.type)
    array = to_plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL)
    if isinstance(array, pa.StructArray):
        children = zip((field.name for field in array.type), array.flatten(), strict=True)
        words = _mix_words(_combine_hashes(children, len(array)))
    elif is_list_like(kind):
        words = _hash_lists(array, column, ordered=ordered)
    elif is_byte_like(kind):
        words = _hash_bytes(array)
    else:
        words = fixed_words(array, column)
    if array.null_count:
        words = np.where(is_valid(array), words, _NULL)
    return words


def _hash_lists(array: pa.Array, column: str, *, ordered: bool) -> Words:
    lengths = list_lengths(array)
    ends = np.cumsum(lengths)
    elements = _fold_words(_hash_array(array.flatten(), f"{column}[]"), 32)
    if ordered:
        places = np.arange(1, len(elements) + 1) - np.repeat(ends - lengths, lengths)
        elements += places.view(np.uint64) * _PLACE
    sums = np.zeros(len(elements) + 1, np.uint64)
    np.cumsum(_mix_words(elements), out=sums[1:])
    words = sums[ends] - sums[ends - lengths]
    words += lengths.view(np.uint64) * _PLACE
    return _mix_words(words)


def _hash_bytes(array: pa.Array) -> Words:
    offsets, data = byte_ranges(array)
    first, end = int(offsets[0]), int(offsets[-1])
    lengths = offsets[1:] - offsets[:-1]
    if end + 8 > data.size:
        # Whole words are read, even if the last value ends within a word.
        padded = np.zeros(end - first + 8, np.uint8)
        padded[:-8] = np.frombuffer(data, np.uint8)[first:end]
        data, offsets = pa.py_buffer(padded), offsets - first
    # Overlapping words, because a value can begin at every byte.
    window = np.ndarray((data.size - 7,), "<u8", data, 0, (1,))
    counts = lengths >> 3
    words = window[offsets[:-1] + (counts << 3)]
    words &= _TAIL_MASKS[lengths & 7]
    words ^= lengths.view(np.uint64) * _PLACE
    words *= _STEP
    long = np.flatnonzero(lengths > _LONG_BYTES)
    counts[long] = 0
    words = _hash_words(_fold_words(words, 32), window, offsets[:-1], counts)
    for row in long.tolist():
        words[row] = _blake2b(data[int(offsets[row]) : int(offsets[row + 1])])
    return words


def _hash_words(words: Words, window: Words, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Words:
    """Hash `counts` words from each start, one word of all values at a time."""
    finished = np.cumsum(np.bincount(counts, minlength=1)).tolist()
    order = None
    if any(finished[:-1]):
        order = np.argsort(counts.astype(np.uint8), kind="stable")
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


def strong_digest(batches: Iterable[pa.RecordBatch]) -> Any:  # noqa: ANN401
    """Return the digest of the strong fingerprint of all rows, which does not depend on their order."""
    accumulator = FingerprintAccumulator("strong")
    for batch in batches:
        accumulator.update(batch)
    return accumulator.digest()
