"""Positions of who follows a log, as plain JSON of at most 256 bytes; and checks that it goes on from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ftfile.core.errors import AnotherLog, ConfigError, CorruptData, HistoryGone
from ftfile.log.format import layout

if TYPE_CHECKING:
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Record
    from ftfile.log.state import LogState


# Where every query begins. Spark asks for it anew when it repeats the first batch, so that it is a constant.
START: dict[str, Any] = {"kind": "start"}

_ANEW = "The query would skip or repeat rows. To read the current directory, give the query a new checkpointLocation"
_GONE = (
    "The versions in between are lost for this query. Start it with a new checkpointLocation, and vacuum with a "
    "longer retention"
)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The position of a new query; where that begins is found out when it plans."""


@dataclass(frozen=True, slots=True)
class InSnapshot:
    """The position within the rows that were there when the query began."""

    version: int
    nonce: str  # of the record at `version`
    read: int  # adds that were read, in their order


@dataclass(frozen=True, slots=True)
class InLog:
    """The position behind a version: all up to it was read."""

    version: int  # -1 before the first record
    nonce: str  # of the newest record that was read, also if only in part; empty before the first record
    read: int = 0  # adds that were read of the version that follows
    first: int | None = None  # the version where the query began; only in the end of its first batch


Position: TypeAlias = Beginning | InSnapshot | InLog


def to_offset(position: Position) -> dict[str, Any]:
    """Return a position as Spark's checkpoints keep it."""
    if isinstance(position, Beginning):
        return dict(START)
    if isinstance(position, InSnapshot):
        return {"kind": "log", "snapshot": position.version, "nonce": position.nonce, "read": position.read}
    offset: dict[str, Any] = {"kind": "log", "version": position.version, "nonce": position.nonce}
    if position.read:
        offset["next"] = position.read
    if position.first is not None:
        offset["from"] = position.first
    return offset


def position_of(offset: Any) -> Position:  # noqa: ANN401 - whatever a checkpoint holds
    """Return the position that an offset stands for.

    Raises:
        ConfigError: it is none of a directory that is followed.
    """
    if offset == START:
        return Beginning()
    try:
        position = (
            InSnapshot(offset["snapshot"], offset["nonce"], offset["read"])
            if "snapshot" in offset
            else InLog(offset["version"], offset["nonce"], offset.get("next", 0), offset.get("from"))
        )
    except (AttributeError, KeyError, TypeError):
        position = None
    if position is not None and to_offset(position) == offset and _is_sound(offset):
        return position
    raise ConfigError(
        f"the offset {str(offset)[:300]} does not belong to an ftfile directory: the checkpoint is of another source. "
        "Give the query a new checkpointLocation"
    )


def _is_sound(offset: dict[str, Any]) -> bool:
    numbers = {name: value for name, value in offset.items() if name not in {"kind", "nonce"}}
    are_sound = (type(number) is int and number >= -(name == "version") for name, number in numbers.items())
    return type(offset["nonce"]) is str and all(are_sound)


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
        nonce = _nonce_of(log, head, named)
        if nonce is not None and nonce != position.nonce:
            raise AnotherLog(f"version {named} is not the version that the query has read. {_ANEW}")
    check_kept(head, needed)


def check_kept(head: LogState, version: int) -> None:
    """Raise HistoryGone if a version of the log is not kept any more; one that is still to come is."""
    if version < head.log_start:
        raise HistoryGone(
            f"version {version} must be read next, and the oldest version that vacuum has kept is {head.log_start}. "
            f"{_GONE}"
        )


def record_or_gone(log: CommitLog, head: LogState, version: int) -> Record:
    """Return the record of a version; HistoryGone if it is not kept any more, CorruptData if it is missing."""
    check_kept(head, version)
    record = log.read_record(version)
    if record is None:
        check_kept(log.refresh(), version)
        raise CorruptData(layout.record_path(version), "a record", "nothing", "Restore it from a copy")
    return record


def _nonce_of(log: CommitLog, head: LogState, version: int) -> str | None:
    """Return the nonce of a version; None if nothing tells it any more."""
    nonce = dict(head.recent).get(version)
    if nonce is not None:
        return nonce
    # The head knows the newest ones, so that a version of which it does not is followed by others.
    following = log.read_record(version + 1) if version + 1 >= head.log_start else None
    return following.previous_nonce if following is not None else None


def origin_of(end: InSnapshot | InLog) -> InSnapshot | InLog:
    """Return where the first batch began, by its end alone."""
    if isinstance(end, InSnapshot) or end.first is None:
        return InSnapshot(end.version, end.nonce, 0)
    return InLog(end.first - 1, "")


def pinned_behind(log: CommitLog, head: LogState, end: int, first: int) -> InLog:
    """Return the position before version `first`, which may be the one that follows the end."""
    nonce = record_or_gone(log, head, end).nonce if first > end >= 0 else ""
    return InLog(first - 1, nonce, first=first)
