"""The keys, buckets and ranges that match pushed filters, and the share of each task that reads them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.core.units import packed
from ftfile.kv.hashing import bucket_number, buckets_of, hash_rows
from ftfile.kv.key_columns import behind, clip, key_array, overlap
from ftfile.kv.planning.runs import runs_by_bucket
from ftfile.kv.user_keys import UserKeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.kv.planning.runs import Run


Comparison: TypeAlias = Literal["in", ">", ">=", "<", "<="]

# Maximum number of keys that one task looks up, and of ranges that it scans.
KEYS_MAX, RANGES_MAX = 10_000, 1_000
# A task reads about this much of one bucket at most; neighbouring buckets share a task up to the second limit.
SPLIT_BYTES, JOIN_BYTES = 128 << 20, 32 << 20


class Condition(NamedTuple):
    """A condition on the values of a key column."""

    column: str  # a key column
    values: frozenset[int | bytes] | None = None  # allowed values; None for all values within the bounds
    bounds: KeyRange = ((), None)  # least value, and exclusive end


def condition_of(
    definition: StoreDefinition, column: str, comparison: Comparison, values: Sequence[Any]
) -> Condition | None:
    """Return the condition that a key column is one of the user's values, or compares with a single value.

    A null does not match any key. Returns None if the values are not of the column's type.
    """
    to_stored = UserKeys(replace(definition, keys=(column,))).to_stored
    try:
        stored = [value for (value,) in (to_stored(value) for value in values if value is not None)]
    except (ConfigError, TypeError):
        return None
    if comparison == "in":
        return Condition(column, frozenset(stored))
    if len(stored) != 1:
        return None
    (value,) = stored
    following = behind((value,), [definition.schema.field(column).type])
    if comparison == ">" and following is None:
        return Condition(column, frozenset())
    bounds = {">=": ((value,), None), "<": ((), (value,)), ">": (following or (), None), "<=": ((), following)}
    return Condition(column, bounds=bounds[comparison])


class Selection(NamedTuple):
    """The part of a store to read."""

    keys: pa.Table | None  # the key columns of all keys; None if the keys are not listed
    buckets: frozenset[int] | None  # None for all buckets
    ranges: tuple[KeyRange, ...]  # of keys, disjoint and ascending
    met: frozenset[int]  # numbers of the conditions that every selected row meets


EVERYTHING = Selection(None, None, (((), None),), frozenset())


def select(conditions: Sequence[Condition], definition: StoreDefinition) -> Selection:
    """Return a part of a store that contains all keys that meet the conditions, and possibly other keys."""
    columns = {name: _together(name, conditions) for name in definition.keys}
    listed = [columns[name].values for name in definition.keys]
    if _is_at_most(KEYS_MAX, listed):
        keys = sorted(_tuples(listed))
        return Selection(_table(keys, definition.keys, definition), None, (), frozenset(range(len(conditions))))
    hashed = [columns[name].values for name in definition.bucket_by]
    buckets = None
    if _is_at_most(KEYS_MAX, hashed):
        parts = _table([*_tuples(hashed)], definition.bucket_by, definition)
        hashes = hash_rows([column.combine_chunks() for column in parts.columns])
        buckets = frozenset(buckets_of(hashes, definition.buckets).tolist())
    ranges, used = _ranges([columns[name] for name in definition.keys], definition)
    met = frozenset(number for number, condition in enumerate(conditions) if condition.column in used)
    return Selection(None, buckets, ranges, met)


def _together(column: str, conditions: Iterable[Condition]) -> Condition:
    """Return the conjunction of all conditions on a column."""
    mine = [condition for condition in conditions if condition.column == column]
    start = max((condition.bounds[0] for condition in mine), default=())
    end = min((condition.bounds[1] for condition in mine if condition.bounds[1] is not None), default=None)
    sets = [condition.values for condition in mine if condition.values is not None]
    if not sets:
        return Condition(column, None, (start, end))
    values = (value for value in frozenset.intersection(*sets) if overlap([(start, end)], (value,), (value,)))
    return Condition(column, frozenset(values))


def _ranges(columns: Sequence[Condition], definition: StoreDefinition) -> tuple[tuple[KeyRange, ...], set[str]]:
    """Return the key ranges by leading columns, and the columns whose conditions they meet."""
    depth = 0
    while _is_at_most(RANGES_MAX, [condition.values for condition in columns[: depth + 1]]):
        depth += 1
    used = {condition.column for condition in columns[:depth]}
    last = columns[depth]
    first, behind_last = last.bounds  # unbounded if there are too many values
    if last.values is None:
        used.add(last.column)
    ranges: list[KeyRange] = []
    for prefix in sorted(_tuples([condition.values for condition in columns[:depth]])):
        start = (*prefix, *first)
        if behind_last is None:
            end = behind(prefix, definition.key_types)
        else:
            end = (*prefix, *behind_last)
        if end is None or start < end:
            ranges.append((start, end))
    return tuple(ranges), used


def _is_at_most(limit: int, sets: Sequence[frozenset[int | bytes] | None]) -> bool:
    return all(values is not None for values in sets) and math.prod(len(values or ()) for values in sets) <= limit


def _tuples(sets: Sequence[frozenset[int | bytes] | None]) -> Iterable[Key]:
    return itertools.product(*(values or () for values in sets))


def _table(keys: Sequence[Key], names: Sequence[str], definition: StoreDefinition) -> pa.Table:
    kinds = [definition.schema.field(name).type for name in names]
    arrays = [key_array([key[place] for key in keys], kind) for place, kind in enumerate(kinds)]
    return pa.table(arrays, names=list(names))


class BucketShare(NamedTuple):
    """Key ranges in one bucket, disjoint and ascending."""

    bucket: int
    ranges: tuple[KeyRange, ...]


def shares_of(
    runs: Iterable[Run], selection: Selection, split_bytes: int = SPLIT_BYTES, join_bytes: int = JOIN_BYTES
) -> list[tuple[BucketShare, ...]]:
    """Return the shares of each task that reads a selection of runs, by bucket.

    A bucket with more than `split_bytes` is split over several tasks. One task reads neighbouring buckets of up to
    `join_bytes` in total.
    """
    groups = packed(_sized_shares(runs, selection, split_bytes), itemgetter(1), join_bytes)
    return [tuple(share for share, _ in group) for group in groups]


def _sized_shares(runs: Iterable[Run], selection: Selection, split_bytes: int) -> Iterable[tuple[BucketShare, int]]:
    """Yield one share for each bucket with rows, several for a large bucket, with the bytes of its runs."""
    for name, members in runs_by_bucket(runs).items():
        number = bucket_number(name)
        if selection.buckets is None or number in selection.buckets:
            for start, end in _split_ranges(members, split_bytes):
                ranges = clip(selection.ranges, start, end)
                sizes = [run.size for run in members if run.metadata.keys and overlap(ranges, *run.metadata.keys)]
                if sizes:
                    yield BucketShare(number, ranges), sum(sizes)


def _split_ranges(runs: Iterable[Run], split_bytes: int) -> Iterable[KeyRange]:
    """Yield ranges of a bucket of about equal size in bytes, cut at the first keys of runs."""
    start: Key = ()
    size_bytes = 0
    for run in sorted((run for run in runs if run.metadata.keys), key=attrgetter("begins")):
        if size_bytes and size_bytes + run.size > split_bytes and run.begins > start:
            yield start, run.begins
            start, size_bytes = run.begins, 0
        size_bytes += run.size
    yield start, None
