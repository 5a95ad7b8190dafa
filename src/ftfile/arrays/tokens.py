"""The words, signs and values of a text that is a condition."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ftfile.core.errors import ConfigError

TAKEN = (
    'it takes values by column, such as {"month": 7} or {"month": [7, 8]}; a text, such as '
    "\"month >= 7 AND city IN ('a', 'b')\"; or a pyarrow expression, which may have functions and fields of structs, "
    "as in pyarrow.compute.field('a', 'b') > 7"
)
# Of an option, or of an argument of a command.
TEXT_TAKEN = "it takes a text, such as \"month >= 7 AND city IN ('a', 'b')\""
_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>--|/\*)|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?!\w)"""
    r"""|(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<column>`(?:[^`]|``)+`)"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<sign><>|!=|==|<=|>=|[-+=<>(),]))"""
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a condition."""

    kind: str  # of the groups of `_TOKEN`, or `end`
    text: str
    position: int  # of its end in the condition

    @property
    def word(self) -> str:
        """Return a word in capitals, or a sign; nothing for others, such as columns in backticks."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


def tokens_of(where: str) -> list[Token]:
    """Return the pieces of a condition, and then its end; a ConfigError for what is none, and for comments."""
    tokens, position, end = list[Token](), 0, len(where.rstrip())
    while position < end:
        match = _TOKEN.match(where, position)
        if match is None:
            rest = where[position:].strip()
            raise ConfigError(f"where={where!r}: {rest[:20]!r} is not understood; {TAKEN}")
        if match["comment"]:
            # Spark would not read what follows, where two signs would make a plus.
            raise ConfigError(f"where={where!r}: {where[match.start('comment') :][:20]!r}: comments are not understood")
        position, kind = match.end(), str(match.lastgroup)
        tokens.append(Token(kind, match[kind], position))
    return [*tokens, Token("end", "", end)]


class Cursor:
    """Reads the pieces of a condition one after the other.

    Raises:
        ConfigError: as `tokens_of`.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._tokens = tokens_of(where)
        self._next = 0

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self, word: str) -> bool:
        taken = self._peek().word == word
        self._next += taken
        return taken

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._error(word)

    def _error(self, what: str) -> ConfigError:
        """Return the error that something else is expected here."""
        before = self._where[: self._tokens[self._next - 1].position].strip() if self._next else ""
        found = self._peek().text or "nothing"
        after = f"after {before!r}" if before else "at the start"
        return ConfigError(f"where={self._where!r}: {what} is expected {after}, not {found!r}")


def unquoted(text: str) -> str:
    """Return a text, or the name of a column, without its quotes."""
    return text[1:-1].replace(text[0] * 2, text[0])
