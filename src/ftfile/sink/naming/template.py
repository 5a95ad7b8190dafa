"""`partFileName` as a template: text with placeholders in braces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy
from ftfile.arrays.time_text import TimePattern, clocks_of
from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.sink.naming.facts import PartFacts

DEFAULT_TEMPLATE = "{name}-{batch}-{index}-{unique}{ext}"

_OPTION = "partFileName"
_TOKEN = re.compile(r"\{(\w+)(?::([^{}]*))?\}|([^{}]+)|.", re.DOTALL)
_DIGITS = {"batch": 10, "index": 5, "number": 1}
_PLAIN = ("name", "bucket", "unique", "ext")
_DIGITS_MAX = 20

# What stands for a placeholder, by its name; of `time`, its pattern says that.
_TEXTS: dict[str, Callable[[PartFacts, int], str]] = {
    "name": lambda part, _: part.name,
    "bucket": lambda part, _: part.directory.replace("/", "-"),
    "batch": lambda part, digits: part.batch.lstrip("0").rjust(digits, "0"),
    "index": lambda part, digits: f"{part.index:0{digits}d}",
    "number": lambda part, digits: f"{part.number:0{digits}d}",
    "unique": lambda part, _: part.unique,
    "ext": lambda part, _: part.extension,
}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A placeholder, or text when it has no name."""

    name: str
    text: str = ""
    digits: int = 0  # of a number, at least
    pattern: TimePattern | None = None  # of `time`


@dataclass(frozen=True, slots=True)
class Template:
    """A template, checked."""

    pieces: tuple[_Piece, ...]
    time_zone: str  # whose clocks `time` shows

    @classmethod
    def parse(cls, text: str, time_zone: str) -> Template:
        """Read a template; a ConfigError if it is empty, or has a placeholder that is not understood."""
        if not text:
            raise ConfigError(f"{_OPTION} is empty: leave it out for names such as {DEFAULT_TEMPLATE}")
        return cls(tuple(_piece(text, match) for match in _TOKEN.finditer(text)), time_zone)

    def uses(self, name: str) -> bool:
        """Return True if a placeholder occurs."""
        return any(piece.name == name for piece in self.pieces)

    def with_unique(self) -> Template:
        """Return a template whose names are unique: with `-{unique}` before their ending, if it lacks that."""
        return self if self.uses("unique") else self._before_ending(_Piece("", "-"), _Piece("unique"))

    def before_ending(self, text: str) -> Template:
        """Return a template with more text before the ending of its names."""
        return self._before_ending(_Piece("", text))

    def _before_ending(self, *added: _Piece) -> Template:
        *front, last = self.pieces
        if last.name == "ext":
            return Template((*front, *added, last), self.time_zone)
        stem, dot, ending = last.text.rpartition(".")
        if last.name or not dot:
            return Template((*self.pieces, *added), self.time_zone)
        return Template((*front, _Piece("", stem), *added, _Piece("", dot + ending)), self.time_zone)

    def fill(self, part: PartFacts) -> str:
        """Return the name of a part."""
        return "".join(self._text(piece, part) for piece in self.pieces)

    def _text(self, piece: _Piece, part: PartFacts) -> str:
        if piece.pattern is not None:
            instant = from_numpy(np.array([part.time_ms * 1000]), pa.timestamp("us", "UTC"))
            return str(piece.pattern.format(clocks_of(instant, self.time_zone), "UTC")[0].as_py())
        return _TEXTS[piece.name](part, piece.digits) if piece.name else piece.text


def _piece(template: str, match: re.Match[str]) -> _Piece:
    name, argument, text = match.groups()
    if text is not None:
        return _Piece("", text)
    if name == "time" and argument:
        return _Piece("time", pattern=TimePattern.parse(_OPTION, argument, pa.timestamp("us")))
    if name in _DIGITS and (argument is None or (argument.isdecimal() and 1 <= int(argument) <= _DIGITS_MAX)):
        return _Piece(name, digits=int(argument or _DIGITS[name]))
    if name in _PLAIN and argument is None:
        return _Piece(name)
    known = [f"{{{known}}}" for known in (*_PLAIN, *_DIGITS)]
    raise ConfigError(
        f"{_OPTION}={template!r}: {match[0]!r} is not understood; accepted are {', '.join(known)}, a number of digits "
        "as in {number:5}, and {time:yyyyMMdd-HHmm}"
    )
