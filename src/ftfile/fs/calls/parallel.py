"""Parallel calls of a store, where a call costs more than a thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import FtfileError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.fs.api import FileSystem

__all__ = ("THREADS_MAX", "parallel")

THREADS_MAX = 32

# Threads of the calls that this one is within, which share what a store takes at once.
_outer: ContextVar[int] = ContextVar("threads of outer parallel calls", default=1)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def parallel(fs: FileSystem, call: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Call for every item and return the results; raise the first error after the last call.

    Calls within calls have together as many threads as the outermost one may have.
    """
    outer = _outer.get()
    threads = min(min(fs.capabilities.concurrency, THREADS_MAX) // outer, len(items))
    context = copy_context()
    context.run(_outer.set, outer * max(threads, 1))

    def attempt(item: _Item) -> _Result | FtfileError:
        try:
            return context.copy().run(call, item)
        except FtfileError as error:
            return error

    if threads <= 1:
        outcomes = [attempt(item) for item in items]
    else:
        with ThreadPoolExecutor(threads) as pool:
            outcomes = list(pool.map(attempt, items))
    for outcome in outcomes:
        if isinstance(outcome, FtfileError):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, FtfileError)]
