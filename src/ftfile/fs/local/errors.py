"""The operating system's errors as the port's, with what to do about them."""

from __future__ import annotations

import errno
import os

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
from ftfile.fs.calls.error_translation import ErrorTranslator

__all__ = ("Translated", "storage_error")

_READING = frozenset({"open", "read", "read_at", "stat", "list"})

_DENIED = "user id {user} may not do this below {root}; grant it the permission, or run as a user who has it"
_FULL = "no space is left on the disk of {root}; free space or inodes, or choose another path"
_BUSY = "the system is short of a resource for {root}; it may be tried again"
_UNABLE = "the file system of {root} cannot do this; choose another path or driver"

_MEANINGS: dict[int, tuple[type[StorageError], str]] = {
    errno.ENOENT: (NotFound, "nothing is there below {root}"),
    errno.EISDIR: (NotFound, "a directory is there below {root}, and a file was asked for"),
    errno.EEXIST: (AlreadyExists, "something is there already below {root}; nothing is ever overwritten"),
    errno.ENOTDIR: (
        NotADirectory,
        "a file is below {root} where a directory is needed; move it or choose another path",
    ),
    errno.EACCES: (PermissionDenied, _DENIED),
    errno.EPERM: (PermissionDenied, _DENIED),
    errno.EROFS: (
        PermissionDenied,
        "{root} is mounted read-only; mount it for writing, or choose another path",
    ),
    errno.ENOSPC: (OutOfSpace, _FULL),
    errno.EDQUOT: (
        OutOfSpace,
        "the disk quota of user id {user} on {root} is used up; free space or raise the quota",
    ),
    errno.EFBIG: (
        OutOfSpace,
        "larger than the file system of {root}, or this process, allows for a file (`ulimit -f`)",
    ),
    errno.ENAMETOOLONG: (Unsupported, "a name or the whole path below {root} is too long; shorten it"),
    errno.EXDEV: (Unsupported, "source and target below {root} lie on different devices; keep both on one"),
    errno.EINVAL: (Unsupported, _UNABLE),
    errno.EILSEQ: (Unsupported, "the file system of {root} does not allow this name; choose another one"),
    errno.ELOOP: (Unsupported, "too many symbolic links below {root}; replace them by the real path"),
    errno.EMLINK: (Unsupported, _UNABLE),
    errno.ENOSYS: (Unsupported, _UNABLE),
    errno.EOPNOTSUPP: (Unsupported, _UNABLE),
    errno.EMFILE: (Unavailable, "this process has too many open files; close some or raise `ulimit -n`"),
    errno.ENFILE: (Unavailable, "this machine has too many open files; close some or raise fs.file-max"),
    errno.EAGAIN: (Unavailable, _BUSY),
    errno.EBUSY: (Unavailable, _BUSY),
    errno.EINTR: (Unavailable, _BUSY),
    errno.ENOMEM: (Unavailable, _BUSY),
    errno.ENOBUFS: (Unavailable, _BUSY),
}


def storage_error(error: OSError, operation: str, path: str, root: str) -> StorageError:
    """Return the port's error for `error` of `operation` on `path`, relative to `root`."""
    kind, advice = _MEANINGS.get(error.errno or 0, (None, ""))
    if kind is None:
        # EIO, ESTALE, ETIMEDOUT ...: a read changed nothing, of a change nobody knows.
        kind = Unavailable if operation in _READING else OutcomeUnknown
        advice = "the device or server of {root} failed; see the kernel log and check it"
    if error.errno == errno.ENOTDIR and _is_dangling(error.filename):
        detail = f"{error.filename!r} is a symbolic link to {os.readlink(error.filename)!r}, which is not there"
        return kind(operation, path, f"{detail}: make that directory, or correct the link")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return kind(operation, path, f"{reason}: {advice.format(root=root, user=os.geteuid())}")


def _is_dangling(name: object) -> bool:
    return isinstance(name, str) and os.path.islink(name) and not os.path.exists(name)


class Translated(ErrorTranslator):
    """A `with` block, of a path on this machine, in which the operating system's errors become the port's."""

    __slots__ = ("_full",)

    errors = (OSError,)

    def __init__(self, operation: str, path: str, where: str, full: str = "") -> None:
        super().__init__(operation, path, where)
        self._full = full

    def __enter__(self) -> str:
        return self._full

    def _translated(self, error: Exception) -> StorageError:
        assert isinstance(error, OSError)
        return storage_error(error, self._operation, self._path, self._where)
