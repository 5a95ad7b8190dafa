"""Rows in Avro's binary encoding: each column becomes a column of bytes, and these are joined row by row.

Every value may be null and is a union of null and its type: a byte names the branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays import kernels as pc
from ftfile.arrays.buffers import is_valid, string_parts, strings_from, text_scalar, values_of
from ftfile.arrays.nested import list_parts
from ftfile.arrays.varints import ragged, varints, zigzag

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The branches of `["null", type]`, in zigzag.
_NULL, _PRESENT = 0, 2


def encode_rows(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Return each row's bytes."""
    return _joined([piece for column in batch.columns for piece in _pieces(column)])


def decimal_bytes(precision: int) -> int:
    """Return the length of decimals of a precision."""
    return int(10**precision).bit_length() // 8 + 1


def _joined(pieces: list[pa.Array]) -> pa.BinaryArray:
    """Return the bytes of columns in sequence for each row; null has none."""
    nothing = text_scalar(b"", pa.binary())
    return pc.binary_join_element_wise(*pieces, nothing, null_handling="replace", null_replacement="")


def _pieces(array: pa.Array) -> list[pa.Array]:
    """Return the pieces to join to the values of a column, each with its branch."""
    kind, valid = array.type, is_valid(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return [_numbers(_sizes(array), valid), array.view(pa.binary())]
    if pa.types.is_struct(kind):
        branch = _with_branch(np.empty((len(array), 0), np.uint8), 0, valid)
        fields = [piece for field in array.flatten() for piece in _pieces(field)]
        return [branch, *fields] if not array.null_count else [branch, _only(valid, _joined(fields))]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _list_pieces(array, valid)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return [_numbers(values_of(array, f"i{kind.bit_width // 8}").astype(np.int64), valid)]
    values = _fixed(array)
    return [_with_branch(values, values.shape[1], valid)]


def _list_pieces(array: pa.Array, valid: NDArray[np.bool_]) -> list[pa.Array]:
    """Return counts, elements, and their ends; maps have entries of key and value."""
    starts, values = list_parts(array)
    offsets = values_of(starts, np.int32)
    counts = np.diff(offsets).astype(np.int64)
    if pa.types.is_map(array.type):
        keys, items = values.flatten()
        encoded = _joined([ragged(*varints(zigzag(_sizes(keys)))), keys.view(pa.binary()), *_pieces(items)])
    else:
        encoded = _joined(_pieces(values))
    bounds, data = string_parts(encoded)
    # The elements of a row lie side by side: its bytes are those from its first to its last.
    elements = strings_from(bounds[offsets], data, pa.binary())
    # A count of zero is an end already.
    end = ragged(np.zeros((len(counts), 1), np.uint8), (counts > 0).astype(np.int8))
    return [_numbers(counts, valid), elements, end]


def _sizes(array: pa.Array) -> NDArray[np.int64]:
    offsets, _ = string_parts(array)
    return np.diff(offsets).astype(np.int64)


def _numbers(values: NDArray[np.int64], valid: NDArray[np.bool_]) -> pa.BinaryArray:
    return _with_branch(*varints(zigzag(np.where(valid, values, 0))), valid)


def _fixed(array: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of values of fixed width, one row a value."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return values_of(array.cast(pa.uint8()), np.uint8).reshape(-1, 1)
    width = kind.bit_width // 8
    little = values_of(array, f"V{width}").view(np.uint8).reshape(-1, width)
    if not pa.types.is_decimal(kind):
        return little
    size = decimal_bytes(kind.precision)
    return np.concatenate([np.full((len(array), 1), 2 * size, np.uint8), little[:, size - 1 :: -1]], axis=1)


def _with_branch(
    matrix: NDArray[np.uint8], sizes: NDArray[np.integer] | int, valid: NDArray[np.bool_]
) -> pa.BinaryArray:
    """Return the branch of each value and, if it is present, the first bytes of its row."""
    with_branch = np.empty((len(valid), 1 + matrix.shape[1]), np.uint8)
    with_branch[:, 0] = np.where(valid, _PRESENT, _NULL)
    with_branch[:, 1:] = matrix
    return ragged(with_branch, 1 + np.where(valid, sizes, 0))


def _only(valid: NDArray[np.bool_], values: pa.BinaryArray) -> pa.BinaryArray:
    """Return values without those that are not valid."""
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(values), [bitmap, *values.buffers()[1:]], offset=values.offset)
