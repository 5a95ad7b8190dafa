"""Decorators of a file system: the base of all of them, and the one that tries again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from ftfile.core.errors import Unavailable
from ftfile.core.retry import RetryPolicy, call_with_retries
from ftfile.fs.api import READING, CopyingStream, FileSystem, InputFile, OutputStream, copy_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.context import Context
    from ftfile.fs.api import Capabilities

Method = TypeVar("Method", bound="Callable[..., object]")
Result = TypeVar("Result")


def _delegated(method: Method, operation: str | None = None) -> Method:
    """Return a method of a wrapper that calls the same method of the inner file system in `around`."""
    name: str = method.__name__

    def delegate(self: WrapperFileSystem, path: str, *more: object, **named: object) -> object:
        call = partial(getattr(self.inner, name), self.inner_path(path), *more, **named)
        return self.around(operation or name, path, call)

    return cast("Method", delegate)


class WrapperFileSystem(FileSystem):
    """Hands every call on to `inner`; a decorator overrides `around`, or single methods."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner
        self.context = inner.context

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run `call`, which does `operation` on `path`; wrapped streams and files call this, too."""
        del operation, path
        return call()

    def inner_path(self, path: str) -> str:
        """Return the path in the inner file system."""
        return path

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def prove(self, directory: str) -> None:
        self.inner.prove(self.inner_path(directory))

    create = _delegated(FileSystem.create)
    open = _delegated(FileSystem.open)
    read = _delegated(FileSystem.read)
    stat = _delegated(FileSystem.stat)
    list = _delegated(FileSystem.list)
    names_after = _delegated(FileSystem.names_after, "list")
    make_directories = _delegated(FileSystem.make_directories)
    sync_directory = _delegated(FileSystem.sync_directory)
    create_exclusive = _delegated(FileSystem.create_exclusive)
    put = _delegated(FileSystem.put)
    delete = _delegated(FileSystem.delete)
    remove_directory = _delegated(FileSystem.remove_directory)

    def rename(self, source: str, target: str) -> None:
        call = partial(self.inner.rename, self.inner_path(source), self.inner_path(target))
        self.around("rename", source, call)


class WrapperStream(CopyingStream):
    """A stream whose writes, syncs and close pass through `around` of its owner, the file system that opened it."""

    def __init__(self, inner: OutputStream, owner: WrapperFileSystem) -> None:
        super().__init__(inner.path, frozenset())
        self._inner = inner
        self._owner = owner

    def has_capability(self, name: str) -> bool:
        return self._inner.has_capability(name)

    def _write(self, data: memoryview) -> None:
        self._owner.around("write", self.path, lambda: self._inner.write(data))

    def _copy_from(self, path: str, offset: int, length: int) -> None:
        source = self._owner.inner_path(path)
        self._owner.around("copy_from", self.path, lambda: copy_range(self._inner, source, offset, length))

    def _hflush(self) -> None:
        self._owner.around("hflush", self.path, self._inner.hflush)

    def _hsync(self) -> None:
        self._owner.around("hsync", self.path, self._inner.hsync)

    def _close(self) -> None:
        self._owner.around("close", self.path, self._inner.close)

    def _abort(self) -> bool:
        return self._inner.abort()


class WrapperFile(InputFile):
    """A file whose reads pass through `around` of its owner, the file system that opened it."""

    def __init__(self, inner: InputFile, owner: WrapperFileSystem) -> None:
        self.path = inner.path
        self.size_bytes = inner.size_bytes
        self._inner = inner
        self._owner = owner

    def read_at(self, offset: int, length: int) -> bytes:
        return self._owner.around("read_at", self.path, lambda: self._inner.read_at(offset, length))

    def mapped(self) -> memoryview | None:
        return self._owner.around("read_at", self.path, self._inner.mapped)

    def close(self) -> None:
        self._inner.close()


# Creating, renaming and deleting are missing on purpose: when such a call fails the protocol looks first,
# because a second try that finds its own first one says "exists" or "not found".
REPEATABLE = READING | {"make_directories", "sync_directory"}


class RetryingFileSystem(WrapperFileSystem):
    """Repeats reads, listings, directory making and syncing after errors that say a new try can help.

    Without a policy of its own, a driver that waits by itself is asked once. `Unavailable` tells how long was waited.
    """

    def __init__(self, inner: FileSystem, context: Context) -> None:
        super().__init__(inner)
        self.context = context
        attempts = 1 if inner.capabilities.retries_internally else 5
        self._policy = context.retry or RetryPolicy(attempts)

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        del path
        clock = self.context.clock
        began_s = clock.monotonic_s()
        try:
            return call_with_retries(call, self._policy, clock) if operation in REPEATABLE else call()
        except Unavailable as error:
            error.waited_s = clock.monotonic_s() - began_s
            raise

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)
