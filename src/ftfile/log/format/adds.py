"""Sums and selections of adds."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.log.format.model import Add, Remove


def total_rows(adds: Iterable[Add]) -> int:
    """Return the number of rows in adds."""
    return sum(map(attrgetter("rows"), adds))


def total_bytes(adds: Iterable[Add]) -> int:
    """Return the length of adds on storage."""
    return sum(map(attrgetter("length"), adds))


def ids_of(adds: Iterable[Add | Remove]) -> set[str]:
    """Return the ids of adds or removes."""
    return set(map(attrgetter("id"), adds))


def parts_of(adds: Iterable[Add]) -> list[Add]:
    """Return the finished files among adds."""
    return [add for add in adds if add.kind == "part"]
