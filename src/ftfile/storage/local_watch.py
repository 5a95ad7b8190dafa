"""A watch of local directories by Linux's inotify."""

from __future__ import annotations

import contextlib
import errno
import math
import sys
import weakref
from typing import TYPE_CHECKING

from ftfile.core.logs import get_logger
from ftfile.storage.api import Watch

if TYPE_CHECKING:
    from inotify_simple import INotify


_log = get_logger(__name__)


# MODIFY, MOVED_TO, CREATE and MOVE_SELF, only of directories, and not through links. Deletions are not urgent.
_WRITTEN = 0x2 | 0x80 | 0x100 | 0x800 | 0x01000000 | 0x02000000
_MOVE_SELF = 0x800


def open_watch(root: str) -> Watch | None:
    """Return a watch of directories below a root by Linux's inotify; None if no watch is available."""
    if sys.platform != "linux":
        return None
    from inotify_simple import INotify  # noqa: PLC0415 - only streams of files need it, on Linux

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
