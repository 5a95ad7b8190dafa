"""How much a task reads, and the division of work into tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_Thing = TypeVar("_Thing")

TASK_BYTES = 32 << 20  # default for the bytes that a task reads
OPEN_COST_BYTES = 1 << 20  # the time to open a file, as the bytes that are read meanwhile


def pack_things(things: Iterable[_Thing], size_of: Callable[[_Thing], int], limit: int) -> Iterator[list[_Thing]]:
    """Yield groups of consecutive things up to a total size; a larger thing is a group of one."""
    group: list[_Thing] = []
    size = 0
    for thing in things:
        thing_size = size_of(thing)
        if group and size + thing_size > limit:
            yield group
            group, size = [], 0
        group.append(thing)
        size += thing_size
    if group:
        yield group
