"""A block in memory: some rows of a run, as Arrow and, one by one, as values of Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import is_valid, values_of
from ftfile.kv.key_columns import is_byte_key, stored_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("Block", "joined")

_NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
_DTYPES = {kind.id: f"<{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}" for kind in _NUMBERS}


class Block:
    """Rows of a run that were decoded together.

    Attributes:
        batch: the rows.
        key: returns the key of a row by its number, as stored values.
        values: returns the columns of a row behind the key by its number, as Arrow's `as_py` would.
    """

    __slots__ = ("batch", "key", "values")

    def __init__(self, batch: pa.RecordBatch, key_columns: int) -> None:
        # Slices of `bytes` cost a quarter of those of a view; Arrow shares them, so that nothing is in memory twice.
        contents = [_content(column) for column in batch.columns]
        columns = [_backed(*pair) for pair in zip(batch.columns, contents, strict=True)]
        readers = [
            _reader(column, content, is_key=number < key_columns)
            for number, (column, content) in enumerate(zip(columns, contents, strict=True))
        ]
        self.batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        self.key = _row_reader(readers[:key_columns])
        self.values = _row_reader(readers[key_columns:])

    @property
    def size_bytes(self) -> int:
        """Return the memory that it takes."""
        return int(self.batch.get_total_buffer_size())


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of all batches as one."""
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return (
        whole[0] if whole else pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)
    )


def _content(column: pa.Array) -> bytes | None:
    """Return the bytes of all strings or binary values of a column; None for other types."""
    if not is_byte_key(column.type):
        return None
    data = column.buffers()[2]
    return b"" if data is None else bytes(data)


def _backed(column: pa.Array, content: bytes | None) -> pa.Array:
    """Return a column with the same values that are in `content`."""
    if content is None:
        return column
    valid, starts, _ = column.buffers()
    buffers = [valid, starts, pa.py_buffer(content)]
    return pa.Array.from_buffers(column.type, len(column), buffers, offset=column.offset)


def _row_reader(readers: Sequence[Callable[[int], Any]]) -> Callable[[int], tuple[Any, ...]]:
    if len(readers) == 1:
        (read,) = readers
        return lambda row: (read(row),)
    return lambda row: tuple([read(row) for read in readers])


def _reader(column: pa.Array, content: bytes | None, *, is_key: bool) -> Callable[[int], Any]:
    if content is not None:
        first, end = column.offset, column.offset + len(column)
        offsets = memoryview(column.buffers()[1]).cast("B").cast("i")[first : end + 1]
        if pa.types.is_string(column.type) and not is_key:
            return _or_none(column, lambda row: content[offsets[row] : offsets[row + 1]].decode())
        return _or_none(column, lambda row: content[offsets[row] : offsets[row + 1]])
    if is_key:
        return stored_reader(column)
    if column.type.id in _DTYPES:
        values = values_of(column, _DTYPES[column.type.id])
        return _or_none(column, np.require(values, requirements="A").data.__getitem__)
    return lambda row: column[row].as_py()


def _or_none(column: pa.Array, read: Callable[[int], Any]) -> Callable[[int], Any]:
    if not column.null_count:
        return read
    valid = is_valid(column).tobytes()
    return lambda row: read(row) if valid[row] else None
