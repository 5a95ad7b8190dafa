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

__all__ = ("DATA_BYTES", "NoThreadError", "limit_s", "run_within", "start")

Result = TypeVar("Result")

# Bytes that may take as long as a call without data: the slowest connection that is waited for.
DATA_BYTES = 1 << 20

# In seconds, how often a wait is interrupted to find out whether it is in vain.
LOOK_S = 3.0

# A call that returns from compiled code while the interpreter ends may abort the process.
EXIT_WAIT_S = 5.0


class NoThreadError(OSError):
    """A call was never begun, since the process has no thread for it."""


class _Worker:
    """A thread that runs one call after the other, and never keeps the process from ending."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        threading.Thread(target=self._work, name="ftfile-call", daemon=True).start()

    def do(self, call: Callable[[], Any], future: Future[Any]) -> None:
        self._calls.put((call, future))

    def _work(self) -> None:
        while True:
            call, future = self._calls.get()
            try:
                answer = functools.partial(future.set_result, call())
            except BaseException as error:  # whatever it is, the caller's thread raises it
                answer = functools.partial(future.set_exception, error)
            # Idle before its caller hears of it, so that one call after the other takes one thread.
            _idle.append(self)
            answer()
            del call, future, answer


# Those that wait for a call; one that hangs is not among them until it returns.
_idle: deque[_Worker] = deque()

# At the end of the process it waits for these.
_running: set[Future[Any]] = set()


def _forget() -> None:
    _idle.clear()
    _running.clear()


# Threads do not survive a fork.
os.register_at_fork(after_in_child=_forget)


def _wait_at_exit() -> None:
    deadline_s = SYSTEM.clock.monotonic_s() + EXIT_WAIT_S
    # Calls may begin others.
    while _running and SYSTEM.clock.monotonic_s() < deadline_s:
        wait([*_running], deadline_s - SYSTEM.clock.monotonic_s())


atexit.register(_wait_at_exit)


def start(call: Callable[[], Result], *, awaited: bool = True) -> Future[Result]:
    """Run a call in a thread of its own and return the future of its outcome.

    Args:
        call: what to run.
        awaited: the process waits for it a while before it ends, as for calls of compiled code.

    Raises:
        NoThreadError: nothing was begun.
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
    worker.do(call, future)
    return future


def limit_s(timeout_s: float, data_bytes: int) -> float:
    """Return how long a call may take that carries data; `timeout_s`: what one without may."""
    return timeout_s * (1 + data_bytes / DATA_BYTES)


def run_within(
    timeout_s: float,
    call: Callable[[], Result],
    forget: Callable[[Result], object] | None = None,
    cut: Callable[[], object] | None = None,
    look: Callable[[], object] | None = None,
) -> Result:
    """Run a call and return its result; one that takes longer is left to itself.

    Args:
        timeout_s: how long it may take.
        call: what to run.
        forget: is given what it returns too late.
        cut: ends one that takes longer; the end of the process does not wait for what can be cut.
        look: is called every `LOOK_S` while the call runs; what it raises ends the wait at once.

    Raises:
        TimeoutError: it took longer, and may yet take effect.
        NoThreadError: nothing was begun.
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
