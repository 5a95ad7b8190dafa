"""A block in memory: some rows of a run, as Arrow and, one by one, as values of Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.arrays.buffers import is_valid, values_of
from ftfile.kv.key_columns import bools_of, key_reader

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
        columns = batch.columns
        self.batch = batch
        self.key = key_reader(columns[:key_columns])
        self.values = _row_reader(columns[key_columns:])

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


def _row_reader(columns: Sequence[pa.Array]) -> Callable[[int], tuple[Any, ...]]:
    readers = [_value_reader(column) for column in columns]
    if len(readers) == 1:
        (read,) = readers
        return lambda row: (read(row),)
    return lambda row: tuple([read(row) for read in readers])


def _value_reader(column: pa.Array) -> Callable[[int], Any]:
    read = _valid_reader(column)
    if not column.null_count:
        return read
    valid = is_valid(column).tobytes()
    return lambda row: read(row) if valid[row] else None


def _valid_reader(column: pa.Array) -> Callable[[int], Any]:
    kind, first, end = column.type, column.offset, column.offset + len(column)
    if kind.id in _DTYPES:
        return values_of(column, _DTYPES[kind.id]).data.__getitem__
    if pa.types.is_boolean(kind):
        flags = bools_of(column)
        return lambda row: bool(flags[row])
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return lambda row: column[row].as_py()
    _, starts, data = column.buffers()
    offsets = memoryview(starts).cast("B").cast("i")[first : end + 1]
    content = memoryview(data or b"")
    if pa.types.is_string(kind):
        return lambda row: str(content[offsets[row] : offsets[row + 1]], "utf-8")
    return lambda row: bytes(content[offsets[row] : offsets[row + 1]])
