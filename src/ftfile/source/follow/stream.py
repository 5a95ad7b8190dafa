"""A directory as a stream: offsets and shares, as Spark asks for them, by both of its protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.directory_marker import read_marker
from ftfile.attempt.follow.offsets import Beginning, position_of, to_offset
from ftfile.attempt.follow.settings import FollowSettings
from ftfile.commit.files import list_or_empty, stat_or_none
from ftfile.commit.format import layout
from ftfile.commit.log.log import CommitLog
from ftfile.commit.sealed.filesystem import open_with_keys
from ftfile.core.errors import ConfigError
from ftfile.fs.registry import normalise, open_filesystem
from ftfile.source.follow.planner import FollowPlanner

if TYPE_CHECKING:
    from ftfile.attempt.directory_marker import DirectoryMarker
    from ftfile.attempt.follow.offsets import Position
    from ftfile.core.context import Context
    from ftfile.core.options import ParsedOptions
    from ftfile.source.shares import Share

__all__ = ("FollowConfig", "FollowStream")


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """A directory and the options with which it is followed. It is plain data, which travels to tasks."""

    path: str
    key_provider: str | None
    storage: dict[str, str]
    schema_json: str  # Spark's, of the columns that are read
    settings: FollowSettings

    @classmethod
    def from_options(cls, parsed: ParsedOptions, schema_json: str) -> FollowConfig:
        """Return the checked options; a ConfigError where they contradict each other, or name no path."""
        if parsed["path"] is None:
            raise ConfigError("the stream has no `path`: spark.readStream.format('ftfile').load('/data/out')")
        path = normalise(parsed["path"])
        settings = FollowSettings.from_options(parsed)
        return cls(path, parsed["keyProvider"], parsed.prefixed("storage"), schema_json, settings)


class FollowStream:
    """The position of one query in a directory, in the process that Spark asks.

    A directory that is not there yet is waited for. Spark 4.0 and 4.1 ask for the newest offset without saying where
    the last batch ended, and tell that by asking for its partitions: the stream remembers it.
    """

    def __init__(self, config: FollowConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._planner: FollowPlanner | None = None
        self._position: Position = Beginning()
        self._planned: Position = Beginning()
        self._end_version: int | None = None
        self._fs = open_filesystem(config.path, context, config.storage)
        self.marker: DirectoryMarker | None = None  # known with the first shares

    def latest_offset(self, start: dict[str, Any] | None = None, *, limited: bool = True) -> dict[str, Any]:
        """Return the offset up to which the next batch reads; `start` itself if there is nothing to read.

        Args:
            start: where it begins; by default, where the last shares ended.
            limited: keep to the limits of the settings.

        Raises:
            ConfigError: the directory is none that ftfile wrote, or there is no such version to begin with.
            SourceError: the log cannot be followed from there.
            SchemaError: the next version has other columns than are read.
        """
        begin = self._position if start is None else position_of(start)
        self._planned = self._open().plan(begin, self._end_version, limited=limited)
        return to_offset(self._planned)

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[Share]:
        """Return the new rows between two offsets as shares, one for each task; the same rows at every call.

        Raises:
            SourceError: the log cannot be read from there any more.
        """
        self._position = position_of(end)
        found = list(self._open().between(position_of(start), self._position))
        if found and self.marker is None:
            self.marker = read_marker(self._fs)
        return found

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what was read is in Spark's checkpoint alone."""

    def stop_at_head(self) -> None:
        """Read nothing that is committed from now on."""
        self._end_version = self._open().read_on().version

    def report(self) -> dict[str, Any] | None:
        """Return the newest version, how many follow those that were planned, and how many were passed over."""
        if self._planner is None or isinstance(self._planned, Beginning):
            return None
        head = self._planner.head_version
        behind = max(0, head - self._planned.version)
        return {"version": head, "versionsBehind": behind, "versionsSkipped": self._planner.skipped}

    def _open(self) -> FollowPlanner:
        """Return the planner of the directory; until there is one, a new planner of nothing."""
        if self._planner is not None:
            return self._planner
        config = self._config
        is_there = stat_or_none(self._fs, layout.FORMAT_FILE) is not None
        if is_there:  # only now is it known if the directory is encrypted
            self._fs = open_with_keys(config.path, self._context, config.key_provider, config.storage.items())
        else:
            self._require_empty()
        log = CommitLog(self._fs)
        if is_there:
            log.check_layout()
        planner = FollowPlanner(log, config.settings, arrow_schema(config.schema_json), config.path)
        self._planner = planner if is_there else None
        return planner

    def _require_empty(self) -> None:
        others = [info.path for info in list_or_empty(self._fs, "") if info.path != layout.META]
        if others:
            raise ConfigError(
                f"{self._config.path!r} is not an ftfile directory: it has no log, and other files, such as "
                f"{others[0]!r}. To read files that others write, set fileFormat"
            )
