"""Calls of a storage system with a timeout, and in parallel."""

from __future__ import annotations

import atexit
import functools
import math
import threading
from collections import deque
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.answers import Answer, wait_for
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
# compiled code to Python while the interpreter shuts down can abort the process, or block its end: apache/arrow#34314,
# apache/arrow#50482.
EXIT_WAIT_S, EXIT_LOOK_S = 5.0, 0.001
# Seconds after which threads of compiled code have finished their calls of Python.
QUIET_S = 0.05
THREADS_MAX = 32
# Workers without a call. A worker whose call hangs is missing until the call returns.
_idle: PerProcess[deque[_Worker]] = PerProcess(deque)
# An entry for each call that the end of the process waits for, until the thread holds no object of the call.
_running: PerProcess[set[object]] = PerProcess(set)
_visited_s = -math.inf  # when the last call of compiled code ended
# The threads of the enclosing calls, which share the concurrency of the storage.
_outer: ContextVar[int] = ContextVar("threads of outer parallel calls", default=1)


class NoThreadError(OSError):
    """A call was not started, because the process cannot create a thread for it."""


class _Worker:
    """A thread that runs calls one after the other. It does not keep the process alive."""

    def __init__(self) -> None:
        # Lists of one call, with its answer and its entry in `_running`. An interrupted caller can take it back.
        self.calls: SimpleQueue[list[tuple[Callable[[], Any], Answer[Any], object]]] = SimpleQueue()
        threading.Thread(target=self._work, name="ftfile-call", daemon=True).start()

    def _work(self) -> None:
        while True:
            given = self.calls.get()
            try:
                call, answer, entry = given.pop()
            except IndexError:
                _idle.here.append(self)
                continue
            try:
                end = functools.partial(answer.set_result, call())
            except BaseException as error:  # any error is raised in the thread of the caller
                end = functools.partial(answer.set_error, error)
            # The worker is idle before the caller gets the result, so the next call of the caller uses the same thread.
            _idle.here.append(self)
            end()
            # Freeing the call can close an open file, which is compiled code that calls Python.
            del call, answer, end
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
def visit() -> Iterator[None]:
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


def start(call: Callable[[], Result], *, awaited: bool = True) -> Answer[Result]:
    """Run a call in a thread and return its answer, or raise `NoThreadError`.

    The end of the process waits for a short time for an awaited call, as compiled code requires.
    """
    try:
        worker = _idle.here.pop()
    except IndexError:
        try:
            worker = _Worker()
        except RuntimeError as error:
            raise NoThreadError(f"{error}: raise the limit of threads or processes") from error
    answer: Answer[Result] = Answer()
    entry = object()
    given = [(call, answer, entry)]
    try:
        if awaited:
            _running.here.add(entry)
        worker.calls.put(given)
    except BaseException:  # of a signal handler
        with suppress(IndexError):
            given.pop()
            _running.here.discard(entry)
        raise
    return answer


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
    answer = start(call, awaited=cut is None)
    try:
        _wait_within(answer, timeout_s, look)
    except BaseException:
        if forget is not None:
            answer.when_set(functools.partial(_forget_late, forget))
        if cut is not None:
            cut()
        raise
    return answer.result()


def _forget_late(forget: Callable[[Result], object], answer: Answer[Result]) -> None:
    if answer.error() is None:
        forget(answer.result())


def _wait_within(answer: Answer[Any], timeout_s: float, look: Callable[[], object] | None) -> None:
    deadline_s = SYSTEM.clock.monotonic_s() + timeout_s
    while not wait_for([answer], max(0, min(LOOK_S, deadline_s - SYSTEM.clock.monotonic_s()))):
        if SYSTEM.clock.monotonic_s() >= deadline_s:
            raise TimeoutError(f"no response within {timeout_s:g} s")
        if look is not None:
            look()


class Pool:
    """Threads for calls, at most a number of them. If the process cannot create a thread, the caller runs the call.

    Used with `with`, at whose end calls that have not begun are dropped, and running calls have ended.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._workers: list[Answer[None]] = []

    def __enter__(self) -> Pool:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()
        for _worker in range(self._threads):
            self._waiting.put(None)
        wait_for(self._workers)

    def submit(self, call: Callable[[], Result]) -> Answer[Result]:
        """Run a call in a thread, in the order of submission, and return its answer."""
        answer: Answer[Result] = Answer()
        self._waiting.put(functools.partial(_run, call, answer))
        if len(self._workers) < self._threads:
            try:
                self._workers.append(start(self._work, awaited=False))
            except NoThreadError:
                if not self._workers:
                    self._waiting.get()
                    _run(call, answer)
        return answer

    def _work(self) -> None:
        while (run := self._waiting.get()) is not None:
            entry = object()
            _running.here.add(entry)
            run()
            del run
            _running.here.discard(entry)


def _run(call: Callable[[], Result], answer: Answer[Result]) -> None:
    try:
        result = call()
    except BaseException as error:  # raised in the thread that waits
        answer.set_error(error)
    else:
        answer.set_result(result)


def parallel(
    fs: FileSystem, call: Callable[[Item], Result], items: Sequence[Item], tracker: Tracker | None = None
) -> list[Result]:
    """Call for every item and return the results; raise the first error after the last call.

    After an error that the storage is down, no further call is started, since each would wait as long. Nested calls
    share the threads of the outermost call. The tracker counts calls in this thread; its error ends them.
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
    with Pool(threads) as pool:
        answers = [pool.submit(functools.partial(attempt, item)) for item in items]
        return _results((answer.result() for answer in answers), tracker)


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
    with Pool(threads) as pool:
        ahead = deque[Answer[Result]]()
        for item in items:
            ahead.append(pool.submit(functools.partial(context.copy().run, work, item)))
            if len(ahead) > 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
