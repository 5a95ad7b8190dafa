"""Calls with a deadline: libraries limit each silence of a connection at best."""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections import deque
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.context import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

# Bytes that may take as long as a call without data: the slowest connection that is waited for.
DATA_BYTES = 1 << 20
# Seconds from one `look` of a waiting caller to the next.
LOOK_S = 3.0
# Seconds: a call that returns from compiled code while the interpreter ends may abort the process.
EXIT_WAIT_S = 5.0


class NoThreadError(OSError):
    """A call was never begun, since the process has no thread for it."""


class _Worker:
    """A thread that runs one call after the other, and never keeps the process from ending."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        threading.Thread(target=self._work, name="ftfile-call", daemon=True).start()

    def _work(self) -> None:
        while True:
            call, future = self.calls.get()
            try:
                answer = functools.partial(future.set_result, call())
            except BaseException as error:  # whatever it is, the caller's thread raises it
                answer = functools.partial(future.set_exception, error)
            # Idle before the caller sees the answer, so that its next call takes the same thread.
            _idle.append(self)
            answer()
            del call, future, answer


# Workers without a call; one whose call hangs is missing until it returns.
_idle: deque[_Worker] = deque()
# The end of the process waits for these.
_running: set[Future[Any]] = set()
# Threads do not survive a fork.
os.register_at_fork(after_in_child=_idle.clear)
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _wait_at_exit() -> None:
    deadline_s = SYSTEM.clock.monotonic_s() + EXIT_WAIT_S
    # Calls may begin others.
    while _running and SYSTEM.clock.monotonic_s() < deadline_s:
        wait([*_running], deadline_s - SYSTEM.clock.monotonic_s())


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
    if awaited:
        _running.add(future)
        future.add_done_callback(_running.discard)
    worker.calls.put((call, future))
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
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        if look is not None:
            look()
