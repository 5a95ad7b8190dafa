"""The changes of a store as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.directory_marker import read_marker
from ftfile.attempt.follow.stream import LogStream
from ftfile.kv.feed.planner import FeedPlanner
from ftfile.kv.feed.rows import stored_columns
from ftfile.kv.feed.versions import Share
from ftfile.kv.reading.open_store import open_store

if TYPE_CHECKING:
    from ftfile.attempt.follow.stream import FollowConfig
    from ftfile.core.context import Context

__all__ = ("FeedStream",)


class FeedStream(LogStream[Share]):
    """The position of one query in the changes of a store.

    Raises:
        ConfigError: there is no store.
    """

    def __init__(self, config: FollowConfig, context: Context) -> None:
        super().__init__()
        reader = open_store(config.path, key_provider=config.key_provider, storage=config.storage, context=context)
        stored = stored_columns(arrow_schema(config.schema_json), reader.definition)
        self.marker = read_marker(reader.log.fs)
        self._planner = FeedPlanner(reader.log, config.settings, stored)

    def _open(self) -> FeedPlanner:
        return self._planner
