"""Selection of JSON lines whose values arro3 reads as Spark does.

In contrast to Spark, arro3 accepts numbers in quotes, fractions for integers, zeros before a number, and missing or
doubled commas: apache/arrow-rs#9204, apache/arrow-rs#10265.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.rows.buffers import leaf_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from ftfile.source.decoding.records import LineBlock


_STRING = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_KEY_WITH_ESCAPE = r'[{,]{s}"[^"\\]*\\(?:[^"\\]|\\.)*"{s}:'
_NUMBER_IN_QUOTES = r'"[-+.0-9eE]+"'

# Spellings of numbers that Spark refuses for a type, or that arro3 reads as another value.
# arro3-io 0.9 reads numbers slightly below the least BIGINT as the least BIGINT.
_WRONG_INTEGER = rf"(?:-?[0-9]+[.eE]|{_NUMBER_IN_QUOTES}|-92233720368547[0-9]{{5}})"
_WRONG_FLOAT = rf'(?:-0[^.0-9eE]|{_NUMBER_IN_QUOTES}|"[-+]?(?i:nan|inf|infinity)")'
# Spark refuses a number of more than 1,000 digits. It has at least 334 digits before the point, after it or after an e.
_MANY_DIGITS, _MANY_DIGITS_BYTES = r"[0-9]{334}", 1000
_WRONG_DECIMAL = r'(?:-?[0-9.]+[eE]|"[^"]*[eE][^"]*")'  # arro3-io 0.9 cuts the exponent to 32 bits


class Spelling:
    """Finds the lines that arro3 and Spark read as the same values, with the columns of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._patterns: dict[str, tuple[str, str]] = {}  # by the stand-in for a line feed

    def is_regular(self, lines: LineBlock) -> NDArray[np.bool_]:
        """Return for each line True if arro3 and Spark read it as the same values.

        Matching brackets are not checked, because arro3 checks them.
        """
        if lines.stand_in not in self._patterns:
            self._patterns[lines.stand_in] = self._compile_pattern(lines.stand_in)
        regular, wrong = self._patterns[lines.stand_in]
        texts = _without_ends(lines)
        matches = pc.match_substring_regex(texts, regular)
        if wrong:
            matches = pc.and_(matches, pc.invert(pc.match_substring_regex(texts, wrong)))
        regular_lines: NDArray[np.bool_] = matches.to_numpy(zero_copy_only=False)
        if np.any(lines.ends - lines.starts > _MANY_DIGITS_BYTES):
            has_many_digits = pc.match_substring_regex(texts, _MANY_DIGITS)
            regular_lines = regular_lines & ~has_many_digits.to_numpy(zero_copy_only=False)
        return regular_lines

    def _compile_pattern(self, stand_in: str) -> tuple[str, str]:
        """Return the pattern of regular lines, and the pattern of lines with a wrong number, which may be empty."""
        space = rf"[ \t\r{re.escape(stand_in)}]*"
        return _regular_line(space), "|".join(_wrong_numbers(self._schema, space))


def _without_ends(lines: LineBlock) -> pa.Array:
    """Return the lines, including their line feeds, as binary values."""
    offsets = np.append(lines.starts, lines.ends[-1:]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(lines.block)]
    return pa.Array.from_buffers(pa.large_binary(), len(lines), buffers)


def _regular_line(space: str) -> str:
    key = f"(?:{_STRING}{space}:{space})?"
    value = f"(?:{_STRING}|{_NUMBER}|true|false|null|\\{{{space}\\}}|\\[{space}\\])"
    element = f"{space}(?:{key}[{{\\[]{space})*{key}{value}{space}(?:[}}\\]]{space})*"
    return f"^{element}(?:,{element})*\n$"


def _wrong_numbers(schema: pa.Schema, space: str) -> Iterator[str]:
    """Yield patterns of numbers that are wrong for the type of their field."""
    names: dict[tuple[str, str], set[str]] = {}  # fields by the place and the number pattern
    for field in schema:
        for place, wrong, name in _numbers(field.name, field.type):
            names.setdefault((place, wrong), set()).add(_in_hexadecimal(name))
    if names:
        yield _KEY_WITH_ESCAPE.replace("{s}", space)
    for (place, wrong), spelled in names.items():
        key = f'"(?:{"|".join(sorted(spelled))})"{space}:{space}'
        if place == "value":
            yield key + wrong
        elif place == "list":
            yield f'{key}\\[(?:[^\\]"{{}}]|"[^"]*"|\\][\\] \\t]*,{space}\\[)*{wrong}'
        elif place == "map":
            yield f'{key}\\{{(?:[^}}"{{]|{_STRING})*:{space}{wrong}'
        else:
            yield f"[\\[:,]{space}{wrong}"


class _NumericField(NamedTuple):
    """A numeric field, with the pattern of its wrong spellings."""

    place: str  # `deep` is any place in the line
    wrong: str
    name: str


def _numbers(name: str, kind: pa.DataType) -> Iterator[_NumericField]:
    """Yield place, pattern of wrong spellings and name of each numeric field; `deep` is any place in the line."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _numbers(field.name, field.type)
        return
    item, place = kind, "value"
    while pa.types.is_list(item):
        item, place = item.value_type, "list"
    if pa.types.is_struct(item):
        yield from _numbers("", item)
        return
    if pa.types.is_map(item):
        item, place = item.item_type, "map" if place == "value" else "deep"
    if pa.types.is_nested(item):
        place = "deep"
    for wrong in _wrong_spellings(leaf_types(item)):
        yield _NumericField(place, wrong, name)


def _wrong_spellings(kinds: Iterable[pa.DataType]) -> set[str]:
    patterns = set()
    for kind in kinds:
        if pa.types.is_integer(kind):
            patterns.add(_WRONG_INTEGER)
        elif pa.types.is_floating(kind):
            patterns.add(_WRONG_FLOAT)
        elif pa.types.is_decimal(kind):
            patterns.add(_WRONG_DECIMAL)
    return patterns


def _in_hexadecimal(name: str) -> str:
    """Return a pattern of the bytes of a name in UTF-8."""
    return "".join(f"\\x{{{byte:x}}}" for byte in name.encode())
