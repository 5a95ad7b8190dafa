"""Folding of rows of several runs, ordered by position, into one row for each key, in windows of bounded memory."""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.errors import EncodingError, UserCodeError
from ftfile.kv.definition import DELETE, DELETED_MS, MERGE, OP, SET, operations
from ftfile.kv.key_columns import (
    StoredKeys,
    arrays_named,
    bools_of,
    contain,
    first_fall,
    key_scalars,
    order_of,
    text_of_value,
    union,
)
from ftfile.kv.merge_functions import LAST, combine_pairs, combine_values, is_merge_name, wide_type
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import bools_from, from_numpy, is_valid, numbers_from, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key, KeyRange

    Numbers = NDArray[np.int64]
    Values = tuple[Any, ...]
    KeyOf = Callable[[int], Sequence[pa.Scalar]]  # returns the key of a row, given its number


def fold(
    sorted_runs: Sequence[pa.Table],
    definition: StoreDefinition,
    *,
    is_bottommost: bool,
    purges: Sequence[Sequence[KeyRange]] = (),
    expired_ms: int | None = None,
) -> pa.Table:
    """Fold the rows of tables into one table, sorted by key, with one row for each key.

    The last set or delete of a key counts, with the merges after it. Merges without a set or delete stay merges, so
    folding the result with older rows is equal to folding everything at once. At the bottom, merges become sets. With a
    sequence column, the row with the greatest value counts, and the last one of equal rows.

    Args:
        sorted_runs: tables, old to new, with the columns of the definition, `_deletedMs` and `_op`. Within a table, a
            later row of a key is newer; rows need not be sorted. Keys and the sequence column contain no nulls.
        definition: of the store.
        is_bottommost: True if no older rows of these keys exist: deletes are dropped.
        purges: for each table, the key ranges whose rows in all earlier tables end; empty for no purges.
        expired_ms: with a sequence column, deletes before this time are dropped at the bottom. Later deletes stay, so
            that a late older row stays deleted. None keeps all deletes.

    Raises:
        ConfigError: the caller has not named a class that merges values.
        EncodingError: a merged value does not fit into its column, such as a sum above 64 bits; it names the key.
        UserCodeError: a user's merge function failed; it names the key.
    """
    rows = _drop_purged(sorted_runs, definition, purges)
    if not rows.num_rows:
        return _finish_fold(rows)
    keys = arrays_named(rows, definition.keys)
    if first_fall(keys) is None:
        columns, ops = rows.select(rows.column_names[:-1]), operations(rows)
        ops = np.where((ops == MERGE) & is_bottommost, SET, ops).astype(np.int8)
    else:
        columns, ops = _fold_several(
            rows, keys, definition, lambda row: [column[row] for column in keys], is_bottommost=is_bottommost
        )
    folded = columns.append_column(pa.field(OP, pa.int8()), from_numpy(ops, pa.int8()))
    return _finish_fold(_without_deletes(folded, expired_ms) if is_bottommost else folded)


def fold_by(numbers: Numbers, rows: pa.Table, definition: StoreDefinition, key_of: KeyOf) -> tuple[Numbers, pa.Table]:
    """Return the rows of key numbers, folded by `fold` as at the bottom; deleted keys are dropped.

    Args:
        numbers: key number of each row, in any order. Several numbers may have the same key.
        rows: value columns and operations of the rows, old to new.
        definition: of the store.
        key_of: returns the key of a row, for errors.

    Returns:
        The numbers that have a row, each once, and their value columns.

    Raises:
        ConfigError, EncodingError, UserCodeError: as `fold`.
    """
    if not rows.num_rows:
        return numbers, rows.drop_columns([OP])
    columns, ops = _fold_several(rows, [numbers_from(numbers)], definition, key_of, is_bottommost=True)
    has_row = ops != DELETE
    # Arrow reports no rows for a table without columns, as in a store that contains only keys.
    return np.unique(numbers)[has_row], columns.filter(bools_from(has_row)) if columns.num_columns else columns


def fold_values(rows: Sequence[tuple[int, Values]], key: Key, definition: StoreDefinition) -> Values | None:
    """Return the values of a key, folded by `fold` as at the bottom; None if the key has no row.

    `rows` are pairs of operation and Python values, new to old. Without a sequence column, rows after the first set or
    delete may be omitted. Raises the same errors as `fold`.
    """
    if definition.sequence is not None:
        place = definition.values.index(definition.sequence)
        op, values = max(rows, key=lambda row: row[1][place])  # the first of equal rows is the newest
        if op == DELETE:
            return None
        return values
    operands = [values for op, values in rows if op != DELETE]
    if not operands:
        return None
    if len(operands) == 1:
        return operands[0]
    definition.require_code()
    folded = [*operands[0]]
    for place, name in enumerate(definition.values):
        function = definition.merge.get(name, LAST)
        if function != LAST:
            kind = definition.value_fields[place].type
            try:
                folded[place] = combine_values(function, [values[place] for values in reversed(operands)], kind)
            except Exception as error:
                raise _error(function, name, key_scalars(key, definition.key_types), error) from error
    return tuple(folded)


def _fold_several(
    rows: pa.Table, by: Sequence[pa.Array], definition: StoreDefinition, key_of: KeyOf, *, is_bottommost: bool
) -> tuple[pa.Table, NDArray[np.int8]]:
    """Return one row for each group of rows with equal `by` columns, sorted by these columns, and the operations."""
    if definition.sequence is None:
        sequence = []
    else:
        sequence = [rows[definition.sequence].combine_chunks()]
    order = order_of([*by, *sequence])
    groups = _groups(by, order)
    ops = operations(rows)[order]
    bases = np.maximum.reduceat(np.where(ops == MERGE, -1, np.arange(len(ops))), groups.starts)
    groups = replace(groups, starts=np.maximum(bases, groups.starts))
    lasts = groups.ends - 1
    new_ops = np.where(bases == lasts, ops[lasts], SET if is_bottommost else MERGE)
    new_ops = np.where((bases >= 0) & (bases < lasts), SET, new_ops).astype(np.int8)
    columns = rows.select(rows.column_names[:-1])
    newest = numbers_from(order[lasts])
    if definition.merge and np.any(groups.starts < lasts):
        definition.require_code()
        arrays = []
        for name in columns.column_names:
            function = definition.merge.get(name)
            if function is None:
                arrays.append(rows[name].take(newest))
            else:
                values = rows[name].combine_chunks()
                arrays.append(merge_column(values, groups, name=name, function=function, key_of=key_of))
        columns = pa.table(arrays, names=columns.column_names)
    else:
        columns = columns.take(newest)
    return columns, new_ops


def _drop_purged(
    sorted_runs: Sequence[pa.Table], definition: StoreDefinition, purges: Sequence[Sequence[KeyRange]]
) -> pa.Table:
    """Return all rows, old to new, without rows that a later purge ends."""
    rows = definition.align(pa.concat_tables(sorted_runs, promote_options="permissive")).combine_chunks()
    if not any(purges):
        return rows
    keys = arrays_named(rows, definition.keys)
    is_ended = np.zeros(rows.num_rows, np.bool_)
    ended: tuple[KeyRange, ...] = ()
    end = rows.num_rows
    for sorted_run, run_purges in zip(reversed(sorted_runs), reversed(purges), strict=True):
        start = end - sorted_run.num_rows
        if ended and start < end:
            is_ended[start:end] = contain(ended, [column[start:end] for column in keys])
        ended, end = union((*ended, *run_purges)), start
    return rows.filter(bools_from(~is_ended)).combine_chunks()


def _groups(by: Sequence[pa.Array], order: NDArray[np.int64]) -> Groups:
    differs = np.zeros(len(order) - 1, np.bool_)
    for unordered in by:
        column = unordered.take(numbers_from(order))
        differs |= bools_of(pc.not_equal(column[1:], column[:-1]))
    starts = np.flatnonzero(np.concatenate(([True], differs)))
    return Groups(order, starts, np.append(starts[1:], len(order)))


def _without_deletes(folded: pa.Table, expired_ms: int | None) -> pa.Table:
    is_kept = operations(folded) != DELETE
    if DELETED_MS in folded.column_names:
        deleted_ms = folded[DELETED_MS].combine_chunks()
        is_late = is_valid(deleted_ms) & (values_of(deleted_ms, np.int64) >= (expired_ms or 0))
        is_kept |= np.True_ if expired_ms is None else is_late
    return folded.filter(bools_from(is_kept))


def _finish_fold(folded: pa.Table) -> pa.Table:
    """Return rows without delete times and operations, if these contain no information."""
    ops = operations(folded)
    if DELETED_MS in folded.column_names and not np.any(ops == DELETE):
        folded = folded.drop_columns([DELETED_MS])
    if np.any(ops != SET):
        return folded
    return folded.drop_columns([OP])


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows: `order[starts[i]:ends[i]]` are the row numbers of group i, old to new."""

    order: Numbers
    starts: Numbers
    ends: Numbers


@dataclass(eq=False)
class _RowError(Exception):
    """A function failed for a row."""

    row: int  # number of the row
    cause: Exception


def merge_column(column: pa.Array, groups: Groups, name: str, function: str, key_of: KeyOf) -> pa.Array:
    """Return the merged value of each group, from the non-null values of a column; raises the same errors as `fold`."""
    sizes = groups.ends - groups.starts
    sources = groups.order[groups.ends - 1].copy()  # index of the value by group
    several = np.flatnonzero(sizes > 1)
    owners = np.repeat(several, sizes[several])
    places = np.arange(len(owners)) - np.repeat(np.cumsum(sizes[several]) - sizes[several], sizes[several])
    values = column.take(numbers_from(groups.order[groups.starts[owners] + places]))
    # Results are cast to the column type only at the end: whether an overflow occurs must not depend on the grouping.
    values = values.cast(wide_type(function, values, int(sizes.max(initial=0))))
    try:
        values, owners = _combine_values(values, owners, function)
        values = _by_rows(lambda wide_values: wide_values.cast(column.type), owners, values)
    except _RowError as error:
        key = key_of(int(groups.order[groups.ends[error.row] - 1]))
        raise _error(function, name, key, error.cause) from error.cause
    sources[several] = -1
    sources[owners] = len(column) + np.arange(len(values))
    return pa.concat_arrays([column, values]).take(from_numpy(sources, pa.int64(), sources >= 0))


def _combine_values(values: pa.Array, owners: Numbers, function: str) -> tuple[pa.Array, Numbers]:
    """Return one value for each owner that has values; the values of an owner are adjacent.

    Nulls, including null results of functions, are dropped before each round, so functions never receive a null.
    """
    while True:
        if values.null_count:
            has_value = is_valid(values)
            values, owners = values.filter(bools_from(has_value)), owners[has_value]
        starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))[: len(owners)]
        if len(starts) == len(owners):
            return values, owners
        places = np.arange(len(owners)) - np.repeat(starts, np.diff(np.append(starts, len(owners))))
        is_newer = places % 2 == 1
        newer = np.flatnonzero(is_newer)
        pairs = values.take(numbers_from(newer - 1)), values.take(numbers_from(newer))
        combined = _by_rows(partial(combine_pairs, function), owners[newer], *pairs)
        older = np.flatnonzero(~is_newer)
        is_made = np.concatenate((is_newer, [False]))[older + 1]
        sources = np.where(is_made, len(values) + np.cumsum(is_made) - 1, older)
        values, owners = pa.concat_arrays([values, combined]).take(numbers_from(sources)), owners[older]


def _by_rows(act: Callable[..., pa.Array], owners: Numbers, *columns: pa.Array) -> pa.Array:
    """Return the result of a function of columns; a `_RowError` names the owner of the first row for which it fails."""
    try:
        return act(*columns)
    except Exception as error:
        start, end, cause = 0, len(owners), error
        while end - start > 1:
            middle = (start + end) // 2
            try:
                act(*(column[start:middle] for column in columns))
                start = middle
            except Exception as half_error:
                end, cause = middle, half_error
        raise _RowError(int(owners[start]), cause) from cause


def _error(function: str, column: str, key: Sequence[pa.Scalar], cause: Exception) -> EncodingError | UserCodeError:
    shown = ", ".join(map(text_of_value, key))
    if is_merge_name(function):
        return EncodingError(
            f"merge={column}:{function}: the values of key ({shown}) have no result that column {column!r} can hold: "
            f"{cause}. Write or delete the key: this discards its earlier values"
        )
    return UserCodeError(f"merge={column}:{function}: combine() failed for key ({shown}): {cause!r}")


class _Held(NamedTuple):
    rows: pa.RecordBatch
    keys: StoredKeys


class SortedRows:
    """The rows of a run, sorted by key, read on demand."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, key_columns: int) -> None:
        self._batches = batches
        self._schema = schema
        self._key_columns = key_columns
        self._held: deque[_Held] = deque()
        self._held_bytes = 0
        self._is_ended = False

    def fill(self, size_bytes: int) -> None:
        """Read rows until `size_bytes` are buffered, at least one row, or until the run ends."""
        while not self._is_ended and (not self._held or self._held_bytes < size_bytes):
            batch = next(self._batches, None)
            if batch is None:
                self._is_ended = True
            elif batch.num_rows:
                self._held.append(_Held(batch, StoredKeys(batch.columns[: self._key_columns])))
                self._held_bytes += batch.nbytes

    @property
    def bound(self) -> Key | None:
        """Return the last buffered key, after which more rows may follow; None if all remaining rows are buffered."""
        if self._is_ended:
            return None
        return self._held[-1].keys[-1]

    @property
    def is_empty(self) -> bool:
        """Return True if no row is buffered."""
        return not self._held

    def take(self, bound: Key | None) -> pa.Table:
        """Remove and return the buffered rows up to a key, inclusive; None for all rows."""
        taken: list[pa.RecordBatch] = []
        while self._held:
            rows, keys = self._held[0]
            end = rows.num_rows
            if bound is not None and bound < keys[-1]:
                end = bisect.bisect_right(keys, bound)
            if end:
                taken.append(rows.slice(0, end))
            self._held_bytes -= rows.nbytes
            self._held.popleft()
            if end < rows.num_rows:
                rest = rows.slice(end)
                self._held.appendleft(_Held(rest, StoredKeys(rest.columns[: self._key_columns])))
                self._held_bytes += rest.nbytes
                break
        return pa.Table.from_batches(taken, self._schema)


def windows_of(inputs: Sequence[SortedRows], window_bytes: int) -> Iterator[list[pa.Table]]:
    """Yield the rows of inputs by ascending key ranges: for each range, the rows of each input.

    All inputs together buffer about `window_bytes`, and at least one batch each.
    """
    while True:
        each_bytes = window_bytes // max(len(inputs), 1)
        for rows in inputs:
            rows.fill(each_bytes)
        if all(rows.is_empty for rows in inputs):
            return
        # After the least of the last buffered keys, rows of that input may be missing.
        bounds = []
        for rows in inputs:
            if rows.bound is not None:
                bounds.append(rows.bound)
        bound = min(bounds, default=None)
        yield [rows.take(bound) for rows in inputs]
