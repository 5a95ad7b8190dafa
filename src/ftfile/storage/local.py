"""The local driver: POSIX calls on descriptors, in the order that durability after a power cut requires."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import io
import mmap
import os
import stat
from typing import TYPE_CHECKING

from ftfile.core.errors import (
    ConfigError,
    DanglingLink,
    MissingParent,
    NotFound,
    OutcomeUnknown,
    StorageError,
    StreamClosed,
    Unsupported,
)
from ftfile.storage.api import Capabilities, FileInfo, FileSystem, InputFile, OutputStream, StoredFile
from ftfile.storage.local_errors import storage_error, translate_errors
from ftfile.storage.local_status import StatusReader, info_of, info_of_entry, status_of
from ftfile.storage.local_system import (
    LEADS_NOWHERE,
    Name,
    directory_of,
    link_temporary,
    make_directories,
    make_directory,
    name_beside,
    not_a_file,
    open_file,
    opened_directory,
    rename_in_one_step,
    rename_in_two_steps,
    resolve,
    sync_directory,
)
from ftfile.storage.local_watch import open_watch
from ftfile.storage.paths import check_path, parent_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ftfile.core.context import Context
    from ftfile.storage.api import Watch
    from ftfile.storage.paths import Location


__all__ = ("LocalFileSystem", "open_location")


_PATH_BYTES_MAX = os.pathconf("/", "PC_PATH_MAX") - 1  # including the NUL
_STREAM_CAPABILITIES = frozenset({"hflush", "hsync", "abort"})
_SEND_BYTES = 8 << 20
# The attempts to create a directory that other processes delete; below /proc nothing can be created.
_TRIES = 100
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_WRITABLE_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ADVISE = getattr(os, "posix_fadvise", None)  # macOS does not have it


class LocalFileSystem(FileSystem):
    """A directory of this machine, or of a mount with the same semantics; `root` is absolute and need not exist.

    The umask applies to the permissions of new files and directories. Links below the root are not followed unless
    `follow_links` is set: a link in place of a file raises `NotAFile`, in place of a parent `NotADirectory`.
    """

    def __init__(
        self,
        root: str,
        context: Context,
        *,
        file_mode: int = 0o666,
        directory_mode: int = 0o777,
        follow_links: bool = False,
    ) -> None:
        if not root.startswith("/"):
            raise ConfigError(f"the local path {root!r} is relative; give the absolute path")
        self.root = os.path.normpath("/" + root.lstrip("/"))
        if self.root == "/":
            self._prefix = self.root
        else:
            self._prefix = self.root + "/"
        self.context = context
        self._file_mode = file_mode
        self._directory_mode = directory_mode
        self._follow_links = follow_links
        self._capabilities = Capabilities(
            driver="local",
            shared_between_processes=True,
            durability="hsync",
            directory_sync=True,
            atomic_rename=True,
            stream_capabilities=_STREAM_CAPABILITIES,
            permissions=True,
            shared_between_hosts=False,  # it depends on the mounted file system
            path_bytes_max=_PATH_BYTES_MAX - len(os.fsencode(self._prefix)),
        )

    def __repr__(self) -> str:
        return f"LocalFileSystem({self.root!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def create(self, path: str) -> OutputStream:
        with self._at("create", path) as name:
            return _LocalStream(path, self._new_file(name), functools.partial(self.delete, path), self.root)

    def open(self, path: str) -> InputFile:
        with self._at("open", path) as name:
            descriptor = open_file("open", path, name=name, flags=os.O_RDONLY | os.O_CLOEXEC)
            return _LocalFile(path, io.FileIO(descriptor, "r"), self.root)

    def stat(self, path: str) -> FileInfo:
        """If links are followed, `DanglingLink` is raised for a link without a target."""
        with self._at("stat", path) as name:
            if not name.follow:
                info = info_of_entry(path, status_of(name))
                if info.is_link:
                    raise not_a_file("stat", path)
                return info
            try:
                return info_of(path, status_of(name))
            except OSError as error:
                if not path or error.errno not in LEADS_NOWHERE or not os.path.islink(name.text):
                    raise
                detail = f"it is a broken symbolic link to {os.readlink(name.text)!r}"
                raise DanglingLink("stat", path, f"{detail}: correct the link, or remove it") from error

    def list(self, path: str) -> list[FileInfo]:
        prefix, children = f"{path}/" if path else "", []
        with self._at("list", path) as name, opened_directory(name) as directory, os.scandir(directory) as entries:
            statuses = StatusReader(directory, follow=self._follow_links)
            for entry in entries:
                try:
                    child = prefix + entry.name
                    if self._follow_links:
                        children.append(info_of(child, statuses.read(entry.name), is_link=entry.is_symlink()))
                    else:
                        children.append(info_of_entry(child, statuses.read(entry.name)))
                except FileNotFoundError:  # deleted since, or a link without a target
                    continue
                except OSError as error:
                    if error.errno not in LEADS_NOWHERE:
                        raise
        return children

    def names_after(self, path: str, name: str) -> Sequence[str]:
        with self._at("list", path) as place, opened_directory(place) as directory:
            return [entry for entry in os.listdir(directory) if entry > name]

    def watch(self) -> Watch | None:
        return open_watch(self.root)

    def make_directories(self, path: str) -> None:
        """Create a directory and its missing parents; other processes can create and delete them at the same time."""
        if self._follow_links or not path:
            self._make_by_path(path)
            return
        for _ in range(_TRIES):
            with contextlib.suppress(NotFound), self._at("make_directories", path) as name:
                make_directory(name, self._directory_mode)
                return
            self.make_directories(parent_of(path))
        detail = "its parent directory accepts no new entries; choose another path"
        raise Unsupported("make_directories", path, detail)

    def _make_by_path(self, path: str) -> None:
        with self._at("make_directories", path) as name:
            new_directories = make_directories(name.text, self._directory_mode)
            # No caller can sync the names of the root and its parents.
            unreachable = [directory for directory in new_directories if len(directory) <= len(self.root)]
            if unreachable or not path:
                for directory in unreachable or [self.root]:
                    with contextlib.suppress(PermissionError):  # a parent that this user cannot open
                        sync_directory(Name(os.path.dirname(directory)))

    def sync_directory(self, path: str) -> None:
        with self._at("sync_directory", path) as name:
            sync_directory(name)

    def rename(self, source: str, target: str) -> None:
        """Move a file without replacing a file; if the mount lacks the atomic call, by link and unlink."""
        try:
            with self._resolve("rename", source) as old, self._resolve("rename", target) as new:
                self._move(old, new)
        except FileNotFoundError as error:
            if self._is_there(source):
                detail = f"the directory of the target {target!r} is missing"
                raise MissingParent("rename", source, detail) from error
            raise NotFound("rename", source, f"it does not exist; the target is {target!r}") from error
        except OSError as error:
            failure = storage_error(error, "rename", source, self.root)
            detail = f"{failure.detail}; the target is {target!r}"
            raise type(failure)("rename", source, detail) from error

    def _is_there(self, path: str) -> bool:
        try:
            with self._resolve("rename", path) as name:
                os.stat(name.text, dir_fd=name.directory, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _move(self, source: Name, target: Name) -> None:
        if self._capabilities.atomic_rename:
            if rename_in_one_step(source, target):
                return
            # The mount has refused it, and would refuse it again.
            self._capabilities = dataclasses.replace(self._capabilities, atomic_rename=False)
        rename_in_two_steps(source, target)

    def create_exclusive(self, path: str, content: bytes) -> StoredFile | None:
        """Link a synced temporary file to its name."""
        with self._at("create_exclusive", path) as name:
            temporary = name_beside(name, f".{self.context.ids.unique()}.tmp")
            try:
                with self._new_file(temporary) as file:
                    _write_durably(file, content)
                link_temporary(temporary, name)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary.text, dir_fd=temporary.directory)
            try:
                sync_directory(directory_of(name))
            except OSError as error:
                detail = f"it exists, but its name could not be synced: {error.strerror}"
                raise OutcomeUnknown("create_exclusive", path, detail) from error
            with contextlib.suppress(OSError):
                return _stored_file_of(os.stat(name.text, dir_fd=name.directory, follow_symlinks=name.follow))
        return None

    def put(self, path: str, content: bytes) -> None:
        """Write in place, since a rename is fifteen times slower."""
        with self._at("put", path) as name:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = open_file("put", path, name=name, flags=flags, mode=self._file_mode)
            if os.fstat(descriptor).st_nlink > 1:
                # A copy of the directory can share the file by a hard link, or it is a file outside of the directory.
                os.close(descriptor)
                os.unlink(name.text, dir_fd=name.directory)
                descriptor = open_file("put", path, name=name, flags=flags | os.O_EXCL, mode=self._file_mode)
            with io.FileIO(descriptor, "w") as file:
                _write_all(descriptor, memoryview(content))
                file.truncate(len(content))

    def delete(self, path: str) -> None:
        with self._at("delete", path) as name:
            os.unlink(name.text, dir_fd=name.directory)

    def remove_directory(self, path: str) -> bool:
        with self._at("remove_directory", path) as name:
            try:
                os.rmdir(name.text, dir_fd=name.directory)
            except FileNotFoundError:
                return True
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY}:
                    return False
                raise
        return True

    def _new_file(self, name: Name) -> io.FileIO:
        def opener(text: str, flags: int) -> int:
            return os.open(text, flags, self._file_mode, dir_fd=name.directory)

        return io.FileIO(name.text, "x", opener=opener)

    @contextlib.contextmanager
    def _at(self, operation: str, path: str) -> Iterator[Name]:
        try:
            with self._resolve(operation, path) as name:
                yield name
        except OSError as error:
            raise storage_error(error, operation, path, self.root) from error

    def _resolve(self, operation: str, path: str) -> AbstractContextManager[Name]:
        check_path(operation, path)
        return resolve(operation, path, self.root, self._prefix, follow=self._follow_links)


def open_location(location: Location) -> FileSystem:
    """Open a `file` URL."""
    settings = location.known_settings("filePermission", "directoryPermission", "followLinks")
    file_mode = int(settings.get("filePermission", "666"), 8)
    directory_mode = int(settings.get("directoryPermission", "777"), 8)
    follow = settings.get("followLinks", "false").lower()
    if follow not in {"true", "false"}:
        raise ConfigError(f"storage.followLinks={follow!r}: it must be true or false")
    return LocalFileSystem(
        location.path,
        location.context,
        file_mode=file_mode,
        directory_mode=directory_mode,
        follow_links=follow == "true",
    )


class _LocalStream(OutputStream):
    def __init__(self, path: str, file: io.FileIO, delete: Callable[[], None], root: str) -> None:
        super().__init__(path, _STREAM_CAPABILITIES)
        self._file = file
        self._delete = delete
        self._root = root
        self._sent = 0

    def _write(self, data: memoryview) -> None:
        with translate_errors("write", self.path, self._root):
            _write_all(self._file.fileno(), data)
            written = self.position + data.nbytes
            if written - self._sent >= _SEND_BYTES and _ADVISE is not None:
                # Start to write to the disk now, so that the sync at the end takes less time.
                _ADVISE(self._file.fileno(), self._sent, written - self._sent, os.POSIX_FADV_DONTNEED)
                self._sent = written

    def _hflush(self) -> None:
        """Do nothing: each write is visible when it returns."""

    def _hsync(self) -> None:
        with translate_errors("hsync", self.path, self._root):
            os.fsync(self._file.fileno())

    def _close(self) -> None:
        with translate_errors("close", self.path, self._root):
            self._file.close()

    def _abort(self) -> bool:
        with contextlib.suppress(OSError):
            self._file.close()
        try:
            self._delete()
        except NotFound:
            return True
        except StorageError:
            return False
        return True


class _LocalFile(InputFile):
    def __init__(self, path: str, file: io.FileIO, root: str) -> None:
        self.path = path
        self.size_bytes = os.fstat(file.fileno()).st_size
        self._file = file
        self._root = root

    def read_at(self, offset: int, length: int) -> bytes:
        if self._file.closed:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        end = min(offset + length, self.size_bytes)
        data = b""
        with translate_errors("read_at", self.path, self._root):
            while offset + len(data) < end:  # one system call can return fewer bytes
                more = os.pread(self._file.fileno(), end - offset - len(data), offset + len(data))
                if not more:
                    break
                data = data + more if data else more
        return data

    def mapped(self) -> memoryview | None:
        if self._file.closed:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        status = os.fstat(self._file.fileno())
        may_be_cut = status.st_uid not in {os.geteuid(), 0} or status.st_mode & _WRITABLE_FOR_OTHERS
        if not self.size_bytes or may_be_cut:  # another user who truncates a mapped file would kill its readers
            return None
        try:
            return memoryview(mmap.mmap(self._file.fileno(), self.size_bytes, access=mmap.ACCESS_READ))
        except ValueError:  # the file has been truncated
            return None
        except OSError as error:
            # A mapping has a separate descriptor. A file that cannot be mapped keeps its descriptor.
            if error.errno in _TOO_MANY:
                raise storage_error(error, "read_at", self.path, self._root) from error
            return None  # the mount does not support mapping

    def close(self) -> None:
        with translate_errors("close", self.path, self._root):
            self._file.close()


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _stored_file_of(status: os.stat_result) -> StoredFile:
    """Return a file that was linked to its name. Its times are of the clock of the mount; linking sets the second."""
    modified_ms, linked_ms = status.st_mtime_ns // 1_000_000, status.st_ctime_ns // 1_000_000
    return StoredFile(status.st_size, modified_ms=modified_ms, answered_ms=linked_ms)


def _write_durably(file: io.FileIO, content: bytes) -> None:
    _write_all(file.fileno(), memoryview(content))
    size_bytes = os.fstat(file.fileno()).st_size
    if size_bytes != len(content):
        raise OSError(errno.EIO, f"{size_bytes} of {len(content)} bytes were written", file.name)
    os.fsync(file.fileno())
