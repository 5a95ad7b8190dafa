"""Calls of a store with a timeout, and in parallel."""

from __future__ import annotations

import atexit
import functools
import math
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.context import SYSTEM, cores
from ftfile.core.errors import FtfileError
from ftfile.core.per_process import PerProcess
from ftfile.core.retries import is_away

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ftfile.core.progress import Tracker
    from ftfile.storage.api import FileSystem


Item = TypeVar("Item")
Result = TypeVar("Result")

# Bytes that can take as long as a call without data. This sets the slowest supported connection.
DATA_BYTES = 1 << 20
# Seconds between two calls of `look` while a caller waits.
LOOK_S = 3.0
# The longest wait at the end of the process, and the time between two checks, in seconds. A thread that returns from
# compiled code to Python while the interpreter shuts down can abort the process, or block its end.
EXIT_WAIT_S, EXIT_LOOK_S = 5.0, 0.001
# Seconds after which threads of compiled code have finished their calls of Python.
QUIET_S = 0.05
THREADS_MAX = 32
# Workers without a call. A worker whose call hangs is missing until the call returns.
_idle: PerProcess[deque[_Worker]] = PerProcess(deque)
# An entry for each call that the end of the process waits for, until the thread holds no object of the call.
_running: PerProcess[set[object]] = PerProcess(set)
_visited_s = -math.inf  # when the last call of compiled code ended
# The threads of the enclosing calls, which share the concurrency of the store.
_outer: ContextVar[int] = ContextVar("threads of outer parallel calls", default=1)


class NoThreadError(OSError):
    """A call was not started, because the process cannot create a thread for it."""


class _Worker:
    """A thread that runs calls one after the other. It does not keep the process alive."""

    def __init__(self) -> None:
        # Calls with their futures and their entries in `_running`.
        self.calls: SimpleQueue[tuple[Callable[[], Any], Future[Any], object]] = SimpleQueue()
        threading.Thread(target=self._work, name="ftfile-call", daemon=True).start()

    def _work(self) -> None:
        while True:
            call, future, entry = self.calls.get()
            try:
                answer = functools.partial(future.set_result, call())
            except BaseException as error:  # any error is raised in the thread of the caller
                answer = functools.partial(future.set_exception, error)
            # The worker is idle before the caller gets the result, so the next call of the caller uses the same thread.
            _idle.here.append(self)
            answer()
            # Freeing the call can close an open file, which is compiled code that calls Python.
            del call, future, answer
            _running.here.discard(entry)


@atexit.register
def _wait_at_exit() -> None:
    now_s = SYSTEM.clock.monotonic_s()
    deadline_s = now_s + EXIT_WAIT_S
    # Calls can start other calls.
    while now_s < deadline_s and (_running.here or now_s < _visited_s + QUIET_S):
        SYSTEM.clock.sleep(EXIT_LOOK_S)
        now_s = SYSTEM.clock.monotonic_s()


@contextmanager
def visited() -> Iterator[None]:
    """Make the end of the process wait for a block that a thread of compiled code runs, and for its cleanup.

    Such a thread frees its arguments, or calls Python again, after the block.
    """
    global _visited_s  # noqa: PLW0603 - the process has one end
    if threading.get_ident() == threading.main_thread().ident:
        yield
        return
    entry = object()
    _running.here.add(entry)
    try:
        yield
    finally:
        _visited_s = SYSTEM.clock.monotonic_s()
        _running.here.discard(entry)


def start(call: Callable[[], Result], *, awaited: bool = True) -> Future[Result]:
    """Run a call in a thread and return its future, or raise `NoThreadError`.

    The end of the process waits for a short time for an awaited call, as compiled code requires.
    """
    try:
        worker = _idle.here.pop()
    except IndexError:
        try:
            worker = _Worker()
        except RuntimeError as error:
            raise NoThreadError(f"{error}: raise the limit of threads or processes") from error
    future: Future[Result] = Future()
    entry = object()
    if awaited:
        _running.here.add(entry)
    worker.calls.put((call, future, entry))
    return future


def limit_s(timeout_s: float, data_bytes: int) -> float:
    """Return the timeout in seconds for a call that carries data; a call without data has `timeout_s`."""
    return timeout_s * (1 + data_bytes / DATA_BYTES)


def run_within(
    timeout_s: float,
    call: Callable[[], Result],
    forget: Callable[[Result], object] | None = None,
    cut: Callable[[], object] | None = None,
    look: Callable[[], object] | None = None,
) -> Result:
    """Run a call and return its result; if it takes too long, its thread is abandoned.

    Args:
        call: to run in a thread.
        timeout_s: seconds that it can take.
        forget: receives a result that arrives after the timeout.
        cut: ends a call that takes too long; the end of the process does not wait for calls that can be cut.
        look: called every `LOOK_S` seconds during the call; its error ends the wait.

    Raises:
        TimeoutError: the call took too long, and can still take effect.
        NoThreadError: the call was not started.
    """
    future = start(call, awaited=cut is None)
    try:
        _wait_for(future, timeout_s, look)
    except BaseException:
        if forget is not None:
            future.add_done_callback(functools.partial(_forget_late, forget))
        if cut is not None:
            cut()
        raise
    return future.result()


def _forget_late(forget: Callable[[Result], object], future: Future[Result]) -> None:
    if future.exception() is None:
        forget(future.result())


def _wait_for(future: Future[Any], timeout_s: float, look: Callable[[], object] | None) -> None:
    deadline_s = SYSTEM.clock.monotonic_s() + timeout_s
    while not wait([future], max(0, min(LOOK_S, deadline_s - SYSTEM.clock.monotonic_s()))).done:
        if SYSTEM.clock.monotonic_s() >= deadline_s:
            raise TimeoutError(f"no response within {timeout_s:g} s")
        if look is not None:
            look()


class Pool(ThreadPoolExecutor):
    """Threads for calls. After Python has begun to exit, its threads accept no calls and the caller runs them."""

    def submit(self, call: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:  # noqa: ANN401
        """Return the future of a call."""
        try:
            return super().submit(call, *args, **kwargs)
        except RuntimeError:
            if threading.main_thread().is_alive():
                raise
        done: Future[Result] = Future()
        try:
            done.set_result(call(*args, **kwargs))
        except Exception as error:  # handed over to the thread
            done.set_exception(error)
        return done


def parallel(
    fs: FileSystem, call: Callable[[Item], Result], items: Sequence[Item], tracker: Tracker | None = None
) -> list[Result]:
    """Call for every item and return the results; raise the first error after the last call.

    After an error that the store is down, no further call is started, since each would wait as long. Nested calls share
    the threads of the outermost call. The tracker counts calls in this thread; its error ends them.
    """
    outer = _outer.get()
    threads = min(min(fs.capabilities.concurrency, THREADS_MAX) // outer, len(items))
    context = copy_context()
    context.run(_outer.set, outer * max(threads, 1))

    given_up: list[FtfileError] = []

    def attempt(item: Item) -> Result | FtfileError:
        if given_up:
            return given_up[0]
        try:
            return context.copy().run(call, item)
        except FtfileError as error:
            if is_away(error):
                given_up.append(error)
            return error

    if threads <= 1:
        return _results(map(attempt, items), tracker)
    pool = Pool(threads)
    try:
        return _results(pool.map(attempt, items), tracker)
    finally:
        pool.shutdown(cancel_futures=True)


def _results(ended: Iterator[Result | FtfileError], tracker: Tracker | None) -> list[Result]:
    results: list[Result] = []
    first_error: FtfileError | None = None
    for outcome in ended:
        if not isinstance(outcome, FtfileError):
            results.append(outcome)
        elif first_error is None:
            first_error = outcome
        if tracker is not None:
            tracker.add()
    if first_error is not None:
        raise first_error
    return results


def by_threads(fs: FileSystem, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the results of work that needs processors as well as calls, in order, and run some of it ahead.

    The first error is raised in the order of the results; work that was started before is completed.
    """
    threads = max(cores(), min(fs.capabilities.concurrency, THREADS_MAX))
    context = copy_context()
    pool = Pool(threads)
    try:
        ahead = deque[Future[Result]]()
        for item in items:
            ahead.append(pool.submit(context.copy().run, work, item))
            if len(ahead) > 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
