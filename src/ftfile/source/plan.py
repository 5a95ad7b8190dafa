"""The plan of one batch.

Plans are plain data, and contain all that a later process needs. A plan and the files known before it determine the
files known after it. Its ranges determine the rows of the batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from ftfile.core.errors import ConfigError
from ftfile.core.tasks import OPEN_COST_BYTES, pack_things
from ftfile.log.format.model import NUMBER_MAX, Count, Number

if TYPE_CHECKING:
    from collections.abc import Iterator


# Fingerprints have 64 bits, and keys 128.
_Print = Annotated[str, Meta(pattern=r"^([0-9a-f]{16})?\Z")]
_Key = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
_KeyOrNone = Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?\Z")]
_Size = Annotated[int, Meta(ge=-1, le=NUMBER_MAX)]


class _PlanRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An item of a list in a plan: an array in JSON."""


class Range(_PlanRow, frozen=True):
    """The bytes `[start, end)` of one file that a batch reads. Fingerprints identify them even in a moved file."""

    path: str  # of the file at planning time, relative to the root of the plan
    start: Count  # in the plain content
    end: Count  # in the plain content; if `whole`, the length of the stored file
    head: _Print  # fingerprint of the first KiB before `end`, or of less
    tail: _Print  # fingerprint of the last KiB before `end`, or of less
    size_bytes: _Size  # of the stored file at planning time
    modified_ms: Number  # of the file at planning time
    # lasting identity of the file in the storage, such as its inode; None if the storage has no identities
    identity: str | None = None
    whole: bool = False  # read from start to end, in every format
    compression: str = ""  # name of the codec; empty without compression


class Cut(NamedTuple):
    """The lines of a range that start in `[start, end)` of its plain content; an uncut range has all lines.

    If a cut begins or ends within a line, its task finds the line ends.
    """

    range: Range
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FileShare:
    """The cuts that one task reads."""

    root: str  # URL of the directory to which the paths are relative
    cuts: tuple[Cut, ...]


class FileEntry(_PlanRow, frozen=True):
    """The new known state of a file, if the end of a range does not imply it or the plan does not read the file."""

    path: str
    rule: str  # the rule that decided which file it is, in lower case
    position: Count  # the content before it was read, or is a copy of content that was read
    head: _Print  # fingerprints before `position`
    tail: _Print
    size_bytes: _Size
    modified_ms: Number
    identity: str | None = None
    previous_keys: tuple[_Key, ...] = ()  # keys under which the file was known, as hexadecimal digits
    displaces: bool = False  # another file was known at the path; its known state moves to another key
    advances: _KeyOrNone = (
        ""  # key of a deleted file that stays known; its position is now the end of the range of this copy
    )
    parked: str = ""  # why it is skipped until it changes: damaged, unencrypted, or of unknown length


class Refused(_PlanRow, frozen=True):
    """A file that its storage cannot open. Its known state does not change, and opening it is retried."""

    path: str
    reason: str


class Late(_PlanRow, frozen=True):
    """A file that appeared with a time before `SourcePlan.low` and is not read."""

    path: str
    modified_ms: Number


class SourcePlan(Struct, frozen=True, rename="camel"):
    """The ranges that one batch reads, and its changes to the known files."""

    ranges: tuple[Range, ...] = ()
    files: tuple[FileEntry, ...] = ()
    late: tuple[Late, ...] = ()
    refused: tuple[Refused, ...] = ()  # all refused files at planning time, up to the maximum of a plan
    low: Number = 0  # files modified before this time, in ms since 1970 UTC, are forgotten
    root: str = ""  # URL of the directory to which all paths are relative
    planned_ms: Count = 0  # planning time by the driver's clock, in ms since 1970 UTC

    @property
    def is_empty(self) -> bool:
        """Return True if the batch reads nothing and does not change the known files."""
        return not (self.ranges or self.files or self.late)

    def shares(self, task_bytes: int) -> list[FileShare]:
        """Return the shares of tasks in the order of the ranges. Opening a file counts as 1 MiB.

        The shares depend only on the ranges, and not on later changes of the files.
        """
        cuts: list[Cut] = []
        for planned in self.ranges:
            cuts += _cuts(planned, task_bytes)
        return [FileShare(self.root, tuple(group)) for group in pack_things(cuts, _cost_of, task_bytes)]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        text: dict[str, Any] = msgspec.to_builtins(self)
        return text

    @classmethod
    def from_json(cls, payload: dict[str, Any]) -> SourcePlan:
        """Return the plan of a JSON object from `to_json`.

        Raises:
            ValueError, KeyError: the object is not a plan.
        """
        return msgspec.convert(payload, cls)


def _cost_of(cut: Cut) -> int:
    return cut.end - cut.start + OPEN_COST_BYTES


def _cuts(planned: Range, max_bytes: int) -> Iterator[Cut]:
    if planned.whole or planned.compression:
        yield Cut(planned, planned.start, planned.end)
        return
    for start in range(planned.start, planned.end, max_bytes):
        yield Cut(planned, start, min(start + max_bytes, planned.end))


_ID = re.compile(r"[0-9a-f]{32}")

# The offset of every new query. A constant, since Spark requests it again when it repeats the first batch.
START: dict[str, Any] = {"kind": "start"}


class PlanPosition(NamedTuple):
    """The position after a plan."""

    log_id: str  # of the plan log, also the name of its directory
    plan: int  # -1 before the first plan
    nonce: str  # of the plan's record; empty before the first plan


def to_offset(position: PlanPosition | None) -> dict[str, Any]:
    """Return a position as JSON for Spark's checkpoint; None is the start."""
    if position is None:
        return dict(START)
    return {"kind": "plans", "id": position.log_id, "plan": position.plan, "nonce": position.nonce}


def position_of(offset: Any) -> PlanPosition | None:  # noqa: ANN401 - any JSON value
    """Return the position of an offset; None for the start.

    Raises:
        ConfigError: the offset does not belong to a source of files.
    """
    if offset == START:
        return None
    try:
        position = PlanPosition(offset["id"], offset["plan"], offset["nonce"])
        types = [*map(type, position)]
    except (KeyError, TypeError):
        types = []
    is_whole = types == [str, int, str] and to_offset(position) == offset and position.plan >= 0
    if is_whole and _ID.fullmatch(position.log_id):  # the id becomes a name in a path
        return position
    raise ConfigError(
        f"the offset {str(offset)[:300]} does not belong to a source of files: the checkpoint is of another source. "
        "Give the query a new checkpointLocation"
    )
