"""A directory as a stream, which may have to be waited for; and `ftfile.open(path).follow()`, in plain Python."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.directory_marker import read_marker
from ftfile.attempt.follow.offsets import START, position_of, to_offset
from ftfile.attempt.follow.planner import FollowSettings
from ftfile.attempt.follow.stream import LogStream
from ftfile.commit.files import list_or_empty, stat_or_none
from ftfile.commit.format import layout
from ftfile.commit.log.log import CommitLog
from ftfile.commit.sealed.filesystem import open_with_keys
from ftfile.core.errors import ConfigError
from ftfile.core.options import parse_options
from ftfile.fs.registry import open_filesystem
from ftfile.source.follow.planner import FollowPlanner
from ftfile.source.shares import Share, read_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ftfile.attempt.follow.offsets import Position
    from ftfile.attempt.follow.stream import FollowConfig
    from ftfile.core.context import Context


class FollowStream(LogStream[Share]):
    """The position of one query in a directory; one that is not there yet is waited for."""

    def __init__(self, config: FollowConfig, context: Context) -> None:
        super().__init__()
        self._config = config
        self._context = context
        self._planner: FollowPlanner | None = None
        self._fs = open_filesystem(config.path, context, config.storage)

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[Share]:
        """Return the new rows between two offsets, as `LogStream.shares` does."""
        found = super().shares(start, end)
        if found and self.marker is None:
            self.marker = read_marker(self._fs)
        return found

    def report(self) -> dict[str, Any] | None:
        """Return the newest version, how many follow those that were planned, and how many were passed over."""
        if self._planner is None or (found := super().report()) is None:
            return None
        return found | {"versionsSkipped": self._planner.skipped}

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


def follow_log(
    log: CommitLog, path: str, columns: pa.Schema, offset: dict[str, Any] | None, options: Mapping[str, object]
) -> Iterator[tuple[dict[str, Any], Iterator[pa.RecordBatch]]]:
    """Yield the new rows behind an offset, plan by plan, each with the offset behind it, up to the head as it is now.

    Args:
        log: of the directory.
        path: of the directory, for errors.
        columns: that are read.
        offset: where to go on; None to begin.
        options: those of a stream, by their names.

    Raises:
        ConfigError: an option is wrong.
        SourceError: the log cannot be followed from there.
    """
    planner = FollowPlanner(log, _settings(options), columns, path)
    position = position_of(START if offset is None else offset)
    end_version = planner.read_on().version

    def rows(start: Position, end: Position) -> Iterator[pa.RecordBatch]:
        for share in planner.shares(start, end):
            yield from read_share(log.fs, share, columns)

    while (end := planner.plan(position, end_version)) != position:
        yield to_offset(end), rows(position, end)
        position = end


def _settings(options: Mapping[str, object]) -> FollowSettings:
    texts = {name: value.isoformat() if isinstance(value, datetime) else str(value) for name, value in options.items()}
    parsed = parse_options(texts, "follow")
    foreign = [name for name in ("path", "keyProvider", *parsed.own) if name in {*parsed.given, *parsed.own}]
    if foreign:
        raise ConfigError(f"{foreign[0]} is an argument of ftfile.open, and no option of follow")
    return FollowSettings.from_options(parsed)
