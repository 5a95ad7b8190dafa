"""Waiting for a store that says it has done nothing because it is not ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import Unavailable
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.clock import Clock

__all__ = ("patiently",)

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 2.0

Result = TypeVar("Result")

_log = get_logger(__name__)


def patiently(call: Callable[[], Result], patience_s: float, clock: Clock) -> Result:
    """Call again while the store is unavailable, which means that nothing happened, until patience ends.

    Raises:
        StorageError: any other at once; `Unavailable` in the end.
    """
    deadline_s = clock.monotonic_s() + patience_s
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            return call()
        except Unavailable as error:
            if clock.monotonic_s() + wait_s > deadline_s:
                raise
            _log.warning("again in %.1f s: %s", wait_s, error)
        clock.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
