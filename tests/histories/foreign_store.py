"""A store of foreign files as writers and a stream share it: names of files, handles that outlive names, and a clock.

Its identities are used again at once, as those of inodes are, and its times may be odd.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ftfile.core.errors import NotFound, PermissionDenied
from ftfile.storage.api import Capabilities, FileInfo, InputFile, Watch
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from typing import TypeAlias

    from ftfile.testing.context import ManualClock

Times: TypeAlias = 'Literal["honest", "still", "coarse"]'

_COARSE_MS = 2000
_RENAMED_IN_LISTING = 0.1  # share of the names of a listing that a writer's step may come before


@dataclass(eq=False)
class Inode:
    """A file, which lives as long as it has a name; writers may have it open for longer."""

    number: int
    modified_ms: int
    data: bytearray = field(default_factory=bytearray)
    links: int = 0


class _OpenFile(InputFile):
    def __init__(self, store: ForeignStore, path: str, inode: Inode) -> None:
        self.path = path
        self.size_bytes = len(inode.data)
        self._store = store
        self._inode = inode

    def read_at(self, offset: int, length: int) -> bytes:
        self._store.meddle()
        return bytes(self._inode.data[offset : offset + length])

    def close(self) -> None:
        """Release nothing."""


class _Liar(Watch):
    """A watch that says what comes to its mind."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def add(self, directory: str) -> None:
        assert not directory, "it has one directory"

    def changed(self, wait_s: float = 0.0) -> bool:  # noqa: ARG002
        return self._draw.random() < 0.5


class ForeignStore(WrapperFileSystem):
    """The port of a stream, and beside it what writers do.

    Attributes:
        names: the files, by their names.
        refused: names that nobody may open.
        on_call: a step of a writer, which may come before each call of the port, and between the names of a listing;
            it is not called while it runs.
        listed_s: when the last listing began, by the clock of the process.
    """

    def __init__(self, clock: ManualClock, draw: random.Random, times: Times, skew_s: int, at_once: int) -> None:
        super().__init__(MemoryFileSystem("nothing"))
        self.names: dict[str, Inode] = {}
        self.refused: set[str] = set()
        self.on_call: Callable[[], None] | None = None
        self.listed_s = 0.0
        self._clock = clock
        self._draw = draw
        self._times = times
        self._skew_s = skew_s
        self._at_once = at_once
        self._free: list[int] = []
        self._next_number = 1

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("memory", False, "none", False, True, concurrency=self._at_once)

    def watch(self) -> Watch:
        return _Liar(self._draw)

    def meddle(self) -> None:
        """Let a writer make a step, unless one does so now."""
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
        return FileInfo(path, len(inode.data), inode.modified_ms, False, str(inode.number))

    def now_ms(self) -> int:
        """Return the time of the store's clock."""
        now_ms = self._clock.now_ms() + 1000 * self._skew_s
        return now_ms - now_ms % _COARSE_MS if self._times == "coarse" else now_ms

    def create_file(self, name: str) -> Inode:
        """Return a new file with a name, which is taken from the file that has it."""
        number = self._free.pop() if self._free else self._next_number
        self._next_number = max(self._next_number, number + 1)
        inode = Inode(number, self.now_ms())
        self.link(name, inode)
        return inode

    def write(self, inode: Inode, data: bytes) -> None:
        """Add bytes to a file."""
        inode.data += data
        self.touch(inode)

    def truncate(self, inode: Inode) -> None:
        """Cut off all that is in a file."""
        inode.data.clear()
        self.touch(inode)

    def touch(self, inode: Inode) -> None:
        """Date a file as of now, unless times stand still."""
        if self._times != "still":
            inode.modified_ms = self.now_ms()

    def link(self, name: str, inode: Inode) -> None:
        """Give a file a name, which is taken from the file that has it."""
        inode.links += 1
        if name in self.names:
            self.unlink(name)
        self.names[name] = inode

    def unlink(self, name: str) -> None:
        """Take a name from its file; the file is gone with its last one."""
        inode = self.names.pop(name)
        inode.links -= 1
        if not inode.links:
            self._free.append(inode.number)

    def move(self, name: str, target: str) -> None:
        """Give a file another name, which is taken from the file that has it."""
        self.link(target, self.names[name])
        self.unlink(name)
