"""Lookups of many keys and scans of key ranges in one bucket at a version. For a single key see `view.find`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.core.errors import EncodingError, UserCodeError
from ftfile.kv.definition import DELETE, DELETED_MS, MERGE, OP, SET, operations
from ftfile.kv.fold import SortedRows, fold, fold_by, windows_of
from ftfile.kv.key_columns import StoredKeys, contain, order_of
from ftfile.kv.reading.levels import Level, levels_of
from ftfile.kv.run.block_batch import TooManyBytes
from ftfile.kv.run.reader import SCAN_BYTES
from ftfile.rows.buffers import bools_from, from_numpy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.kv.reading.levels import CachedMerge, RunPart, Sources

    Numbers = NDArray[np.int64]


_READ_BYTES_MIN = 64 << 10  # of a run at a time


@dataclass(frozen=True, slots=True)
class Bucket:
    """The runs of a bucket, in levels. Thread-safe; each method raises the errors of opening runs."""

    parts: tuple[RunPart, ...]  # by position
    levels: tuple[Level, ...]  # new to old; the first level is the cached merge, if there is one
    definition: StoreDefinition
    cached_merge: CachedMerge | None = None

    @classmethod
    def of(cls, parts: Sequence[RunPart], sources: Sources, cached_merge: CachedMerge | None = None) -> Bucket:
        """Return a bucket of runs by position; the newest runs are folded into a cached merge if possible."""
        if cached_merge is None:
            return cls(tuple(parts), levels_of(parts), sources.definition)
        older = levels_of(parts[: len(parts) - len(cached_merge.runs)])
        return cls(tuple(parts), (Level.of([cached_merge]), *older), sources.definition, cached_merge)

    def without_cached_merge(self) -> Bucket:
        """Return the same bucket without a cached merge: each run is read separately."""
        return Bucket(self.parts, levels_of(self.parts), self.definition)

    def lookup(self, keys: pa.RecordBatch, hashes: NDArray[np.uint64]) -> tuple[Numbers, pa.Table]:
        """Look up many keys without nulls.

        Returns:
            Indexes of the keys that have rows, and the value columns of their rows, in the same order.
        """
        try:
            return self._lookup(keys, hashes)
        except (EncodingError, UserCodeError):
            if self.cached_merge is None:
                raise
            return self.without_cached_merge().lookup(keys, hashes)
        except TooManyBytes:
            half = len(hashes) // 2
            numbers, rows = self.lookup(keys[:half], hashes[:half])
            more_numbers, more = self.lookup(keys[half:], hashes[half:])
            return np.concatenate([numbers, more_numbers + half]), pa.concat_tables([rows, more])

    def _lookup(self, keys: pa.RecordBatch, hashes: NDArray[np.uint64]) -> tuple[Numbers, pa.Table]:
        hits: list[tuple[Numbers, pa.Table]] = []  # new to old
        remaining = np.arange(len(hashes))
        if any(len(level.parts) > 1 for level in self.levels):
            remaining = order_of(keys.columns)
        has_several = self.definition.sequence is not None
        for level in self.levels:
            if not remaining.size:
                break
            ended = np.zeros(len(hashes), np.bool_)
            for part, asked in _share_keys(level, keys, remaining):
                if part.has_rows:
                    places, rows = part.open().reader.multi_get(_take_rows(keys, asked), hashes[asked])
                    numbers, table = asked[places], self.definition.align(pa.Table.from_batches([rows]))
                    values = table.select([*self.definition.values, OP])
                    hits.append((numbers, values))
                    is_partial = operations(values) == MERGE
                    has_several |= bool(is_partial.any())
                    ended[numbers[~is_partial]] = self.definition.sequence is None
            remaining = remaining[~ended[remaining]]
            if level.purges:
                remaining = remaining[~contain(level.purges, _take_rows(keys, remaining).columns)]
        return self._fold_hits(hits, keys, has_several=has_several)

    def parts_between(self, start: Key | None, end: Key | None) -> list[RunPart | CachedMerge]:
        """Return the parts that a scan of a range (end exclusive) reads."""
        parts: list[RunPart | CachedMerge] = []
        for level in self._scan_levels():
            parts += level.parts_in(start, end)
        return parts

    def scan(
        self, start: Key | None, end: Key | None, columns: Sequence[str], window_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a key range (end exclusive), sorted and folded, in windows of about `window_bytes`.

        The bounds may be prefixes; None is unbounded. The key columns are always returned, and come first.
        """
        definition = _narrow_definition(self.definition, columns)
        shown = schema_to_show(definition, columns).names
        levels: list[list[RunPart | CachedMerge]] = []
        purges: list[Sequence[KeyRange]] = []
        for level in reversed(self._scan_levels()):
            parts = level.parts_in(start, end)
            if parts or level.purges:
                levels.append(parts)
                purges.append(level.purges)
        if not levels:
            return
        read_bytes = max(min(window_bytes // len(levels), SCAN_BYTES), _READ_BYTES_MIN)
        sources = []
        for parts in levels:
            sources.append(_LevelRows(parts, definition, start=start, end=end, read_bytes=read_bytes))
        if len(levels) == 1 and _has_sets_alone(levels[0]):
            for rows in sources[0].align():
                yield batch_of(rows.select(shown))
            return
        for window in windows_of([source.sort() for source in sources], window_bytes):
            rows = fold(window, definition, is_bottommost=True, purges=purges)
            if OP in rows.column_names:
                rows = rows.filter(bools_from(operations(rows) != DELETE))
            if rows.num_rows:
                yield batch_of(rows.select(shown))

    def _scan_levels(self) -> tuple[Level, ...]:
        """Return the levels that a scan reads: an existing cached merge is used, but none is built."""
        is_folded = self.cached_merge is None or self.cached_merge.held is not None
        if is_folded:
            return self.levels
        return levels_of(self.parts)

    def _fold_hits(
        self, hits: Sequence[tuple[Numbers, pa.Table]], keys: pa.RecordBatch, *, has_several: bool
    ) -> tuple[Numbers, pa.Table]:
        """Return the rows of keys, folded by key index; keys may repeat, and deleted keys are dropped."""
        schema = pa.schema([*self.definition.value_fields, pa.field(OP, pa.int8())])
        all_numbers = [np.empty(0, np.int64)]
        tables = [pa.Table.from_batches([], schema)]
        for level_numbers, table in reversed(hits):
            all_numbers.append(level_numbers)
            tables.append(table)
        numbers, rows = np.concatenate(all_numbers), pa.concat_tables(tables)
        if has_several:
            return fold_by(
                numbers, rows, self.definition, lambda row: [column[numbers[row]] for column in keys.columns]
            )
        has_value = operations(rows) != DELETE
        if not has_value.all():
            numbers, rows = numbers[has_value], rows.filter(bools_from(has_value))
        return numbers, rows.drop_columns([OP])


def in_order(count: int, numbers: Numbers, rows: pa.Table) -> tuple[NDArray[np.bool_], list[pa.ChunkedArray]]:
    """Return a mask of the keys with a row, and the columns in key order, null for keys without a row."""
    places = np.full(count, -1)
    places[numbers] = np.arange(len(numbers))
    is_found = places >= 0
    taken = from_numpy(places, pa.int64(), None if is_found.all() else is_found)
    return is_found, [column.take(taken) for column in rows.combine_chunks().columns]


def schema_to_show(definition: StoreDefinition, columns: Sequence[str]) -> pa.Schema:
    """Return the columns that `Bucket.scan` yields: the key columns, then the other requested columns."""
    names = [*definition.keys]
    for name in columns:
        if name not in definition.keys:
            names.append(name)
    return definition.nullable_schema(names)


def _narrow_definition(definition: StoreDefinition, columns: Sequence[str]) -> StoreDefinition:
    """Return the definition without the value columns that are neither requested nor needed to fold."""
    names = {*definition.keys, *columns}
    if definition.sequence is not None:
        names.add(definition.sequence)
    fields = [field for field in definition.schema if field.name in names]
    return replace(definition, schema=pa.schema(fields), merge=definition.merge_of(names))


def _has_sets_alone(parts: Iterable[RunPart | CachedMerge]) -> bool:
    """Return True if all rows of parts are sets."""
    for part in parts:
        if not all(run.metadata.ops == 1 << SET for run in part.runs):
            return False
    return True


def _share_keys(
    level: Level, keys: pa.RecordBatch, numbers: Numbers
) -> Iterator[tuple[RunPart | CachedMerge, Numbers]]:
    """Yield the parts of a level that may contain keys, with the key numbers; several parts need sorted keys."""
    if len(level.parts) == 1:
        yield level.parts[0], numbers
        return
    stored = StoredKeys(keys.columns)
    places = range(len(numbers))
    place = 0
    while place < len(numbers):
        part = bisect_right(level.begins, stored[int(numbers[place])]) - 1
        end = len(numbers)
        if part + 1 < len(level.parts):
            end = bisect_left(places, level.begins[part + 1], place, key=lambda at: stored[int(numbers[at])])
        if part >= 0:
            yield level.parts[part], numbers[place:end]
        place = end


@dataclass(frozen=True, slots=True)
class _LevelRows:
    """The rows of a level's parts in a key range, with the columns of a definition and the columns needed to fold."""

    parts: Sequence[RunPart | CachedMerge]  # by key; a scan opens each part when it reaches it
    definition: StoreDefinition
    start: Key | None
    end: Key | None
    read_bytes: int

    def align(self) -> Iterator[pa.Table]:
        """Yield the rows with the columns of the store, in its types."""
        for part in self.parts:
            batches, _ = self._read(part)
            for batch in batches:
                yield self.definition.align(pa.Table.from_batches([batch]))

    def sort(self) -> SortedRows:
        """Return the rows, to be folded with rows of other levels."""
        key_columns = len(self.definition.keys)
        if len(self.parts) == 1:
            return SortedRows(*self._read(self.parts[0]), key_columns)
        schema = self.definition.align(self.definition.schema.empty_table()).schema
        return SortedRows(map(batch_of, self.align()), schema, key_columns)

    def _read(self, part: RunPart | CachedMerge) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
        reader = part.open().reader
        names = {*self.definition.schema.names, OP, DELETED_MS}
        schema = pa.schema([field for field in reader.schema if field.name in names])
        return reader.scan(self.start, self.end, schema.names, read_bytes=self.read_bytes), schema


def batch_of(table: pa.Table) -> pa.RecordBatch:
    """Return a table with at least one row as one batch."""
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _take_rows(keys: pa.RecordBatch, numbers: Numbers) -> pa.RecordBatch:
    return keys.take(from_numpy(numbers.astype(np.int64, copy=False), pa.int64()))
