"""Compaction of a store without a batch, by threads or tasks, until nothing is due or each bucket is one sorted run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from ftfile.core.arguments import Access
from ftfile.core.errors import StaleFiles
from ftfile.core.logs import get_logger
from ftfile.core.progress import Tracker
from ftfile.kv.compactor import Compactor
from ftfile.kv.definition import SET
from ftfile.kv.driver import accepted_compactions, how_written, list_due_after, live_after, open_store_log
from ftfile.kv.merge_functions import code_of
from ftfile.kv.planning.picker import (
    Backoff,
    Compaction,
    by_level,
    by_position,
    groups_of,
    is_small_group,
    size_of,
    sorted_runs,
)
from ftfile.kv.planning.plan import backoffs_of, failed_ids, pieces_of, plan_of
from ftfile.kv.planning.runs import (
    adds_of,
    last_position,
    open_state,
    recorded_key_types,
    run_ids,
    run_of,
    runs_by_bucket,
    seal_metadata,
)
from ftfile.log.format.adds import ids_of, total_bytes
from ftfile.log.format.model import NUMBER_MAX, Body
from ftfile.log.opening import maintaining
from ftfile.log.protocol import commit
from ftfile.writing.options import durability_of
from ftfile.writing.stage import Stage
from ftfile.writing.workers import Threads, Work

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments, OperationArguments
    from ftfile.core.progress import OnProgress
    from ftfile.kv.compactor import CompactionResult
    from ftfile.kv.driver import HowWritten
    from ftfile.kv.planning.picker import PlanSettings
    from ftfile.kv.planning.plan import Piece
    from ftfile.kv.planning.runs import Run
    from ftfile.log.checks import Rewrite
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import MaintenanceAuthor
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from ftfile.writing.messages import TaskIdentity
    from ftfile.writing.workers import Workers


# Maximum refusals of a rewrite whose inputs are all live: its files are at risk of an immediate vacuum.
_STALE_MAX = 2
_log = get_logger(__name__)


@dataclass(kw_only=True)
class CompactionRounds:
    """The compactions of one call, in rounds with one record each, so that an interruption loses little work."""

    log: CommitLog  # of the store
    author: MaintenanceAuthor  # of the records
    workers: Workers  # run the compactions of a round in parallel
    code: frozenset[str] = frozenset()  # classes that the caller names
    progress: OnProgress | None = None  # called in this thread after each compaction

    def __post_init__(self) -> None:
        self._report = CompactReport(version=-1)
        self._backoffs: dict[str, Backoff] = {}  # of failed compactions, by run id
        self._errors: dict[str, Exception] = {}  # of failed compactions, by run id
        self._refused: Counter[frozenset[str]] = Counter()  # by the ids of inputs that stay live
        self._tracker = Tracker("compact", self.log.clock, self.progress, 0, unit="compactions")

    def compact(self, *, full: bool = False, skip_held: bool = False) -> CompactReport:
        """Compact runs until nothing is due, or with `full` until each bucket is one sorted run.

        A failed compaction is retried once; all other compactions run. With `skip_held`, compactions that have failed
        too often are skipped as long as their backoffs in the log require.

        Raises:
            ConfigError: `code` lacks a class.
            FtfileError: some runs could not be compacted, and are unchanged; or as for a batch write.
        """
        choice = _FullCompaction(self.log) if full else DueCompactions(self.log, self.workers.at_once, skip_held)
        while True:
            recorded = self.log.refresh(durable=True)
            how = how_written(recorded, self.log.fs, self.code)
            how.definition.require_code()
            head = open_state(self.log.fs, recorded, how.definition.key_types)
            pieces = [*choice.choose(head, how, [*self._backoffs.values()])]
            if not pieces:
                break
            self._do_round(head, how, pieces)
        for run, error in self._errors.items():
            if run in head.segments:
                raise error
        report = replace(self._report, version=head.version)
        if report.records:
            _log.info("compacted: %s", report)
        return report

    def _do_round(self, head: LogState, how: HowWritten, pieces: Sequence[Piece]) -> None:
        """Run compactions, and create a record of them; compactions that exceed one round wait for the next round."""
        rewrites: list[Rewrite] = []
        for compaction, rewrite, error in self._do_pieces(CompactionWork(how, head.version), pieces):
            if error is not None:
                self._back_off(_backoff_after(compaction, error), error)
            if rewrite is not None:
                rewrites.append(rewrite)
        if rewrites:
            self._record(how, rewrites)
            self._back_off_refused(rewrites)

    def _back_off(self, backoff: Backoff, error: Exception) -> None:
        self._backoffs[backoff.run] = backoff
        self._errors[backoff.run] = error

    def _do_pieces(self, work: CompactionWork, pieces: Sequence[Piece]) -> list[CompactionResult]:
        """Run the compactions of a round; if the storage is unavailable, start no more."""
        outcomes: dict[int, tuple[CompactionResult, ...]] = {}
        self._tracker.expect(len(pieces), sum(map(work.size_of, pieces)))
        pieces = _round_of(work, pieces, self.workers.at_once)
        for number, done in self.workers.do(work, pieces, self.log.fs, dict(work.how.storage.file_settings)):
            outcomes[number] = done
            self._tracker.add(1, work.size_of(pieces[number]))
            if done[-1].is_storage_away:
                break
        results: list[CompactionResult] = []
        for _, done in sorted(outcomes.items()):
            results += done
        return results

    def _record(self, how: HowWritten, rewrites: Sequence[Rewrite]) -> None:
        def prepare(head: LogState, _: object) -> Body | None:
            return self._body(how, rewrites, open_state(self.log.fs, head, how.definition.key_types))

        with self.log.lock:
            record = commit(self.log, self.author, prepare).record
        if record is None:
            return
        old_paths: set[str | None] = set()
        for rewrite in rewrites:
            old_paths.update(add.path for add in rewrite.inputs)
        before = self._report
        self._report = replace(
            before,
            records=before.records + 1,
            runs_replaced=before.runs_replaced + len(record.removes),
            runs_written=before.runs_written + len(record.adds),
            bytes_written=before.bytes_written + total_bytes(add for add in record.adds if add.path not in old_paths),
        )
        numbers = len(record.removes), len(record.adds), record.version, self._report.bytes_written
        _log.info("compacted %d runs to %d in version %d; %d bytes so far", *numbers)

    def _back_off_refused(self, rewrites: Iterable[Rewrite]) -> None:
        """Abandon rewrites refused repeatedly with live inputs: vacuum could delete their new files."""
        live = self.log.refresh().segments
        for rewrite in rewrites:
            inputs = frozenset(ids_of(rewrite.inputs))
            if not inputs.issubset(live):
                continue
            self._refused[inputs] += 1
            if self._refused[inputs] >= _STALE_MAX:
                error = StaleFiles(
                    f"{len(inputs)} runs were not merged: the new files could be deleted at once, because the runs are "
                    "older than vacuum's horizon: vacuum with a longer retention"
                )
                self._back_off(Backoff.of([*map(run_of, rewrite.inputs)])._replace(not_before=NUMBER_MAX), error)

    def _body(self, how: HowWritten, rewrites: Sequence[Rewrite], state: LogState) -> Body | None:
        """Return the body of the record of the compactions that a head can accept; None without any."""
        log = self.log
        accepted = accepted_compactions(log, state, rewrites)
        if not accepted.rewrites:
            return None
        live = live_after(state, accepted.removes, accepted.adds)
        tasks = 1
        for job in state.jobs:
            tasks = max(tasks, plan_of(job).task_count)
        return Body(
            adds=seal_metadata(log.fs, accepted.adds),
            removes=accepted.removes,
            jobs=list_due_after(state, live, how.plan, tasks=tasks),
            metrics={"durability": durability_of(how.storage.durability, log.fs.capabilities)},
        )


def _backoff_after(compaction: Compaction, error: Exception) -> Backoff:
    """Return the backoff of a failed compaction; a compaction that failed before is not retried by this call."""
    if compaction.backoff is not None:
        return compaction.backoff._replace(not_before=NUMBER_MAX)
    failed = failed_ids(compaction, error)
    return Backoff.of([run for run in compaction.runs if run.id in failed])


def _round_of(work: CompactionWork, pieces: Sequence[Piece], at_once: int) -> Sequence[Piece]:
    """Return the first pieces, up to two files for each worker, at least one piece."""
    read_bytes = work.how.plan.read_bytes
    room_bytes = at_once * read_bytes
    for number, piece in enumerate(pieces):
        room_bytes -= min(max(work.size_of(piece), 1), read_bytes)
        if room_bytes <= 0:
            return pieces[: number + 1]
    return pieces


@dataclass(frozen=True, slots=True)
class CompactionWork(Work["Piece", "tuple[CompactionResult, ...]"]):
    """Compacts runs that are live at a version, with the store's settings for new runs."""

    how: HowWritten
    read_version: int

    def size_of(self, piece: Piece) -> int:
        """Return the bytes of the runs of compactions."""
        size_bytes = 0
        for planned in piece:
            size_bytes += total_bytes(adds_of(planned.compaction.runs))
        return size_bytes

    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[Piece]) -> Iterator[tuple[CompactionResult, ...]]:
        """Yield the results of each piece, up to a piece that fails because the storage is unavailable."""
        how, stage = self.how, Stage(fs, task, self.how.storage.durability)
        compactor = Compactor(
            stage=stage,
            definition=how.definition,
            encoding=how.encoding,
            open_spool=lambda: how.spool(stage),
            read_version=self.read_version,
        )
        yield from compactor.compact_all(pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """The result of a compaction.

    Attributes:
        version: the newest version after it.
        records: number of records that it created.
        runs_replaced: replaced runs, each counted once for each part of it that was compacted.
        runs_written: runs that replace them.
        bytes_written: of new runs, on storage.
        dry_run: True if nothing was compacted; the other numbers describe the first compactions to run.
    """

    version: int
    records: int = 0
    runs_replaced: int = 0
    runs_written: int = 0
    bytes_written: int = 0
    dry_run: bool = False


def compact(
    path: str | os.PathLike[str],
    *,
    full: bool = False,
    dry_run: bool = False,
    threads: int | None = None,
    merge: str | Mapping[str, str] | None = None,
    **access: Unpack[OperationArguments],
) -> CompactReport:
    """Compact runs of a store until nothing is due, and return a report; no row changes.

    By default, runs the compactions that the next batches would run. With `full`, the rows of each bucket are merged
    into one sorted run, in files of `maxFileSize`, without deleted rows. Reads are then fastest, but all rows are
    rewritten.

    A compaction without due work creates no record. Safe while writers and readers run: of two compactions of the same
    runs, the later one is dropped. Work is recorded after every two files of each thread, which limits the loss of an
    interruption. Each thread needs memory for some windows of rows; by default there is one thread for each core. With
    `dry_run`, writes nothing, and returns the compactions that would run first. `progress` is called in this thread
    with a `Progress` after each compaction. Its total grows if compactions make others due; an error that it raises
    ends the compaction. For `merge` see `ftfile.kv.open`, for `access` `ftfile.open`.

    Raises:
        ConfigError: the path is not a store, its keys are unknown, `threads` is below 1, or `merge` lacks a class.
        FtfileError: some runs could not be compacted, such as damaged runs (`CorruptData`); all others were compacted.
        CommitError: as for a batch write.
    """
    with maintaining("compact", path, Access.of(access), open_store_log) as (log, author):
        workers = Threads.of(author.operation_id, threads, log.fs.context)
        if dry_run:
            return _plan_report(log, workers.at_once, full=full)
        return CompactionRounds(
            log=log, author=author, workers=workers, code=code_of(merge), progress=access.get("progress")
        ).compact(full=full)


def compact_idle(path: str | os.PathLike[str], **access: Unpack[AccessArguments]) -> CompactReport:
    """Compact runs as `compact`, except runs whose compactions failed too often, because idle queries call it often."""
    with maintaining("compact", path, Access.of(access), open_store_log) as (log, author):
        workers = Threads.of(author.operation_id, None, log.fs.context)
        return CompactionRounds(log=log, author=author, workers=workers).compact(skip_held=True)


def _plan_report(log: CommitLog, at_once: int, *, full: bool) -> CompactReport:
    """Return the report of a dry run."""
    recorded = log.refresh()
    head = open_state(log.fs, recorded, recorded_key_types(recorded))
    how = how_written(head, log.fs)
    choice = _FullCompaction(log) if full else DueCompactions(log, at_once)
    inputs: set[str] = set()
    count = 0
    for planned in chain.from_iterable(choice.choose(head, how, ())):
        inputs |= run_ids(planned.compaction.runs)
        count += 1
    return CompactReport(version=head.version, runs_replaced=len(inputs), runs_written=count, dry_run=True)


@dataclass(frozen=True, slots=True)
class DueCompactions:
    """Chooses all due compactions."""

    log: CommitLog
    at_once: int  # number of workers that share them
    skip_held: bool = False  # skip compactions that failed too often

    def choose(self, head: LogState, how: HowWritten, failed: Iterable[Backoff]) -> list[Piece]:
        """Return the due compactions at a head, given backoffs in addition to its recorded backoffs."""
        backoffs: dict[str, Backoff] = {}
        for backoff in backoffs_of(head.jobs):
            backoffs[backoff.run] = backoff if self.skip_held else backoff._replace(not_before=0)
        for backoff in failed:
            backoffs[backoff.run] = backoff
        due = []
        due_bytes = 0
        for planned in how.planner(self.log).list_due(head.segments.values(), [*backoffs.values()]):
            if not planned.compaction.is_held(head.version + 1):
                due.append(planned)
                due_bytes += planned.size
        share_bytes = -(-due_bytes // self.at_once)
        return pieces_of(due, min(how.plan.read_bytes, share_bytes))


class _FullCompaction:
    """Chooses compactions of the initial runs until level 0 is empty and each group is a run without deletes."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._end: int | None = None  # position of the newest row to compact
        self._groups: dict[str, set[str]] = {}  # ids of level-1 runs by bucket, once its level 0 has descended

    def choose(self, head: LogState, how: HowWritten, backoffs: Collection[Backoff]) -> Iterator[Piece]:
        """Yield each remaining compaction as a separate piece; skip failed ones."""
        held = {backoff.run for backoff in backoffs}
        buckets = runs_by_bucket(map(run_of, head.segments.values()))
        if self._end is None:
            self._end = 0
            for runs in buckets.values():
                self._end = max(self._end, last_position(runs))
        planner = how.planner(self._log)
        for bucket, runs in buckets.items():
            old_runs = [run for run in runs if run.metadata.at[1] <= self._end]
            for compaction in self._due_in(bucket, old_runs, held, how.plan):
                yield (planner.plan(compaction, runs),)

    def _due_in(
        self, bucket: str, runs: Sequence[Run], held: Collection[str], rules: PlanSettings
    ) -> Iterator[Compaction]:
        """Yield the descent of level 0; if it is empty, each group with several runs or deletes.

        Small neighbours are compacted together. The result of a group is not compacted again, even if it must keep
        deletes or its runs are small, so the procedure terminates.
        """
        level0, level1 = by_level(by_position(runs))
        is_sorted = not level1 and len(sorted_runs(level0)) == 1 and all(map(_is_plain, level0))
        if level0 and not is_sorted and not _has_any(level0, held):
            yield Compaction("descend", tuple(level0))
            return
        first_ids = self._groups.setdefault(bucket, run_ids(level1))
        for group in _join_groups(level1, rules):
            is_due = _has_any(group, first_ids) and (len(group) > 1 or not _is_plain(group[0]))
            if is_due and not _has_any(group, held):
                yield Compaction("level1", by_position(group))


def _join_groups(level1: Sequence[Run], rules: PlanSettings) -> list[list[Run]]:
    """Return the groups of level 1, with small neighbouring groups joined."""
    joined: list[list[Run]] = []
    last_is_small = False
    for group in groups_of(level1):
        is_small = is_small_group(group, rules)
        if is_small and last_is_small and size_of([*joined[-1], *group]) <= rules.max_file_bytes:
            joined[-1] += group
        else:
            joined.append(group)
        last_is_small = is_small
    return joined


def _has_any(runs: Iterable[Run], ids: Collection[str]) -> bool:
    return not run_ids(runs).isdisjoint(ids)


def _is_plain(run: Run) -> bool:
    return run.metadata.ops == 1 << SET and not run.metadata.purges
