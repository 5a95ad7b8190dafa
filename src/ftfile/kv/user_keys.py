"""Conversion of keys and rows between users' values (Python or Arrow) and stored values."""

from __future__ import annotations

import operator
from collections import namedtuple
from collections.abc import Collection
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.kv.key_columns import arrays_of, is_byte_key, key_behind, key_scalars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key, KeyRange

    ToStored = Callable[[Any], int | bytes]


# Errors for column values that Python cannot represent: a day after the year 9999, a string that is not UTF-8.
NO_PYTHON_VALUE = (OverflowError, UnicodeDecodeError)
_BYTES = (bytes, bytearray, memoryview)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for timestamps without a zone
_MICROSECOND = timedelta(microseconds=1)


def require_range(bounds: tuple[Any, Any, Any], *, everything: bool) -> None:
    """Raise a ConfigError unless a purge has either a start, an end or a prefix, or `everything` is True."""
    has_range = any(map(_is_bound, bounds))
    if not has_range and not everything:
        raise ConfigError(
            "purge has no range: name the keys by start, end or prefix, as in purge(start='a', end='b'), or pass "
            "everything=True for all rows of the store"
        )
    if has_range and everything:
        raise ConfigError(
            "everything=True purges all rows of the store: omit start, end and prefix, or omit everything"
        )


def _is_bound(bound: Any) -> bool:  # noqa: ANN401
    """Return False for None, and for an empty tuple or list."""
    return bound is not None and not (isinstance(bound, tuple | list) and not bound)


class UserKeys:
    """Converts keys of users to stored keys, and back."""

    def __init__(self, definition: StoreDefinition) -> None:
        self._names = definition.keys
        self._kinds = definition.key_types
        self._converters = [*map(_converter, self._names, self._kinds)]
        # Takes a value, or a tuple with one value for each key column; raises the same errors as `prefix`.
        self.to_stored: Callable[[Any], Key] = self._key_of_several
        if len(self._names) == 1:
            if pa.types.is_binary(self._kinds[0]):
                self.to_stored = self._one_binary
            else:
                self.to_stored = self._key_of_one

    def to_user(self, key: Key) -> Any:  # noqa: ANN401
        """Return the value of a stored key; a tuple if the store has several key columns."""
        scalars = key_scalars(key, self._kinds)
        if len(scalars) == 1:
            return scalars[0].as_py()
        return tuple(scalar.as_py() for scalar in scalars)

    def columns_of(self, keys: Iterable[Any]) -> pa.RecordBatch:
        """Return the key columns of keys; raises the same errors as `prefix`."""
        stored = [*map(self.to_stored, keys)]
        return pa.RecordBatch.from_arrays(arrays_of(stored, self._kinds), names=self._names)

    def prefix(self, key: Any) -> Key:  # noqa: ANN401 - whatever users have
        """Return the stored form of a key, or of the first values of a key.

        Raises:
            TypeError: the type of a value does not match its column.
            ConfigError: there are more values than columns, or a value is out of its column's range.
        """
        if isinstance(key, tuple):
            values = key
        else:
            values = (key,)
        if len(values) > len(self._names):
            raise self._other_count(values)
        return tuple([convert(value) for convert, value in zip(self._converters, values, strict=False)])

    def range_of(self, start: Any, end: Any, prefix: Any = ()) -> KeyRange:  # noqa: ANN401
        """Return the stored form of the range from `start` (inclusive) to `end` (exclusive), below a prefix.

        `start` and `end` are keys, or the first values of keys, without the prefix. None is the first key, or no end. A
        value that is not a tuple is a single value. Raises the same errors as `prefix`, and a ConfigError if the range
        is empty.
        """
        before = _parts(prefix)
        first, last = self.prefix((*before, *_parts(start))), self.prefix((*before, *_parts(end)))
        behind_last = key_behind(last, self._kinds) if end is None else last
        if behind_last is not None and behind_last <= first:
            raise ConfigError(
                f"start={start!r}, end={end!r}: the range is empty, because its end is not after its start"
            )
        return first, behind_last

    def _key_of_one(self, key: Any) -> Key:  # noqa: ANN401
        if isinstance(key, tuple):
            if len(key) != 1:
                raise self._other_count(key)
            (key,) = key
        return (self._converters[0](key),)

    def _one_binary(self, key: Any) -> Key:  # noqa: ANN401
        if type(key) is bytes:
            return (key,)
        return self._key_of_one(key)

    def _key_of_several(self, key: Any) -> Key:  # noqa: ANN401
        if not isinstance(key, tuple) or len(key) != len(self._names):
            raise self._other_count(key if isinstance(key, tuple) else (key,))
        return self.prefix(key)

    def _other_count(self, values: tuple[Any, ...]) -> ConfigError:
        names = ", ".join(self._names)
        return ConfigError(f"{values!r} has {len(values)} values: a key of this store has {len(self._names)}, {names}")


def _parts(key: Any) -> tuple[Any, ...]:  # noqa: ANN401
    if isinstance(key, list):
        raise TypeError(f"{key!r} is a list: give one value, or a tuple of the values of several key columns")
    if key is None:
        return ()
    if isinstance(key, tuple):
        return key
    return (key,)


def row_type(definition: StoreDefinition) -> Any:  # noqa: ANN401 - a class
    """Return the named tuple for rows of several value columns; None for a single value column."""
    names = definition.values
    return None if len(names) == 1 else namedtuple("Row", names, rename=True)  # noqa: PYI024 - names vary


def python_values(name: str, column: pa.ChunkedArray, keys: Sequence[Any]) -> list[Any]:
    """Return the Python values of a column; a ConfigError names the key of a value that Python cannot represent."""
    try:
        values: list[Any] = column.to_pylist()
    except NO_PYTHON_VALUE as error:
        if len(keys) > 1:
            values = []
            for row, key in enumerate(keys):
                values += python_values(name, column[row : row + 1], [key])
            return values
        raise ConfigError(
            f"key {keys[0]!r}: column {name!r} has a value that Python cannot represent, such as a day after the year "
            "9999, or a string that is not UTF-8. Read it as Arrow, with lookup or scan"
        ) from error
    return values


def require_keys(keys: object) -> None:
    """Raise a TypeError unless `keys` is a list of keys."""
    if not isinstance(keys, Collection) or isinstance(keys, str | bytes | bytearray | memoryview):
        raise TypeError(f"keys is of type {type(keys).__name__}: it must be a list of keys, such as ['a', 'b']")


def chosen_columns(columns: Sequence[str] | None, names: list[str], prefix: str) -> list[str]:
    """Return the requested columns, by default all; raise a ConfigError for an unknown or repeated name."""
    if columns is None:
        return names
    if isinstance(columns, str) or not set(columns) <= set(names):
        raise ConfigError(f"columns={columns!r}: {prefix} {names}")
    if len(set(columns)) < len(columns):
        raise ConfigError(f"columns={columns!r}: name each column once")
    return [*columns]


def key_columns_of(
    keys: pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch, definition: StoreDefinition
) -> pa.RecordBatch:
    """Return the key columns of many keys, cast to the types of the store; a key with a null matches no row.

    Keys are an array if the store has one key column, else a table with the key columns. Other columns are ignored.

    Raises:
        TypeError: `keys` is neither an array nor a table.
        ConfigError: a column is missing, repeated, or of an incompatible type; or a value is out of its range.
    """
    names = definition.keys
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        if len(names) != 1:
            raise ConfigError(f"keys of this store have the columns {', '.join(names)}: give a table with all of them")
        columns = [keys]
    elif isinstance(keys, (pa.Table, pa.RecordBatch)):
        wrong = [name for name in names if keys.schema.names.count(name) != 1]
        if wrong:
            raise ConfigError(
                f"the keys have the columns {keys.schema.names}: {', '.join(wrong)} must occur exactly once"
            )
        columns = [keys.column(name) for name in names]
    else:
        raise TypeError(
            f"keys must be an Arrow array or an Arrow table, not {type(keys).__name__}; multi_get takes Python values"
        )
    arrays = []
    for column, name in zip(columns, names, strict=True):
        arrays.append(_cast(column, definition, name))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _cast(column: pa.Array | pa.ChunkedArray, definition: StoreDefinition, name: str) -> pa.Array:
    kind = definition.schema.field(name).type
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1:
            column = column.combine_chunks()
        else:
            column = column.chunk(0)
    if column.type == kind:
        return column
    if not pa.types.is_null(column.type) and _family_of(column.type) != _family_of(kind):
        raise ConfigError(f"key column {name!r} has the type {kind}; the keys have {column.type}: cast them to {kind}")
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"key column {name!r} has the type {kind}; the keys have {column.type}: {error}") from None


def _family_of(kind: pa.DataType) -> object:
    """Return the family of compatible types of a type: strings of any layout, integers of any width."""
    if pa.types.is_dictionary(kind):
        return _family_of(kind.value_type)
    if pa.types.is_timestamp(kind):
        return "timestamp", kind.tz is None
    for name, test in _FAMILIES:
        if test(kind):
            return name
    return kind


_FAMILIES: list[tuple[str, Callable[[pa.DataType], bool]]] = [
    ("integer", pa.types.is_integer),
    ("date", pa.types.is_date),
    ("decimal", pa.types.is_decimal),
    ("string", pa.types.is_string),
    ("string", pa.types.is_large_string),
    ("string", pa.types.is_string_view),
    ("binary", pa.types.is_binary),
    ("binary", pa.types.is_large_binary),
    ("binary", pa.types.is_binary_view),
]


def _converter(name: str, kind: pa.DataType) -> ToStored:
    """Return the function that converts a user's value to the stored value."""
    if pa.types.is_timestamp(kind):
        return partial(_timestamp, name, _EPOCH if kind.tz is None else _EPOCH.replace(tzinfo=timezone.utc))
    if pa.types.is_decimal128(kind):
        return partial(_decimal, name, kind)
    if is_byte_key(kind):
        is_text = pa.types.is_string(kind)
        return (
            partial(_convert_plain, name, (str,), str.encode)
            if is_text
            else partial(_convert_plain, name, _BYTES, bytes)
        )
    if pa.types.is_boolean(kind):
        return partial(_convert_plain, name, (bool,), int)
    if pa.types.is_date32(kind):
        return partial(_convert_plain, name, (date,), lambda value: value.toordinal() - _EPOCH_DAY)
    return partial(_integer, name, 1 << kind.bit_width - 1)


def _convert_plain(name: str, types: tuple[type, ...], convert: ToStored, value: Any) -> int | bytes:  # noqa: ANN401
    """Return the stored value of a value of one of the types; the first type is the usual one."""
    if type(value) is not types[0] and (not isinstance(value, types) or isinstance(value, datetime)):
        raise _other_type(name, value, types[0].__name__)
    try:
        return convert(value)
    except UnicodeEncodeError as error:
        raise _no_value(name, value, str(error)) from None


def _integer(name: str, end: int, value: Any) -> int:  # noqa: ANN401
    if type(value) is not int:  # for example integers of numpy
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise _other_type(name, value, "int")
        value = operator.index(value)
    if not -end <= value < end:
        raise _no_value(name, value, f"int{end.bit_length()} goes from {-end} to {end - 1}")
    return int(value)


def _timestamp(name: str, epoch: datetime, value: Any) -> int:  # noqa: ANN401
    if not isinstance(value, datetime) or (value.tzinfo is None) != (epoch.tzinfo is None):
        raise _other_type(name, value, f"a datetime with{'' if epoch.tzinfo else 'out'} a time zone")
    microseconds, rest = divmod(value - epoch, _MICROSECOND)
    if rest:  # nanoseconds of a pandas Timestamp
        raise _no_value(name, value, "it must be in whole microseconds")
    return microseconds


def _decimal(name: str, kind: pa.Decimal128Type, value: Any) -> int:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
        raise _other_type(name, value, "Decimal")
    value = Decimal(value)
    fits = value.is_finite() and (not value or value.adjusted() < kind.precision - kind.scale)
    unscaled = int(value.scaleb(kind.scale)) if fits else 0  # rounded, if the value has many digits
    if not fits or Decimal(unscaled).scaleb(-kind.scale) != value:
        raise _no_value(
            name, value, f"{kind} has {kind.precision} digits, {kind.scale} of them after the decimal point"
        )
    return unscaled


def _other_type(name: str, value: object, taken: str) -> TypeError:
    if isinstance(value, datetime):
        type_text = "a datetime with another kind of zone"
    else:
        type_text = type(value).__name__
    return TypeError(f"key column {name!r} takes {taken}, not {type_text}: {value!r}")


def _no_value(name: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"key column {name!r} cannot have {value!r}: {why}")
