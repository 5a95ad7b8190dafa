"""Objects that all threads of a process share, such as clients: a fork shares no connections."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Key = TypeVar("Key")
Made = TypeVar("Made")


class PerProcess(Generic[Key, Made]):
    """Objects made once for each key, and once more in a fork; if `make` raises, nothing is kept."""

    def __init__(self, make: Callable[[Key], Made]) -> None:
        self._make = make
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        # A thread of the parent may have held the lock.
        self._lock = threading.Lock()
        self._made: dict[Key, Made] = {}

    def of(self, key: Key) -> Made:
        """Return the object of a key in this process."""
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(key)
            return self._made[key]

    def forget(self, key: Key) -> None:
        """Make the next `of` make a new object."""
        with self._lock:
            self._made.pop(key, None)
