"""The levels of a bucket, new to old: runs, and overlays, each of which is some small runs folded to one."""

from __future__ import annotations

import io
import threading
from concurrent.futures import Future
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
    from collections.abc import Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.kv.planning.runs import Run
    from ftfile.kv.run_files import OpenFiles

    Values = tuple[Any, ...]


# Small runs are folded in memory: those that are read whole anyway, up to some bytes for an overlay, which takes about
# four times as much of the cache, of which none is to take more than an eighth.
_SMALL_BYTES, _OVERLAY_BYTES, _OVERLAY_PART = 1 << 20, 4 << 20, 32
_UNBOUNDED = 1 << 62
_BLOCK_BYTES = 1 << 20  # of an overlay; it is in memory as a whole


class Sources(NamedTuple):
    """The files, the cache and the definition for all levels of a store."""

    files: OpenFiles
    cache: Cache
    definition: StoreDefinition


class Opened:
    """The rows of a level."""

    __slots__ = ("_casts", "_op", "get", "is_plain", "reader")

    def __init__(self, reader: RunReader, definition: StoreDefinition) -> None:
        self.reader = reader  # of its run
        self.get = reader.getter()  # that of the reader
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


class Level:
    """Runs of a bucket, neighbours in position, that are read as one. Several threads may use it."""

    def __init__(self, runs: Sequence[Run], sources: Sources) -> None:
        self.runs = tuple(runs)  # old to new
        keys = [run.marks.keys for run in runs if run.marks.keys is not None]
        self.has_rows = bool(keys)  # False if it has purges alone
        # No row of it has a lesser key than the one, or a greater one than the other. Without rows, none is between.
        self.low: Key = min((first for first, _ in keys), default=())
        self.high: Key = max((last for _, last in keys), default=())
        # Ranges of keys of which rows end in older levels.
        self.purges: tuple[KeyRange, ...] = union(purge for run in runs for purge in run.marks.purges)
        self._sources = sources
        # The rows of its only run, once that is open: it stays so, and its blocks are cached one by one.
        self.run: Opened | None = None
        self._overlay: Shelf[Opened] = Shelf(1)  # of several
        # The level that this overlay will be folded onto, with all but its newest runs; None if it is folded.
        self.older: Level | None = None
        self._parts: dict[str, Level] = {}  # of an overlay, its runs one by one, by id, once they are wanted
        self._opening: Future[Opened] | None = None  # under way in a thread; others wait for the same
        self._lock = threading.Lock()

    @property
    def is_overlay(self) -> bool:
        """Return True if runs are folded in memory."""
        return len(self.runs) > 1

    def opened(self, files: OpenFiles | None = None) -> Opened:
        """Return its rows; the first call opens its run, or folds its runs, with other files if some are given.

        Calls meanwhile get its result, also if the cache does not keep that: who waited for a lock to fold again could
        wait for ever. It raises as `open_run` and `fold` do.
        """
        if self.run is not None:
            return self.run
        if (overlay := self._overlay.values[0]) is not None:
            self._overlay.used[0] = 1
            return overlay
        with self._lock:
            under_way = self._opening
            opening = self._opening = under_way or Future()
        if under_way is not None:
            return under_way.result()
        try:
            opened = self.held or self._made(files or self._sources.files)
        except BaseException as error:  # also an interrupt, or those who wait would wait for ever
            self._opening = None
            opening.set_exception(error)
            raise
        self._opening = None
        opening.set_result(opened)
        return opened

    def apart(self) -> list[Level]:
        """Return a level for each run, new to old."""
        if not self.is_overlay:
            return [self]
        return [self._parts.setdefault(run.add.id, Level([run], self._sources)) for run in reversed(self.runs)]

    def scanned(self) -> list[Level]:
        """Return the levels that a scan reads, new to old: itself, or its runs, which need not be folded for that."""
        return self.apart() if self.held is None else [self]

    def continuing(self, older: Level) -> Level:
        """Return this overlay, to be folded onto one that is folded already, which has its oldest runs."""
        self.older = older if older.held is not None else older.older
        self._parts = dict(older._parts)
        return self

    @property
    def held(self) -> Opened | None:
        """Return its rows if they are in memory."""
        return self.run if self.run is not None else self._overlay.values[0]

    @property
    def unread(self) -> tuple[Run, ...]:
        """Return the runs that opening it reads: those that the level below is not folded from."""
        older = self.older
        return self.runs if older is None or older.held is None else self.runs[len(older.runs) :]

    def release(self) -> None:
        """Take all of it out of the cache; it can still be used."""
        if self.run is not None:
            self.run.reader.release()
        for part in self._parts.values():
            part.release()
        self._sources.cache.drop(self._overlay)

    def _made(self, files: OpenFiles) -> Opened:
        if not self.is_overlay:
            reader = open_run(files, self.runs[0].add, self._sources.cache)
            self.run = Opened(reader, self._sources.definition)
            return self.run
        folded, size_bytes = self._folded(files)
        return self._sources.cache.put(self._overlay, 0, folded, size_bytes)

    def _folded(self, files: OpenFiles) -> tuple[Opened, int]:
        """Return the runs of an overlay folded to one, and the memory that it takes."""
        older, self.older = self.older, None
        base = None if older is None else older.held
        runs = self.runs if older is None or base is None else self.runs[len(older.runs) :]
        tables = parallel(files.fs, lambda run: _rows_of(run, files), runs)
        purges = [run.marks.purges for run in runs]
        if older is not None and base is not None:
            tables = [_table(base.reader), *tables]
            purges = [(), *purges]
            older.release()
        rows = fold(tables, self._sources.definition, bottom=False, purges=purges).combine_chunks()
        content = io.BytesIO()
        definition = self._sources.definition
        write_run(
            content, rows.to_batches(), rows.schema, definition.keys, compression="none", block_bytes=_BLOCK_BYTES
        )
        view = memoryview(content.getvalue())
        path = self.runs[-1].add.path
        reader = RunReader(lambda start, length: view[start : start + length], len(view), path, Cache(_UNBOUNDED))
        return Opened(reader, definition), 2 * len(view)  # with the values that single reads have


def levels_of(runs: Sequence[Run], sources: Sources) -> list[Level]:
    """Return the levels of a bucket, new to old, for its runs sorted by position."""
    groups: list[list[Run]] = []
    size_bytes, overlay_bytes = 0, min(_OVERLAY_BYTES, sources.cache.capacity_bytes // _OVERLAY_PART)
    for run in runs:
        is_small = run.add.rows < PAGED_ROWS_MIN and run.add.logical_length <= _SMALL_BYTES
        size_bytes += run.add.logical_length
        if not is_small or size_bytes > overlay_bytes or not groups or not groups[-1]:
            groups.append([run])
            size_bytes = run.add.logical_length
        else:
            groups[-1].append(run)
        if not is_small:
            groups.append([])
    return [Level(group, sources) for group in reversed(groups) if group]


def open_levels(levels: Sequence[Level], sources: Sources) -> None:
    """Open levels side by side; runs that are neighbours in a file come with one call. It raises as `opened` does."""
    closed = [level for level in levels if level.held is None]
    # Larger runs are not read whole when they are opened.
    small = (
        run.add for level in closed for run in level.unread if level.is_overlay or run.add.logical_length <= END_BYTES
    )
    files = CoalescingFiles(sources.files, small)
    try:
        files.fetch_first()
        parallel(files.fs, lambda level: level.opened(files), closed)
    finally:
        files.release()


def _rows_of(run: Run, files: OpenFiles) -> pa.Table:
    # With a cache of its own, since what is folded need not be cached twice.
    reader = open_run(files, run.add, Cache(_UNBOUNDED))
    return _table(reader)


def _table(reader: RunReader) -> pa.Table:
    return pa.Table.from_batches(reader.scan(), reader.schema)
