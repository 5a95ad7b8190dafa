"""Rows to buckets: the directories of several bucketers, put together."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays import kernels as pc
from ftfile.arrays.buffers import from_numpy, rows_where, values_of
from ftfile.commit.format.layout import bucket_key
from ftfile.sink.buckets.bucketers import Assignment, Bucket, Bucketer, Refuse, assign_by_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ftfile.sink.naming.settings import PathCheck


class Router:
    """Sorts rows by bucket.

    The bucketer of the outermost directory comes first; without any, there is one bucket, the directory itself. The
    path check finds buckets whose files could not get names.
    """

    def __init__(self, bucketers: Sequence[Bucketer], refuse: Refuse, path_check: PathCheck | None = None) -> None:
        self._bucketers = bucketers
        self._refuse = refuse
        self._path_check = path_check
        self._leaving = [column for bucketer in bucketers for column in bucketer.leaving]
        known = [bucketer.only for bucketer in bucketers if bucketer.only is not None]
        # The key of the bucket of all rows, where it does not depend on them.
        self.only = bucket_key(*reduce(_below, known, Bucket(""))) if len(known) == len(bucketers) else None

    def route(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[tuple[str, int, int]]]:
        """Return the rows bucket by bucket, and each bucket's key, first row and number of rows.

        Buckets come in the order of their first rows, and the rows of each in their order. A bucket costs as much as a
        hundred rows: give it many rows at once.
        """
        if self.only is not None or not batch.num_rows:
            return batch.drop_columns(self._leaving), [(self.only or "", 0, batch.num_rows)] if batch.num_rows else []
        assigned = self._kept(reduce(_combined, [bucketer.assign(batch) for bucketer in self._bucketers]))
        batch, codes = self._without_faults(batch, assigned)
        rows = batch.drop_columns(self._leaving)
        if np.any(codes[1:] < codes[:-1]):
            # A stable sort: rows of one bucket stay in their order.
            rows = rows.take(pc.array_sort_indices(from_numpy(codes, pa.int64())))
        counts = np.bincount(codes, minlength=len(assigned.buckets))
        keys = [bucket_key(*bucket) for bucket in assigned.buckets]
        return rows, list(zip(keys, (np.cumsum(counts) - counts).tolist(), counts.tolist(), strict=True))

    def _kept(self, assigned: Assignment) -> Assignment:
        """Make faults of the buckets whose files could not get names: publishing them would fail for ever."""
        if self._path_check is None:
            return assigned
        faults = [self._path_check.fault_of(*bucket) for bucket in assigned.buckets]
        if not any(faults):
            return assigned
        found = zip(assigned.buckets, faults, strict=True)
        outcomes = [bucket if fault is None else f"it {fault}" for bucket, fault in found]
        codes = np.where(assigned.codes < 0, len(outcomes) - 1 - assigned.codes, assigned.codes)
        return assign_by_value([*outcomes, *assigned.faults], codes)

    def _without_faults(self, batch: pa.RecordBatch, assigned: Assignment) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        if not assigned.faults:
            return batch, assigned.codes
        is_good = assigned.codes >= 0
        faults = [assigned.faults[-1 - code] for code in assigned.codes[~is_good].tolist()]
        self._refuse(rows_where(batch, ~is_good), faults)
        return rows_where(batch, is_good), assigned.codes[is_good]


def _below(outer: Bucket, inner: Bucket) -> Bucket:
    directories = [directory for directory in (outer.directory, inner.directory) if directory]
    return Bucket("/".join(directories), inner.stem)


def _combined(outer: Assignment, inner: Assignment) -> Assignment:
    """Put the directories of the second below those of the first; of two faults of a row, the first counts."""
    count = len(inner.buckets)
    is_good = (outer.codes >= 0) & (inner.codes >= 0)
    pairs = from_numpy((outer.codes * count + inner.codes)[is_good], pa.int64()).dictionary_encode()
    found = (divmod(pair, count) for pair in values_of(pairs.dictionary, np.int64).tolist())
    buckets = [_below(outer.buckets[above], inner.buckets[index]) for above, index in found]
    codes = np.where(outer.codes < 0, outer.codes, inner.codes - len(outer.faults))
    codes[is_good] = values_of(pairs.indices, np.int32)
    return Assignment(buckets, codes, [*outer.faults, *inner.faults])
