"""The plan of one batch: ranges of files, which tasks share, and what else it found out. Plain data.

A plan is all that a later process knows of a batch: the files known after it follow from those known before it and the
plan alone, and its rows from its ranges alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from ftfile.core.errors import ConfigError
from ftfile.core.units import packed
from ftfile.log.format.model import NUMBER_MAX, Count, Number
from ftfile.read.log_positions import START
from ftfile.read.shares import OPEN_COST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator


# Fingerprints have 64 bits, and keys 128.
_Print = Annotated[str, Meta(pattern=r"^([0-9a-f]{16})?\Z")]
_Key = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
_KeyOrNone = Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?\Z")]
_Size = Annotated[int, Meta(ge=-1, le=NUMBER_MAX)]


class _Row(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An item of a list in a plan: an array in JSON."""


class Range(_Row, frozen=True):
    """The bytes `[start, end)` of one file that a batch reads; their fingerprints tell them wherever they lie later."""

    path: str  # where the file was when this was planned, relative to the root of the plan
    start: Count  # of its plain content
    end: Count  # of its plain content; of a whole file, its length on storage
    head: _Print  # fingerprint of the first KiB before `end`, or less
    tail: _Print  # fingerprint of the last KiB before `end`, or less
    size_bytes: _Size  # of the file on storage, then
    modified_ms: Number  # of the file, then
    identity: str | None = None  # the store's name of the file, such as an inode, if it has one
    whole: bool = False  # read from its start to its end, whatever its format is
    compression: str = ""  # codec by its name; empty for none


class Cut(NamedTuple):
    """The lines of a range that start in `[start, end)` of its plain content; all of one that is not cut.

    Where it begins and ends within a line, its task finds the line ends.
    """

    range: Range
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FileShare:
    """Cuts that one task reads."""

    root: str  # URL of the directory to which the paths are relative
    cuts: tuple[Cut, ...]


class FileEntry(_Row, frozen=True):
    """A file as it is known from now on, where that is more than the end of its range, or nothing of it is read."""

    path: str
    rule: str  # by which it was decided which file it is, in lower case
    position: Count  # up to which its content was read, or is a copy of what was read
    head: _Print  # fingerprints before `position`
    tail: _Print
    size_bytes: _Size
    modified_ms: Number
    identity: str | None = None
    previous_keys: tuple[_Key, ...] = ()  # under which it was known, as hexadecimal digits
    displaces: bool = False  # the file that was known at its path is another one, which stays known under another key
    advances: _KeyOrNone = (
        ""  # key of a file that is gone, and is known up to the end of the range of this copy from now on
    )
    parked: str = ""  # why it is left out until it changes: it is damaged, or its length is unknown


class Refused(_Row, frozen=True):
    """A file that its store does not open; it stays known, or unknown, as it is, and is tried again."""

    path: str
    reason: str


class Late(_Row, frozen=True):
    """A file that appeared with a time before `Plan.low`, and is not read."""

    path: str
    modified_ms: Number


class Plan(Struct, frozen=True, rename="camel"):
    """The ranges that one batch reads, and all else that it finds out."""

    ranges: tuple[Range, ...] = ()
    files: tuple[FileEntry, ...] = ()
    late: tuple[Late, ...] = ()
    refused: tuple[Refused, ...] = ()  # of all files at this time, as many as a plan names
    low: Number = 0  # files modified before it, in ms since 1970 UTC, are forgotten
    root: str = ""  # URL of the directory to which all paths are relative
    planned_ms: Count = 0  # when it was made, by the driver's clock, since 1970 UTC

    @property
    def is_empty(self) -> bool:
        """Return True if the batch reads nothing, and the known files stay as they are."""
        return not (self.ranges or self.files or self.late)

    def shares(self, task_bytes: int) -> list[FileShare]:
        """Return the shares of tasks in the order of the ranges; opening a file counts like reading one of 1 MiB.

        The same ranges have the same shares whatever happened to the files since.
        """
        cuts = (cut for planned in self.ranges for cut in _cuts(planned, task_bytes))
        groups = packed(cuts, lambda cut: cut.end - cut.start + OPEN_COST_BYTES, task_bytes)
        return [FileShare(self.root, tuple(group)) for group in groups]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON."""
        text: dict[str, Any] = msgspec.to_builtins(self)
        return text

    @classmethod
    def from_json(cls, payload: dict[str, Any]) -> Plan:
        """Return the plan that `to_json` gave; a ValueError or a KeyError for what is none."""
        return msgspec.convert(payload, cls)


def _cuts(planned: Range, max_bytes: int) -> Iterator[Cut]:
    if planned.whole or planned.compression:
        yield Cut(planned, planned.start, planned.end)
        return
    for start in range(planned.start, planned.end, max_bytes):
        yield Cut(planned, start, min(start + max_bytes, planned.end))


_ID = re.compile(r"[0-9a-f]{32}")


class PlanPosition(NamedTuple):
    """The position behind a plan."""

    log_id: str  # of the plan log, which is the name of its directory
    plan: int  # -1 before the first plan
    nonce: str  # of the plan's record; empty before the first


def to_offset(position: PlanPosition | None) -> dict[str, Any]:
    """Return a position, None for the start, as Spark's checkpoints keep it."""
    if position is None:
        return dict(START)
    return {"kind": "plans", "id": position.log_id, "plan": position.plan, "nonce": position.nonce}


def position_of(offset: Any) -> PlanPosition | None:  # noqa: ANN401 - whatever a checkpoint holds
    """Return the position that an offset stands for; None for the start.

    Raises:
        ConfigError: it is none of a source of files.
    """
    if offset == START:
        return None
    try:
        position = PlanPosition(offset["id"], offset["plan"], offset["nonce"])
        types = [*map(type, position)]
    except (KeyError, TypeError):
        types = []
    is_whole = types == [str, int, str] and to_offset(position) == offset and position.plan >= 0
    if is_whole and _ID.fullmatch(position.log_id):  # it becomes a name in a path
        return position
    raise ConfigError(
        f"the offset {str(offset)[:300]} does not belong to a source of files: the checkpoint is of another source. "
        "Give the query a new checkpointLocation"
    )
