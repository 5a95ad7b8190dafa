"""The commit protocol, top to bottom.

Creating version v+1 exclusively is the commit. All before it is garbage if we die; all after it can be
repeated by anybody. docs/internals/protocol.md says why each step stands where it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ftfile.commit.lineage import lineage_start
from ftfile.commit.post_commit import keep_up
from ftfile.commit.prepare import check_staged, prepare
from ftfile.commit.publish import raise_own, roll_forward, wait_for_removed
from ftfile.commit.replay import check_replay
from ftfile.core.errors import InvalidMessages
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.commit.format.model import Author, Record
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.policy import Policy
    from ftfile.commit.proposal import Proposal, Refused
    from ftfile.commit.publish import Problem

__all__ = ("Committed", "catch_up", "commit")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Committed:
    """How a commit ended.

    Attributes:
        version: of the log then.
        replayed: the batch had been there before.
        record: what was created; None if nothing was.
        refused: rewrites that were left out because their parts cannot get their names.
    """

    version: int
    replayed: bool
    record: Record | None = field(default=None, compare=False, repr=False)
    refused: tuple[Refused, ...] = ()


def commit(log: CommitLog, proposal: Proposal, policy: Policy) -> Committed:
    """Make a batch part of the directory exactly once, and publish it; repeatable with the same batch.

    Maintenance that has come to nothing is not recorded.

    Raises:
        CommitError: see each class; whichever it is, nothing that could be committed was deleted.
        StorageError: the store failed before the record was created; later failures are CommitErrors that say so.
    """
    nonce = log.ids.unique()
    while True:
        head = log.read_on(durable=True)
        log.prepare_directory()
        problems = roll_forward(log, head, policy, proposal.author)
        raise_own(problems, proposal.author)
        if head.finds(proposal.author):
            check_replay(log, head, proposal.author, proposal.fingerprint, policy)
            return Committed(head.version, replayed=True)
        if proposal.claims_replay:
            raise InvalidMessages("a task found this batch in the log and wrote nothing, but there is no record of it")
        start = lineage_start(head, proposal.author, policy)
        proposal.check_head(head)
        settled = proposal.settled(log, head)
        check_staged(log.fs, (*settled.adds, *settled.letters), head.horizon_ms)
        prepared = prepare(log, head, settled, nonce, start)
        record = prepared.record
        for left_out in prepared.refused:
            _log.warning("rows stay where they are: %s", left_out.error)
        if record is None:
            return Committed(head.version, replayed=False, refused=prepared.refused)
        wait_for_removed(problems, record)
        if (after := log.create(record)) is not None:
            break
    # Committed. From here on we may die: whoever comes next rolls forward.
    problems = roll_forward(log, after, policy, proposal.author, tried=problems, created=record.version)
    raise_own(problems, proposal.author, record.version)
    keep_up(log, after)
    return Committed(record.version, replayed=False, record=record, refused=prepared.refused)


def catch_up(log: CommitLog, author: Author, policy: Policy) -> tuple[LogState, list[Problem]]:
    """Publish what is recorded, as every commit does first, for those who may then find nothing to commit.

    Returns:
        The head, and what could not be published.
    """
    head = log.read_on(durable=True)
    problems = roll_forward(log, head, policy, author)
    raise_own(problems, author)
    return head, problems
