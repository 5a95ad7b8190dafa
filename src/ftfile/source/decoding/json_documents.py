"""The objects of one JSON document, read with the columns of a schema."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.source.decoding.records import decimal_of

if TYPE_CHECKING:
    from collections.abc import Iterator


_SHOWN_CHARS = 80
_SPACE = re.compile(r"[ \t\r\n]*")
_INTEGER = re.compile(r"-?[0-9]+")
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_DIGITS_MAX = 1000  # digits of a number: Spark's parser refuses more
# values that Spark accepts for floating-point numbers
_WORDS = {"NaN", "Infinity", "+Infinity", "-Infinity", "+INF", "-INF"}


class _JsonNumber(str):
    """A number with its spelling."""

    __slots__ = ()


def _spelled_number(text: str) -> _JsonNumber:
    if len(text) > _DIGITS_MAX and sum(map(str.isdigit, text)) > _DIGITS_MAX:
        raise ValueError(f"a number has more than {_DIGITS_MAX} digits")
    return _JsonNumber(text)


def _check_names(members: list[tuple[str, Any]]) -> None:
    for name, _ in members:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"half a surrogate pair in the name {name!a}") from error


# A decoder that keeps the spelling of numbers.
_decode = json.JSONDecoder(
    parse_int=_spelled_number, parse_float=_spelled_number, parse_constant=_JsonNumber
).raw_decode


# Spark refuses such names, also of fields that are not requested.
_decode_with_names_checked = json.JSONDecoder(object_pairs_hook=_check_names, parse_int=str).raw_decode


class _JsonValue(NamedTuple):
    """A value from Python's parser, and its place in the text."""

    parsed: Any  # empty for an object or an array, whose values are read from the text
    text: str
    start: int
    end: int

    @property
    def spelled(self) -> str:
        return self.text[self.start : self.end]


def objects_of(text: str, kind: pa.StructType) -> list[Any]:
    """Return the object of a document, or the objects of its array, as pyarrow accepts them for a type.

    A repeated field has its last value, as in Spark.

    Raises:
        ValueError: the text is not JSON, or a value does not have the type of its column.
    """
    start = behind_space(text, 0)
    document = _value_at(text, start)
    if behind_space(text, document.end) < len(text):
        raise ValueError(f"text after the value that ends at {document.end}")
    if _HALF_PAIR.search(text):
        _decode_with_names_checked(text, start)
    objects = _items(document) if isinstance(document.parsed, list) else [document]
    return [_convert_nested(value, kind) for value in objects]


def behind_space(text: str, position: int) -> int:
    """Return the end of the white space that begins at a position."""
    match = _SPACE.match(text, position)
    assert match is not None, "it matches nothing, too"
    return match.end()


def _value_at(text: str, start: int) -> _JsonValue:
    parsed, end = _decode(text, start)
    if isinstance(parsed, (dict, list)):
        parsed = type(parsed)()  # a long text in the error would be in memory twice
    return _JsonValue(parsed, text, start, end)


def _items(array: _JsonValue) -> Iterator[_JsonValue]:
    """Yield the values of an array that the parser has already read."""
    position = behind_space(array.text, array.start + 1)
    while array.text[position] != "]":
        item = _value_at(array.text, position)
        yield item
        position = behind_space(array.text, item.end)
        if array.text[position] == ",":
            position = behind_space(array.text, position + 1)


def _members(outer: _JsonValue) -> Iterator[tuple[str, _JsonValue]]:
    """Yield names and values of an object that the parser has already read."""
    position = behind_space(outer.text, outer.start + 1)
    while outer.text[position] != "}":
        name, end = _decode(outer.text, position)
        colon = behind_space(outer.text, end)
        value = _value_at(outer.text, behind_space(outer.text, colon + 1))
        yield name, value
        position = behind_space(outer.text, value.end)
        if outer.text[position] == ",":
            position = behind_space(outer.text, position + 1)


def _convert_value(value: _JsonValue, kind: pa.DataType) -> Any:  # noqa: ANN401 - as many types as JSON has
    """Return a JSON value as pyarrow accepts it for a type.

    Raises:
        ValueError: the value does not have this type.
    """
    parsed = value.parsed
    if parsed is None:
        return None
    if pa.types.is_nested(kind):
        return _convert_nested(value, kind)
    if pa.types.is_string(kind):
        return _text(value)
    if isinstance(parsed, str):
        if isinstance(parsed, _JsonNumber):
            return _number(parsed, kind)
        return _of_string(value, kind)
    if isinstance(parsed, bool) and pa.types.is_boolean(kind):
        return parsed
    raise ValueError(f"{value.spelled[:_SHOWN_CHARS]} is no {kind}")


def _of_string(value: _JsonValue, kind: pa.DataType) -> Any:  # noqa: ANN401 - of as many types
    text: str = value.parsed
    if pa.types.is_floating(kind) and text in _WORDS:
        return float(text)
    if pa.types.is_decimal(kind):
        return decimal_of(text, kind)
    if pa.types.is_temporal(kind) or pa.types.is_binary(kind):
        return text
    raise ValueError(f"{value.spelled[:_SHOWN_CHARS]} is no {kind}")


def _convert_nested(value: _JsonValue, kind: pa.DataType) -> Any:  # noqa: ANN401 - of as many types
    if pa.types.is_struct(kind) and isinstance(value.parsed, dict):
        members = dict(_members(value))
        typed = {}
        for field in kind:
            if field.name in members:
                typed[field.name] = _convert_value(members[field.name], field.type)
        return typed
    if pa.types.is_map(kind) and isinstance(value.parsed, dict):
        return [(name, _convert_value(item, kind.item_type)) for name, item in _members(value)]
    if pa.types.is_list(kind) and isinstance(value.parsed, list):
        return [_convert_value(item, kind.value_type) for item in _items(value)]
    raise ValueError(f"{value.spelled[:_SHOWN_CHARS]} is no {kind}")


def _number(spelled: str, kind: pa.DataType) -> Any:  # noqa: ANN401 - of as many types
    if pa.types.is_floating(kind):
        return _floating(spelled, kind)
    if pa.types.is_decimal(kind):
        return decimal_of(spelled, kind)
    if _INTEGER.fullmatch(spelled):
        if pa.types.is_integer(kind):
            return int(spelled)
        if pa.types.is_timestamp(kind) and kind.tz:  # seconds since 1970
            return f"{np.datetime64(int(spelled), 's')}Z"
    raise ValueError(f"the number {spelled} is not a {kind}")


def _floating(spelled: str, kind: pa.DataType) -> float:
    if spelled == "-0":
        return 0.0  # an integer does not have a negative zero
    if not pa.types.is_float32(kind):
        return float(spelled)
    return float(pa.scalar(str(spelled)).cast(kind).as_py())  # rounded only once


def _text(value: _JsonValue) -> str:
    """Return a string unchanged, and any other value in its spelling."""
    if isinstance(value.parsed, str) and not isinstance(value.parsed, _JsonNumber):
        return _with_question_marks(value.parsed)
    if _HALF_PAIR.search(value.spelled):
        # Spark refuses half a surrogate pair in this text
        json.dumps(_decode(value.spelled)[0], ensure_ascii=False).encode()
    return value.spelled


def _with_question_marks(text: str) -> str:
    """Return a text in which a question mark replaces each half of a surrogate pair, as in Spark."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
