"""A disk in use that records every elementary step in a journal, with its streams and files."""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from typing import TYPE_CHECKING, ClassVar, Literal

from ftfile.core.context import SYSTEM
from ftfile.core.errors import AlreadyExists, NotFound
from ftfile.storage.api import CopyingStream, FileInfo, FileSystem, InputFile, OutputStream, RangeFile, StoredFile
from ftfile.storage.paths import check_path, join, parent_of
from ftfile.testing.fs.disk import Disk, Inode, Operation, apply
from ftfile.testing.fs.tree import DIRECTORY

if TYPE_CHECKING:
    from ftfile.core.clock import Clock
    from ftfile.storage.api import Capabilities


__all__ = ("STREAMS", "Storage", "Volume", "VolumeFileSystem")


Storage = Literal["disk", "hdfs", "webhdfs", "s3", "memory"]


class Volume:
    """A disk in use, and the journal of its steps since it was `base`. Thread-safe.

    Without a journal, files without a name are deleted. The base is not changed.
    """

    def __init__(self, base: Disk, clock: Clock, *, journals: bool = True) -> None:
        self.base = base
        self._journals = journals
        self.live = base.copy()
        self.journal: list[Operation] = []
        self.clock = clock
        self.lock = threading.RLock()
        self.last_number = max(base.inodes, default=0)  # the greatest number of a file
        _volumes.add(self)

    def do(self, operation: Operation) -> None:
        """Execute one step, and add it to the journal."""
        with self.lock:
            nameless = None
            if operation.kind == "unlink":
                nameless = self.live.tree.find(operation.path)
            apply(self.live, operation)
            if self._journals:
                self.journal.append(operation)
            elif nameless is not None:
                del self.live.inodes[nameless]
            self.last_number = max(self.last_number, operation.number)

    def create(self, path: str, content: bytes = b"") -> int:
        """Create a file and return its number; the name must be free."""
        number = self.last_number + 1
        self.do(Operation("create", path, target="", number=number, inode=Inode(content, self.clock.now_ms())))
        return number

    def make_object(self, path: str, content: bytes, identity: int | None = None) -> StoredFile:
        """Create a complete file in one step, with its directories; replaces a file with this name."""
        with self.lock:
            for directory in self.live.tree.missing_directories("create", parent_of(path)):
                self.do(Operation("mkdir", directory))
            number = self.last_number + 1
            inode = Inode(content, self.clock.now_ms(), number if identity is None else identity)
            self.do(Operation("create", path, target="", number=number, inode=inode))
            return StoredFile(len(content), modified_ms=inode.modified_ms, answered_ms=self.clock.now_ms())

    def content_of(self, operation: str, path: str) -> bytes:
        """Return the content of a file; raises `NotFound` if it does not exist."""
        return self.live.inodes[self.live.tree.file_at(operation, path)].content

    def append(self, path: str, number: int, data: bytes) -> None:
        """Append data to a file. The data of a deleted file is dropped if there is no journal."""
        with self.lock:
            if not self._journals and number not in self.live.inodes:
                return
            content = self.live.inodes[number].content + data
            self.do(Operation("write", path, target="", number=number, inode=Inode(content, self.clock.now_ms())))

    def hsync(self, path: str, number: int) -> None:
        """Make the content of a file durable."""
        self.do(Operation("hsync", path, "", number))

    def discard(self, path: str, number: int) -> None:
        """Remove the name if it still refers to this file."""
        with self.lock:
            if self.live.tree.find(path) == number:
                self.do(Operation("unlink", path))


_volumes: weakref.WeakSet[Volume] = weakref.WeakSet()
_held: dict[int, list[Volume]] = {}  # by the thread that forks


def _hold_all() -> None:
    """Wait until no other thread changes a volume, so that a forked process has complete copies and free locks."""
    volumes = sorted(_volumes, key=id)
    for volume in volumes:
        volume.lock.acquire()
    _held[threading.get_ident()] = volumes


def _release_all() -> None:
    for volume in _held.pop(threading.get_ident(), ()):
        volume.lock.release()


os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)


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
        """Do nothing: each write is visible when it returns."""

    def _hsync(self) -> None:
        self._volume.hsync(self.path, self._number)

    def _close(self) -> None:
        """Do nothing: there is no buffer, and closing does not make content durable."""

    def _abort(self) -> bool:
        self._volume.discard(self.path, self._number)
        return True


class _BufferingStream(_VolumeStream):
    """Buffers data until a flush, a sync or the close."""

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
    """Sends the content when it is closed, in two halves; the content is durable only after both."""

    offered = frozenset({"abort"})

    def _close(self) -> None:
        content = bytes(self._buffer)
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            if part:
                self._volume.append(self.path, self._number, part)
        self._volume.hsync(self.path, self._number)


class _ObjectStream(_BufferingStream, CopyingStream):
    """Creates the file when it is closed, completely and at once; can copy ranges of existing files."""

    offered = frozenset({"abort", "copy"})
    _stored: StoredFile | None = None

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
            self._stored = self._volume.make_object(self.path, bytes(self._buffer))

    @property
    def stored(self) -> StoredFile | None:
        return self._stored

    def _abort(self) -> bool:
        return True


class _MemoryStream(_VolumeStream):
    """Writes data that exists as long as the process."""

    offered = frozenset({"hflush", "abort"})


STREAMS: dict[Storage, type[_VolumeStream]] = {
    "disk": _VolumeStream,
    "memory": _MemoryStream,
    "hdfs": _BufferingStream,
    "webhdfs": _UploadingStream,
    "s3": _ObjectStream,
}


# Storage systems that use the number of a file as its identity.
_NUMBERING = {"disk", "memory"}


class VolumeFileSystem(FileSystem):
    """A file system on a volume with the semantics of a `storage`; see `CrashingFileSystem`."""

    def __init__(self, volume: Volume, storage: Storage, capabilities: Capabilities) -> None:
        self.context = dataclasses.replace(SYSTEM, clock=volume.clock)
        self._volume = volume
        self._storage = storage
        self._capabilities = capabilities

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def create(self, path: str) -> OutputStream:
        with self._volume.lock:
            if self._storage == "s3":
                check_path("create", path)
                return STREAMS[self._storage](path, self._volume, 0)
            self._volume.live.tree.require_free("create", path)
            return STREAMS[self._storage](path, self._volume, self._volume.create(path))

    def open(self, path: str) -> InputFile:
        with self._volume.lock:
            return RangeFile.of_content(path, self._volume.content_of("open", path))

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        with self._volume.lock:
            content = self._volume.content_of("open", path)
            if bytes_max is None:
                return content
            return content[: bytes_max + 1]

    def stat(self, path: str) -> FileInfo:
        with self._volume.lock:
            number = self._volume.live.tree.number_at("stat", path)
            if number == DIRECTORY and not self._is_there(path):
                raise NotFound("stat", path, "nothing is there")
            return self._info(path, number)

    def list(self, path: str) -> list[FileInfo]:
        with self._volume.lock:
            infos = []
            for child, number in self._volume.live.tree.children("list", path):
                if number != DIRECTORY or self._is_there(child):
                    infos.append(self._info(child, number))
            return infos

    def make_directories(self, path: str) -> None:
        with self._volume.lock:
            missing = self._volume.live.tree.missing_directories("make_directories", path)
            for directory in () if self._storage == "s3" else missing:
                self._volume.do(Operation("mkdir", directory))

    def sync_directory(self, path: str) -> None:
        with self._volume.lock:
            if self._storage == "s3":
                check_path("sync_directory", path)
                return
            self._volume.live.tree.children("sync_directory", path)
            self._volume.do(Operation("sync_directory", path))

    def rename(self, source: str, target: str) -> None:
        with self._volume.lock:
            number = self._volume.live.tree.file_at("rename", source)
            if self._storage == "s3":
                check_path("rename", target)
                self._copy_and_delete(source, number, target)
                return
            self._volume.live.tree.require_free("rename", target)
            self._volume.do(Operation("rename", source, target, number))

    def create_exclusive(self, path: str, content: bytes) -> StoredFile | None:
        """Execute the steps of the driver one by one, because a crash can occur between any two of them."""
        with self._volume.lock:
            check_path("create_exclusive", path)
            if self._storage == "s3":
                self._require_free("create_exclusive", path)
                return self._volume.make_object(path, content)
            if self._storage == "memory":
                self._volume.live.tree.require_free("create_exclusive", path)
                self._volume.create(path, content)
                return None
            parent = parent_of(path)
            # The file systems of crash states continue the numbers, so the name of a remaining temporary file is never
            # reused.
            temporary = join(parent, f".{self._volume.last_number + 1:032x}.tmp")
            self._volume.live.tree.require_free("create_exclusive", temporary)
            number = self._volume.create(temporary)
            self._volume.append(temporary, number, content)
            self._volume.hsync(temporary, number)
            taken = self._volume.live.tree.find(path) is not None
            if not taken:
                self._volume.do(Operation("link" if self._storage == "disk" else "rename", temporary, path, number))
            if taken or self._storage == "disk":
                self._volume.do(Operation("unlink", temporary))
            if taken:
                raise AlreadyExists("create_exclusive", path, "something is there already")
            if self._storage == "disk":
                self._volume.do(Operation("sync_directory", parent))
            return None

    def put(self, path: str, content: bytes) -> None:
        with self._volume.lock:
            check_path("put", path)
            if self._storage == "s3":
                self._volume.make_object(path, content)
                return
            if self._volume.live.tree.find(path) is None:
                self._volume.live.tree.require_free("put", path)
                self._volume.create(path)
            number = self._volume.live.tree.file_at("put", path)
            self._volume.do(
                Operation("put", path, target="", number=number, inode=Inode(content, self._volume.clock.now_ms()))
            )

    def delete(self, path: str) -> None:
        with self._volume.lock:
            self._volume.live.tree.file_at("delete", path)
            self._volume.do(Operation("unlink", path))

    def remove_directory(self, path: str) -> bool:
        with self._volume.lock:
            if self._storage == "s3":
                check_path("remove_directory", path)
                return not self._is_there(path)
            tree = self._volume.live.tree
            if path and not tree.missing_directories("remove_directory", path) and not tree.directories[path]:
                self._volume.do(Operation("rmdir", path))
            return tree.find(path) is None

    def _copy_and_delete(self, source: str, number: int, target: str) -> None:
        inode = self._volume.live.inodes[number]
        there = self._volume.live.tree.find(target)
        # A retry completes a rename that was interrupted after the copy.
        is_copied = there and source != target and self._volume.live.inodes[there].identity == inode.identity
        if not is_copied:
            self._require_free("rename", target)
            self._volume.make_object(target, inode.content, inode.identity)
        self._volume.do(Operation("unlink", source))

    def _require_free(self, operation: str, path: str) -> None:
        if self._volume.live.tree.find(path):
            raise AlreadyExists(operation, path, "something is there already")

    def _is_there(self, directory: str) -> bool:
        """Return True if a directory exists; an implied directory exists if it contains a file."""
        tree = self._volume.live.tree
        if self._storage != "s3" or not directory:
            return True
        if directory not in tree.directories:
            return False
        for child, number in tree.children("list", directory):
            if number != DIRECTORY or self._is_there(child):
                return True
        return False

    def _info(self, path: str, number: int) -> FileInfo:
        if number == DIRECTORY:
            return FileInfo(path, 0, 0, is_directory=True)
        inode = self._volume.live.inodes[number]
        if self._storage == "s3":
            identity = inode.identity
        elif self._storage in _NUMBERING:
            identity = number
        else:
            identity = None
        if identity is None:
            identity_text = None
        else:
            identity_text = str(identity)
        return FileInfo(path, len(inode.content), inode.modified_ms, identity=identity_text)
