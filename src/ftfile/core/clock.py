"""The clock of a process. No other module reads it, so tests can replace it."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ("Clock", "SystemClock")


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
