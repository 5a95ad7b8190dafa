"""`ftfile.spark.compact`: the merges of a large store, done side by side by the tasks of a cluster."""

from __future__ import annotations

import heapq
import os
import pickle
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from ftfile.attempt.directory_marker import check_marker, write_marker
from ftfile.attempt.identity import JobIdentity, TaskIdentity
from ftfile.attempt.stage import Stage
from ftfile.commit.opening import maintaining
from ftfile.commit.sealed.filesystem import open_with_keys
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.core.logs import get_logger
from ftfile.core.retry import is_away
from ftfile.fs.registry import normalise, settings_for_others
from ftfile.kv.marks import open_marks, seal_jobs
from ftfile.kv.upkeep.compact import merge_all
from ftfile.kv.upkeep.due import Done, Merges, merger_of
from ftfile.kv.upkeep.maintained import open_store_log
from ftfile.spark.open_stores import StorePlace
from ftfile.spark.settings import absolute_options, require_shared
from ftfile.spark.shipping import Shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from ftfile.commit.format.model import AssemblyJob
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.rewrites import Rewrite
    from ftfile.kv.upkeep.compact import CompactReport
    from ftfile.kv.upkeep.maintained import HowWritten

    # The id of a job, its rewrite, and the errors of runs that stay.
    Result = tuple[str, Rewrite | None, list[FtfileError]]

__all__ = ("compact",)

_log = get_logger(__name__)


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    full: bool = False,
    tasks: int | None = None,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
) -> CompactReport:
    """Merge runs of a store as `ftfile.kv.compact` does, by tasks of Spark, and return how many; no row changes.

    It goes round by round: the jobs that are due, up to `jobBytes` for each task, become one Spark job, and what its
    tasks have written becomes one record. Spark repeats a task that dies; when it gives up, its error is raised. Then,
    or when this process dies, the rounds before stay, another call goes on behind them, and a vacuum deletes the files
    of the last one. Safe beside writers and readers, also beside another compaction.

    Args:
        spark: a session whose executors have this version of ftfile, and see the path.
        path: of the store.
        full: make one sorted run of each bucket.
        tasks: of a round, at most; the default is `spark.sparkContext.defaultParallelism`.
        key_provider: see `ftfile.vacuum`.
        storage: likewise.

    Raises:
        ConfigError: the path is no store, its keys are not known, or executors see another directory there.
        FtfileError: some runs could not be merged, such as damaged ones (`CorruptData`); all others were.
        CommitError: as for a batch write.
        Py4JJavaError, PySparkException: a task failed as often as Spark allows.
    """
    at_once = _tasks_of(spark, tasks)
    url = normalise(absolute_options({"path": os.fspath(path)})["path"])
    with maintaining("compact", url, key_provider, storage, SYSTEM, open_store_log) as (log, author):
        require_shared(log.fs, url)
        others = tuple(settings_for_others(url, storage or {}).items())
        place = StorePlace(url, None, key_provider, others, None, write_marker(log.fs))
        rounds = _Rounds(spark, log, place, author.job_id, at_once)
        return merge_all(Merges(log, author, rounds.do_jobs), full=full)


def _tasks_of(spark: SparkSession, tasks: int | None) -> int:
    """Return the number of tasks that the cluster does at once."""
    if tasks is not None:
        if tasks < 1:
            raise ConfigError(f"tasks={tasks}: there must be at least one")
        return tasks
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigError("a session of Spark Connect does not know the cores of its cluster: give a number of `tasks`")
    return spark.sparkContext.defaultParallelism


@dataclass(frozen=True)
class _Rounds:
    """Does jobs by tasks of Spark, as many at a time as a record is to have."""

    spark: SparkSession
    log: CommitLog
    place: StorePlace
    job_id: str
    tasks: int

    def do_jobs(self, head: LogState, how: HowWritten, jobs: Sequence[AssemblyJob]) -> Iterator[Done]:
        """Yield the results of the first jobs, when all of them are done."""
        shares = _shares_of(jobs, how.plan.job_bytes, self.tasks)
        count = sum(map(len, shares))
        _log.info("%d of %d jobs go to %d tasks", count, len(jobs), len(shares))
        task = _Task(self.place, self.job_id, how, head.version, [seal_jobs(self.log.fs, own) for own in shares])

        def results(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return task.results(batches)

        partitions = self.spark.range(0, len(shares), 1, len(shares))
        by_id = {job.id: job for job in jobs}
        for row in partitions.mapInArrow(results, "result binary").collect():
            found: list[Result] = pickle.loads(row[0])  # noqa: S301 - of our own tasks
            for job_id, rewrite, errors in found:
                yield Done(by_id[job_id], rewrite, errors)


def _shares_of(jobs: Sequence[AssemblyJob], job_bytes: int, tasks: int) -> list[list[AssemblyJob]]:
    """Return the first jobs, up to `job_bytes` for each task, by task: shares of similar size, none of them empty."""
    sizes = [max(min(sum(add.length for add in job.inputs), job_bytes), 1) for job in jobs]
    count = 1 + sum(size_bytes < tasks * job_bytes for size_bytes in accumulate(sizes[:-1]))
    shares: list[list[AssemblyJob]] = [[] for _ in range(min(count, tasks))]
    least = [(0, number) for number in range(len(shares))]
    for place in sorted(range(count), key=lambda place: -sizes[place]):
        size_bytes, number = least[0]
        shares[number].append(jobs[place])
        heapq.heapreplace(least, (size_bytes + sizes[place], number))
    return shares


class _Task(Shipped):
    """The work of the tasks of a round."""

    def __init__(
        self, place: StorePlace, job_id: str, how: HowWritten, version: int, shares: Sequence[tuple[AssemblyJob, ...]]
    ) -> None:
        self._place = place
        self._job_id = job_id
        self._how = how
        self._version = version
        self._shares = shares  # as a record has them: Spark may keep them on its disks

    def results(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the pickled results of the shares that have these numbers."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pa.array([pickle.dumps(self._done(number))], pa.binary())
                yield pa.RecordBatch.from_arrays([result], ["result"])

    def _done(self, number: int) -> list[Result]:
        place, how = self._place, self._how
        fs = open_with_keys(place.path, SYSTEM, place.key_provider, (*place.storage, *how.storage.written))
        check_marker(fs, place.path, place.marker)
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        stage = Stage(fs, TaskIdentity(JobIdentity(self._job_id), number, attempt), how.storage.durability)
        merger = merger_of(how, stage, self._version)
        found: list[Result] = []
        for job in self._shares[number]:
            rewrite, errors = merger.merge(replace(job, inputs=tuple(open_marks(fs, job.inputs))))
            found.append((job.id, rewrite, [_portable(error) for error in errors]))
            if any(map(is_away, errors)):
                break
        return found


def _portable(error: Exception) -> FtfileError:
    """Return an error that the driver can unpickle."""
    return error if isinstance(error, FtfileError) else FtfileError(f"{type(error).__name__}: {error}")
