"""Streaming reads of the change feed of a keyed store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from ftfile.arrays.spark_types import arrow_schema, spark_schema_json
from ftfile.attempt.follow.stream import FollowConfig
from ftfile.attempt.kind_of_directory import check_marker
from ftfile.commit.sealed.filesystem import open_with_keys
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.options import parse_options
from ftfile.fs.registry import open_filesystem, settings_for_others
from ftfile.kv.feed.changes import FeedStream
from ftfile.kv.feed.rows import Share, as_requested, changed_rows, feed_schema
from ftfile.kv.reading.reader import open_store
from ftfile.kv.run_files import OpenFiles
from ftfile.source.shares import in_small_batches
from ftfile.spark.settings import absolute_options, require_shared
from ftfile.spark.stream_reader import SharePartition, StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

_OPTION = "readChangeFeed"


def reads_changes(options: Mapping[str, str]) -> bool:
    """Return True if the options name `readChangeFeed`."""
    return any(key.lower() == _OPTION.lower() for key in options)


def schema_of_changes(options: Mapping[str, str]) -> StructType:
    """Return the columns of the change feed.

    Raises:
        ConfigError: an option is wrong, or there is no store.
    """
    config = _config(options, "")
    reader = open_store(config.path, key_provider=config.key_provider, storage=config.storage)
    return StructType.fromJson(json.loads(spark_schema_json(feed_schema(reader.definition))))


class FtKvStreamReader(StreamReader):
    """Reads a row for each key whose row a version changes."""

    _config: FollowConfig
    _stream: FeedStream | None

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        config = _config(options, schema.json())
        require_shared(open_filesystem(config.path, SYSTEM, config.storage), config.path)
        super().__init__(config, settings_for_others(config.path, config.storage))

    @in_small_batches
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a task, in an executor."""
        assert isinstance(partition, SharePartition), f"another reader's partition: {partition!r}"
        assert isinstance(partition.share, Share), f"a share of another source: {partition.share!r}"
        config, requested = self._config, arrow_schema(self._config.schema_json)
        fs = open_with_keys(config.path, SYSTEM, config.key_provider, self._storage_of_tasks.items())
        check_marker(fs, config.path, partition.marker)
        for batch in changed_rows(OpenFiles(fs), partition.share):
            yield as_requested(batch, requested)

    def _open(self) -> FeedStream:
        return FeedStream(self._config, SYSTEM)


def _config(options: Mapping[str, str], schema_json: str) -> FollowConfig:
    raw = absolute_options(options)
    if not reads_changes(raw):
        raise ConfigError(
            "readStream of format 'ftkv' reads the changes of a store, whose columns are others than the store's: set "
            "readChangeFeed=true. To join a stream with a store, use ftfile.spark.lookup(df, path, on=[...])"
        )
    parsed = parse_options(raw, "ftkv-follow")
    if not parsed[_OPTION]:
        raise ConfigError("readChangeFeed=false: leave it out, and read a version with spark.read.format('ftkv')")
    return FollowConfig.from_options(parsed, schema_json, "format('ftkv').load('/data/counts')")
