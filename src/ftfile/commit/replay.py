"""Replays: a batch comes again that is in the log already. Its new files are garbage; is it the same batch?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ftfile.commit.format.model import JobAuthor, StreamAuthor
from ftfile.commit.sealed.filesystem import SealedFileSystem
from ftfile.core.errors import ReplayMismatch
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.commit.format.model import Author, Fingerprint, Record, Transaction
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.policy import Policy
    from ftfile.fs.api import FileSystem

__all__ = ("check_replay", "find_batch", "fingerprint_mac")

_UNPROVEN = "its rows are not, or cannot be shown to be, those it was committed with"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What the log has of a batch."""

    offsets_hash: str | None
    fingerprint: Fingerprint | None

    @classmethod
    def of(cls, record: Record | None) -> _Recorded | None:
        if record is None:
            return None
        offsets_hash = record.author.offsets_hash if isinstance(record.author, StreamAuthor) else None
        return cls(offsets_hash, record.fingerprint)


def check_replay(
    log: CommitLog, head: LogState, author: Author, fingerprint: Fingerprint | None, policy: Policy
) -> None:
    """Accept a batch found in the log when it is the recorded one; identical offsets prove it, else equal rows.

    Raises:
        ReplayMismatch: another history of this query or application, unless `onReplayMismatch=keep`.
    """
    if isinstance(author, StreamAuthor):
        recorded = _recorded_batch(log, head, author)
        problem = _problem(log, author, fingerprint, recorded)
        told = problem and (_history(head, author, problem) if recorded is not None else _overtaken(head, author))
    elif isinstance(author, JobAuthor) and author.transaction is not None:
        recorded = _recorded_transaction(log, head, author.transaction)
        problem = _problem(log, author, fingerprint, recorded)
        told = problem and _other_write(head, author.transaction, problem)
    else:
        return
    if told is None:
        return
    if policy.on_replay_mismatch != "keep":
        raise ReplayMismatch(f"{told}; onReplayMismatch=keep keeps what is recorded and drops these rows")
    _log.warning("what is recorded stays, and these rows are dropped (onReplayMismatch=keep): %s", told)


def _problem(
    log: CommitLog, author: StreamAuthor | JobAuthor, fingerprint: Fingerprint | None, recorded: _Recorded | None
) -> str | None:
    """Return why this may be another batch than the recorded one; None when it is the same."""
    if recorded is None:
        return f"{_UNPROVEN}: the log does not keep its record any more"
    before, offsets_hash = recorded.fingerprint, author.offsets_hash if isinstance(author, StreamAuthor) else None
    now = fingerprint_mac(log.fs, fingerprint, author, before)
    if offsets_hash is None or recorded.offsets_hash is None:
        return _difference(before, now)
    if offsets_hash != recorded.offsets_hash:
        return "its offsets in Spark's checkpoint are not those it was committed with"
    if before is not None and now is not None and before.kind == now.kind and before.digest != now.digest:
        _log.warning(
            "the batch was read again from the same offsets and had other rows: the source is not deterministic. The "
            "rows of the first time stay"
        )
    return None


def _difference(before: Fingerprint | None, now: Fingerprint | None) -> str | None:
    """Return what keeps two fingerprints from proving equal rows; None when they do."""
    if before is None or now is None:
        return _UNPROVEN
    if before.kind != now.kind:
        return (
            f"its rows cannot be compared with those it was committed with: fingerprint={now.kind} was "
            f"{before.kind} then; set it back for this batch"
        )
    if before.digest != now.digest:
        return _UNPROVEN
    return None if before.same_content(now) else f"{_UNPROVEN}: fingerprint={now.kind} is equal for some others, too"


def _history(head: LogState, author: StreamAuthor, problem: str) -> str:
    last = head.queries[author.query_id].last_batch
    return (
        f"batch {author.batch_id} of query {author.query_id} is in the log (last batch {last}), but {problem}: another "
        "history of this query. Was its checkpoint copied, or restored from an older copy? Use a new checkpoint and a "
        "new directory, or the checkpoint that wrote here"
    )


def _overtaken(head: LogState, author: StreamAuthor) -> str:
    """Return what is told to a run that comes with a batch of long ago."""
    last = head.queries[author.query_id]
    fate = (
        "was committed, and its record is not kept any more"
        if author.batch_id >= last.lineage_start
        else f"was left out when a gap was accepted at batch {last.lineage_start}, or committed before that"
    )
    return (
        f"batch {author.batch_id} of query {author.query_id} {fate}: since then run {last.run_id} of the query went on "
        f"to batch {last.last_batch}, version {last.version}. This run, {author.run_id}, is an older one that was "
        "overtaken, and is to be stopped; or its checkpoint was restored from an older copy, and the query needs the "
        "newest one. Nothing of this batch is written now"
    )


def _other_write(head: LogState, transaction: Transaction, problem: str) -> str:
    return (
        f"txnVersion={transaction.version} of txnAppId={transaction.app_id!r} is in the log (last version "
        f"{head.transactions[transaction.app_id].last}), but {problem}. Was the checkpoint of the stream deleted, "
        "so that its batches are counted from 0 again? Then use another txnAppId. Are values made anew by each try, "
        "such as the time? Then its rows cannot be recognised"
    )


def _recorded_batch(log: CommitLog, head: LogState, author: StreamAuthor) -> _Recorded | None:
    last = head.queries[author.query_id]
    if author.batch_id == last.last_batch:
        return _Recorded(last.offsets_hash, last.fingerprint)
    return _Recorded.of(find_batch(log, head, author.query_id, author.batch_id))


def _recorded_transaction(log: CommitLog, head: LogState, transaction: Transaction) -> _Recorded | None:
    last = head.transactions[transaction.app_id]
    if transaction.version == last.last:
        return _Recorded(None, last.fingerprint)
    return _Recorded.of(_find_transaction(log, head, transaction))


def find_batch(log: CommitLog, head: LogState, query_id: str, batch_id: int) -> Record | None:
    """Return the record of a batch, or None when there is none or it is not kept any more."""

    def number_of(author: Author) -> int | None:
        return author.batch_id if isinstance(author, StreamAuthor) and author.query_id == query_id else None

    last = head.queries.get(query_id)
    return None if last is None else _find(log, head, number_of, batch_id, last.last_batch, last.version)


def _find_transaction(log: CommitLog, head: LogState, transaction: Transaction) -> Record | None:
    """Return the record of a transaction, or None when there is none or it is not kept any more."""

    def number_of(author: Author) -> int | None:
        found = author.transaction if isinstance(author, JobAuthor) else None
        return found.version if found is not None and found.app_id == transaction.app_id else None

    last = head.transactions.get(transaction.app_id)
    return None if last is None else _find(log, head, number_of, transaction.version, last.last, last.version)


def _find(
    log: CommitLog,
    head: LogState,
    number_of: Callable[[Author], int | None],
    wanted: int,
    last: int,
    last_version: int,
) -> Record | None:
    """Look for an author's number, which only goes up, among the records that are kept.

    Args:
        log: of the directory.
        head: its state.
        number_of: the number of an author, None for others.
        wanted: which number.
        last: the newest number.
        last_version: its version.
    """
    low, high = head.log_start, last_version
    # With one record for each number it is there; else halves are looked at.
    version = high - (last - wanted)
    while low <= high and wanted <= last:
        version = version if low <= version <= high else (low + high) // 2
        at = version
        number = None
        while at >= low:
            record = log.read_record(at)
            if record is None:
                return None
            number = number_of(record.author)
            if number is not None:
                break
            at -= 1
        if number is None or number < wanted:
            low = version + 1
        elif number > wanted:
            high = at - 1
        else:
            # Records that are not kept any more may be dead ones.
            return record if log.read_on().log_start <= at else None
        version = -1
    return None


def fingerprint_mac(
    fs: FileSystem, fingerprint: Fingerprint | None, author: Author, recorded: Fingerprint | None = None
) -> Fingerprint | None:
    """Return a fingerprint as records have it: in an encrypted directory under a MAC, so that it confirms no guess.

    Args:
        fs: of the directory.
        fingerprint: of a batch's rows.
        author: of the batch.
        recorded: the fingerprint it is to be compared with; None for a new record.

    Raises:
        ConfigError: the key is not to be had.
    """
    if fingerprint is None or not isinstance(fs, SealedFileSystem):
        return fingerprint
    like = None if recorded is None else recorded.digest
    return replace(fingerprint, digest=fs.keyed_digest(fingerprint.digest, _batch(author), like))


def _batch(author: Author) -> str:
    """Return what is the same whenever the batch comes again."""
    if isinstance(author, StreamAuthor):
        return f"{author.query_id}/{author.batch_id}"
    if isinstance(author, JobAuthor) and author.transaction is not None:
        return f"{author.transaction.app_id}/{author.transaction.version}"
    return author.job_id
