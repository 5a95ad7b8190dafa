"""The numbers of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.kv.planning.plan import is_held

if TYPE_CHECKING:
    from ftfile.commit.log.state import LogState
    from ftfile.kv.reading.view import View
    from ftfile.kv.run.cache import Cache

__all__ = ("StoreStats", "stats_of")


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The numbers of a store at a version.

    Attributes:
        version: that is read.
        newest_version: of the log.
        runs: number of runs.
        runs_max: of the bucket with the most.
        rows: of all runs; a key has one in each run that says something about it.
        size_bytes: of the rows on storage.
        due_jobs: merges that tasks of the next batch do, at the newest version.
        held_jobs: those of them that failed too often, and are left out for a while.
        cache_bytes: taken by all readers of this process.
        cache_bytes_max: that they may take.
    """

    version: int
    newest_version: int
    runs: int
    runs_max: int
    rows: int
    size_bytes: int
    due_jobs: int
    held_jobs: int
    cache_bytes: int
    cache_bytes_max: int


def stats_of(view: View, head: LogState, cache: Cache) -> StoreStats:
    """Return the numbers of a view, and of the newest version."""
    runs = view.runs.values()
    return StoreStats(
        version=view.version,
        newest_version=head.version,
        runs=len(runs),
        runs_max=max((sum(len(level.runs) for level in each.levels) for each in view.buckets.values()), default=0),
        rows=sum(run.add.rows for run in runs),
        size_bytes=sum(run.size for run in runs),
        due_jobs=len(head.assembly_jobs),
        held_jobs=sum(is_held(job, head.version) for job in head.assembly_jobs),
        cache_bytes=cache.size_bytes,
        cache_bytes_max=cache.capacity_bytes,
    )
