"""Names that a store can keep, that no reader overlooks, and that stay within the directory."""

from __future__ import annotations

import re

__all__ = ("NAME_BYTES_MAX", "PATH_BYTES_MAX", "name_fault", "path_fault")

NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 1_000  # some stores take 1,024, or less below a directory: see `PathCheck`

_HIDING = "_."
_HIDDEN_ENDING = "._COPYING_"
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f:\ud800-\udfff]")


def path_fault(path: str, last_bytes_max: int = NAME_BYTES_MAX) -> str | None:
    """Return what is wrong with a path below the directory, as in "it … ", or None.

    Args:
        path: `/`-separated, relative.
        last_bytes_max: how long the last part may be.
    """
    if path.startswith("/"):
        return "is absolute, and files stay below the directory"
    size_bytes = len(path.encode(errors="surrogatepass"))
    if size_bytes > PATH_BYTES_MAX:
        return f"has {size_bytes} bytes, and a path may have {PATH_BYTES_MAX}"
    *directories, last = path.split("/")
    faults = [name_fault(name) for name in directories]
    faults.append(name_fault(last, last_bytes_max))
    return next((fault for fault in faults if fault is not None), None)


def name_fault(name: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
    """Return what is wrong with the name of a file or directory, as in "it … ", or None."""
    if not name:
        return "has an empty part"
    if name in {".", ".."}:
        return f"has the part {name!r}, and files stay below the directory"
    if name[0] in _HIDING or name.endswith(_HIDDEN_ENDING):
        return f"has the part {name[:80]!r}, which readers overlook"
    forbidden = _FORBIDDEN.search(name)
    if forbidden is not None:
        return f"has the character {forbidden[0]!r}, which not every store takes"
    size_bytes = len(name.encode())
    return f"has a part of {size_bytes} bytes, and it may have {bytes_max}" if size_bytes > bytes_max else None
