"""Names of live parts that may repeat, so that none of them is given twice, even where a file was taken away.

A name with what is unique about its part is not kept here, so that this is empty for most directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.read.snapshot import snapshot_at

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from ftfile.commit.format.model import Record
    from ftfile.commit.known_paths import NamesAt
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

__all__ = ("FOLLOWED_MAX", "live_names", "may_repeat")

# Records that are read one by one; of more, a snapshot costs less.
FOLLOWED_MAX = 256


def may_repeat(add_id: str, final_path: str) -> bool:
    """Return True if the name lacks what makes it unique."""
    return layout.unique_part(add_id) not in final_path


def live_names(log: CommitLog, head: LogState) -> AbstractSet[str]:
    """Return the names at the head of a log: made of a snapshot once, then of the records that follow.

    Raises:
        CorruptData: see `snapshot_at`.
    """
    names = log.known_paths.names
    if not _read_on(log, head, names):
        adds = snapshot_at(log, head).adds.values()
        names.paths = {add.final_path for add in adds if add.final_path and may_repeat(add.id, add.final_path)}
    names.version, names.nonce = head.version, head.nonce
    return names.paths


def _read_on(log: CommitLog, head: LogState, names: NamesAt) -> bool:
    """Take in the records up to the head; False if they do not follow what is known, or are too many."""
    version, nonce, names.version = names.version, names.nonce, -1
    if version < 0 or not version <= head.version <= version + FOLLOWED_MAX:
        return False
    for following in range(version + 1, head.version + 1):
        record = log.recent.get(following) or log.read_record(following)
        if record is None or record.after != nonce:
            return False
        _apply(record, names.paths)
        nonce = record.nonce
    return nonce == head.nonce


def _apply(record: Record, paths: set[str]) -> None:
    paths.difference_update(remove.final_path for remove in record.removes if remove.final_path)
    paths.update(add.final_path for add in record.adds if add.final_path and may_repeat(add.id, add.final_path))
