"""Files that threads of pyarrow read, until their owner takes them back."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import BinaryIO

from ftfile.storage.calls import visited


class LentFile:
    """A file that pyarrow reads, for some formats by threads of its own, which read ahead of what was asked for.

    After the block nothing reads the file: its owner may read it from elsewhere, close it, or end the process.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.is_lent = True
        # A thread takes back what it reads itself where garbage is collected meanwhile.
        self._reading = threading.RLock()
        self._process = os.getpid()
        _lent.add(weakref.ref(self, _lent.discard))

    def __enter__(self) -> None:
        """Lend the file until the end of the block."""

    def __exit__(self, *_: object) -> None:
        self.take_back()

    def read(self, size: int = -1) -> bytes:
        with visited(), self._reading:
            # An exception would be freed by the thread, at any later time.
            return self._file.read(size) if self.is_lent else b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with visited(), self._reading:
            return self._file.seek(offset, whence) if self.is_lent else 0

    def tell(self) -> int:
        with visited(), self._reading:
            return self._file.tell() if self.is_lent else 0

    def close(self) -> None:
        """Leave the file open; its owner closes it."""

    def take_back(self) -> None:
        """End the file for its readers, once the read that runs has ended."""
        if os.getpid() == self._process:  # threads do not survive a fork
            with self._reading:
                self.end()

    def end(self) -> None:
        """End the file for its readers after the read that runs."""
        self.is_lent = False


_lent: set[weakref.ref[LentFile]] = set()


@atexit.register
def end_all() -> None:
    """End the files of readers that nobody has closed: the process waits a while for what they read."""
    for reference in _lent.copy():
        if (file := reference()) is not None:
            file.end()
