"""What a use case asks the protocol to commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.commit.format.model import Add, Author, DueJob, Fingerprint, Record
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.core.errors import FtfileError

__all__ = ("PlanDue", "Proposal", "Refused", "Rewrite", "Settle")

PlanDue = Callable[["LogState", "Record", "tuple[DueJob, ...]"], "tuple[DueJob, ...]"]


class Settle(Protocol):
    """Completes a proposal for the head that it is to follow."""

    def __call__(self, proposal: Proposal, log: CommitLog, head: LogState, /) -> Proposal:
        """Return the whole proposal; nothing that cannot be repeated for another head."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The same rows in other files: accepted as a whole or dropped, never in part.

    Attributes:
        inputs: the adds it replaces.
        adds: what replaces them.
        known_at: the version at which the inputs were seen to be live.
        reason: code of why it was made, which the record counts by the parts of what it accepts; empty for none.
    """

    inputs: tuple[Add, ...]
    adds: tuple[Add, ...]
    known_at: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A rewrite that is left out because its parts cannot get their names: the rows stay where they are."""

    rewrite: Rewrite
    error: FtfileError


@dataclass(frozen=True, slots=True)
class Proposal:
    """A batch, a batch write or a maintenance operation, ready to be recorded.

    Attributes:
        adds: new rows; their files are staged and complete.
        letters: files to publish beside the rows; see `Record.letters`.
        rewrites: each dropped, without harm to the rest, when an input is no longer live, its files are too old, or its
            parts cannot get their names.
        refused: rewrites that were left out already.
        names_repeat: names of parts may lack what makes them unique, and each must be new to the directory.
        overwrite: replace everything that is live in the version before the one created.
        drops: which of the live adds end without a replacement; called with every head that is tried and its snapshot.
        claims_replay: a task found the batch in the log and wrote nothing: there must be a record.
        tasks: how many tasks wrote it; 0 for none.
        plan_due: which jobs are due after a record; called with the head it follows, the record without any, and the
            jobs of the head that can still be done. Without it, those stay due.
        horizon_ms: for vacuum, see `Record`.
        lowers_horizon: the horizon may go back; see `maintenance.horizon`. Otherwise the record repeats a later one.
        log_start: for vacuum, see `Record`.
        definitions: by key, the schemas and encodings that adds, `schema` and `encoding` refer to.
        memory: changes of what the use case remembers.
        check: the use case's own objections to following a head; called with every head that is tried.
        settle: completes the proposal for the head it is to follow, called likewise; before that, parts may lack names.
    """

    author: Author
    adds: tuple[Add, ...] = ()
    letters: tuple[Add, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    refused: tuple[Refused, ...] = ()
    names_repeat: bool = False
    overwrite: bool = False
    drops: Callable[[LogState, Snapshot], Iterable[Add]] | None = None
    claims_replay: bool = False
    fingerprint: Fingerprint | None = None
    tasks: int = 0
    plan_due: PlanDue | None = None
    horizon_ms: int | None = None
    lowers_horizon: bool = False
    log_start: int | None = None
    schema: str | None = None
    settings: str | None = None
    encoding: str | None = None
    definitions: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    payload: Any = None
    check: Callable[[LogState], None] | None = None
    settle: Settle | None = None

    def check_head(self, head: LogState) -> None:
        """Raise the use case's objection to following this head, if it has one."""
        if self.check is not None:
            self.check(head)

    def settled(self, log: CommitLog, head: LogState) -> Proposal:
        """Return the proposal as it is to follow this head."""
        return self if self.settle is None else self.settle(self, log, head)
