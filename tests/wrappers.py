"""Decorators of file systems: one that counts calls and bytes, and one with a clock or ids of its own."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ftfile.storage.registry import WrapperFile, WrapperFileSystem, WrapperStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.clock import Clock
    from ftfile.core.context import IdSource
    from ftfile.storage.api import FileSystem, InputFile, OutputStream

Result = TypeVar("Result")


@dataclass(slots=True)
class Counters:
    """The calls of a file system so far, by method names of the port, its streams and its files."""

    calls: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0  # returned by `read` and `read_at`
    bytes_written: int = 0  # accepted by `write`, `put` and `create_exclusive`


class MeteredFileSystem(WrapperFileSystem):
    """Keeps `counters` of every call; a pickled copy goes on from the counts of that moment."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.counters = Counters()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
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
        return WrapperStream(super().create(path), self)

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)

    def create_exclusive(self, path: str, content: bytes) -> None:
        super().create_exclusive(path, content)
        self._count_written(len(content))

    def put(self, path: str, content: bytes) -> None:
        super().put(path, content)
        self._count_written(len(content))

    def _count_written(self, size_bytes: int) -> None:
        with self._lock:
            self.counters.bytes_written += size_bytes


class InContext(WrapperFileSystem):
    """A file system that another process, with its own clock or ids, might have opened; nobody knows whose."""

    def __init__(self, inner: FileSystem, clock: Clock | None = None, ids: IdSource | None = None) -> None:
        super().__init__(inner)
        context = inner.context
        self.context = replace(context, clock=clock or context.clock, ids=ids or context.ids, writer="")
