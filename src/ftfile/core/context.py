"""The environment of a process, such as its clock, random names, retries and progress.

No other module reads the clock or draws random names, so tests can replace all of them.
"""

from __future__ import annotations

import getpass
import os
import platform
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from ftfile.core.errors import ConfigError, FtfileError, Retry, Unavailable
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
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


# An error after a wait of at least this time means that the store is down.
AWAY_S = 10.0
# The time between two log lines of a running operation.
LOG_EVERY_S = 10.0

Result = TypeVar("Result")

OnProgress: TypeAlias = "Callable[[Progress], object]"

_log = get_logger(__name__)


class Clock(Protocol):
    """The source of time; tests use another one."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC, for display; no order of events follows from them."""

    def monotonic_s(self) -> float:
        """Return seconds of a clock that is never set back, for deadlines."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The clock of the machine."""

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
    """The source of unique names; tests use a seeded one."""

    def unique(self) -> str:
        """Return 32 lower-case hex digits that no process has returned before."""


class SystemIds:
    """Names of 128 random bits from the operating system; forked processes draw different ones."""

    def unique(self) -> str:
        """Return 32 random hex digits."""
        return os.urandom(16).hex()


def random_bytes(count: int) -> bytes:
    """Return unpredictable bytes from the operating system; forked processes draw different ones."""
    return os.urandom(count)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts, the waits between them (exponential backoff with a maximum), and the total time."""

    attempts: int | None = 5  # in total; 1 for no retry, None for no limit
    delay_s: float = 0.1  # after the first failure
    growth: float = 2.0  # the factor by which each wait is longer than the previous one
    delay_s_max: float = 5.0
    total_s: float | None = None  # no attempt begins later than this after the first one; None for no limit

    def __post_init__(self) -> None:
        attempts, total_s = (1 if self.attempts is None else self.attempts), self.total_s or 0
        if min(attempts, self.growth) < 1 or min(self.delay_s, self.delay_s_max, total_s) < 0:
            raise ConfigError(f"{self}: attempts and growth must be at least 1, and times at least 0")

    def delay_after_s(self, failures: int, elapsed_s: float = 0) -> float | None:
        """Return the seconds to wait after this number of consecutive failures; None for no further attempt."""
        if self.attempts is not None and failures >= self.attempts:
            return None
        # The exponent is limited, since a larger power overflows a float.
        delay_s = float(min(self.delay_s * self.growth ** min(failures - 1, 64), self.delay_s_max))
        if self.total_s is not None and elapsed_s + delay_s > self.total_s:
            return None
        return delay_s


def call_with_retries(
    call: Callable[[], Result], policy: RetryPolicy, clock: Clock, *, is_repeatable: bool = False, task: str = ""
) -> Result:
    """Call until it succeeds, the policy allows no further attempt, or the error cannot be cured by a retry.

    Args:
        call: raises `FtfileError`; its class states if a retry can help.
        policy: attempts and waits.
        clock: measures and waits.
        is_repeatable: the call is also retried if its outcome is unknown.
        task: the purpose of the call for log lines, as in "to list /data".

    Raises:
        FtfileError: the error of the last attempt.
    """
    failures, began_s = 0, clock.monotonic_s()
    while True:
        try:
            return call()
        except FtfileError as error:
            failures += 1
            elapsed_s = clock.monotonic_s() - began_s
            can_help = error.retry is Retry.AGAIN or (is_repeatable and error.retry is Retry.LOOK)
            delay_s = None
            if can_help:
                delay_s = policy.delay_after_s(failures, elapsed_s)
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
    """Return True if a call waited for the store so long that no further call should be made."""
    return isinstance(error, Unavailable) and error.waited_s >= AWAY_S


def retry_until(call: Callable[[], Result], total_s: float, clock: Clock) -> Result:
    """Call until it succeeds, `total_s` seconds have passed, or a retry cannot help."""
    return call_with_retries(call, RetryPolicy(attempts=None, delay_s_max=2.0, total_s=total_s), clock)


@dataclass(frozen=True, slots=True)
class Context:
    """The environment that an opened file system uses; entry points of Spark and maintenance calls choose it."""

    clock: Clock
    ids: IdSource
    retry: RetryPolicy | None = None  # None for the default: one attempt if the storage driver retries on its own
    threads: int | None = None  # of maintenance; None for one per core
    writer: str = ""  # `user@host` of the process, for records; empty to omit it


def process_owner() -> str:
    """Return `user@host` of this process in ASCII; a user without a name is a number."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # the user of a container can be missing in its /etc/passwd
        user = "unknown"
        if hasattr(os, "getuid"):
            user = str(os.getuid())
    return f"{user}@{platform.node()}".encode("ascii", "replace").decode("ascii")


def main_module() -> str:
    """Return the module that this process runs as its program; empty if it runs a script."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "" if spec is None else spec.name


def is_worker() -> bool:
    """Return True in a Python process that Spark started; a driver program of a user is not such a process."""
    return main_module().startswith("pyspark.")


# The environment of the machine.
SYSTEM = Context(SystemClock(), SystemIds(), writer=process_owner())


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return a path that is valid in other processes: `~` is expanded, and a relative path becomes absolute.

    URLs, absolute paths and blank texts are unchanged.

    Raises:
        ConfigError: the path begins with `~` and the name of an unknown user.
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
    if is_relative:
        return os.path.abspath(text)
    return text


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an operation."""

    operation: str  # such as `compact`; `publish` moves files to their final names, or away from them
    done: int  # completed files, or other things of the unit
    total: int  # can grow while the operation runs
    done_bytes: int  # of the completed files on storage
    total_bytes: int  # 0 if files are not read
    elapsed_s: float
    unit: str = "files"  # or `compactions`, `lists`, `steps`, `versions`; segments of open files count as files

    @property
    def left_s(self) -> float | None:
        """Return the estimated remaining seconds; None before the first file is complete."""
        if self.total_bytes:
            done, total = (self.done_bytes, self.total_bytes)
        else:
            done, total = (self.done, self.total)
        if done:
            return self.elapsed_s * (total / done - 1)
        return None


class Tracker:
    """Reports the progress of an operation: calls `on_progress` after each file, and logs a line every 10 seconds.

    `total` and `total_bytes` count all of its work.
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
        self._now = Progress(operation, 0, total=total, done_bytes=0, total_bytes=total_bytes, elapsed_s=0.0, unit=unit)

    def expect(self, more: int, more_bytes: int) -> None:
        """Set the remaining work."""
        now = self._now
        self._now = replace(now, total=now.done + more, total_bytes=now.done_bytes + more_bytes)

    def add(self, files: int = 1, size_bytes: int = 0) -> None:
        """Add completed work."""
        now_s, before = self._clock.monotonic_s(), self._now
        # A part of a segment can be read twice, which would count it twice.
        done = min(before.done + files, before.total)
        done_bytes = min(before.done_bytes + size_bytes, before.total_bytes)
        self._now = now = replace(before, done=done, done_bytes=done_bytes, elapsed_s=now_s - self._began_s)
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            if now.left_s is None:
                left_text = ""
            else:
                left_text = f", about {now.left_s:.0f} s left"
            size = ""
            if now.total_bytes:
                size = f", {now.done_bytes / 1e6:.0f} of {now.total_bytes / 1e6:.0f} MB"
            _log.info("%s: %d of %d %s%s%s", now.operation, now.done, now.total, now.unit, size, left_text)
        if self._on_progress is not None:
            self._on_progress(now)
