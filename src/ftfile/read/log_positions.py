"""Positions of a follower of a log, stored as plain JSON of at most 256 bytes, and checks of them against the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ftfile.core.errors import AnotherLog, ConfigError, CorruptData, HistoryGone
from ftfile.log.format import layout

if TYPE_CHECKING:
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Record
    from ftfile.log.state import LogState


# The offset of every new query. A constant, since Spark requests it again when it repeats the first batch.
START: dict[str, Any] = {"kind": "start"}

_ANEW = "The query would skip or repeat rows. To read the current directory, give the query a new checkpointLocation"
_GONE = (
    "The versions in between are lost for this query. Start it with a new checkpointLocation, and vacuum with a "
    "longer retention"
)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The position of a new query. The first plan determines where the query starts."""

    def to_offset(self) -> dict[str, Any]:
        """Return the position as Spark's checkpoints store it."""
        return dict(START)


@dataclass(frozen=True, slots=True)
class InSnapshot:
    """A position within the rows that existed when the query began."""

    version: int
    nonce: str  # nonce of the record at `version`
    read: int  # number of adds that were read, in their order

    @property
    def named(self) -> int:
        """Return the version whose nonce the position contains."""
        return self.version

    @property
    def needed(self) -> int:
        """Return the oldest version that the next batch reads."""
        return self.version

    @property
    def snapshot(self) -> InSnapshot | None:
        """Return the position in the snapshot; None if the snapshot was read completely."""
        return self

    def behind_snapshot(self) -> InLog:
        """Return the first position after the snapshot."""
        return InLog(version=self.version, nonce=self.nonce)

    def origin(self) -> Begun:
        """Return the start of the first batch if that batch ends at this position."""
        return replace(self, read=0)

    def resume(self) -> Begun:
        """Return the position as the start of the next batch."""
        return self

    def to_offset(self) -> dict[str, Any]:
        """Return the position as Spark's checkpoints store it."""
        return {"kind": "log", "snapshot": self.version, "nonce": self.nonce, "read": self.read}


@dataclass(frozen=True, slots=True, kw_only=True)
class InLog:
    """A position after a version; all versions up to it were read."""

    version: int  # -1 before the first record
    nonce: str  # nonce of the newest record that was read, also in part; empty before the first record
    read: int = 0  # number of adds that were read in the following version
    first: int | None = None  # the version where the query began; only set at the end of its first batch

    @property
    def named(self) -> int:
        """Return the version whose nonce the position contains; -1 before the first record."""
        return self.version + (self.read > 0)

    @property
    def needed(self) -> int:
        """Return the oldest version that the next batch reads."""
        return self.version + 1

    @property
    def snapshot(self) -> InSnapshot | None:
        """Return None: the snapshot was read completely."""
        return None

    def behind_snapshot(self) -> InLog:
        """Return the first position after the snapshot: this position."""
        return self

    def origin(self) -> Begun:
        """Return the start of the first batch if that batch ends at this position."""
        if self.first is None:
            return InSnapshot(self.version, self.nonce, 0)
        return InLog(version=self.first - 1, nonce="")

    def resume(self) -> Begun:
        """Return the position as the start of the next batch."""
        return replace(self, first=None)

    def to_offset(self) -> dict[str, Any]:
        """Return the position as Spark's checkpoints store it."""
        offset: dict[str, Any] = {"kind": "log", "version": self.version, "nonce": self.nonce}
        if self.read:
            offset["next"] = self.read
        if self.first is not None:
            offset["from"] = self.first
        return offset


Begun: TypeAlias = InSnapshot | InLog
Position: TypeAlias = Beginning | Begun


def position_of(offset: Any) -> Position:  # noqa: ANN401 - whatever a checkpoint holds
    """Return the position that an offset represents.

    Raises:
        ConfigError: the offset is not an offset of an ftfile directory.
    """
    if offset == START:
        return Beginning()
    try:
        position = _parse_position(offset)
    except (AttributeError, KeyError, TypeError):
        position = None
    if position is not None and position.to_offset() == offset and _is_sound(offset):
        return position
    raise ConfigError(
        f"the offset {str(offset)[:300]} does not belong to an ftfile directory: the checkpoint is of another source. "
        "Give the query a new checkpointLocation"
    )


def _parse_position(offset: dict[str, Any]) -> Begun:
    if "snapshot" in offset:
        return InSnapshot(offset["snapshot"], offset["nonce"], offset["read"])
    return InLog(version=offset["version"], nonce=offset["nonce"], read=offset.get("next", 0), first=offset.get("from"))


def _is_sound(offset: dict[str, Any]) -> bool:
    for name, value in offset.items():
        if name in {"kind", "nonce"}:
            continue
        if type(value) is not int or value < -(name == "version"):
            return False
    return type(offset["nonce"]) is str


def check_position(log: CommitLog, head: LogState, position: Begun) -> None:
    """Check that a position belongs to this log, and that the log still contains the versions after it.

    Raises:
        AnotherLog: the position belongs to another log.
        HistoryGone: versions that follow the position were deleted.
    """
    named = position.named
    if named > head.version:
        raise AnotherLog(f"the query has read version {named}, and the log ends with {head.version}. {_ANEW}")
    if named >= 0:
        nonce = _nonce_of(log, head, named)
        if nonce is not None and nonce != position.nonce:
            raise AnotherLog(f"version {named} is not the version that the query has read. {_ANEW}")
    check_kept(head, position.needed)


def check_kept(head: LogState, version: int) -> None:
    """Raise HistoryGone if vacuum has deleted a version of the log. Versions after the head pass."""
    if version < head.log_start:
        raise HistoryGone(
            f"version {version} must be read next, and the oldest version that vacuum has kept is {head.log_start}",
            _GONE,
        )


def record_or_gone(log: CommitLog, head: LogState, version: int) -> Record:
    """Return the record of a version; HistoryGone if vacuum has deleted it, CorruptData if it is missing."""
    check_kept(head, version)
    record = log.read_record(version)
    if record is None:
        check_kept(log.refresh(), version)
        raise CorruptData(layout.record_path(version), "a record", "nothing", "Restore it from a copy")
    return record


def _nonce_of(log: CommitLog, head: LogState, version: int) -> str | None:
    """Return the nonce of a version; None if neither the head nor the following record contains it."""
    nonce = dict(head.recent).get(version)
    if nonce is not None:
        return nonce
    # The head contains the newest nonces. If a version is not among them, the log has a following record.
    following = None
    if version + 1 >= head.log_start:
        following = log.read_record(version + 1)
    if following is not None:
        return following.previous_nonce
    return None


def pin_behind(log: CommitLog, head: LogState, end: int, first: int) -> InLog:
    """Return the position before version `first`, which may be the version after `end`."""
    nonce = ""
    if first > end >= 0:
        nonce = record_or_gone(log, head, end).nonce
    return InLog(version=first - 1, nonce=nonce, first=first)
