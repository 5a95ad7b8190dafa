"""The merges of a large store, done side by side by the tasks of a cluster: a Spark job and a record each round."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from ftfile.attempt.stage import Stage
from ftfile.core.retry import is_away
from ftfile.kv.upkeep.compact import merge_all
from ftfile.kv.upkeep.due import Done, Merges, merger_of
from ftfile.maintenance.workers import Work
from ftfile.spark.maintenance.spark_tasks import shares_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.attempt.identity import TaskIdentity
    from ftfile.commit.format.model import AssemblyJob, MaintenanceAuthor
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileSystem
    from ftfile.kv.upkeep.compact import CompactReport
    from ftfile.kv.upkeep.maintained import HowWritten
    from ftfile.spark.maintenance.spark_tasks import SparkTasks

__all__ = ("compact_store",)


def compact_store(log: CommitLog, author: MaintenanceAuthor, workers: SparkTasks, *, full: bool) -> CompactReport:
    """Merge runs of a store as `ftfile.kv.compact` does; see `ftfile.spark.compact`."""
    return merge_all(Merges(log, author, _Rounds(log, workers).do_jobs), full=full)


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Does jobs by tasks of Spark, as many at a time as a record is to have."""

    log: CommitLog
    workers: SparkTasks

    def do_jobs(self, head: LogState, how: HowWritten, jobs: Sequence[AssemblyJob]) -> Iterator[Done]:
        """Yield the results of the first jobs, when all of them are done."""
        work = _StoreMerging(how, head.version)
        shares = _shares_of(work, jobs, self.workers.tasks)
        for found in self.workers.do_shares(work, shares, self.log.fs, dict(how.storage.written)):
            yield from found


def _shares_of(work: _StoreMerging, jobs: Sequence[AssemblyJob], tasks: int) -> list[list[AssemblyJob]]:
    """Return the first jobs, up to `jobBytes` for each task, in shares of similar size, none of them empty."""
    job_bytes = work.how.plan.job_bytes
    sizes = [min(work.size_of(job), job_bytes) for job in jobs]
    count = 1 + sum(size_bytes < tasks * job_bytes for size_bytes in accumulate(max(size, 1) for size in sizes[:-1]))
    return [[jobs[place] for place in share] for share in shares_of(sizes[:count], min(count, tasks))]


@dataclass(frozen=True, slots=True)
class _StoreMerging(Work["AssemblyJob", Done]):
    """Merges runs that were live at a version."""

    how: HowWritten
    read_version: int

    def size_of(self, piece: AssemblyJob) -> int:
        """Return the bytes of the runs."""
        return sum(add.length for add in piece.inputs)

    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[AssemblyJob]) -> Iterator[Done]:
        """Yield the result of each job, up to one that finds that the store is away."""
        merger = merger_of(self.how, Stage(fs, task, self.how.storage.durability), self.read_version)
        for job in pieces:
            rewrite, errors = merger.merge(job)
            yield Done(job, rewrite, errors)
            if any(map(is_away, errors)):
                return
