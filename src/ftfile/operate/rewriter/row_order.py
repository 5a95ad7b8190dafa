"""The order of rows by columns, and the division of rows into consecutive ranges of this order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The columns that determine the order of rows, and the size of the files in which the rows are written.

    Nulls are first, NaN is greater than all other numbers, and rows with equal values keep their order.
    """

    columns: tuple[str, ...]
    target_bytes: int  # of each new file on storage

    def files_expected(self, length: int) -> int:
        """Return the expected number of files for files of `length` bytes."""
        return max(1, math.ceil(length / self.target_bytes))

    def keys(self, rows: pa.RecordBatch) -> pa.Table:
        """Return columns without NaN in which ascending order is this order."""
        keys: list[pa.Array] = []
        for name in self.columns:
            values = rows.column(name)
            keys.append(values.is_valid())
            if pa.types.is_floating(values.type):
                is_nan = pc.is_nan(values)
                keys.append(is_nan)
                values = pc.if_else(is_nan, pa.scalar(None, values.type), values)
            keys.append(values)
        return pa.table(keys, names=[str(number) for number in range(len(keys))])

    def sort(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows in this order."""
        return rows.take(_rank_ascending(self.keys(rows)))


def _rank_ascending(keys: pa.Table) -> pa.Array:
    """Return the numbers of rows in ascending order of their keys. Arrow's sort is stable."""
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def _find_repeated(keys: pa.Table) -> list[bool]:
    """Return True for each row that is equal to the row before it."""
    if not keys.num_rows:
        return []
    repeated = np.full(keys.num_rows - 1, fill_value=True)
    for column in keys.columns:
        former, later = column.slice(0, keys.num_rows - 1), column.slice(1)
        both_null = pc.and_(former.is_null(), later.is_null())
        repeated &= pc.or_(pc.equal(former, later).fill_null(False), both_null).to_numpy()  # noqa: FBT003 - a value
    return [False, *repeated.tolist()]


class Ranges:
    """Consecutive ranges of an order with about the same number of rows.

    Values that many rows have are a separate range, which needs no sort.

    Args:
        order: the order of rows.
        sample: rows whose quantiles are the boundaries.
        count: the number of ranges.
    """

    def __init__(self, order: RowOrder, sample: pa.RecordBatch, count: int) -> None:
        self._order = order
        keys = order.keys(sample)
        ascending = _rank_ascending(keys).to_numpy()
        quantiles = keys.take(ascending[np.arange(1, count) * len(ascending) // count])
        self._constant: set[int] = set()
        starts: list[int] = []
        ends: list[int] = []
        for number, is_repeated in enumerate(_find_repeated(quantiles)):
            if not is_repeated:
                ends.append(number)
            elif not starts or starts[-1] != ends[-1]:
                starts.append(ends[-1])
                self._constant.add(len(starts) + len(ends) - 1)
        self._starts, self._ends = (
            quantiles.take(pa.array(starts, pa.int64())),
            quantiles.take(pa.array(ends, pa.int64())),
        )

    def is_constant(self, number: int) -> bool:
        """Return True if all rows of a range have equal keys."""
        return number in self._constant

    def divide(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the numbers of ranges with some of the rows, in ascending order of the ranges."""
        # Equal rows keep their order in a stable sort, so they are after a boundary of `_starts`, and before one of
        # `_ends`.
        first = self._starts.num_rows
        keys = pa.concat_tables([self._starts, self._order.keys(rows), self._ends])
        numbers = _rank_ascending(keys).to_numpy().astype(np.int64) - first
        is_row = (numbers >= 0) & (numbers < rows.num_rows)
        in_order = rows.take(pa.array(numbers[is_row]))
        boundaries = np.flatnonzero(~is_row)
        ends = [*(boundaries - np.arange(len(boundaries))).tolist(), rows.num_rows]
        start = 0
        for number, end in enumerate(ends):
            if end > start:
                yield number, in_order.slice(start, end - start)
            start = end
