"""A process's surroundings: clock, random names, retries, threads, directory; nothing else reads or draws them.

And how far an operation is, by that clock: for who asked for it, and in the log from time to time.
"""

from __future__ import annotations

import getpass
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from ftfile.core.errors import ConfigError, FtfileError, Retry, Unavailable
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from typing import TypeAlias


__all__ = (
    "AWAY_S",
    "LOG_EVERY_S",
    "SYSTEM",
    "Clock",
    "Context",
    "IdSource",
    "OnProgress",
    "Progress",
    "Result",
    "RetryPolicy",
    "SystemClock",
    "SystemIds",
    "Tracker",
    "absolute_path",
    "call_with_retries",
    "cores",
    "is_away",
    "is_worker",
    "main_module",
    "process_owner",
    "random_bytes",
    "retry_until",
)


class Clock(Protocol):
    """The source of time; tests bring their own."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC: information, never an order."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back: for deadlines."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return the monotonic clock in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait in this thread."""
        time.sleep(seconds)


class IdSource(Protocol):
    """The source of unique names; tests bring seeded ones."""

    def unique(self) -> str:
        """Return 32 lower-case hex digits never returned before, here or anywhere."""


class SystemIds:
    """128 random bits from the operating system, safe after a fork."""

    def unique(self) -> str:
        """Return 32 random hex digits."""
        return os.urandom(16).hex()


def random_bytes(count: int) -> bytes:
    """Return bytes that nobody can guess, from the operating system, safe after a fork."""
    return os.urandom(count)


# In seconds.
AWAY_S = 10.0

Result = TypeVar("Result")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of tries, the waits in between (exponential with a ceiling), and the time for all of them."""

    attempts: int | None = 5  # in all; 1 means never again, None no limit
    delay_s: float = 0.1  # after the first failure
    growth: float = 2.0  # each later wait is this many times the one before
    delay_s_max: float = 5.0
    total_s: float | None = None  # no try begins later than this after the first one; None for no limit

    def __post_init__(self) -> None:
        attempts, total_s = (1 if self.attempts is None else self.attempts), self.total_s or 0
        if min(attempts, self.growth) < 1 or min(self.delay_s, self.delay_s_max, total_s) < 0:
            raise ConfigError(f"{self}: attempts and growth must be at least 1, and times at least 0")

    def delay_after_s(self, failures: int, elapsed_s: float = 0) -> float | None:
        """Return the seconds to wait after that many failures in a row, or None to give up."""
        if self.attempts is not None and failures >= self.attempts:
            return None
        # The exponent is bounded: a float of a larger power overflows.
        delay_s = float(min(self.delay_s * self.growth ** min(failures - 1, 64), self.delay_s_max))
        return None if self.total_s is not None and elapsed_s + delay_s > self.total_s else delay_s


def call_with_retries(
    call: Callable[[], Result], policy: RetryPolicy, clock: Clock, *, is_repeatable: bool = False, task: str = ""
) -> Result:
    """Call until it succeeds, the policy gives up, or the error says that trying again cannot help.

    A call that `is_repeatable` is tried again also after an unknown outcome. Log lines name the `task`, as in "to …".

    Raises:
        FtfileError: the last one.
    """
    failures, began_s = 0, clock.monotonic_s()
    while True:
        try:
            return call()
        except FtfileError as error:
            failures += 1
            elapsed_s = clock.monotonic_s() - began_s
            can_help = error.retry is Retry.AGAIN or (is_repeatable and error.retry is Retry.LOOK)
            delay_s = policy.delay_after_s(failures, elapsed_s) if can_help else None
            if delay_s is None:
                raise
            _log.warning(
                "attempt %d%s failed, next attempt in %.1f s: %s",
                failures,
                task and f" {task}",
                delay_s,
                error,
            )
        clock.sleep(delay_s)


def is_away(error: Exception) -> bool:
    """Return True if so much time was waited for the store in vain that nothing more is to be asked of it."""
    return isinstance(error, Unavailable) and error.waited_s >= AWAY_S


def retry_until(call: Callable[[], Result], total_s: float, clock: Clock) -> Result:
    """Call until it succeeds, `total_s` seconds have passed, or trying again cannot help."""
    return call_with_retries(call, RetryPolicy(attempts=None, delay_s_max=2.0, total_s=total_s), clock)


@dataclass(frozen=True, slots=True)
class Context:
    """Spark's entry points and maintenance calls choose it; an opened file system carries it."""

    clock: Clock
    ids: IdSource
    retry: RetryPolicy | None = None  # None for the default: one try where the driver repeats by itself
    threads: int | None = None  # of maintenance; None for one for each core
    writer: str = ""  # who runs the process, as `user@host`, for records; empty to leave it out


def process_owner() -> str:
    """Return who runs this process, as `user@host` in ASCII; a number for a user without a name."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user need not be in its list
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{platform.node()}".encode("ascii", "replace").decode("ascii")


def main_module() -> str:
    """Return the name of the program of this process, empty if it is no module."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "" if spec is None else spec.name


def is_worker() -> bool:
    """Return True in a process that Spark started to run Python, and in which no code of a user's program runs."""
    return main_module().startswith("pyspark.")


# The machine's own.
SYSTEM = Context(SystemClock(), SystemIds(), writer=process_owner())


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return a path as other processes understand it: `~` is the home directory, and others begin where this one works.

    URLs, absolute paths and blanks stay as they are.

    Raises:
        ConfigError: it begins with `~` and the name of no user.
    """
    text = os.fspath(path)
    if text.startswith("~"):
        text = os.path.expanduser(text)
        if text.startswith("~"):
            raise ConfigError(
                f"the path {text!r} names the home directory of an unknown user; write './{text}' for a directory with "
                "this name"
            )
    is_relative = text.strip() and not text.startswith("/") and ":" not in text.split("/", 1)[0]
    return os.path.abspath(text) if is_relative else text


# Between two log lines of an operation that goes on.
LOG_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an operation is."""

    operation: str  # such as `compact`; `publish` for files that a new record shows or hides
    done: int  # files, or others of the unit, that are done
    total: int  # it may grow on the way, where what is done makes more to do
    done_bytes: int  # of files that are read, on storage
    total_bytes: int  # 0 where files are not read
    elapsed_s: float
    unit: str = "files"  # or `compactions`, `lists`, `steps`, `versions`; pieces of open files count as files

    @property
    def left_s(self) -> float | None:
        """Return the seconds that the rest takes at the speed so far; None before anything is done."""
        done, total = (self.done_bytes, self.total_bytes) if self.total_bytes else (self.done, self.total)
        return self.elapsed_s * (total / done - 1) if done else None


OnProgress: TypeAlias = Callable[[Progress], object]


class Tracker:
    """Tells how far an operation is: calls `on_progress` after each piece, and logs a line from time to time.

    `total` and `total_bytes` are those of all that it does.
    """

    def __init__(
        self,
        operation: str,
        clock: Clock,
        on_progress: OnProgress | None,
        total: int,
        total_bytes: int = 0,
        *,
        unit: str = "files",
    ) -> None:
        self._clock = clock
        self._on_progress = on_progress
        self._began_s = self._logged_s = clock.monotonic_s()
        self._now = Progress(operation, 0, total, 0, total_bytes, 0.0, unit)

    def expect(self, more: int, more_bytes: int) -> None:
        """Take in how much there still is to do."""
        now = self._now
        self._now = replace(now, total=now.done + more, total_bytes=now.done_bytes + more_bytes)

    def add(self, files: int = 1, size_bytes: int = 0) -> None:
        """Count what is done."""
        now_s, before = self._clock.monotonic_s(), self._now
        # Of an open piece, a part may be read again.
        done = min(before.done + files, before.total)
        done_bytes = min(before.done_bytes + size_bytes, before.total_bytes)
        self._now = now = replace(before, done=done, done_bytes=done_bytes, elapsed_s=now_s - self._began_s)
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            left_text = "" if now.left_s is None else f", about {now.left_s:.0f} s left"
            size = f", {now.done_bytes / 1e6:.0f} of {now.total_bytes / 1e6:.0f} MB" if now.total_bytes else ""
            _log.info("%s: %d of %d %s%s%s", now.operation, now.done, now.total, now.unit, size, left_text)
        if self._on_progress is not None:
            self._on_progress(now)
