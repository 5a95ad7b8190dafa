"""Ranges of keys, as purges have them: from a key on, up to another one, which is not in it.

Both may be prefixes. The empty prefix comes before all keys; None as the end is behind all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.arrays import kernels as pc
from ftfile.kv.key_columns import Key, bools_of, decode_key, encode_key, to_scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

KeyRange = tuple[Key, Key | None]


def union(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Return the same keys as the fewest ranges, in order; empty ranges are left out."""
    found: list[KeyRange] = []
    for start, end in sorted(ranges, key=lambda each: each[0]):
        if end is not None and end <= start:
            continue
        if found and (found[-1][1] is None or start <= found[-1][1]):
            last_start, last_end = found[-1]
            found[-1] = (last_start, None if last_end is None or end is None else max(last_end, end))
        else:
            found.append((start, end))
    return tuple(found)


def clip(ranges: Iterable[KeyRange], start: Key = (), end: Key | None = None) -> tuple[KeyRange, ...]:
    """Return the part of ranges that lies in the range from `start` to `end`, as `union` does."""
    return union(
        (max(each_start, start), end if each_end is None else each_end if end is None else min(each_end, end))
        for each_start, each_end in ranges
    )


def overlap(ranges: Iterable[KeyRange], first: Key, last: Key) -> bool:
    """Return True if a range has a key from `first` to `last`, both included."""
    return any(start <= last and (end is None or first < end) for start, end in ranges)


def contain(ranges: Iterable[KeyRange], columns: Sequence[pa.Array]) -> NDArray[np.bool_]:
    """Return for each row whether its key is in one of the ranges; `columns` are those of the keys."""
    found = np.zeros(len(columns[0]), np.bool_)
    for start, end in ranges:
        inside = _reach(columns, start)
        found |= inside if end is None else inside & ~_reach(columns, end)
    return found


def behind(prefix: Key, kinds: Sequence[pa.DataType]) -> Key | None:
    """Return the key before which all keys are that begin with a prefix, or are before it; None if all keys are."""
    for place in reversed(range(len(prefix))):
        value = prefix[place]
        if isinstance(value, bytes):
            return (*prefix[:place], value + b"\0")
        if value < _greatest(kinds[place]):
            return (*prefix[:place], value + 1)
    return None


def encode_ranges(ranges: Iterable[KeyRange]) -> list[Any]:
    """Return ranges as plain JSON."""
    return [[encode_key(start), None if end is None else encode_key(end)] for start, end in ranges]


def decode_ranges(text: Iterable[Sequence[Any]]) -> tuple[KeyRange, ...]:
    """Return the ranges that `encode_ranges` wrote."""
    return tuple((decode_key(start), None if end is None else decode_key(end)) for start, end in text)


def _greatest(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return int(10**kind.precision) - 1
    return int(pa.types.is_boolean(kind)) or (1 << kind.bit_width - 1) - 1


def _reach(columns: Sequence[pa.Array], bound: Key) -> NDArray[np.bool_]:
    """Return for each row whether its key is the bound, begins with it, or comes after it."""
    reached = np.ones(len(columns[0]), np.bool_)
    for column, value in reversed(list(zip(columns, bound, strict=False))):
        scalar = to_scalar(value, column.type)
        equal, greater = (bools_of(compare(column, scalar)) for compare in (pc.equal, pc.greater))
        reached = greater | (equal & reached)
    return reached
