"""Texts such as `"NaN"`, which JSON of Spark contains in columns of floating-point numbers."""

from __future__ import annotations

import json
import re
from typing import TypeAlias

import pyarrow as pa

from ftfile.rows.buffers import is_list_like

# In valid JSON, a quote within a text follows a backslash, and a text before a colon is a name.
_NUMBER_TEXT = re.compile(rb'(?<!\\)"(?:NaN|-?Infinity)"(?!\s*:)')
_TOKEN = re.compile(rb'("(?:[^"\\]|\\.)*")(\s*:)?|([{}\[\]])')
_NUMBER = "number"

# The shape of a value: the shapes of an object's members by the text of their names, the shape of an array's elements,
# `_NUMBER`, or None for other values.
_Shape: TypeAlias = "dict[str, _Shape] | list[_Shape] | str | None"


def with_nulls(lines: bytes) -> bytes:
    """Return lines of JSON in which null replaces the texts that can be numbers."""
    return _NUMBER_TEXT.sub(b"null", lines)


def with_numbers(lines: bytes, columns: pa.Schema) -> bytes:
    """Return lines of JSON in which these texts have no quotes in columns of numbers, as pyarrow reads them."""
    row = _shape(pa.struct(list(columns)))
    changed = []
    for line in lines.split(b"\n"):
        changed.append(_with_numbers(line, row) if _NUMBER_TEXT.search(line) else line)
    return b"\n".join(changed)


def _shape(kind: pa.DataType) -> _Shape:
    if pa.types.is_struct(kind):
        return {field.name: _shape(field.type) for field in kind}
    if is_list_like(kind):
        return [_shape(kind.value_type)]
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return _NUMBER
    return None


def _with_numbers(line: bytes, row: _Shape) -> bytes:
    pieces: list[bytes] = []
    position = 0
    shape = row  # of the next value
    enclosing: list[_Shape] = []  # the arrays and objects that contain the next value
    for token in _TOKEN.finditer(line):
        text, colon, bracket = token.groups()
        if colon:
            members = enclosing[-1] if enclosing else None
            shape = members.get(_name(text)) if isinstance(members, dict) else None
        elif text:
            if shape is _NUMBER and _NUMBER_TEXT.fullmatch(text):
                pieces += [line[position : token.start()], text[1:-1]]
                position = token.end()
        elif bracket == b"{":
            enclosing.append(shape)
        elif bracket == b"[":
            enclosing.append(shape)
            shape = shape[0] if isinstance(shape, list) else None
        elif not enclosing:
            return line  # not JSON
        else:
            shape = enclosing.pop()
    return b"".join([*pieces, line[position:]])


def _name(text: bytes) -> str:
    if b"\\" not in text:
        return text[1:-1].decode(errors="replace")
    try:
        return str(json.loads(text))
    except ValueError:
        return ""  # not JSON
