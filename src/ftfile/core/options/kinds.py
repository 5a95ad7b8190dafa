"""Kinds of option values: text in, value out, and the sentence that describes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.units import parse_duration_s, parse_size_bytes, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = (
    "BOOLEAN",
    "BYTES",
    "CHARACTER",
    "CLOCK",
    "COLUMNS",
    "COLUMN_AND_DURATION",
    "COUNT",
    "DURATION",
    "FORMAT",
    "FORMATS",
    "INTEGER",
    "NAMES",
    "PERMISSION",
    "SIZE",
    "TEXT",
    "TIME",
    "VERSION",
    "Kind",
    "one_of",
)

# The formats that ftfile brings.
FORMATS = ("parquet", "json", "csv", "text", "binary", "avro", "orc", "arrow")


@dataclass(frozen=True, slots=True)
class Kind:
    """How one sort of value is written.

    Attributes:
        accepts: completes the sentence "it takes …".
        parse: returns the value or raises ValueError.
    """

    accepts: str
    parse: Callable[[str], Any]


def one_of(*names: str) -> Kind:
    """Return the kind of an option with a few named values; upper and lower case are the same."""
    known = {name.lower(): name for name in names}

    def parse(text: str) -> str:
        try:
            return known[text.strip().lower()]
        except KeyError:
            raise ValueError(text) from None

    return Kind("one of " + ", ".join(f"`{name}`" for name in names), parse)


def _format(text: str) -> str:
    name = text.strip()
    if not _NAME.fullmatch(name):
        raise ValueError(text)
    return name.lower() if name.lower() in FORMATS else name


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise ValueError(text) from None


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text.strip())
        if number < least:
            raise ValueError(text)
        return number

    return parse


def _size(text: str) -> int:
    size = parse_size_bytes(text)
    if size < 1:
        raise ValueError(text)
    return size


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len({name.lower() for name in names}) != len(names):
        raise ValueError(text)
    return names


def _character(text: str) -> str:
    if len(text) != 1:
        raise ValueError(text)
    return text


_NAME = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
_ESCAPED = re.compile(r"\\(x[0-9A-Fa-f]{2}|.?)|([^\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def _bytes(text: str) -> bytes:
    def meant(match: re.Match[str]) -> bytes:
        escape, plain = match.groups()
        if plain is not None:
            return str(plain).encode()
        if len(escape) > 1:
            return bytes.fromhex(escape[1:])
        if escape not in _ESCAPES:
            raise ValueError(text)
        return _ESCAPES[escape]

    return b"".join(map(meant, _ESCAPED.finditer(text)))


def _part_of_a_day(text: str) -> float:
    seconds = parse_duration_s(text)
    if seconds < 1 or 86_400 % seconds:
        raise ValueError(text)
    return seconds


def _column_and_duration(text: str) -> tuple[str, float]:
    column, _, duration = text.rpartition(":")
    seconds = parse_duration_s(duration)
    if not column or not seconds:
        raise ValueError(text)
    return column.strip(), seconds


def _permission(text: str) -> int:
    digits = text.strip()
    if not digits.isdecimal() or len(digits) not in {3, 4} or (len(digits) == 4 and digits[0] != "0"):  # noqa: PLR2004
        raise ValueError(text)
    return int(digits, 8)


FORMAT = Kind("one of " + ", ".join(f"`{name}`" for name in FORMATS) + ", or the name of an installed format", _format)
TEXT = Kind("text", lambda text: text)
BOOLEAN = Kind("`true` or `false`", _boolean)
COUNT = Kind("a whole number of 1 or more", _at_least(1))
VERSION = Kind("a whole number of 0 or more", _at_least(0))
INTEGER = Kind("a whole number", lambda text: int(text.strip()))
SIZE = Kind("a size of at least one byte, such as `128MiB`, `64m` or `1000000`", _size)
DURATION = Kind("a duration with its unit, such as `90s`, `5min` or `1h`", parse_duration_s)
CLOCK = Kind("a duration that divides a day, such as `15min`, `1h` or `1d`", _part_of_a_day)
COLUMN_AND_DURATION = Kind("a timestamp column and a duration, such as `ts:1h`", _column_and_duration)
TIME = Kind(
    "a point in time as in ISO 8601, such as `2024-07-01T12:00:00Z` or `2024-07-01`; without a zone it is UTC",
    parse_time,
)
PERMISSION = Kind("three octal digits, such as `640`", _permission)
COLUMNS = Kind("column names separated by commas, none twice", _names)
NAMES = Kind("names separated by commas, none twice", _names)
CHARACTER = Kind("a single character", _character)
BYTES = Kind(r"text, with any byte as in `\x00` or `\xff`, and `\n`, `\r`, `\t`, `\0`, `\\`", _bytes)
