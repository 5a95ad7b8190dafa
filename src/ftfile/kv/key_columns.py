"""Keys as tuples that compare in row order, with their JSON, their columns, and ranges of them.

A key is a tuple with one stored value for each key column: the bytes of strings and binaries, the days of a date, the
microseconds of a timestamp, the unscaled integer of a decimal, and integers and booleans unchanged. The bytes of a
string are UTF-8, or other bytes if Spark stored them. Tuples compare in the order of the rows of a run. A shorter tuple
is a prefix, and sorts before all keys that begin with it.

A range, as in a purge, includes its start and excludes its end. Both may be prefixes. The empty prefix sorts before all
keys; None as the end is after all keys.
"""

from __future__ import annotations

import base64
import decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import bools_from, from_numpy, string_parts, strings_from, text_scalar, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


Key = tuple[int | bytes, ...]
KeyRange = tuple[Key, Key | None]
PRECISION_MAX = 18  # of decimals whose unscaled integer has 64 bits
_INT_BITS = 32
_RANK_BYTES = 8
# By number of bytes of a value: clears the bytes that follow a short value, which belong to the next value.
_RANK_MASKS = np.array([(1 << 64) - (1 << 8 * (_RANK_BYTES - length)) for length in range(_RANK_BYTES + 1)], np.uint64)


def is_key_type(arrow: pa.DataType) -> bool:
    """Return True for the types that a key column can have."""
    if pa.types.is_decimal128(arrow):
        return bool(arrow.precision <= PRECISION_MAX)
    if pa.types.is_timestamp(arrow):
        return bool(arrow.unit == "us")
    return bool(
        pa.types.is_signed_integer(arrow)
        or pa.types.is_boolean(arrow)
        or pa.types.is_date32(arrow)
        or pa.types.is_string(arrow)
        or pa.types.is_binary(arrow)
    )


def encode_key(key: Key) -> list[Any]:
    """Return a key, or a prefix of a key, as plain JSON: bytes in base64, other values unchanged."""
    text: list[Any] = []
    for value in key:
        text.append(base64.b64encode(value).decode() if isinstance(value, bytes) else value)
    return text


def decode_key(text: Sequence[Any]) -> Key:
    """Return the key from `encode_key`; raise a ValueError for other input."""
    key = []
    for value in text:
        key.append(base64.b64decode(value, validate=True) if isinstance(value, str) else value)
    if not all(isinstance(value, int | bytes) for value in key):
        raise ValueError(f"a key has {tuple(key)!r:.80}")
    return tuple(key)


def check_key(key: Key, kinds: Sequence[pa.DataType]) -> None:
    """Raise a ValueError unless a key, or a prefix of a key, has stored values of its columns' types."""
    if len(key) > len(kinds):
        raise ValueError(f"a key has {len(key)} values, and the store has {len(kinds)} key columns")
    for value, kind in zip(key, kinds, strict=False):
        if isinstance(value, bytes) is not is_byte_key(kind):
            raise ValueError(f"a key has {value!r:.80}, and its column is {kind}")
        if isinstance(value, int) and not _least_of(kind) <= value <= _greatest_of(kind):
            raise ValueError(f"a key has {value}, out of range for its column of type {kind}")


def to_scalar(value: int | bytes, arrow: pa.DataType) -> pa.Scalar:
    """Return the value of a key column as an Arrow scalar."""
    if isinstance(value, bytes):
        return text_scalar(value, arrow)
    if pa.types.is_decimal(arrow):
        return pa.scalar(decimal.Decimal(value).scaleb(-arrow.scale), arrow)
    return pa.scalar(bool(value) if pa.types.is_boolean(arrow) else value, arrow)


def text_of_value(value: pa.Scalar) -> str:
    """Return a value of a key column for an error, even if Python cannot represent it."""
    try:
        return repr(value.as_py())
    except OverflowError:  # a date or a timestamp
        return str(value.cast(pa.string()))
    except UnicodeDecodeError:
        return repr(value.as_buffer().to_pybytes())


def is_byte_key(kind: pa.DataType) -> bool:
    """Return True for the types whose stored values are bytes: string and binary."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def is_hashed_as_int(kind: pa.DataType) -> bool:
    """Return True for types of at most 32 bits, which Spark hashes as an int; it hashes wider ones as a long."""
    return not pa.types.is_decimal128(kind) and bool(kind.bit_width <= _INT_BITS)


def key_integers(array: pa.Array) -> NDArray[np.signedinteger[Any]]:
    """Return the stored values of a key column that is neither string nor binary; undefined at nulls."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return values_of(array.cast(pa.uint8()), np.int8)
    if pa.types.is_decimal128(kind):
        if not len(array):
            return np.empty(0, np.int64)
        # The lower half contains all 18 digits, and the sign.
        return np.frombuffer(array.buffers()[1], "<i8", 2 * len(array), 16 * array.offset)[::2]
    return values_of(array, f"<i{kind.bit_width // 8}")


def key_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return stored values as a key column of a type."""
    if is_byte_key(kind):
        offsets = np.cumsum([0, *map(len, values)])
        if offsets[-1] >> 31:  # where a column of strings ends
            raise ConfigError(f"keys of {offsets[-1]} bytes are too many for one call: give fewer keys")
        return strings_from(offsets, np.frombuffer(b"".join(values), np.uint8), kind)
    if pa.types.is_boolean(kind):
        return bools_from(np.array(values, np.bool_))
    if pa.types.is_decimal128(kind):
        halves = np.array(values, np.int64)
        return from_numpy(np.column_stack([halves, halves >> 63]), kind)
    return from_numpy(np.array(values, f"<i{kind.bit_width // 8}"), kind)


def bools_of(array: pa.Array) -> NDArray[np.bool_]:
    """Return the values of a boolean column; undefined at nulls."""
    return values_of(array.cast(pa.uint8()), np.bool_)


class StoredKeys:
    """The keys of rows with at least one key column; the columns contain no nulls."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        # Items of a memoryview are Python ints; unaligned buffers do not support item access.
        self._columns: list[Any] = []
        for column in columns:
            if is_byte_key(column.type):
                self._columns.append(_Strings(column))
            else:
                self._columns.append(np.require(key_integers(column), requirements=["C", "A"]).data)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, row: int) -> Key:
        return tuple([column[row] for column in self._columns])


class _Strings:
    """The values of a column of strings or binaries, as bytes."""

    __slots__ = ("_content", "_ends", "_starts")

    def __init__(self, column: pa.Array) -> None:
        _, starts, data = column.buffers()
        offsets = memoryview(starts or bytes(4)).cast("B").cast("i")
        first, end = column.offset, column.offset + len(column)
        self._starts, self._ends = offsets[first:end], offsets[first + 1 : end + 1]
        self._content = memoryview(data or b"")

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> bytes:
        return bytes(self._content[self._starts[row] : self._ends[row]])


def sorted_by(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows sorted by columns with arbitrary names."""
    return rows.take(from_numpy(order_of(arrays_named(rows, names)), pa.int64()))


def key_scalars(key: Key, kinds: Sequence[pa.DataType]) -> list[pa.Scalar]:
    """Return the values of a key, or of a prefix of a key, whose columns have these types."""
    scalars = []
    for value, kind in zip(key, kinds, strict=False):
        scalars.append(to_scalar(value, kind))
    return scalars


def arrays_named(rows: pa.Table, names: Iterable[str]) -> list[pa.Array]:
    """Return columns by name, each as one array."""
    return [rows[name].combine_chunks() for name in names]


def arrays_of(keys: Sequence[Key], kinds: Iterable[pa.DataType]) -> list[pa.Array]:
    """Return stored keys as columns of these types."""
    arrays = []
    for place, kind in enumerate(kinds):
        arrays.append(key_array([key[place] for key in keys], kind))
    return arrays


def order_of(columns: Sequence[pa.Array]) -> NDArray[np.int64]:
    """Return the row numbers sorted by columns without nulls; the sort is stable.

    Sorts by 64 bits of each value if these distinguish all values, which halves the time for sorted input.
    """
    if all(is_key_type(column.type) for column in columns):
        ranks: list[NDArray[Any]] = []
        for column in columns:
            ranks.append(_first_bytes(column) if is_byte_key(column.type) else key_integers(column))
        order: NDArray[np.int64] = np.lexsort(ranks[::-1]) if len(ranks) > 1 else np.argsort(ranks[0], kind="stable")
        if _tell_apart(ranks, columns, order):
            return order
    names = numbered_names(len(columns) + 1)
    rows = pa.table([*columns, from_numpy(np.arange(len(columns[0])), pa.int64())], names=names)
    return values_of(pc.sort_indices(rows, [(name, "ascending") for name in names]), np.uint64).astype(np.int64)


def numbered_names(count: int) -> list[str]:
    """Return column names that Arrow accepts where it expects the path of a field; `.a` is such a path."""
    return [*map(str, range(count))]


def _tell_apart(ranks: Sequence[NDArray[Any]], columns: Sequence[pa.Array], order: NDArray[np.int64]) -> bool:
    """Return True if adjacent rows of an order with equal ranks are equal."""
    is_same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column, column_ranks in zip(columns, ranks, strict=True):
        in_order = column_ranks[order]
        is_same &= in_order[1:] == in_order[:-1]
        if is_byte_key(column.type) and is_same.any():
            places = np.flatnonzero(is_same)
            rows = column.take(from_numpy(order[places], pa.int64()))
            if not rows.equals(column.take(from_numpy(order[places + 1], pa.int64()))):
                return False
    return True


def _common_bytes(one: bytes, other: bytes) -> int:
    """Return the number of bytes of the common prefix."""
    length = min(len(one), len(other))
    for place in range(length):
        if one[place] != other[place]:
            return place
    return length


def _first_bytes(column: pa.Array) -> NDArray[np.uint64]:
    """Return eight bytes of each value as an integer, after the common prefix of all values, padded with zeros."""
    if not len(column):
        return np.empty(0, np.uint64)
    offsets, content = string_parts(column)
    ends = pc.min_max(column.cast(pa.binary())).as_py()
    alike = _common_bytes(ends["min"], ends["max"])
    padded = np.concatenate([content[offsets[0] : offsets[-1]], np.zeros(_RANK_BYTES, np.uint8)])
    starts = offsets[:-1] - offsets[0] + alike
    first = np.lib.stride_tricks.sliding_window_view(padded, _RANK_BYTES)[starts]
    lengths = np.minimum(np.diff(offsets) - alike, _RANK_BYTES)
    ranks: NDArray[np.uint64] = np.ascontiguousarray(first).view(">u8").ravel().astype(np.uint64)
    ranks &= _RANK_MASKS[lengths]
    return ranks


def first_fall(columns: Sequence[pa.Array]) -> int | None:
    """Return the first row whose key is not less than the key of the next row; None if keys ascend strictly."""
    if len(columns[0]) <= 1:
        return None
    rises: NDArray[np.bool_] | None = None
    for column in reversed(columns):
        before, behind = column.slice(0, len(column) - 1), column.slice(1)
        if is_byte_key(column.type):
            less = bools_of(pc.less(before, behind))
            equal = None
            if rises is not None:
                equal = bools_of(pc.equal(before, behind))
        else:
            values = key_integers(column)
            less = values[:-1] < values[1:]
            equal = None
            if rises is not None:
                equal = values[:-1] == values[1:]
        if rises is None or equal is None:
            rises = less
        else:
            rises = less | (equal & rises)
    if rises is None or rises.all():
        return None
    return int(np.argmin(rises))


def union(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Return the union of ranges as the fewest ranges, in order, without empty ranges."""
    merged: list[KeyRange] = []
    for start, end in sorted(ranges, key=itemgetter(0)):
        if end is not None and end <= start:
            continue
        if merged and (merged[-1][1] is None or start <= merged[-1][1]):
            last_start, last_end = merged[-1]
            merged[-1] = (last_start, None if last_end is None or end is None else max(last_end, end))
        else:
            merged.append((start, end))
    return tuple(merged)


def clip(ranges: Iterable[KeyRange], start: Key = (), end: Key | None = None) -> tuple[KeyRange, ...]:
    """Return the intersection of ranges with the range from `start` to `end`, in the form of `union`."""
    clipped: list[KeyRange] = []
    for range_start, range_end in ranges:
        next_end = range_end
        if range_end is None or (end is not None and end < range_end):
            next_end = end
        clipped.append((max(range_start, start), next_end))
    return union(clipped)


def overlap(ranges: Iterable[KeyRange], first: Key, last: Key) -> bool:
    """Return True if a range contains a key from `first` to `last`, both inclusive."""
    return any(start <= last and (end is None or first < end) for start, end in ranges)


def contain(ranges: Iterable[KeyRange], columns: Sequence[pa.Array]) -> NDArray[np.bool_]:
    """Return for each row whether one of the ranges contains its key; `columns` are the key columns."""
    flags = np.zeros(len(columns[0]), np.bool_)
    for start, end in ranges:
        inside = _reach(columns, start)
        flags |= inside if end is None else inside & ~_reach(columns, end)
    return flags


def key_behind(prefix: Key, kinds: Sequence[pa.DataType]) -> Key | None:
    """Return the exclusive end of the keys that begin with a prefix or sort before it; None if no key is greater."""
    for place in reversed(range(len(prefix))):
        value = prefix[place]
        if isinstance(value, bytes):
            return (*prefix[:place], value + b"\0")
        if value < _greatest_of(kinds[place]):
            return (*prefix[:place], value + 1)
    return None


def encode_ranges(ranges: Iterable[KeyRange]) -> list[Any]:
    """Return ranges as plain JSON."""
    text: list[Any] = []
    for start, end in ranges:
        text.append([encode_key(start), None if end is None else encode_key(end)])
    return text


def decode_ranges(text: Iterable[Sequence[Any]]) -> tuple[KeyRange, ...]:
    """Return the ranges from `encode_ranges`."""
    ranges = []
    for start, end in text:
        ranges.append((decode_key(start), None if end is None else decode_key(end)))
    return tuple(ranges)


def check_ranges(ranges: Iterable[KeyRange], kinds: Sequence[pa.DataType]) -> None:
    """Raise a ValueError for a bound of ranges that key columns of these types cannot have."""
    for start, end in ranges:
        check_key(start, kinds)
        check_key(end or (), kinds)


def _greatest_of(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return int(10**kind.precision) - 1
    return int(pa.types.is_boolean(kind)) or (1 << kind.bit_width - 1) - 1


def _least_of(kind: pa.DataType) -> int:
    if pa.types.is_boolean(kind):
        return 0
    return -_greatest_of(kind) - (not pa.types.is_decimal(kind))


def _reach(columns: Sequence[pa.Array], bound: Key) -> NDArray[np.bool_]:
    """Return for each row whether its key is equal to the bound, begins with it, or sorts after it."""
    reached = np.ones(len(columns[0]), np.bool_)
    for column, value in reversed(list(zip(columns, bound, strict=False))):
        scalar = to_scalar(value, column.type)
        is_equal, is_greater = bools_of(pc.equal(column, scalar)), bools_of(pc.greater(column, scalar))
        reached = is_greater | (is_equal & reached)
    return reached
