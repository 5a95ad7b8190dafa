"""Objects that all threads of a process share, such as clients of stores."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


Key = TypeVar("Key")
Made = TypeVar("Made")


class PerProcess(Generic[Key, Made]):
    """Objects that are created once for each key and process; if `make` raises, nothing is stored."""

    def __init__(self, make: Callable[[Key], Made]) -> None:
        self._make = make
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        # Another thread of the parent process can have held the lock during the fork.
        self._lock = threading.Lock()
        self._made: dict[Key, tuple[str | None, Made]] = {}

    def of(self, key: Key, secrets: str | None = None) -> Made:
        """Return the object of a key in this process. It is created again if the digest of its secrets has changed."""
        with self._lock:
            digest, instance = self._made.get(key, (None, None))
            if instance is None or (secrets is not None and secrets != digest):
                instance = self._make(key)
                self._made[key] = secrets, instance
            return instance

    def forget(self, key: Key) -> None:
        """Make the next `of` create a new object."""
        with self._lock:
            self._made.pop(key, None)


def digest_of_variables(names: Iterable[str]) -> str | None:
    """Return a digest of the values of environment variables; None if one of them is not set."""
    values = [os.environ.get(name) for name in names]
    if not all(values):
        return None
    return hashlib.sha256("\0".join(map(str, values)).encode("utf-8", "surrogateescape")).hexdigest()
