"""A disk in use that journals every elementary step, with its streams and files."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar, Literal

from ftfile.core.errors import AlreadyExists, NotFound, StreamClosed
from ftfile.fs.api import CopyingStream, InputFile, OutputStream
from ftfile.fs.paths import parent_of
from ftfile.testing.fs.disk import Disk, Inode, Operation, apply

if TYPE_CHECKING:
    from ftfile.core.clock import Clock

__all__ = ("STREAMS", "Store", "Volume", "VolumeFile")

Store = Literal["disk", "hdfs", "webhdfs", "s3", "memory"]


class Volume:
    """A disk in use, and the journal of what was done to it since it was `base`; safe for threads.

    Without a journal, files that lost their names are forgotten. The base is not changed.
    """

    def __init__(self, base: Disk, clock: Clock, *, journals: bool = True) -> None:
        self.base = base
        self._journals = journals
        self.live = base.copy()
        self.journal: list[Operation] = []
        self.clock = clock
        self.lock = threading.RLock()
        self.last_number = max(base.inodes, default=0)  # of a file

    def do(self, operation: Operation) -> None:
        """Do one step and write it into the journal."""
        with self.lock:
            nameless = self.live.tree.find(operation.path) if operation.kind == "unlink" else None
            apply(self.live, operation)
            if self._journals:
                self.journal.append(operation)
            elif nameless is not None:
                del self.live.inodes[nameless]
            self.last_number = max(self.last_number, operation.number)

    def create(self, path: str, content: bytes = b"") -> int:
        """Make a file and return its number; the name must be free."""
        number = self.last_number + 1
        self.do(Operation("create", path, "", number, Inode(content, self.clock.now_ms())))
        return number

    def make_object(self, path: str, content: bytes, identity: int | None = None) -> None:
        """Make a whole file in one step, over what has the name; its directories are there with it."""
        with self.lock:
            for directory in self.live.tree.missing_directories("create", parent_of(path)):
                self.do(Operation("mkdir", directory))
            number = self.last_number + 1
            inode = Inode(content, self.clock.now_ms(), number if identity is None else identity)
            self.do(Operation("create", path, "", number, inode))

    def content_of(self, operation: str, path: str) -> bytes:
        """Return the content of a file; NotFound if there is none."""
        return self.live.inodes[self.live.tree.file_at(operation, path)].content

    def append(self, path: str, number: int, data: bytes) -> None:
        """Write at the end of a file."""
        with self.lock:
            content = self.live.inodes[number].content + data
            self.do(Operation("write", path, "", number, Inode(content, self.clock.now_ms())))

    def hsync(self, path: str, number: int) -> None:
        """Make the content of a file durable."""
        self.do(Operation("hsync", path, "", number))

    def discard(self, path: str, number: int) -> None:
        """Take the name away if it is still the file's."""
        with self.lock:
            if self.live.tree.find(path) == number:
                self.do(Operation("unlink", path))


class _VolumeStream(OutputStream):
    """Writes a new file of a volume."""

    offered: ClassVar[frozenset[str]] = frozenset({"hflush", "hsync", "abort"})

    def __init__(self, path: str, volume: Volume, number: int) -> None:
        super().__init__(path, self.offered)
        self._volume = volume
        self._number = number

    def _write(self, data: memoryview) -> None:
        self._volume.append(self.path, self._number, bytes(data))

    def _hflush(self) -> None:
        """Each write is visible when it returns."""

    def _hsync(self) -> None:
        self._volume.hsync(self.path, self._number)

    def _close(self) -> None:
        """Nothing is held, and closing makes nothing durable."""

    def _abort(self) -> bool:
        self._volume.discard(self.path, self._number)
        return True


class _BufferingStream(_VolumeStream):
    """Keeps what is written until it is asked to send it."""

    def __init__(self, path: str, volume: Volume, number: int) -> None:
        super().__init__(path, volume, number)
        self._buffer = bytearray()

    def _write(self, data: memoryview) -> None:
        self._buffer += data

    def _hflush(self) -> None:
        if self._buffer:
            self._volume.append(self.path, self._number, bytes(self._buffer))
            self._buffer.clear()

    def _hsync(self) -> None:
        self._hflush()
        super()._hsync()

    def _close(self) -> None:
        self._hflush()


class _UploadingStream(_BufferingStream):
    """Sends everything when it is closed: one half, then the other, and only then it is durable."""

    offered = frozenset({"abort"})

    def _close(self) -> None:
        content = bytes(self._buffer)
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            if part:
                self._volume.append(self.path, self._number, part)
        self._volume.hsync(self.path, self._number)


class _ObjectStream(_BufferingStream, CopyingStream):
    """Is nowhere until it is closed, and then there at once; copies what is there already."""

    offered = frozenset({"abort", "copy"})

    def _copy_from(self, path: str, offset: int, length: int) -> None:
        with self._volume.lock:
            copied = self._volume.content_of("copy_from", path)[offset : offset + length]
        if len(copied) != length:
            raise NotFound("copy_from", path, f"{len(copied)} bytes are at {offset}, not {length}")
        self._buffer += copied

    def _close(self) -> None:
        with self._volume.lock:
            if self._volume.live.tree.find(self.path) is not None:
                raise AlreadyExists("close", self.path, "something is there already")
            self._volume.make_object(self.path, bytes(self._buffer))

    def _abort(self) -> bool:
        return True


class _MemoryStream(_VolumeStream):
    """Writes what lasts as long as the process."""

    offered = frozenset({"hflush", "abort"})


STREAMS: dict[Store, type[_VolumeStream]] = {
    "disk": _VolumeStream,
    "memory": _MemoryStream,
    "hdfs": _BufferingStream,
    "webhdfs": _UploadingStream,
    "s3": _ObjectStream,
}


class VolumeFile(InputFile):
    """Reads a file of a volume as it was when it was opened, whatever becomes of its name."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self.size_bytes = len(content)
        self._content: bytes | None = content

    def read_at(self, offset: int, length: int) -> bytes:
        if self._content is None:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        return self._content[offset : offset + length]

    def close(self) -> None:
        self._content = None
