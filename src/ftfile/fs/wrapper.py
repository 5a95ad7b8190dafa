"""Delegation: the base of every decorator over the port."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ftfile.fs.api import FileSystem, InputFile, OutputStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.fs.api import Capabilities, FileInfo

__all__ = ("WrapperFile", "WrapperFileSystem", "WrapperStream")

Result = TypeVar("Result")


class WrapperFileSystem(FileSystem):
    """Hands every call on; a decorator overrides `around`, and what else it changes.

    Args:
        inner: the file system that does the work.
    """

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner
        self.context = inner.context

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run `call`, which does `operation` on `path`; wrapped streams and files come here, too."""
        del operation, path
        return call()

    def inner_path(self, path: str) -> str:
        """Return what the inner file system calls a path."""
        return path

    @property
    def capabilities(self) -> Capabilities:
        """Return those of the inner file system."""
        return self.inner.capabilities

    def prove(self, directory: str) -> None:
        """Make sure that the store keeps what the capabilities say."""
        self.inner.prove(directory)

    def create(self, path: str) -> OutputStream:
        """Open a new file for writing."""
        return self.around("create", path, lambda: self.inner.create(path))

    def open(self, path: str) -> InputFile:
        """Open a file for reading."""
        return self.around("open", path, lambda: self.inner.open(path))

    def read(self, path: str) -> bytes:
        """Return all bytes of a file in one go."""
        return self.around("read", path, lambda: self.inner.read(path))

    def stat(self, path: str) -> FileInfo:
        """Return what is at `path`."""
        return self.around("stat", path, lambda: self.inner.stat(path))

    def list(self, path: str) -> list[FileInfo]:
        """Return the direct children of a directory."""
        return self.around("list", path, lambda: self.inner.list(path))

    def names_after(self, path: str, name: str) -> Sequence[str]:
        """Return the names in a directory that sort after `name`."""
        return self.around("list", path, lambda: self.inner.names_after(path, name))

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents."""
        self.around("make_directories", path, lambda: self.inner.make_directories(path))

    def sync_directory(self, path: str) -> None:
        """Make all names in the directory durable."""
        self.around("sync_directory", path, lambda: self.inner.sync_directory(path))

    def rename(self, source: str, target: str) -> None:
        """Move a file, never over anything."""
        self.around("rename", source, lambda: self.inner.rename(source, target))

    def create_exclusive(self, path: str, content: bytes) -> None:
        """Create a whole, durable file in one step."""
        self.around("create_exclusive", path, lambda: self.inner.create_exclusive(path, content))

    def put(self, path: str, content: bytes) -> None:
        """Write a hint over whatever is there."""
        self.around("put", path, lambda: self.inner.put(path, content))

    def delete(self, path: str) -> None:
        """Delete a file."""
        self.around("delete", path, lambda: self.inner.delete(path))

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty."""
        return self.around("remove_directory", path, lambda: self.inner.remove_directory(path))


class WrapperStream(OutputStream):
    """A stream whose writes, syncs and close pass through `around` of the file system that opened it.

    Args:
        inner: the stream that does the work.
        owner: whose `around` is called.
    """

    def __init__(self, inner: OutputStream, owner: WrapperFileSystem) -> None:
        super().__init__(inner.path, frozenset())
        self._inner = inner
        self._owner = owner

    def has_capability(self, name: str) -> bool:
        """Answer as the inner stream does."""
        return self._inner.has_capability(name)

    def _write(self, data: memoryview) -> None:
        self._owner.around("write", self.path, lambda: self._inner.write(data))

    def _copy_from(self, path: str, offset: int, length: int) -> None:
        source = self._owner.inner_path(path)
        self._owner.around("copy_from", self.path, lambda: self._inner.copy_from(source, offset, length))

    def _hflush(self) -> None:
        self._owner.around("hflush", self.path, self._inner.hflush)

    def _hsync(self) -> None:
        self._owner.around("hsync", self.path, self._inner.hsync)

    def _close(self) -> None:
        self._owner.around("close", self.path, self._inner.close)

    def _abort(self) -> bool:
        return self._inner.abort()


class WrapperFile(InputFile):
    """A file whose reads pass through `around` of the file system that opened it.

    Args:
        inner: the file that does the work.
        owner: whose `around` is called.
    """

    def __init__(self, inner: InputFile, owner: WrapperFileSystem) -> None:
        self.path = inner.path
        self.size_bytes = inner.size_bytes
        self._inner = inner
        self._owner = owner

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        return self._owner.around("read_at", self.path, lambda: self._inner.read_at(offset, length))

    def close(self) -> None:
        """Release the file; idempotent."""
        self._inner.close()
