"""Retries of calls that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import ConfigError, FtfileError, Retry, Unavailable
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.clock import Clock


__all__ = ("AWAY_S", "Result", "RetryPolicy", "call_with_retries", "is_away", "retry_until")


# An error after a wait of at least this time means that the store is down.
AWAY_S = 10.0

Result = TypeVar("Result")

_log = get_logger(__name__)


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
