"""The schedule of the listings of a process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftfile.core.clock import Clock
    from ftfile.storage.api import Watch


_LISTING_SHARE = 5  # listing takes at most 1 / _LISTING_SHARE of the time


class ListingSchedule:
    """Decides when the next listing is due: after `scan_interval_s`, or as soon as the watch reports a change.

    Listing takes at most a fifth of the time, even if the watch reports changes more often. A wrong watch only affects
    how soon new files are found.

    Attributes:
        watch: of the storage; None if the storage has no watch.
        has_more: the last plan left files of the last listing to the next plan.
        is_fixed: all plans use one listing, and no other listing follows.
    """

    def __init__(self, clock: Clock, watch: Watch | None, scan_interval_s: float, idle_wait_s: float) -> None:
        self.watch = watch
        self.has_more = False
        self.is_fixed = False
        self._clock = clock
        self._scan_interval_s = scan_interval_s
        self._idle_wait_s = idle_wait_s  # wait for a change while there is no new content
        self._first_s = math.inf  # start of the first listing of this process
        self._due_s = -math.inf  # the next listing starts at this time without a change
        self._allowed_s = -math.inf  # the next listing does not start before

    def begin(self) -> float:
        """Return the time at which a listing begins, in seconds of the monotonic clock."""
        began_s = self._clock.monotonic_s()
        self._first_s = min(self._first_s, began_s)
        return began_s

    def end(self, began_s: float) -> None:
        """Schedule the next listing after a listing that ends now."""
        now_s = self._clock.monotonic_s()
        self._allowed_s = now_s + (_LISTING_SHARE - 1) * (now_s - began_s)
        self._due_s = max(self._allowed_s, now_s + self._scan_interval_s)

    def is_first(self, began_s: float) -> bool:
        """Return True if the listing that began at this time is the first listing of this process."""
        return began_s <= self._first_s

    def is_due(self) -> bool:
        """Return True if another listing is due; wait for a change unless there is more to plan."""
        due_in_s = self._due_s - self._clock.monotonic_s()
        return due_in_s <= 0 or self._is_changed(0.0 if self.has_more else min(self._idle_wait_s, due_in_s))

    def _is_changed(self, wait_s: float) -> bool:
        """Return True if the watch reports a change within `wait_s` seconds, and a listing is allowed."""
        early_s = max(self._allowed_s - self._clock.monotonic_s(), 0.0)
        watch = self.watch if early_s <= wait_s else None
        if sleep_s := wait_s if watch is None else early_s:
            self._clock.sleep(sleep_s)
        # The watch reports a change only once, so it is only called when a listing is allowed.
        return watch is not None and watch.changed(wait_s - early_s)
