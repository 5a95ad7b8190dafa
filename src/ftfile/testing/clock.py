"""Time that only moves when told to, and unique names that repeat from run to run."""

from __future__ import annotations

import hashlib
import threading

__all__ = ("ManualClock", "SeededIds")

_START_MS = 1_700_000_000_000


class ManualClock:
    """A clock that stands still: `advance` and `sleep` move it, and nobody ever waits.

    Each reading of the wall clock moves it by `tick_ms`, so that later things are younger.
    """

    def __init__(self, now_ms: int = _START_MS, *, tick_ms: int = 0) -> None:
        self._now_ms = float(now_ms)
        self._tick_ms = tick_ms
        self.slept_s: list[float] = []

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970 UTC."""
        self._now_ms += self._tick_ms
        return int(self._now_ms)

    def monotonic_s(self) -> float:
        """Return the same time in seconds."""
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Advance instead of waiting, and note it in `slept_s`."""
        self.slept_s.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move on."""
        self._now_ms += seconds * 1000

    def set(self, now_ms: int) -> None:
        """Move to a time, which may be an earlier one."""
        self._now_ms = float(now_ms)


class SeededIds:
    """Unique names that are the same in every run with the same seed, and never those of another; safe for threads."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._drawn = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[int, int]:
        return self._seed, self._drawn

    def __setstate__(self, state: tuple[int, int]) -> None:
        self._seed, self._drawn = state
        self._lock = threading.Lock()

    def unique(self) -> str:
        """Return 32 hex digits never returned before by this source."""
        with self._lock:
            self._drawn += 1
            drawn = self._drawn
        return hashlib.blake2b(f"{self._seed}:{drawn}".encode(), digest_size=16).hexdigest()
