"""The operating system's errors as the port's, with what to do about them."""

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


_DENIED = "user id {user} may not do this below {root}; grant it the permission, or run as a user who has it"
_READ_ONLY = "{root} is mounted read-only; mount it for writing, or choose another path"
_NEEDED = "a file is below {root} where a directory is needed; move it or choose another path"
_FULL = "no space is left on the disk of {root}; free space or inodes, or choose another path"
_QUOTA = "the disk quota of user id {user} on {root} is used up; free space or raise the quota"
_TOO_LARGE = "larger than the file system of {root}, or this process, allows for a file (`ulimit -f`)"
_UNABLE = "the file system of {root} cannot do this; choose another path or driver"
_BUSY = "the system is short of a resource for {root}; it may be tried again"

_NUMBERS: tuple[tuple[type[StorageError], str, tuple[int, ...]], ...] = (
    (NotFound, "nothing is there below {root}", (errno.ENOENT,)),
    (NotFound, "a directory is there below {root}, and a file was asked for", (errno.EISDIR,)),
    (AlreadyExists, "something is there already below {root}; nothing is ever overwritten", (errno.EEXIST,)),
    (NotADirectory, _NEEDED, (errno.ENOTDIR,)),
    (PermissionDenied, _DENIED, (errno.EACCES, errno.EPERM)),
    (PermissionDenied, _READ_ONLY, (errno.EROFS,)),
    (OutOfSpace, _FULL, (errno.ENOSPC,)),
    (OutOfSpace, _QUOTA, (errno.EDQUOT,)),
    (OutOfSpace, _TOO_LARGE, (errno.EFBIG,)),
    (Unsupported, "a name or the whole path below {root} is too long; shorten it", (errno.ENAMETOOLONG,)),
    (Unsupported, "source and target below {root} lie on different devices; keep both on one", (errno.EXDEV,)),
    (Unsupported, "the file system of {root} does not allow this name; choose another one", (errno.EILSEQ,)),
    (Unsupported, "too many symbolic links below {root}; replace them by the real path", (errno.ELOOP,)),
    (Unsupported, _UNABLE, (errno.EINVAL, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)),
    (Unavailable, "this process has too many open files; close some or raise `ulimit -n`", (errno.EMFILE,)),
    (Unavailable, "this machine has too many open files; close some or raise fs.file-max", (errno.ENFILE,)),
    (Unavailable, _BUSY, (errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOMEM, errno.ENOBUFS)),
)
_MEANINGS = {number: (kind, advice) for kind, advice, numbers in _NUMBERS for number in numbers}


def storage_error(error: OSError, operation: str, path: str, root: str) -> StorageError:
    """Return the port's error for one of the operating system."""
    kind, advice = _MEANINGS.get(error.errno or 0, (None, ""))
    if kind is None:
        # EIO, ESTALE, ETIMEDOUT ...: a read changed nothing, a change may have happened.
        kind = Unavailable if operation in READING else OutcomeUnknown
        advice = "the device or server of {root} failed; see the kernel log and check it"
    if link := _dangling_link(error, root):
        detail = f"{link!r} is a symbolic link to {os.readlink(link)!r}, which is not there"
        return NotADirectory(operation, path, f"{detail}: make that directory, or correct the link")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return kind(operation, path, f"{reason}: {advice.format(root=root, user=os.geteuid())}")


def _dangling_link(error: OSError, root: str) -> str:
    """Return the link to nothing that is in the way of making a directory, or at or above the root; empty for none."""
    places: list[str] = []
    if error.errno == errno.ENOTDIR and isinstance(error.filename, str):
        places = [error.filename]
    elif error.errno == errno.ENOENT and not os.path.exists(root):
        places = [root, *map(str, PurePosixPath(root).parents)]
    return next((place for place in places if os.path.islink(place) and not os.path.exists(place)), "")


@contextlib.contextmanager
def translated(operation: str, path: str, root: str, full: str = "") -> Iterator[str]:
    """Raise the operating system's errors within the block as the port's; the block gets `full`."""
    try:
        yield full
    except OSError as error:
        raise storage_error(error, operation, path, root) from error
