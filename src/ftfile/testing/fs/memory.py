"""The memory driver: named stores that live as long as the process, for tests and examples."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, StreamClosed
from ftfile.fs.api import Capabilities, FileInfo, FileSystem, InputFile, OutputStream
from ftfile.fs.paths import require_valid
from ftfile.testing.fs.rooted import RootedFileSystem
from ftfile.testing.fs.tree import DIRECTORY, Tree

if TYPE_CHECKING:
    from ftfile.core.clock import Clock
    from ftfile.fs.location import Location

__all__ = ("MemoryFileSystem", "open_location")

_STREAM_CAPABILITIES = frozenset({"hflush", "abort"})

_CAPABILITIES = Capabilities(
    driver="memory",
    shared_between_processes=False,
    durability="none",
    directory_sync=False,
    atomic_rename=True,
    stream_capabilities=_STREAM_CAPABILITIES,
    shared_between_hosts=False,
)


@dataclass(slots=True)
class _Node:
    content: bytearray
    modified_ms: int


class _Store:
    def __init__(self) -> None:
        self.tree = Tree()
        self.nodes: dict[int, _Node] = {}
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)

    def add(self, path: str, content: bytes, now_ms: int) -> _Node:
        number = next(self._numbers)
        node = self.nodes[number] = _Node(bytearray(content), now_ms)
        self.tree.bind(path, number)
        return node

    def discard(self, path: str, node: _Node) -> None:
        with self.lock:
            number = self.tree.find(path)
            if number and self.nodes[number] is node:
                del self.nodes[self.tree.unbind(path)]


_stores: dict[str, _Store] = {}
_stores_lock = threading.Lock()


def _store_named(name: str) -> _Store:
    with _stores_lock:
        return _stores.setdefault(name, _Store())


class MemoryFileSystem(FileSystem):
    """A store of this process: every instance of one name sees the same files.

    Pickles as its name, so that another process finds its own, empty store.

    Args:
        name: which store.
        clock: gives modification times.
    """

    def __init__(self, name: str, *, clock: Clock = SYSTEM.clock) -> None:
        self.name = name
        self._clock = clock
        self.context = replace(SYSTEM, clock=clock)
        self._store = _store_named(name)

    @classmethod
    def drop(cls, name: str) -> None:
        """Forget the store of this name; instances that still use it keep it to themselves."""
        with _stores_lock:
            _stores.pop(name, None)

    def __repr__(self) -> str:
        return f"MemoryFileSystem({self.name!r})"

    def __getstate__(self) -> tuple[str, Clock]:
        return self.name, self._clock

    def __setstate__(self, state: tuple[str, Clock]) -> None:
        self.name, self._clock = state
        self._store = _store_named(self.name)

    @property
    def capabilities(self) -> Capabilities:
        """Return what memory can do: nothing outlives the process."""
        return _CAPABILITIES

    def create(self, path: str) -> OutputStream:
        """Open a new file for writing."""
        with self._store.lock:
            self._store.tree.require_free("create", path)
            node = self._store.add(path, b"", self._clock.now_ms())
        return _MemoryStream(path, self._store, node, self._clock)

    def open(self, path: str) -> InputFile:
        """Open a file for reading."""
        with self._store.lock:
            number = self._store.tree.file_at("open", path)
            return _MemoryFile(path, self._store.nodes[number], self._store.lock)

    def stat(self, path: str) -> FileInfo:
        """Return what is at `path`."""
        with self._store.lock:
            return self._info(path, self._store.tree.number_at("stat", path))

    def list(self, path: str) -> list[FileInfo]:
        """Return the direct children of a directory."""
        with self._store.lock:
            return [self._info(child, number) for child, number in self._store.tree.children("list", path)]

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents; idempotent."""
        with self._store.lock:
            for directory in self._store.tree.missing_directories("make_directories", path):
                self._store.tree.add_directory(directory)

    def sync_directory(self, path: str) -> None:
        """Check that the directory exists: there is nothing to sync to."""
        with self._store.lock:
            self._store.tree.children("sync_directory", path)

    def rename(self, source: str, target: str) -> None:
        """Move a file, never over anything."""
        tree = self._store.tree
        with self._store.lock:
            tree.file_at("rename", source)
            tree.require_free("rename", target)
            tree.bind(target, tree.unbind(source))

    def create_exclusive(self, path: str, content: bytes) -> None:
        """Create a whole file in one step."""
        with self._store.lock:
            self._store.tree.require_free("create_exclusive", path)
            self._store.add(path, content, self._clock.now_ms())

    def put(self, path: str, content: bytes) -> None:
        """Write a hint over whatever is there."""
        store = self._store
        with store.lock:
            require_valid("put", path)
            if store.tree.find(path) is None:
                store.tree.require_free("put", path)
                store.add(path, content, self._clock.now_ms())
            else:
                number = store.tree.file_at("put", path)
                store.nodes[number] = _Node(bytearray(content), self._clock.now_ms())

    def delete(self, path: str) -> None:
        """Delete a file."""
        with self._store.lock:
            self._store.tree.file_at("delete", path)
            del self._store.nodes[self._store.tree.unbind(path)]

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty."""
        with self._store.lock:
            if self._store.tree.removable("remove_directory", path):
                self._store.tree.remove_directory(path)
            return self._store.tree.find(path) is None

    def _info(self, path: str, number: int) -> FileInfo:
        if number == DIRECTORY:
            return FileInfo(path, 0, 0, is_directory=True)
        node = self._store.nodes[number]
        return FileInfo(path, len(node.content), node.modified_ms, identity=str(number))


def open_location(location: Location) -> FileSystem:
    """Open a `memory` URL; the authority names the store.

    Raises:
        ConfigError: it names none.
    """
    location.known_settings()
    if not location.authority:
        raise ConfigError(f"{location.url!r} names no store; write memory://name or memory://name/directory")
    return RootedFileSystem(MemoryFileSystem(location.authority, clock=location.context.clock), location.path[1:])


class _MemoryStream(OutputStream):
    def __init__(self, path: str, store: _Store, node: _Node, clock: Clock) -> None:
        super().__init__(path, _STREAM_CAPABILITIES)
        self._store = store
        self._node = node
        self._clock = clock

    def _write(self, data: memoryview) -> None:
        with self._store.lock:
            self._node.content += data
            self._node.modified_ms = self._clock.now_ms()

    def _hflush(self) -> None:
        """Each write is visible when it returns."""

    def _hsync(self) -> None:
        """Never reached: the capability is missing."""

    def _close(self) -> None:
        """Nothing is held."""

    def _abort(self) -> bool:
        self._store.discard(self.path, self._node)
        return True


class _MemoryFile(InputFile):
    def __init__(self, path: str, node: _Node, lock: threading.RLock) -> None:
        self.path = path
        self.size_bytes = len(node.content)
        self._node: _Node | None = node
        self._lock = lock

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        node = self._node
        if node is None:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        with self._lock:
            return bytes(node.content[offset : min(offset + length, self.size_bytes)])

    def close(self) -> None:
        """Release the file; idempotent."""
        self._node = None
