"""The plan of one batch: ranges of files, which tasks share, and what else it found out. Plain data.

A plan is all that a later process knows of a batch: the files known after it follow from those known before it and the
plan alone, and its rows from its ranges alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.errors import ConfigError
from ftfile.read.log_positions import START
from ftfile.read.shares import OPEN_COST_BYTES
from ftfile.rows.buffers import packed

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Range:
    """The bytes `[start, end)` of one file that a batch reads; their fingerprints tell them wherever they lie later."""

    path: str  # where the file was when this was planned, relative to the root of the plan
    start: int  # of its plain content
    end: int  # of its plain content; of a whole file, its length on storage
    head: str  # fingerprint of the first KiB before `end`, or less
    tail: str  # fingerprint of the last KiB before `end`, or less
    size_bytes: int  # of the file on storage, then
    modified_ms: int  # of the file, then
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


class Move(NamedTuple):
    """A known file that was found again at another path, which has a range or is seen in the same plan.

    One of which a compressed copy is there advances instead: it stays known by its key, up to the end of the range.
    """

    key: str  # by which it was known, as hexadecimal digits
    path: str  # where it is now


class Seen(NamedTuple):
    """A file of which nothing is read in this batch, as it is known from now on."""

    path: str
    position: int  # up to which its content was read, or is a copy of what was read
    head: str  # fingerprints before `position`
    tail: str
    size_bytes: int
    modified_ms: int
    identity: str | None = None


class Parked(NamedTuple):
    """A file that is damaged, or whose length is unknown; it is tried again when it has changed."""

    path: str
    reason: str
    size_bytes: int
    modified_ms: int
    identity: str | None = None


class Refused(NamedTuple):
    """A file that its store does not open; it stays known, or unknown, as it is, and is tried again."""

    path: str
    reason: str


class Late(NamedTuple):
    """A file that appeared with a time before `Plan.low`, and is not read."""

    path: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges that one batch reads, and all else that it finds out."""

    ranges: tuple[Range, ...] = ()
    moves: tuple[Move, ...] = ()
    seen: tuple[Seen, ...] = ()
    parked: tuple[Parked, ...] = ()
    late: tuple[Late, ...] = ()
    replaced: tuple[str, ...] = ()  # paths of known files where other files lie now; the known ones are kept
    low: int = 0  # files modified before it, in ms since 1970 UTC, are forgotten
    root: str = ""  # URL of the directory to which all paths are relative
    planned_ms: int = 0  # when it was made, by the driver's clock, since 1970 UTC
    refused: tuple[Refused, ...] = ()  # of all files at this time, as many as a plan names
    advances: tuple[Move, ...] = ()  # to compressed copies with ranges

    @property
    def is_empty(self) -> bool:
        """Return True if the batch reads nothing, and the known files stay as they are."""
        return not (self.ranges or self.moves or self.seen or self.parked or self.late or self.replaced)

    def shares(self, task_bytes: int) -> list[FileShare]:
        """Return the shares of tasks in the order of the ranges; opening a file counts like reading one of 1 MiB.

        The same ranges have the same shares whatever happened to the files since.
        """
        cuts = (cut for found in self.ranges for cut in _cuts(found, task_bytes))
        groups = packed(cuts, lambda cut: cut.end - cut.start + OPEN_COST_BYTES, task_bytes)
        return [FileShare(self.root, tuple(group)) for group in groups]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON."""
        ranges = [[getattr(found, field.name) for field in fields(found)] for found in self.ranges]
        lists = {name: [list(item) for item in getattr(self, name)] for name in _LISTS}
        values = {"low": self.low, "root": self.root, "plannedMs": self.planned_ms}
        return {"ranges": ranges, **lists, "replaced": list(self.replaced), **values}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Plan:
        """Return the plan that `to_json` gave."""
        made: dict[str, Any] = {name: tuple(kind(*item) for item in found[name]) for name, kind in _LISTS.items()}
        made["ranges"] = tuple(Range(*item) for item in found["ranges"])
        made["replaced"] = tuple(found["replaced"])
        return cls(**made, low=found["low"], root=found["root"], planned_ms=found["plannedMs"])


def _cuts(found: Range, max_bytes: int) -> Iterator[Cut]:
    if found.whole or found.compression:
        yield Cut(found, found.start, found.end)
        return
    for start in range(found.start, found.end, max_bytes):
        yield Cut(found, start, min(start + max_bytes, found.end))


_LISTS: dict[str, Any] = {
    "moves": Move,
    "seen": Seen,
    "parked": Parked,
    "late": Late,
    "refused": Refused,
    "advances": Move,
}


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
        f"the offset {str(offset)[:300]} is none of a source of files: the checkpoint is that of another source. Give "
        "the query a new checkpointLocation"
    )
