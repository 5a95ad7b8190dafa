"""The file of secrets of one process, which ends with it."""

from __future__ import annotations

import atexit
import contextlib
import os

from ftfile.storage.hdfs.credentials.private_files import (
    make_user_directory,
    remove_files_of_ended_processes,
    write_private,
)

_PREFIX = "process-"


class ProcessFile:
    """A file that only this process and other processes of its user can read.

    On Linux it is memory, so it is in no directory, and it ends with the process. Spark ends its Python processes
    without their exit functions, and they can be killed. On other systems, it is a file in a private directory, which
    is removed at the exit or, if the process was killed, when another process writes such a file.

    Attributes:
        path: of the file, after the first `write`.
    """

    def __init__(self) -> None:
        self.path: str | None = None
        self._content = b""
        # Of the memory, with the identity of its file: a program can close descriptors that it does not know.
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None

    def write(self, content: bytes) -> str:
        """Replace the content, for readers in one step, and return the path, which stays the same; idempotent."""
        if self.path is None or self._content != content or not self._exists(self.path):
            if hasattr(os, "memfd_create"):
                self.path = self._write_to_memory(content)
            else:
                self.path = self._write_to_directory(content)
            self._content = content
        return self.path

    def leave_to_parent(self) -> None:
        """Write to another file from now on; call it in a child process after a fork."""
        if self._is_memory():
            os.close(self._descriptor)
        self.path, self._identity = None, None

    def _exists(self, path: str) -> bool:
        return os.path.exists(path) and (self._identity is None or self._is_memory())

    def _is_memory(self) -> bool:
        """Return True if the descriptor is open and refers to the memory."""
        if self._identity is None:
            return False
        try:
            return _identity_of(self._descriptor) == self._identity
        except OSError:
            return False

    def _write_to_memory(self, content: bytes) -> str:
        descriptor = os.memfd_create("ftfile-tokens")
        os.fchmod(descriptor, 0o600)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        if self._is_memory():
            os.dup2(descriptor, self._descriptor, inheritable=False)
            os.close(descriptor)
        else:
            self._descriptor = descriptor
        self._identity = _identity_of(self._descriptor)
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def _write_to_directory(self, content: bytes) -> str:
        directory = make_user_directory()
        path = os.path.join(directory, f"{_PREFIX}{os.getpid()}")
        if path != self.path:
            remove_files_of_ended_processes(directory, _PREFIX)
            atexit.register(_remove, path, os.getpid())
        write_private(path, content)
        return path


def _identity_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _remove(path: str, process: int) -> None:
    if process == os.getpid():  # not in a child process
        with contextlib.suppress(OSError):
            os.unlink(path)
