"""Conversions between NumPy and Arrow without a copy and without pandas.

`pa.array`, `pa.scalar`, `to_numpy` and every kernel with a Python value as argument import pandas if it is installed,
which takes 300 ms in a new worker (pyarrow 26). Code that writes the first rows of a worker uses these functions
instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import DTypeLike, NDArray


_BYTE_LIKE = {kind.id for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())}
_LIST_LIKE = {kind.id for kind in (pa.list_(pa.null()), pa.large_list(pa.null()), pa.list_(pa.null(), 1))}
_NAN_BITS = {2: 0x7E00, 4: 0x7FC0_0000, 8: 0x7FF8_0000_0000_0000}
_LIMB = np.uint64(0x9E37_79B9_7F4A_7C15)
_BYTES_MAX = 10  # of a variable-length number


def values_of(array: pa.Array, dtype: DTypeLike) -> NDArray[Any]:
    """Return the values of a fixed-width column as a view; they are undefined where it is null."""
    return _items(array.buffers()[1], np.dtype(dtype), array.offset, len(array))


def is_valid(array: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of the values that are not null."""
    bitmap = array.buffers()[0]
    if bitmap is None or not array.null_count:
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def string_parts(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return offsets and bytes of a string or binary column as views; they are undefined where it is null."""
    _, offsets, data = array.buffers()
    # A column without values can have an empty offset buffer.
    if len(array):
        starts = _items(offsets, np.dtype(np.int32), array.offset, len(array) + 1)
    else:
        starts = np.zeros(1, np.int32)
    return starts, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def _items(buffer: pa.Buffer, dtype: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
    # A buffer can end with padding; a column without values can have no buffer.
    if count:
        return np.frombuffer(buffer, dtype, count, start * dtype.itemsize)
    return np.empty(0, dtype)


def from_numpy(values: NDArray[Any], arrow: pa.DataType, valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return values as a column of a type with the same representation, null where they are not valid."""
    if valid is None:
        bitmap = None
    else:
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(arrow, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))])


def bools_from(values: NDArray[np.bool_]) -> pa.Array:
    """Return a column of booleans without nulls."""
    bitmap = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bitmap])


def numbers_from(values: NDArray[np.integer]) -> pa.Array:
    """Return integers as a column of 64 bits without nulls, such as row numbers for `take`."""
    return from_numpy(values.astype(np.int64, copy=False), pa.int64())


def strings_from(
    offsets: NDArray[np.integer], data: NDArray[np.uint8], arrow: pa.DataType, valid: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return a column of strings or binary values, given their offsets in `data`."""
    if valid is None:
        bitmap = None
    else:
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(arrow, len(offsets) - 1, buffers)


def from_texts(texts: Sequence[str | bytes], arrow: pa.DataType) -> pa.Array:
    """Return a column of a few strings or binary values."""
    encoded = [_encode_text(text) for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    return strings_from(offsets, np.frombuffer(b"".join(encoded), np.uint8), arrow)


def _encode_text(text: str | bytes) -> bytes:
    if isinstance(text, str):
        return text.encode()
    return text


def text_scalar(text: str | bytes, arrow: pa.DataType) -> pa.Scalar:
    """Return a scalar for a kernel."""
    return from_texts([text], arrow)[0]


def rows_where(batch: pa.RecordBatch, mask: NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows of a batch that a mask selects."""
    return batch.take(from_numpy(np.flatnonzero(mask), pa.int64()))


def to_plain(array: pa.Array) -> pa.Array:
    """Return the same values without dictionaries and extension types, and maps as lists of entries."""
    if isinstance(array, pa.ExtensionArray):
        return to_plain(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return to_plain(array.dictionary_decode())
    if isinstance(array, pa.MapArray):
        return array.view(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    return array


def is_byte_like(kind: pa.DataType) -> bool:
    """Return True if values are strings or binary of variable length."""
    return kind.id in _BYTE_LIKE


def is_list_like(kind: pa.DataType) -> bool:
    """Return True if values are lists."""
    return kind.id in _LIST_LIKE


def fixed_words(array: pa.Array, column: str) -> NDArray[np.uint64]:
    """Return one word for each value of a fixed-width type; undefined for nulls.

    Integers are sign-extended. A float is its bits, all NaN are equal, and -0.0 differs from 0.0. Wider values are the
    sum of their 64-bit limbs, weighted by powers of an odd constant.
    """
    kind = array.type
    if pa.types.is_boolean(kind):
        return fixed_words(array.cast(pa.uint8()), column)
    width_bytes = _width_bytes(kind)
    if width_bytes not in {1, 2, 4, 8, 16, 32}:
        raise SchemaError(f"column {column!r}: no fingerprint for type {kind}; cast or omit the column")
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), np.uint64)
    if width_bytes > 8:  # noqa: PLR2004
        return _limb_sums(np.frombuffer(data, "<u8"), array.offset, len(array), width_bytes // 8)
    if pa.types.is_floating(kind):
        return _float_bits(np.frombuffer(data, f"<f{width_bytes}", len(array), array.offset * width_bytes))
    sign = "i"
    if pa.types.is_unsigned_integer(kind):
        sign = "u"
    values = np.frombuffer(data, f"<{sign}{width_bytes}", len(array), array.offset * width_bytes)
    return values.astype(np.int64, copy=False).view(np.uint64)


def _width_bytes(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0


def _float_bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    bits = values.view(f"<u{values.itemsize}")
    if np.isnan(values.max()):
        # The JVM's interpreter and its compiled code compute NaN with different signs and payloads.
        bits = np.where(np.isnan(values), np.array(_NAN_BITS[values.itemsize], bits.dtype), bits)
    return bits.astype(np.uint64, copy=False)


def _limb_sums(buffer: NDArray[np.uint64], offset: int, count: int, limbs: int) -> NDArray[np.uint64]:
    words = buffer[offset * limbs : (offset + count) * limbs].reshape(count, limbs)
    total: NDArray[np.uint64] = words[:, limbs - 1]
    for limb in range(limbs - 2, -1, -1):
        total = total * _LIMB + words[:, limb]
    return total


def byte_ranges(array: pa.Array) -> tuple[NDArray[np.int64], pa.Buffer]:
    """Return the n + 1 offsets of the values of a string or binary array, and their buffer."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int64), pa.py_buffer(b"")
    kind = np.dtype("<i8" if wide else "<i4")
    values = np.frombuffer(offsets, kind, len(array) + 1, array.offset * kind.itemsize)
    return values.astype(np.int64, copy=False), pa.py_buffer(b"") if data is None else data


def list_lengths(array: pa.Array) -> NDArray[np.int64]:
    """Return the number of elements of each list, 0 for a null, as in the result of `flatten()`."""
    lengths = array.value_lengths()
    counts = values_of(lengths, np.int64 if pa.types.is_int64(lengths.type) else np.int32)
    return np.where(is_valid(array), counts, 0).astype(np.int64, copy=False)


def _continuation_bits(size: int) -> int:
    """Return the continuation bits of all bytes but the last of a number of `size` bytes, for the first eight bytes."""
    return 0x8080808080808080 & ((1 << 8 * max(0, size - 1)) - 1)


# By the number of bytes.
_MORE = np.array([*map(_continuation_bits, range(_BYTES_MAX + 1))], np.uint64)


def zigzag(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return numbers in zigzag encoding, as in Avro: 0, -1, 1, -2, 2 …."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint(number: int) -> bytes:
    """Return the varint of a number, which is not negative."""
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - what seven bits hold
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def read_varint(data: bytes, position: int = 0, bytes_max: int = _BYTES_MAX) -> tuple[int, int]:
    """Return the number at a position, and the position after it; `ValueError` if it has no end."""
    number = 0
    for place, byte in enumerate(data[position : position + bytes_max]):
        number |= (byte & 0x7F) << 7 * place
        if byte <= 0x7F:  # noqa: PLR2004 - the last one
            return number, position + place + 1
    raise ValueError("a number without an end")


def varints(numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Return the bytes of each number as a row, and the number of used bytes of each row."""
    sizes = np.ones(len(numbers), np.int8)
    width = 1
    if len(numbers):
        width = max(1, -(-int(numbers.max()).bit_length() // 7))
    for size in range(1, width):
        sizes += numbers >= np.uint64(1 << 7 * size)
    # Spread 56 bits over eight bytes, in three steps: halves, quarters, eighths.
    spread = (numbers & np.uint64(0x0FFFFFFF)) | (numbers & np.uint64(0x0FFFFFFF << 28)) << np.uint64(4)
    spread = (spread & np.uint64(0x00003FFF00003FFF)) | (spread & np.uint64(0x0FFFC0000FFFC000)) << np.uint64(2)
    spread = (spread & np.uint64(0x007F007F007F007F)) | (spread & np.uint64(0x3F803F803F803F80)) << np.uint64(1)
    spread |= _MORE[sizes]
    low = spread.view(np.uint8).reshape(-1, 8)
    if width <= 8:  # noqa: PLR2004 - bytes of 64 bits
        return low[:, :width], sizes
    encoded = np.empty((len(numbers), width), np.uint8)
    encoded[:, :8] = low
    top = numbers >> np.uint64(56)
    encoded[:, 8] = top.astype(np.uint8) & 0x7F | np.where(sizes == _BYTES_MAX, 0x80, 0).astype(np.uint8)
    if width == _BYTES_MAX:
        encoded[:, 9] = (top >> np.uint64(7)).astype(np.uint8)
    return encoded, sizes


def ragged(matrix: NDArray[np.uint8], sizes: NDArray[np.integer]) -> pa.BinaryArray:
    """Return a binary column of the first bytes of each row, given their number."""
    width = matrix.shape[1]
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    whole = offsets[-1] == width * len(sizes)
    if whole:
        data = matrix.reshape(-1)
    else:
        data = matrix[np.arange(width) < sizes[:, None]]
    return strings_from(offsets, data, pa.binary())


def leaf_types(arrow: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of leaves, from left to right."""
    if pa.types.is_nested(arrow):
        for index in range(arrow.num_fields):
            yield from leaf_types(arrow.field(index).type)
    else:
        yield arrow


def field_names(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the names of fields, with the names of nested fields."""
    for field in fields:
        yield field.name
        if pa.types.is_nested(field.type):
            yield from field_names(field.type.field(index) for index in range(field.type.num_fields))


def map_leaf_types(arrow: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type of the same shape with other leaves; every value except for map keys is nullable."""
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(field.name, map_leaf_types(field.type, leaf)) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(pa.field("element", map_leaf_types(arrow.value_type, leaf)))
    if pa.types.is_map(arrow):
        return pa.map_(map_leaf_types(arrow.key_type, leaf), map_leaf_types(arrow.item_type, leaf))
    return leaf(arrow)


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of leaves, and each map before its keys and values, limited to the rows of `array`."""
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from leaves(child)
    elif pa.types.is_list(array.type):
        yield from leaves(array.flatten())
    elif pa.types.is_map(array.type):
        yield array
        for child in map_entries(array).flatten():
            yield from leaves(child)
    else:
        yield array


def map_entries(array: pa.MapArray) -> pa.StructArray:
    """Return keys and values of all rows, concatenated."""
    return _as_list(array).flatten()


def _as_list(array: pa.Array) -> pa.ListArray:
    if not pa.types.is_map(array.type):
        return array
    # pyarrow 26 has no kernel that flattens a map, and `keys` ignore slicing; a list of entries has the same memory.
    entry = pa.struct([pa.field("key", array.type.key_type, nullable=False), pa.field("value", array.type.item_type)])
    return array.cast(pa.list_(entry))


def list_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return offsets that start at 0, null for null rows, and the values that they refer to; maps return entries."""
    lists, valid = _as_list(array), is_valid(array)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(np.where(valid, values_of(lists.value_lengths(), np.int32), 0), out=offsets[1:])
    return from_numpy(offsets, pa.int32(), np.append(valid, True) if array.null_count else None), lists.flatten()


def _nesting(arrow: pa.DataType) -> str:
    if pa.types.is_struct(arrow):
        return "struct"
    if pa.types.is_nested(arrow):
        return "list"
    return "value"


def rebuild(array: pa.Array, target: pa.DataType, leaf: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """Return `array` as `target`: struct fields are matched by name, missing ones are null, `leaf` converts leaves.

    It raises pyarrow.ArrowTypeError if one type has lists where the other has structs or values.
    """
    if pa.types.is_nested(target) and _nesting(array.type) != _nesting(target):
        raise pa.ArrowTypeError(f"{array.type} is no {target}")
    if pa.types.is_struct(target):
        children = {field.name: child for field, child in zip(array.type, array.flatten(), strict=True)}
        rebuilt = []
        for field in target:
            if field.name in children:
                rebuilt.append(rebuild(children[field.name], field.type, leaf))
            else:
                rebuilt.append(pa.nulls(len(array), field.type))
        return pa.StructArray.from_arrays(rebuilt, fields=list(target), mask=array.is_null())
    if pa.types.is_list(target):
        offsets, values = list_parts(array)
        return pa.ListArray.from_arrays(offsets, rebuild(values, target.value_type, leaf), type=target)
    if pa.types.is_map(target):
        offsets, entries = list_parts(array)
        keys, items = entries.flatten()
        keys, items = rebuild(keys, target.key_type, leaf), rebuild(items, target.item_type, leaf)
        return pa.MapArray.from_arrays(offsets, keys, items, type=target)
    return leaf(array, target)
