"""A block of rows as bytes, stored by column, whose single values can be read without Arrow.

`docs/internals/format.md` describes the bytes. A column has one or more buffers: first its validity, last the buffers
of its nested columns. `block_batch.py` decodes several blocks at once.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.errors import CorruptData, EncodingError, SchemaError
from ftfile.kv.key_columns import is_byte_key
from ftfile.rows.buffers import is_valid, string_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Key = tuple[Any, ...]
    Values = tuple[Any, ...]
    Buffer = bytes | memoryview
    Numbers = NDArray[np.int64]


ALIGNMENT = 8  # of the length of a block
START_BYTES = 4
_NESTED_LEVELS_MAX = 64  # a map counts as two levels
BLOCK_BYTES_MAX = 0x7E00_0000  # maximum that LZ4 can compress in one call


class Column(NamedTuple):
    """The position of the buffers of a column, or of a nested column, among the buffers of a block."""

    kind: pa.DataType
    form: Literal["fixed", "bytes", "list", "struct"]
    first: int  # index of its validity buffer
    end: int  # index after its last buffer, which includes nested columns
    width: int  # bytes of a value; 0 for a variable length
    children: tuple[Column, ...]  # nested columns: the items of a list, a struct of key and value of a map


class Layout(NamedTuple):
    """The columns of a block, and the position of its buffers."""

    schema: pa.Schema
    columns: tuple[Column, ...]
    head: struct.Struct  # of the bounds of all buffers: their starts, and the end of the last


@dataclass(slots=True)
class Block:
    """The bytes of a checked block, from which single values are read.

    Attribute access of slots is faster than of named tuples.
    """

    data: Buffer
    bounds: tuple[int, ...]  # start of each buffer in the data, and the end of the last
    rows: int  # number of rows


def layout_of(schema: pa.Schema) -> Layout:
    """Return the layout of blocks whose rows have a schema; SchemaError if columns are nested too deeply."""
    columns, first = [], 0
    for kind in schema.types:
        columns.append(_column_of(kind, first))
        first = columns[-1].end
    return Layout(schema, tuple(columns), struct.Struct(f"<{first + 1}I"))


def _column_of(kind: pa.DataType, first: int, depth: int = 0) -> Column:
    if is_byte_key(kind):
        return Column(kind, "bytes", first=first, end=first + 3, width=0, children=())
    if not pa.types.is_nested(kind):
        if pa.types.is_boolean(kind):
            width = 1
        else:
            width = kind.bit_width // 8
        return Column(kind, "fixed", first=first, end=first + 2, width=width, children=())
    if depth == _NESTED_LEVELS_MAX:
        raise SchemaError(f"the schema cannot be stored: its columns are nested more than {_NESTED_LEVELS_MAX} levels")
    is_struct = pa.types.is_struct(kind)
    if pa.types.is_map(kind):
        child_kinds = [pa.struct([kind.key_field, kind.item_field])]
    elif is_struct:
        child_kinds = [field.type for field in kind]
    else:
        child_kinds = [kind.value_type]
    children: list[Column] = []
    end = first + (1 if is_struct else 2)
    for child_kind in child_kinds:
        children.append(_column_of(child_kind, end, depth + 1))
        end = children[-1].end
    return Column(kind, "struct" if is_struct else "list", first=first, end=end, width=0, children=tuple(children))


def encode_block(rows: pa.RecordBatch, layout: Layout) -> bytes:
    """Return all rows as the bytes of a block; EncodingError if they exceed the maximum size of a block."""
    return encode_blocks(rows, [0, rows.num_rows], layout)[0]


def encode_blocks(rows: pa.RecordBatch, cuts: Sequence[int], layout: Layout) -> list[bytes]:
    """Return the bytes of one block for the rows between each two cuts; EncodingError as `encode_block`."""
    buffers: list[list[Buffer]] = []
    for array, column in zip(rows.columns, layout.columns, strict=True):
        _append_buffers(array, column, np.asarray(cuts), buffers)
    return [_join_buffers(parts, layout) for parts in zip(*buffers, strict=True)]


def _join_buffers(buffers: Sequence[Buffer], layout: Layout) -> bytes:
    bounds = [*accumulate(map(len, buffers), initial=layout.head.size)]
    if bounds[-1] > BLOCK_BYTES_MAX:
        raise EncodingError(f"rows of {bounds[-1]} bytes are too many for one block")
    return b"".join((layout.head.pack(*bounds), *buffers, bytes(-bounds[-1] % ALIGNMENT)))


def _append_buffers(array: pa.Array, column: Column, cuts: Numbers, buffers: list[list[Buffer]]) -> None:
    """Append each buffer of a column as a list with its part for each block; `cuts` are the blocks' row bounds."""
    bounds = [*pairwise(cuts.tolist())]
    buffers.append(_validities(array, bounds, is_needed=column.first + 1 == column.end))
    if column.form == "struct":
        for number, child in enumerate(column.children):
            _append_buffers(array.field(number), child, cuts, buffers)
    elif column.form == "fixed":
        content, width = _value_bytes(array, column.width), column.width
        buffers.append([content[width * start : width * end] for start, end in bounds])
    elif column.form == "bytes":
        starts, data = string_parts(array)
        buffers.append(_byte_starts(starts, bounds))
        ends, content = starts[cuts].tolist(), data.data
        buffers.append([content[start:end] for start, end in pairwise(ends)])
    else:
        starts = np.zeros(1, np.int32)
        if len(array):
            starts = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * START_BYTES)
        buffers.append([_shift_starts(starts, start, end) for start, end in bounds])
        items = array.values
        if pa.types.is_map(array.type):
            items = pa.StructArray.from_arrays([array.keys, array.items], fields=[*column.children[0].kind])
        first = int(starts[0])
        items = items.slice(first, int(starts[-1]) - first)
        _append_buffers(items, column.children[0], starts[cuts].astype(np.int64) - first, buffers)


def _validities(array: pa.Array, bounds: Sequence[tuple[int, int]], *, is_needed: bool) -> list[Buffer]:
    """Return the validity of each block: empty without nulls, unless only the validity defines the number of values."""
    if not array.null_count and not is_needed:
        return [b""] * len(bounds)
    valid = is_valid(array)
    validities: list[Buffer] = []
    for start, end in bounds:
        if valid[start:end].all() and not is_needed:
            validities.append(b"")
        else:
            validities.append(valid[start:end].tobytes())
    return validities


def _value_bytes(array: pa.Array, width: int) -> memoryview:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if len(array):
        return memoryview(array.buffers()[1] or b"").cast("B")[array.offset * width :]
    return memoryview(b"")


def _byte_starts(starts: NDArray[np.int32], bounds: Sequence[tuple[int, int]]) -> list[Buffer]:
    """Return the starts of each block; empty if all values have the same length, which is not 0.

    For empty values, starts are stored, so that the bytes of a block always bound the number of values.
    """
    lengths = np.diff(starts)
    if len(lengths) and lengths[0] and (lengths == lengths[0]).all():
        return [b"" if start < end else bytes(START_BYTES) for start, end in bounds]
    blocks_starts: list[Buffer] = []
    for start, end in bounds:
        if start < end and lengths[start] and (lengths[start:end] == lengths[start]).all():
            blocks_starts.append(b"")
        else:
            blocks_starts.append(_shift_starts(starts, start, end))
    return blocks_starts


def _shift_starts(starts: NDArray[np.int32], start: int, end: int) -> bytes:
    return bytes((starts[start : end + 1] - starts[start]).astype("<u4"))


def open_block(data: Buffer, rows: int, layout: Layout, path: str, number: int) -> Block:
    """Return a block of a run; CorruptData if a value lies outside of its buffer."""
    if len(data) < layout.head.size:
        raise CorruptData(path, f"in block {number} the bounds of its buffers", f"{len(data)} bytes")
    bounds: tuple[int, ...] = layout.head.unpack_from(data)
    is_inside = bounds[0] == layout.head.size and max(bounds) == bounds[-1]
    if not (is_inside and 0 <= len(data) - bounds[-1] < ALIGNMENT):
        raise CorruptData(path, f"in block {number} buffers that follow each other", f"bounds {bounds!r:.200}")
    block = Block(data, bounds, rows)
    for column in layout.columns:
        if not _has_values(block, column, rows):
            raise CorruptData(path, f"in block {number} {rows} values of {column.kind}", "other buffers")
    return block


def _has_values(block: Block, column: Column, rows: int) -> bool:
    """Return True if the buffers contain a value for each row, each within its buffer."""
    bounds, first = block.bounds, column.first
    validity_bytes = bounds[first + 1] - bounds[first]
    if validity_bytes != rows and (validity_bytes or first + 1 == column.end):
        return False
    if column.form == "fixed":
        return bounds[first + 2] - bounds[first + 1] == rows * column.width
    if column.form == "struct":
        return all(_has_values(block, child, rows) for child in column.children)
    if column.form == "list":
        items = _last_start(block, first + 1, rows)
        return items is not None and _has_values(block, column.children[0], items)
    content_bytes = bounds[first + 3] - bounds[first + 2]
    if bounds[first + 1] == bounds[first + 2]:
        return content_bytes % rows == 0 < content_bytes if rows else not content_bytes
    return _last_start(block, first + 1, rows) == content_bytes


def _last_start(block: Block, buffer: int, rows: int) -> int | None:
    """Return the last number of a buffer of starts; None unless they start at 0 and do not decrease."""
    at = block.bounds[buffer]
    if block.bounds[buffer + 1] - at != START_BYTES * (rows + 1):
        return None
    starts = np.frombuffer(block.data, "<u4", rows + 1, at)
    if starts[0] or (starts[1:] < starts[:-1]).any():
        return None
    return int(starts[-1])


class RowFinder:
    """Reads the row of a key from a block; keys are stored values without nulls."""

    __slots__ = ("_key", "_keys", "_value", "_values", "find")

    def __init__(self, layout: Layout, key_columns: int) -> None:
        self._keys = [_reader(column, is_key=True).read for column in layout.columns[:key_columns]]
        self._values = [_reader(column).read for column in layout.columns[key_columns:]]
        self._key = self._keys[0]
        # Returns the non-key columns, given a block, a row number and the key; None if the row has another key.
        self.find: Callable[[Block, int, Key], Values | None] = self._find
        if len(self._keys) > 1:
            self.find = self._find_several
        elif len(self._values) == 1:
            (self._value,) = self._values
            self.find = self._find_one

    def _find_one(self, block: Block, row: int, key: Key) -> Values | None:
        if self._key(block, row) == key[0]:
            return (self._value(block, row),)
        return None

    def _find(self, block: Block, row: int, key: Key) -> Values | None:
        if self._key(block, row) == key[0]:
            return tuple([read(block, row) for read in self._values])
        return None

    def _find_several(self, block: Block, row: int, key: Key) -> Values | None:
        for read, part in zip(self._keys, key, strict=True):
            if read(block, row) != part:
                return None
        return tuple([read(block, row) for read in self._values])


def _reader(column: Column, *, is_key: bool = False) -> _ArrowReader:
    """Return the reader of a column: of stored values for a key column, else of values as from Arrow's `as_py`."""
    kind = column.kind
    if column.form == "bytes":
        return _StringReader(column, is_text=pa.types.is_string(kind) and not is_key)
    if column.form != "fixed":
        return (_ListReader if column.form == "list" else _StructReader)(column)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number or (is_key and column.width in _INTEGERS):
        return _NumberReader(column)
    if is_key:
        return _DecimalKeyReader(column)
    return _ArrowReader(column)


_INTEGERS = {1: "<b", 2: "<h", 4: "<i", 8: "<q"}
_FLOATS = {4: "<f", 8: "<d"}
_PAIR, _ROWS = struct.Struct("<II").unpack_from, struct.Struct("<I").unpack_from


class _ArrowReader:
    """Reads the values of a column; this class reads flags, dates, times and decimals."""

    def __init__(self, column: Column) -> None:
        self.kind, self.width = column.kind, column.width
        self.validity, self.values = column.first, column.first + 1

    def read(self, block: Block, row: int) -> Any:  # noqa: ANN401
        """Return the value of a row, None for null; a UnicodeDecodeError means that a string is not UTF-8."""
        data, bounds = block.data, block.bounds
        at = bounds[self.validity]
        if bounds[self.values] != at and not data[at + row]:
            return None
        at = bounds[self.values] + self.width * row
        if self.width == 1:
            return data[at] != 0
        return pa.Array.from_buffers(self.kind, 1, [None, pa.py_buffer(data[at : at + self.width])])[0].as_py()


class _NumberReader(_ArrowReader):
    def __init__(self, column: Column) -> None:
        super().__init__(column)
        formats = _INTEGERS
        if pa.types.is_floating(column.kind):
            formats = _FLOATS
        self.unpack = struct.Struct(formats[column.width]).unpack_from

    def read(self, block: Block, row: int) -> Any:  # noqa: ANN401
        data, bounds = block.data, block.bounds
        at, values = bounds[self.validity], bounds[self.values]
        if values != at and not data[at + row]:
            return None
        return self.unpack(data, values + self.width * row)[0]


class _DecimalKeyReader(_ArrowReader):
    def read(self, block: Block, row: int) -> int:
        at = block.bounds[self.values] + self.width * row
        return int.from_bytes(block.data[at : at + self.width], "little", signed=True)


class _StringReader(_ArrowReader):
    """Reads strings, and binaries and key strings as bytes."""

    def __init__(self, column: Column, *, is_text: bool) -> None:
        super().__init__(column)
        self.content, self.end, self.is_text = self.validity + 2, self.validity + 3, is_text

    def read(self, block: Block, row: int) -> Any:  # noqa: ANN401
        data, bounds = block.data, block.bounds
        at, starts, base = bounds[self.validity], bounds[self.values], bounds[self.content]
        if starts != at and not data[at + row]:
            return None
        if starts == base:
            width = (bounds[self.end] - base) // block.rows
            low = width * row
            high = low + width
        else:
            low, high = _PAIR(data, starts + START_BYTES * row)
        value = data[base + low : base + high]
        if self.is_text:
            return str(value, "utf-8")
        return bytes(value)


class _ListReader(_ArrowReader):
    """Reads lists, and maps as lists of pairs."""

    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self.read_item = _reader(column.children[0]).read

    def read(self, block: Block, row: int) -> Any:  # noqa: ANN401
        data, bounds = block.data, block.bounds
        at, starts, end = bounds[self.validity : self.validity + 3]
        if starts != at and not data[at + row]:
            return None
        low, high = _PAIR(data, starts + START_BYTES * row)
        # The last start is the number of all items.
        items = Block(data, bounds, *_ROWS(data, end - START_BYTES))
        values = [self.read_item(items, number) for number in range(low, high)]
        if pa.types.is_map(self.kind):
            return [tuple(entry.values()) for entry in values]
        return values


class _StructReader(_ArrowReader):
    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self.fields = {}
        for field, child in zip(column.kind, column.children, strict=True):
            self.fields[field.name] = _reader(child).read

    def read(self, block: Block, row: int) -> Any:  # noqa: ANN401
        data, bounds = block.data, block.bounds
        at = bounds[self.validity]
        if bounds[self.values] != at and not data[at + row]:
            return None
        return {name: read(block, row) for name, read in self.fields.items()}
