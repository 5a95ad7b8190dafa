"""The levels of a bucket, new to old: runs that have no key in common, and small runs that are folded in memory."""

from __future__ import annotations

import io
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.kv.definition import OP, SET
from ftfile.kv.fold import fold
from ftfile.kv.key_columns import union
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


# Runs of a memtable: those that are read whole anyway. All of them have at most some bytes, before compression, and
# this part of the cache, of which the memtable takes about twice as much.
_SMALL_BYTES, _MEMTABLE_BYTES, _MEMTABLE_PART = 1 << 20, 4 << 20, 16
_UNBOUNDED = 1 << 62
_BLOCK_BYTES = 1 << 20  # of a memtable; it is in memory as a whole


class Sources(NamedTuple):
    """The files, the cache and the definition for all levels of a store."""

    files: OpenFiles
    cache: Cache
    definition: StoreDefinition


class Opened:
    """Rows that are open, of a run or a memtable."""

    __slots__ = ("_casts", "_op", "get", "is_plain", "reader")

    def __init__(self, reader: RunReader, definition: StoreDefinition) -> None:
        self.reader = reader
        self.get = reader.get
        stored = reader.schema.names[len(definition.keys) :]
        kinds = {name: reader.schema.field(name).type for name in stored}
        types = {name: definition.schema.field(name).type for name in definition.values}
        # True if all rows are sets with the columns of the store, as it has them.
        self.is_plain = kinds == types and [*kinds] == [*types]
        self._op = stored.index(OP) if OP in stored else None
        self._casts = [
            (stored.index(name) if name in kinds else None, kinds.get(name, kind), kind) for name, kind in types.items()
        ]

    def split(self, row: Values) -> tuple[int, Values]:
        """Return operation and values of a row, which `get` returned, in the columns of the store."""
        op = SET if self._op is None else row[self._op]
        values = [None if place is None else _cast(row[place], old, new) for place, old, new in self._casts]
        return op, tuple(values)


def _cast(value: Any, old: pa.DataType, new: pa.DataType) -> Any:  # noqa: ANN401
    return value if value is None or old == new else pa.scalar(value, old).cast(new).as_py()


class Part(ABC):
    """Runs of a bucket that are read as one. Several threads may use it."""

    def __init__(self, runs: Sequence[Run], sources: Sources) -> None:
        self.runs = tuple(runs)  # old to new
        self.sources = sources
        keys = [run.metadata.keys for run in runs if run.metadata.keys is not None]
        self.has_rows = bool(keys)  # False if it has purges alone
        # No row of it has a lesser key than the one, or a greater one than the other. Without rows, none is between.
        self.low: Key = min((first for first, _ in keys), default=())
        self.high: Key = max((last for _, last in keys), default=())
        # Ranges of keys of which rows end in older runs.
        self.purges: tuple[KeyRange, ...] = union(purge for run in runs for purge in run.metadata.purges)
        # It meets others where both have rows or purges.
        self.begins: Key = min(run.begins for run in runs)
        ends = [run.ends for run in runs]
        self.ends: Key | None = None if None in ends else max(end for end in ends if end is not None)
        self._opening: Future[Opened] | None = None  # under way in a thread; others wait for the same
        self._lock = threading.Lock()

    @property
    @abstractmethod
    def held(self) -> Opened | None:
        """Return its rows if they are open."""

    def opened(self, files: OpenFiles | None = None) -> Opened:
        """Return its rows; the first call opens it, with other files if some are given.

        Calls meanwhile get its result, also if the cache does not keep that: who waited for a lock to open it again
        could wait for ever. It raises as `open_run` and `fold` do.
        """
        with self._lock:
            under_way = self._opening
            opening = self._opening = under_way or Future()
        if under_way is not None:
            return under_way.result()
        try:
            opened = self.held or self._made(files or self.sources.files)
        except BaseException as error:  # also an interrupt, or those who wait would wait for ever
            self._opening = None
            opening.set_exception(error)
            raise
        self._opening = None
        opening.set_result(opened)
        return opened

    @abstractmethod
    def release(self) -> None:
        """Take all of it out of the cache; it can still be used."""

    @abstractmethod
    def _made(self, files: OpenFiles) -> Opened: ...


class RunPart(Part):
    """A run: once it was read it stays open, and its blocks are cached one by one."""

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

    def _made(self, files: OpenFiles) -> Opened:
        self.held = Opened(open_run(files, self.run.add, self.sources.cache), self.sources.definition)
        return self.held


class Memtable(Part):
    """Small runs, neighbours in position, folded when they are first read, in the cache as a whole."""

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

    def _made(self, files: OpenFiles) -> Opened:
        definition = self.sources.definition
        tables = parallel(files.fs, lambda part: _table(part.opened(files).reader), self._parts)
        purges = [part.purges for part in self._parts]
        rows = fold(tables, definition, is_bottommost=False, purges=purges).combine_chunks()
        content = io.BytesIO()
        write_run(
            content, rows.to_batches(), rows.schema, definition.keys, compression="none", block_bytes=_BLOCK_BYTES
        )
        view = memoryview(content.getvalue())
        path = self.runs[-1].add.path
        reader = RunReader(lambda start, length: view[start : start + length], len(view), path, Cache(_UNBOUNDED))
        # With the values that single reads have.
        return self.sources.cache.put(self._shelf, 0, Opened(reader, definition), 2 * len(view))


def _table(reader: RunReader) -> pa.Table:
    return pa.Table.from_batches(reader.scan(), reader.schema)


@dataclass(frozen=True, slots=True)
class Level:
    """Parts that do not meet, by key. A key is in the last one that begins up to it, or in none."""

    begins: tuple[Key, ...]  # of the parts
    parts: tuple[RunPart | Memtable, ...]
    purges: tuple[KeyRange, ...]  # of all parts

    @classmethod
    def of(cls, parts: Sequence[RunPart | Memtable]) -> Level:
        """Return the level of parts, which come by key."""
        purges = union(purge for part in parts for purge in part.purges)
        return cls(tuple(part.begins for part in parts), tuple(parts), purges)


def levels_of(parts: Iterable[RunPart]) -> tuple[Level, ...]:
    """Return the levels of parts, which come by position: new to old, as few as there can be.

    A part lies right above the highest of the older ones that it meets, as in the sublevels of Pebble: of two that
    meet, the newer one is above.
    """
    levels: list[list[RunPart]] = []  # old to new, each by key
    for part in parts:
        number = len(levels)
        while number and not _meets_any(part, levels[number - 1]):
            number -= 1
        if number == len(levels):
            levels.append([])
        level = levels[number]
        level.insert(bisect_right(level, part.begins, key=lambda other: other.begins), part)
    return tuple(map(Level.of, reversed(levels)))


def _meets_any(part: RunPart, level: Sequence[RunPart]) -> bool:
    """Return True if a part meets one of a level: if so, it meets the last one that begins before its end."""
    end = part.ends
    count = len(level) if end is None else bisect_right(level, end, key=lambda other: other.begins)
    if not count:
        return False
    last = level[count - 1].ends
    return last is None or last >= part.begins


def memtable_of(parts: Sequence[RunPart], sources: Sources) -> Memtable | None:
    """Return the newest runs folded, as far as they are small and the cache has room; None for fewer than two."""
    start, size_bytes = len(parts), 0
    room_bytes = min(_MEMTABLE_BYTES, sources.cache.capacity_bytes // _MEMTABLE_PART)
    while start:
        add, metadata = parts[start - 1].run.add, parts[start - 1].run.metadata
        size_bytes += max(add.logical_length, metadata.plain_bytes)
        if add.rows >= PAGED_ROWS_MIN or add.logical_length > _SMALL_BYTES or size_bytes > room_bytes:
            break
        start -= 1
    return Memtable(parts[start:], sources) if len(parts) - start > 1 else None


def open_parts(parts: Iterable[RunPart | Memtable], sources: Sources) -> None:
    """Open small runs side by side: those that are neighbours in a file come with one call. It raises as `opened`."""
    closed = [part for part in parts if isinstance(part, RunPart) and part.held is None]
    # Larger ones are not read whole when they are opened, and a scan opens them when it comes to them.
    small = [part for part in closed if part.run.add.logical_length <= END_BYTES]
    files = CoalescingFiles(sources.files, (part.run.add for part in small))
    try:
        files.fetch_first()
        parallel(files.fs, lambda part: part.opened(files), small)
    finally:
        files.release()
