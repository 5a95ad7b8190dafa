"""The clock and the ids that the kit passes to ftfile."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM, Context
from ftfile.storage import registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.core.clock import Clock
    from ftfile.core.context import IdSource
    from ftfile.core.retries import RetryPolicy
    from ftfile.storage.api import FileSystem


__all__ = ("ManualClock", "SeededIds", "ShiftedClock", "current", "open_filesystem", "repeatable")


_START_MS = 1_700_000_000_000


class ManualClock:
    """A clock that `advance`, `set` and `sleep` move, so that a caller never waits.

    Each reading of the wall clock moves it by `tick_ms`, so that later files have later times.
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
        """Advance instead of waiting, and add the time to `slept_s`."""
        self.slept_s.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._now_ms += seconds * 1000

    def set(self, now_ms: int) -> None:
        """Set the clock to a time, which can be in the past."""
        self._now_ms = float(now_ms)


class ShiftedClock:
    """The wall clock of a machine that is `shift_s` seconds ahead of another clock."""

    def __init__(self, clock: Clock, shift_s: float = 0) -> None:
        self._clock = clock
        self.shift_s = shift_s

    def now_ms(self) -> int:
        """Return the shifted wall clock in milliseconds since 1970 UTC."""
        return self._clock.now_ms() + int(1000 * self.shift_s)

    def monotonic_s(self) -> float:
        """Return the monotonic time of the other clock, without a shift."""
        return self._clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        """Sleep with the other clock."""
        self._clock.sleep(seconds)


class SeededIds:
    """Unique names that are equal in all runs with the same seed, and differ between seeds. Thread-safe."""

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
        """Return 32 hex digits that this source has never returned before."""
        with self._lock:
            self._drawn += 1
            drawn = self._drawn
        return hashlib.blake2b(f"{self._seed}:{drawn}".encode(), digest_size=16).hexdigest()


_contexts = [SYSTEM]


def current() -> Context:
    """Return the context of the innermost `repeatable` block; outside of a block, the machine's context."""
    return _contexts[-1]


@contextlib.contextmanager
def repeatable(clock: Clock | None = None, ids: IdSource | None = None) -> Iterator[Context]:
    """Run the block with this clock and these ids, so that runs of the kit are repeatable to the byte.

    A call of `sleep` moves the clock and does not wait. Maintenance has one thread. Blocks can be nested; the innermost
    block applies.

    Args:
        clock: a `ManualClock` by default.
        ids: `SeededIds` of seed 0 by default.
    """
    clock, ids = ManualClock() if clock is None else clock, SeededIds() if ids is None else ids
    _contexts.append(Context(clock=clock, ids=ids, threads=1))
    try:
        yield current()
    finally:
        _contexts.pop()


def open_filesystem(
    url: str,
    *,
    settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    policy: RetryPolicy | None = None,
) -> FileSystem:
    """Open a directory as `registry.open_filesystem` does, in the current context with another clock or policy."""
    context = current()
    return registry.open_filesystem(
        url, replace(context, clock=clock or context.clock, retry=policy or context.retry), settings
    )
