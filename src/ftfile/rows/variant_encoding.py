"""The two binary values of a VARIANT from JSON text, like Spark's `parse_json`."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any, NoReturn

from ftfile.rows.variant import LEVELS_MAX, utf_16

_NULL, _TRUE, _FALSE = b"\x00", b"\x04", b"\x08"
_INTEGERS = ((1, 3), (2, 4), (4, 5), (8, 6))  # bytes, and number of the type
_DIGITS_MAX = 38
_DECIMALS = ((9, 4, 8), (18, 8, 9), (_DIGITS_MAX, 16, 10))  # maximum digits, bytes, and number of the type
_DOUBLE, _STRING = 7, 16
_SHORT_STRING_MAX, _COUNT_MAX = 63, 255
_OBJECT, _ARRAY = 2, 3
_VERSION = 1
_SIGNED_DIGITS = frozenset("-.0123456789")


class _NumberText(str):
    """The text of a number."""

    __slots__ = ()


class _Fields(list[tuple[str, Any]]):
    """The fields of an object, in their order."""


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decoder = json.JSONDecoder(
    object_pairs_hook=_Fields,
    parse_int=_NumberText,
    parse_float=_NumberText,
    parse_constant=_refuse_constant,
    strict=True,
)


def json_value(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value at a position in the form for `variant_of`, and the position after it.

    Raises:
        ValueError: there is no JSON value.
    """
    try:
        return _decoder.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError(f"JSON of more than {LEVELS_MAX} levels") from error


def variant_of(value: Any) -> tuple[bytes, bytes]:  # noqa: ANN401 - JSON
    """Return the value and the metadata of a VARIANT.

    Raises:
        ValueError: an object has a duplicate name, a text has an unpaired surrogate, or there are too many levels.
    """
    encoder = _VariantEncoder()
    try:
        encoded = encoder.encode(value, 0)
    except RecursionError as error:
        raise ValueError(f"JSON of more than {LEVELS_MAX} levels") from error
    return encoded, encoder.metadata()


class _VariantEncoder:
    """Encodes one value, and collects the names of its fields in the order of their first use."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def encode(self, value: Any, level: int) -> bytes:  # noqa: ANN401 - JSON
        if isinstance(value, _NumberText):
            return _number(value)
        if isinstance(value, str):
            return _string(value)
        if value is None:
            return _NULL
        if isinstance(value, bool):
            return _TRUE if value else _FALSE
        if level == LEVELS_MAX:
            raise ValueError(f"JSON of more than {LEVELS_MAX} levels")
        if not isinstance(value, _Fields):
            items = []
            for item in value:  # a comprehension would double the depth of nested calls
                items.append(self.encode(item, level + 1))
            return _array(items)
        fields: dict[str, tuple[int, bytes]] = {}
        for name, item in value:
            if name in fields:
                raise ValueError(f"an object with two fields named {name!r}")
            key_id = self._ids.setdefault(name, len(self._ids))
            fields[name] = key_id, self.encode(item, level + 1)
        return _object(fields)

    def metadata(self) -> bytes:
        names = [name.encode() for name in self._ids]
        offsets = _offsets(names)
        size = _size_of(max(offsets[-1], len(names)))
        return b"".join(
            [bytes([_VERSION | (size - 1) << 6]), _encode_unsigned([len(names), *offsets], size), *names],
        )


def _array(items: list[bytes]) -> bytes:
    offsets = _offsets(items)
    size = _size_of(offsets[-1])
    is_large = len(items) > _COUNT_MAX
    header = _ARRAY | (size - 1) << 2 | is_large << 4
    return b"".join([bytes([header]), _count(len(items)), _encode_unsigned(offsets, size), *items])


def _object(fields: dict[str, tuple[int, bytes]]) -> bytes:
    """Return an object whose values are in their original order, with its list of fields ordered by name."""
    items = [item for _, item in fields.values()]
    offsets = _offsets(items)
    offset_of = dict(zip(fields, offsets, strict=False))  # the last offset is the end
    names = sorted(fields, key=utf_16)
    ids = [fields[name][0] for name in names]
    id_size, size = _size_of(max(ids, default=0)), _size_of(offsets[-1])
    is_large = len(items) > _COUNT_MAX
    header = _OBJECT | (size - 1) << 2 | (id_size - 1) << 4 | is_large << 6
    by_name = [*(offset_of[name] for name in names), offsets[-1]]
    lists = [_count(len(items)), _encode_unsigned(ids, id_size), _encode_unsigned(by_name, size)]
    return b"".join([bytes([header]), *lists, *items])


def _offsets(items: list[bytes]) -> list[int]:
    offsets = [0]
    for item in items:
        offsets.append(offsets[-1] + len(item))
    return offsets


def _size_of(number: int) -> int:
    return max(1, -(-number.bit_length() // 8))


def _encode_unsigned(numbers: list[int], size: int) -> bytes:
    return b"".join([number.to_bytes(size, "little") for number in numbers])


def _count(count: int) -> bytes:
    return count.to_bytes(4 if count > _COUNT_MAX else 1, "little")


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > _SHORT_STRING_MAX:
        return bytes([_STRING << 2]) + len(data).to_bytes(4, "little") + data
    return bytes([len(data) << 2 | 1]) + data


def _number(text: str) -> bytes:
    """Return the smallest integer or decimal with all digits; a double for an exponent, or for too many digits."""
    if not _SIGNED_DIGITS.issuperset(text):
        return _double(text)
    sign, digits, exponent = Decimal(text).as_tuple()
    if len(digits) > _DIGITS_MAX or not isinstance(exponent, int) or -exponent > _DIGITS_MAX:
        return _double(text)
    magnitude = int("".join(map(str, digits)))
    unscaled = -magnitude if sign else magnitude
    if "." not in text:
        for size, kind in _INTEGERS:
            if -(1 << 8 * size - 1) <= unscaled < 1 << 8 * size - 1:
                return bytes([kind << 2]) + unscaled.to_bytes(size, "little", signed=True)
    digits_most = max(len(digits), -exponent)
    size, kind = _decimal_of(digits_most)
    return bytes([kind << 2, -exponent]) + unscaled.to_bytes(size, "little", signed=True)


def _decimal_of(digits: int) -> tuple[int, int]:
    """Return size and kind of the smallest decimal with this number of digits."""
    for digits_max, size, kind in _DECIMALS:
        if digits <= digits_max:
            return size, kind
    raise ValueError(f"a decimal with {digits} digits")


def _double(text: str) -> bytes:
    return bytes([_DOUBLE << 2]) + struct.pack("<d", float(text))
