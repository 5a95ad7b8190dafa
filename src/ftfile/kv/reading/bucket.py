"""A bucket at a version: single keys, many keys, and ranges of keys, folded from its levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.errors import EncodingError, UserCodeError
from ftfile.kv.definition import DELETE, DELETED_MS, MERGE, OP, SET, operations
from ftfile.kv.fold import SortedRows, fold, fold_by, windows_of
from ftfile.kv.key_columns import contain, key_array, overlap
from ftfile.kv.merge_functions import LAST
from ftfile.kv.run.reader import SCAN_BYTES
from ftfile.kv.run.window import TooManyBytes
from ftfile.rows.buffers import bools_from, from_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key
    from ftfile.kv.reading.levels import Level

    Values = tuple[Any, ...]
    Numbers = NDArray[np.int64]


_READ_BYTES_MIN = 128 << 10  # of a run at a time


class _NotHere(Exception):
    """Values are folded with Arrow: they have to be cast, rounded or refused as it does."""


def fold_key(rows: Sequence[tuple[int, Values]], key: Key, definition: StoreDefinition) -> Values | None:
    """Return the values of a key; None if it has none.

    Of each row it takes operation and values, new to old; the first that is no merge is the last one, except with a
    sequence column. It raises as `fold` does.
    """
    if definition.sequence is not None:
        place = definition.values.index(definition.sequence)
        op, values = max(rows, key=lambda row: row[1][place])  # the first of equal ones, which is the newest
        return None if op == DELETE else values
    operands = [values for op, values in rows if op != DELETE]
    if len(operands) <= 1:
        return operands[0] if operands else None
    names = definition.values
    try:
        return tuple(
            _merged([values[place] for values in operands], definition.merge.get(name, LAST), definition, name)
            for place, name in enumerate(names)
        )
    except _NotHere:
        return _folded(operands, key, definition)


def _merged(values: list[Any], function: str, definition: StoreDefinition, name: str) -> Any:  # noqa: ANN401
    """Return the value of a column, given those of its rows, new to old."""
    if function == LAST:
        return values[0]
    present = [value for value in values if value is not None]
    if len(present) <= 1 or function == "coalesce":
        return present[0] if present else None
    kind = definition.schema.field(name).type
    if function == "sum" and kind == pa.int64():
        total = sum(present)
        if type(total) is int and -(1 << 63) <= total < 1 << 63:
            return total
    elif function in {"min", "max"} and not pa.types.is_floating(kind):
        return min(present) if function == "min" else max(present)
    elif function == "append" and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return present[0][:0].join(reversed(present))
    raise _NotHere


def _folded(operands: Sequence[Values], key: Key, definition: StoreDefinition) -> Values:
    kinds = definition.schema.types
    stretches: list[pa.Table] = []
    for values in reversed(operands):
        columns = [key_array([part], kind) for part, kind in zip(key, kinds, strict=False)]
        columns += [pa.array([value], field.type) for value, field in zip(values, definition.value_fields, strict=True)]
        op = pa.array([MERGE if stretches else SET], pa.int8())
        stretches.append(pa.table([*columns, op], names=[*definition.schema.names, OP]))
    row = fold(stretches, definition, bottom=True).to_pylist()[0]
    return tuple(row[name] for name in definition.values)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The levels of a bucket, new to old. Several threads may use it; each method raises what opening levels does."""

    levels: tuple[Level, ...]
    definition: StoreDefinition
    is_unfolded: bool = False  # True if no level is an overlay

    def get(self, key: Key, hashed: int) -> Values | None:
        """Return the values of a key; None if it has none."""
        rows: list[tuple[int, Values]] = []
        all_count = self.definition.sequence is not None  # and not just the newest row
        try:
            for level in self.levels:
                if level.low <= key <= level.high:
                    opened = level.run or level.opened()
                    row = opened.get(key, hashed)
                    if row is not None:
                        if opened.is_plain and not rows and not all_count:
                            return row
                        op, values = opened.split(row)
                        rows.append((op, values))
                        if op != MERGE and not all_count:
                            break
                if level.purges and overlap(level.purges, key, key):
                    break
            return fold_key(rows, key, self.definition) if rows else None
        except (EncodingError, UserCodeError):
            if self.is_unfolded:
                raise
            return self._unfolded().get(key, hashed)

    def lookup(self, keys: pa.RecordBatch, hashes: NDArray[np.uint64]) -> tuple[Numbers, pa.Table]:
        """Look many keys up, none of which has a null.

        Returns:
            Numbers of the keys that have rows, and the value columns of their rows, in one order.
        """
        try:
            return self._lookup(keys, hashes)
        except (EncodingError, UserCodeError):
            if self.is_unfolded:
                raise
            return self._unfolded().lookup(keys, hashes)
        except TooManyBytes:
            half = len(hashes) // 2
            numbers, rows = self.lookup(keys[:half], hashes[:half])
            more_numbers, more = self.lookup(keys[half:], hashes[half:])
            return np.concatenate([numbers, more_numbers + half]), pa.concat_tables([rows, more])

    def _lookup(self, keys: pa.RecordBatch, hashes: NDArray[np.uint64]) -> tuple[Numbers, pa.Table]:
        hits: list[tuple[Numbers, pa.Table]] = []  # new to old
        remaining = np.arange(len(hashes))
        has_several = self.definition.sequence is not None
        for level in self.levels:
            if not remaining.size:
                break
            if level.has_rows:
                numbers, rows = level.opened().reader.multi_get(_taken(keys, remaining), hashes[remaining])
                numbers, rows = remaining[numbers], self._valued(rows)
                hits.append((numbers, rows))
                ops = operations(rows)
                is_partial = ops == MERGE
                has_several |= bool(is_partial.any())
                if self.definition.sequence is None:
                    remaining = np.setdiff1d(remaining, numbers[~is_partial], assume_unique=True)
            if level.purges:
                remaining = remaining[~contain(level.purges, _taken(keys, remaining).columns)]
        return self._folded(hits, keys) if has_several else self._sets(hits)

    def scanned(self, start: Key | None, end: Key | None) -> list[Level]:
        """Return the levels that a scan from one key on and before another reads."""
        levels = [part for level in self.levels if _meets(level, start, end) for part in level.scanned()]
        return [level for level in levels if _meets(level, start, end)]

    def scan(
        self, start: Key | None, end: Key | None, columns: Sequence[str], window_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows from one key on and before another, sorted, folded in windows of about some bytes.

        Both may be prefixes; None for the first row, and for all behind. Key columns come first in any case.
        """
        definition = _narrowed(self.definition, columns)
        shown = shown_schema(definition, columns).names
        levels = [
            part
            for level in reversed(self.levels)
            if _meets(level, start, end) or level.purges
            for part in reversed(level.scanned())
            if _meets(part, start, end) or part.purges
        ]
        if not levels:
            return
        read_bytes = window_bytes // len(levels)
        if len(levels) == 1 and _meets(levels[0], start, end) and not _has_ops(levels[0]):
            for batch in _scanned(levels[0], definition, start, end, read_bytes)[0]:
                yield batch_of(definition.aligned(pa.Table.from_batches([batch])).select(shown))
            return
        sources = [_rows_of(level, definition, start, end, read_bytes) for level in levels]
        purges = [level.purges for level in levels]
        for window in windows_of(sources, window_bytes):
            rows = fold(window, definition, bottom=True, purges=purges)
            rows = rows.filter(bools_from(operations(rows) != DELETE)) if OP in rows.column_names else rows
            if rows.num_rows:
                yield batch_of(rows.select(shown))

    def _unfolded(self) -> Bucket:
        """Return the bucket without overlays, one of which may have a key whose values cannot be merged."""
        levels = tuple(part for level in self.levels for part in level.apart())
        return replace(self, levels=levels, is_unfolded=True)

    def _valued(self, rows: pa.RecordBatch) -> pa.Table:
        """Return the value columns and the operations of rows, as the store has them."""
        table = pa.Table.from_batches([rows])
        names = [*self.definition.values, OP]
        return self.definition.aligned(table).select(names)

    def _sets(self, hits: Sequence[tuple[Numbers, pa.Table]]) -> tuple[Numbers, pa.Table]:
        """Return the rows of keys of which one row counts, without those of deletes."""
        numbers, rows = self._joined(hits)
        ops = operations(rows)
        if (ops == DELETE).any():
            has_value = ops != DELETE
            numbers, rows = numbers[has_value], rows.filter(bools_from(has_value))
        return numbers, rows.drop_columns([OP])

    def _folded(self, hits: Sequence[tuple[Numbers, pa.Table]], keys: pa.RecordBatch) -> tuple[Numbers, pa.Table]:
        """Return the rows of keys, folded by the number of the key, which may be there twice."""
        numbers, rows = self._joined(hits[::-1])
        return fold_by(numbers, rows, self.definition, lambda row: [column[numbers[row]] for column in keys.columns])

    def _joined(self, hits: Sequence[tuple[Numbers, pa.Table]]) -> tuple[Numbers, pa.Table]:
        if not hits:
            schema = pa.schema([*self.definition.value_fields, pa.field(OP, pa.int8())])
            return np.empty(0, np.int64), pa.Table.from_batches([], schema)
        return np.concatenate([numbers for numbers, _ in hits]), pa.concat_tables([rows for _, rows in hits])


def in_order(count: int, numbers: Numbers, rows: pa.Table) -> tuple[NDArray[np.bool_], list[pa.ChunkedArray]]:
    """Return which of some keys have rows, by their numbers, and columns in the order of keys, null for the others."""
    places = np.full(count, -1)
    places[numbers] = np.arange(len(numbers))
    is_found = places >= 0
    taken = from_numpy(places, pa.int64(), None if is_found.all() else is_found)
    return is_found, [column.take(taken) for column in rows.combine_chunks().columns]


def shown_schema(definition: StoreDefinition, columns: Sequence[str]) -> pa.Schema:
    """Return the columns of what `Bucket.scan` yields: those of the keys, then others that are wanted."""
    names = [*definition.keys, *(name for name in columns if name not in definition.keys)]
    return pa.schema([pa.field(name, definition.schema.field(name).type) for name in names])


def _narrowed(definition: StoreDefinition, columns: Sequence[str]) -> StoreDefinition:
    """Return the definition without the value columns that are neither wanted nor needed to fold."""
    names = {*definition.keys, *columns, definition.sequence}
    fields = [field for field in definition.schema if field.name in names]
    merge = {name: function for name, function in definition.merge.items() if name in names}
    return replace(definition, schema=pa.schema(fields), merge=merge)


def _meets(level: Level, start: Key | None, end: Key | None) -> bool:
    """Return True if a level has rows, maybe some from one key on and before another; these may be prefixes."""
    return level.has_rows and (start is None or start <= level.high) and (end is None or level.low < end)


def _has_ops(level: Level) -> bool:
    return any(run.marks.ops != 1 << SET for run in level.runs)


def _rows_of(
    level: Level, definition: StoreDefinition, start: Key | None, end: Key | None, read_bytes: int
) -> SortedRows:
    """Return the rows of a level within a range, with the columns that a definition has, and those to fold them by."""
    if not _meets(level, start, end):
        return SortedRows(iter(()), pa.schema([]), 0)
    batches, schema = _scanned(level, definition, start, end, read_bytes)
    return SortedRows(batches, schema, len(definition.keys))


def _scanned(
    level: Level, definition: StoreDefinition, start: Key | None, end: Key | None, read_bytes: int
) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
    reader = level.opened().reader
    names = {*definition.schema.names, OP, DELETED_MS}
    schema = pa.schema([field for field in reader.schema if field.name in names])
    read_bytes = max(min(read_bytes, SCAN_BYTES), _READ_BYTES_MIN)
    return reader.scan(start, end, schema.names, read_bytes=read_bytes), schema


def batch_of(table: pa.Table) -> pa.RecordBatch:
    """Return a table with at least one row as one batch."""
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _taken(keys: pa.RecordBatch, numbers: Numbers) -> pa.RecordBatch:
    if len(numbers) == keys.num_rows:
        return keys
    return keys.take(from_numpy(numbers.astype(np.int64, copy=False), pa.int64()))
