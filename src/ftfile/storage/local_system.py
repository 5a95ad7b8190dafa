"""System calls of the local driver: names below a root, translation of errors, and watches of directories.

The path of the root can contain links. Below it, each directory is opened relative to its parent and never through a
link, so replacing a directory by a link has no effect.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import math
import os
import stat
import sys
import weakref
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import (
    AlreadyExists,
    NotADirectory,
    NotAFile,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsupported,
)
from ftfile.core.logs import get_logger
from ftfile.storage.api import READING, FileInfo, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inotify_simple import INotify


# The number of missing parents while directories are created: more than a path has. Below /proc a parent exists, but no
# directory can be created in it.
_MISSING_MAX = 10_000
# macOS does not have it; opening a directory then needs the permission to list it.
_PASS_THROUGH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)  # of a symbolic link
_NO_FILE = (
    "it is a link, a pipe, a socket or a device below {root}, and is not opened: remove it, or set "
    "storage.followLinks=true for a link, if all users with write access are trusted"
)
_IN_THE_WAY = (
    "{link!r} below {root} is a symbolic link, and links are not followed: remove it, or set storage.followLinks=true "
    "if all users with write access are trusted"
)


class Name(NamedTuple):
    """A resolved path: its name in an open directory, or the whole path."""

    text: str
    directory: int | None = None  # descriptor
    follow: bool = True  # a link with this name

    @property
    def no_follow(self) -> int:
        """Return the flag that makes `os.open` refuse a link."""
        if self.follow:
            return 0
        return os.O_NOFOLLOW


@contextlib.contextmanager
def resolved(operation: str, path: str, root: str, prefix: str, *, follow: bool) -> Iterator[Name]:
    """Resolve a path below the root, whose `prefix` ends in a slash; the result is valid within the block."""
    first, *names = path.split("/")
    if follow or not names:
        yield Name(prefix + path if path else root, None, follow or not path)
        return
    name, directory, is_resolved = prefix + first, -1, False
    try:
        for below in names:  # each is opened relative to its parent
            above, directory = directory, os.open(name, _PASS_THROUGH, dir_fd=None if directory < 0 else directory)
            name = below
            if above >= 0:
                os.close(above)
        is_resolved = True
        yield Name(name, directory, follow=False)
    except OSError as error:
        place = Name(name, None if directory < 0 else directory)
        if not is_resolved and error.errno in {errno.ENOTDIR, errno.ELOOP} and is_link(place):
            link = name.removeprefix(root).lstrip("/")
            raise NotADirectory(operation, path, _IN_THE_WAY.format(link=link, root=root)) from error
        raise
    finally:
        if directory >= 0:
            os.close(directory)


def is_link(name: Name) -> bool:
    """Return True if the name is a symbolic link."""
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.stat(name.text, dir_fd=name.directory, follow_symlinks=False).st_mode)
    return False


def not_a_file(operation: str, path: str, root: str) -> NotAFile:
    """Return the error for a pipe, socket, device or link."""
    return NotAFile(operation, path, _NO_FILE.format(root=root))


def open_file(operation: str, path: str, root: str, name: Name, flags: int, mode: int = 0) -> int:
    """Open a file and return its descriptor; raises NotAFile for anything else, without blocking."""
    flags |= name.no_follow | os.O_NONBLOCK  # opening a pipe would block until its other end is opened
    try:
        descriptor = os.open(name.text, flags, mode, dir_fd=name.directory)
    except OSError as error:
        if error.errno == errno.ENXIO or (error.errno == errno.ELOOP and flags & os.O_NOFOLLOW and is_link(name)):
            raise not_a_file(operation, path, root) from error
        raise
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name.text)
    raise not_a_file(operation, path, root)


def info_of(path: str, status: os.stat_result, *, is_link: bool = False) -> FileInfo:
    """Return the `FileInfo` of the status of a path."""
    is_directory = stat.S_ISDIR(status.st_mode)
    size_bytes = status.st_size
    if is_directory:
        size_bytes = 0
    identity = f"{status.st_dev}:{status.st_ino}"
    return FileInfo._make((path, size_bytes, status.st_mtime_ns // 1_000_000, is_directory, identity, is_link))


def info_of_entry(path: str, status: os.stat_result) -> FileInfo:
    """Return the `FileInfo` of the status of an entry whose link was not followed."""
    info = info_of(path, status)
    if info.is_directory or stat.S_ISREG(status.st_mode):
        return info
    return info._replace(size_bytes=0, is_link=True)


@contextlib.contextmanager
def opened_directory(name: Name) -> Iterator[int]:
    """Open a directory: with its descriptor, the kernel resolves its path once, and not for each entry."""
    descriptor = os.open(name.text, _LIST | name.no_follow, dir_fd=name.directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_directory(name: Name) -> None:
    """Make the names in a directory durable."""
    with opened_directory(name) as descriptor:
        os.fsync(descriptor)


def directory_of(name: Name) -> Name:
    """Return the directory of a name."""
    if name.directory is None:
        return Name(os.path.dirname(name.text))
    return Name(".", name.directory, follow=False)


def beside(name: Name, other: str) -> Name:
    """Return another name in the same directory."""
    return name._replace(text=other if name.directory is not None else f"{os.path.dirname(name.text)}/{other}")


def make_directory(name: Name, mode: int) -> None:
    """Create a directory in an existing one; idempotent."""
    try:
        os.mkdir(name.text, mode, dir_fd=name.directory)
    except FileExistsError as error:
        if not stat.S_ISDIR(os.stat(name.text, dir_fd=name.directory, follow_symlinks=name.follow).st_mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name.text) from error


def make_directories(full: str, mode: int) -> list[str]:
    """Create missing directories, and return the ones created here, outermost first."""
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


def link(source: Name, target: Name) -> None:
    """Rename a file without replacing a file; if the source is a link, the link is renamed."""
    os.link(source.text, target.text, src_dir_fd=source.directory, dst_dir_fd=target.directory, follow_symlinks=False)


def link_temporary(temporary: Name, target: Name) -> None:
    """Link a file that only this process knows to its name."""
    try:
        link(temporary, target)
    except OSError:
        # NFS can lose the response of a link that succeeded, and then reports that it exists. Only this process knows
        # the temporary file, so a second name of it can only be the target.
        with contextlib.suppress(OSError):
            if os.stat(temporary.text, dir_fd=temporary.directory).st_nlink > 1:
                return
        raise


_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


@functools.cache
def _libc() -> ctypes.CDLL | None:
    """Return the C library, if it has `renameat2`."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        library.renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    except (AttributeError, OSError):
        return None
    return library


def rename_in_one_step(source: Name, target: Name) -> bool:
    """Rename with Linux's `renameat2(RENAME_NOREPLACE)`; return False if C library, kernel or mount (NFS) lack it."""
    library = _libc()
    if library is None:
        return False
    arguments = (*_place_of(source), *_place_of(target), _RENAME_NOREPLACE)
    if library.renameat2(*arguments) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.ENOSYS, errno.EINVAL}:
        return False
    raise OSError(code, os.strerror(code), source.text, None, target.text)


def _place_of(name: Name) -> tuple[int, bytes]:
    """Return the descriptor of the directory, and the name in it, as system calls take them."""
    directory = name.directory
    if directory is None:
        directory = _AT_FDCWD
    return directory, os.fsencode(name.text)


def rename_in_two_steps(source: Name, target: Name) -> None:
    """Rename by `link` and `unlink`: a crash in between leaves both names, and so can an error with errno EIO.

    A plain `rename` would replace the target, and would silently keep both names of the same file.
    """
    try:
        link(source, target)
    except FileExistsError:
        raise
    except OSError:
        # NFS can lose the response of a link that succeeded.
        if not _is_same_file(source, target):
            raise
    try:
        os.unlink(source.text, dir_fd=source.directory)
    except OSError as error:
        text = f"linked, but the old name still exists: {error.strerror}"
        raise OSError(errno.EIO, text, source.text, None, target.text) from error


def _is_same_file(one: Name, other: Name) -> bool:
    try:
        return os.path.samestat(_status_of(one), _status_of(other))
    except OSError:
        return False


def _status_of(name: Name) -> os.stat_result:
    return os.stat(name.text, dir_fd=name.directory, follow_symlinks=False)


_log = get_logger(__name__)

_DENIED = "user id {user} may not do this below {root}; grant it the permission, or run as a user who has it"
_READ_ONLY = "{root} is mounted read-only; mount it for writing, or choose another path"
_NEEDED = "a file is below {root} where a directory is needed; move it or choose another path"
_FULL = "no space is left on the disk of {root}; free space or inodes, or choose another path"
_QUOTA = "the disk quota of user id {user} on {root} is exceeded; free space or raise the quota"
_TOO_LARGE = "the file is larger than the file system of {root} or this process (`ulimit -f`) allows"
_UNABLE = "the file system of {root} cannot do this; choose another path or driver"
_BUSY = "the system lacks a resource for {root}; retry later"

_NUMBERS = (
    (NotFound, "it does not exist below {root}", (errno.ENOENT,)),
    (NotFound, "it is a directory below {root}, not a file", (errno.EISDIR,)),
    (AlreadyExists, "it already exists below {root}, and files are never overwritten", (errno.EEXIST,)),
    (NotADirectory, _NEEDED, (errno.ENOTDIR,)),
    (PermissionDenied, _DENIED, (errno.EACCES, errno.EPERM)),
    (PermissionDenied, _READ_ONLY, (errno.EROFS,)),
    (OutOfSpace, _FULL, (errno.ENOSPC,)),
    (OutOfSpace, _QUOTA, (errno.EDQUOT,)),
    (OutOfSpace, _TOO_LARGE, (errno.EFBIG,)),
    (Unsupported, "a name or the whole path below {root} is too long; shorten it", (errno.ENAMETOOLONG,)),
    (Unsupported, "source and target below {root} are on different devices; keep both on one device", (errno.EXDEV,)),
    (Unsupported, "the file system of {root} does not allow this name; choose another name", (errno.EILSEQ,)),
    (Unsupported, "too many symbolic links below {root}; use the real path", (errno.ELOOP,)),
    (Unsupported, _UNABLE, (errno.EINVAL, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)),
    (Unavailable, "this process has too many open files; close some or raise `ulimit -n`", (errno.EMFILE,)),
    (Unavailable, "this machine has too many open files; close some or raise fs.file-max", (errno.ENFILE,)),
    (Unavailable, _BUSY, (errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOMEM, errno.ENOBUFS)),
)


def _meanings_by_number() -> dict[int, tuple[type[StorageError], str]]:
    meanings: dict[int, tuple[type[StorageError], str]] = {}
    for kind, advice, numbers in _NUMBERS:
        meanings |= dict.fromkeys(numbers, (kind, advice))
    return meanings


_MEANINGS = _meanings_by_number()


def storage_error(error: OSError, operation: str, path: str, root: str) -> StorageError:
    """Return the error of the interface for an error of the operating system."""
    kind, advice = _MEANINGS.get(error.errno or 0, (None, ""))
    if kind is None:
        # EIO, ESTALE, ETIMEDOUT …: a read changed nothing; a change may have happened.
        kind = OutcomeUnknown
        if operation in READING:
            kind = Unavailable
        advice = "the device or server of {root} failed; see the kernel log and check it"
    if link := _dangling_link(error, root):
        detail = f"{link!r} is a symbolic link to {os.readlink(link)!r}, which does not exist"
        return NotADirectory(operation, path, f"{detail}: create that directory, or correct the link")
    if error.errno:
        reason = os.strerror(error.errno)
    else:
        reason = str(error)
    return kind(operation, path, f"{reason}: {advice.format(root=root, user=os.geteuid())}")


def _dangling_link(error: OSError, root: str) -> str:
    """Return the link without a target that prevents creating a directory, at the root or above; else empty."""
    places: list[str] = []
    if error.errno == errno.ENOTDIR and isinstance(error.filename, str):
        places = [error.filename]
    elif error.errno == errno.ENOENT and not os.path.exists(root):
        places = [root, *map(str, PurePosixPath(root).parents)]
    for place in places:
        if os.path.islink(place) and not os.path.exists(place):
            return place
    return ""


@contextlib.contextmanager
def translated(operation: str, path: str, root: str, full: str = "") -> Iterator[str]:
    """Translate errors of the operating system within the block; the block gets `full`."""
    try:
        yield full
    except OSError as error:
        raise storage_error(error, operation, path, root) from error


# MODIFY, MOVED_TO, CREATE and MOVE_SELF, only of directories, and not through links. Deletions are not urgent.
_WRITTEN = 0x2 | 0x80 | 0x100 | 0x800 | 0x01000000 | 0x02000000
_MOVE_SELF = 0x800


def open_watch(root: str) -> Watch | None:
    """Return a watch of directories below a root by Linux's inotify; None if no watch is available."""
    if sys.platform != "linux":
        return None
    from inotify_simple import INotify  # noqa: PLC0415 - streams of files alone need it, on Linux alone

    try:
        notifier = INotify(nonblocking=True)
    except OSError as error:
        _log.info("%r is only listed at intervals, without inotify (fs.inotify.max_user_instances): %s", root, error)
        return None
    return _InotifyWatch(notifier, root)


class _InotifyWatch(Watch):
    def __init__(self, notifier: INotify, root: str) -> None:
        self._notifier = notifier
        self._root = root
        self._is_full = False
        weakref.finalize(self, notifier.close)

    def add(self, directory: str) -> None:
        try:
            self._notifier.add_watch(f"{self._root}/{directory}", _WRITTEN)
        except OSError as error:
            if error.errno == errno.ENOSPC and not self._is_full:
                self._is_full = True
                _log.info(
                    "%r and other directories below %r are only listed at intervals, because the inotify limit is "
                    "reached (fs.inotify.max_user_watches)", directory, self._root
                )  # fmt: skip

    def changed(self, wait_s: float = 0.0) -> bool:
        try:
            events = self._notifier.read(timeout=math.ceil(wait_s * 1000))
        except OSError:
            return False
        for event in events:
            if event.mask & _MOVE_SELF:
                # No caller may ask for its new place; otherwise the next listing adds it again.
                with contextlib.suppress(OSError):
                    self._notifier.rm_watch(event.wd)
        return bool(events)
