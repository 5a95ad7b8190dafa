"""One budget of bytes for the blocks and pages of all runs that a process reads, by the CLOCK algorithm."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class Shelf(Generic[_Value]):
    """Cached values of one kind of one run, by number; a reader sets `used` of each value that it uses."""

    __slots__ = ("used", "values")

    def __init__(self, count: int) -> None:
        self.values: list[_Value | None] = [None] * count  # None where a value is not cached
        self.used = bytearray(count)  # 1 where a value was used since the hand of the clock passed it


class Cache:
    """Values on shelves, together at most `capacity_bytes`. Several threads may use it."""

    def __init__(self, capacity_bytes: int) -> None:
        self.size_bytes = 0  # of all values that are cached
        self.capacity_bytes = capacity_bytes  # that all values may have together; see `resize`
        # Shelf, number and bytes of each value: the clock, whose hand is at the left end.
        self._entries: deque[tuple[Shelf[Any], int, int]] = deque()
        self._grown: dict[tuple[int, int], int] = {}  # bytes of entries beyond their own, by shelf and number
        self._lock = threading.Lock()

    def resize(self, capacity_bytes: int) -> None:
        """Give it another capacity, which may remove values."""
        with self._lock:
            self.capacity_bytes = capacity_bytes
            while self.size_bytes > self.capacity_bytes:
                self._advance()

    def put(self, shelf: Shelf[_Value], number: int, value: _Value, size_bytes: int) -> _Value:
        """Put a value on its shelf, which may remove others, and return it; the one that is there, if there is one."""
        with self._lock:
            if (present := shelf.values[number]) is not None:
                return present
            shelf.values[number] = value
            shelf.used[number] = 1
            self._entries.append((shelf, number, size_bytes))
            self.size_bytes += size_bytes
            while self.size_bytes > self.capacity_bytes:
                self._advance()
        return value

    def grow(self, shelf: Shelf[_Value], number: int, value: _Value, more_bytes: int) -> None:
        """Let a value have that many bytes more than when it was put, which may remove others, or itself.

        Nothing happens if it is not cached.
        """
        with self._lock:
            if shelf.values[number] is not value:
                return
            key = id(shelf), number
            self.size_bytes += more_bytes - self._grown.get(key, 0)
            self._grown[key] = more_bytes
            while self.size_bytes > self.capacity_bytes:
                self._advance()

    def drop(self, *shelves: Shelf[Any]) -> None:
        """Forget all values of shelves."""
        gone = {id(shelf) for shelf in shelves}
        with self._lock:
            kept = deque(entry for entry in self._entries if id(entry[0]) not in gone)
            self._grown = {key: size for key, size in self._grown.items() if key[0] not in gone}
            self.size_bytes = sum(size_bytes for _, _, size_bytes in kept) + sum(self._grown.values())
            self._entries = kept
            for shelf in shelves:
                shelf.values[:] = [None] * len(shelf.values)

    def _advance(self) -> None:
        entry = self._entries.popleft()
        shelf, number, size_bytes = entry
        if shelf.used[number]:
            shelf.used[number] = 0
            self._entries.append(entry)
        else:
            shelf.values[number] = None
            self.size_bytes -= size_bytes + self._grown.pop((id(shelf), number), 0)
