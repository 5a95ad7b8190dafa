"""Adds that vacuums have left, and the oldest version that has all of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.files import list_or_empty
from ftfile.commit.format import layout
from ftfile.commit.log.times import newest_at
from ftfile.commit.read.snapshot import snapshot_at

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
    whole = _whole_from(log, head)
    left = len(snapshot_at(log, head, since=whole).adds)
    low, high = head.log_start, whole
    # An older version has as many adds, or more, and one that has more has lost some.
    while low < high:
        middle = (low + high) // 2
        if len(snapshot_at(log, head, since=middle).adds) == left:
            high = middle
        else:
            low = middle + 1
    return low


def _whole_from(log: CommitLog, head: LogState) -> int:
    """Return the version that was the newest at the horizon: a vacuum leaves all that was live then, or later."""
    listed = list_or_empty(log.fs, layout.LOG)
    newest_ms = max((info.modified_ms for info in listed), default=0)
    return max(head.log_start, newest_at(listed, head, head.horizon_ms, newest_ms) or 0)
