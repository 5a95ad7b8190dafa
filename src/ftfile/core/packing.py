"""Neighbours packed into groups of limited size."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_Thing = TypeVar("_Thing")


def packed(things: Iterable[_Thing], size_of: Callable[[_Thing], int], limit: int) -> Iterator[list[_Thing]]:
    """Yield things in their order, neighbours together up to a size; one that is larger comes by itself."""
    group: list[_Thing] = []
    size = 0
    for thing in things:
        own = size_of(thing)
        if group and size + own > limit:
            yield group
            group, size = [], 0
        group.append(thing)
        size += own
    if group:
        yield group
