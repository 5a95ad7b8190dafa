"""Stores as a kind of directory, for commands that take a directory of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import CorruptData
from ftfile.kv.definition import DELETE, StoreDefinition
from ftfile.kv.merge_functions import code_of
from ftfile.kv.operator.opening import read_ended
from ftfile.kv.planning.plan import is_held, plan_of
from ftfile.kv.planning.runs import is_run, numbers_of
from ftfile.kv.upkeep.purge import keep_purges
from ftfile.log.wal import list_wal_writers, opening_of
from ftfile.operate.findings import find
from ftfile.operate.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Literal

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Job, MaintenanceAuthor
    from ftfile.log.state import LogState
    from ftfile.operate.findings import Finding


_OLDER = "The keys in this run of a store are then read from the older runs, with older values or sums"


class StoreKind(Kind):
    """Stores."""

    name: Literal["files", "store"] = "store"

    def count_open(self, head: LogState) -> int:
        """Return the number of runs."""
        return len(head.segments)

    def committed_ms(self, segment: Add) -> int:
        """Return the commit time of a run."""
        return numbers_of(segment.rolling_stats).committed_ms

    def count_held(self, head: LogState) -> int:
        """Return the number of compactions that failed too often."""
        return sum(is_held(job, head.version) for job in head.jobs)

    def check_job(self, job: Job) -> None:
        """Raise `CorruptData` for a plan that is not of this kind."""
        plan_of(job)

    def consequence(self, add: Add) -> str:
        """Return what the loss of a run changes; empty for other adds, and if nothing else changes."""
        if not is_run(add) or not add.rows:
            return ""
        if numbers_of(add.rolling_stats).ops & 1 << DELETE:
            return f"{_OLDER}, and its deleted keys exist again: delete these keys again"
        return _OLDER

    def check_content(self, log: CommitLog, head: LogState) -> Iterator[Finding]:
        """Yield the first damage of each writer's windows, which would stop an opening of the store."""
        for directory in list_wal_writers(log.fs):
            writer = directory.rpartition("/")[2]
            try:
                if opening_of(head, writer).epoch:
                    read_ended(log, head, writer)
            except CorruptData as error:
                yield find("damaged-windows", error.path, error.expected, error.found)

    def code_of(self, encoding: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the merge functions that are code."""
        for name in code_of(StoreDefinition.from_json(encoding["store"]).merge):
            yield "merge", name

    def keep_effects(self, log: CommitLog, author: MaintenanceAuthor, lost: Sequence[Add]) -> list[tuple[Add, Add]]:
        """Return the lost runs that purge, and runs that only purge."""
        runs = list(filter(is_run, lost))
        return list(keep_purges(log, author, runs)) if runs else []


STORE = StoreKind()
