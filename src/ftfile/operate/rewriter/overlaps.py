"""The files whose bounds of the columns of an order overlap."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.bounds.entries import bound_arrays
from ftfile.rows.statistics.bounds import PREFIX_BYTES, PREFIX_CHARACTERS, end_of_prefix, upper_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.core.bounds import BoundsColumn


class Intervals(NamedTuple):
    """The bounds of a column in many files, as numbers in the same order.

    Attributes:
        low: number of the least value of each file.
        high: number of the greatest value of each file.
        constant: True for each file in which the column certainly has only one value.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    constant: NDArray[np.bool_]


def intervals_of(column: BoundsColumn, rows: Sequence[int], kind: pa.DataType) -> Intervals:
    """Return the intervals of a column; a file without an entry has the longest possible interval.

    A file with only nulls is before all values. A file with other values but without bounds is after them: it has
    infinite numbers or NaN at both ends. Values whose recorded first characters are equal are equal here.
    """
    bounds = bound_arrays(column, kind)
    low, high, nulls = bounds.low, bounds.high, bounds.nulls
    is_constant = pc.and_(pc.equal(low, high), pc.equal(nulls, 0)).fill_null(False)  # noqa: FBT003 - a value
    if pa.types.is_floating(low.type):
        low, high = pc.add(low, 0.0), pc.add(high, 0.0)  # Arrow's rank distinguishes zeros
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        low = pa.array(map(_round_up, low.to_pylist()), kind)
    places = pc.rank(pa.concat_arrays([low, high]), sort_keys="ascending", tiebreaker="dense").to_numpy()
    before_all, after_all = 0, len(places) + 1  # ranks begin with 1
    low_places = np.where(low.is_valid(), places[: len(low)], before_all).astype(np.int64)
    high_places = np.where(high.is_valid(), places[len(low) :], after_all).astype(np.int64)
    has_no_bound = np.asarray(pc.and_(pc.and_(low.is_null(), high.is_null()), nulls.is_valid()))
    only_nulls = np.asarray(pc.equal(nulls, pa.array(rows, pa.int64())).fill_null(False))  # noqa: FBT003 - a value
    high_places[has_no_bound & only_nulls] = before_all
    low_places[has_no_bound & ~only_nulls] = after_all
    constant = np.asarray(is_constant) | (has_no_bound & only_nulls)
    return Intervals(np.minimum(low_places, high_places), high_places, constant)


def _round_up(value: str | bytes | None) -> str | bytes | None:
    """Return the greatest bound of the values whose least bound is `value`."""
    if isinstance(value, str) and len(value) >= PREFIX_CHARACTERS:
        return end_of_prefix(value)
    if isinstance(value, bytes) and len(value) >= PREFIX_BYTES:
        return upper_bytes(value + b"\0")
    return value


def find_overlapping(files: Iterable[int], intervals: Sequence[Intervals]) -> Iterator[list[int]]:
    """Yield files in the order of their bounds: lists of files that overlap, and lists of one file.

    If the first column is constant and equal in several files, the next column decides. Files that only share a bound
    do not overlap.

    Args:
        files: numbers of files.
        intervals: of all files, for each column of the order.
    """
    low, high, constant = intervals[0]
    numbers = np.fromiter(files, np.int64)
    clusters: list[list[int]] = []
    end = -1
    for file in numbers[np.lexsort((high[numbers], low[numbers]))].tolist():
        if clusters and low[file] < end:
            clusters[-1].append(file)
            end = max(end, int(high[file]))
        else:
            clusters.append([file])
            end = int(high[file])

    def value_of(cluster: list[int]) -> tuple[int, int]:
        """Return the common value of a cluster, or a number that no other cluster has."""
        if len(cluster) == 1 and constant[cluster[0]]:
            return 0, int(low[cluster[0]])
        return 1, cluster[0]

    for _, group in itertools.groupby(clusters, key=value_of):
        similar = list(group)
        if len(similar) > 1 and len(intervals) > 1:
            yield from find_overlapping(itertools.chain.from_iterable(similar), intervals[1:])
        else:
            yield from similar
