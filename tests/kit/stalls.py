"""Tests with limits of fractions of a second, repeated if they failed while the machine was stalled."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ("STALL_S", "TRIES", "Ticks", "run_in_peace")

TICK_S = 0.02
# The shortest limit of these tests is twice as long.
STALL_S = 0.05
TRIES = 20


class Ticks:
    """Measures stalls of the machine in a separate thread, within a `with` block.

    Attributes:
        longest_s: the longest time for which that thread had no processor.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Ticks:  # noqa: PYI034 - typing.Self comes with Python 3.11
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        then_s, has_ended = time.monotonic(), False
        while not has_ended:
            has_ended = self._ended.wait(TICK_S)
            now_s = time.monotonic()
            self.longest_s = max(self.longest_s, now_s - then_s - TICK_S)
            then_s = now_s


def run_in_peace(test: Callable[[], object]) -> None:
    """Run a test, and repeat it while it fails and the machine was stalled during the run.

    A test whose fixtures keep its results must reset them at its beginning.
    """
    for left in reversed(range(TRIES)):
        ticks = Ticks()
        try:
            with ticks:
                test()
        except (Exception, pytest.fail.Exception):
            if not left or ticks.longest_s < STALL_S:
                raise
        else:
            return
