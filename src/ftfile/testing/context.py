"""The clock and the ids that the kit passes to the product: the machine's, or those of a test."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM, Context
from ftfile.fs import registry
from ftfile.testing.clock import ManualClock, SeededIds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.core.clock import Clock
    from ftfile.core.ids import IdSource
    from ftfile.core.retry import RetryPolicy
    from ftfile.fs.api import FileSystem

__all__ = ("current", "open_filesystem", "repeatable")

_contexts = [SYSTEM]


def current() -> Context:
    """Return the context of the innermost `repeatable` block, else the machine's."""
    return _contexts[-1]


@contextlib.contextmanager
def repeatable(clock: Clock | None = None, ids: IdSource | None = None) -> Iterator[Context]:
    """Within the block, what the kit runs has this clock and these ids, so that runs repeat to the byte.

    Nobody waits: sleeping moves the clock; maintenance has one thread. Blocks may be nested; the innermost one counts.

    Args:
        clock: a `ManualClock` by default.
        ids: `SeededIds` of seed 0 by default.
    """
    clock, ids = ManualClock() if clock is None else clock, SeededIds() if ids is None else ids
    _contexts.append(Context(clock, ids, threads=1))
    try:
        yield current()
    finally:
        _contexts.pop()


def open_filesystem(
    url: str,
    *,
    settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    policy: RetryPolicy | None = None,
) -> FileSystem:
    """Open a directory as `registry.open_filesystem` does, in the current context with another clock or policy."""
    context = current()
    return registry.open_filesystem(
        url, replace(context, clock=clock or context.clock, retry=policy or context.retry), settings
    )
