"""How many bytes the values of each record take, whatever format they are written in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import is_valid
from ftfile.arrays.words import byte_ranges, is_byte_like, is_list_like, list_lengths, plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ("value_sizes",)


def value_sizes(array: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of each value of a column: of strings their text, of others their width, of null at most that.

    Nested values count as the sum of what is in them.
    """
    array = plain(array)
    if is_byte_like(array.type):
        offsets, _ = byte_ranges(array)
        return np.where(is_valid(array), np.diff(offsets), 0)
    if is_list_like(array.type):
        lengths = list_lengths(array)
        sums = np.concatenate([[0], np.cumsum(value_sizes(array.flatten()))])
        ends = np.cumsum(lengths)
        within: NDArray[np.int64] = sums[ends] - sums[ends - lengths]
        return within
    if pa.types.is_struct(array.type):
        return sum((value_sizes(field) for field in array.flatten()), np.zeros(len(array), np.int64))
    width = 0 if pa.types.is_null(array.type) else -(-array.type.bit_width // 8)
    return np.full(len(array), width, np.int64)
