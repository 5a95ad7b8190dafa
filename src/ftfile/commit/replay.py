"""Replays: Spark runs a batch again that is in the log already. Its new files are garbage; is it the same batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.keyed import as_recorded
from ftfile.commit.model import StreamAuthor
from ftfile.core.errors import ReplayMismatch
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.commit.log import CommitLog
    from ftfile.commit.model import Author, Fingerprint
    from ftfile.commit.policy import Policy
    from ftfile.commit.state import LogState

__all__ = ("check_replay",)

_log = get_logger(__name__)


def check_replay(
    log: CommitLog, head: LogState, author: Author, fingerprint: Fingerprint | None, policy: Policy
) -> None:
    """Accept a batch found in the log when it is the recorded one; identical offsets prove it, else equal content.

    Raises:
        ReplayMismatch: another history of this query, unless `onReplayMismatch=keep`.
    """
    if not isinstance(author, StreamAuthor):
        return
    recorded_hash, recorded = _recorded(log, head, author)
    fingerprint = as_recorded(log.fs, fingerprint, author, recorded)
    if author.offsets_hash is not None and recorded_hash is not None:
        if author.offsets_hash == recorded_hash:
            if recorded is not None and fingerprint is not None and _differ(recorded, fingerprint):
                _log.warning(
                    "the batch was read again from the same offsets and had other rows: the source is not "
                    "deterministic. The rows of the first time stay"
                )
            return
        reason = "its offsets in Spark's checkpoint are not those it was committed with"
    elif recorded is not None and recorded.same_content(fingerprint):
        return
    elif recorded is not None and fingerprint is not None and recorded.kind != fingerprint.kind:
        reason = (
            f"its rows cannot be compared with those it was committed with: fingerprint={fingerprint.kind} was "
            f"{recorded.kind} then; set it back for this batch"
        )
    else:
        reason = "its rows are not, or cannot be shown to be, those it was committed with"
    if policy.on_replay_mismatch == "keep":
        _log.warning("keeping the recorded rows of a replayed batch although %s (onReplayMismatch=keep)", reason)
        return
    raise ReplayMismatch(
        f"batch {author.batch_id} of query {author.query_id} is in the log (last batch "
        f"{head.queries[author.query_id].last_batch}), but {reason}: another history of this query. Was its checkpoint "
        "copied, or restored from an older copy? Use a new checkpoint and a new directory, or the checkpoint that "
        "wrote here; onReplayMismatch=keep keeps what is recorded and skips the batch's new rows"
    )


def _differ(recorded: Fingerprint, found: Fingerprint) -> bool:
    return recorded.kind == found.kind and recorded.digest != found.digest


def _recorded(log: CommitLog, head: LogState, author: StreamAuthor) -> tuple[str | None, Fingerprint | None]:
    last = head.queries[author.query_id]
    if author.batch_id == last.last_batch:
        return last.offsets_hash, last.fingerprint
    record = log.find_batch(author.query_id, author.batch_id)
    if record is None or not isinstance(record.author, StreamAuthor):
        return None, None
    return record.author.offsets_hash, record.fingerprint
