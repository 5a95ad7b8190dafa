"""Results of calls in other threads, whose waits Ctrl-C can end at any point.

Python runs signal handlers in the main thread between any two lines, also in lines of the standard library. If a
handler raises in `threading.Condition`, `threading.Event`, `threading.Semaphore` or `concurrent.futures`, a lock of
theirs can stay locked for ever, and the other threads wait for it. So threads that call the code of this package wait
only by `SimpleQueue` and by `with` on a lock, which are written in C. See python/cpython#126434.
"""

from __future__ import annotations

from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ftfile.core.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Result = TypeVar("Result")
_clock = SystemClock()


class Answer(Generic[Result]):
    """The result of a call, or its error, which another thread sets once."""

    __slots__ = ("_callbacks", "_error", "_is_set", "_result", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._waiting: deque[SimpleQueue[None]] = deque()
        self._callbacks: deque[Callable[[Answer[Result]], object]] = deque()

    def set_result(self, result: Result) -> None:
        """Set the result, and wake all waiting threads."""
        self._result = result
        self._end()

    def set_error(self, error: BaseException) -> None:
        """Set the error, and wake all waiting threads."""
        self._error = error
        self._end()

    def is_set(self) -> bool:
        """Return True if the call has ended."""
        return self._is_set

    def result(self) -> Result:
        """Wait for the end of the call. Return its result, or raise its error."""
        wait_for([self])
        if self._error is not None:
            raise self._error
        return cast("Result", self._result)

    def error(self) -> BaseException | None:
        """Wait for the end of the call. Return its error, or None."""
        wait_for([self])
        return self._error

    def when_set(self, callback: Callable[[Answer[Result]], object]) -> None:
        """Call a function with this answer once it is set: in the thread of the call, or at once in this thread."""
        self._callbacks.append(callback)
        if self._is_set:
            self._call_back()

    def _end(self) -> None:
        self._is_set = True
        # A thread that begins to wait after this line finds that the answer is set.
        for waiting in tuple(self._waiting):
            waiting.put(None)
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return  # the other thread has taken it
            callback(self)


def wait_for(answers: Collection[Answer[Any]], timeout_s: float | None = None, *, first: bool = False) -> bool:
    """Wait until all answers are set, or one of them with `first`. Return False after the timeout, in seconds."""
    if _are_set(answers, first=first):
        return True
    deadline_s = None
    if timeout_s is not None:
        deadline_s = _clock.monotonic_s() + timeout_s
    woken: SimpleQueue[None] = SimpleQueue()
    for answer in answers:
        answer._waiting.append(woken)  # noqa: SLF001 - of this module
    try:
        while not _are_set(answers, first=first):
            if deadline_s is None:
                woken.get()
                continue
            left_s = deadline_s - _clock.monotonic_s()
            if left_s <= 0:
                return False
            try:
                woken.get(timeout=left_s)
            except Empty:
                return _are_set(answers, first=first)
    finally:
        for answer in answers:
            answer._waiting.remove(woken)  # noqa: SLF001
    return True


def _are_set(answers: Collection[Answer[Any]], *, first: bool) -> bool:
    ended = (answer.is_set() for answer in answers)
    if first:
        return any(ended) or not answers
    return all(ended)
