"""Floats as text, a column at a time."""

from __future__ import annotations

import pyarrow as pa

from ftfile.arrays import kernels as pc
from ftfile.arrays.buffers import text_scalar

_POINT_ZERO, _EMPTY = text_scalar(".0", pa.string()), text_scalar("", pa.string())


def all_finite(array: pa.Array) -> bool:
    """Return True if a column of floats has neither NaN nor infinities."""
    return pc.all(pc.is_finite(array)).as_py() is not False


def float_text(array: pa.Array) -> pa.StringArray:
    """Return the shortest text that reads back as the same float; `NaN` and `-Infinity` as in Java."""
    text = array.cast(pa.string())
    if not all_finite(array):
        infinite = pc.if_else(pc.greater(array, 0), "Infinity", "-Infinity")
        text = pc.if_else(pc.is_finite(array), text, pc.if_else(pc.is_nan(array), "NaN", infinite))
    if pc.any(pc.equal(pc.floor(array), array)).as_py():
        # Arrow writes 1.0 as `1`: readers that guess types would see an integer.
        whole = pc.match_substring_regex(text, r"^-?\d+$")
        text = pc.if_else(whole, pc.binary_join_element_wise(text, _POINT_ZERO, _EMPTY), text)
    return text
