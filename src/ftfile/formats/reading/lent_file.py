"""Files that threads of pyarrow read until their owner takes them back."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import BinaryIO

from ftfile.core.per_process import PerProcess
from ftfile.storage.calls import visit


class LentFile:
    """A file that pyarrow reads, for some formats by its own threads, which read ahead.

    After the block nothing reads the file: its owner can read it at another place, close it, or end the process. See
    apache/arrow#50482 and apache/arrow#34314 for processes that such threads block or abort at their end.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.is_lent = True
        # A thread that collects garbage can take back a file that it is reading.
        self._reading = threading.RLock()
        self._process = os.getpid()
        lent = _lent.here
        lent.add(weakref.ref(self, lent.discard))

    def __enter__(self) -> None:
        """Lend the file until the end of the block."""

    def __exit__(self, *_: object) -> None:
        self.take_back()

    def read(self, size: int = -1) -> bytes:
        with visit(), self._reading:
            # A stored exception would be freed by the thread later.
            if self.is_lent:
                return self._file.read(size)
            return b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with visit(), self._reading:
            if self.is_lent:
                return self._file.seek(offset, whence)
            return 0

    def tell(self) -> int:
        with visit(), self._reading:
            if self.is_lent:
                return self._file.tell()
            return 0

    def close(self) -> None:
        """Leave the file open; its owner closes it."""

    def take_back(self) -> None:
        """End the file for its readers, after the running read has ended."""
        if os.getpid() == self._process:  # threads do not survive a fork
            with self._reading:
                self.end()

    def end(self) -> None:
        """End the file for its readers after the running read."""
        self.is_lent = False


_lent: PerProcess[set[weakref.ref[LentFile]]] = PerProcess(set)


@atexit.register
def end_all() -> None:
    """End the files of readers that were not closed: the process waits a short time for their reads."""
    for reference in _lent.here.copy():
        if (file := reference()) is not None:
            file.end()
