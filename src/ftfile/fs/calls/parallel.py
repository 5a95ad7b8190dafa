"""Parallel calls of a store, where a call costs more than a thread."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.context import cores
from ftfile.core.errors import FtfileError
from ftfile.core.retry import is_away

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ftfile.core.progress import Tracker
    from ftfile.fs.api import FileSystem

THREADS_MAX = 32

# Threads of the calls that this one is within, which share what a store takes at once.
_outer: ContextVar[int] = ContextVar("threads of outer parallel calls", default=1)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def parallel(
    fs: FileSystem, call: Callable[[_Item], _Result], items: Sequence[_Item], tracker: Tracker | None = None
) -> list[_Result]:
    """Call for every item and return the results; raise the first error after the last call.

    No call begins after one found that the store is away: each would wait as long. Calls within calls have together as
    many threads as the outermost one may have. The tracker counts calls in this thread; what it raises ends them.
    """
    outer = _outer.get()
    threads = min(min(fs.capabilities.concurrency, THREADS_MAX) // outer, len(items))
    context = copy_context()
    context.run(_outer.set, outer * max(threads, 1))

    given_up: list[FtfileError] = []

    def attempt(item: _Item) -> _Result | FtfileError:
        if given_up:
            return given_up[0]
        try:
            return context.copy().run(call, item)
        except FtfileError as error:
            given_up.extend([error] if is_away(error) else [])
            return error

    if threads <= 1:
        return _results(map(attempt, items), tracker)
    pool = ThreadPoolExecutor(threads)
    try:
        return _results(pool.map(attempt, items), tracker)
    finally:
        pool.shutdown(cancel_futures=True)


def _results(ended: Iterator[_Result | FtfileError], tracker: Tracker | None) -> list[_Result]:
    outcomes = []
    for outcome in ended:
        outcomes.append(outcome)
        if tracker is not None:
            tracker.add()
    for outcome in outcomes:
        if isinstance(outcome, FtfileError):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, FtfileError)]


def by_threads(fs: FileSystem, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield the results of work that takes processors as well as calls, in order, some of them ahead of their use.

    The first error is raised when its turn comes; work that has begun by then goes on to its end.
    """
    threads = max(cores(), min(fs.capabilities.concurrency, THREADS_MAX))
    context = copy_context()
    pool = ThreadPoolExecutor(threads)
    try:
        ahead = deque[Future[_Result]]()
        for item in items:
            ahead.append(pool.submit(context.copy().run, work, item))
            if len(ahead) > 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
