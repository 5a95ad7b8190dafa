"""Files of secrets that only the user of this process can read."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
import tempfile  # noqa: TID251 - not for parts of a directory of ftfile


def write_private(path: str, content: bytes) -> None:
    """Replace a file, for readers in one step. Only the user of this process can read it.

    The directory must be private, so that nobody else can create the temporary file before.
    """
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # of a writer that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
    os.replace(temporary, path)  # noqa: TID251 - not a part of a directory of ftfile


def _first_choice() -> str:
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - `is_private` is checked before each use
    return os.path.join(temporary, f"ftfile-{os.geteuid()}")


def user_directories() -> list[str]:
    """Return the private directories for files that the processes of a user share; empty if there is none.

    There is at most one, unless another user has taken its name.
    """
    first = _first_choice()
    if is_private(first):
        return [first]
    if not os.path.lexists(first):
        return []
    return sorted(filter(is_private, glob.glob(f"{glob.escape(first)}-*")))


def make_user_directory() -> str:
    """Create and return a private directory that `user_directories` finds; idempotent.

    Any user can create a file, a link or a directory with the first name in `/tmp`. Then another name is drawn.
    """
    first = _first_choice()
    with contextlib.suppress(FileExistsError):
        os.mkdir(first, 0o700)
    for directory in user_directories():
        return directory
    directory, prefix = os.path.split(first)
    return tempfile.mkdtemp(prefix=f"{prefix}-", dir=directory)


def is_private(path: str) -> bool:
    """Return True for a directory, not a link to one, that only the user of this process can use."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def is_running(process: int) -> bool:
    """Return True if a process with this number runs, also of another user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def remove_files_of_ended_processes(directory: str, prefix: str) -> None:
    """Delete the files whose names are the prefix and the number of a process that does not run."""
    for name in os.listdir(directory):
        number = name.removesuffix(".new").removeprefix(prefix)
        if name.startswith(prefix) and number.isdigit() and not is_running(int(number)):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, name))
