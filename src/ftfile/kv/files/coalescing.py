"""Coalesced reads of small runs: those that are neighbours in a file come with one call."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from ftfile.fs.calls.parallel import parallel
from ftfile.kv.run.cache import Cache, Shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ftfile.commit.format.model import Add
    from ftfile.kv.files.opening import Files

    ReadRange = Callable[[int, int], bytes | memoryview]

# Of all files together.
_RANGE_BYTES = 16 << 20
# Bytes between two runs that cost less than a call.
_GAP_BYTES = 64 << 10


class CoalescingFiles:
    """Files some of whose runs are read soon, about in the order in which they lie there. Threads may share it.

    The first read of a run fetches its neighbours, too, as far as memory for all files allows.
    """

    def __init__(self, files: Files, adds: Iterable[Add]) -> None:
        """Take the runs that will be read."""
        self.fs = files.fs
        self._files = files
        # Where a file goes on to its next range, the last one may still be wanted.
        self._cache = Cache(2 * _RANGE_BYTES)
        by_path: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
        for add in adds:
            by_path[add.path].add((add.offset, add.offset + add.length))
        bytes_max = _RANGE_BYTES // max(len(by_path), 1)
        coalesced = {path: _coalesced(sorted(bounds), bytes_max) for path, bounds in by_path.items()}
        self._ranges = {path: _Ranges(bounds, self._cache) for path, bounds in coalesced.items() if bounds}

    def open(self, path: str) -> ReadRange:
        """Return the function that reads a file, and opens it when it must; both raise as `OpenFiles.open`."""
        if path not in self._ranges:
            return self._files.open(path)
        opened: list[ReadRange] = []

        def fetch(offset: int, length: int) -> bytes | memoryview:
            if not opened:
                opened.append(self._files.open(path))
            return opened[0](offset, length)

        def read_range(offset: int, length: int) -> bytes | memoryview:
            ranges = self._ranges.get(path)
            return fetch(offset, length) if ranges is None else ranges.read(fetch, offset, length)

        return read_range

    def fetch_first(self) -> None:
        """Fetch the first range of each file side by side: levels that are opened at once begin with the same file."""
        parallel(self.fs, lambda path: self.open(path)(self._ranges[path].start, 0), [*self._ranges])

    def release(self) -> None:
        """Forget what was fetched, and fetch no more than is asked for from now on."""
        self._ranges = {}
        self._cache.resize(0)


class _Ranges:
    """Ranges of a file, each fetched as a whole when bytes of it are first read."""

    def __init__(self, bounds: Sequence[tuple[int, int]], cache: Cache) -> None:
        self._starts = [start for start, _ in bounds]
        self._ends = [end for _, end in bounds]
        self._cache = cache
        self._contents: Shelf[bytes | memoryview] = Shelf(len(bounds))
        self._locks = [threading.Lock() for _ in bounds]

    @property
    def start(self) -> int:
        """Return where the first range begins."""
        return self._starts[0]

    def read(self, read: ReadRange, offset: int, length: int) -> bytes | memoryview:
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or offset + length > self._ends[number]:
            return read(offset, length)
        start = self._starts[number]
        with self._locks[number]:
            content = self._contents.values[number]
            if content is None:
                size_bytes = self._ends[number] - start
                content = self._cache.put(self._contents, number, read(start, size_bytes), size_bytes)
            self._contents.used[number] = 1
        return content[offset - start : offset - start + length]


def _coalesced(runs: Sequence[tuple[int, int]], bytes_max: int) -> list[tuple[int, int]]:
    """Return the ranges that have several of these runs of a file, sorted by offset."""
    ranges: list[list[tuple[int, int]]] = []
    for start, end in runs:
        if ranges and start - ranges[-1][-1][1] <= _GAP_BYTES and end - ranges[-1][0][0] <= bytes_max:
            ranges[-1].append((start, end))
        else:
            ranges.append([(start, end)])
    return [(own[0][0], own[-1][1]) for own in ranges if len(own) > 1]
