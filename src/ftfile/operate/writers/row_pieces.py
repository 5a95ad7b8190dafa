"""Batches of rows, divided so that Arrow's types with 32-bit offsets can contain the values of each piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.core.errors import SchemaError
from ftfile.operate.writers.stored_values import elements_of, is_dictionary, is_list, is_struct, is_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    Sizes = np.ndarray[tuple[int], np.dtype[np.int64]]
    RowBytes = Sizes | int  # the bytes of each row, or of every row

# Columns of type string, binary or list have 32-bit offsets.
VALUE_BYTES_MAX = 2**31 - 1
LISTS_AT_ONCE = 1024  # their elements are counted together, and a list can have many
_OFFSET_BYTES = 4
_VIEW_WORDS = 4  # of 32 bits; the first contains the length


def pieces(batch: pa.RecordBatch, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in pieces, which share the memory of the batch.

    Bytes are counted as they are stored: each value of a dictionary or a view is counted in each row.

    Args:
        batch: of any number of rows.
        rows_max: of a piece.
        bytes_max: of a piece that has more than one row.

    Raises:
        SchemaError: a column has more than 2 GiB in one row.
    """
    for start in range(0, batch.num_rows, rows_max):
        part = batch.slice(start, rows_max)
        sizes = [_row_bytes(column) for column in part.columns]
        ends = np.cumsum(np.broadcast_to(sum(sizes), part.num_rows))
        first = before = 0
        while first < part.num_rows:
            last = max(int(np.searchsorted(ends, before + bytes_max, "right")), first + 1)
            if last == first + 1:
                _check_row(part.schema, sizes, first)
            yield part.slice(first, last - first)
            first, before = last, ends[last - 1]


def _check_row(schema: pa.Schema, sizes: list[RowBytes], row: int) -> None:
    for name, size in zip(schema.names, sizes, strict=True):
        size_bytes = size if isinstance(size, int) else int(size[row])
        if size_bytes > VALUE_BYTES_MAX:
            raise SchemaError(
                f"column `{name}`: a value has {size_bytes} bytes, and a value of Spark has at most {VALUE_BYTES_MAX}. "
                "Divide the value into several rows"
            )


def _row_bytes(array: pa.Array) -> RowBytes:
    """Return the bytes of each row: at least one for each element of a list, and at least the bytes of texts."""
    kind = array.type
    if not len(array):
        return 0
    if isinstance(kind, pa.BaseExtensionType):
        return _row_bytes(array.storage)
    if is_dictionary(kind):
        return _bytes_by_index(array)
    if is_struct(kind):
        return sum((_row_bytes(array.field(number)) for number in range(kind.num_fields)), 1)
    if is_list(kind):
        starts = range(0, len(array), LISTS_AT_ONCE)
        return np.concatenate([_list_bytes(array.slice(start, LISTS_AT_ONCE)) for start in starts])
    return _leaf_bytes(array, slice(len(array)))


def _leaf_bytes(array: pa.Array, rows: Sizes | slice) -> RowBytes:
    """Return the bytes of some rows of texts or binary values, or of each row of a type with one width."""
    kind, end = array.type, array.offset + len(array)
    if is_view(kind):
        words = np.frombuffer(array.buffers()[1], np.int32)[: _VIEW_WORDS * end]
        lengths = words[_VIEW_WORDS * array.offset :: _VIEW_WORDS]
        if array.null_count:  # a null can contain any bytes
            lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
        sizes: Sizes = lengths[rows].astype(np.int64) + _OFFSET_BYTES
        return sizes
    offset_type = _OFFSET_TYPES.get(kind)
    if offset_type is not None:
        offsets = np.frombuffer(array.buffers()[1], offset_type)[array.offset : end + 1]
        return (offsets[1:][rows] - offsets[:-1][rows]).astype(np.int64) + _OFFSET_BYTES
    try:
        width: int = kind.bit_width // 8
    except ValueError:  # such as the type null
        return 1
    return max(width, 1)


_OFFSET_TYPES = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}


def _list_bytes(array: pa.Array) -> Sizes:
    lengths, elements = elements_of(array)
    sizes = _row_bytes(elements)
    if isinstance(sizes, int):
        return lengths * sizes + _OFFSET_BYTES
    totals, ends = np.append(0, np.cumsum(sizes)), np.append(0, np.cumsum(lengths))
    list_sizes: Sizes = np.diff(totals[ends]) + _OFFSET_BYTES
    return list_sizes


def _bytes_by_index(array: pa.DictionaryArray) -> RowBytes:
    values = array.dictionary
    if not len(values):  # all rows are null
        return 0
    places: Sizes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if values.type.num_fields or isinstance(values.type, pa.BaseExtensionType):
        sizes = np.broadcast_to(_row_bytes(values), len(values))[places]
    else:
        sizes = np.broadcast_to(_leaf_bytes(values, places), len(places))  # a dictionary can be larger than its rows
    if array.indices.null_count:
        sizes = np.where(array.indices.is_valid().to_numpy(zero_copy_only=False), sizes, 0)
    return sizes
