"""The table of supported types in columnar files, the types as which they are read, and their conversions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.core.errors import SchemaError
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import rebuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    from ftfile.source.decoding.stored_times import StoredTimes

    Convert: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]


# The errors of a conversion if a value does not fit. pyarrow.ArrowInvalid is a ValueError.
MISFIT = (ValueError,)

_FLOAT_BITS, _DOUBLE_BITS = 24, 53  # bits of integers that are all exact
_INTEGER_DIGITS = 20  # digits of the greatest unsigned number
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_SMALL_UNSIGNED, _LARGE_UNSIGNED = ("UINT8", "UINT16"), ("UINT32", "UINT64")
_UNSIGNED = (*_SMALL_UNSIGNED, *_LARGE_UNSIGNED)
_FLOATS = ("FLOAT", "DOUBLE")
_WHOLE, _DECIMAL = "DECIMAL(p,0)", "DECIMAL"
_INSTANT, _WALL_CLOCK, _NANOSECONDS = "TIMESTAMP", "TIMESTAMP_NTZ", "nanoseconds"
_INSTANT_NS, _WALL_CLOCK_NS = f"{_INSTANT} in {_NANOSECONDS}", f"{_WALL_CLOCK} in {_NANOSECONDS}"
_ALL = "all"
_NOT_ORC = ("parquet", "arrow")
_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint8(): "UINT8",
    pa.uint16(): "UINT16",
    pa.uint32(): "UINT32",
    pa.uint64(): "UINT64",
    pa.float16(): "half float",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.date64(): "date in milliseconds",
}
_PLAIN_TYPES = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def _keep_same(array: pa.Array, _: pa.DataType) -> pa.Array:
    return array


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return values cast by Arrow, which raises `pyarrow.ArrowInvalid` for a value that does not fit."""
    return array.cast(target)


def _text(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return texts with validated bytes: Arrow's readers of Parquet and ORC do not validate them."""
    if pa.types.is_string(array.type):
        array.validate(full=True)
    return array.cast(target)


def _decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    # If a value with appended zeros has more than 128 bits, Arrow's direct cast can return another value (pyarrow 26).
    added = max(target.scale - array.type.scale, 0)
    return array.cast(pa.decimal256(array.type.precision + added, array.type.scale + added)).cast(target)


def _decimal_of_integer(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Arrow's direct cast needs a type that is wide enough for all integers.
    return _decimal(array.cast(pa.decimal128(_INTEGER_DIGITS, 0)), target)


def _float_of_double(array: pa.Array, target: pa.DataType) -> pa.Array:
    narrow = array.cast(target)
    is_exact = pc.or_(pc.equal(narrow.cast(array.type), array), pc.is_nan(array))
    if pc.all(is_exact).as_py() is False:
        raise ValueError("a FLOAT has not all of its digits")
    return narrow


def _floor_times(array: pa.Array, target: pa.DataType) -> pa.Array:
    # A cast would round times before 1970 toward zero. Spark rounds them down.
    return pc.floor_temporal(array, unit="microsecond").cast(target)


@dataclass(frozen=True, slots=True)
class Cast:
    """Types in files, the types as which they are read, and the values that can be read."""

    stored: tuple[str, ...]
    target: tuple[str, ...]
    values: str  # as shown in docs/reading-files.md
    convert: Convert
    formats: tuple[str, ...] = ("parquet", "orc", "arrow")


CASTS = (
    Cast(("BOOLEAN",), ("BOOLEAN",), _ALL, _keep_same),
    Cast((*_INTEGERS, *_UNSIGNED), _INTEGERS, "values in the range of the type", _cast),
    Cast(
        (*_INTEGERS, *_SMALL_UNSIGNED),
        _FLOATS,
        f"`FLOAT`: -2^{_FLOAT_BITS} to 2^{_FLOAT_BITS}; `DOUBLE`: -2^{_DOUBLE_BITS} to 2^{_DOUBLE_BITS}",
        _cast,
    ),
    Cast((*_INTEGERS, *_UNSIGNED), (_DECIMAL,), "values with room for all digits", _decimal_of_integer),
    Cast(("half float", "FLOAT"), _FLOATS, _ALL, _cast),
    Cast(("DOUBLE",), ("DOUBLE",), _ALL, _keep_same),
    Cast(("DOUBLE",), ("FLOAT",), "values that a `FLOAT` has exactly", _float_of_double),
    Cast((_DECIMAL, _WHOLE), (_DECIMAL,), "values with room for all digits", _decimal),
    Cast((_WHOLE,), _INTEGERS, "values in the range of the type", _cast),
    Cast(("STRING",), ("STRING",), "text in UTF-8", _text),
    # From ORC, Spark reads binary values as hexadecimal text.
    Cast(("BINARY",), ("STRING",), values="text in UTF-8", convert=_text, formats=_NOT_ORC),
    Cast(("STRING", "BINARY", "fixed-size binary"), ("BINARY",), _ALL, _cast),
    Cast(("DATE",), ("DATE",), _ALL, _keep_same),
    Cast(("date in milliseconds",), ("DATE",), "whole days", _cast),
    Cast(("DATE",), (_WALL_CLOCK,), values="midnight of each day", convert=_cast, formats=_NOT_ORC),
    Cast(
        (_INSTANT, _WALL_CLOCK),
        (_INSTANT, _WALL_CLOCK),
        values="all; as each other by clocks in UTC",
        convert=_cast,
        formats=_NOT_ORC,
    ),
    Cast(
        (_INSTANT_NS, _WALL_CLOCK_NS),
        (_INSTANT, _WALL_CLOCK),
        values="all, cut off to microseconds; as each other by clocks in UTC",
        convert=_floor_times,
        formats=_NOT_ORC,
    ),
    # Spark stores this type in ORC in this way.
    Cast(("BIGINT",), (_WALL_CLOCK,), values="all, as microseconds", convert=_cast, formats=("orc",)),
    Cast(
        (_INSTANT, _INSTANT_NS),
        (_INSTANT,),
        values="all, cut off to microseconds",
        convert=_floor_times,
        formats=("orc",),
    ),
    Cast(
        (_WALL_CLOCK, _WALL_CLOCK_NS),
        (_INSTANT, _WALL_CLOCK),
        values="all, cut off to microseconds",
        convert=_floor_times,
        formats=("orc",),
    ),
)

_CONVERTS: dict[tuple[str, str, str], Convert] = {}
for _cast_rule in CASTS:
    for _types in itertools.product(_cast_rule.formats, _cast_rule.stored, _cast_rule.target):
        _CONVERTS[_types] = _cast_rule.convert


def _name(kind: pa.DataType) -> str:
    """Return the name of a type in the table; for unsupported types, a name that the table does not contain."""
    if pa.types.is_decimal(kind):
        if kind.scale == 0:
            return _WHOLE
        return _DECIMAL
    if pa.types.is_timestamp(kind):
        clock = _INSTANT
        if kind.tz is None:
            clock = _WALL_CLOCK
        if kind.unit == "ns":
            return f"{clock} in {_NANOSECONDS}"
        return clock
    if pa.types.is_fixed_size_binary(kind):
        return "fixed-size binary"
    return _NAMES.get(kind, str(kind))


def convert_of(file_format: str, stored: pa.DataType, target: pa.DataType) -> Convert | None:
    """Return the conversion of a type that is not nested; None if it would change values."""
    if pa.types.is_null(stored) and not pa.types.is_nested(target):
        return _cast
    if pa.types.is_decimal(target):
        name = _DECIMAL
    else:
        name = _name(target)
    return _CONVERTS.get((file_format, _name(stored), name))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without Arrow's layouts: dictionaries, views, large types, and lists of a fixed size.

    A column of an extension type has the type of its storage. Arrow does not cast nested extension types.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_part(kind.storage_type)
    return _plain_part(kind)


def _plain_part(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_part(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_part(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_part(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_part(kind.key_type), _plain_part(kind.item_type))
    return _PLAIN_TYPES.get(kind, kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCast:
    """The conversion of one column, decided once per file."""

    file_format: str
    plain: pa.DataType  # the type in the file, from `plain_type`
    spelled: pa.DataType  # the requested type, with the spelling of fields in the file
    target: pa.DataType
    times: StoredTimes

    @classmethod
    def from_types(
        cls,
        file_format: str,
        column: str,
        stored: pa.DataType,
        target: pa.DataType,
        times: StoredTimes,
    ) -> ColumnCast:
        """Return the conversion of a column.

        Raises:
            SchemaError: the table does not contain a conversion for the types.
        """
        plain = plain_type(stored)
        spelled = _spell_type(plain, target)
        problems = [*_problems(file_format, column, stored=plain, target=spelled, times=times)]
        try:
            pa.nulls(0, stored).cast(plain)
        except pa.ArrowException:
            problems.append(f"column `{column}` is {stored} in the file, which ftfile cannot read")
        if problems:
            raise SchemaError(
                f"{'; '.join(problems)}. Read the column as a type that can represent all its values, and cast it in "
                "the query"
            )
        return cls(file_format=file_format, plain=plain, spelled=spelled, target=target, times=times)

    def __call__(self, array: pa.Array) -> pa.Array:
        """Return the values of a column; raises `MISFIT` if a value does not fit."""
        values = rebuild(self.as_plain(array), self.spelled, self._leaf)
        if self.spelled == self.target:
            return values
        return values.view(self.target)

    def as_plain(self, array: pa.Array) -> pa.Array:
        """Return the values of the file in their plain type."""
        if array.type == self.plain:
            return array
        return array.cast(self.plain)

    def _leaf(self, array: pa.Array, target: pa.DataType) -> pa.Array:
        array = self.times.convert(array, target)
        convert = convert_of(self.file_format, array.type, target)
        assert convert is not None, "types are compared before values are read"
        return convert(array, target)


def _problems(
    file_format: str, column: str, stored: pa.DataType, target: pa.DataType, times: StoredTimes
) -> Iterator[str]:
    """Yield a text for each pair of types, also of nested types, without a conversion in the table."""
    pairs = _pairs_within(stored, target)
    if pairs is not None:
        for name, stored_part, target_part in pairs:
            yield from _problems(file_format, f"{column}.{name}", stored=stored_part, target=target_part, times=times)
    elif convert_of(file_format, stored, target) is None:
        yield f"column `{column}` is {stored} in the file, and cannot be read as {target}"
    elif problem := times.problem(stored, target):
        yield f"column `{column}` {problem}"


def present_columns(casts: Iterable[tuple[str, ColumnCast | None]]) -> list[tuple[str, ColumnCast]]:
    """Return the columns that a file contains, with their conversions."""
    columns = []
    for name, cast in casts:
        if cast is not None:
            columns.append((name, cast))
    return columns


class _Part(NamedTuple):
    """A part of two nested types."""

    name: str
    stored: pa.DataType
    target: pa.DataType


def _pairs_within(stored: pa.DataType, target: pa.DataType) -> list[_Part] | None:
    """Return names and types of the parts of two nested types; None if the types are not nested in the same way."""
    if pa.types.is_struct(stored) and pa.types.is_struct(target):
        types = {field.name: field.type for field in stored}
        pairs = []
        for field in target:
            if field.name in types:
                pairs.append(_Part(field.name, types[field.name], field.type))
        return pairs
    if pa.types.is_list(stored) and pa.types.is_list(target):
        return [_Part("element", stored.value_type, target.value_type)]
    if pa.types.is_map(stored) and pa.types.is_map(target):
        return [_Part("key", stored.key_type, target.key_type), _Part("value", stored.item_type, target.item_type)]
    return None


def _spell_type(stored: pa.DataType, target: pa.DataType) -> pa.DataType:
    """Return a requested type with the file's spelling of its fields, which are matched by name ignoring case."""
    if pa.types.is_struct(stored) and pa.types.is_struct(target):
        in_file = {field.name: field for field in stored}
        in_any_case = {field.name.lower(): field for field in stored}
        fields = []
        for field in target:
            other = in_file.get(field.name, in_any_case.get(field.name.lower()))
            if other is None:
                fields.append(field)
            else:
                fields.append(field.with_name(other.name).with_type(_spell_type(other.type, field.type)))
        return pa.struct(fields)
    if pa.types.is_list(stored) and pa.types.is_list(target):
        return pa.list_(target.value_field.with_type(_spell_type(stored.value_type, target.value_type)))
    if pa.types.is_map(stored) and pa.types.is_map(target):
        key = target.key_field.with_type(_spell_type(stored.key_type, target.key_type))
        return pa.map_(key, target.item_field.with_type(_spell_type(stored.item_type, target.item_type)))
    return target
