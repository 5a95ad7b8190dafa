"""The progress of an operation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.clock import Clock


__all__ = ("LOG_EVERY_S", "OnProgress", "Progress", "Tracker")


# The time between two log lines of a running operation.
LOG_EVERY_S = 10.0

OnProgress: TypeAlias = "Callable[[Progress], object]"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
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
        self._now = Progress(
            operation=operation, done=0, total=total, done_bytes=0, total_bytes=total_bytes, elapsed_s=0.0, unit=unit
        )

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
