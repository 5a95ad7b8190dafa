"""Codecs, which convert users' keys and values to bytes and back, and conversion of values to columns.

A codec requires one binary key column and one binary value column. `Pairs` combines two built-in parts: one for keys,
and one for values. No value is rounded or truncated silently.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

import pyarrow as pa

from ftfile.core.errors import ConfigError, EncodingError
from ftfile.rows.messages import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


_BYTES = (bytes, bytearray, memoryview)
_FLOAT = struct.Struct("<f")


class RowMaker:
    """Converts users' rows to column values, in the form that reads return."""

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self._names = pa.schema(fields).names
        self._makers = _makers_of(fields)

    def make(self, row: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as users give it
        """Return the values of a row; EncodingError for values that do not fit the columns.

        A row is a value if there is one column, else a tuple, a list, or a dict by name. Columns missing in a dict are
        null.
        """
        names = self._names
        if len(names) == 1:
            return (self._makers[0](row),)
        if isinstance(row, dict) and row.keys() <= set(names):
            row = [row.get(name) for name in names]
        if not isinstance(row, (tuple, list)) or len(row) != len(names):
            raise EncodingError(
                f"{row!r}: a row must have a value for each of the columns {', '.join(names) or '(none)'}"
            )
        return tuple([make(value) for make, value in zip(self._makers, row, strict=True)])


def column_values(field: pa.Field) -> _ValueCodec:
    """Return the converter of a column's values."""
    return _values_of(field.type, f"column {field.name!r}")


def _makers_of(fields: Iterable[pa.Field]) -> list[Callable[[Any], Any]]:
    """Return for each column the function that converts a user's value to its stored form."""
    return [column_values(field).make for field in fields]


def _values_of(kind: pa.DataType, where: str) -> _ValueCodec:
    for test, values in _BY_TEST:
        if test(kind):
            return values(kind, where)
    return _ValueCodec(kind, where)


class _ValueCodec:
    """Converts the values of a column; this base class uses Arrow's conversion.

    Results have the form that reads return. Values that the column would change are refused.
    """

    def __init__(self, kind: pa.DataType, where: str) -> None:
        self.kind, self.where = kind, where

    def make(self, value: Any) -> Any:  # noqa: ANN401
        """Return the column value of a user's value; EncodingError if it does not fit."""
        if isinstance(value, pa.Scalar):
            value = self._python_value(value)
        if value is None:
            return None
        try:
            stored = pa.scalar(value, self.kind).as_py()
            is_same = _is_same(stored, value)
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
            raise self.refusal(value, error) from error
        if not is_same:
            raise self.refusal(value, f"it would be stored as {stored!r}")
        return stored

    def _python_value(self, scalar: pa.Scalar) -> Any:  # noqa: ANN401
        try:
            return scalar.as_py()
        except (OverflowError, ValueError) as error:
            raise EncodingError(f"{self.where}: this {scalar.type} has no value in Python: {error}") from error

    def refusal(self, value: object, why: object) -> EncodingError:
        return EncodingError(f"{self.where}: {value!r} cannot be stored as {self.kind}: {why}")


def _is_same(stored: Any, value: Any) -> bool:  # noqa: ANN401
    """Return True if a value equals the given one; in a column with a zone, a time without a zone is UTC."""
    if type(stored) is int and not hasattr(value, "__index__"):
        return False
    if isinstance(stored, datetime) and stored.tzinfo is not None and isinstance(value, datetime):
        value = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
    return bool(stored == value or (stored != stored and value != value))  # noqa: PLR0124 - NaN


class _PlainCodec(_ValueCodec):
    """Accepts values of one Python type, unchanged."""

    types: ClassVar = {pa.float64(): float, pa.bool_(): bool, pa.date32(): date}

    def __init__(self, kind: pa.DataType, where: str) -> None:
        super().__init__(kind, where)
        self.type = self.types[kind]

    def make(self, value: Any) -> Any:  # noqa: ANN401
        if type(value) is self.type:
            return value
        return super().make(value)


class _IntegerCodec(_ValueCodec):
    def __init__(self, kind: pa.DataType, where: str) -> None:
        super().__init__(kind, where)
        self.end = 1 << kind.bit_width - 1

    def make(self, value: Any) -> Any:  # noqa: ANN401
        if type(value) is int and -self.end <= value < self.end:
            return value
        return super().make(value)


class _ShortFloatCodec(_ValueCodec):
    def make(self, value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, float):
            return super().make(value)
        try:
            return _FLOAT.unpack(_FLOAT.pack(value))[0]  # rounded, as in all float columns
        except OverflowError as error:
            raise self.refusal(value, error) from error


class _StringCodec(_ValueCodec):
    def make(self, value: Any) -> Any:  # noqa: ANN401
        if type(value) is str and value.isascii():
            return value
        return super().make(value)


class _BinaryCodec(_ValueCodec):
    def make(self, value: Any) -> bytes | None:  # noqa: ANN401
        if type(value) is bytes or value is None:
            return value
        if not isinstance(value, _BYTES):
            raise EncodingError(f"{self.where} takes bytes, not {type(value).__name__}: {value!r}")
        return bytes(value)


class _TimeCodec(_ValueCodec):
    def __init__(self, kind: pa.DataType, where: str) -> None:
        super().__init__(kind, where)
        self.zone = pa.scalar(0, kind).as_py().tzinfo
        if self.zone is None:
            self.usual_zone = None
        else:
            self.usual_zone = timezone.utc

    def make(self, value: Any) -> Any:  # noqa: ANN401
        is_usual = type(value) is datetime and value.tzinfo is self.usual_zone
        if is_usual:
            return value.replace(tzinfo=self.zone)
        return super().make(value)


class _ListCodec(_ValueCodec):
    def __init__(self, kind: pa.DataType, where: str) -> None:
        super().__init__(kind, where)
        self.make_item = _values_of(kind.value_type, where).make

    def make(self, value: Any) -> list[Any] | None:  # noqa: ANN401
        if value is None:
            return None
        values = value.tolist() if hasattr(value, "tolist") else value  # of NumPy, Arrow or pandas
        if not isinstance(values, Collection) or isinstance(values, (str, *_BYTES, Mapping)):
            raise self.refusal(value, f"it must be a list, not {type(value).__name__}")
        return [self.make_item(item) for item in values]


class _StructCodec(_ValueCodec):
    def __init__(self, kind: pa.DataType, where: str) -> None:
        super().__init__(kind, where)
        self.makers = {field.name: _values_of(field.type, where).make for field in kind}

    def make(self, value: Any) -> dict[str, Any] | None:  # noqa: ANN401
        if value is None:
            return None
        if isinstance(value, (tuple, list)) and len(value) == len(self.makers):
            value = dict(zip(self.makers, value, strict=True))
        if not isinstance(value, Mapping) or not value.keys() <= self.makers.keys():
            raise self.refusal(value, "it must be a dictionary by field name, or have a value for each field")
        return {name: make(value.get(name)) for name, make in self.makers.items()}


class _MapCodec(_ValueCodec):
    def __init__(self, kind: pa.DataType, where: str) -> None:
        super().__init__(kind, where)
        self.make_key, self.make_item = _values_of(kind.key_type, where).make, _values_of(kind.item_type, where).make

    def make(self, value: Any) -> list[tuple[Any, Any]] | None:  # noqa: ANN401
        if value is None:
            return None
        pairs = value
        if isinstance(value, Mapping):
            pairs = value.items()
        try:
            entries = [(self.make_key(key), self.make_item(item)) for key, item in pairs]
        except (TypeError, ValueError) as error:
            raise self.refusal(value, "it must be a dictionary or a list of pairs") from error
        for key, _ in entries:
            if key is None:
                raise self.refusal(value, "a key is null")
        return entries


_BY_TEST: list[tuple[Callable[[pa.DataType], bool], type[_ValueCodec]]] = [
    (pa.types.is_signed_integer, _IntegerCodec),
    (pa.types.is_string, _StringCodec),
    (pa.types.is_binary, _BinaryCodec),
    (pa.types.is_float32, _ShortFloatCodec),
    (_PlainCodec.types.__contains__, _PlainCodec),
    (lambda kind: kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")), _TimeCodec),
    (lambda kind: isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType), _ListCodec),
    (pa.types.is_struct, _StructCodec),
    (pa.types.is_map, _MapCodec),
]


@runtime_checkable
class Codec(Protocol):
    """Converts a user's event to the bytes of a key and of a value, and back.

    `store.put(key, value)` calls `key_to_bytes(key)` and `value_to_bytes(value)`. If one event contains both, pass it
    twice. Equal keys must have equal bytes, in every process and permanently; different keys must have different bytes.
    Rows are sorted by these bytes, so key ranges are ranges of bytes.
    """

    def key_to_bytes(self, event: Any, /) -> bytes:  # noqa: ANN401 - the user's
        """Return the bytes of the key of an event, or of a key."""

    def value_to_bytes(self, event: Any, /) -> bytes:  # noqa: ANN401
        """Return the bytes of the value of an event, or of a value."""

    def from_key_value(self, key: bytes, value: bytes, /) -> Any:  # noqa: ANN401
        """Return the event of a key and its value, which reads return."""


class Serde(Protocol):
    """Converts a key or a value to bytes and back."""

    is_for_keys: bool  # equal values have equal bytes

    def to_bytes(self, value: Any, /) -> bytes:  # noqa: ANN401
        """Return the bytes of a value; EncodingError if the value is not supported."""

    def from_bytes(self, data: bytes, /) -> Any:  # noqa: ANN401
        """Return the value that was passed to `to_bytes`."""


class Pairs:
    """The codec of keys of one kind and values of another; reads return the value.

    Raises:
        TypeError: an argument is not a part.
        ConfigError: the part for keys may encode equal keys as different bytes.
    """

    def __init__(self, keys: Serde, values: Serde) -> None:
        for name, part in (("keys", keys), ("values", values)):
            # An int also has attributes with these names.
            if isinstance(part, type | int) or not hasattr(part, "to_bytes") or not hasattr(part, "from_bytes"):
                raise TypeError(f"{name}={part!r}: it must be a part of a codec, such as Text()")
        if not keys.is_for_keys:
            raise ConfigError(f"{type(keys).__name__} is only for values: equal keys would not have equal bytes")
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
    """Bytes, unchanged."""

    is_for_keys = True

    def to_bytes(self, value: bytes | bytearray | memoryview) -> bytes:
        """Return a copy of the bytes."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise EncodingError(f"{value!r} is not bytes")
        return bytes(value)

    def from_bytes(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data


class Text:
    """Text in UTF-8, in code point order."""

    is_for_keys = True

    def to_bytes(self, value: str) -> bytes:
        """Return the text in UTF-8."""
        if not isinstance(value, str):
            raise EncodingError(f"{value!r} is not a str")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise EncodingError(f"{value!r} cannot be encoded in UTF-8: {error}") from error

    def from_bytes(self, data: bytes) -> str:
        """Return the text."""
        return data.decode()


class Int64:
    """Signed 64-bit integers, as 8 bytes in the same order."""

    is_for_keys = True

    _BYTES = struct.Struct(">Q")
    _SHIFT = 1 << 63

    def to_bytes(self, value: int) -> bytes:
        """Return the integer plus 2**63, in big-endian order."""
        if type(value) is not int or not -self._SHIFT <= value < self._SHIFT:
            raise EncodingError(f"{value!r} is not a signed 64-bit int")
        return self._BYTES.pack(value + self._SHIFT)

    def from_bytes(self, data: bytes) -> int:
        """Return the integer."""
        shifted: int = self._BYTES.unpack(data)[0]
        return shifted - self._SHIFT


class Json:
    """Plain JSON in UTF-8, without spaces and with sorted names, so that equal values have equal bytes."""

    is_for_keys = True

    def to_bytes(self, value: Any) -> bytes:  # noqa: ANN401
        """Return the JSON; EncodingError for values that JSON does not support, such as NaN or non-text names."""
        try:
            text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            data = text.encode()
        except (TypeError, ValueError) as error:
            raise EncodingError(f"{value!r} cannot be encoded as JSON: {error}") from error
        if "{" in text and json.loads(text) != value:
            raise EncodingError(
                f"{value!r} changes when it is read back from JSON: use text as names, and lists instead of tuples"
            )
        return data

    def from_bytes(self, data: bytes) -> Any:  # noqa: ANN401
        """Return the value, with lists for tuples."""
        return json.loads(data)


class ArrowRows:
    """Rows of a schema, as dicts by column name, with Arrow types. Only for values.

    The bytes do not contain the schema: readers of the store need the schema that it was written with.
    """

    is_for_keys = False

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._makers = _makers_of(schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowRows, (self.schema,)

    def to_bytes(self, value: Mapping[str, Any]) -> bytes:
        """Return a record batch of one row; missing columns are null."""
        unknown = sorted(value.keys() - set(self.schema.names))
        if unknown:
            raise EncodingError(f"{', '.join(unknown)}: the schema has the columns {', '.join(self.schema.names)}")
        try:
            columns = []
            for make, field in zip(self._makers, self.schema, strict=True):
                columns.append(pa.array([make(value.get(field.name))], field.type))
            batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            batch.validate(full=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise EncodingError(f"{value!r} is not a row of the schema: {error}") from error
        return bytes(batch.serialize())

    def from_bytes(self, data: bytes) -> dict[str, Any]:
        """Return the row, with all columns of the schema."""
        try:
            (row,) = read_rows(pa.py_buffer(data), self.schema).to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise EncodingError(f"these {len(data)} bytes are not a row of the schema: {error}") from error
        return cast("dict[str, Any]", row)
