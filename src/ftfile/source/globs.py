"""Patterns of paths in the syntax of Hadoop and Spark."""

from __future__ import annotations

import re
from functools import lru_cache

from ftfile.core.errors import ConfigError

_WILDCARD = re.compile(r"[*?\[{\\]")
_TOKEN = re.compile(r"\\.|\[[\^!]?\]?[^\]]*\]|.", re.DOTALL)
_BRACES = re.compile(r"\\.|[{},]", re.DOTALL)


def has_wildcard(text: str) -> bool:
    """Return True if a name or a path is a pattern."""
    return _WILDCARD.search(text) is not None


@lru_cache
def glob_pattern(glob: str) -> re.Pattern[str]:
    r"""Return the regular expression of a Hadoop glob: `*`, `?`, `[a-c]`, `[^a]`, `{a,b}`, and `\`.

    Raises:
        ConfigError: a bracket or a brace is not closed, or a bracket or a range is empty.
    """
    try:
        return re.compile("|".join(map(_to_regex, alternatives(glob))), re.DOTALL)
    except re.error as error:
        raise ConfigError(f"the pattern {glob!r} is not understood: {error}") from error


def _to_regex(glob: str) -> str:
    pieces = []
    for match in _TOKEN.finditer(glob):
        sign = match.group()
        if sign == "*":
            pieces.append("[^/]*")
        elif sign == "?":
            pieces.append("[^/]")
        elif sign[0] == "[" and len(sign) > 1:
            inner = sign[1:-1]
            is_not = inner.startswith(("^", "!"))
            if not inner[is_not:]:
                raise ConfigError(f"the pattern {glob!r} has no character in {sign}; write \\[ for the character")
            inner = re.sub(r"([\[\]&~|^])", r"\\\1", inner[is_not:])
            pieces.append(f"[{'^' if is_not else ''}{inner}]")
        elif sign == "[":
            raise ConfigError(f"the pattern {glob!r} has a [ without its ]; write \\[ for the character")
        else:
            pieces.append(re.escape(sign[-1]))
    return "".join(pieces)


def alternatives(glob: str) -> list[str]:
    """Return a pattern for each choice of words in braces."""
    depth, start, commas = 0, 0, []
    for match in _BRACES.finditer(glob):
        sign, place = match.group(), match.start()
        if sign == "{":
            depth += 1
            if depth == 1:
                start, commas = place, [place]
        elif sign == "," and depth == 1:
            commas.append(place)
        elif sign == "}" and depth:
            depth -= 1
            if not depth:
                patterns = []
                for begin, end in zip(commas, [*commas[1:], place], strict=True):
                    word = glob[begin + 1 : end]
                    patterns += alternatives(glob[:start] + word + glob[place + 1 :])
                return patterns
    if depth:
        raise ConfigError(f"the pattern {glob!r} has a {{ without its }}; write \\{{ for the character")
    return [glob]
