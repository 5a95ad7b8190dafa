"""The file with the tokens of the driver's JVM, which Spark replaces there and nowhere else.

The driver's program writes it. The Python processes of the driver find it by the number of the JVM, from which they
descend.
"""

from __future__ import annotations

import contextlib
import os
import re

from ftfile.storage.hdfs.credentials.private_files import (
    make_user_directory,
    remove_files_of_ended_processes,
    user_directories,
    write_private,
)

_PREFIX = "tokens-"
_STATUS = re.compile(rb"\) \S (\d+)")
# The JVMs for which this process writes the file.
_kept: set[int] = set()


def keep_tokens(jvm: int, content: bytes) -> bool:
    """Replace the file of a JVM, and use it in this process; return False if it already has this content.

    Raises `OSError` if it cannot be written.
    """
    directory = make_user_directory()
    if jvm not in _kept:
        remove_files_of_ended_processes(directory, _PREFIX)
    _kept.add(jvm)
    path = os.path.join(directory, f"{_PREFIX}{jvm}")
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        if file.read() == content:
            return False
    write_private(path, content)
    return True


def forget_tokens(jvm: int) -> None:
    """Delete the file of a JVM; idempotent."""
    _kept.discard(jvm)
    for directory in user_directories():
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, f"{_PREFIX}{jvm}"))


def kept_file() -> str | None:
    """Return the file with the tokens of this process's JVM; None if no program keeps them."""
    directories = user_directories()
    if not directories:
        return None
    for process in (*_kept, *_ancestors()):
        for directory in directories:
            path = os.path.join(directory, f"{_PREFIX}{process}")
            if os.path.exists(path):
                return path
    return None


def _ancestors() -> list[int]:
    """Return the processes from which this process descends; where the system has no /proc, only its parent."""
    processes: list[int] = []
    process = os.getppid()
    while process > 1:
        processes.append(process)
        process = _parent(process)
    return processes


def _parent(process: int) -> int:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            status = _STATUS.search(file.read())
    except OSError:
        return 0
    if status is None:
        return 0
    return int(status[1])
