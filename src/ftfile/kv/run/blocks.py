"""Blocks in memory: some rows of a run, as Arrow and, one by one, as values of Python; and rows gathered from many."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.kv.key_columns import is_byte_key, stored_reader
from ftfile.rows.buffers import from_numpy, is_valid, string_parts, strings_from, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Key = tuple[Any, ...]
    Values = tuple[Any, ...]
    _Read = Callable[[int], Any]
    Numbers = NDArray[np.int64]


# What the objects of a block or a page take whose bytes lie in a mapped file.
MAPPED_BYTES = 4 << 10

_NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
_DTYPES = {kind.id: f"<{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}" for kind in _NUMBERS}


class ByteColumn(NamedTuple):
    """Strings or binary values of a block."""

    content: memoryview  # a view of their bytes
    starts: NDArray[np.int32]  # where each begins in these, and the last one ends
    width: int | None  # of each value, if all are as long
    has_nulls: bool  # True if some are null


class NumberColumn(NamedTuple):
    """Integers or floats of a block."""

    values: NDArray[Any]  # anything where they are null
    has_nulls: bool  # True if some are null


class Block:
    """Rows of a run that were decoded together."""

    __slots__ = ("batch", "columns", "find", "size_bytes")

    def __init__(self, batch: pa.RecordBatch, key_columns: int, *, is_mapped: bool = False) -> None:
        self.batch = batch  # the rows
        self.columns = [_parts(column) for column in batch.columns]  # those of bytes and of numbers, None for others
        readers = [
            _reader(column, parts, is_key=number < key_columns)
            for number, (column, parts) in enumerate(zip(batch.columns, self.columns, strict=True))
        ]
        # Returns the columns of a row behind the key, as Arrow's `as_py` would, given the number of the row and a key
        # as stored values; None if the row has another key.
        self.find = _finder(readers[:key_columns], readers[key_columns:])
        # Of the memory that it takes, which a mapped file does not.
        self.size_bytes = MAPPED_BYTES if is_mapped else int(batch.get_total_buffer_size())


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of all batches as one."""
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return (
        whole[0] if whole else pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)
    )


def _parts(column: pa.Array) -> ByteColumn | NumberColumn | None:
    if is_byte_key(column.type):
        data = column.buffers()[2]
        starts = string_parts(column)[0]
        lengths = np.diff(starts)
        width = int(lengths[0]) if len(lengths) and (lengths == lengths[0]).all() else None
        content = memoryview(b"" if data is None else data)
        return ByteColumn(content, starts, width, bool(column.null_count))
    if column.type.id in _DTYPES:
        return NumberColumn(values_of(column, _DTYPES[column.type.id]), bool(column.null_count))
    return None


def _finder(keys: Sequence[_Read], values: Sequence[_Read]) -> Callable[[int, Key], Values | None]:
    """Return the function from a row and a key to the values of the row; None if it has another key."""
    if len(keys) > 1:

        def find_several(row: int, key: Key) -> Values | None:
            for read, part in zip(keys, key, strict=True):
                if read(row) != part:
                    return None
            return tuple([read(row) for read in values])

        return find_several
    (read_key,) = keys
    if len(values) == 1:
        (read_value,) = values

        def find_one(row: int, key: Key) -> Values | None:
            return (read_value(row),) if read_key(row) == key[0] else None

        return find_one

    def find(row: int, key: Key) -> Values | None:
        return tuple([read(row) for read in values]) if read_key(row) == key[0] else None

    return find


def _reader(column: pa.Array, parts: ByteColumn | NumberColumn | None, *, is_key: bool) -> _Read:
    if isinstance(parts, ByteColumn):
        return _byte_reader(column, parts, is_text=pa.types.is_string(column.type) and not is_key)
    if is_key:
        return stored_reader(column)
    if parts is not None:
        return _or_none(column, np.require(parts.values, requirements="A").data.__getitem__)
    return lambda row: column[row].as_py()


def _byte_reader(column: pa.Array, parts: ByteColumn, *, is_text: bool) -> _Read:
    content, width = parts.content, parts.width
    if width is not None and not is_text and not parts.has_nulls:
        first = int(parts.starts[0])
        return lambda row: content[first + row * width : first + row * width + width].tobytes()
    offsets = memoryview(column.buffers()[1]).cast("B").cast("i")[column.offset : column.offset + len(column) + 1]
    if is_text:
        return _or_none(column, lambda row: str(content[offsets[row] : offsets[row + 1]], "utf-8"))
    return _or_none(column, lambda row: content[offsets[row] : offsets[row + 1]].tobytes())


def _or_none(column: pa.Array, read: Callable[[int], Any]) -> Callable[[int], Any]:
    if not column.null_count:
        return read
    valid = is_valid(column).tobytes()
    return lambda row: read(row) if valid[row] else None


COLUMN_BYTES_MAX = (1 << 31) - 1  # of strings, whose offsets are of 32 bits
# Longer values lie in a buffer of their own in an array of views, shorter ones in the view itself.
_INLINE_BYTES_MAX = 12
_VIEW = np.dtype([("length", "<i4"), ("prefix", "<i4"), ("buffer", "<i4"), ("offset", "<i4")])


class TooManyBytes(Exception):
    """Rows have more bytes in a column than one batch can: take fewer."""


def gathered(blocks: Sequence[Block], ends: Sequence[int], rows: Numbers, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of at least one block as one batch, or raise `TooManyBytes`.

    Rows are numbers within their blocks, those of the first block first; `ends` has the place behind those of each.
    """
    bounds = [*pairwise([0, *ends])]
    columns = [_column(blocks, bounds, rows, place, field.type) for place, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(
    blocks: Sequence[Block], bounds: Sequence[tuple[int, int]], rows: Numbers, place: int, kind: pa.DataType
) -> pa.Array:
    parts = [block.columns[place] for block in blocks]
    if any(part is None or part.has_nulls for part in parts):
        pieces = [
            block.batch.column(place).take(from_numpy(rows[start:end], pa.int64()))
            for block, (start, end) in zip(blocks, bounds, strict=True)
        ]
        return pa.concat_arrays(pieces)
    if not is_byte_key(kind):
        numbers: Any = parts
        return _number_column(numbers, bounds, rows, kind)
    texts: Any = parts
    return _byte_column(texts, bounds, rows, kind)


def _number_column(
    parts: Sequence[NumberColumn], bounds: Sequence[tuple[int, int]], rows: Numbers, kind: pa.DataType
) -> pa.Array:
    values = np.empty(len(rows), parts[0].values.dtype)
    for part, (start, end) in zip(parts, bounds, strict=True):
        values[start:end] = part.values[rows[start:end]]
    return from_numpy(values, kind)


def _byte_column(
    parts: Sequence[ByteColumn], bounds: Sequence[tuple[int, int]], rows: Numbers, kind: pa.DataType
) -> pa.Array:
    counts = [end - start for start, end in bounds]
    if all(part.width is not None for part in parts):
        lengths = np.repeat([part.width or 0 for part in parts], counts)
        starts = np.repeat([int(part.starts[0]) for part in parts], counts) + rows * lengths
    else:
        starts, lengths = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        for part, (start, end) in zip(parts, bounds, strict=True):
            part_rows = rows[start:end]
            starts[start:end] = part.starts[part_rows]
            lengths[start:end] = part.starts[part_rows + 1]
            lengths[start:end] -= starts[start:end]
    if lengths.sum() > COLUMN_BYTES_MAX:
        raise TooManyBytes
    if lengths.min() <= _INLINE_BYTES_MAX:
        pairs = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
        data = b"".join(
            [
                part.content[low:high]
                for part, (start, end) in zip(parts, bounds, strict=True)
                for low, high in pairs[start:end]
            ]
        )
        return strings_from(np.append(0, np.cumsum(lengths)), np.frombuffer(data, np.uint8), kind)
    views = np.zeros(len(rows), _VIEW)
    views["length"], views["offset"] = lengths, starts
    views["buffer"] = np.repeat(np.arange(len(parts)), counts)
    buffers = [pa.py_buffer(part.content) for part in parts]
    # Their prefixes, which nothing looks at here, stay empty.
    view = pa.string_view() if pa.types.is_string(kind) else pa.binary_view()
    return pa.Array.from_buffers(view, len(rows), [None, pa.py_buffer(views), *buffers]).cast(kind)
