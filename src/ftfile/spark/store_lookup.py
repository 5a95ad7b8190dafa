"""`ftfile.spark.lookup`: a join of a DataFrame or a stream with the rows of a store.

A driver or a Python worker opens each store only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark.sql.types import StructType

from ftfile.core.arguments import Access
from ftfile.core.context import SYSTEM, absolute_path
from ftfile.core.errors import ConfigError
from ftfile.core.per_process import PerProcess
from ftfile.kv.definition import FOUND
from ftfile.kv.reading.reader import CACHE, open_store
from ftfile.log.directory import DirectoryMarker, check_marker, read_marker
from ftfile.log.sealed import open_with_keys
from ftfile.rows.spark_types import arrow_schema, spark_schema_json
from ftfile.spark.settings import check_shared, struct_type
from ftfile.spark.shipping import Shipped
from ftfile.storage.registry import open_filesystem, settings_for_others
from ftfile.writing.options import resolve_column

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame
    from typing_extensions import Unpack

    from ftfile.core.arguments import DirectoryArguments
    from ftfile.core.options.parsing import Settings
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.reading.reader import Reader


READERS_KEPT = 8


@dataclass(frozen=True, kw_only=True)
class StorePlace:
    """The arguments with which a task opens a store."""

    path: str
    version: int | None  # None for the newest version at the start of a task
    merge: str | None  # the user's merge function
    key_provider: str | None
    storage: Settings  # settings of the file system
    cache_bytes: int | None
    at_least_version: int | None
    marker: DirectoryMarker | None


_readers: PerProcess[dict[StorePlace, Reader]] = PerProcess(dict)


def open_on_driver(
    path: str,
    access: Access,
    merge: str | None,
    version: int | datetime | None = None,
    *,
    cache_bytes: int | None = None,
    follows: bool = False,
) -> tuple[Reader, StorePlace]:
    """Return a reader of a version, and the arguments with which tasks open the same version.

    A time instead of a version selects the newest version at this time. If `follows`, tasks open the newest version.

    Raises:
        ConfigError: the store or the version does not exist, or other processes cannot access the path.
    """
    keys, least = access.key_provider, access.at_least_version
    check_shared(open_filesystem(path, SYSTEM, access.settings), path)
    if version is None or isinstance(version, int):
        number, time = (version, None)
    else:
        number, time = (None, version)
    reader = open_store(path, version=number, timestamp=time, merge=merge, **access._asdict())
    executor_settings = tuple(settings_for_others(reader.path, access.settings).items())
    marker = read_marker(open_with_keys(reader.path, SYSTEM, keys, access.settings.items()))
    number = None if follows else reader.version
    place = StorePlace(
        path=reader.path,
        version=number,
        merge=merge,
        key_provider=keys,
        storage=executor_settings,
        cache_bytes=cache_bytes,
        at_least_version=least,
        marker=marker,
    )
    _keep(place, reader)
    return reader, place


def reader_here(place: StorePlace) -> Reader:
    """Return this process's reader of a store at a version.

    Raises:
        ConfigError: this host sees another directory at the path than the driver.
    """
    if place.cache_bytes is not None:
        CACHE.here.resize(place.cache_bytes)
    reader = _readers.here.pop(place, None)
    if reader is not None and place.version is None:
        reader.refresh()
    if reader is None:
        check_marker(open_with_keys(place.path, SYSTEM, place.key_provider, place.storage), place.path, place.marker)
        reader = open_store(
            place.path,
            version=place.version,
            merge=place.merge,
            key_provider=place.key_provider,
            storage=dict(place.storage),
            at_least_version=place.at_least_version,
        )
    _keep(place, reader)
    return reader


def _keep(place: StorePlace, reader: Reader) -> None:
    readers = _readers.here
    readers[place] = reader
    if len(readers) > READERS_KEPT:
        readers.pop(next(iter(readers))).close()


def lookup(  # noqa: PLR0913 - arguments of a join and of a reader
    df: DataFrame,
    path: str | os.PathLike[str],
    on: str | Sequence[str],
    columns: Sequence[str] | None = None,
    how: Literal["left", "inner"] = "left",
    version: int | None = None,
    *,
    merge: str | None = None,
    **access: Unpack[DirectoryArguments],
) -> DataFrame:
    """Return the rows of a DataFrame with the values of their keys in a store: a join without a shuffle.

    Tasks look up keys in batches, with one reader for each Python process. If a key is not in the store or contains a
    null, its values are null with `how="left"`, and the row is omitted with `how="inner"`. Without `version`, a batch
    query reads the newest version at planning time. Each task of a stream reads the newest version at its start, so a
    repeated batch may read other values.

    Args:
        df: of a batch or a stream.
        path: of the store.
        on: the columns of `df` with the key: the names of the key columns, or other columns in the same order.
        columns: the requested value columns; None for all.
        how: `left` or `inner`.
        version: the version to read.
        merge: see `ftfile.kv.open`.
        **access: how the store is opened, as in `ftfile.open`; each task of a stream also checks `at_least_version`.

    Raises:
        ConfigError: the store, the version or a column does not exist, a column has another type, or `df` already has a
            value column.
    """
    if how not in ("left", "inner"):
        raise ConfigError(f"how={how!r}: a lookup is `left` or `inner`")
    follows = version is None and df.isStreaming
    reader, place = open_on_driver(absolute_path(path), Access.of(access), merge, version, follows=follows)
    definition, schema = reader.definition, arrow_schema(df.schema.json())
    keys = _key_columns(schema, [on] if isinstance(on, str) else [*on], definition)
    value_names = _value_columns(definition, columns, schema)
    return _join_rows(df, _Lookup(place, keys, value_names, is_inner=how == "inner"), definition)


def _join_rows(df: DataFrame, task: _Lookup, definition: StoreDefinition) -> DataFrame:
    values = pa.schema([definition.schema.field(name) for name in task.values])
    fields = struct_type(spark_schema_json(values)).fields

    def add_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task.read(batches)

    return df.mapInArrow(add_values, StructType([*df.schema.fields, *fields]))


class _Lookup(Shipped):
    """The lookup in the tasks of a query."""

    def __init__(self, place: StorePlace, keys: Mapping[str, str], values: Sequence[str], *, is_inner: bool) -> None:
        self._place = place
        self._keys = dict(keys)  # key columns of the store, each with its column in the DataFrame
        self.values = list(values)
        self._is_inner = is_inner

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the values of the store in additional columns."""
        reader = None
        for batch in batches:
            reader = reader or reader_here(self._place)
            keys = pa.table([batch.column(name) for name in self._keys.values()], names=list(self._keys))
            values_found = reader.lookup(keys, self.values).combine_chunks()
            columns = [*batch.columns, *(values_found.column(name) for name in self.values)]
            joined = pa.table(columns, names=[*batch.schema.names, *self.values])
            if self._is_inner:
                joined = joined.filter(values_found.column(FOUND))
            yield from joined.combine_chunks().to_batches()


def _key_columns(schema: pa.Schema, on: Sequence[str], definition: StoreDefinition) -> dict[str, str]:
    """Return the DataFrame's column for each key column of the store."""
    if len(on) != len(definition.keys):
        raise ConfigError(f"on={on}: the key of the store has the columns {', '.join(definition.keys)}")
    spelling = {name.lower(): name for name in on}
    if spelling.keys() == {name.lower() for name in definition.keys}:
        on = [spelling[name.lower()] for name in definition.keys]
    key_columns = {}
    for key, name in zip(definition.keys, on, strict=True):
        kind = definition.schema.field(key).type
        needed = f"{kind}, the type of the key column {key!r},"
        key_columns[key] = resolve_column("on", name, schema=schema, is_right=kind.equals, needed=needed)
    return key_columns


def _value_columns(definition: StoreDefinition, columns: Sequence[str] | None, schema: pa.Schema) -> list[str]:
    """Return the names of the value columns to add. The DataFrame must not have columns with these names."""
    values = pa.schema(definition.value_fields)
    value_names: list[str] = []
    if columns is None:
        value_names += values.names
    else:
        for name in columns:
            value_names.append(resolve_column("columns", name, values))
    if len(value_names) != len({*value_names}):
        raise ConfigError(f"columns={', '.join(value_names)}: a column is named twice; name each once")
    theirs = {name.lower() for name in schema.names}
    doubled = []
    for name in value_names:
        if name.lower() in theirs:
            doubled.append(name)
    if doubled:
        raise ConfigError(
            f"lookup: the DataFrame has columns {', '.join(doubled)}, too: rename them there, or choose others of the "
            "store with `columns`"
        )
    return value_names
