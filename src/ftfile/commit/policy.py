"""The user's decisions: if new and interrupted queries go on, and other cases that are never silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ftfile.commit.format.model import StreamAuthor
from ftfile.core.errors import BatchGap, UnknownQuery
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.commit.format.model import Author
    from ftfile.commit.log.state import LogState

__all__ = ("Policy", "check_known_query", "lineage_start")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Policy:
    """The protocol's options; the defaults never go on silently where rows could be lost or doubled."""

    on_new_query: Literal["fail", "continue"] = "fail"  # a query that a log with other queries lacks
    on_gap: Literal["fail", "accept"] = "fail"  # a first batch other than 0, or not the next
    on_replay_mismatch: Literal["fail", "keep"] = "fail"  # a batch in the log with other content
    on_missing_part: Literal["warn", "fail"] = "warn"  # a published part that is gone
    publish_timeout_s: float = 60.0  # before the batch fails


def check_known_query(head: LogState, query_id: str, policy: Policy) -> None:
    """Raise UnknownQuery for a query that a log of other queries lacks, unless `onNewQuery=continue`."""
    if query_id in head.queries or not head.queries or policy.on_new_query == "continue":
        return
    others = ", ".join(f"{other} (last batch {state.last_batch})" for other, state in list(head.queries.items())[:5])
    raise UnknownQuery(
        f"query {query_id} has never written here, but others have: {others}. If its checkpoint was deleted or "
        "replaced, Spark starts at its first batch again and would write rows that are here already: restore the "
        "checkpoint, or use a new directory. If it is meant to write here beside them, set onNewQuery=continue"
    )


def lineage_start(head: LogState, author: Author, policy: Policy) -> int | None:
    """Return the batch at which this record starts a lineage, or None when it goes on with one."""
    if not isinstance(author, StreamAuthor):
        return None
    check_known_query(head, author.query_id, policy)
    known = head.queries.get(author.query_id)
    expected = known.last_batch + 1 if known else 0
    if author.batch_id == expected:
        return None if known else author.batch_id
    if policy.on_gap == "fail":
        raise BatchGap(
            f"batch {author.batch_id} of query {author.query_id} cannot follow: the log expects batch {expected}. "
            "The directory was emptied or replaced under a running checkpoint, or batches were lost: restore it, or "
            "start with a new checkpoint. onGap=accept goes on and records a new start"
        )
    _log.warning("batch %d does not follow %d: recording a new start (onGap=accept)", author.batch_id, expected - 1)
    return author.batch_id
