"""Runs that repeat to the byte: the product's default clock and names replaced by a test's own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

from ftfile.core.clock import SystemClock
from ftfile.core.ids import SystemIds
from ftfile.testing.clock import ManualClock, SeededIds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.core.clock import Clock
    from ftfile.core.ids import IdSource

__all__ = ("repeatable",)


@contextlib.contextmanager
def repeatable(clock: Clock | None = None, ids: IdSource | None = None) -> Iterator[None]:
    """Within the block, whatever asks the system's clock or names in this process asks these instead.

    Nobody waits: sleeping moves the clock. Blocks may be nested; the innermost one answers.

    Args:
        clock: a `ManualClock` by default.
        ids: `SeededIds` of seed 0 by default.
    """
    clock = ManualClock() if clock is None else clock
    ids = SeededIds() if ids is None else ids
    with (
        mock.patch.object(SystemClock, "now_ms", staticmethod(clock.now_ms)),
        mock.patch.object(SystemClock, "monotonic_s", staticmethod(clock.monotonic_s)),
        mock.patch.object(SystemClock, "sleep", staticmethod(clock.sleep)),
        mock.patch.object(SystemIds, "unique", staticmethod(ids.unique)),
    ):
        yield
