"""The user's decisions: if new and interrupted queries go on, and other cases that are never silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ftfile.commit.format.model import StreamAuthor
from ftfile.core.errors import BatchGap, UnknownQuery
from ftfile.core.logs import get_logger
from ftfile.core.options import parse_options

if TYPE_CHECKING:
    from ftfile.commit.format.model import Author
    from ftfile.commit.log.state import LogState
    from ftfile.core.options import ParsedOptions

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Policy:
    """The protocol's options; the defaults never go on silently where rows could be lost or doubled."""

    on_new_query: Literal["fail", "continue"]  # a query that a log with other queries has never seen
    on_gap: Literal["fail", "accept"]  # a first batch other than 0, or a batch that does not follow the last
    on_replay_mismatch: Literal["fail", "keep"]  # a batch that is in the log with other content, which `keep` keeps
    on_missing_part: Literal["warn", "fail"]  # a published part that is no longer there
    publish_timeout_s: float

    @classmethod
    def from_options(cls, parsed: ParsedOptions) -> Policy:
        """Return the decisions of a writer's options."""
        return cls(
            on_new_query=parsed["onNewQuery"],
            on_gap=parsed["onGap"],
            on_replay_mismatch=parsed["onReplayMismatch"],
            on_missing_part=parsed["onMissingPart"],
            publish_timeout_s=parsed["publishTimeout"],
        )


DEFAULT_POLICY = Policy.from_options(parse_options({}, "write"))


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
            "The directory was emptied, replaced or restored from an older copy under a running checkpoint, or batches "
            "were lost. Restore it; or let the query go back in its checkpoint, as docs/disaster-recovery.md shows; or "
            "start with a new checkpoint. onGap=accept goes on without the batches between, and records a new start"
        )
    _log.warning("batch %d does not follow %d: recording a new start (onGap=accept)", author.batch_id, expected - 1)
    return author.batch_id
