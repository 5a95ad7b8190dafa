"""The compactions that the upkeep of a writer does after a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.kv.upkeep.compact import CompactionRounds
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.writing.workers import Threads

if TYPE_CHECKING:
    from ftfile.kv.upkeep.compact import CompactReport
    from ftfile.log.commit_log import CommitLog

__all__ = ("compact_due",)


def compact_due(log: CommitLog, code: frozenset[str] = frozenset()) -> CompactReport:
    author = MaintenanceAuthor("compact", log.ids.unique())
    return CompactionRounds(log=log, author=author, workers=Threads(author.operation_id, 1), code=code).compact(
        skip_held=True
    )
