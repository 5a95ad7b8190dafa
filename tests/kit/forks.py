"""Forked processes, and the locks that threads can hold during a fork."""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftfile.core.per_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import IO

# A process hangs if it uses no processor for `IDLE_S` and waits for no processor or disk, or if it uses one for
# `BUSY_S`. So a busy machine only slows it down. `STACKS_S` is the time to write stacks, and `LIMIT_S` is the longest
# wait for a lock. In seconds.
IDLE_S, BUSY_S, STACKS_S, LIMIT_S = 20.0, 120.0, 5.0, 30.0
_LOOK_S = 0.002
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_MANY = (list, tuple, set, frozenset, collections.deque)
_MAPPINGS = (dict, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)


class Fork:
    """A forked process that runs `work`."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._report = tempfile.TemporaryFile()  # noqa: SIM115 - `join` closes it
        self._id = os.fork()
        if self._id == 0:
            _run(work, self._report)

    def join(self, idle_s: float = IDLE_S) -> None:
        """Wait for its end; an error is an AssertionError. If it hangs, it is killed, and its stacks are shown."""
        with self._report as file:
            status = self._wait(idle_s)
            file.seek(0)
            assert os.waitstatus_to_exitcode(status) == 0, file.read().decode()

    def _wait(self, idle_s: float) -> int:
        progress = Progress(lambda: [self._id], idle_s)
        while True:
            ended, status = os.waitpid(self._id, os.WNOHANG)
            if ended:
                return status
            reason = progress.hangs()
            if reason:
                os.write(self._report.fileno(), f"the process hangs: {reason}\n".encode())
                os.kill(self._id, signal.SIGUSR1)
                time.sleep(STACKS_S)
                os.write(self._report.fileno(), native_stacks(self._id).encode())
                os.kill(self._id, signal.SIGKILL)
                return os.waitpid(self._id, 0)[1]
            time.sleep(_LOOK_S)


class Progress:
    """The use of processors by processes, to find out if they hang.

    Args:
        processes: returns the ids of the processes.
        idle_s: the time without any use of a processor after which they hang, in seconds.
    """

    def __init__(self, processes: Callable[[], Iterable[int]], idle_s: float = IDLE_S) -> None:
        self._processes, self._idle_s = processes, idle_s
        self._last = dict[str, int | None]()
        self._last_s, self._looked_s = time.monotonic(), -math.inf

    def hangs(self) -> str:
        """Return why they hang, or an empty string. Call it repeatedly."""
        now_s = time.monotonic()
        if now_s - self._looked_s < min(0.25, self._idle_s / 4):
            return ""
        self._looked_s = now_s
        found = {name: used for process in self._processes() for name, used in _threads_of(process)}
        if found != self._last or None in found.values():
            self._last, self._last_s = found, now_s
        busy_s = sum(used or 0 for used in found.values()) / 1e9
        if busy_s > BUSY_S:
            return f"it has used processors for {busy_s:.0f} s"
        return f"it has used no processor for {self._idle_s} s" if now_s - self._last_s > self._idle_s else ""


def _threads_of(process: int) -> Iterator[tuple[str, int | None]]:
    """Yield the threads of a process and their processor times in ns; None waits for a processor or disk."""
    for thread in Path(f"/proc/{process}/task").glob("*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
            used = int((thread / "schedstat").read_text().split()[0])
            yield thread.name, None if state in "RD" else used


def processes_of_group(group: int) -> list[int]:
    """Return the ids of the processes of a group."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(int(process.name)) == group:
                found.append(int(process.name))
    return found


def native_stacks(process: int) -> str:
    """Return the stacks of a process with functions of C; an empty string if gdb is not installed."""
    gdb = shutil.which("gdb")
    if gdb is None:
        return ""
    command = [gdb, "-p", str(process), "-batch", "-ex", "thread apply all bt 30"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except subprocess.TimeoutExpired:
        return ""


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
    """Return all locks that modules of a package reach, by the shortest places: in values, and in objects they hold."""
    locks: collections.defaultdict[str, list[Any]] = collections.defaultdict(list)
    seen: set[int] = set()
    level: list[tuple[str, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == package and not name.endswith(".per_process"):
            level += [(f"{name}:{key}", value) for key, value in [*vars(module).items()]]
    while level:
        level = [(place, value) for place, value in level if id(value) not in seen]
        seen.update(id(value) for _, value in level)
        deeper: list[tuple[str, Any]] = []
        for place, value in level:
            if isinstance(value, _LOCKS):
                locks[place].append(value)
            else:
                deeper += _held_by(place, value, package)
        level = deeper
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
