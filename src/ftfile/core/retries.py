"""Retries of failed calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import ConfigError, FtfileError, Retry, Unavailable
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.clock import Clock


__all__ = ("AWAY_S", "Result", "RetryPolicy", "call_with_retries", "is_away", "retry_until")


# An error after a wait of at least this time means that the storage is down.
AWAY_S = 10.0

Result = TypeVar("Result")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts, the waits between them (exponential backoff with a maximum), and the total time."""

    attempts: int | None = 5  # including the first one; 1 for no retry, None for no limit
    delay_s: float = 0.1  # after the first failure
    growth: float = 2.0  # the factor by which each wait is longer than the previous one
    delay_s_max: float = 5.0
    total_s: float | None = None  # from the first attempt to the start of the last one; None for no limit

    def __post_init__(self) -> None:
        has_no_attempt = self.attempts is not None and self.attempts < 1
        has_negative_total = self.total_s is not None and self.total_s < 0
        has_negative_delay = min(self.delay_s, self.delay_s_max) < 0
        if has_no_attempt or has_negative_total or has_negative_delay or self.growth < 1:
            raise ConfigError(f"{self}: attempts and growth must be at least 1, and times at least 0")

    def delay_after_s(self, failures: int, elapsed_s: float = 0) -> float | None:
        """Return the seconds to wait after this number of consecutive failures; None if no attempt remains."""
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
    """Repeat a call until it succeeds, the policy allows no further attempt, or a retry cannot cure the error.

    Args:
        call: the function to call. If it raises an `FtfileError`, the class of the error states if a retry can help.
        policy: the number of attempts and the waits between them.
        clock: measures the elapsed time, and waits.
        is_repeatable: True if the call is also retried when its outcome is unknown.
        task: the purpose of the call for log lines, such as "to list /data".

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
            can_help = error.retry is Retry.AGAIN or (is_repeatable and error.retry is Retry.AFTER_CHECK)
            delay_s = None
            if can_help:
                delay_s = policy.delay_after_s(failures, elapsed_s)
            if delay_s is None:
                raise
            purpose = ""
            if task:
                purpose = f" {task}"
            _log.warning("attempt %d%s failed, next attempt in %.1f s: %s", failures, purpose, delay_s, error)
        clock.sleep(delay_s)


def is_away(error: Exception) -> bool:
    """Return True if a call waited for at least `AWAY_S`, so that the caller should not call the storage again."""
    return isinstance(error, Unavailable) and error.waited_s >= AWAY_S


def retry_until(call: Callable[[], Result], total_s: float, clock: Clock) -> Result:
    """Repeat a call until it succeeds, `total_s` seconds have passed, or a retry cannot cure the error."""
    return call_with_retries(call, RetryPolicy(attempts=None, delay_s_max=2.0, total_s=total_s), clock)
