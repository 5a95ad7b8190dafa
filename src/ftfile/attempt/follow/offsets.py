"""Positions of who follows a directory, as plain JSON of at most 256 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ftfile.core.errors import ConfigError

START: dict[str, Any] = {"kind": "start"}


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
        f"the offset {str(offset)[:300]} is none of an ftfile directory: the checkpoint is that of another source. "
        "Give the query a new checkpointLocation"
    )


def _is_sound(offset: dict[str, Any]) -> bool:
    numbers = {name: value for name, value in offset.items() if name not in {"kind", "nonce"}}
    are_sound = (type(number) is int and number >= -(name == "version") for name, number in numbers.items())
    return type(offset["nonce"]) is str and all(are_sound)
