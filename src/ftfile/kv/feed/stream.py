"""The changes of a store as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.follow.stream import LogStream
from ftfile.attempt.kind_of_directory import read_marker
from ftfile.attempt.schema_change import check_requested
from ftfile.kv.feed.planner import FeedPlanner
from ftfile.kv.feed.rows import feed_schema, stored_columns
from ftfile.kv.feed.versions import Share
from ftfile.kv.reading.open_store import open_store

if TYPE_CHECKING:
    from ftfile.attempt.follow.stream import FollowConfig
    from ftfile.core.context import Context


class FeedStream(LogStream[Share]):
    """The position of one query in the changes of a store.

    Raises:
        ConfigError: there is no store.
        SchemaError: the user's columns are of other types than those of the feed.
    """

    def __init__(self, config: FollowConfig, context: Context) -> None:
        super().__init__()
        reader = open_store(config.path, key_provider=config.key_provider, storage=config.storage, context=context)
        requested = arrow_schema(config.schema_json)
        # Types that became wider are told when their versions are read.
        check_requested(feed_schema(reader.definition), requested, narrower=True)
        stored = stored_columns(requested, reader.definition)
        self.marker = read_marker(reader.log.fs)
        self._planner = FeedPlanner(reader.log, config.settings, stored)

    def _open(self) -> FeedPlanner:
        return self._planner
