"""The changes of a store as a stream: offsets and shares, as Spark asks for them, by both of its protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.directory_marker import read_marker
from ftfile.attempt.follow.offsets import Beginning, position_of, to_offset
from ftfile.attempt.follow.settings import FollowSettings
from ftfile.core.errors import ConfigError
from ftfile.fs.registry import normalise
from ftfile.kv.feed.planner import FeedPlanner
from ftfile.kv.feed.rows import stored_columns
from ftfile.kv.reading.open_store import open_store

if TYPE_CHECKING:
    from ftfile.attempt.directory_marker import DirectoryMarker
    from ftfile.attempt.follow.offsets import Position
    from ftfile.core.context import Context
    from ftfile.core.options import ParsedOptions
    from ftfile.kv.feed.versions import Share

__all__ = ("FeedConfig", "FeedStream")


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """A store and the options with which its changes are read. It is plain data, which travels to tasks."""

    path: str
    key_provider: str | None
    storage: dict[str, str]
    schema_json: str  # Spark's, of the columns that are read
    settings: FollowSettings

    @classmethod
    def from_options(cls, parsed: ParsedOptions, schema_json: str) -> FeedConfig:
        """Return the checked options; a ConfigError where they contradict each other, or name no path."""
        if parsed["path"] is None:
            raise ConfigError("the stream has no `path`: spark.readStream.format('ftkv').load('/data/counts')")
        settings = FollowSettings.from_options(parsed)
        path = normalise(parsed["path"])
        return cls(path, parsed["keyProvider"], parsed.prefixed("storage"), schema_json, settings)


class FeedStream:
    """The position of one query in the changes of a store, in the process that Spark asks.

    Spark 4.0 and 4.1 ask for the newest offset without saying where the last batch ended, and tell that by asking for
    its partitions: the stream remembers it.

    Attributes:
        marker: by which tasks know the store; None if it has none.

    Raises:
        ConfigError: there is no store.
    """

    def __init__(self, config: FeedConfig, context: Context) -> None:
        reader = open_store(config.path, key_provider=config.key_provider, storage=config.storage, context=context)
        stored = stored_columns(arrow_schema(config.schema_json), reader.definition)
        self.marker: DirectoryMarker | None = read_marker(reader.log.fs)
        self._planner = FeedPlanner(reader.log, config.settings, stored)
        self._position: Position = Beginning()
        self._planned: Position = Beginning()
        self._end_version: int | None = None

    def latest_offset(self, start: dict[str, Any] | None = None, *, limited: bool = True) -> dict[str, Any]:
        """Return the offset up to which the next batch reads; `start` itself if there is nothing to read.

        Args:
            start: where it begins; by default, where the last shares ended.
            limited: keep to the limits of the settings.

        Raises:
            ConfigError, AnotherLog, StaleFiles, SchemaError: see `FeedPlanner.plan`.
        """
        begin = self._position if start is None else position_of(start)
        self._planned = self._planner.plan(begin, self._end_version, limited=limited)
        return to_offset(self._planned)

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[Share]:
        """Return the changes between two offsets as shares, one for each task; the same rows at every call.

        Raises:
            AnotherLog, StaleFiles: see `FeedPlanner.shares`.
        """
        self._position = position_of(end)
        return self._planner.shares(position_of(start), self._position)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what was read is in Spark's checkpoint alone."""

    def stop_at_head(self) -> None:
        """Read nothing that is committed from now on."""
        self._end_version = self._planner.read_on().version

    def report(self) -> dict[str, Any] | None:
        """Return the newest version, and how many follow those that were planned."""
        if isinstance(self._planned, Beginning):
            return None
        head = self._planner.head_version
        return {"version": head, "versionsBehind": max(0, head - self._planned.version)}
