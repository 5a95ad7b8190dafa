"""A process's surroundings: a clock, a source of names, the retry policy, and threads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.clock import Clock, SystemClock
from ftfile.core.ids import IdSource, SystemIds

if TYPE_CHECKING:
    from ftfile.core.retry import RetryPolicy

__all__ = ("SYSTEM", "Context", "cores")


@dataclass(frozen=True, slots=True)
class Context:
    """Spark's entry points and maintenance calls choose it; an opened file system carries it."""

    clock: Clock
    ids: IdSource
    retry: RetryPolicy | None = None  # None for the default: one try where the driver repeats by itself
    threads: int | None = None  # of maintenance; None for one for each core


# The machine's own.
SYSTEM = Context(SystemClock(), SystemIds())


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
