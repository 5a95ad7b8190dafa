"""Checks that a position is of this log, and that the log still has all versions that follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.follow.offsets import Beginning, InSnapshot
from ftfile.commit.format import layout
from ftfile.core.errors import AnotherLog, CorruptData, HistoryGone

if TYPE_CHECKING:
    from ftfile.attempt.follow.offsets import Position
    from ftfile.commit.format.model import Record
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

_ANEW = (
    "What is read next would not follow what was read. To read the directory as it is, give the query a new "
    "checkpointLocation"
)
_GONE = (
    "What was in between is lost for this query. Start it with a new checkpointLocation, and have vacuum keep more "
    "with a longer retention"
)


def check_position(log: CommitLog, head: LogState, position: Position) -> None:
    """Check that the log is the one that a position was made of, and that it can be read from there on.

    Raises:
        AnotherLog: it is another one.
        HistoryGone: versions that follow the position are not kept any more.
    """
    if isinstance(position, Beginning):
        return
    if isinstance(position, InSnapshot):
        named = needed = position.version
    else:
        named, needed = position.version + (position.read > 0), position.version + 1
    if named > head.version:
        raise AnotherLog(f"the query has read version {named}, and the log ends with {head.version}. {_ANEW}")
    if named >= 0:
        found = _nonce_of(log, head, named)
        if found is not None and found != position.nonce:
            raise AnotherLog(f"version {named} is not the one that the query has read. {_ANEW}")
    require_kept(head, needed)


def require_kept(head: LogState, version: int) -> None:
    """Raise HistoryGone if a version of the log is not kept any more; one that is still to come is."""
    if version < head.log_start:
        raise HistoryGone(
            f"version {version} is to be read next, and the oldest that vacuum has left is {head.log_start}. {_GONE}"
        )


def required_record(log: CommitLog, head: LogState, version: int) -> Record:
    """Return the record of a version; HistoryGone if it is not kept any more, CorruptData if it is missing."""
    require_kept(head, version)
    record = log.read_record(version)
    if record is None:
        require_kept(log.read_on(), version)
        raise CorruptData(layout.record_path(version), "a record", "nothing", "Restore it from a copy")
    return record


def _nonce_of(log: CommitLog, head: LogState, version: int) -> str | None:
    """Return the nonce of a version; None if nothing tells it any more."""
    known = dict(head.recent).get(version)
    if known is not None:
        return known
    # The head knows the newest ones, so that a version of which it does not is followed by others.
    following = log.read_record(version + 1) if version + 1 >= head.log_start else None
    return following.previous_nonce if following is not None else None
