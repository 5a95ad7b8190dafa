"""A process's surroundings: a clock, a source of names, and the retry policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.clock import SystemClock
from ftfile.core.ids import SystemIds

if TYPE_CHECKING:
    from ftfile.core.clock import Clock
    from ftfile.core.ids import IdSource
    from ftfile.core.retry import RetryPolicy

__all__ = ("SYSTEM", "Context")


@dataclass(frozen=True, slots=True)
class Context:
    """Chosen where a process begins, by Spark's entry points or a maintenance call; an opened file system carries it.

    Attributes:
        clock: for times, deadlines and waits.
        ids: for names, nonces and ids.
        retry: of calls that may be repeated; None for the default, once where the driver repeats by itself.
    """

    clock: Clock
    ids: IdSource
    retry: RetryPolicy | None = None


# Of the machine.
SYSTEM = Context(SystemClock(), SystemIds())
