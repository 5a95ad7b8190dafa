"""Between numpy and Arrow without copying, and without pandas.

`pa.array`, `pa.scalar`, `to_numpy` and every kernel that is given a Python value import pandas if it is installed,
which takes a worker 300 ms. What writes the first rows of a worker uses these instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray


def values_of(array: pa.Array, dtype: DTypeLike) -> NDArray[Any]:
    """Return the values of a column of fixed width as a view; they mean nothing where it is null."""
    return _items(array.buffers()[1], np.dtype(dtype), array.offset, len(array))


def is_valid(array: pa.Array) -> NDArray[np.bool_]:
    """Return where a column is not null."""
    bitmap = array.buffers()[0]
    if bitmap is None or not array.null_count:
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def string_parts(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return offsets and bytes of a string or binary column as views; they mean nothing where it is null."""
    _, offsets, data = array.buffers()
    # Without values there may be no offset at all.
    starts = _items(offsets, np.dtype(np.int32), array.offset, len(array) + 1) if len(array) else np.zeros(1, np.int32)
    return starts, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def _items(buffer: pa.Buffer, dtype: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
    # The end of a buffer may be padding of any length; without values there may be no buffer.
    return np.frombuffer(buffer, dtype, count, start * dtype.itemsize) if count else np.empty(0, dtype)


def from_numpy(values: NDArray[Any], arrow: pa.DataType, valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return values as a column of a type that has them in this form, null where they are not valid."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(arrow, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))])


def bools_from(values: NDArray[np.bool_]) -> pa.Array:
    """Return a column of booleans without nulls."""
    bitmap = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bitmap])


def numbers_from(values: NDArray[np.integer]) -> pa.Array:
    """Return integers as a column of 64 bits without nulls, such as numbers of rows to take."""
    return from_numpy(values.astype(np.int64, copy=False), pa.int64())


def strings_from(
    offsets: NDArray[np.integer], data: NDArray[np.uint8], arrow: pa.DataType, valid: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return a column of strings or binary values from where each starts, and the last ends, in `data`."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(arrow, len(offsets) - 1, buffers)


def from_texts(texts: Sequence[str | bytes], arrow: pa.DataType) -> pa.Array:
    """Return a column of a few strings or binary values."""
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    return strings_from(offsets, np.frombuffer(b"".join(encoded), np.uint8), arrow)


def text_scalar(text: str | bytes, arrow: pa.DataType) -> pa.Scalar:
    """Return a constant for a kernel."""
    return from_texts([text], arrow)[0]


def rows_where(batch: pa.RecordBatch, wanted: NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows of a batch that a mask wants."""
    return batch.take(from_numpy(np.flatnonzero(wanted), pa.int64()))
