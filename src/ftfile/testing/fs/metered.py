"""Counting: how many calls, and how many bytes moved."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ftfile.fs.wrapper import WrapperFile, WrapperFileSystem, WrapperStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.fs.api import FileSystem, InputFile, OutputStream

__all__ = ("Counters", "MeteredFileSystem")

Result = TypeVar("Result")


@dataclass(slots=True)
class Counters:
    """The calls of a file system so far, by method names of the port, its streams and its files.

    Attributes:
        calls: calls begun.
        bytes_read: returned by `read` and `read_at`.
        bytes_written: accepted by `write`, `put` and `create_exclusive`.
    """

    calls: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    bytes_written: int = 0


class MeteredFileSystem(WrapperFileSystem):
    """Keeps `counters` of every call; a pickled copy goes on from the counts of that moment.

    Args:
        inner: the file system that does the work.
    """

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.counters = Counters()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run `call`, and count it."""
        del path
        with self._lock:
            self.counters.calls[operation] += 1
        result = call()
        if operation in {"read", "read_at"} and isinstance(result, bytes):
            with self._lock:
                self.counters.bytes_read += len(result)
        elif operation == "write" and isinstance(result, int):
            self._count_written(result)
        return result

    def create(self, path: str) -> OutputStream:
        """Open a new file whose writes are counted."""
        return WrapperStream(super().create(path), self)

    def open(self, path: str) -> InputFile:
        """Open a file whose reads are counted."""
        return WrapperFile(super().open(path), self)

    def create_exclusive(self, path: str, content: bytes) -> None:
        """Create a whole, durable file in one step."""
        super().create_exclusive(path, content)
        self._count_written(len(content))

    def put(self, path: str, content: bytes) -> None:
        """Write a hint over whatever is there."""
        super().put(path, content)
        self._count_written(len(content))

    def _count_written(self, size_bytes: int) -> None:
        with self._lock:
            self.counters.bytes_written += size_bytes
