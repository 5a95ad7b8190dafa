"""A URL for a file system made by a test, for code that opens file systems by URL, and for directories in it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING

from ftfile.fs.paths import join, parent_of, require_valid, room_below
from ftfile.fs.registry import register, unregister
from ftfile.fs.wrapper import WrapperFile, WrapperFileSystem, WrapperStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.fs.api import Capabilities, FileInfo, FileSystem, InputFile, OutputStream

__all__ = ("RootedFileSystem", "mounted")

_numbers = itertools.count()


@contextlib.contextmanager
def mounted(fs: FileSystem) -> Iterator[str]:
    """Give `fs` a URL of its own in this process, such as `mounted0://fs`, until the block ends."""
    scheme = f"mounted{next(_numbers)}"
    register(scheme, lambda location: RootedFileSystem(fs, location.path[1:]) if location.path != "/" else fs)
    try:
        yield f"{scheme}://fs"
    finally:
        unregister(scheme)


class RootedFileSystem(WrapperFileSystem):
    """Sees nothing but what is below `prefix`, which need not exist yet; errors keep the inner file system's path."""

    def __init__(self, inner: FileSystem, prefix: str) -> None:
        require_valid("root", prefix)
        super().__init__(inner)
        self.prefix = prefix
        self._root_durable = not prefix

    def inner_path(self, path: str) -> str:
        # What is malformed, such as "../x", stays so when joined: the driver refuses it.
        return join(self.prefix, path)

    @property
    def capabilities(self) -> Capabilities:
        inner = self.inner.capabilities
        if inner.path_bytes_max is None:
            return inner
        return dataclasses.replace(inner, path_bytes_max=room_below(self.prefix, inner.path_bytes_max))

    def create(self, path: str) -> OutputStream:
        stream = WrapperStream(super().create(path), self)
        stream.path = path
        return stream

    def open(self, path: str) -> InputFile:
        file = WrapperFile(super().open(path), self)
        file.path = path
        return file

    def stat(self, path: str) -> FileInfo:
        return super().stat(path)._replace(path=path)

    def list(self, path: str) -> list[FileInfo]:
        cut = len(self.prefix) + 1 if self.prefix else 0
        return [child._replace(path=child.path[cut:]) for child in super().list(path)]

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents; the root's own name, which no caller can sync, is durable."""
        super().make_directories(path)
        if not self._root_durable:
            directory = self.prefix
            while directory:
                directory = parent_of(directory)
                self.inner.sync_directory(directory)
            self._root_durable = True
