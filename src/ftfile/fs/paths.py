"""Paths inside a file system: one rule for every driver."""

from __future__ import annotations

import re

from ftfile.core.errors import Unsupported

__all__ = ("NAME_BYTES_MAX", "fault_of", "join", "parent_of", "require_valid")

NAME_BYTES_MAX = 255

# An empty component (also a leading or trailing slash), "." or "..", or a NUL anywhere.
_MALFORMED = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|\0")


def require_valid(operation: str, path: str) -> None:
    """Accept the root (`""`) and names joined by `/`; blanks, `%`, `#`, `:`, `=` and all the rest are fine.

    Raises:
        Unsupported: it could name something outside the root, or one file in two ways, or a name is too long.
    """
    if not path:
        return
    if _MALFORMED.search(path):
        raise Unsupported(
            operation,
            path,
            "a path is relative to the root, without empty parts, '.', '..' and NUL; correct the path",
        )
    if path.isascii() and len(path) <= NAME_BYTES_MAX:
        return
    try:
        longest = max(len(name.encode("utf-8", "surrogateescape")) for name in path.split("/"))
    except UnicodeEncodeError as error:
        raise Unsupported(operation, path, f"a name that UTF-8 cannot encode ({error.reason})") from error
    if longest > NAME_BYTES_MAX:
        raise Unsupported(
            operation, path, f"a name has {longest} bytes, at most {NAME_BYTES_MAX} are portable; shorten it"
        )


def fault_of(path: str, forbidden: str, *, blank_ends: bool) -> str | None:
    """Return what is in a path that a store does not keep, as in "it … ", or None; see `Capabilities`."""
    for character in forbidden:
        if character in path:
            return f"has the character {character!r}, which this store may not keep; replace it"
    if not blank_ends and any(name != name.strip() for name in path.split("/")):
        return "has a name that begins or ends with a blank, which this store may not list; replace it"
    return None


def join(directory: str, name: str) -> str:
    """Return the path of `name` inside `directory`, either of which may be the root."""
    return f"{directory}/{name}" if directory and name else directory or name


def parent_of(path: str) -> str:
    """Return the directory that holds `path`; the root is its own parent."""
    return path.rpartition("/")[0]
