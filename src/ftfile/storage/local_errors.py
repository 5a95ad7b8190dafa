"""Errors of the operating system as errors of the interface."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ftfile.core.errors import (
    AlreadyExists,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsupported,
)
from ftfile.storage.api import READING

if TYPE_CHECKING:
    from collections.abc import Iterator


_DENIED = "user id {user} may not do this; grant it the permission, or run as a user who has it"
_READ_ONLY = "the file system is mounted read-only; mount it for writing, or choose another path"
_NEEDED = "a file is where a directory is needed; move it or choose another path"
_FULL = "no space is left on the disk; free space or inodes, or choose another path"
_QUOTA = "the disk quota of user id {user} is exceeded; free space or raise the quota"
_TOO_LARGE = "the file is larger than the file system or this process (`ulimit -f`) allows"
_UNABLE = "the file system cannot do this; choose another path or driver"
_BUSY = "the system lacks a resource; retry later"

_NUMBERS = (
    (NotFound, "it does not exist", (errno.ENOENT,)),
    (NotFound, "it is a directory, not a file", (errno.EISDIR,)),
    (AlreadyExists, "it already exists, and files are never overwritten", (errno.EEXIST,)),
    (NotADirectory, _NEEDED, (errno.ENOTDIR,)),
    (PermissionDenied, _DENIED, (errno.EACCES, errno.EPERM)),
    (PermissionDenied, _READ_ONLY, (errno.EROFS,)),
    (OutOfSpace, _FULL, (errno.ENOSPC,)),
    (OutOfSpace, _QUOTA, (errno.EDQUOT,)),
    (OutOfSpace, _TOO_LARGE, (errno.EFBIG,)),
    (Unsupported, "a name or the whole path is too long; shorten it", (errno.ENAMETOOLONG,)),
    (Unsupported, "source and target are on different devices; keep both on one device", (errno.EXDEV,)),
    (Unsupported, "the file system does not allow this name; choose another name", (errno.EILSEQ,)),
    (Unsupported, "too many symbolic links; use the real path", (errno.ELOOP,)),
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
        advice = "the device or server failed; see the kernel log and check it"
    if link := _dangling_link(error, root):
        detail = f"{link!r} is a symbolic link to {os.readlink(link)!r}, which does not exist"
        return NotADirectory(operation, path, f"{detail}: create that directory, or correct the link")
    if error.errno:
        reason = os.strerror(error.errno)
    else:
        reason = str(error)
    return kind(operation, path, f"{reason}: {advice.format(user=os.geteuid())}")


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
def translate_errors(operation: str, path: str, root: str, full: str = "") -> Iterator[str]:
    """Translate errors of the operating system within the block; the block gets `full`."""
    try:
        yield full
    except OSError as error:
        raise storage_error(error, operation, path, root) from error
