"""The status of a local file with its time of birth, which tells it from a later file with the same inode."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import struct
from typing import TYPE_CHECKING, NamedTuple

from ftfile.storage.api import FileInfo
from ftfile.storage.local_system import AT_FDCWD

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.local_system import Name

    Statx = Callable[[int, bytes, int, int, ctypes.Array[ctypes.c_char]], int]

_AT_SYMLINK_NOFOLLOW = 0x100
_ALL, _BIRTH = 0xFFF, 0x800  # STATX_BASIC_STATS | STATX_BTIME, STATX_BTIME
# Of `struct statx`: the mask, mode, inode, size, time of birth, time of change of the content, and device.
_fields_of = struct.Struct("=I24xH2xQQ16x16xqI4x16xqI4x8xII").unpack_from
_Buffer = ctypes.c_char * 256
_NS = 1_000_000_000
# The kernel does not have the call, or a container forbids it.
_MISSING = (errno.ENOSYS, errno.EPERM, errno.EINVAL)


class Status(NamedTuple):
    """The status of a file, directory or anything else."""

    mode: int
    size_bytes: int
    modified_ms: int
    device: int
    inode: int
    born_ns: int | None  # None if the file system does not know it


def status_of(name: Name) -> Status:
    """Return the status of one name, as a `StatusReader` reads it."""
    return StatusReader(name.directory, follow=name.follow).read(name.text)


class StatusReader:
    """Reads the status of many names in an open directory, or of paths without one. Not thread-safe."""

    def __init__(self, directory: int | None, *, follow: bool) -> None:
        self._directory = directory
        self._follow = follow
        self._statx = _statx()
        self._at = AT_FDCWD if directory is None else directory
        self._flags = 0 if follow else _AT_SYMLINK_NOFOLLOW
        self._buffer = _Buffer()

    def read(self, name: str) -> Status:
        """Return the status of a name; of the target of a link, if links are followed."""
        if self._statx is not None:
            if self._statx(self._at, os.fsencode(name), self._flags, _ALL, self._buffer) == 0:
                mask, mode, inode, size, born_s, born, at_s, at, major, minor = _fields_of(self._buffer)
                born_ns = born_s * _NS + born if mask & _BIRTH else None
                return Status(mode, size, at_s * 1000 + at // 1_000_000, major << 32 | minor, inode, born_ns)
            code = ctypes.get_errno()
            if code not in _MISSING:
                raise OSError(code, os.strerror(code), name)
        found = os.stat(name, dir_fd=self._directory, follow_symlinks=self._follow)
        device = os.major(found.st_dev) << 32 | os.minor(found.st_dev)
        return Status(found.st_mode, found.st_size, found.st_mtime_ns // 1_000_000, device, found.st_ino, None)


@functools.cache
def _statx() -> Statx | None:
    """Return the system call of Linux; None if the C library does not have it."""
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except AttributeError:
        return None
    statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, _Buffer)
    return statx


def info_of(path: str, status: Status, *, is_link: bool = False) -> FileInfo:
    """Return the `FileInfo` of the status of a path.

    An inode is reused, and each disk has its own. With the time of birth it is the lasting identity of a file: it stays
    when the disk is mounted under another device number. Without that time, the device is part of this identity.
    """
    is_directory = stat.S_ISDIR(status.mode)
    if status.born_ns is None:
        identity = f"{status.device}-{status.inode}"
    else:
        identity = f"{status.device}:{status.inode}@{status.born_ns}"
    size_bytes = 0 if is_directory else status.size_bytes
    return FileInfo._make((path, size_bytes, status.modified_ms, is_directory, identity, is_link))


def info_of_entry(path: str, status: Status) -> FileInfo:
    """Return the `FileInfo` of the status of an entry whose link was not followed."""
    info = info_of(path, status)
    if info.is_directory or stat.S_ISREG(status.mode):
        return info
    return info._replace(size_bytes=0, is_link=True)
