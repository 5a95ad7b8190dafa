"""The clock and the ids that the kit passes to the product: the machine's, or those of a test, which repeat."""

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

    from ftfile.core.context import Clock, IdSource, RetryPolicy
    from ftfile.storage.api import FileSystem


__all__ = ("ManualClock", "SeededIds", "ShiftedClock", "current", "open_filesystem", "repeatable")


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


class ShiftedClock:
    """The wall clock of a machine that is `shift_s` seconds ahead of another clock."""

    def __init__(self, clock: Clock, shift_s: float = 0) -> None:
        self._clock = clock
        self.shift_s = shift_s

    def now_ms(self) -> int:
        """Return the shifted wall clock in milliseconds since 1970 UTC."""
        return self._clock.now_ms() + int(1000 * self.shift_s)

    def monotonic_s(self) -> float:
        """Return the monotonic time of the other clock, which is never set."""
        return self._clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        """Sleep by the other clock."""
        self._clock.sleep(seconds)


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


_contexts = [SYSTEM]


def current() -> Context:
    """Return the context of the innermost `repeatable` block, else the machine's."""
    return _contexts[-1]


@contextlib.contextmanager
def repeatable(clock: Clock | None = None, ids: IdSource | None = None) -> Iterator[Context]:
    """Within the block, what the kit runs has this clock and these ids, so that runs repeat to the byte.

    Nobody waits: sleeping moves the clock; maintenance has one thread. Blocks may be nested; the innermost one counts.

    Args:
        clock: a `ManualClock` by default.
        ids: `SeededIds` of seed 0 by default.
    """
    clock, ids = ManualClock() if clock is None else clock, SeededIds() if ids is None else ids
    _contexts.append(Context(clock, ids, threads=1))
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
