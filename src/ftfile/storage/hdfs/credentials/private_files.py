"""Files of secrets that only the user of this process can read."""

from __future__ import annotations

import contextlib
import os
import stat

from ftfile.core.errors import ConfigError


def write_private(path: str, content: bytes) -> None:
    """Replace a file, for readers in one step. Only the user of this process can read it."""
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # of a writer that was killed
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    os.replace(temporary, path)  # noqa: TID251 - not a part of a directory of ftfile


def temporary_directory() -> str:
    """Return the directory of this host for temporary files."""
    return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - see `make_user_directory`


def user_directory() -> str:
    """Return the directory for files that the processes of a user share; it need not exist."""
    return os.path.join(temporary_directory(), f"ftfile-{os.geteuid()}")


def make_user_directory() -> str:
    """Create and return `user_directory`, or raise `ConfigError` if another user can write to it; idempotent."""
    directory = user_directory()
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    if not is_private(directory):
        raise ConfigError(
            f"{directory!r} must be a directory that only the user {os.geteuid()} can use (mode 0700): remove it, or "
            "set TMPDIR to another directory"
        )
    return directory


def is_private(path: str) -> bool:
    """Return True for a directory, not a link to one, that only the user of this process can use."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
