"""The values of a column, merged within groups of rows: pairs of neighbours, then pairs of those, until one is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy, is_valid, numbers_from
from ftfile.core.errors import EncodingError, UserCodeError
from ftfile.kv.merge_functions import is_merge_name, merge_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ftfile.kv.definition import StoreDefinition

    Numbers = NDArray[np.int64]
    Combine = Callable[[pa.Array, pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows: `order[starts[i]:ends[i]]` are the numbers of the rows of group i, old to new."""

    order: Numbers
    starts: Numbers
    ends: Numbers


class _PairError(Exception):
    """A pair cannot be combined, the number of which this is."""

    def __init__(self, place: int, cause: Exception) -> None:
        super().__init__(place, cause)
        self.place = place
        self.cause = cause


def merged(rows: pa.Table, name: str, groups: Groups, definition: StoreDefinition) -> pa.Array:
    """Return a column's value for each group, merged of all its values that are not null.

    Raises:
        EncodingError: a merged value has no place in the column.
        UserCodeError: the user's function failed.
    """
    column = rows[name].combine_chunks()
    sizes = groups.ends - groups.starts
    found = groups.order[groups.ends - 1].copy()  # by group, where its value is
    several = np.flatnonzero(sizes > 1)
    owners = np.repeat(several, sizes[several])
    places = np.arange(len(owners)) - np.repeat(np.cumsum(sizes[several]) - sizes[several], sizes[several])
    numbers = groups.order[groups.starts[owners] + places]
    has_value = is_valid(column.take(numbers_from(numbers)))
    numbers, owners = numbers[has_value], owners[has_value]
    try:
        values, owners = _combined(
            column.take(numbers_from(numbers)), owners, _combining(definition.merge[name], column)
        )
    except _PairError as error:
        row = int(groups.order[groups.ends[error.place] - 1])
        key = tuple(rows[each][row].as_py() for each in definition.keys)
        raise _error(definition.merge[name], name, key, error.cause) from error.cause
    found[several] = -1
    found[owners] = len(column) + np.arange(len(values))
    return pa.concat_arrays([column, values]).take(from_numpy(found, pa.int64(), found >= 0))


def _combined(values: pa.Array, owners: Numbers, combine: Combine) -> tuple[pa.Array, Numbers]:
    """Return one value for each owner; those of one owner are neighbours."""
    while True:
        starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))[: len(owners)]
        if len(starts) == len(owners):
            return values, owners
        places = np.arange(len(owners)) - np.repeat(starts, np.diff(np.append(starts, len(owners))))
        is_newer = places % 2 == 1
        newer = np.flatnonzero(is_newer)
        try:
            made = combine(values.take(numbers_from(newer - 1)), values.take(numbers_from(newer)))
        except _PairError as error:
            raise _PairError(int(owners[newer[error.place]]), error.cause) from error.cause
        kept = np.flatnonzero(~is_newer)
        is_made = np.concatenate((is_newer, [False]))[kept + 1]
        sources = np.where(is_made, len(values) + np.cumsum(is_made) - 1, kept)
        values, owners = pa.concat_arrays([values, made]).take(numbers_from(sources)), owners[kept]


def _combining(name: str, column: pa.Array) -> Combine:
    """Return a function that calls the merge function and raises a `_PairError` for the first pair that fails."""
    function = merge_function(name)

    def attempt(older: pa.Array, newer: pa.Array) -> pa.Array:
        made = function.combine(older, newer)
        if not isinstance(made, pa.Array) or len(made) != len(older):
            raise TypeError(f"combine() returned {type(made).__name__}, not an Arrow array with {len(older)} values")
        return made if made.type == column.type else made.cast(column.type)

    def combine(older: pa.Array, newer: pa.Array) -> pa.Array:
        try:
            return attempt(older, newer)
        except Exception as error:
            start, end, cause = 0, len(older), error
            while end - start > 1:
                middle = (start + end) // 2
                try:
                    attempt(older[start:middle], newer[start:middle])
                    start = middle
                except Exception as found:
                    end, cause = middle, found
            raise _PairError(start, cause) from cause

    return combine


def _error(function: str, column: str, key: tuple[object, ...], cause: Exception) -> EncodingError | UserCodeError:
    shown = ", ".join(map(repr, key))
    if is_merge_name(function):
        return EncodingError(
            f"merge={column}:{function}: the values of key ({shown}) have no result that column {column!r} can hold: "
            f"{cause}. Write or delete the key: what was before counts no more"
        )
    return UserCodeError(f"merge={column}:{function}: combine() failed for key ({shown}): {cause!r}")
