"""Names that nobody knows, and the nearest ones that are known."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ("no_such",)


def no_such(kind: str, name: str, known: Collection[str]) -> str:
    """Return the text that there is no column, or whatever `kind` is, of a name, with those that there are."""
    spelling = {each.lower(): each for each in known}
    near = [spelling[match] for match in difflib.get_close_matches(name.lower(), spelling, n=3, cutoff=0.6)]
    meant = f": did you mean {' or '.join(map(repr, near))}?" if near else "."
    return f"there is no {kind} {name!r}{meant} There are: {', '.join(known)}"
