"""Sorted rows of several runs, a range of keys at a time, in memory that does not grow with the runs."""

from __future__ import annotations

import bisect
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.kv.key_columns import key_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.kv.key_values import Key


class _Held(NamedTuple):
    rows: pa.RecordBatch
    key: Callable[[int], Key]


class SortedRows:
    """The rows of a run, sorted by key, each read when it is wanted."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, key_columns: int) -> None:
        self.taken = 0  # number of rows that were given out
        self._batches = batches
        self._schema = schema
        self._key_columns = key_columns
        self._held: deque[_Held] = deque()
        self._held_bytes = 0
        self._is_ended = False

    def fill(self, size_bytes: int) -> None:
        """Hold as many bytes, at least a row, or all that are left."""
        while not self._is_ended and (not self._held or self._held_bytes < size_bytes):
            batch = next(self._batches, None)
            if batch is None:
                self._is_ended = True
            elif batch.num_rows:
                self._held.append(_Held(batch, key_reader(batch.columns[: self._key_columns])))
                self._held_bytes += batch.nbytes

    @property
    def bound(self) -> Key | None:
        """Return the last key that is held, behind which more may come; None if all that are left are held."""
        if self._is_ended:
            return None
        last = self._held[-1]
        return last.key(last.rows.num_rows - 1)

    @property
    def is_empty(self) -> bool:
        """Return True if no row is held."""
        return not self._held

    def take(self, bound: Key | None) -> pa.Table:
        """Return the rows that are held up to a key, itself included; None for all."""
        taken: list[pa.RecordBatch] = []
        while self._held:
            rows, key = self._held[0]
            end = rows.num_rows
            if bound is not None and bound < key(end - 1):
                end = bisect.bisect_right(range(end), bound, key=key)
            if end:
                taken.append(rows.slice(0, end))
            self._held_bytes -= rows.nbytes
            self._held.popleft()
            if end < rows.num_rows:
                rest = rows.slice(end)
                self._held.appendleft(_Held(rest, key_reader(rest.columns[: self._key_columns])))
                self._held_bytes += rest.nbytes
                break
        found = pa.Table.from_batches(taken, self._schema)
        self.taken += found.num_rows
        return found


def windows_of(inputs: Sequence[SortedRows], window_bytes: int) -> Iterator[list[pa.Table]]:
    """Yield the rows of inputs by ranges of keys that rise: for each range, the rows of each input in it.

    Together inputs hold about `window_bytes`, and at least a batch each.
    """
    while True:
        each_bytes = window_bytes // max(len(inputs), 1)
        for rows in inputs:
            rows.fill(each_bytes)
        if all(rows.is_empty for rows in inputs):
            return
        # Behind the least of the last keys that are held, rows of that input may be missing.
        bound = min((bound for rows in inputs if (bound := rows.bound) is not None), default=None)
        yield [rows.take(bound) for rows in inputs]
