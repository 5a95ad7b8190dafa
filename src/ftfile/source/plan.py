"""Which files are read together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.commit.format.model import Add

__all__ = ("pack",)

TASK_BYTES = 32 << 20
OPEN_COST_BYTES = 1 << 20


def pack(adds: Iterable[Add]) -> list[tuple[Add, ...]]:
    """Group adds, in their order, so that a task reads about 32 MiB; opening a file counts like reading one."""
    tasks: list[tuple[Add, ...]] = []
    group: list[Add] = []
    size = 0
    for add in adds:
        cost = add.length + OPEN_COST_BYTES
        if group and size + cost > TASK_BYTES:
            tasks.append(tuple(group))
            group, size = [], 0
        group.append(add)
        size += cost
    return [*tasks, tuple(group)] if group else tasks
