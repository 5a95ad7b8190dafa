"""Forked processes, and the locks that threads can hold during a fork."""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import threading
import traceback
import weakref
from typing import TYPE_CHECKING, Any

from ftfile.core.per_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import IO

LIMIT_S, STACKS_S = 30.0, 5.0
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_MANY = (list, tuple, set, frozenset, collections.deque, weakref.WeakSet)
_MAPPINGS = (dict, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)


class Fork:
    """A forked process that runs `work`."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._report = tempfile.TemporaryFile()  # noqa: SIM115 - `join` closes it
        self._id = os.fork()
        if self._id == 0:
            _run(work, self._report)

    def join(self, limit_s: float = LIMIT_S) -> None:
        """Wait for its end; an error is an AssertionError. After the limit, it is killed, and its stacks are shown."""
        kills = [
            threading.Timer(limit_s, os.kill, (self._id, signal.SIGUSR1)),
            threading.Timer(limit_s + STACKS_S, os.kill, (self._id, signal.SIGKILL)),
        ]
        for kill in kills:
            kill.start()
        _, status = os.waitpid(self._id, 0)
        for kill in kills:
            kill.cancel()
            kill.join()
        with self._report as file:
            file.seek(0)
            assert os.waitstatus_to_exitcode(status) == 0, file.read().decode()


def _run(work: Callable[[], object], report: IO[bytes]) -> None:
    code = 1
    try:
        # `faulthandler.dump_traceback_later` would wait for the thread that pytest started by it in the parent.
        faulthandler.register(signal.SIGUSR1, report)
        work()
        code = 0
    except BaseException:
        os.write(report.fileno(), traceback.format_exc().encode())
    finally:
        os._exit(code)


@contextlib.contextmanager
def held_by_another_thread(locks: Sequence[Any]) -> Iterator[None]:
    """Let another thread hold locks during the block."""
    errors, is_held, is_over = list[BaseException](), threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            try:
                for lock in locks:
                    assert lock.acquire(timeout=LIMIT_S)
                    stack.callback(lock.release)
            except BaseException as error:
                errors.append(error)
            is_held.set()
            is_over.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    is_held.wait()
    try:
        assert not errors
        yield
    finally:
        is_over.set()
        thread.join()


def locks_of(package: str) -> dict[str, list[Any]]:
    """Return all locks that modules of a package reach, by place: in values, and in the objects that these hold."""
    locks: collections.defaultdict[str, list[Any]] = collections.defaultdict(list)
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == package and not name.endswith(".per_process"):
            waiting += [(f"{name}:{key}", value) for key, value in [*vars(module).items()]]
    while waiting:
        place, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, _LOCKS):
            locks[place].append(value)
        else:
            waiting += _held_by(place, value, package)
    return dict(locks)


def _held_by(place: str, value: Any, package: str) -> list[tuple[str, Any]]:
    """Return the objects that a value holds, with their places."""
    if isinstance(value, PerProcess):
        return [(place, value.here)]
    if isinstance(value, threading.Event | threading.Condition):
        return [(place, inner) for inner in vars(value).values()]
    if isinstance(value, _MAPPINGS):
        return [(f"{place}[]", inner) for pair in [*value.items()] for inner in pair]
    if isinstance(value, _MANY):
        return [(f"{place}[]", inner) for inner in [*value]]
    if str(getattr(value, "__module__", "")).partition(".")[0] != package:
        return []
    names = {*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())}
    return [(f"{place}.{name}", _attribute(value, name)) for name in names]


def _attribute(value: Any, name: str) -> Any:
    """Return an attribute as it is stored, without a call of a property of a class."""
    attributes = getattr(value, "__dict__", {})
    return attributes[name] if name in attributes else getattr(value, name, None)
