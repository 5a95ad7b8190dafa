"""Trying again: when it can help is the error's answer, how often and how long is a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import ConfigError, FtfileError, Retry
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.clock import Clock

__all__ = ("RetryPolicy", "call_with_retries")

Result = TypeVar("Result")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait in between: exponential with a ceiling.

    Attributes:
        attempts: tries in all; 1 means never again.
        delay_s: wait after the first failure.
        growth: each later wait is this many times the one before.
        delay_s_max: no wait is longer.
    """

    attempts: int = 5
    delay_s: float = 0.1
    growth: float = 2.0
    delay_s_max: float = 5.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.delay_s < 0 or self.growth < 1 or self.delay_s_max < 0:
            raise ConfigError(f"{self}: attempts and growth are at least 1, delays at least 0")

    def delay_after_s(self, failures: int) -> float | None:
        """Return the seconds to wait after this number of failures in a row; None to give up."""
        if failures >= self.attempts:
            return None
        return float(min(self.delay_s * self.growth ** (failures - 1), self.delay_s_max))


def call_with_retries(call: Callable[[], Result], policy: RetryPolicy, clock: Clock) -> Result:
    """Call until it succeeds, the policy gives up, or the error says that trying again cannot help.

    Raises:
        FtfileError: the last one.
    """
    failures = 0
    while True:
        try:
            return call()
        except FtfileError as error:
            failures += 1
            delay_s = policy.delay_after_s(failures) if error.retry is Retry.AGAIN else None
            if delay_s is None:
                raise
            _log.info("try %d of %d failed, next in %.1f s: %s", failures, policy.attempts, delay_s, error)
        clock.sleep(delay_s)
