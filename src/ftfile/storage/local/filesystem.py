"""The local driver: POSIX calls on raw descriptors, durable in the order that a power cut demands."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import functools
import io
import mmap
import os
import stat
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError, DanglingLink, MissingParent, NotFound, OutcomeUnknown, StreamClosed
from ftfile.storage.api import Capabilities, FileInfo, FileSystem, InputFile, OutputStream
from ftfile.storage.local.errors import storage_error, translated
from ftfile.storage.paths import check_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ftfile.core.context import Context
    from ftfile.storage.paths import Location


__all__ = ("LocalFileSystem", "open_location")


_PATH_BYTES_MAX = os.pathconf("/", "PC_PATH_MAX") - 1  # with the NUL
_STREAM_CAPABILITIES = frozenset({"hflush", "hsync", "abort"})
_SEND_BYTES = 8 << 20
# Missing parents in all while directories are made: more than a path has. Below /proc a parent exists, and nothing can
# be made in it.
_MISSING_MAX = 10_000
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)  # of a symbolic link
_ADVISE = getattr(os, "posix_fadvise", None)  # macOS has none


class LocalFileSystem(FileSystem):
    """A directory of this machine, or of a mount that behaves like one; `root`: absolute, need not exist yet.

    The umask applies to the permissions of new files and directories.
    """

    def __init__(self, root: str, context: Context, *, file_mode: int = 0o666, directory_mode: int = 0o777) -> None:
        if not root.startswith("/"):
            raise ConfigError(f"the local path {root!r} is relative; give the absolute path")
        self.root = os.path.normpath("/" + root.lstrip("/"))
        self._prefix = self.root if self.root == "/" else self.root + "/"
        self.context = context
        self._file_mode = file_mode
        self._directory_mode = directory_mode
        self._capabilities = Capabilities(
            driver="local",
            shared_between_processes=True,
            durability="hsync",
            directory_sync=True,
            atomic_rename=True,
            stream_capabilities=_STREAM_CAPABILITIES,
            permissions=True,
            shared_between_hosts=False,  # it depends on what is mounted
            path_bytes_max=_PATH_BYTES_MAX - len(os.fsencode(self._prefix)),
        )

    def __repr__(self) -> str:
        return f"LocalFileSystem({self.root!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def create(self, path: str) -> OutputStream:
        with self._at("create", path) as full:
            return _LocalStream(path, self._new_file(full), full, self.root)

    def open(self, path: str) -> InputFile:
        with self._at("open", path) as full:
            return _LocalFile(path, io.FileIO(full, "r"), self.root)

    def stat(self, path: str) -> FileInfo:
        """Follow symbolic links; `DanglingLink` tells of one that leads nowhere."""
        with self._at("stat", path) as full:
            try:
                return _info(path, os.stat(full))
            except OSError as error:
                if not path or error.errno not in _LEADS_NOWHERE or not os.path.islink(full):
                    raise
                detail = f"a symbolic link to {os.readlink(full)!r} is there below {self.root}, which leads nowhere"
                raise DanglingLink("stat", path, f"{detail}: correct it, or remove it") from error

    def list(self, path: str) -> list[FileInfo]:
        prefix = f"{path}/" if path else ""
        children = []
        with self._at("list", path) as full, os.scandir(full) as entries:
            for entry in entries:
                try:
                    children.append(_info(prefix + entry.name, entry.stat(), is_link=entry.is_symlink()))
                except FileNotFoundError:  # deleted since, or a link to nothing
                    continue
                except OSError as error:
                    # Of another entry it tells of the whole directory.
                    if error.errno not in _LEADS_NOWHERE or not entry.is_symlink():
                        raise
        return children

    def names_after(self, path: str, name: str) -> Sequence[str]:
        with self._at("list", path) as full:
            return [entry for entry in os.listdir(full) if entry > name]

    def make_directories(self, path: str) -> None:
        with self._at("make_directories", path) as full:
            new_directories = _make_directories(full, self._directory_mode)
            # No caller can sync the names of the root and its parents.
            unreachable = [directory for directory in new_directories if len(directory) <= len(self.root)]
            if unreachable or not path:
                for directory in unreachable or [self.root]:
                    with contextlib.suppress(PermissionError):  # a parent that this user may not open
                        _sync_directory(os.path.dirname(directory))

    def sync_directory(self, path: str) -> None:
        with self._at("sync_directory", path) as full:
            _sync_directory(full)

    def rename(self, source: str, target: str) -> None:
        """Move a file, never over anything; where the mount lacks the atomic call, by link and unlink."""
        full_source, full_target = self._full("rename", source), self._full("rename", target)
        try:
            self._move(full_source, full_target)
        except FileNotFoundError as error:
            if os.path.lexists(full_source):
                detail = f"the directory of the target {target!r} is missing below {self.root}"
                raise MissingParent("rename", source, detail) from error
            raise NotFound("rename", source, f"nothing is there below {self.root}; the target is {target!r}") from error
        except OSError as error:
            raise storage_error(error, "rename", source, f"{self.root} (target {target!r})") from error

    def _move(self, source: str, target: str) -> None:
        if self._capabilities.atomic_rename:
            if _rename_in_one_step(source, target):
                return
            # The mount has refused it, and would again.
            self._capabilities = dataclasses.replace(self._capabilities, atomic_rename=False)
        _rename_in_two_steps(source, target)

    def create_exclusive(self, path: str, content: bytes) -> None:
        """Link a synced temporary file to its name."""
        with self._at("create_exclusive", path) as full:
            parent = os.path.dirname(full)
            temporary = f"{parent}/.{self.context.ids.unique()}.tmp"
            try:
                with self._new_file(temporary) as file:
                    _write_durably(file, content)
                _link(temporary, full)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
        try:
            _sync_directory(parent)
        except OSError as error:
            detail = f"it exists below {self.root}, but its name could not be made durable: {error.strerror}"
            raise OutcomeUnknown("create_exclusive", path, detail) from error

    def put(self, path: str, content: bytes) -> None:
        """Write in place: a rename costs fifteen times as much."""
        with self._at("put", path) as full:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            with io.FileIO(full, "w", opener=lambda name, _: os.open(name, flags, self._file_mode)) as file:
                _write_all(file.fileno(), memoryview(content))
                file.truncate(len(content))

    def delete(self, path: str) -> None:
        with self._at("delete", path) as full:
            os.unlink(full)

    def remove_directory(self, path: str) -> bool:
        with self._at("remove_directory", path) as full:
            try:
                os.rmdir(full)
            except FileNotFoundError:
                return True
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY}:
                    return False
                raise
        return True

    def _new_file(self, full: str) -> io.FileIO:
        return io.FileIO(full, "x", opener=lambda name, flags: os.open(name, flags, self._file_mode))

    def _at(self, operation: str, path: str) -> AbstractContextManager[str]:
        return translated(operation, path, self.root, self._full(operation, path))

    def _full(self, operation: str, path: str) -> str:
        check_path(operation, path)
        return self._prefix + path if path else self.root


def open_location(location: Location) -> FileSystem:
    """Open a `file` URL."""
    settings = location.known_settings("filePermission", "directoryPermission")
    file_mode = int(settings.get("filePermission", "666"), 8)
    directory_mode = int(settings.get("directoryPermission", "777"), 8)
    return LocalFileSystem(location.path, location.context, file_mode=file_mode, directory_mode=directory_mode)


class _LocalStream(OutputStream):
    def __init__(self, path: str, file: io.FileIO, full: str, root: str) -> None:
        super().__init__(path, _STREAM_CAPABILITIES)
        self._file = file
        self._full = full
        self._root = root
        self._sent = 0

    def _write(self, data: memoryview) -> None:
        with translated("write", self.path, self._root):
            _write_all(self._file.fileno(), data)
            written = self.position + data.nbytes
            if written - self._sent >= _SEND_BYTES and _ADVISE is not None:
                # Starts writing to the disk now, so that the sync at the end has little left to wait for.
                _ADVISE(self._file.fileno(), self._sent, written - self._sent, os.POSIX_FADV_DONTNEED)
                self._sent = written

    def _hflush(self) -> None:
        """Do nothing: each write is visible when it returns."""

    def _hsync(self) -> None:
        with translated("hsync", self.path, self._root):
            os.fsync(self._file.fileno())

    def _close(self) -> None:
        with translated("close", self.path, self._root):
            self._file.close()

    def _abort(self) -> bool:
        with contextlib.suppress(OSError):
            self._file.close()
        try:
            os.unlink(self._full)
        except FileNotFoundError:
            return True
        except OSError:
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
        with translated("read_at", self.path, self._root):
            while offset + len(data) < end:  # one system call may return fewer
                more = os.pread(self._file.fileno(), end - offset - len(data), offset + len(data))
                if not more:
                    break
                data = data + more if data else more
        return data

    def mapped(self) -> memoryview | None:
        if self._file.closed:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        if not self.size_bytes:
            return None
        try:
            return memoryview(mmap.mmap(self._file.fileno(), self.size_bytes, access=mmap.ACCESS_READ))
        except ValueError:  # the file is shorter by now
            return None
        except OSError as error:
            # A mapping has a descriptor of its own. Who is told that there is none would keep that of the file.
            if error.errno in _TOO_MANY:
                raise storage_error(error, "read_at", self.path, self._root) from error
            return None  # the mount maps no files

    def close(self) -> None:
        with translated("close", self.path, self._root):
            self._file.close()


def _info(path: str, status: os.stat_result, *, is_link: bool = False) -> FileInfo:
    is_directory = stat.S_ISDIR(status.st_mode)
    size_bytes = 0 if is_directory else status.st_size
    identity = f"{status.st_dev}:{status.st_ino}"
    return FileInfo(path, size_bytes, status.st_mtime_ns // 1_000_000, is_directory, identity, is_link)


def _make_directories(full: str, mode: int) -> list[str]:
    """Create the missing directories and return those created here, outermost first; others may create them too."""
    new_directories = []
    waiting, missing = [full], 0
    while waiting:
        try:
            os.mkdir(waiting[-1], mode)
        except FileNotFoundError as error:
            missing += 1
            if missing > _MISSING_MAX:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), full) from error
            waiting.append(os.path.dirname(waiting[-1]))
            continue
        except FileExistsError as error:
            if not os.path.isdir(waiting[-1]):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), waiting[-1]) from error
        else:
            new_directories.append(waiting[-1])
        waiting.pop()
    return new_directories


def _sync_directory(full: str) -> None:
    descriptor = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _write_durably(file: io.FileIO, content: bytes) -> None:
    _write_all(file.fileno(), memoryview(content))
    size_bytes = os.fstat(file.fileno()).st_size
    if size_bytes != len(content):
        raise OSError(errno.EIO, f"{size_bytes} of {len(content)} bytes were written", file.name)
    os.fsync(file.fileno())


def _link(temporary: str, full: str) -> None:
    try:
        os.link(temporary, full)
    except OSError:
        # NFS may lose the reply of a link that was made, and then says "exists". Nobody else knows the temporary
        # file: a second name of it can only be `full`.
        with contextlib.suppress(OSError):
            if os.stat(temporary).st_nlink > 1:
                return
        raise


_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


@functools.cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return function


def _rename_in_one_step(source: str, target: str) -> bool:
    """Rename with Linux's `renameat2(RENAME_NOREPLACE)`; return False if C library, kernel or mount (NFS) lack it."""
    function = _renameat2()
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.ENOSYS, errno.EINVAL}:
        return False
    raise OSError(code, os.strerror(code), source, None, target)


def _rename_in_two_steps(source: str, target: str) -> None:
    """Rename by `link` and `unlink`: a crash in between leaves both names, and so may an error with errno EIO.

    A plain `rename` would replace the target, and silently keep both names if they are one file already.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        # NFS may lose the reply of a link that was made.
        if not os.path.lexists(target) or not os.path.samefile(source, target):
            raise
    try:
        os.unlink(source)
    except OSError as error:
        raise OSError(errno.EIO, f"linked, but the old name remains: {error.strerror}", source, None, target) from error
