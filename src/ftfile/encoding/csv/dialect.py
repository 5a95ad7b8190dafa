"""The options of CSV."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ftfile.core.errors import ConfigError
from ftfile.core.options import DEFAULTS
from ftfile.encoding.base.time_formats import TimeFormats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ("CsvDialect",)

_OPTIONS = {
    "header": "header",
    "sep": "sep",
    "quote": "quote",
    "escape": "escape",
    "quote_all": "quoteAll",
    "null_value": "nullValue",
    "line_sep": "lineSep",
}
_LINE_SEPS = ("\n", "\r\n", "\r")


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The form of fields and lines."""

    header: bool
    sep: str
    quote: str
    escape: str  # before a quote, and before itself, within quotes
    quote_all: bool
    null_value: str
    line_sep: str
    times: TimeFormats

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> CsvDialect:
        """Return the dialect of options; `ConfigError` if a value is not possible, or two contradict each other."""
        settled = {name: options.get(option, DEFAULTS[option]) for name, option in _OPTIONS.items()}
        dialect = cls(**settled, times=TimeFormats.from_options(options))
        dialect._check()
        return dialect

    def definition(self) -> dict[str, Any]:
        """Return the options as plain JSON."""
        return {option: getattr(self, name) for name, option in _OPTIONS.items()} | self.times.definition()

    @property
    def nulls_as_read(self) -> set[str]:
        """Return `null_value` as in the file, and as a reader sees it that drops all escapes."""
        if self.escape == self.quote:
            return {self.null_value}
        return {self.null_value, re.sub(re.escape(self.escape) + "(.)", r"\1", self.null_value)}

    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        """Return the offset after each row of whole rows; line ends within quotes end none."""
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        within = f"[^{quote}]*(?:{quote}{quote}[^{quote}]*)*"
        if self.escape != self.quote:
            within = f"[^{quote}{escape}]*(?:{escape}.[^{quote}{escape}]*)*"
        row = f"[^{quote}\r\n]*(?:{quote}{within}{quote}[^{quote}\r\n]*)*{re.escape(self.line_sep)}"
        found = re.finditer(row.encode(), data, re.DOTALL)
        return np.array([match.end() for match in found], np.int64)

    def _check(self) -> None:
        for name in ("sep", "quote", "escape"):
            character = getattr(self, name)
            if len(character) != 1 or not character.isascii() or character in "\r\n\0":
                raise ConfigError(f"option {name}={character!r}: it takes one ASCII character that is no line end")
        if self.sep in {self.quote, self.escape}:
            same = "quote" if self.sep == self.quote else "escape"
            raise ConfigError(f"options sep and {same} are both {self.sep!r}: choose another for one of them")
        if self.line_sep not in _LINE_SEPS:
            raise ConfigError(f"option lineSep={self.line_sep!r}: for csv it takes \\n, \\r\\n or \\r")
        if any(character in self.null_value for character in (self.sep, self.quote, "\r", "\n")):
            raise ConfigError(f"option nullValue={self.null_value!r}: it may not contain sep, quote or a line end")
