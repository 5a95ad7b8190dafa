"""The port on a volume in memory: what the memory driver and the crashing file system share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.core.errors import AlreadyExists, NotFound
from ftfile.fs.api import FileInfo, FileSystem
from ftfile.fs.paths import join, parent_of, require_valid
from ftfile.testing.fs.disk import Inode, Operation
from ftfile.testing.fs.tree import DIRECTORY
from ftfile.testing.fs.volume import STREAMS, VolumeFile

if TYPE_CHECKING:
    from ftfile.fs.api import Capabilities, InputFile, OutputStream
    from ftfile.testing.fs.volume import Store, Volume

__all__ = ("VolumeFileSystem",)

# Stores that tell two files apart by their numbers.
_NUMBERING = {"disk", "memory"}


class VolumeFileSystem(FileSystem):
    """A file system on a volume that is like a `store`; see `CrashingFileSystem`."""

    def __init__(self, volume: Volume, store: Store, capabilities: Capabilities) -> None:
        self.context = dataclasses.replace(SYSTEM, clock=volume.clock)
        self._volume = volume
        self._store = store
        self._capabilities = capabilities

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def create(self, path: str) -> OutputStream:
        with self._volume.lock:
            if self._store == "s3":
                require_valid("create", path)
                return STREAMS[self._store](path, self._volume, 0)
            self._volume.live.tree.require_free("create", path)
            return STREAMS[self._store](path, self._volume, self._volume.create(path))

    def open(self, path: str) -> InputFile:
        with self._volume.lock:
            return VolumeFile(path, self._volume.content_of("open", path))

    def read(self, path: str) -> bytes:
        with self._volume.lock:
            return self._volume.content_of("open", path)

    def stat(self, path: str) -> FileInfo:
        with self._volume.lock:
            number = self._volume.live.tree.number_at("stat", path)
            if number == DIRECTORY and not self._is_there(path):
                raise NotFound("stat", path, "nothing is there")
            return self._info(path, number)

    def list(self, path: str) -> list[FileInfo]:
        with self._volume.lock:
            children = self._volume.live.tree.children("list", path)
            return [self._info(child, number) for child, number in children if number or self._is_there(child)]

    def make_directories(self, path: str) -> None:
        with self._volume.lock:
            missing = self._volume.live.tree.missing_directories("make_directories", path)
            for directory in () if self._store == "s3" else missing:
                self._volume.do(Operation("mkdir", directory))

    def sync_directory(self, path: str) -> None:
        with self._volume.lock:
            if self._store == "s3":
                require_valid("sync_directory", path)
                return
            self._volume.live.tree.children("sync_directory", path)
            self._volume.do(Operation("sync_directory", path))

    def rename(self, source: str, target: str) -> None:
        with self._volume.lock:
            number = self._volume.live.tree.file_at("rename", source)
            if self._store == "s3":
                require_valid("rename", target)
                self._copy_and_delete(source, number, target)
                return
            self._volume.live.tree.require_free("rename", target)
            self._volume.do(Operation("rename", source, target, number))

    def create_exclusive(self, path: str, content: bytes) -> None:
        """Go by the steps of the driver: a crash may come between any two."""
        with self._volume.lock:
            require_valid("create_exclusive", path)
            if self._store == "s3":
                self._require_free("create_exclusive", path)
                self._volume.make_object(path, content)
                return
            if self._store == "memory":
                self._volume.live.tree.require_free("create_exclusive", path)
                self._volume.create(path, content)
                return
            parent = parent_of(path)
            # Numbers go on in the file systems of crash states: no such name ever meets a leftover of its kind.
            temporary = join(parent, f".{self._volume.last_number + 1:032x}.tmp")
            self._volume.live.tree.require_free("create_exclusive", temporary)
            number = self._volume.create(temporary)
            self._volume.append(temporary, number, content)
            self._volume.hsync(temporary, number)
            taken = self._volume.live.tree.find(path) is not None
            if not taken:
                self._volume.do(Operation("link" if self._store == "disk" else "rename", temporary, path, number))
            if taken or self._store == "disk":
                self._volume.do(Operation("unlink", temporary))
            if taken:
                raise AlreadyExists("create_exclusive", path, "something is there already")
            if self._store == "disk":
                self._volume.do(Operation("sync_directory", parent))

    def put(self, path: str, content: bytes) -> None:
        with self._volume.lock:
            require_valid("put", path)
            if self._store == "s3":
                self._volume.make_object(path, content)
                return
            if self._volume.live.tree.find(path) is None:
                self._volume.live.tree.require_free("put", path)
                self._volume.create(path)
            number = self._volume.live.tree.file_at("put", path)
            self._volume.do(Operation("put", path, "", number, Inode(content, self._volume.clock.now_ms())))

    def delete(self, path: str) -> None:
        with self._volume.lock:
            self._volume.live.tree.file_at("delete", path)
            self._volume.do(Operation("unlink", path))

    def remove_directory(self, path: str) -> bool:
        with self._volume.lock:
            if self._store == "s3":
                require_valid("remove_directory", path)
                return not self._is_there(path)
            tree = self._volume.live.tree
            if path and not tree.missing_directories("remove_directory", path) and not tree.directories[path]:
                self._volume.do(Operation("rmdir", path))
            return tree.find(path) is None

    def _copy_and_delete(self, source: str, number: int, target: str) -> None:
        inode = self._volume.live.inodes[number]
        there = self._volume.live.tree.find(target)
        # A rename that was left half-way is finished.
        is_copied = there and source != target and self._volume.live.inodes[there].identity == inode.identity
        if not is_copied:
            self._require_free("rename", target)
            self._volume.make_object(target, inode.content, inode.identity)
        self._volume.do(Operation("unlink", source))

    def _require_free(self, operation: str, path: str) -> None:
        if self._volume.live.tree.find(path):
            raise AlreadyExists(operation, path, "something is there already")

    def _is_there(self, directory: str) -> bool:
        """Return True if a directory is there; where they are implied, one is when something is in it."""
        tree = self._volume.live.tree
        if self._store != "s3" or not directory:
            return True
        return any(
            number != DIRECTORY or self._is_there(child)
            for child, number in (tree.children("list", directory) if directory in tree.directories else ())
        )

    def _info(self, path: str, number: int) -> FileInfo:
        if number == DIRECTORY:
            return FileInfo(path, 0, 0, is_directory=True)
        inode = self._volume.live.inodes[number]
        identity = inode.identity if self._store == "s3" else number if self._store in _NUMBERING else None
        told = None if identity is None else str(identity)
        return FileInfo(path, len(inode.content), inode.modified_ms, identity=told)
