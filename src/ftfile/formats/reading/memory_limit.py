"""The memory limit for decoding in a worker of Spark."""

from __future__ import annotations

import os
import resource
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ftfile.core.context import is_worker
from ftfile.core.errors import CorruptData
from ftfile.core.per_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


# For rows that are decoded at once, in addition to the memory of the process: a constant, and a multiple of the stored
# bytes.
MEMORY_BYTES, MEMORY_RATIO = 768 << 20, 4
_STATM_BYTES, _STATM_DATA = 256, 5  # the field of data and stack, in pages


class _ProcessLimit:
    """The limit of a process's memory while decoders run in any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._before = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def begin(self, bytes_max: int) -> None:
        with self._lock:
            soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            if not self._running:
                self._before = soft, hard
            limits = [limit for limit in self._before if limit != resource.RLIM_INFINITY]
            limit = min([_data_bytes() + bytes_max, *limits])
            # If several decoders run, the limit is the sum of their limits.
            resource.setrlimit(resource.RLIMIT_DATA, (max(limit, soft) if self._running else limit, hard))
            self._running += 1

    def end(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                resource.setrlimit(resource.RLIMIT_DATA, self._before)

    def renew(self) -> _ProcessLimit:
        """Return the limit of a forked process, in which no decoder runs."""
        if self._running:
            resource.setrlimit(resource.RLIMIT_DATA, self._before)
        return _ProcessLimit()


_process_limit = PerProcess(_ProcessLimit, in_fork=_ProcessLimit.renew)


def _data_bytes() -> int:
    """Return the memory of this process that counts for `RLIMIT_DATA`, or slightly more."""
    file = os.open("/proc/self/statm", os.O_RDONLY)  # faster than `open`: it is read for each batch
    try:
        return int(os.read(file, _STATM_BYTES).split()[_STATM_DATA]) * resource.getpagesize()
    finally:
        os.close(file)


@contextmanager
def _memory_limit(bytes_max: int) -> Iterator[None]:
    """Limit the memory that the block allocates; a larger allocation raises a `MemoryError`.

    Libraries decode the lengths that a file declares, without a limit. Only Linux has a limit for a process, and only
    workers of Spark use it: in a program of the user, other threads would be limited, too.
    """
    if sys.platform != "linux" or not is_worker():
        yield
        return
    limit = _process_limit.here
    limit.begin(bytes_max)
    try:
        yield
    finally:
        limit.end()


def limit_batches(batches: Iterator[pa.RecordBatch], stored_bytes: int, path: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of `stored_bytes`; each batch is decoded with bounded memory.

    Raises:
        CorruptData: a batch takes more than `MEMORY_BYTES` and `MEMORY_RATIO` times the stored bytes, in a worker of
            Spark;
            elsewhere, more than the available memory.
    """
    bytes_max = MEMORY_BYTES + MEMORY_RATIO * stored_bytes
    while True:
        try:
            with _memory_limit(bytes_max):
                batch = next(batches, None)
        except MemoryError as error:
            within = "the memory of this process"
            if is_worker():
                within = f"{bytes_max} bytes of memory"
            expected = f"batches of rows that can be decoded within {within}"
            raise CorruptData(path, expected, f"more: {error}") from error
        if batch is None:
            return
        yield batch
