"""Calls of a store: with a deadline, in parallel, and with clients that all threads of a process share."""

from __future__ import annotations

import atexit
import functools
import hashlib
import math
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ftfile.core.context import SYSTEM, cores, is_away
from ftfile.core.errors import FtfileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ftfile.core.context import Tracker
    from ftfile.storage.api import FileSystem


Key = TypeVar("Key")
Made = TypeVar("Made")


class PerProcess(Generic[Key, Made]):
    """Objects made once for each key, and once more in a fork; if `make` raises, nothing is kept."""

    def __init__(self, make: Callable[[Key], Made]) -> None:
        self._make = make
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        # A thread of the parent may have held the lock.
        self._lock = threading.Lock()
        self._made: dict[Key, tuple[str | None, Made]] = {}

    def of(self, key: Key, secrets: str | None = None) -> Made:
        """Return the object of a key in this process, made anew if the digest of its secrets is known and another."""
        with self._lock:
            digest, instance = self._made.get(key, (None, None))
            if instance is None or (secrets is not None and secrets != digest):
                instance = self._make(key)
                self._made[key] = secrets, instance
            return instance

    def forget(self, key: Key) -> None:
        """Make the next `of` make a new object."""
        with self._lock:
            self._made.pop(key, None)


def digest_of_variables(names: Iterable[str]) -> str | None:
    """Return a digest of the values of environment variables; None if one of them is not set."""
    values = [os.environ.get(name) for name in names]
    if not all(values):
        return None
    return hashlib.sha256("\0".join(map(str, values)).encode("utf-8", "surrogateescape")).hexdigest()


Result = TypeVar("Result")

# Bytes that may take as long as a call without data: the slowest connection that is waited for.
DATA_BYTES = 1 << 20
# Seconds from one `look` of a waiting caller to the next.
LOOK_S = 3.0
# Seconds at most, and from one look to the next: a thread that comes back to Python from compiled code while the
# interpreter ends may abort the process, or have it never end.
EXIT_WAIT_S, EXIT_LOOK_S = 5.0, 0.001
# Seconds after which threads of compiled code that called Python are through with it.
QUIET_S = 0.05


class NoThreadError(OSError):
    """A call was never begun, since the process has no thread for it."""


class _Worker:
    """A thread that runs one call after the other, and never keeps the process from ending."""

    def __init__(self) -> None:
        # Each with its result, and what stands for it in `_running`.
        self.calls: SimpleQueue[tuple[Callable[[], Any], Future[Any], object]] = SimpleQueue()
        threading.Thread(target=self._work, name="ftfile-call", daemon=True).start()

    def _work(self) -> None:
        while True:
            call, future, entry = self.calls.get()
            try:
                answer = functools.partial(future.set_result, call())
            except BaseException as error:  # whatever it is, the caller's thread raises it
                answer = functools.partial(future.set_exception, error)
            # Idle before the caller sees the answer, so that its next call takes the same thread.
            _idle.append(self)
            answer()
            # An open file may be closed by this: compiled code that calls Python.
            del call, future, answer
            _running.discard(entry)


# Workers without a call; one whose call hangs is missing until it returns.
_idle: deque[_Worker] = deque()
# One for each call that the end of the process waits for, until a thread has nothing left of it.
_running: set[object] = set()
_visited_s = -math.inf  # when the last visit ended
# Threads do not survive a fork.
os.register_at_fork(after_in_child=_idle.clear)
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _wait_at_exit() -> None:
    now_s = SYSTEM.clock.monotonic_s()
    deadline_s = now_s + EXIT_WAIT_S
    # Calls may begin others.
    while now_s < deadline_s and (_running or now_s < _visited_s + QUIET_S):
        SYSTEM.clock.sleep(EXIT_LOOK_S)
        now_s = SYSTEM.clock.monotonic_s()


@contextmanager
def visited() -> Iterator[None]:
    """Have the end of the process wait for the block, which a thread of compiled code runs, and for what it does then.

    Such a thread frees what it was given, or calls Python again.
    """
    global _visited_s  # noqa: PLW0603 - the process has one end
    if threading.get_ident() == threading.main_thread().ident:
        yield
        return
    entry = object()
    _running.add(entry)
    try:
        yield
    finally:
        _visited_s = SYSTEM.clock.monotonic_s()
        _running.discard(entry)


def start(call: Callable[[], Result], *, awaited: bool = True) -> Future[Result]:
    """Run a call in a thread and return its future, or raise `NoThreadError`.

    The end of the process waits a while for an awaited call, as compiled code needs.
    """
    try:
        worker = _idle.pop()
    except IndexError:
        try:
            worker = _Worker()
        except RuntimeError as error:
            raise NoThreadError(f"{error}: raise the limit of threads or processes") from error
    future: Future[Result] = Future()
    entry = object()
    if awaited:
        _running.add(entry)
    worker.calls.put((call, future, entry))
    return future


def limit_s(timeout_s: float, data_bytes: int) -> float:
    """Return the seconds for a call that carries data, where one without data has `timeout_s`."""
    return timeout_s * (1 + data_bytes / DATA_BYTES)


def run_within(
    timeout_s: float,
    call: Callable[[], Result],
    forget: Callable[[Result], object] | None = None,
    cut: Callable[[], object] | None = None,
    look: Callable[[], object] | None = None,
) -> Result:
    """Run a call and return its result; the thread of one that takes longer is abandoned.

    `forget` takes a result that comes too late. `cut` ends a call that takes longer, and the end of the process waits
    for none that can be cut. `look` is called every `LOOK_S` meanwhile; an error of it ends the wait.

    Raises:
        TimeoutError: the call took longer, and may yet take effect.
        NoThreadError: the call was not begun.
    """
    future = start(call, awaited=cut is None)
    try:
        _wait_for(future, timeout_s, look)
    except BaseException:
        if forget is not None:
            future.add_done_callback(lambda late: late.exception() or forget(late.result()))
        if cut is not None:
            cut()
        raise
    return future.result()


def _wait_for(future: Future[Any], timeout_s: float, look: Callable[[], object] | None) -> None:
    deadline_s = SYSTEM.clock.monotonic_s() + timeout_s
    while not wait([future], max(0, min(LOOK_S, deadline_s - SYSTEM.clock.monotonic_s()))).done:
        if SYSTEM.clock.monotonic_s() >= deadline_s:
            raise TimeoutError(f"no response within {timeout_s:g} s")
        if look is not None:
            look()


THREADS_MAX = 32

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Pool(ThreadPoolExecutor):
    """Threads that take calls; once Python exits, and its threads take none, the caller does them."""

    def submit(self, call: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:  # noqa: ANN401
        """Return the future of a call."""
        try:
            return super().submit(call, *args, **kwargs)
        except RuntimeError:
            if threading.main_thread().is_alive():
                raise
        done: Future[_Result] = Future()
        try:
            done.set_result(call(*args, **kwargs))
        except Exception as error:  # as a thread hands it on
            done.set_exception(error)
        return done


# Threads of the calls that this one is within, which share what a store takes at once.
_outer: ContextVar[int] = ContextVar("threads of outer parallel calls", default=1)


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
    pool = Pool(threads)
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
    pool = Pool(threads)
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
