"""Binary values as base64 text and back, a column at a time."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.arrays.buffers import is_valid, string_parts, strings_from, text_scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ("base64_text", "from_base64")

_PAD = ord("=")


def base64_text(array: pa.BinaryArray) -> pa.StringArray:
    """Return binary values as base64 text (RFC 4648, padded)."""
    # All are encoded in one call, each padded with zero bytes to a multiple of three; `=` is put in afterwards.
    offsets, data = _present_parts(array)
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
    offsets, text = _present_parts(array)
    lengths, ends = np.diff(offsets), offsets[1:].astype(np.int64)
    if (lengths % 4).any():
        raise ValueError("a base64 text has a length that is no multiple of 4")
    tail = ends[lengths > 0]
    padding = np.zeros(len(lengths), np.int64)
    padding[lengths > 0] = (text[tail - 1] == _PAD).astype(np.int64) + (text[tail - 2] == _PAD)
    zeros = np.where(_padding(len(text), ends, padding), ord("A"), text).astype(np.uint8)
    data = np.frombuffer(binascii.a2b_base64(pa.py_buffer(zeros)), np.uint8)
    if len(data) * 4 != len(text) * 3:
        raise ValueError("a text has characters that base64 does not use")
    ends = ends // 4 * 3
    kept = data[~_padding(len(data), ends, padding)]
    return _with_nulls_of(array, pa.binary(), ends - np.cumsum(padding), kept)


def _present_parts(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return offsets that start at 0 and the bytes they refer to; null values are empty."""
    offsets, data = string_parts(pc.fill_null(array, text_scalar(b"", array.type)) if array.null_count else array)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def _padding(size: int, ends: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of `size` items that is set on the last 0, 1 or 2 before each end."""
    mask = np.zeros(size, np.bool_)
    mask[ends[counts > 0] - 1] = True
    mask[ends[counts > 1] - 2] = True
    return mask


def _with_nulls_of(array: pa.Array, kind: pa.DataType, ends: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.Array:
    return strings_from(np.append(0, ends), data, kind, is_valid(array) if array.null_count else None)
