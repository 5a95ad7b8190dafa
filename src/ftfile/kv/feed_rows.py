"""The rows of the change feed, with their values before and after each version."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, NotFound, StaleFiles
from ftfile.kv.definition import StoreDefinition
from ftfile.kv.fold import SortedRows, windows_of
from ftfile.kv.hashing import bucket_number, hash_rows
from ftfile.kv.key_columns import bools_of, numbered_names, sorted_by, union
from ftfile.kv.planning.runs import by_id, numbers_of, purges_of, version_of
from ftfile.kv.reading.bucket import Bucket, in_order, schema_to_show
from ftfile.kv.reading.levels import Sources
from ftfile.kv.reading.reader import CACHE
from ftfile.kv.reading.view import view_of
from ftfile.kv.run_files import open_run
from ftfile.log.format.model import NUMBER_MAX, MaintenanceAuthor
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import bools_from, is_valid, map_entries, numbers_from, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ftfile.kv.planning.runs import Run
    from ftfile.kv.reading.view import View
    from ftfile.kv.run_files import OpenFiles
    from ftfile.log.format.model import Add, Record

    Flags = NDArray[np.bool_]


# Maintenance that rewrites all rows, and changes none.
_REBUCKET = "rebucket"
OLD, NEW = "old", "new"
# The names of Delta's change data feed.
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_OWN = {OLD, NEW, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP}
_VALUE = "value:"  # not the name of a column
_TYPES = ("insert", "update", "delete")
_TIME = pa.timestamp("us", tz="UTC")
_WINDOW_BYTES = 16 << 20  # size of the keys that are looked up at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """The change that one version makes."""

    version: int
    time_ms: int  # commit time, by the writer's clock
    adds: tuple[Add, ...]  # runs that it adds, as recorded
    removes: tuple[str, ...]  # ids of the runs that it removes
    # Rows that may change: none (`none`), rows of keys in new runs (`new`), or all rows (`all`).
    scope: Literal["none", "new", "all"]
    buckets: tuple[int, int]  # the range of bucket numbers to read, end exclusive

    @property
    def new_runs(self) -> tuple[Add, ...]:
        """Return the runs that contain new rows; runs written by jobs are excluded."""
        if self.scope == "none":
            return ()
        return tuple(add for add in self.adds if _is_new(add, self.version))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedShare:
    """The changes in some buckets, read by one task."""

    live: tuple[Add, ...]  # runs of the version before the first change
    changes: tuple[VersionChange, ...]  # in version order
    definition: dict[str, Any]  # of the store, as in the log
    code: frozenset[str]  # classes that the caller names


def change_of(record: Record, buckets: tuple[int, int]) -> VersionChange:
    """Return the change that a record makes, to be read in a range of buckets."""
    author = record.author
    removes = tuple(remove.id for remove in record.removes)
    scope: Literal["none", "new", "all"] = "new"
    if isinstance(author, MaintenanceAuthor) and author.operation == _REBUCKET:
        scope = "none"
    elif record.overwrite and removes:
        scope = "all"
    elif not any(_is_new(add, record.version) for add in record.adds):
        scope = "none"
    return VersionChange(
        version=record.version, time_ms=record.time_ms, adds=record.adds, removes=removes, scope=scope, buckets=buckets
    )


def apply_change(live: Mapping[str, Add], change: VersionChange) -> dict[str, Add]:
    """Return the live runs by id after a change."""
    runs = dict(live)
    for name in change.removes:
        runs.pop(name, None)
    return runs | by_id(change.adds)


def by_bucket(adds: Iterable[Add]) -> dict[int, list[Add]]:
    """Return runs by bucket number, in ascending order."""
    groups: defaultdict[int, list[Add]] = defaultdict(list)
    for add in adds:
        groups[bucket_number(add.directory_key)].append(add)
    return dict(sorted(groups.items()))


def _is_new(add: Add, version: int) -> bool:
    first, last = numbers_of(add.rolling_stats).at
    return bool(first == last and version_of(first) == version)


def differ(one: pa.Array, other: pa.Array) -> Flags:
    """Return a boolean for each index: True if the values of two arrays of the same type and length differ.

    Nulls are equal, and so are NaNs.
    """
    valid = is_valid(one), is_valid(other)
    flags: Flags = valid[0] != valid[1]
    places = np.flatnonzero(valid[0] & valid[1])
    if places.size:
        both = numbers_from(places)
        flags[places] = _differ(one.take(both), other.take(both))
    return flags


def _differ(one: pa.Array, other: pa.Array) -> Flags:
    """Return the flags for arrays without nulls, whose offset is 0."""
    kind = one.type
    if pa.types.is_struct(kind):
        flags: Flags = np.zeros(len(one), np.bool_)
        for field, other_field in zip(one.flatten(), other.flatten(), strict=True):
            flags |= differ(field, other_field)
        return flags
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _lists_differ(one, other)
    are_unequal: Flags = bools_of(pc.not_equal(one, other))
    if pa.types.is_floating(kind):
        are_nan = bools_of(pc.is_nan(one)) & bools_of(pc.is_nan(other))
        are_unequal &= ~are_nan
    return are_unequal


def _lists_differ(one: pa.Array, other: pa.Array) -> Flags:
    lengths = np.diff(values_of(one.offsets, np.int32))
    are_unequal: Flags = lengths != np.diff(values_of(other.offsets, np.int32))
    same = np.flatnonzero(~are_unequal)
    rows = numbers_from(same)
    items_differ = differ(_items(one.take(rows)), _items(other.take(rows)))
    are_unequal[np.repeat(same, lengths[same])[items_differ]] = True
    return are_unequal


def _items(array: pa.Array) -> pa.Array:
    """Return the items of all lists, or the entries of all maps."""
    if pa.types.is_map(array.type):
        return map_entries(array)
    return array.flatten()


def feed_schema(definition: StoreDefinition) -> pa.Schema:
    """Return the columns of the change feed of a store: keys, old and new values, change type, version and time."""
    taken = [name for name in definition.keys if name.lower() in _OWN]
    if taken:
        raise ConfigError(
            f"the key columns {taken} have the same names as columns of the change feed, so the feed cannot be read"
        )
    structs = []
    if definition.values:
        values = pa.struct([*definition.nullable_schema(definition.values)])
        structs = [pa.field(OLD, values), pa.field(NEW, values)]
    return pa.schema(
        [
            *schema_to_show(definition, ()),
            *structs,
            pa.field(CHANGE_TYPE, pa.string()),
            pa.field(COMMIT_VERSION, pa.int64()),
            pa.field(COMMIT_TIMESTAMP, _TIME),
        ]
    )


def changed_rows(files: OpenFiles, share: FeedShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each key whose row a version changes, in version order, sorted by key within a bucket.

    Raises:
        StaleFiles: vacuum has deleted runs of these versions.
        CorruptData: a run is damaged.
        EncodingError, UserCodeError: the values of a key cannot be merged.
        StorageError: the storage failed.
    """
    definition = StoreDefinition.from_json(share.definition).naming(share.code)
    sources = Sources(files, CACHE.here, definition)
    live = by_id(share.live)
    before = view_of(-1, [*live.values()], sources)
    for change in share.changes:
        live = apply_change(live, change)
        after = view_of(change.version, [*live.values()], sources, before)
        try:
            yield from _changes(change, before, after)
        except NotFound as error:
            raise StaleFiles(
                f"version {change.version} is no longer kept: vacuum has deleted {error.path!r}. Read changes within "
                "the `grace` of the store, or set a longer `grace`"
            ) from error
        before = after


def stored_columns(requested: pa.Schema, definition: StoreDefinition) -> pa.Schema:
    """Return the store columns behind requested columns of the feed: keys, then values, spelled as in the store."""
    columns = _types_by_lower_case(requested)
    values: dict[str, pa.DataType] = {}
    for struct in (columns.get(NEW), columns.get(OLD)):
        if struct is not None and pa.types.is_struct(struct):
            values |= _types_by_lower_case(struct)
    fields = []
    for names, kinds in ((definition.keys, columns), (definition.values, values)):
        for name in names:
            if name.lower() in kinds:
                fields.append(pa.field(name, kinds[name.lower()]))
    return pa.schema(fields)


def _types_by_lower_case(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    """Return the types of columns, or of the fields of a struct, by name in lower case."""
    return {field.name.lower(): field.type for field in fields}


def as_requested(batch: pa.RecordBatch, requested: pa.Schema) -> pa.RecordBatch:
    """Return the requested columns, matched by name ignoring case; missing columns are null."""
    rows = _shape_array(batch.to_struct_array(), pa.struct(list(requested)))
    return pa.RecordBatch.from_arrays(rows.flatten(), schema=requested)


def _changes(change: VersionChange, before: View, after: View) -> Iterator[pa.RecordBatch]:
    new = by_bucket(change.new_runs)
    numbers = sorted({*before.buckets, *after.buckets} if change.scope == "all" else new)
    none = Bucket.of((), after.sources)
    first, behind = change.buckets
    for number in numbers:
        if not first <= number < behind:
            continue
        buckets = before.buckets.get(number, none), after.buckets.get(number, none)
        if change.scope == "all":
            sources = [bucket.scan(None, None, [], _WINDOW_BYTES) for bucket in buckets]
        else:
            runs = [after.parts[add.id].run for add in new.get(number, ())]
            sources = _keys_of(runs, buckets[0], after)
        for keys in _merge_unique(sources, after.definition):
            batch = _compare_buckets(keys, buckets, change)
            if batch.num_rows:
                yield batch


def _keys_of(runs: Sequence[Run], old: Bucket, view: View) -> list[Iterator[pa.RecordBatch]]:
    """Return the keys of rows in new runs, and the keys of older rows that purges of new runs delete."""
    files, names = view.sources.files, list(view.definition.keys)
    sources = []
    for run in runs:
        if run.metadata.keys is not None:
            sources.append(open_run(files, run.add, CACHE.here).scan(columns=names))
    for start, end in union(purges_of(runs)):
        sources.append(old.scan(start, end, [], _WINDOW_BYTES))
    return sources


def _merge_unique(sources: Sequence[Iterator[pa.RecordBatch]], definition: StoreDefinition) -> Iterator[pa.RecordBatch]:
    """Yield the distinct keys of sorted sources, in order."""
    names = list(definition.keys)
    schema = schema_to_show(definition, ())
    inputs = [SortedRows(_with_schema(source, schema), schema, len(names)) for source in sources]
    for window in windows_of(inputs, _WINDOW_BYTES):
        keys = pa.concat_tables(window)
        if len(inputs) > 1:
            numbers = numbered_names(len(names))
            unique = keys.select(names).rename_columns(numbers).group_by(numbers, use_threads=False).aggregate([])
            keys = sorted_by(unique.rename_columns(names), names)
        yield from keys.select(names).combine_chunks().to_batches()


def _with_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches with the nullability of a schema, which has the same columns."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _compare_buckets(keys: pa.RecordBatch, buckets: tuple[Bucket, Bucket], change: VersionChange) -> pa.RecordBatch:
    """Return the keys whose rows differ, with both rows."""
    hashes = hash_rows(keys.columns)
    was, old = _look_up(buckets[0], keys, hashes)
    is_now, new = _look_up(buckets[1], keys, hashes)
    is_changed = was != is_now
    for one, other in zip(old, new, strict=True):
        is_changed |= was & is_now & differ(one, other)
    schema = feed_schema(buckets[0].definition)
    structs = []
    for name, value_columns, has_row in ((OLD, old, was), (NEW, new, is_now)):
        if value_columns:
            fields = list(schema.field(name).type)
            structs.append(pa.StructArray.from_arrays(value_columns, fields=fields, mask=bools_from(~has_row)))
    kinds = pa.array(_TYPES).take(numbers_from(np.where(was & is_now, 1, np.where(is_now, 0, 2))))
    time_us = min(change.time_ms, NUMBER_MAX // 1000) * 1000
    version = numbers_from(np.full(keys.num_rows, change.version))
    time = numbers_from(np.full(keys.num_rows, time_us))
    columns = [*keys.columns, *structs, kinds, version, time.cast(_TIME)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if is_changed.all():
        return batch
    return batch.filter(bools_from(is_changed))


def _look_up(
    bucket: Bucket, keys: pa.RecordBatch, hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.bool_], list[pa.Array]]:
    """Return the keys' found flags, and the value columns, null for keys without a row."""
    has_row, columns = in_order(keys.num_rows, *bucket.lookup(keys, hashes))
    return has_row, [column.combine_chunks() for column in columns]


def _shape_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if not (pa.types.is_struct(array.type) and pa.types.is_struct(kind)):
        return array.cast(kind)
    children = {}
    for field, column in zip(array.type, array.flatten(), strict=True):
        children[field.name.lower()] = column
    columns = []
    for field in kind:
        child = children.get(field.name.lower())
        if child is None:
            columns.append(pa.nulls(len(array), field.type))
        else:
            columns.append(_shape_array(child, field.type))
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=array.is_null())
