"""Where a new follower begins, as its settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.follow.continuity import required_record
from ftfile.attempt.follow.offsets import Beginning, InLog, InSnapshot
from ftfile.commit.log.times import first_since
from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from ftfile.attempt.follow.offsets import Position
    from ftfile.attempt.follow.settings import FollowSettings
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

__all__ = ("begin_at", "origin_of")


def begin_at(log: CommitLog, settings: FollowSettings, head: LogState, end: int, start: Position) -> Position:
    """Return the position from which a plan up to version `end` goes on: `start`, or that of a new follower.

    Raises:
        ConfigError: there is no such version to begin with.
        HistoryGone: it is not kept any more.
    """
    if not isinstance(start, Beginning):
        return start
    if settings.starting_version == "latest":
        return _pinned_behind(log, head, end, end + 1)
    if settings.starting_time is not None:
        first = first_since(log, settings.starting_time)
        if first > head.version and settings.starting_time.timestamp() * 1000 > log.clock.now_ms():
            raise ConfigError(f"startingTimestamp={settings.starting_time.isoformat()} lies in the future")
        return _pinned_behind(log, head, end, min(first, end + 1))
    if settings.starting_version is not None:
        if settings.starting_version > end + 1:
            newest = f"the newest version is {end}" if end >= 0 else "nothing has been committed yet"
            raise ConfigError(f"startingVersion={settings.starting_version}: {newest}")
        if settings.starting_version < head.log_start:
            oldest = f"the oldest version that vacuum has left is {head.log_start}"
            raise ConfigError(f"startingVersion={settings.starting_version}: {oldest}")
        return _pinned_behind(log, head, end, settings.starting_version)
    return InSnapshot(end, required_record(log, head, end).nonce, 0) if end >= 0 else start


def origin_of(end: InSnapshot | InLog) -> InSnapshot | InLog:
    """Return where the first batch began, by its end alone."""
    if isinstance(end, InSnapshot) or end.first is None:
        return InSnapshot(end.version, end.nonce, 0)
    return InLog(end.first - 1, "")


def _pinned_behind(log: CommitLog, head: LogState, end: int, first: int) -> InLog:
    """Return the position before version `first`, which may be the one that follows the end."""
    nonce = required_record(log, head, end).nonce if first > end >= 0 else ""
    return InLog(first - 1, nonce, first=first)
