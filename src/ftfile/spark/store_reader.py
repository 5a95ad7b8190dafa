"""Readers of a keyed store for Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ftfile.core.arguments import Access
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import StoreFollowOptions, StoreReadOptions
from ftfile.formats.parts import recorded_names
from ftfile.kv.definition import FOUND
from ftfile.kv.feed import FeedStream
from ftfile.kv.feed_rows import FeedShare, as_requested, changed_rows, feed_schema
from ftfile.kv.pushdown import EVERYTHING, BucketShare, Condition, condition_of, select, shares_of
from ftfile.kv.reading.reader import open_store
from ftfile.kv.run_files import OpenFiles
from ftfile.log.directory import check_marker
from ftfile.log.sealed import open_with_keys
from ftfile.read.log_planner import FollowConfig
from ftfile.read.shares import small_batches
from ftfile.rows.predicate import Always, Joined
from ftfile.rows.spark_types import arrow_schema, as_nullable, spark_schema_json
from ftfile.spark.filters import tree_of
from ftfile.spark.pushdown import check_pushdown_enabled
from ftfile.spark.settings import absolute_options, check_shared, struct_type
from ftfile.spark.shipping import Shipped
from ftfile.spark.store_lookup import StorePlace, open_on_driver, reader_here
from ftfile.spark.stream_reader import SharePartition, StreamReader
from ftfile.storage.registry import open_filesystem, settings_for_others
from ftfile.writing.schema_change import check_requested

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import datasource
    from pyspark.sql.types import StructType

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.reading.reader import Reader


# The ranges of a share that has all keys of its bucket: one range without a start and an end.
_WHOLE_BUCKET = (((), None),)

_NO_PATH = "the reader has no `path`: give it as a read option, as in spark.read.format('ftkv').load('/data/counts')"
_CHANGES_OPTION = "readChangeFeed"


@dataclass
class _StorePartition(InputPartition):
    """The share of one task: ranges of buckets, or separate keys."""

    shares: tuple[BucketShare, ...] = ()
    keys: pa.Table | None = None

    def __post_init__(self) -> None:
        super().__init__(None)


def stored_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of the version to read: key columns, then value columns."""
    reader = _open_store(options).reader
    return struct_type(spark_schema_json(reader.definition.schema))


def make_reader(options: Mapping[str, str], schema: StructType) -> FtKvReader:
    """Return the reader for the options. Filter pushdown needs Spark 4.1 or later.

    Raises:
        ConfigError: an option is wrong, or the store or the version does not exist.
        SchemaError: the requested columns have other types than the stored columns.
    """
    reader, place, pushes = _open_store(options)
    check_requested(reader.definition.schema, arrow_schema(as_nullable(schema.json())))
    if not pushes:
        return FtKvReader(place, schema)
    check_pushdown_enabled()
    return _PushingStoreReader(place, schema)


class FtKvReader(Shipped, DataSourceReader):
    """Reads the columns of `schema` by name, ignoring case as Spark does. Columns that the store lacks are null."""

    def __init__(self, place: StorePlace, schema: StructType) -> None:
        self._place = place
        self._schema_json = schema.json()
        self._conditions: tuple[Condition, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the share of each task."""
        reader = reader_here(self._place)
        selection = EVERYTHING
        if self._conditions:
            selection = select(self._conditions, reader.definition)
        if selection.keys is not None:
            if selection.keys.num_rows:
                partitions = [_StorePartition(keys=selection.keys)]
            else:
                partitions = []
        else:
            partitions = [_StorePartition(shares) for shares in shares_of(reader.runs(), selection)]
        return partitions or [_StorePartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, in an executor."""
        assert isinstance(partition, _StorePartition)
        requested = arrow_schema(self._schema_json)
        if not partition.shares and partition.keys is None:
            return
        reader = reader_here(self._place)
        stored = reader.definition.schema.names
        names = recorded_names(stored, requested.names)
        stored_names = [name for name in dict.fromkeys(names) if name in stored]
        # If the store has none of the columns, one column is read for the number of rows.
        for batch in _rows(reader, partition, stored_names or stored[:1]):
            columns = []
            for name, kind in zip(names, requested.types, strict=True):
                if name in batch.schema.names:
                    columns.append(batch.column(name).cast(kind))
                else:
                    columns.append(pa.nulls(batch.num_rows, kind))
            yield from small_batches([pa.RecordBatch.from_arrays(columns, schema=requested)])


def _rows(reader: Reader, partition: _StorePartition, columns: list[str]) -> Iterator[pa.RecordBatch]:
    if partition.keys is not None:
        values = [name for name in columns if name in reader.definition.values]
        rows = reader.lookup(partition.keys, values)
        yield from rows.filter(rows[FOUND]).to_batches()
    if all(share.ranges == _WHOLE_BUCKET for share in partition.shares):
        reader.preload([share.bucket for share in partition.shares])
    for share in partition.shares:
        for bounds in share.ranges:
            yield from reader.scan_range(*bounds, columns, [share.bucket])


class _PushingStoreReader(FtKvReader):
    """Reads only keys that match the filters of a query.

    For a reader with the method `pushFilters`, Spark requires `spark.sql.python.filterPushdown.enabled=true`.
    """

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Return the filters that Spark must apply."""
        definition = reader_here(self._place).definition
        requested = {field.name.lower(): field.type for field in arrow_schema(self._schema_json)}
        keys = {}
        for name in definition.keys:
            if requested.get(name.lower()) == definition.schema.field(name).type:
                keys[name.lower()] = name
        conditions, places = [], []
        for place, pushed in enumerate(filters):
            condition = _condition_of(pushed, keys, definition)
            if condition is not None:
                conditions.append(condition)
                places.append(place)
        self._conditions = tuple(conditions)
        met = {places[number] for number in select(self._conditions, definition).met}
        return [pushed for place, pushed in enumerate(filters) if place not in met]


def _condition_of(pushed: datasource.Filter, keys: Mapping[str, str], definition: StoreDefinition) -> Condition | None:
    """Return the condition of a filter on a key column; None for other filters."""
    leaf = tree_of(pushed)
    if isinstance(leaf, Joined | Always):
        return None
    name = keys.get(".".join(leaf.column))
    return None if name is None else condition_of(definition, replace(leaf, column=name))


class _OpenedStore(NamedTuple):
    """A reader of the selected version."""

    reader: Reader
    place: StorePlace  # the arguments that open the reader in tasks
    pushes: bool  # filters are pushed


def _open_store(options: Mapping[str, str]) -> _OpenedStore:
    """Return a reader of the selected version, the arguments that open it in tasks, and True if filters are pushed."""
    parsed = parse_options(absolute_options(options), StoreReadOptions)
    path = parsed.required_path(_NO_PATH)
    if parsed.version_as_of is not None and parsed.timestamp_as_of is not None:
        raise ConfigError("versionAsOf and timestampAsOf both select the version to read: set only one of them")
    access = Access(parsed.key_provider, parsed.options_with_prefix("storage"), parsed.at_least_version)
    version: int | datetime | None = parsed.version_as_of
    if parsed.timestamp_as_of is not None:
        version = parsed.timestamp_as_of
    reader, place = open_on_driver(path, access, parsed.merge, version, cache_bytes=parsed.cache_bytes)
    return _OpenedStore(reader, place, parsed.filter_pushdown)


def reads_changes(options: Mapping[str, str]) -> bool:
    """Return True if the options contain `readChangeFeed`."""
    return any(key.lower() == _CHANGES_OPTION.lower() for key in options)


def schema_of_changes(options: Mapping[str, str]) -> StructType:
    """Return the columns of the change feed.

    Raises:
        ConfigError: an option is wrong, or the store does not exist.
    """
    config = _config(options, "")
    reader = open_store(config.path, key_provider=config.key_provider, storage=config.storage)
    return struct_type(spark_schema_json(feed_schema(reader.definition)))


class FtKvStreamReader(StreamReader):
    """Reads the change feed of a store: one row for each row that a version changes."""

    _config: FollowConfig
    _stream: FeedStream | None

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        config = _config(options, schema.json())
        check_shared(open_filesystem(config.path, SYSTEM, config.storage), config.path)
        super().__init__(config, settings_for_others(config.path, config.storage))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a task, in an executor."""
        assert isinstance(partition, SharePartition), f"another reader's partition: {partition!r}"
        assert isinstance(partition.share, FeedShare), f"a share of another source: {partition.share!r}"
        config, requested = self._config, arrow_schema(self._config.schema_json)
        fs = open_with_keys(config.path, SYSTEM, config.key_provider, self._storage_of_tasks.items())
        check_marker(fs, config.path, partition.marker)
        changes = changed_rows(OpenFiles(fs), partition.share)
        yield from small_batches(as_requested(batch, requested) for batch in changes)

    def _open(self) -> FeedStream:
        return FeedStream(self._config, SYSTEM)


def _config(options: Mapping[str, str], schema_json: str) -> FollowConfig:
    raw = absolute_options(options)
    if not reads_changes(raw):
        raise ConfigError(
            "readStream of format 'ftkv' reads the changes of a store, which have other columns than the store: set "
            "readChangeFeed=true. To join a stream with a store, use ftfile.spark.lookup(df, path, on=[...])"
        )
    parsed = parse_options(raw, StoreFollowOptions)
    if not parsed.read_change_feed:
        raise ConfigError("readChangeFeed=false: leave it out, and read a version with spark.read.format('ftkv')")
    config = FollowConfig.from_options(parsed, schema_json, "format('ftkv').load('/data/counts')")
    return replace(config, merge=parsed.merge)
