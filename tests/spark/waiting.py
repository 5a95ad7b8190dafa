"""Waits for events, however slow the machine is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("PATIENCE_S", "wait_until")

# Long enough for every expected event: it only ends tests that would wait for ever.
PATIENCE_S = 600.0


def wait_until(holds: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Check a condition repeatedly until it holds.

    Raises:
        AssertionError: the time is over.
    """
    deadline_s = time.monotonic() + patience_s
    looked_at_s = time.monotonic()
    while not holds():
        now_s = time.monotonic()
        assert now_s < deadline_s, f"waited {patience_s:.0f} s in vain for {what}"
        # The awaited process needs the processor more than this check.
        time.sleep(max(0.05, 4 * (now_s - looked_at_s)))
        looked_at_s = time.monotonic()
