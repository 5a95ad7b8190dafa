"""System calls of the local driver, by names below a root.

The path of the root can contain links. Below it, each directory is opened relative to its parent and never through a
link, so replacing a directory by a link has no effect.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import (
    NotADirectory,
    NotAFile,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


# The number of missing parents while directories are created: more than a path has. Below /proc a parent exists, but no
# directory can be created in it.
_MISSING_MAX = 10_000
# macOS does not have it; opening a directory then needs the permission to list it.
_PASS_THROUGH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)  # of a symbolic link
_NO_FILE = (
    "it is a link, a pipe, a socket or a device, and is not opened: remove it, or set "
    "storage.followLinks=true for a link, if all users with write access are trusted"
)
_IN_THE_WAY = (
    "{link!r} is a symbolic link, and links are not followed: remove it, or set storage.followLinks=true "
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
def resolve(operation: str, path: str, root: str, prefix: str, *, follow: bool) -> Iterator[Name]:
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
            raise NotADirectory(operation, path, _IN_THE_WAY.format(link=link)) from error
        raise
    finally:
        if directory >= 0:
            os.close(directory)


def is_link(name: Name) -> bool:
    """Return True if the name is a symbolic link."""
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.stat(name.text, dir_fd=name.directory, follow_symlinks=False).st_mode)
    return False


def not_a_file(operation: str, path: str) -> NotAFile:
    """Return the error for a pipe, socket, device or link."""
    return NotAFile(operation, path, _NO_FILE)


def open_file(operation: str, path: str, name: Name, flags: int, mode: int = 0) -> int:
    """Open a file and return its descriptor; raises NotAFile for anything else, without blocking."""
    flags |= name.no_follow | os.O_NONBLOCK  # opening a pipe would block until its other end is opened
    try:
        descriptor = os.open(name.text, flags, mode, dir_fd=name.directory)
    except OSError as error:
        if error.errno == errno.ENXIO or (error.errno == errno.ELOOP and flags & os.O_NOFOLLOW and is_link(name)):
            raise not_a_file(operation, path) from error
        raise
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name.text)
    raise not_a_file(operation, path)


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


def name_beside(name: Name, other: str) -> Name:
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


AT_FDCWD = -100
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
        directory = AT_FDCWD
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
