"""A log as a stream: offsets and shares, as Spark asks for them, by both of its protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ftfile.core.errors import ConfigError
from ftfile.read.log_planner import FollowSettings
from ftfile.read.log_positions import Beginning, position_of, to_offset
from ftfile.storage.registry import normalise

if TYPE_CHECKING:
    from ftfile.core.options import ParsedOptions
    from ftfile.log.directory import DirectoryMarker
    from ftfile.read.log_planner import LogPlanner
    from ftfile.read.log_positions import Position


_Share = TypeVar("_Share")


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """A directory and the options with which it is followed. It is plain data, which travels to tasks."""

    path: str
    key_provider: str | None
    storage: dict[str, str]
    schema_json: str  # Spark's, of the columns that are read
    settings: FollowSettings
    merge: str | None = None  # of a store, as its user gives it

    @classmethod
    def from_options(
        cls, parsed: ParsedOptions, schema_json: str, example: str = "format('ftfile').load('/data/out')"
    ) -> FollowConfig:
        """Return the checked options; a ConfigError where they contradict each other, or name no path."""
        if parsed["path"] is None:
            raise ConfigError(f"the stream has no `path`: spark.readStream.{example}")
        settings = FollowSettings.from_options(parsed)
        path = normalise(parsed["path"])
        return cls(path, parsed["keyProvider"], parsed.prefixed("storage"), schema_json, settings)


class LogStream(ABC, Generic[_Share]):
    """The position of one query in a log, in the process that Spark asks.

    Spark 4.0 and 4.1 ask for the newest offset without saying where the last batch ended, and tell that by asking for
    its partitions: the stream remembers it.
    """

    def __init__(self) -> None:
        self.marker: DirectoryMarker | None = None  # of the directory, if it has one; known with the first shares
        self._position: Position = Beginning()
        self._planned: Position = Beginning()
        self._end_version: int | None = None

    def latest_offset(self, start: dict[str, Any] | None = None, *, limited: bool = True) -> dict[str, Any]:
        """Return the offset up to which the next batch reads; `start` itself if there is nothing to read.

        It begins, by default, where the last shares ended.

        Raises:
            ConfigError: the directory is of another kind, or there is no such version to begin with.
            SourceError, StaleFiles: the log cannot be followed from there.
            SchemaError: the next version has other columns than are read.
        """
        begin = self._position if start is None else position_of(start)
        self._planned = self._open().plan(begin, self._end_version, limited=limited)
        return to_offset(self._planned)

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[_Share]:
        """Return the shares between two offsets, one for each task; the same rows at every call.

        Raises:
            SourceError, StaleFiles: the log cannot be read from there any more.
        """
        self._position = position_of(end)
        return self._open().shares(position_of(start), self._position)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what was read is in Spark's checkpoint alone."""

    def stop_at_head(self) -> None:
        """Read nothing that is committed from now on."""
        self._end_version = self._open().refresh().version

    def report(self) -> dict[str, Any] | None:
        """Return the newest version, and how many follow those that were planned."""
        if isinstance(self._planned, Beginning):
            return None
        head = self._open().head_version
        return {"version": head, "versionsBehind": max(0, head - self._planned.version)}

    @abstractmethod
    def _open(self) -> LogPlanner[_Share]:
        """Return the planner of the log."""
