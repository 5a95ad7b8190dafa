"""Confinement: a directory of one file system as the root of another."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ftfile.fs.paths import join, parent_of, require_valid, room_below
from ftfile.fs.wrapper import WrapperFile, WrapperFileSystem, WrapperStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.fs.api import Capabilities, FileInfo, FileSystem, InputFile, OutputStream

__all__ = ("RootedFileSystem",)


class RootedFileSystem(WrapperFileSystem):
    """Sees nothing but what is below `prefix`; errors keep the inner file system's full path.

    Args:
        inner: the file system that does the work.
        prefix: the directory that becomes the root; it need not exist yet.
    """

    def __init__(self, inner: FileSystem, prefix: str) -> None:
        require_valid("root", prefix)
        super().__init__(inner)
        self.prefix = prefix
        self._root_durable = not prefix

    def inner_path(self, path: str) -> str:
        """Return the path below the prefix."""
        # What is malformed, such as "../x", stays so when joined: the driver refuses it.
        return join(self.prefix, path)

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities of the inner file system, below the prefix."""
        inner = self.inner.capabilities
        if inner.path_bytes_max is None:
            return inner
        return dataclasses.replace(inner, path_bytes_max=room_below(self.prefix, inner.path_bytes_max))

    def prove(self, directory: str) -> None:
        """Make sure that the store keeps what the capabilities say."""
        self.inner.prove(self.inner_path(directory))

    def create(self, path: str) -> OutputStream:
        """Open a new file for writing."""
        stream = WrapperStream(self.inner.create(self.inner_path(path)), self)
        stream.path = path
        return stream

    def open(self, path: str) -> InputFile:
        """Open a file for reading."""
        file = WrapperFile(self.inner.open(self.inner_path(path)), self)
        file.path = path
        return file

    def read(self, path: str) -> bytes:
        """Return all bytes of a file in one go."""
        return self.inner.read(self.inner_path(path))

    def stat(self, path: str) -> FileInfo:
        """Return the status of `path`."""
        return dataclasses.replace(self.inner.stat(self.inner_path(path)), path=path)

    def list(self, path: str) -> list[FileInfo]:
        """Return the direct children of a directory."""
        cut = len(self.prefix) + 1 if self.prefix else 0
        children = self.inner.list(self.inner_path(path))
        return [dataclasses.replace(child, path=child.path[cut:]) for child in children]

    def names_after(self, path: str, name: str) -> Sequence[str]:
        """Return the names in a directory that sort after `name`."""
        return self.inner.names_after(self.inner_path(path), name)

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents; the root's own name, which no caller can sync, is durable."""
        self.inner.make_directories(self.inner_path(path))
        if not self._root_durable:
            directory = self.prefix
            while directory:
                directory = parent_of(directory)
                self.inner.sync_directory(directory)
            self._root_durable = True

    def sync_directory(self, path: str) -> None:
        """Make all names in the directory durable."""
        self.inner.sync_directory(self.inner_path(path))

    def rename(self, source: str, target: str) -> None:
        """Move a file, never over anything."""
        self.inner.rename(self.inner_path(source), self.inner_path(target))

    def create_exclusive(self, path: str, content: bytes) -> None:
        """Create a whole, durable file in one step."""
        self.inner.create_exclusive(self.inner_path(path), content)

    def put(self, path: str, content: bytes) -> None:
        """Write a hint over whatever is there."""
        self.inner.put(self.inner_path(path), content)

    def delete(self, path: str) -> None:
        """Delete a file."""
        self.inner.delete(self.inner_path(path))

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty."""
        return self.inner.remove_directory(self.inner_path(path))
