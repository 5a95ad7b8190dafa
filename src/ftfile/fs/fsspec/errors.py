"""Translation of errors of fsspec's file systems, and of the libraries below them."""

from __future__ import annotations

import errno

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

__all__ = ("remote_error",)

# A call of these that failed has changed nothing.
_READING = frozenset({"open", "read", "read_at", "stat", "list"})

_DENIED = "the store refuses it to these credentials: see which they are, and what they allow"

_MEANINGS: tuple[tuple[type[Exception], type[StorageError], str], ...] = (
    (FileNotFoundError, NotFound, "nothing is there"),
    (IsADirectoryError, NotFound, "a directory is there, and a file was asked for"),
    (NotADirectoryError, NotADirectory, "a file is where a directory is needed"),
    (FileExistsError, AlreadyExists, "something is there already; nothing is ever overwritten"),
    (PermissionError, PermissionDenied, _DENIED),
    (NotImplementedError, Unsupported, "the implementation cannot do this"),
)

_NUMBERS: dict[int, tuple[type[StorageError], str]] = {
    errno.ENOSPC: (OutOfSpace, "the store is full"),
    errno.EDQUOT: (OutOfSpace, "a quota is used up"),
    errno.ENAMETOOLONG: (Unsupported, "the name is too long for the store; shorten it"),
}

# By the names under which libraries keep the status of HTTP.
_STATUS_NAMES = ("status_code", "status", "code")
_DENYING = frozenset({401, 403})
_GONE = 404

# The caller is wrong, or the library: trying again brings nothing.
_MISTAKES = (TypeError, ValueError, AttributeError, LookupError, AssertionError)


def remote_error(
    operation: str, path: str, where: str, error: Exception, text: str | None = None, *, is_upload: bool = False
) -> StorageError:
    """Return the port's error; after an unknown one, a change may or may not have taken effect.

    Args:
        operation: the port's method.
        path: its argument.
        where: the root below which the path is.
        error: raised by the implementation.
        text: shown in place of the error's own.
        is_upload: a file is made, and "nothing is there" is said of the upload: perhaps the library ended it twice.
    """
    kind, advice = _meaning(error) or (None, "")
    if is_upload and kind is NotFound:
        kind = None
    if kind is None and operation not in _READING:
        kind, advice = OutcomeUnknown, "it may have happened"
    if kind is None:
        kind = StorageError if isinstance(error, _MISTAKES) else Unavailable
        advice = "the implementation failed"
    shown = (str(error) if text is None else text).strip()
    return kind(operation, path, f"{type(error).__name__} below {where}: {shown or 'no text'}: {advice}")


def _meaning(error: Exception) -> tuple[type[StorageError], str] | None:
    for raised, kind, advice in _MEANINGS:
        if isinstance(error, raised):
            return kind, advice
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return _NUMBERS[error.errno]
    for name in _STATUS_NAMES:
        status = getattr(error, name, None)
        if status in _DENYING:
            return PermissionDenied, _DENIED
        if status == _GONE:
            return NotFound, "nothing is there"
    return None
