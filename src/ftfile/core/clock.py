"""Time: the only module that reads a clock or sleeps."""

from __future__ import annotations

import time
from typing import Protocol


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
