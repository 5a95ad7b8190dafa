"""How far an operation is: told to who asked for it, and logged from time to time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from typing import TypeAlias

    from ftfile.core.context import Clock


# Between two log lines of an operation that goes on.
LOG_EVERY_S = 10.0

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an operation is."""

    operation: str  # such as `compact`; `publish` for files that a new record shows or hides
    done: int  # files, or others of the unit, that are done
    total: int  # it may grow on the way, where what is done makes more to do
    done_bytes: int  # of files that are read, on storage
    total_bytes: int  # 0 where files are not read
    elapsed_s: float
    unit: str = "files"  # or `lists`, `merges`, `steps`, `versions`; pieces of open files count as files

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
