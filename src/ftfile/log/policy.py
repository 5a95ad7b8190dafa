"""Decisions about unusual batches by options of the user, and recognition of repeated batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import structs

from ftfile.core.errors import BatchGap, ReplayMismatch, UnknownQuery
from ftfile.core.logs import get_logger
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import SinkOptions
from ftfile.log.format.model import APPLICATIONS, BatchWriteAuthor, StreamAuthor
from ftfile.log.sealed import SealedFileSystem

if TYPE_CHECKING:
    from ftfile.core.options.typed import WriterOptions
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Author, Fingerprint, Record, Transaction
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem

    # The hash of its offsets, and the fingerprint of its rows.
    Recorded = tuple[str | None, Fingerprint | None]


_log = get_logger(__name__)
_UNPROVEN = "its rows differ from the committed rows, or cannot be compared with them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The protocol's options; with the defaults, a batch never continues silently if rows could be lost or doubled."""

    on_new_query: Literal["fail", "continue"]  # a query that is new to a log with other queries
    on_gap: Literal["fail", "accept"]  # a first batch other than 0, or a batch that does not follow the last one
    on_replay_mismatch: Literal["fail", "keep"]  # a batch in the log with other content, which `keep` keeps
    on_missing_part: Literal["warn", "fail"]  # a published part that is missing

    @classmethod
    def from_options(cls, parsed: WriterOptions) -> Policy:
        """Return the decisions by the options of a writer."""
        files = parsed if isinstance(parsed, SinkOptions) else SinkOptions()  # stores publish no files
        return cls(
            on_new_query=parsed.on_new_query,
            on_gap=parsed.on_gap,
            on_replay_mismatch=parsed.on_replay_mismatch,
            on_missing_part=files.on_missing_part,
        )


DEFAULT_POLICY = Policy.from_options(parse_options({}, SinkOptions))


def check_known_query(head: LogState, query_id: str, policy: Policy) -> None:
    """Raise UnknownQuery for a query that is new to a log of other queries, unless `onNewQuery=continue`.

    Applications are not queries of Spark: their positions are in the log, so they cannot lose a checkpoint.
    """
    if query_id in head.queries or policy.on_new_query == "continue":
        return
    applications = head.tables.get(APPLICATIONS, ())
    queries = []
    for other, state in head.queries.items():
        if other not in applications:
            queries.append(f"{other} (last batch {state.last_batch})")
    if not queries:
        return
    writers = ", ".join(queries[:5])
    raise UnknownQuery(
        f"query {query_id} has never written here, but other queries have: {writers}. If its checkpoint was deleted or "
        "replaced, Spark starts at its first batch again and would write its rows a second time: restore the "
        "checkpoint, or use a new directory. If it is a further query for this directory, set onNewQuery=continue"
    )


def lineage_start(head: LogState, author: Author, policy: Policy) -> int | None:
    """Return the batch at which this record starts a lineage, or None if it continues one."""
    if not isinstance(author, StreamAuthor):
        return None
    check_known_query(head, author.query_id, policy)
    query = head.queries.get(author.query_id)
    expected = query.last_batch + 1 if query else 0
    if author.batch_id == expected:
        if query:
            return None
        return author.batch_id
    if policy.on_gap == "fail":
        raise BatchGap(
            f"batch {author.batch_id} of query {author.query_id} cannot follow: the log expects batch {expected}. The "
            "directory was emptied, replaced or restored from an older copy while the checkpoint was used, or batches "
            "were lost. Restore the directory, reset the query in its checkpoint as docs/disaster-recovery.md shows, "
            "or start with a new checkpoint. onGap=accept continues without the missing batches and records a new "
            "start"
        )
    _log.warning("batch %d does not follow %d: recording a new start (onGap=accept)", author.batch_id, expected - 1)
    return author.batch_id


def check_replay(
    log: CommitLog, head: LogState, author: Author, fingerprint: Fingerprint | None, policy: Policy
) -> None:
    """Accept a batch in the log if it is the recorded one; identical offsets prove it, else equal rows."""
    recorded = _recorded_of(log, head, author)
    problem = _difference(log, author, fingerprint, recorded)
    if problem is None:
        return
    if isinstance(author, BatchWriteAuthor) and author.transaction is not None:
        message = _other_write(head, author.transaction, problem)
    else:
        assert isinstance(author, StreamAuthor), f"{author} is never in a log"
        if recorded is None:
            message = _overtaken(head, author)
        else:
            message = _history(head, author, problem)
    if policy.on_replay_mismatch != "keep":
        raise ReplayMismatch(f"{message}; onReplayMismatch=keep keeps the committed rows and drops the new rows")
    _log.warning("the committed rows stay, and the new rows are dropped (onReplayMismatch=keep): %s", message)


def find_record(log: CommitLog, head: LogState, author: Author) -> Record | None:
    """Return the record of a batch or transaction, or None if it does not exist or is deleted."""
    turn = _turn_of(author)
    if turn is None or not head.has(author):
        return None
    low, (last, high, _) = head.log_start, _last_commit_of(head, author)
    # If each number has one record, its version is computed; else it is found by bisection.
    version = high - (last - turn.number)
    while low <= high:
        if not (low <= version <= high):
            version = (low + high) // 2
        at, number_there = version, -1
        while at >= low:
            record = log.read_record(at)
            if record is None:
                return None
            turn_there = _turn_of(record.author)
            if turn_there is not None and turn_there[:2] == turn[:2]:
                number_there = turn_there.number
                break
            at -= 1
        if at < low or number_there < turn.number:
            low = version + 1
        elif number_there > turn.number:
            high = at - 1
        else:
            # Records before the oldest kept one can be dead.
            if log.refresh().log_start <= at:
                return record
            return None
        version = -1
    return None


def fingerprint_mac(
    fs: FileSystem, fingerprint: Fingerprint | None, author: Author, recorded: Fingerprint | None = None
) -> Fingerprint | None:
    """Return a fingerprint for a record: in an encrypted directory it is a MAC, so that it does not confirm guesses.

    It uses the key of the `recorded` one for a comparison; ConfigError if that key is not available.
    """
    if fingerprint is None or not isinstance(fs, SealedFileSystem):
        return fingerprint
    turn = _turn_of(author)
    if turn is not None:
        batch = f"{turn.id}/{turn.number}"  # the same in every attempt of the batch
    else:
        assert not isinstance(author, StreamAuthor)
        batch = author.operation_id
    like = None if recorded is None else recorded.digest
    return structs.replace(fingerprint, digest=fs.keyed_digest(fingerprint.digest, batch, like))


class _Turn(NamedTuple):
    """A batch of a query, or a transaction of an application."""

    kind: str
    id: str  # of the query or the application
    number: int  # increases


def _turn_of(author: Author) -> _Turn | None:
    if isinstance(author, StreamAuthor):
        return _Turn("query", author.query_id, author.batch_id)
    if isinstance(author, BatchWriteAuthor) and author.transaction is not None:
        return _Turn("application", author.transaction.app_id, author.transaction.version)
    return None


class _LastCommit(NamedTuple):
    """The newest commit of a query or an application."""

    number: int  # of the batch or transaction
    version: int
    recorded: Recorded


def _last_commit_of(head: LogState, author: Author) -> _LastCommit:
    """Return the newest number of an author's query or application, its version, and its entry in the log."""
    if isinstance(author, StreamAuthor):
        query = head.queries[author.query_id]
        return _LastCommit(query.last_batch, query.version, (query.offsets_hash, query.fingerprint))
    assert isinstance(author, BatchWriteAuthor)
    assert author.transaction is not None, f"{author} is never in a log"
    transaction = head.transactions[author.transaction.app_id]
    return _LastCommit(transaction.last, transaction.version, (None, transaction.fingerprint))


def _recorded_of(log: CommitLog, head: LogState, author: Author) -> Recorded | None:
    """Return the log's entry of a batch or transaction; None if its record is no longer kept."""
    turn, (last, _, newest) = _turn_of(author), _last_commit_of(head, author)
    if turn is not None and turn.number == last:
        return newest
    record = find_record(log, head, author)
    if record is None:
        return None
    return record.author.offsets_hash if isinstance(record.author, StreamAuthor) else None, record.fingerprint


def _difference(
    log: CommitLog, author: Author, fingerprint: Fingerprint | None, recorded: Recorded | None
) -> str | None:
    """Return why this can be another batch than the recorded one; None if it is the same."""
    if recorded is None:
        return f"{_UNPROVEN}: the log no longer contains its record"
    (then, before), now = recorded, author.offsets_hash if isinstance(author, StreamAuthor) else None
    after = fingerprint_mac(log.fs, fingerprint, author, before)
    if now is None or then is None:
        return _unequal_rows(before, after)
    if now != then:
        return "its offsets in Spark's checkpoint differ from the committed offsets"
    if before is not None and after is not None and before.kind == after.kind and before.digest != after.digest:
        _log.warning(
            "the batch was read again from the same offsets, but its rows differ: the source is not deterministic. "
            "The rows of the first attempt stay"
        )
    return None


def _unequal_rows(before: Fingerprint | None, after: Fingerprint | None) -> str | None:
    """Return why two fingerprints do not prove equal rows; None if they do."""
    if before is None or after is None:
        return _UNPROVEN
    if before.kind != after.kind:
        then, now = ("had no", "omit it") if before.covers_content else ("had a", "set it")
        return (
            f"its rows cannot be compared with the committed rows, because the writer {then} checkpointLocation then; "
            f"{now} for this batch"
        )
    if before != after:
        return _UNPROVEN
    if after.covers_content:
        return None
    return f"{_UNPROVEN}: fingerprints of the kind {after.kind} can be equal for different rows"


def _history(head: LogState, author: StreamAuthor, problem: str) -> str:
    last = head.queries[author.query_id].last_batch
    return (
        f"batch {author.batch_id} of query {author.query_id} is in the log (last batch {last}), but {problem}. The "
        "checkpoint belongs to another history of this query: it was copied, or restored from an older copy. Use a "
        "new checkpoint and a new directory, or the checkpoint that wrote here"
    )


def _overtaken(head: LogState, author: StreamAuthor) -> str:
    last = head.queries[author.query_id]
    if author.batch_id >= last.lineage_start:
        fate = "was committed, but the log no longer contains its record"
    else:
        fate = f"was skipped when a gap was accepted at batch {last.lineage_start}, or was committed before that batch"
    return (
        f"batch {author.batch_id} of query {author.query_id} {fate}: since then, run {last.run_id} of the query "
        f"continued to batch {last.last_batch}, version {last.version}. Nothing of this batch is written now. If this "
        f"run, {author.run_id}, is older than that run, stop it; if its checkpoint was restored from an older copy, "
        "restore the newest checkpoint"
    )


def _other_write(head: LogState, transaction: Transaction, problem: str) -> str:
    return (
        f"write {transaction.version} of the application {transaction.app_id!r} is in the log (last write "
        f"{head.transactions[transaction.app_id].last}), but {problem}. If the numbers of the writes began again, as "
        "after the checkpoint of a stream was deleted, use another name of the application (txnAppId, app_id). If each "
        "attempt computes values such as the time again, its rows cannot be recognised"
    )
