"""Single values as text and back, a column at a time: floats, numbers, base64."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PAD = ord("=")

__all__ = ("all_finite", "base64_text", "float_text", "from_base64", "string_parts")


def all_finite(array: pa.Array) -> bool:
    """Say whether a column of floats has neither NaN nor infinities."""
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
        text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    return text


def string_parts(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return offsets and bytes of a string or binary column as views; they mean nothing where it is null."""
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return starts, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def base64_text(array: pa.BinaryArray) -> pa.StringArray:
    """Return binary values as base64 text (RFC 4648, padded).

    All values are encoded in one call: each is padded with zero bytes to a multiple of three, and the
    characters that stand for padding become `=` afterwards.
    """
    offsets, data = _present_parts(array, b"")
    lengths = np.diff(offsets)
    padding = (-lengths % 3).astype(np.int64)
    ends = np.cumsum(lengths + padding, dtype=np.int64)
    padded = np.zeros(len(data) + int(padding.sum()), np.uint8)
    padded[~_padding(len(padded), ends, padding)] = data
    text = np.frombuffer(bytearray(binascii.b2a_base64(pa.py_buffer(padded), newline=False)), np.uint8)
    ends = ends // 3 * 4
    text[_padding(len(text), ends, padding)] = _PAD
    return _with_nulls_of(array, pa.string(), ends, text)


def from_base64(array: pa.StringArray) -> pa.BinaryArray:
    """Return the inverse of `base64_text`.

    Raises:
        ValueError: a text is not base64.
    """
    offsets, text = _present_parts(array, "")
    lengths, ends = np.diff(offsets), offsets[1:].astype(np.int64)
    if (lengths % 4).any():
        raise ValueError("a base64 text has a length that is no multiple of 4")
    tail = ends[lengths > 0]
    padding = np.zeros(len(lengths), np.int64)
    padding[lengths > 0] = (text[tail - 1] == _PAD).astype(np.int64) + (text[tail - 2] == _PAD)
    zeros = np.where(_padding(len(text), ends, padding), ord("A"), text).astype(np.uint8)
    data = np.frombuffer(binascii.a2b_base64(pa.py_buffer(zeros)), np.uint8)
    if len(data) * 4 != len(text) * 3 or np.count_nonzero(zeros == _PAD):
        raise ValueError("a text has characters that base64 does not use")
    ends = ends // 4 * 3
    kept = data[~_padding(len(data), ends, padding)]
    return _with_nulls_of(array, pa.binary(), ends - np.cumsum(padding), kept)


def _present_parts(array: pa.Array, null: str | bytes) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return offsets that start at 0 and the bytes they refer to; null values are empty."""
    offsets, data = string_parts(pc.fill_null(array, null) if array.null_count else array)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def _padding(size: int, ends: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of `size` items that is set on the last 0, 1 or 2 before each end."""
    mask = np.zeros(size, np.bool_)
    mask[ends[counts > 0] - 1] = True
    mask[ends[counts > 1] - 2] = True
    return mask


def _with_nulls_of(array: pa.Array, kind: pa.DataType, ends: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.Array:
    offsets = pa.py_buffer(np.append(0, ends).astype(np.int32))
    values = pa.Array.from_buffers(kind, len(array), [None, offsets, pa.py_buffer(data)])
    return pc.if_else(array.is_valid(), values, None) if array.null_count else values
