"""The operating system's part: its errors as the port's, and watches of directories."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
import weakref
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
from ftfile.core.logs import get_logger
from ftfile.storage.api import READING, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inotify_simple import INotify


_log = get_logger(__name__)

_DENIED = "user id {user} may not do this below {root}; grant it the permission, or run as a user who has it"
_READ_ONLY = "{root} is mounted read-only; mount it for writing, or choose another path"
_NEEDED = "a file is below {root} where a directory is needed; move it or choose another path"
_FULL = "no space is left on the disk of {root}; free space or inodes, or choose another path"
_QUOTA = "the disk quota of user id {user} on {root} is used up; free space or raise the quota"
_TOO_LARGE = "larger than the file system of {root}, or this process, allows for a file (`ulimit -f`)"
_UNABLE = "the file system of {root} cannot do this; choose another path or driver"
_BUSY = "the system is short of a resource for {root}; it may be tried again"

_NUMBERS = (
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
_MEANINGS: dict[int, tuple[type[StorageError], str]] = {
    number: (kind, advice) for kind, advice, numbers in _NUMBERS for number in numbers
}


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


# MODIFY, MOVED_TO, CREATE and MOVE_SELF, of directories alone, by no link. What is deleted needs no haste.
_WRITTEN = 0x2 | 0x80 | 0x100 | 0x800 | 0x01000000 | 0x02000000
_MOVE_SELF = 0x800


def open_watch(root: str) -> Watch | None:
    """Return a watch of directories below a root, by Linux's inotify; None elsewhere, or if there is no room for it."""
    if sys.platform != "linux":
        return None
    from inotify_simple import INotify  # noqa: PLC0415 - streams of files alone need it, on Linux alone

    try:
        notifier = INotify(nonblocking=True)
    except OSError as error:
        _log.info("%r is listed at intervals alone, without inotify (fs.inotify.max_user_instances): %s", root, error)
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
                    "%r and other directories below %r are listed at intervals alone, as inotify has no room "
                    "(fs.inotify.max_user_watches)", directory, self._root
                )  # fmt: skip

    def changed(self, wait_s: float = 0.0) -> bool:
        try:
            events = self._notifier.read(timeout=math.ceil(wait_s * 1000))
        except OSError:
            return False
        for event in events:
            if event.mask & _MOVE_SELF:
                # Where it is now, nobody may ask for it; else the next listing adds it again.
                with contextlib.suppress(OSError):
                    self._notifier.rm_watch(event.wd)
        return bool(events)
