"""Paths inside a file system: one rule for every driver."""

from __future__ import annotations

import functools
import re

from ftfile.core.errors import Unsupported

NAME_BYTES_MAX = 255
# An empty component (also a leading or trailing slash), "." or "..", or a NUL anywhere.
_MALFORMED = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|\0")


def require_valid(operation: str, path: str) -> None:
    """Raise `Unsupported` unless a path is the root (`""`) or names joined by `/`, each of at most `NAME_BYTES_MAX`.

    Blanks, `%`, `#`, `:`, `=` and all other characters but NUL are fine.
    """
    if (detail := _invalid(path)) is not None:
        raise Unsupported(operation, path, detail)


# The same few paths are asked for again and again.
@functools.lru_cache(maxsize=4096)
def _invalid(path: str) -> str | None:
    """Return why a path is not valid, or None."""
    if not path:
        return None
    if _MALFORMED.search(path):
        return "a path is relative to the root, without empty parts, '.', '..' and NUL; correct the path"
    if path.isascii() and len(path) <= NAME_BYTES_MAX:
        return None
    try:
        longest = max(len(name.encode("utf-8", "surrogateescape")) for name in path.split("/"))
    except UnicodeEncodeError as error:
        return f"a name that UTF-8 cannot encode ({error.reason})"
    if longest > NAME_BYTES_MAX:
        return f"a name has {longest} bytes, at most {NAME_BYTES_MAX} are portable; shorten it"
    return None


def shape_fault(path: str) -> str | None:
    """Return why a path names no file below the root, as in "it … ", or None."""
    return "has an empty part, '.', '..' or NUL; replace it" if _MALFORMED.search(path) else None


def fault_of(
    path: str, forbidden: str, *, blank_ends: bool, bytes_max: int | None = None, more_bytes: int = 0
) -> str | None:
    """Return why a store does not keep a path, whose name may grow by `more_bytes`, as in "it … ", or None."""
    for character in forbidden:
        if character in path:
            return f"has the character {character!r}, which this store may not keep; replace it"
    if not blank_ends and any(name != name.strip() for name in path.split("/")):
        return "has a name that begins or ends with a blank, which this store may not list; replace it"
    if path.isascii() and len(path) + more_bytes <= min(NAME_BYTES_MAX, bytes_max or NAME_BYTES_MAX):
        return None
    sizes = [len(name.encode(errors="surrogatepass")) for name in path.split("/")]
    sizes[-1] += more_bytes
    if max(sizes) > NAME_BYTES_MAX:
        return f"has a name that may come to {max(sizes)} bytes, where {NAME_BYTES_MAX} are allowed; shorten it"
    size_bytes = sum(sizes) + len(sizes) - 1
    if bytes_max is not None and size_bytes > bytes_max:
        return f"may come to {size_bytes} bytes, where this store allows {bytes_max} below its directory; shorten it"
    return None


def room_below(prefix: str, bytes_max: int) -> int:
    """Return the bytes left for a path below `prefix` where paths of the store have at most `bytes_max`."""
    return bytes_max - (len(prefix.encode(errors="surrogatepass")) + 1 if prefix else 0)


def join(directory: str, name: str) -> str:
    """Return the path of `name` inside `directory`, either of which may be the root."""
    return f"{directory}/{name}" if directory and name else directory or name


def parent_of(path: str) -> str:
    """Return the directory that holds `path`; the root is its own parent."""
    return path.rpartition("/")[0]
