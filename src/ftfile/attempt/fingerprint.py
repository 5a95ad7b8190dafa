"""The content of a batch, as a few numbers that depend neither on the order of its rows nor on its partitioning.

Two kinds, both sums modulo 2**64, so that those of the tasks are added up:

- `content` sums each column on its own: nulls, values, lengths, bytes. A value that changes is seen; values
  that change places between rows, and bytes that change places within a column, are not.
- `strong` sums hashes of whole rows, and sees those as well.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.arrays.words import byte_ranges, fixed_words, is_byte_like, is_list_like, list_lengths, plain
from ftfile.attempt.row_hash import row_hashes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Sums = dict[str, list[int]]

__all__ = ("FingerprintAccumulator",)

# The kinds, each with the number of rows whose temporaries stay in the processor's cache.
_CHUNK_ROWS = {"content": 32_768, "strong": 8_192}
_VERSION = 1
_WRAP = (1 << 64) - 1


class FingerprintAccumulator:
    """Sums the rows of record batches, as `content` or `strong`; those of tasks are merged for the batch."""

    __slots__ = ("_sums", "kind", "rows")

    def __init__(self, kind: str = "content") -> None:
        if kind not in _CHUNK_ROWS:
            raise ValueError(f"unknown kind of fingerprint {kind!r}: read it with a newer ftfile")
        self.kind = kind
        self.rows = 0
        self._sums: Sums = {}

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch; a SchemaError says that a column's type has no fingerprint."""
        chunk_rows = _CHUNK_ROWS[self.kind]
        for start in range(0, batch.num_rows, chunk_rows):
            chunk = batch.slice(start, chunk_rows)
            sums: Sums = {}
            if self.kind == "strong":
                sums["*"] = [int(np.add.reduce(row_hashes(chunk)))]
            else:
                for name, column in zip(chunk.schema.names, chunk.columns, strict=True):
                    _sum_content(sums, _escaped(name), column)
            self._add(chunk.num_rows, sums)

    def merge(self, other: FingerprintAccumulator) -> None:
        """Add the sums of another one of the same kind."""
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
        """Return the state as plain JSON; sums in hex, since many readers of JSON lose 64-bit numbers."""
        sums = {path: [f"{number:x}" for number in numbers] for path, numbers in sorted(self._sums.items())}
        return {"kind": self.kind, "version": _VERSION, "rows": self.rows, "sums": sums}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FingerprintAccumulator:
        """Return the accumulator of `to_json()`; a ValueError says that this version does not know it."""
        version = document["version"]
        if version != _VERSION:
            raise ValueError(f"unknown version of a fingerprint {version!r}: read it with a newer ftfile")
        built = cls(document["kind"])
        sums = {path: [int(text, 16) for text in texts] for path, texts in document["sums"].items()}
        built._add(document["rows"], sums)
        return built

    def digest(self) -> str:
        """Return `kind/version:` and 32 hex digits: equal for equal content; only equal kinds compare."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return f"{self.kind}/{_VERSION}:{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def _escaped(name: str) -> str:
    """Keep a column named `a.b` apart from the field `b` of a struct `a`."""
    return name.replace("\\", "\\\\").replace(".", "\\.").replace("[", "\\[")


def _sum_content(sums: Sums, path: str, array: pa.Array) -> None:
    """Put the sums of a column under its path, and those of its fields and elements under theirs."""
    array = plain(array)
    kind, nulls = array.type, array.null_count
    if isinstance(array, pa.StructArray):
        sums[path] = [nulls]
        for field, child in zip(array.type, array.flatten(), strict=True):
            _sum_content(sums, f"{path}.{_escaped(field.name)}", child)
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


def _moments(words: NDArray[np.uint64]) -> tuple[int, int]:
    """Return the sum, and a sum of squares in which changes of two values do not cancel each other out."""
    # The square of a double has no low bits left; folding puts its high bits there.
    folded = words >> np.uint64(32)
    folded ^= words
    return int(np.add.reduce(words)), int(np.dot(folded, folded))


def _byte_sums(array: pa.Array) -> tuple[int, int, int]:
    """Return the sums of lengths, of their squares, and of all bytes; independent of where a value begins."""
    offsets, data = byte_ranges(array)
    first, end = int(offsets[0]), int(offsets[-1])
    if array.null_count and pc.sum(pc.binary_length(array)).as_py() != end - first:
        # Bytes under nulls are no content.
        return _byte_sums(array.drop_null())
    lengths = offsets[1:] - offsets[:-1]
    values = pa.Array.from_buffers(pa.uint8(), end - first, [None, data], offset=first)
    return end - first, int(np.dot(lengths, lengths)), pc.sum(values, min_count=0).as_py()
