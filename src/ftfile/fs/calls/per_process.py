"""Objects that all threads of a process share, such as clients: a fork shares no connections."""

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
    """Objects made once for each key, and once more in a fork; if `make` raises, nothing is kept."""

    def __init__(self, make: Callable[[Key], Made]) -> None:
        self._make = make
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        # A thread of the parent may have held the lock.
        self._lock = threading.Lock()
        self._made: dict[Key, tuple[str | None, Made]] = {}

    def of(self, key: Key, secrets: str | None = None) -> Made:
        """Return the object of a key in this process, made anew if the digest of its secrets is known and another."""
        with self._lock:
            digest, made = self._made.get(key, (None, None))
            if made is None or (secrets is not None and secrets != digest):
                made = self._make(key)
                self._made[key] = secrets, made
            return made

    def forget(self, key: Key) -> None:
        """Make the next `of` make a new object."""
        with self._lock:
            self._made.pop(key, None)


def digest_of_variables(names: Iterable[str]) -> str | None:
    """Return a digest of the values of environment variables; None if one of them is not set."""
    values = [os.environ.get(name) for name in names]
    if not all(values):
        return None
    return hashlib.sha256("\0".join(map(str, values)).encode("utf-8", "surrogateescape")).hexdigest()
