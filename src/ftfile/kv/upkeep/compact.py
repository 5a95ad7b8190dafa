"""Compaction: what is due is merged at once, or all runs of each bucket to one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.attempt.pieces.workers import Threads
from ftfile.commit.opening import maintaining
from ftfile.core.context import SYSTEM
from ftfile.core.logs import get_logger
from ftfile.kv.columns import SET
from ftfile.kv.marks import open_state
from ftfile.kv.planning.jobs import JobTerms, job_of
from ftfile.kv.planning.runs import run_of, stretches_of
from ftfile.kv.upkeep.due import Merges, all_due
from ftfile.kv.upkeep.maintained import how_written, open_store_log

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ftfile.commit.format.model import AssemblyJob
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.core.context import Context
    from ftfile.core.progress import OnProgress
    from ftfile.kv.planning.runs import Run, Stretch
    from ftfile.kv.upkeep.maintained import HowWritten

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The result of a compaction.

    Attributes:
        version: the newest one after it.
        records: that it created.
        runs_replaced: runs that ended, each as often as a part of it was merged.
        runs_written: runs that took their place.
        bytes_written: of new runs, on storage.
        dry_run: True if nothing was merged; the other numbers are those of the merges that would come first.
    """

    version: int
    records: int
    runs_replaced: int
    runs_written: int
    bytes_written: int
    dry_run: bool = False


def compact(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    full: bool = False,
    dry_run: bool = False,
    threads: int | None = None,
    progress: OnProgress | None = None,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> CompactReport:
    """Merge runs of a store until nothing is due, and return how many; no row changes.

    By default it does what the next batches would do. With `full`, the rows of each bucket become one sorted run, in
    files of `maxFileSize`, without deleted rows: reads are fastest then, and everything is written once more.

    A second compaction with nothing new to merge creates no record. Safe beside writers and readers: of two that merge
    the same runs the later one gives way. It records its work every `jobBytes` of each thread, so that an interruption
    loses no more, and each thread takes memory for some windows of rows; by default there is one for each core. With
    `dry_run`, it writes nothing, and returns what it would merge first. `progress` is called in this thread with a
    `Progress` after each merge, whose total grows where merges make others due; what it raises ends the compaction. For
    the other arguments see `ftfile.vacuum`.

    Raises:
        ConfigError: the path is no store, its keys are not known, or `threads` is below 1.
        FtfileError: some runs could not be merged, such as damaged ones (`CorruptData`); all others were.
        CommitError: as for a batch write.
    """
    with maintaining("compact", path, key_provider, storage, context, open_store_log) as (log, author):
        workers = Threads.of(author.job_id, threads, context)
        if dry_run:
            return _planned(log, workers.at_once, full=full)
        return merge_all(Merges(log, author, workers, progress), full=full)


def _planned(log: CommitLog, at_once: int, *, full: bool) -> CompactReport:
    """Return the report of a dry run."""
    head = open_state(log.fs, log.read_on())
    how = how_written(head, log.fs)
    jobs = [*(_FullMerges(log).choose(head, how, ()) if full else all_due(head, how, log, (), at_once))]
    inputs = {add.id for job in jobs for add in job.inputs}
    return CompactReport(head.version, 0, len(inputs), len(jobs), 0, dry_run=True)


def merge_all(merges: Merges, *, full: bool) -> CompactReport:
    """Merge until nothing is due, or with `full` until each bucket is one run, and return how many; see `compact`."""
    log = merges.log
    if full:
        merges.do_all(_FullMerges(log).choose)
    else:
        at_once = merges.workers.at_once
        merges.do_all(lambda head, how, left_alone: all_due(head, how, log, left_alone, at_once))
    report = CompactReport(log.read_on().version, merges.records, merges.replaced, merges.written, merges.bytes_written)
    _log.info("compacted: %s", report)
    if merges.errors:
        raise merges.errors[0]
    return report


class _FullMerges:
    """Chooses merges that leave one stretch in each bucket, of the runs that are live when it is first asked."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._end: int | None = None  # position of the newest row that is merged
        self._begun: set[str] = set()  # buckets all runs of which were to be merged

    def choose(self, head: LogState, how: HowWritten, left_alone: Collection[str]) -> Iterator[AssemblyJob]:
        """Yield a job for each bucket that has more to merge, and none of these runs."""
        buckets: defaultdict[str, list[Run]] = defaultdict(list)
        for add in head.segments.values():
            buckets[add.bucket].append(run_of(add))
        if self._end is None:
            self._end = max((run.marks.at[1] for runs in buckets.values() for run in runs), default=0)
        for bucket, runs in sorted(buckets.items()):
            stretches = [stretch for stretch in stretches_of(runs) if stretch.at[1] <= self._end]
            newer_ms = [run.marks.committed_ms for run in runs if run.marks.at[0] > self._end]
            expired_ms = min([self._log.clock.now_ms(), *newer_ms]) - how.plan.tombstone_ttl_ms
            reason, chosen = self._due_in(bucket, stretches)
            if chosen and not any(run.add.id in left_alone for each in chosen for run in each.runs):
                at = chosen[0].at[0], chosen[-1].at[1]
                merged = tuple(run for each in chosen for run in each.unfinished or each.runs)
                terms = JobTerms(at, chosen[0] is stretches[0], expired_ms)
                yield job_of(reason, [(merged, terms)], how.plan, self._log.ids, 1)

    def _due_in(self, bucket: str, stretches: Sequence[Stretch]) -> tuple[str, Sequence[Stretch]]:
        """Return why stretches of a bucket are to be merged, and which: one that is not finished, or all, or none."""
        for stretch in stretches:
            if stretch.unfinished:
                return "continue", [stretch]
        is_plain = all(
            run.marks.ops == 1 << SET and not run.marks.purges for stretch in stretches for run in stretch.runs
        )
        if len(stretches) <= 1 and (is_plain or bucket in self._begun):
            return "", ()
        self._begun.add(bucket)
        return "compact", stretches
