"""The levels of a bucket, new to old."""

from __future__ import annotations

import io
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.core.answers import Answer
from ftfile.kv.definition import OP, SET
from ftfile.kv.fold import fold
from ftfile.kv.key_columns import union
from ftfile.kv.planning.runs import greatest_end, least_key, purges_of
from ftfile.kv.run.pages import Cache, Shelf
from ftfile.kv.run.reader import END_BYTES, RunReader
from ftfile.kv.run.writer import PAGED_ROWS_MIN, write_run
from ftfile.kv.run_files import CoalescingFiles, open_run
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.kv.planning.runs import Run
    from ftfile.kv.run_files import OpenFiles

    Values = tuple[Any, ...]


# Limits of a cached merge: the size of a run (such runs are read completely anyway), the uncompressed size of all runs,
# and their part of the cache. The cached merge itself takes about twice that part.
_SMALL_BYTES, _CACHED_MERGE_BYTES, _CACHED_MERGE_PART = 1 << 20, 4 << 20, 16
_UNBOUNDED = 1 << 62
_BLOCK_BYTES = 1 << 20  # of a cached merge, which is in memory as a whole


class Sources(NamedTuple):
    """The files, the cache and the definition for all levels of a store."""

    files: OpenFiles
    cache: Cache
    definition: StoreDefinition


class Opened:
    """The open rows of a run or a cached merge."""

    __slots__ = ("_casts", "_op", "get", "is_plain", "reader")

    def __init__(self, reader: RunReader, definition: StoreDefinition) -> None:
        self.reader = reader
        self.get = reader.get
        stored = reader.schema.names[len(definition.keys) :]
        kinds = dict(zip(stored, reader.schema.types[len(definition.keys) :], strict=True))
        types = dict(zip(definition.values, definition.types_of(definition.values), strict=True))
        # True if all rows are sets, with the columns and types of the store.
        self.is_plain = kinds == types and [*kinds] == [*types]
        if OP in stored:
            self._op = stored.index(OP)
        else:
            self._op = None
        # For each value column: its place in the run, and its types in the run and in the store.
        self._casts: list[tuple[int | None, pa.DataType, pa.DataType]] = []
        for name, kind in types.items():
            place = None
            if name in kinds:
                place = stored.index(name)
            self._casts.append((place, kinds.get(name, kind), kind))

    def split(self, row: Values) -> tuple[int, Values]:
        """Return operation and values of a row returned by `get`, in the columns of the store."""
        op = SET if self._op is None else row[self._op]
        values = [None if place is None else _cast(row[place], old, new) for place, old, new in self._casts]
        return op, tuple(values)


def _cast(value: Any, old: pa.DataType, new: pa.DataType) -> Any:  # noqa: ANN401
    if value is None or old == new:
        return value
    return pa.scalar(value, old).cast(new).as_py()


class Part(ABC):
    """One or more runs of a bucket that are read as a unit. Thread-safe."""

    def __init__(self, runs: Sequence[Run], sources: Sources) -> None:
        self.runs = tuple(runs)  # old to new
        self.sources = sources
        self.has_rows = False  # True unless it contains only purges
        # Bounds of the keys of its rows, both inclusive. Without rows, no key is within the bounds.
        self.low: Key = ()
        self.high: Key = ()
        for run in runs:
            if run.metadata.keys is None:
                continue
            first, last = run.metadata.keys
            self.low = min(self.low, first) if self.has_rows else first
            self.high = max(self.high, last)
            self.has_rows = True
        # Key ranges whose rows in older runs are deleted.
        self.purges: tuple[KeyRange, ...] = union(purges_of(runs))
        # The key range of its rows and purges, which decides whether two parts meet.
        self.begins: Key = least_key(runs)
        self.ends: Key | None = greatest_end(runs)
        self._opening: Answer[Opened] | None = None  # in progress in a thread; other threads wait for it
        self._lock = threading.Lock()

    def has_rows_in(self, start: Key | None, end: Key | None) -> bool:
        """Return True if it may have rows in a key range (end exclusive), whose bounds may be prefixes."""
        return self.has_rows and (start is None or start <= self.high) and (end is None or self.low < end)

    @property
    @abstractmethod
    def held(self) -> Opened | None:
        """Return its rows if they are open."""

    def open(self, files: OpenFiles | None = None) -> Opened:
        """Return its rows; the first call opens it, with `files` or the default files.

        Concurrent calls get the same result, even if the cache evicts it at once. If each call opened the part again
        under a lock, a waiting call could starve. Raises the errors of `open_run` and `fold`.
        """
        with self._lock:
            under_way = self._opening
            opening = self._opening = under_way or Answer()
        if under_way is not None:
            return under_way.result()
        try:
            opened = self.held or self._make(files or self.sources.files)
        except BaseException as error:  # including interrupts, or waiting threads would block forever
            self._opening = None
            opening.set_error(error)
            raise
        self._opening = None
        opening.set_result(opened)
        return opened

    @abstractmethod
    def release(self) -> None:
        """Remove its content from the cache; it can still be used."""

    @abstractmethod
    def _make(self, files: OpenFiles) -> Opened: ...


class RunPart(Part):
    """A run that stays open after the first read; its blocks are cached separately."""

    held: Opened | None = None

    def __init__(self, run: Run, sources: Sources) -> None:
        super().__init__([run], sources)

    @property
    def run(self) -> Run:
        """Return the run."""
        return self.runs[0]

    def release(self) -> None:
        """See `Part.release`."""
        if self.held is not None:
            self.held.reader.release()

    def _make(self, files: OpenFiles) -> Opened:
        self.held = Opened(open_run(files, self.run.add, self.sources.cache), self.sources.definition)
        return self.held


class CachedMerge(Part):
    """Small runs with adjacent positions, folded on first read, and cached as a whole."""

    def __init__(self, parts: Sequence[RunPart], sources: Sources) -> None:
        super().__init__([part.run for part in parts], sources)
        self._parts = tuple(parts)  # old to new
        self._shelf: Shelf[Opened] = Shelf(1)

    @property
    def held(self) -> Opened | None:
        """See `Part.held`."""
        self._shelf.used[0] = 1
        return self._shelf.values[0]

    def release(self) -> None:
        """See `Part.release`."""
        self.sources.cache.drop(self._shelf)

    def _make(self, files: OpenFiles) -> Opened:
        definition = self.sources.definition
        tables = parallel(files.fs, lambda part: _table(part.open(files).reader), self._parts)
        purges = [part.purges for part in self._parts]
        rows = fold(tables, definition, is_bottommost=False, purges=purges).combine_chunks()
        content = io.BytesIO()
        write_run(
            content, rows.to_batches(), rows.schema, definition.keys, compression="none", block_bytes=_BLOCK_BYTES
        )
        view = memoryview(content.getvalue())
        path = self.runs[-1].add.path
        reader = RunReader(lambda start, length: view[start : start + length], len(view), path, Cache(_UNBOUNDED))
        # Includes the decoded values that `get` keeps.
        return self.sources.cache.put(self._shelf, 0, Opened(reader, definition), 2 * len(view))


def _table(reader: RunReader) -> pa.Table:
    return pa.Table.from_batches(reader.scan(), reader.schema)


@dataclass(frozen=True, slots=True)
class Level:
    """Parts that do not meet, sorted by key. Only the last part that begins at or before a key can contain it."""

    begins: tuple[Key, ...]  # of the parts
    parts: tuple[RunPart | CachedMerge, ...]
    purges: tuple[KeyRange, ...]  # of all parts

    @classmethod
    def of(cls, parts: Sequence[RunPart | CachedMerge]) -> Level:
        """Return the level of parts, which are sorted by key."""
        starts = []
        purges: list[KeyRange] = []
        for part in parts:
            starts.append(part.begins)
            purges += part.purges
        return cls(tuple(starts), tuple(parts), union(purges))

    def parts_in(self, start: Key | None, end: Key | None) -> list[RunPart | CachedMerge]:
        """Return the parts that may have rows in a key range (end exclusive), whose bounds may be prefixes."""
        return [part for part in self.parts if part.has_rows_in(start, end)]


def levels_of(parts: Iterable[RunPart]) -> tuple[Level, ...]:
    """Arrange parts, given by position, in the fewest levels; return the levels new to old.

    A part is placed directly above the highest level with an older part that it meets, as in the sublevels of Pebble.
    So if two parts meet, the newer part is above.
    """
    levels: list[list[RunPart]] = []  # old to new, each by key
    for part in parts:
        number = len(levels)
        while number and not _meets_any(part, levels[number - 1]):
            number -= 1
        if number == len(levels):
            levels.append([])
        level = levels[number]
        level.insert(bisect_right(level, part.begins, key=attrgetter("begins")), part)
    return tuple(map(Level.of, reversed(levels)))


def _meets_any(part: RunPart, level: Sequence[RunPart]) -> bool:
    """Return True if a part meets a part of a level; only the last one that begins before its end must be checked."""
    end = part.ends
    if end is None:
        count = len(level)
    else:
        count = bisect_right(level, end, key=attrgetter("begins"))
    if not count:
        return False
    last = level[count - 1].ends
    return last is None or last >= part.begins


def cached_merge_of(parts: Sequence[RunPart], sources: Sources) -> CachedMerge | None:
    """Return the newest small runs that fit into the cache, as a cached merge; None for fewer than two runs."""
    start, size_bytes = len(parts), 0
    room_bytes = min(_CACHED_MERGE_BYTES, sources.cache.capacity_bytes // _CACHED_MERGE_PART)
    while start:
        add, metadata = parts[start - 1].run.add, parts[start - 1].run.metadata
        size_bytes += max(add.logical_length, metadata.plain_bytes)
        if add.rows >= PAGED_ROWS_MIN or add.logical_length > _SMALL_BYTES or size_bytes > room_bytes:
            break
        start -= 1
    if len(parts) - start > 1:
        return CachedMerge(parts[start:], sources)
    return None


def open_parts(parts: Iterable[RunPart | CachedMerge], sources: Sources) -> None:
    """Open small runs in parallel; one call reads runs that are adjacent in a file. Raises the errors of `opened`."""
    small: list[RunPart] = []
    for part in parts:
        # Larger runs are not read completely when they are opened; a scan opens them when it reaches them.
        if isinstance(part, RunPart) and part.held is None and part.run.add.logical_length <= END_BYTES:
            small.append(part)
    files = CoalescingFiles(sources.files, [part.run.add for part in small])
    try:
        files.fetch_first()
        parallel(files.fs, lambda part: part.open(files), small)
    finally:
        files.release()
