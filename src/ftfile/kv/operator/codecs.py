"""Codecs: what a user has, as the bytes of a key and of a value, and back; and values, as columns give them back.

A store whose key and value are one binary column each takes a codec. `Pairs` makes one of two that ftfile brings: one
for keys, and one for values. No value is rounded or cut in silence.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import pyarrow as pa

from ftfile.core.errors import ConfigError, EncodingError
from ftfile.rows.messages import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Make = Callable[[Any], Any]


_BYTES = (bytes, bytearray, memoryview)
_FLOAT = struct.Struct("<f")


def row_maker(fields: Sequence[pa.Field]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function from a user's row to the values of its columns, as reads give them back.

    A row is a value where there is one column, else a tuple, a list, or a dict by name, in which columns that are
    missing are null. The function raises `EncodingError` for values that the columns cannot have.
    """
    makers = [value_maker(field) for field in fields]
    names = [field.name for field in fields]
    if len(fields) == 1:
        (make_one,) = makers
        if pa.types.is_binary(fields[0].type):
            return lambda value: (value if type(value) is bytes else make_one(value),)
        return lambda value: (make_one(value),)

    def make(row: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as users give it
        if isinstance(row, dict) and row.keys() <= set(names):
            row = [row.get(name) for name in names]
        if not isinstance(row, (tuple, list)) or len(row) != len(names):
            raise EncodingError(f"{row!r}: a row takes a value for each of the columns {', '.join(names) or '(none)'}")
        return tuple([make(value) for make, value in zip(makers, row, strict=True)])

    return make


def value_maker(field: pa.Field) -> Make:
    """Return the function from a user's value to that of a column, as reads give it back.

    It raises `EncodingError` for a value that the column cannot have, or would have another value for.
    """
    return _maker(field.type, f"column {field.name!r}")


def _maker(kind: pa.DataType, where: str) -> Make:
    return next((maker(kind, where) for test, maker in _MAKERS if test(kind)), None) or _by_arrow(kind, where)


def _by_arrow(kind: pa.DataType, where: str) -> Make:
    """Return the function for a type whose values Arrow makes."""

    def make(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, pa.Scalar):
            value = _python_value(value, where)
        if value is None:
            return None
        try:
            stored = pa.scalar(value, kind).as_py()
            is_same = _is_same(stored, value)
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
            raise _refusal(value, kind, where, error) from error
        if not is_same:
            raise _refusal(value, kind, where, f"it would be taken for {stored!r}")
        return stored

    return make


def _python_value(scalar: pa.Scalar, where: str) -> Any:  # noqa: ANN401
    try:
        return scalar.as_py()
    except (OverflowError, ValueError) as error:
        raise EncodingError(f"{where}: the {scalar.type} is none that Python has: {error}") from error


def _is_same(stored: Any, value: Any) -> bool:  # noqa: ANN401
    """Return True if a value is the given one; in a column with a zone, a time without one is in UTC."""
    if type(stored) is int and not hasattr(value, "__index__"):
        return False
    if isinstance(stored, datetime) and stored.tzinfo is not None and isinstance(value, datetime):
        value = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
    return bool(stored == value or (stored != stored and value != value))  # noqa: PLR0124 - NaN


def _refusal(value: object, kind: pa.DataType, where: str, why: object) -> EncodingError:
    return EncodingError(f"{where}: {value!r} is no {kind}: {why}")


def _usual(usual: type) -> Callable[[pa.DataType, str], Make]:
    """Return the maker for types whose values of one type of Python stay as they are."""

    def maker(kind: pa.DataType, where: str) -> Make:
        make = _by_arrow(kind, where)
        return lambda value: value if type(value) is usual else make(value)

    return maker


def _integers(kind: pa.DataType, where: str) -> Make:
    make, end = _by_arrow(kind, where), 1 << kind.bit_width - 1
    return lambda value: value if type(value) is int and -end <= value < end else make(value)


def _short_floats(kind: pa.DataType, where: str) -> Make:
    make_other = _by_arrow(kind, where)

    def make(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, float):
            return make_other(value)
        try:
            return _FLOAT.unpack(_FLOAT.pack(value))[0]  # rounded, as everywhere
        except OverflowError as error:
            raise _refusal(value, kind, where, error) from error

    return make


def _strings(kind: pa.DataType, where: str) -> Make:
    make = _by_arrow(kind, where)
    return lambda value: value if type(value) is str and value.isascii() else make(value)


def _binaries(_: pa.DataType, where: str) -> Make:
    def make(value: Any) -> bytes | None:  # noqa: ANN401
        if type(value) is bytes or value is None:
            return value
        if not isinstance(value, _BYTES):
            raise EncodingError(f"{where} takes bytes, not {type(value).__name__}: {value!r}")
        return bytes(value)

    return make


def _times(kind: pa.DataType, where: str) -> Make:
    make, zone = _by_arrow(kind, where), pa.scalar(0, kind).as_py().tzinfo
    usual = None if zone is None else timezone.utc
    return lambda value: (
        value.replace(tzinfo=zone) if type(value) is datetime and value.tzinfo is usual else make(value)
    )


def _lists(kind: pa.DataType, where: str) -> Make:
    make_item = _maker(kind.value_type, where)

    def make(value: Any) -> list[Any] | None:  # noqa: ANN401
        if value is None:
            return None
        values = value.tolist() if hasattr(value, "tolist") else value  # of NumPy, Arrow or pandas
        if not isinstance(values, Collection) or isinstance(values, (str, *_BYTES, Mapping)):
            raise _refusal(value, kind, where, f"it takes a list, not {type(value).__name__}")
        return [make_item(item) for item in values]

    return make


def _structs(kind: pa.DataType, where: str) -> Make:
    makers = {field.name: _maker(field.type, where) for field in kind}

    def make(value: Any) -> dict[str, Any] | None:  # noqa: ANN401
        if value is None:
            return None
        if isinstance(value, (tuple, list)) and len(value) == len(makers):
            value = dict(zip(makers, value, strict=True))
        if not isinstance(value, Mapping) or not value.keys() <= makers.keys():
            raise _refusal(value, kind, where, "it takes a dictionary by name, or a value for each field")
        return {name: make(value.get(name)) for name, make in makers.items()}

    return make


def _maps(kind: pa.DataType, where: str) -> Make:
    make_key, make_item = _maker(kind.key_type, where), _maker(kind.item_type, where)

    def make(value: Any) -> list[tuple[Any, Any]] | None:  # noqa: ANN401
        if value is None:
            return None
        pairs = value.items() if isinstance(value, Mapping) else value
        try:
            entries = [(make_key(key), make_item(item)) for key, item in pairs]
        except (TypeError, ValueError) as error:
            raise _refusal(value, kind, where, "it takes a dictionary, or a list of pairs") from error
        if any(key is None for key, _ in entries):
            raise _refusal(value, kind, where, "a key is null")
        return entries

    return make


# By the test of a type.
_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, str], Make]], ...] = (
    (pa.types.is_signed_integer, _integers),
    (pa.types.is_string, _strings),
    (pa.types.is_binary, _binaries),
    (pa.types.is_float64, _usual(float)),
    (pa.types.is_float32, _short_floats),
    (pa.types.is_boolean, _usual(bool)),
    (pa.types.is_date32, _usual(date)),
    (lambda kind: kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")), _times),
    (lambda kind: isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType), _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
)


@runtime_checkable
class Codec(Protocol):
    """Turns an event of the user's into the bytes of a key and of a value, and back.

    `store.put(key, value)` calls `key_to_bytes(key)` and `value_to_bytes(value)`: where one event has both, it is given
    twice. Equal keys have equal bytes, in each process and for ever; others have others. Rows are sorted by these
    bytes, so ranges of keys are ranges of them.
    """

    def key_to_bytes(self, event: Any, /) -> bytes:  # noqa: ANN401 - the user's
        """Return the bytes of the key of an event, or of a key."""

    def value_to_bytes(self, event: Any, /) -> bytes:  # noqa: ANN401
        """Return the bytes of the value of an event, or of a value."""

    def from_key_value(self, key: bytes, value: bytes, /) -> Any:  # noqa: ANN401
        """Return the event of a key and its value, which reads return."""


class Part(Protocol):
    """Turns a key or a value into bytes and back."""

    is_for_keys: bool  # equal values have equal bytes

    def to_bytes(self, value: Any, /) -> bytes:  # noqa: ANN401
        """Return the bytes of a value; EncodingError if it has none."""

    def from_bytes(self, data: bytes, /) -> Any:  # noqa: ANN401
        """Return the value that `to_bytes` was given."""


class Pairs:
    """The codec of keys of one kind and values of another; reads return the value.

    Raises:
        TypeError: it is given no parts.
        ConfigError: the part for keys gives equal keys different bytes.
    """

    def __init__(self, keys: Part, values: Part) -> None:
        for name, part in (("keys", keys), ("values", values)):
            # An int has these functions, too.
            if isinstance(part, type | int) or not hasattr(part, "to_bytes") or not hasattr(part, "from_bytes"):
                raise TypeError(f"{name}={part!r}: it takes a part of a codec, such as Text()")
        if not keys.is_for_keys:
            raise ConfigError(f"{type(keys).__name__} is for values: equal keys would not have equal bytes")
        self.keys = keys
        self.values = values

    def key_to_bytes(self, event: Any) -> bytes:  # noqa: ANN401
        """Return the bytes of a key."""
        return self.keys.to_bytes(event)

    def value_to_bytes(self, event: Any) -> bytes:  # noqa: ANN401
        """Return the bytes of a value."""
        return self.values.to_bytes(event)

    def from_key_value(self, key: bytes, value: bytes) -> Any:  # noqa: ANN401, ARG002
        """Return the value."""
        return self.values.from_bytes(value)


class Bytes:
    """Bytes, as they are."""

    is_for_keys = True

    def to_bytes(self, value: bytes | bytearray | memoryview) -> bytes:
        """Return a copy of the bytes."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise EncodingError(f"{value!r} is no bytes")
        return bytes(value)

    def from_bytes(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data


class Text:
    """Text in UTF-8, in the order of code points."""

    is_for_keys = True

    def to_bytes(self, value: str) -> bytes:
        """Return the text in UTF-8."""
        if not isinstance(value, str):
            raise EncodingError(f"{value!r} is no str")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise EncodingError(f"{value!r} has no form in UTF-8: {error}") from error

    def from_bytes(self, data: bytes) -> str:
        """Return the text."""
        return data.decode()


class Int64:
    """Integers of 64 bits with a sign, as 8 bytes in the same order."""

    is_for_keys = True

    _BYTES = struct.Struct(">Q")
    _SHIFT = 1 << 63

    def to_bytes(self, value: int) -> bytes:
        """Return the integer, moved up by 2**63, the most significant byte first."""
        if type(value) is not int or not -self._SHIFT <= value < self._SHIFT:
            raise EncodingError(f"{value!r} is no int of 64 bits with a sign")
        return self._BYTES.pack(value + self._SHIFT)

    def from_bytes(self, data: bytes) -> int:
        """Return the integer."""
        shifted: int = self._BYTES.unpack(data)[0]
        return shifted - self._SHIFT


class Json:
    """Plain JSON in UTF-8, without blanks and with sorted names, so that equal values have equal bytes."""

    is_for_keys = True

    def to_bytes(self, value: Any) -> bytes:  # noqa: ANN401
        """Return the JSON; EncodingError for what JSON cannot have, such as NaN, or names that are no text."""
        try:
            text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            data = text.encode()
        except (TypeError, ValueError) as error:
            raise EncodingError(f"{value!r} has no form in JSON: {error}") from error
        if "{" in text and json.loads(text) != value:
            raise EncodingError(f"{value!r} does not come back from JSON: names are to be text, and tuples lists")
        return data

    def from_bytes(self, data: bytes) -> Any:  # noqa: ANN401
        """Return the value: lists for tuples."""
        return json.loads(data)


class ArrowRows:
    """Rows of a schema: dicts by the name of a column, with the types of Arrow. For values alone.

    The bytes have no schema: the store's readers need the one that it was written with.
    """

    is_for_keys = False

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._makers = [value_maker(field) for field in schema]

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowRows, (self.schema,)

    def to_bytes(self, value: Mapping[str, Any]) -> bytes:
        """Return a record batch of one row; columns that are missing are null."""
        unknown = sorted(value.keys() - set(self.schema.names))
        if unknown:
            raise EncodingError(f"{', '.join(unknown)}: the schema has the columns {', '.join(self.schema.names)}")
        try:
            columns = [
                pa.array([make(value.get(field.name))], field.type)
                for make, field in zip(self._makers, self.schema, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            batch.validate(full=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise EncodingError(f"{value!r} is no row of the schema: {error}") from error
        return bytes(batch.serialize())

    def from_bytes(self, data: bytes) -> dict[str, Any]:
        """Return the row, with all columns of the schema."""
        try:
            (row,) = read_rows(pa.py_buffer(data), self.schema).to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise EncodingError(f"these {len(data)} bytes are no row of the schema: {error}") from error
        return cast("dict[str, Any]", row)
