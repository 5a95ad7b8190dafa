"""Codecs: what a user has, as the bytes of a key and of a value, and back.

A store whose key and value are one binary column each takes a codec. `Pairs` makes one of two that ftfile brings: one
for keys, and one for values.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from ftfile.core.errors import ConfigError, EncodingError
from ftfile.kv.operator.values import value_maker

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        found: int = self._BYTES.unpack(data)[0]
        return found - self._SHIFT


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
        self._makers = [value_maker(each) for each in schema]

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowRows, (self.schema,)

    def to_bytes(self, value: Mapping[str, Any]) -> bytes:
        """Return a record batch of one row; columns that are missing are null."""
        unknown = sorted(value.keys() - set(self.schema.names))
        if unknown:
            raise EncodingError(f"{', '.join(unknown)}: the schema has the columns {', '.join(self.schema.names)}")
        try:
            columns = [
                pa.array([make(value.get(each.name))], each.type)
                for make, each in zip(self._makers, self.schema, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            batch.validate(full=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise EncodingError(f"{value!r} is no row of the schema: {error}") from error
        return bytes(batch.serialize())

    def from_bytes(self, data: bytes) -> dict[str, Any]:
        """Return the row, with all columns of the schema."""
        row: dict[str, Any] = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema).to_pylist()[0]
        return row
