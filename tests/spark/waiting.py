"""Waiting for what comes by itself, however slow the machine is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("PATIENCE_S", "wait_until")

# For what a test is sure of: it ends a test that waits in vain, and no other.
PATIENCE_S = 600.0


def wait_until(holds: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Look again and again until it holds.

    Raises:
        AssertionError: it did not come.
    """
    deadline_s = time.monotonic() + patience_s
    looked_at_s = time.monotonic()
    while not holds():
        now_s = time.monotonic()
        assert now_s < deadline_s, f"waited {patience_s:.0f} s in vain for {what}"
        # What is waited for needs the processor more than who looks.
        time.sleep(max(0.05, 4 * (now_s - looked_at_s)))
        looked_at_s = time.monotonic()
