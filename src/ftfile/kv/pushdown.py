"""The keys, buckets and ranges that match pushed filters, and the share of each task that reads them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.core.tasks import pack_things
from ftfile.kv.hashing import bucket_number, buckets_of, hash_rows
from ftfile.kv.key_columns import arrays_of, clip, key_behind, overlap
from ftfile.kv.planning.picker import size_of
from ftfile.kv.planning.runs import runs_by_bucket
from ftfile.kv.user_keys import UserKeys
from ftfile.rows.predicate import Always, Compare, In, Null

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.kv.planning.runs import Run
    from ftfile.rows.predicate import Leaf


# Maximum number of keys that one task looks up, and of ranges that it scans.
KEYS_MAX, RANGES_MAX = 10_000, 1_000
# A task reads about this much of one bucket at most; neighbouring buckets share a task up to the second limit.
SPLIT_BYTES, JOIN_BYTES = 128 << 20, 32 << 20


class Condition(NamedTuple):
    """A condition on the values of a key column."""

    column: str  # a key column
    values: frozenset[int | bytes] | None = None  # allowed values; None for all values within the bounds
    bounds: KeyRange = ((), None)  # least value, and exclusive end


def condition_of(definition: StoreDefinition, leaf: Leaf) -> Condition | None:
    """Return the condition on keys of a comparison with a key column; None for a comparison that chooses no keys.

    No key has a null. Comparisons with values of other types than the column's choose no keys.

    Args:
        definition: of the store.
        leaf: its column is the name of a key column.
    """
    if isinstance(leaf, Null):
        return None if leaf.is_null else Condition(leaf.column)
    if isinstance(leaf, Compare) and leaf.sign not in ("=", "!="):
        return _condition_of_comparison(definition, leaf)
    values = _listed_values_of(leaf)
    if isinstance(leaf, Always) or values is None:
        return None
    stored = _stored_values_of(definition, leaf.column, values)
    return None if stored is None else Condition(leaf.column, frozenset(stored))


def _listed_values_of(leaf: Leaf) -> Sequence[Any] | None:
    """Return the values for which a leaf is true; None if it is true for too many."""
    if isinstance(leaf, In) and leaf.is_in:
        return leaf.values
    if isinstance(leaf, Compare) and leaf.sign == "=":
        return (leaf.value,)
    if isinstance(leaf, Compare) and isinstance(leaf.value, bool):
        return (not leaf.value,)  # Spark pushes `column = false` as `not (column = true)`
    return None


def _condition_of_comparison(definition: StoreDefinition, leaf: Compare) -> Condition | None:
    """Return the condition of a comparison by order; None if its value is not of the column's type."""
    stored = _stored_values_of(definition, leaf.column, (leaf.value,))
    if stored is None:
        return None
    (value,) = stored
    following = key_behind((value,), [definition.schema.field(leaf.column).type])
    if leaf.sign == ">" and following is None:
        return Condition(leaf.column, frozenset())
    bounds = {">=": ((value,), None), "<": ((), (value,)), ">": (following or (), None), "<=": ((), following)}
    return Condition(leaf.column, bounds=bounds[leaf.sign])


def _stored_values_of(definition: StoreDefinition, column: str, values: Iterable[Any]) -> list[int | bytes] | None:
    """Return values of a key column as they are stored; None if a value is not of the column's type."""
    to_stored = UserKeys(replace(definition, keys=(column,))).to_stored
    stored: list[int | bytes] = []
    try:
        for value in values:
            stored += to_stored(value)
    except (ConfigError, TypeError):
        return None
    return stored


class StoreSelection(NamedTuple):
    """The part of a store to read."""

    keys: pa.Table | None  # the key columns of all keys; None if the keys are not listed
    buckets: frozenset[int] | None  # None for all buckets
    ranges: tuple[KeyRange, ...]  # of keys, disjoint and ascending
    met: frozenset[int]  # numbers of the conditions that every selected row meets


EVERYTHING = StoreSelection(None, None, (((), None),), frozenset())


def select(conditions: Sequence[Condition], definition: StoreDefinition) -> StoreSelection:
    """Return a part of a store that contains all keys that meet the conditions, and possibly other keys."""
    columns = {name: _combine_conditions(name, conditions) for name in definition.keys}
    listed = [condition.values for condition in columns.values()]
    if _is_at_most(KEYS_MAX, listed):
        arrays = arrays_of(sorted(_tuples(listed)), definition.key_types)
        keys = pa.table(arrays, names=list(definition.keys))
        return StoreSelection(keys, None, (), frozenset(range(len(conditions))))
    hashed = [columns[name].values for name in definition.bucket_by]
    buckets = None
    if _is_at_most(KEYS_MAX, hashed):
        hashes = hash_rows(arrays_of([*_tuples(hashed)], definition.types_of(definition.bucket_by)))
        buckets = frozenset(buckets_of(hashes, definition.buckets).tolist())
    ranges, used = _ranges([*columns.values()], definition)
    met = set()
    for number, condition in enumerate(conditions):
        if condition.column in used:
            met.add(number)
    return StoreSelection(None, buckets, ranges, frozenset(met))


def _combine_conditions(column: str, conditions: Iterable[Condition]) -> Condition:
    """Return the conjunction of all conditions on a column."""
    start: Key = ()
    end: Key | None = None
    listed: frozenset[int | bytes] | None = None
    for condition in conditions:
        if condition.column != column:
            continue
        first, behind_last = condition.bounds
        start = max(start, first)
        if end is None or (behind_last is not None and behind_last < end):
            end = behind_last
        if condition.values is not None:
            listed = condition.values if listed is None else listed & condition.values
    if listed is None:
        return Condition(column, None, (start, end))
    values = set()
    for value in listed:
        if overlap([(start, end)], (value,), (value,)):
            values.add(value)
    return Condition(column, frozenset(values))


def _ranges(columns: Sequence[Condition], definition: StoreDefinition) -> tuple[tuple[KeyRange, ...], set[str]]:
    """Return the key ranges by leading columns, and the columns whose conditions they meet."""
    depth = 0
    used: set[str] = set()
    sets: list[frozenset[int | bytes] | None] = []
    while _is_at_most(RANGES_MAX, [*sets, columns[depth].values]):
        sets.append(columns[depth].values)
        used.add(columns[depth].column)
        depth += 1
    last = columns[depth]
    first, behind_last = last.bounds  # unbounded if there are too many values
    if last.values is None:
        used.add(last.column)
    ranges: list[KeyRange] = []
    for prefix in sorted(_tuples(sets)):
        start = (*prefix, *first)
        if behind_last is None:
            end = key_behind(prefix, definition.key_types)
        else:
            end = (*prefix, *behind_last)
        if end is None or start < end:
            ranges.append((start, end))
    return tuple(ranges), used


def _is_at_most(limit: int, sets: Sequence[frozenset[int | bytes] | None]) -> bool:
    count = 1
    for values in sets:
        if values is None:
            return False
        count *= len(values)
    return count <= limit


def _tuples(sets: Sequence[frozenset[int | bytes] | None]) -> Iterable[Key]:
    return itertools.product(*(values or () for values in sets))


class BucketShare(NamedTuple):
    """Key ranges in one bucket, disjoint and ascending."""

    bucket: int
    ranges: tuple[KeyRange, ...]


def shares_of(
    runs: Iterable[Run], selection: StoreSelection, split_bytes: int = SPLIT_BYTES, join_bytes: int = JOIN_BYTES
) -> list[tuple[BucketShare, ...]]:
    """Return the shares of each task that reads a selection of runs, by bucket.

    A bucket with more than `split_bytes` is split over several tasks. One task reads neighbouring buckets of up to
    `join_bytes` in total.
    """
    tasks = []
    for group in pack_things(_sized_shares(runs, selection, split_bytes), itemgetter(1), join_bytes):
        tasks.append(tuple(share for share, _ in group))
    return tasks


def _sized_shares(
    runs: Iterable[Run], selection: StoreSelection, split_bytes: int
) -> Iterable[tuple[BucketShare, int]]:
    """Yield one share for each bucket with rows, several for a large bucket, with the bytes of its runs."""
    for name, members in runs_by_bucket(runs).items():
        number = bucket_number(name)
        if selection.buckets is not None and number not in selection.buckets:
            continue
        for start, end in _split_ranges(members, split_bytes):
            ranges = clip(selection.ranges, start, end)
            chosen = []
            for run in members:
                if run.has_rows_in(ranges):
                    chosen.append(run)
            if chosen:
                yield BucketShare(number, ranges), size_of(chosen)


def _split_ranges(runs: Iterable[Run], split_bytes: int) -> Iterable[KeyRange]:
    """Yield ranges of a bucket of about equal size in bytes, cut at the first keys of runs."""
    start: Key = ()
    size_bytes = 0
    for run in sorted(runs, key=attrgetter("begins")):
        if not run.metadata.keys:
            continue
        if size_bytes and size_bytes + run.size > split_bytes and run.begins > start:
            yield start, run.begins
            start, size_bytes = run.begins, 0
        size_bytes += run.size
    yield start, None
