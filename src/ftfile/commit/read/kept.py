"""Adds that vacuums have left, and the oldest version that has all of its files."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ftfile.commit.log.times import created_ms
from ftfile.commit.read.snapshot import last_removal, snapshot_at

if TYPE_CHECKING:
    from collections.abc import Collection

    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState


def not_vacuumed(log: CommitLog, head: LogState) -> Collection[str] | None:
    """Return the ids of the adds whose files vacuums up to this head leave; None for all."""
    if head.horizon_ms == 0:
        return None
    return snapshot_at(log, head, since=_whole_from(log, head)).adds


def oldest_readable(log: CommitLog, head: LogState) -> int:
    """Return the oldest version of which no file may be vacuumed."""
    if head.horizon_ms == 0:
        return head.log_start
    # What was removed after a version, and before the vacuum's horizon, may be gone.
    return last_removal(log, head, head.log_start, _whole_from(log, head))


def _whole_from(log: CommitLog, head: LogState) -> int:
    """Return the version that was the newest at the horizon: a vacuum leaves all that was live then, or later.

    Where the store's clock went back, it may be a later one. It reads the times of few records.
    """
    versions = range(head.log_start, head.version + 1)
    # One that is gone since was older than any that is there.
    behind = bisect_right(versions, head.horizon_ms, key=lambda version: created_ms(log, version) or 0)
    return versions[max(behind - 1, 0)]
