"""The JSON text of a VARIANT, from its two binary values (Parquet's "Variant Encoding")."""

from __future__ import annotations

import binascii
import json
import re
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.rows.value_text import UTC, check_range, offset_text, value_texts
from ftfile.rows.zone_clocks import clocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEVELS_MAX = 500  # nested arrays and objects; Python's JSON parser has a limit of about 1,000
TEXT_MAX = 128 << 20  # characters: Spark's limit of a VARIANT, in bytes

_VERSION = 1
_PRIMITIVE, _SHORT_STRING, _OBJECT = 0, 1, 2  # an array is 3
_CONSTANTS = {0: "null", 1: "true", 2: "false"}
_INTEGERS = {3: 1, 4: 2, 5: 4, 6: 8}  # bytes of each
_DATE, _TIMESTAMP, _TIMESTAMP_NTZ = 11, 12, 13
_FLOATS = {7: ("<d", 8, pa.float64()), 14: ("<f", 4, pa.float32())}
_DECIMALS = {8: (4, 9), 9: (8, 18), 10: (16, 38)}  # bytes, and maximum number of digits
_STRING, _UUID = 16, 20
_BYTES = (15, _STRING, _UUID)
_UUID_PARTS = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
_NO_TIME_US = -(2**63)  # NumPy's "not a time"
_MINUTE_US = 60_000_000
_ESCAPE = re.compile(r"\\(?:u00[01][0-9a-f]|.)")


def variant_json(value: bytes, metadata: bytes, time_zone: str = UTC) -> str:
    """Return the JSON text of a VARIANT, like Spark's `to_json` in a session with this time zone.

    `variant_of` makes the same value of the text, so a compaction, which reads and writes values, changes nothing. For
    this, decimals keep trailing zeros, unlike in Spark, where the DECIMAL 100.0 becomes the BIGINT 100. A zero has no
    sign, fields are in Java's order, and offsets from UTC have no seconds, which the local time then does not have
    either.

    Raises:
        ValueError: the bytes are not a VARIANT, or have no such text.
    """
    return _VariantDecoder(value, _keys(metadata), time_zone).text()


class _VariantDecoder:
    """Decodes one value with bounded time and memory: no byte counts twice, whatever offsets refer to."""

    def __init__(self, value: bytes, keys: Sequence[str], time_zone: str) -> None:
        self._value = value
        self._keys = keys
        self._time_zone = time_zone
        self._taken = 0

    def text(self) -> str:
        pieces: list[str] = []
        size = 0
        # Texts, and values to decode with their start and level; the last one is next.
        todo: list[str | tuple[int, int]] = [(0, 0)]
        while todo:
            item = todo.pop()
            if isinstance(item, tuple):
                start, level = item
                if self._bytes(start, 1)[0] & 3 >= _OBJECT:
                    if level == LEVELS_MAX:
                        raise ValueError(f"a VARIANT of more than {LEVELS_MAX} levels")
                    todo.extend(reversed(list(self._parts(start, level + 1))))
                    continue
                item = self._scalar(start)
            pieces.append(item)
            size += len(item)
            if size > TEXT_MAX:
                raise ValueError(f"a VARIANT whose JSON text is longer than {TEXT_MAX} characters")
        return "".join(pieces)

    def _bytes(self, start: int, size: int) -> bytes:
        piece = self._value[start : start + size]
        if len(piece) < size:
            raise ValueError("a truncated VARIANT")
        return piece

    def _take(self, start: int, size: int) -> bytes:
        """Return bytes that only one value can have."""
        self._taken += size
        if self._taken > len(self._value):
            raise ValueError("a VARIANT whose values overlap")
        return self._bytes(start, size)

    def _numbers(self, start: int, size: int, count: int) -> list[int]:
        data = self._take(start, size * count)
        return [int.from_bytes(data[place : place + size], "little") for place in range(0, len(data), size)]

    def _parts(self, start: int, level: int) -> Iterator[str | tuple[int, int]]:
        """Yield the texts of an object or array, and its values between them."""
        header = self._take(start, 1)[0]
        is_object = header & 3 == _OBJECT
        is_large = header >> (6 if is_object else 4) & 1
        count_size = 4 if is_large else 1
        (count,) = self._numbers(start + 1, count_size, 1)
        place = start + 1 + count_size
        ids: list[int] = []
        if is_object:
            id_size = (header >> 4 & 3) + 1
            ids = self._numbers(place, id_size, count)
            place += id_size * count
        offset_size = (header >> 2 & 3) + 1
        offsets = self._numbers(place, offset_size, count + 1)
        place += offset_size * (count + 1)
        values = [(place + offset, level) for offset in offsets[:count]]
        if is_object:
            yield from self._object_parts(ids, values)
            return
        yield "["
        for index, value in enumerate(values):
            if index:
                yield ","
            yield value
        yield "]"

    def _object_parts(self, ids: Sequence[int], values: Sequence[tuple[int, int]]) -> Iterator[str | tuple[int, int]]:
        if max(ids, default=-1) >= len(self._keys):
            raise ValueError("a VARIANT with a field whose name is not in its metadata")
        fields = {self._keys[key_id]: value for key_id, value in zip(ids, values, strict=True)}
        if len(fields) < len(ids):
            raise ValueError("a VARIANT with two fields of the same name")
        yield "{"
        for index, name in enumerate(sorted(fields, key=utf_16)):  # in any order that another program has chosen
            if index:
                yield ","
            yield f"{_quote_text(name)}:"
            yield fields[name]
        yield "}"

    def _scalar(self, start: int) -> str:
        header = self._take(start, 1)[0]
        kind = header >> 2
        if header & 3 == _SHORT_STRING:
            return _quote_text(self._take(start + 1, kind).decode())
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in _BYTES:
            return self._text_of_bytes(start + 1, kind)
        return self._number_or_time(start + 1, kind)

    def _text_of_bytes(self, start: int, kind: int) -> str:
        if kind == _UUID:
            digits = self._take(start, 16).hex()
            return f'"{"-".join(digits[first:last] for first, last in _UUID_PARTS)}"'
        (size,) = self._numbers(start, 4, 1)
        data = self._take(start + 4, size)
        return _quote_text(data.decode() if kind == _STRING else binascii.b2a_base64(data, newline=False).decode())

    def _number_or_time(self, start: int, kind: int) -> str:
        if kind in _INTEGERS:
            return str(self._read_signed(start, _INTEGERS[kind]))
        if kind in _DECIMALS:
            size, digits_max = _DECIMALS[kind]
            scale = self._take(start, 1)[0]
            return _decimal_text(self._read_signed(start + 1, size), scale, digits_max)
        if kind in _FLOATS:
            layout, size, arrow = _FLOATS[kind]
            return _float_text(struct.unpack(layout, self._take(start, size))[0], arrow)
        return f'"{self._time(start, kind)}"'

    def _time(self, start: int, kind: int) -> str:
        if kind == _DATE:
            return _text(self._read_signed(start, 4), pa.date32())
        if kind == _TIMESTAMP_NTZ:
            return _clock_text(self._read_signed(start, 8))
        if kind == _TIMESTAMP:
            return self._instant_text(self._read_signed(start, 8))
        raise ValueError(f"a VARIANT with a value of type {kind}, for which Spark has no JSON text")

    def _read_signed(self, start: int, size: int) -> int:
        return int.from_bytes(self._take(start, size), "little", signed=True)

    def _instant_text(self, instant_us: int) -> str:
        offset_us = _offset_us(instant_us, self._time_zone)
        return _clock_text(instant_us + offset_us) + offset_text(offset_us)


def utf_16(name: str) -> bytes:
    """Return the bytes by which Java compares strings."""
    return name.encode("utf-16-be")


def _keys(metadata: bytes) -> list[str]:
    """Return the field names in the metadata of a VARIANT."""
    if not metadata or metadata[0] & 0x0F != _VERSION:
        raise ValueError("a VARIANT whose metadata is not of version 1")
    size = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + size], "little")
    first = 1 + size * (count + 2)
    if first > len(metadata):
        raise ValueError("a VARIANT with truncated metadata")
    places = range(1 + size, first, size)
    bounds = [first + int.from_bytes(metadata[place : place + size], "little") for place in places]
    if bounds[0] != first or bounds != sorted(bounds) or bounds[-1] > len(metadata):
        raise ValueError("a VARIANT whose metadata has names out of order")
    return [metadata[bounds[index] : bounds[index + 1]].decode() for index in range(count)]


def _quote_text(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    if "\\u00" in quoted:
        return _ESCAPE.sub(_as_in_java, quoted)
    return quoted


def _as_in_java(escape: re.Match[str]) -> str:
    """Return an escape of a control character with Java's capital digits; other escapes unchanged."""
    return escape[0][:2] + escape[0][2:].upper()


def _decimal_text(unscaled: int, scale: int, digits_max: int) -> str:
    """Return a decimal with all digits, including trailing zeros, which Spark omits."""
    digits = str(abs(unscaled))
    if scale > digits_max or len(digits) > digits_max:
        raise ValueError(f"a VARIANT with a decimal of more than {digits_max} digits")
    digits = digits.rjust(scale + 1, "0")
    whole = digits[: len(digits) - scale]
    fraction = digits[len(digits) - scale :]
    sign = "-" if unscaled < 0 else ""
    if fraction:
        return f"{sign}{whole}.{fraction}"
    return f"{sign}{whole}"


def _float_text(value: float, kind: pa.DataType) -> str:
    text = _text(abs(value) if value == 0 else value, kind)  # -0.0 would be read as the DECIMAL 0.0
    if text[-1].isdigit():
        return text
    return f'"{text}"'


def _offset_us(instant_us: int, time_zone: str) -> int:
    """Return the offset from UTC in whole minutes; `ValueError` outside of the years 0001 to 9999, except in UTC."""
    if time_zone == UTC:
        return 0
    instants = pa.array([instant_us], pa.timestamp("us", UTC))
    check_range(instants)
    clock_us: int = clocks_of(instants, time_zone)[0].value
    # Before standard time, offsets had seconds, which `+01:00` cannot contain.
    offset_us = abs(clock_us - instant_us) // _MINUTE_US * _MINUTE_US
    if clock_us >= instant_us:
        return offset_us
    return -offset_us


def _clock_text(clock_us: int) -> str:
    if not _NO_TIME_US < clock_us < -_NO_TIME_US:
        raise ValueError("a VARIANT with a timestamp that text cannot represent")
    return _text(clock_us, pa.timestamp("us"))


def _text(value: Any, kind: pa.DataType) -> str:  # noqa: ANN401 - as many types as values
    return value_texts(pa.array([value], kind), UTC)[0]
