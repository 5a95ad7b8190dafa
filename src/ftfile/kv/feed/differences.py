"""Which values of two Arrow arrays differ, of any type that a store has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays import kernels as pc
from ftfile.arrays.buffers import is_valid, numbers_from, values_of
from ftfile.kv.key_columns import bools_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]


def differ(one: pa.Array, other: pa.Array) -> Flags:
    """Return a flag for each place: True where the values of arrays of one type and length are not the same.

    Null is the same as null, and NaN as NaN.
    """
    valid = is_valid(one), is_valid(other)
    found: Flags = valid[0] != valid[1]
    places = np.flatnonzero(valid[0] & valid[1])
    if places.size:
        both = numbers_from(places)
        found[places] = _differ(one.take(both), other.take(both))
    return found


def _differ(one: pa.Array, other: pa.Array) -> Flags:
    """Return the flags of arrays without nulls, whose offset is 0."""
    kind = one.type
    if pa.types.is_struct(kind):
        return _any_differ(one.flatten(), other.flatten(), len(one))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _lists_differ(one, other)
    found: Flags = bools_of(pc.not_equal(one, other))
    if pa.types.is_floating(kind):
        are_nan = bools_of(pc.is_nan(one)) & bools_of(pc.is_nan(other))
        found &= ~are_nan
    return found


def _any_differ(ones: list[pa.Array], others: list[pa.Array], count: int) -> Flags:
    found = np.zeros(count, np.bool_)
    for one, other in zip(ones, others, strict=True):
        found |= differ(one, other)
    return found


def _lists_differ(one: pa.Array, other: pa.Array) -> Flags:
    starts, other_starts = (values_of(each.offsets, np.int32) for each in (one, other))
    lengths = np.diff(starts)
    found: Flags = lengths != np.diff(other_starts)
    same = np.flatnonzero(~found)
    owners = np.repeat(same, lengths[same])
    steps = np.arange(len(owners)) - np.repeat(np.cumsum(lengths[same]) - lengths[same], lengths[same])
    items, other_items = (
        [each.take(numbers_from(first[owners] + steps)) for each in _items(array)]
        for array, first in ((one, starts), (other, other_starts))
    )
    found[owners[_any_differ(items, other_items, len(owners))]] = True
    return found


def _items(array: pa.Array) -> list[pa.Array]:
    """Return the items that the offsets of a list or map count."""
    return [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
