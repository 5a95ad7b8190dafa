"""What verifying a directory finds, and what `ftfile.repair` can do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from ftfile.commit.format import layout

if TYPE_CHECKING:
    from ftfile.commit.format.model import Add, Remove

__all__ = (
    "Action",
    "BringBack",
    "CutLog",
    "Finding",
    "GiveUp",
    "LowerHorizon",
    "MakeDirectory",
    "MoveAside",
    "Publish",
    "Rebuild",
    "Rename",
    "RetireAgain",
    "Severity",
    "StartLog",
    "VerifyReport",
)

Severity: TypeAlias = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """A directory of the protocol is missing: make it."""

    path: str

    def __str__(self) -> str:
        return f"make the directory {self.path!r}"


@dataclass(frozen=True, slots=True)
class MoveAside:
    """A file is in the way, or misleads: move it to quarantine."""

    path: str

    def __str__(self) -> str:
        return f"move {self.path!r} to {layout.QUARANTINE}"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A base, the ranges, or the hint are to be made anew of the records."""

    kind: Literal["base", "ranges", "hint"]

    def __str__(self) -> str:
        return f"make the {self.kind} anew of the records"


@dataclass(frozen=True, slots=True)
class CutLog:
    """The log cannot be read from a version on: put its records, and what they made visible, aside."""

    version: int

    def __str__(self) -> str:
        return f"move the records from version {self.version} on, and what they made visible, to {layout.QUARANTINE}"


@dataclass(frozen=True, slots=True)
class StartLog:
    """Versions before this one cannot be read: let the log begin with it."""

    version: int

    def __str__(self) -> str:
        return f"record that the log begins with version {self.version}"


@dataclass(frozen=True, slots=True)
class LowerHorizon:
    """The vacuum horizon lies in the future: set it back."""

    def __str__(self) -> str:
        return "record a vacuum horizon that is not in the future"


@dataclass(frozen=True, slots=True)
class Publish:
    """A part, or dead letters, are not published: roll forward."""

    add: Add

    def __str__(self) -> str:
        return f"publish {self.add.final_path!r}"


@dataclass(frozen=True, slots=True)
class RetireAgain:
    """A removed part is visible: hide it."""

    remove: Remove

    def __str__(self) -> str:
        return f"hide {self.remove.final_path!r} again"


@dataclass(frozen=True, slots=True)
class BringBack:
    """The content of a live part is under another name: publish it.

    Attributes:
        source: the file that has its content.
    """

    add: Add
    source: str

    def __str__(self) -> str:
        return f"publish {self.add.final_path!r} again, from {self.source!r}"


@dataclass(frozen=True, slots=True)
class Rename:
    """A part cannot have its final name: record another one.

    Attributes:
        source: the file that has its content.
    """

    add: Add
    source: str

    def __str__(self) -> str:
        return f"record another name for {self.add.final_path!r}, and publish it"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The rows of an add are lost: record that they are removed.

    Attributes:
        damaged: the file that is there instead, and belongs to no other add.
    """

    add: Add
    damaged: str | None = None

    def __str__(self) -> str:
        return f"record that the {self.add.rows} rows of {self.add.final_path or self.add.path!r} are gone"


Action: TypeAlias = (
    MakeDirectory
    | MoveAside
    | Rebuild
    | CutLog
    | StartLog
    | LowerHorizon
    | Publish
    | RetireAgain
    | BringBack
    | Rename
    | GiveUp
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as the log says.

    Attributes:
        code: what it is; docs/repair.md lists them.
        path: relative to the directory; empty for the directory as a whole.
        expected: by the log, or by the format.
        found: on storage.
        severity: `error` for what loses, doubles or blocks rows; `warning` for what the next commit, or a repair, mends
            without loss; `info` for what harms nothing.
        remedy: what to do.
        repair: whether `ftfile.repair` mends it: by itself, when asked for by an argument that `remedy` names, or not.
        actions: how.
    """

    code: str
    path: str
    expected: str
    found: str
    severity: Severity
    remedy: str
    repair: Literal["yes", "on request", "no"] = "no"
    actions: tuple[Action, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"{self.severity} {self.code} {self.path!r}: expected {self.expected}, found {self.found}. {self.remedy}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `Directory.verify()` found.

    Attributes:
        version: the newest version that can be read; -1 for none.
        oldest_version: the oldest one that is kept.
        records: how many were read.
        files: live finished or staged parts.
        segments: live pieces of files that are still open.
        rows: in both.
        size_bytes: of both.
        unrecorded_files: files below `_ftfile/staged` that no record knows: lost attempts, or tasks that run now.
        unrecorded_bytes: in them.
        quarantined_files: what repairs have put aside.
        full: whether content was read.
        complete: False when the log could not be read to its end, so that files were not compared with it.
        findings: worst first.
    """

    version: int = -1
    oldest_version: int = 0
    records: int = 0
    files: int = 0
    segments: int = 0
    rows: int = 0
    size_bytes: int = 0
    unrecorded_files: int = 0
    unrecorded_bytes: int = 0
    quarantined_files: int = 0
    full: bool = False
    complete: bool = True
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Return True if nothing is an error or a warning."""
        return self.complete and all(finding.severity == "info" for finding in self.findings)

    def __str__(self) -> str:
        content = "content read" if self.full else "content not read"
        head = f"version {self.version}: {self.files} files, {self.segments} open segments, {self.rows} rows; {content}"
        return "\n".join([head, *map(str, self.findings)])
