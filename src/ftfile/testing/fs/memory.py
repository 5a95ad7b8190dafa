"""The memory driver, whose storage exists as long as the process, and URLs for file systems that tests create."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from functools import partial
from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, StorageError
from ftfile.storage.api import Capabilities
from ftfile.storage.paths import check_path, join, parent_of, room_below
from ftfile.storage.registry import WrapperFile, WrapperFileSystem, WrapperStream, register, unregister
from ftfile.testing.fs.disk import Disk
from ftfile.testing.fs.tree import Tree
from ftfile.testing.fs.volume import STREAMS, Volume, VolumeFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.core.clock import Clock
    from ftfile.storage.api import FileInfo, FileSystem, InputFile, OutputStream
    from ftfile.storage.paths import Location
    from ftfile.storage.registry import Result


__all__ = ("MemoryFileSystem", "RootedFileSystem", "mounted", "open_location")


_numbers = itertools.count()


@contextlib.contextmanager
def mounted(fs: FileSystem) -> Iterator[str]:
    """Yield a unique URL of `fs` in this process, such as `mounted0://fs`, which is valid until the block ends."""
    scheme = f"mounted{next(_numbers)}"
    register(scheme, lambda location: RootedFileSystem(fs, location.path[1:]) if location.path != "/" else fs)
    try:
        yield f"{scheme}://fs"
    finally:
        unregister(scheme)


class RootedFileSystem(WrapperFileSystem):
    """Shows only files below `prefix`, which need not exist yet."""

    def __init__(self, inner: FileSystem, prefix: str) -> None:
        check_path("root", prefix)
        super().__init__(inner)
        self.prefix = prefix
        self._root_durable = not prefix

    def inner_path(self, path: str) -> str:
        # The joined path of a malformed path such as "../x" is also malformed, so the driver rejects it.
        return join(self.prefix, path)

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        try:
            return super().around(operation, path, call)
        except StorageError as error:
            error.path = error.path.removeprefix(f"{self.prefix}/")
            raise

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
        children = []
        for child in super().list(path):
            children.append(child._replace(path=child.path[cut:]))
        return children

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents. The name of the root, which callers cannot sync, is durable."""
        super().make_directories(path)
        if not self._root_durable:
            directory = self.prefix
            while directory:
                directory = parent_of(directory)
                self.inner.sync_directory(directory)
            self._root_durable = True


_CAPABILITIES = Capabilities(
    driver="memory",
    shared_between_processes=False,
    durability="none",
    directory_sync=False,
    atomic_rename=True,
    stream_capabilities=STREAMS["memory"].offered,
    shared_between_hosts=False,
)
_volumes: dict[str, Volume] = {}


class MemoryFileSystem(VolumeFileSystem):
    """A storage system of this process: all instances with the same name have the same files.

    An instance is pickled as its name, so another process has separate, empty storage. The clock sets the modification
    times of all instances with this name from now on.
    """

    def __init__(self, name: str, *, clock: Clock = SYSTEM.clock) -> None:
        self.name = name
        volume = _volumes.setdefault(name, Volume(Disk(Tree(), {}), clock, journals=False))
        volume.clock = clock
        super().__init__(volume, "memory", _CAPABILITIES)

    @classmethod
    def drop(cls, name: str) -> None:
        """Remove the storage of this name; existing instances keep its files."""
        _volumes.pop(name, None)

    def __repr__(self) -> str:
        return f"MemoryFileSystem({self.name!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return partial(MemoryFileSystem, clock=self._volume.clock), (self.name,)


def open_location(location: Location) -> FileSystem:
    """Open a `memory` URL, whose authority is the name of the storage; raises `ConfigError` without a name."""
    location.known_settings()
    if not location.authority:
        raise ConfigError(f"{location.url!r} names no storage system; write memory://name or memory://name/directory")
    return RootedFileSystem(MemoryFileSystem(location.authority, clock=location.context.clock), location.path[1:])
