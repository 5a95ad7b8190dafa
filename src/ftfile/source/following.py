"""Following a directory in plain Python: `ftfile.open(path).follow()`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ftfile.attempt.follow.offsets import START, position_of, to_offset
from ftfile.attempt.follow.settings import FollowSettings
from ftfile.core.errors import ConfigError
from ftfile.core.options import parse_options
from ftfile.source.follow.planner import FollowPlanner
from ftfile.source.shares import read_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ftfile.attempt.follow.offsets import Position
    from ftfile.commit.log.log import CommitLog

__all__ = ("follow_log",)


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
