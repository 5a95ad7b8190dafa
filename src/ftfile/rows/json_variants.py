"""Values of VARIANT in JSON lines."""

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
    """Return a column whose VARIANTs are JSON text, as large strings, which Spark never sends.

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
    """Return lines in which each VARIANT is an object of its two binary values, in base64.

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
    """A line, and the VARIANTs that were found in it."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._found: list[tuple[int, int, str]] = []  # start, end and replacement of each

    def pieces(self, kinds: dict[str, pa.DataType]) -> Iterator[str]:
        """Yield the parts of the line, with replaced VARIANTs, given the types of columns."""
        self._object(self._space(0), kinds, None)
        last = 0
        for start, after, text in self._found:
            yield self._line[last:start]
            yield text
            last = after
        yield self._line[last:]
        yield "\n"

    def _space(self, at: int) -> int:
        match = _SPACE.match(self._line, at)
        assert match is not None, at
        return match.end()

    def _is(self, at: int, character: str) -> bool:
        return self._line[at : at + 1] == character

    def _after(self, at: int, character: str) -> int:
        if not self._is(at, character):
            raise ValueError(f"no {character!r} at character {at}")
        return self._space(at + 1)

    def _value(self, start: int, kind: pa.DataType | None) -> int:
        """Return the position after a value and white space; the type None skips a value."""
        if kind is not None and is_variant(kind):
            return self._variant(start)
        if kind is None or not has_variant(kind) or self._is(start, "n"):  # null
            return self._space(json_value(self._line, start)[1])
        if pa.types.is_list(kind):
            return self._elements(start, kind.value_type)
        if pa.types.is_map(kind):
            return self._object(start, {}, kind.item_type)
        return self._object(start, {field.name: field.type for field in kind}, None)

    def _variant(self, start: int) -> int:
        json, end = json_value(self._line, start)
        value, metadata = map(_base64, variant_of(json))
        self._found.append((start, end, f'{{"value":"{value}","metadata":"{metadata}"}}'))
        return self._space(end)

    def _object(self, start: int, kinds: dict[str, pa.DataType], other: pa.DataType | None) -> int:
        """Return the position after an object and white space, given the types of its fields and of others."""
        place = self._after(start, "{")
        if self._is(place, "}"):
            return self._space(place + 1)
        while True:
            if not self._is(place, '"'):
                raise ValueError(f"no name of a field at character {place}")
            name, end = json_value(self._line, place)
            place = self._after(self._space(end), ":")
            place = self._value(place, kinds.get(name, other))
            if self._is(place, "}"):
                return self._space(place + 1)
            place = self._after(place, ",")

    def _elements(self, start: int, kind: pa.DataType) -> int:
        place = self._after(start, "[")
        if self._is(place, "]"):
            return self._space(place + 1)
        while True:
            place = self._value(place, kind)
            if self._is(place, "]"):
                return self._space(place + 1)
            place = self._after(place, ",")
