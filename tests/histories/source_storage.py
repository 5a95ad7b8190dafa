"""Storage of the files that a stream reads and programs write: file names, handles that outlive names, and a clock.

Its inodes are reused at once, and each mount has another device. Its times may be frozen, coarse or shifted.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ftfile.core.errors import NotFound, PermissionDenied
from ftfile.storage.api import Capabilities, FileInfo, InputFile, Watch
from ftfile.storage.local_status import Status, info_of
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from typing import TypeAlias

    from ftfile.testing.context import ManualClock

Times: TypeAlias = 'Literal["honest", "still", "coarse"]'

_COARSE_MS = 2000
_RENAMED_IN_LISTING = 0.1  # share of the names in a listing that are preceded by a writer's step


@dataclass(eq=False)
class Inode:
    """A file, which exists while it has a name. Writers may keep it open for longer."""

    number: int
    born_ns: int
    modified_ms: int
    data: bytearray = field(default_factory=bytearray)
    links: int = 0


class _OpenFile(InputFile):
    def __init__(self, storage: SourceStorage, path: str, inode: Inode) -> None:
        self.path = path
        self.size_bytes = len(inode.data)
        self._storage = storage
        self._inode = inode

    def read_at(self, offset: int, length: int) -> bytes:
        self._storage.meddle()
        return bytes(self._inode.data[offset : offset + length])

    def close(self) -> None:
        """Release nothing."""


class _Liar(Watch):
    """A watch that reports random changes."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def add(self, directory: str) -> None:
        assert not directory, "it has one directory"

    def changed(self, wait_s: float = 0.0) -> bool:  # noqa: ARG002
        return self._draw.random() < 0.5


class SourceStorage(WrapperFileSystem):
    """The file system of a stream, with methods for the steps of writers.

    Attributes:
        names: the files, by their names.
        refused: names that no process may open.
        on_call: a writer's step, which may run before each call of the file system and between the names of a listing.
            It is not called while it runs.
        listed_s: when the last listing began, by the clock of the process.
        device: number of the device of the disk.
    """

    def __init__(self, clock: ManualClock, draw: random.Random, times: Times, skew_s: int, at_once: int) -> None:
        super().__init__(MemoryFileSystem("nothing"))
        self.names: dict[str, Inode] = {}
        self.refused: set[str] = set()
        self.on_call: Callable[[], None] | None = None
        self.listed_s = 0.0
        self.device = 1
        self._clock = clock
        self._draw = draw
        self._times = times
        self._skew_s = skew_s
        self._at_once = at_once
        self._free: list[int] = []
        self._next_number = 1
        self._created = 0  # number of files

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("memory", False, "none", False, True, concurrency=self._at_once)

    def watch(self) -> Watch:
        return _Liar(self._draw)

    def meddle(self) -> None:
        """Run a writer's step, unless one is already running."""
        on_call, self.on_call = self.on_call, None
        if on_call is not None:
            on_call()
            self.on_call = on_call

    def open(self, path: str) -> InputFile:
        self.meddle()
        if path in self.refused:
            raise PermissionDenied("open", path, "as the history wants it")
        return _OpenFile(self, path, self._inode("open", path))

    def stat(self, path: str) -> FileInfo:
        self.meddle()
        return self._info(path) if path else FileInfo("", 0, 0, True)

    def list(self, path: str) -> list[FileInfo]:
        assert not path, "it has one directory"
        self.listed_s = self._clock.monotonic_s()
        self.meddle()
        infos = []
        for name in sorted(self.names):
            if self._draw.random() < _RENAMED_IN_LISTING:
                self.meddle()
            if name in self.names:
                infos.append(self._info(name))
        return infos

    def _inode(self, operation: str, path: str) -> Inode:
        if path not in self.names:
            raise NotFound(operation, path, "it has another name, or none")
        return self.names[path]

    def _info(self, path: str) -> FileInfo:
        inode = self._inode("stat", path)
        status = Status(stat.S_IFREG, len(inode.data), inode.modified_ms, self.device, inode.number, inode.born_ns)
        return info_of(path, status)

    def now_ms(self) -> int:
        """Return the time of the storage's clock."""
        now_ms = self._clock.now_ms() + 1000 * self._skew_s
        return now_ms - now_ms % _COARSE_MS if self._times == "coarse" else now_ms

    def create_file(self, name: str) -> Inode:
        """Create a file under a name, which replaces a file that has the name."""
        number = self._free.pop() if self._free else self._next_number
        self._next_number = max(self._next_number, number + 1)
        self._created += 1
        inode = Inode(number, self._created, self.now_ms())
        self.link(name, inode)
        return inode

    def write(self, inode: Inode, data: bytes) -> None:
        """Append bytes to a file."""
        inode.data += data
        self.touch(inode)

    def truncate(self, inode: Inode) -> None:
        """Truncate a file to zero bytes."""
        inode.data.clear()
        self.touch(inode)

    def touch(self, inode: Inode) -> None:
        """Set the file's modification time to now, unless times stand still."""
        if self._times != "still":
            inode.modified_ms = self.now_ms()

    def link(self, name: str, inode: Inode) -> None:
        """Link a file to a name, which replaces a file that has the name."""
        inode.links += 1
        if name in self.names:
            self.unlink(name)
        self.names[name] = inode

    def unlink(self, name: str) -> None:
        """Remove a name from its file. The file ends with its last name."""
        inode = self.names.pop(name)
        inode.links -= 1
        if not inode.links:
            self._free.append(inode.number)

    def move(self, name: str, target: str) -> None:
        """Rename a file, which replaces a file that has the new name."""
        self.link(target, self.names[name])
        self.unlink(name)
