"""Renaming on a POSIX system without ever replacing the target."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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


def rename_in_one_step(source: str, target: str) -> bool:
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


def rename_in_two_steps(source: str, target: str) -> None:
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
