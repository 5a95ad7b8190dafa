"""How the adds of records are decoded: the definitions that they refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.commit.read.snapshot import take_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.format.model import Record
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

__all__ = ("definitions_of",)


def definitions_of(log: CommitLog, head: LogState, records: Sequence[Record], keys: set[str]) -> dict[str, Any]:
    """Return the definitions of encodings that records refer to, or brought.

    A record repeats no definition that the log has, and the head forgets those that nobody has used for long.
    """
    found: dict[str, Any] = dict(head.definitions)
    for record in records:
        found.update(record.definitions)
    for record in records:
        if any(add.encoding in keys - found.keys() for add in record.adds):
            found.update(take_snapshot(log, record.version).definitions)
    return found
