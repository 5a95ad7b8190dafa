"""Conversion of VARIANT values in JSON lines, to JSON text and to their binary values."""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.rows.buffers import list_parts
from ftfile.rows.spark_types import has_variant, is_variant
from ftfile.rows.variant import variant_json
from ftfile.rows.variant_encoding import json_value, variant_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEXTS_MAX = 1 << 30  # characters of a column: Arrow's strings are limited to 2 GiB
_SPACE = re.compile(r"[ \t\r]*")


def with_raw_variants(array: pa.Array, time_zone: str) -> pa.Array:
    """Return a column in which each VARIANT is its JSON text.

    The texts have the type large string. Spark never sends this type, so it marks text that is already JSON.

    Raises:
        ValueError: a VARIANT has no JSON text, or NULL is an element of an array or a value of a map.
    """
    kind = array.type
    if is_variant(kind):
        return _texts(array, time_zone)
    if not has_variant(kind):
        return array
    if pa.types.is_struct(kind):
        children = [with_raw_variants(child, time_zone) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, names=kind.names, mask=array.is_null())
    offsets, values = list_parts(array)
    if pa.types.is_map(kind):
        keys, items = values.flatten()
        _check_present(items)
        return pa.MapArray.from_arrays(offsets, keys, with_raw_variants(items, time_zone))
    _check_present(values)
    return pa.ListArray.from_arrays(offsets, with_raw_variants(values, time_zone))


def _check_present(values: pa.Array) -> None:
    if is_variant(values.type) and values.null_count:
        raise ValueError(
            "NULL in an array or map of VARIANT: JSON has only one `null`, which is the null of a VARIANT; write "
            "parse_json('null') instead of NULL, or use parquet"
        )


def _texts(array: pa.StructArray, time_zone: str) -> pa.Array:
    """Return the JSON texts of VARIANTs."""
    texts: list[str | None] = []
    size = 0
    values, keys = array.flatten()
    rows = zip(values.to_pylist(), keys.to_pylist(), array.is_valid().to_pylist(), strict=True)
    for value, metadata, is_present in rows:
        if not is_present:
            texts.append(None)
            continue
        if value is None or metadata is None:
            raise ValueError("a VARIANT without a value, or without metadata")
        text = variant_json(value, metadata, time_zone)
        size += len(text)
        if size > _TEXTS_MAX:
            raise ValueError(f"JSON texts of more than {_TEXTS_MAX} characters")
        texts.append(text)
    return pa.array(texts, pa.large_string())


def with_binary_variants(lines: bytes, schema: pa.Schema) -> bytes:
    """Return JSON lines in which an object with the value and metadata in base64 replaces each VARIANT.

    Raises:
        ValueError: a line is not a JSON object, or its values do not match the types.
    """
    pieces: list[str] = []
    kinds = {field.name: field.type for field in schema}
    for line in lines.decode().removesuffix("\n").split("\n"):
        pieces.extend(_Scan(line).pieces(kinds))
    return "".join(pieces).encode()


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


class _Scan:
    """One pass over a line that replaces its VARIANTs.

    Methods that parse receive a position in the line, and return the position after the parsed text and white space.
    """

    def __init__(self, line: str) -> None:
        self._line = line
        self._replacements: list[tuple[int, int, str]] = []  # start and end of a VARIANT, and its new text

    def pieces(self, kinds: dict[str, pa.DataType]) -> Iterator[str]:
        """Yield the parts of the line, with replaced VARIANTs; `kinds` contains the types of columns by name."""
        self._object(self._space(0), kinds, None)
        position = 0
        for start, end, text in self._replacements:
            yield self._line[position:start]
            yield text
            position = end
        yield self._line[position:]
        yield "\n"

    def _space(self, at: int) -> int:
        """Skip white space."""
        match = _SPACE.match(self._line, at)
        assert match is not None, at
        return match.end()

    def _is(self, at: int, character: str) -> bool:
        return self._line[at : at + 1] == character

    def _skip_past(self, at: int, character: str) -> int:
        """Skip a required character and white space."""
        if not self._is(at, character):
            raise ValueError(f"no {character!r} at character {at}")
        return self._space(at + 1)

    def _value(self, start: int, kind: pa.DataType | None) -> int:
        """Parse a value; a value without a known type (None) is skipped."""
        if kind is not None and is_variant(kind):
            return self._variant(start)
        is_null = self._is(start, "n")
        if kind is None or is_null or not has_variant(kind):
            _, end = json_value(self._line, start)
            return self._space(end)
        if pa.types.is_list(kind):
            return self._elements(start, kind.value_type)
        if pa.types.is_map(kind):
            return self._object(start, {}, kind.item_type)
        return self._object(start, {field.name: field.type for field in kind}, None)

    def _variant(self, start: int) -> int:
        json, end = json_value(self._line, start)
        value, metadata = variant_of(json)
        text = f'{{"value":"{_base64(value)}","metadata":"{_base64(metadata)}"}}'
        self._replacements.append((start, end, text))
        return self._space(end)

    def _object(self, start: int, kinds: dict[str, pa.DataType], other: pa.DataType | None) -> int:
        """Parse an object; `kinds` contains the types of fields by name, `other` the type of all other fields."""
        place = self._skip_past(start, "{")
        if self._is(place, "}"):
            return self._space(place + 1)
        while True:
            if not self._is(place, '"'):
                raise ValueError(f"no name of a field at character {place}")
            name, end = json_value(self._line, place)
            place = self._skip_past(self._space(end), ":")
            place = self._value(place, kinds.get(name, other))
            if self._is(place, "}"):
                return self._space(place + 1)
            place = self._skip_past(place, ",")

    def _elements(self, start: int, kind: pa.DataType) -> int:
        place = self._skip_past(start, "[")
        if self._is(place, "]"):
            return self._space(place + 1)
        while True:
            place = self._value(place, kind)
            if self._is(place, "]"):
                return self._space(place + 1)
            place = self._skip_past(place, ",")
