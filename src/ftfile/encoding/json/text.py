"""JSON text by Arrow's string kernels, for batches with values that arro3, which is faster, gets wrong; base64."""

from __future__ import annotations

import binascii
import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays import kernels as pc
from ftfile.arrays.buffers import is_valid, string_parts, strings_from, text_scalar
from ftfile.arrays.nested import list_parts
from ftfile.arrays.value_text import all_finite, float_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_PAD = ord("=")
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


def object_text(names: Iterable[str], columns: Iterable[pa.Array], *, ignore_nulls: bool) -> pa.StringArray:
    """Return one JSON object for each row; nulls are left out, or written as `null`."""
    members = []
    for name, column in zip(names, columns, strict=True):
        key = f",{json.dumps(name, ensure_ascii=False)}:"
        text = json_text(column, ignore_nulls=ignore_nulls)
        member = pc.binary_join_element_wise(key, text, "")
        members.append(pc.fill_null(member, "" if ignore_nulls else f"{key}null"))
    joined = pc.binary_join_element_wise(*members, "")
    return pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, 1), "}", "")


def json_text(array: pa.Array, *, ignore_nulls: bool) -> pa.StringArray:
    """Return the JSON text of each value, null for null; binary values and times must be strings already."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        text = object_text(names, array.flatten(), ignore_nulls=ignore_nulls)
        return pc.if_else(array.is_valid(), text, None)
    if pa.types.is_list(kind):
        offsets, values = list_parts(array)
        return _joined(offsets, _or_null(values, ignore_nulls=ignore_nulls), "[]")
    if pa.types.is_map(kind):
        offsets, entries = list_parts(array)
        keys, items = entries.flatten()
        values = _or_null(items, ignore_nulls=ignore_nulls)
        return _joined(offsets, pc.binary_join_element_wise(_quoted(keys), values, ":"), "{}")
    if pa.types.is_string(kind):
        return _quoted(array)
    if pa.types.is_floating(kind):
        text = float_text(array)
        return text if all_finite(array) else pc.if_else(pc.is_finite(array), text, _in_quotes(text))
    return array.cast(pa.string())


def _or_null(values: pa.Array, *, ignore_nulls: bool) -> pa.StringArray:
    return pc.fill_null(json_text(values, ignore_nulls=ignore_nulls), "null")


def _joined(offsets: pa.Array, values: pa.StringArray, brackets: str) -> pa.StringArray:
    body = pc.binary_join(pa.ListArray.from_arrays(offsets, values), ",")
    return pc.binary_join_element_wise(brackets[0], body, brackets[1], "")


def _in_quotes(text: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', text, '"', "")


def _quoted(strings: pa.StringArray) -> pa.StringArray:
    quoted = _in_quotes(strings)
    special = pc.fill_null(pc.match_substring_regex(strings, _NEEDS_ESCAPE), fill_value=False)
    if not pc.any(special).as_py():
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in strings.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))


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
    """Return the inverse of `base64_text`; `ValueError` if a text is not base64."""
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
