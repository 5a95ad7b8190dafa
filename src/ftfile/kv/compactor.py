"""Execution of compactions by tasks, which merge runs in bounded memory while they write their rows."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import CorruptData
from ftfile.core.logs import get_logger
from ftfile.core.retries import is_away
from ftfile.kv.definition import SET
from ftfile.kv.fold import SortedRows, fold, windows_of
from ftfile.kv.key_columns import StoredKeys
from ftfile.kv.planning.plan import backoffs_of, failed_ids, is_held, pieces_of, plan_of
from ftfile.kv.planning.runs import adds_of, open_metadata, run_of
from ftfile.kv.run.pages import Cache
from ftfile.kv.run.reader import SCAN_BYTES
from ftfile.kv.run_files import CoalescingFiles, OpenFiles, open_run
from ftfile.log.checks import Rewrite
from ftfile.log.format.model import Origin
from ftfile.storage.calls import parallel
from ftfile.writing.messages import AssemblyResults, segment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key
    from ftfile.kv.planning.picker import Compaction
    from ftfile.kv.planning.plan import CompactionPlanner, Piece, PlannedCompaction, Terms
    from ftfile.kv.planning.runs import Run
    from ftfile.kv.run.reader import RunReader
    from ftfile.kv.run_files import RunSpool
    from ftfile.log.format.model import Add, Job
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from ftfile.writing.stage import Stage


# For small runs, which are read completely when they are opened.
_CACHE_BYTES = 32 << 20
# Bytes per row in pages and index.
_INDEX_BYTES = 7
_PIECE_BYTES_MAX = 1 << 20
# After this number of seconds no further file is started: late rows cost more than late compactions.
BUDGET_S = 10.0
# Rows in memory during a fold, which needs several times as much.
_WINDOW_BYTES = 16 << 20
_log = get_logger(__name__)


class Inputs:
    """Runs that are read once, in key order, in chunks of some bytes or of one block."""

    def __init__(self, files: OpenFiles, definition: StoreDefinition, read_bytes: int) -> None:
        self._read_bytes = min(read_bytes, SCAN_BYTES)
        self._files = files
        self._definition = definition
        self._cache = Cache(_CACHE_BYTES)
        self._readers: dict[str, RunReader] = {}

    def reader(self, run: Run) -> RunReader:
        """Return the reader of a run; errors contain its path."""
        if run.add.id not in self._readers:
            self._readers[run.add.id] = open_run(self._files, run.add, self._cache)
        return self._readers[run.add.id]

    def open(self, runs: Sequence[Run]) -> None:
        """Open runs in parallel, except runs without rows."""
        parallel(self._files.fs, self.reader, [run for run in runs if run.metadata.keys is not None])

    def rows(self, run: Run) -> SortedRows:
        """Return the rows of a run."""
        names = self._definition.keys
        if run.metadata.keys is None:
            return SortedRows(iter(()), self._definition.schema, len(names))
        reader = self.reader(run)
        return SortedRows(self._scan(run, reader), reader.schema, len(names))

    def _scan(self, run: Run, reader: RunReader) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a run, then raise CorruptData if their number differs from the record."""
        rows = 0
        for batch in reader.scan(read_bytes=self._read_bytes):
            rows += batch.num_rows
            yield batch
        if rows != run.add.rows:
            raise CorruptData(run.add.path, f"{run.add.rows} rows", f"{rows} rows")

    def fold(self, runs: Sequence[Run], terms: Terms, window_bytes: int) -> Iterator[pa.Table]:
        """Yield the folded rows of runs (old to new), sorted by key, in windows of about `window_bytes`."""
        purges = [run.metadata.purges for run in runs]
        for window in windows_of([*map(self.rows, runs)], window_bytes):
            yield fold(
                window,
                self._definition,
                is_bottommost=terms.is_bottommost,
                purges=purges,
                expired_ms=terms.expired_ms,
            )


class FoldedRows:
    """Folded rows, sorted by key, for consecutive runs. No run contains rows on both sides of a cut."""

    def __init__(self, tables: Iterator[pa.Table], cuts: Iterable[Key], key_columns: int, piece_bytes: int) -> None:
        self._tables = tables
        self._cuts = sorted(cuts)
        self._key_columns = key_columns
        self._piece_bytes = piece_bytes
        self._batches: list[pa.RecordBatch] = []  # in reverse order: the next batch is last

    def has_more(self) -> bool:
        """Return True if a row remains."""
        while not self._batches:
            table = next(self._tables, None)
            if table is None:
                return False
            pieces = max(1, -(-table.nbytes // self._piece_bytes))
            rows = max(1, -(-table.num_rows // pieces))
            self._batches = [batch for batch in table.to_batches(max_chunksize=rows) if batch.num_rows][::-1]
        return True

    def batches_of_run(self, is_full: Callable[[pa.RecordBatch], bool]) -> Iterator[pa.RecordBatch]:
        """Yield rows up to the next cut, or until `is_full` returns True for a yielded batch."""
        is_begun = False
        while self.has_more():
            batch = self._batches.pop()
            keys = StoredKeys(batch.columns[: self._key_columns])
            passed = bisect.bisect_right(self._cuts, keys[0])
            del self._cuts[:passed]
            if passed and is_begun:
                self._batches.append(batch)
                return
            if self._cuts and self._cuts[0] <= keys[-1]:
                end = bisect.bisect_left(keys, self._cuts[0])
                self._batches.append(batch.slice(end))
                batch = batch.slice(0, end)
            is_begun = True
            yield batch
            if is_full(batch):
                return


@dataclass
class Outputs:
    """The runs that compactions write: in one spool, or in several spools if the runs are large."""

    open_spool: Callable[[], RunSpool]  # creates a spool
    encoding: str  # key of the definition of the encoding of the runs
    max_file_bytes: int  # maximum length of a run; a spool ends at half of it

    def __post_init__(self) -> None:
        self._spools: list[RunSpool] = []
        self._is_open = False

    @property
    def piece_bytes(self) -> int:
        """Return the size in bytes of the batches that are appended to a run."""
        return min(max(self.max_file_bytes // 8, 1), _PIECE_BYTES_MAX)

    def equal_bytes(self, size_bytes: int) -> int:
        """Return the length at which a run ends, so that rows of `size_bytes` become the fewest runs of equal size.

        If all rows fit into one run, return the maximum: the size of the result is not known in advance.
        """
        limit = max(self.max_file_bytes - self.piece_bytes, 1)
        if size_bytes <= limit:
            return limit
        return -(-size_bytes // -(-size_bytes // limit))

    def write(self, bucket: str, rows: FoldedRows, origin: Origin, run_bytes: int | None = None) -> Run:
        """Write the next rows as a run without a position; without rows, write an empty run.

        The run ends at about `run_bytes`, by default at the maximum length of a file.
        """
        end_bytes = run_bytes
        if run_bytes is None:
            end_bytes = self.max_file_bytes - self.piece_bytes
        if not self._is_open:
            self._spools.append(self.open_spool())
            self._is_open = True
        spool = self._spools[-1]
        start = last_position = spool.position
        plain_bytes = last_plain_bytes = rows_taken = 0

        def is_full(batch: pa.RecordBatch) -> bool:
            nonlocal last_position, plain_bytes, last_plain_bytes, rows_taken
            if spool.position != last_position:
                last_position, last_plain_bytes = spool.position, plain_bytes
            plain_bytes += batch.nbytes
            rows_taken += batch.num_rows
            # Assume that rows buffered by the spool compress as well as the rows already written.
            ratio = 1.0
            if last_plain_bytes:
                ratio = (last_position - start) / last_plain_bytes
            size_bytes = last_position - start + (plain_bytes - last_plain_bytes) * min(ratio, 1.0)
            return bool(size_bytes + _INDEX_BYTES * rows_taken >= end_bytes)

        piece = spool.write(bucket, rows.batches_of_run(is_full))
        if spool.position >= self.max_file_bytes // 2:
            self.end()
        return run_of(segment_of(piece, self.encoding, origin, {}))

    def end(self) -> None:
        """End the open spool."""
        if self._is_open:
            self._is_open = False
            self._spools[-1].end()

    def discard(self) -> None:
        """Delete all spools, if possible; no record refers to them."""
        self._is_open = False
        for spool in self._spools:
            spool.discard()


class CompactionResult(NamedTuple):
    """The result of one attempt of a compaction."""

    compaction: Compaction
    rewrite: Rewrite | None  # None if the attempt failed
    error: Exception | None = None

    @property
    def is_storage_away(self) -> bool:
        """Return True if the next compaction would also fail, because the storage is unavailable."""
        return self.error is not None and is_away(self.error)


def share_of(head: LogState, partition: int) -> tuple[Job, ...]:
    """Return a task's share of the due jobs: neighbouring jobs, about the same number for each task.

    The assignment rotates with each version, so a job does not wait for a task that no longer exists. `head` may be the
    state of a view.
    """
    jobs = []
    for job in head.jobs:
        if not is_held(job, head.version + 1):
            jobs.append(job)
    tasks = 0
    if jobs:
        tasks = plan_of(jobs[0]).task_count
    if partition >= tasks:
        return ()
    share = (partition - head.version) % tasks
    return tuple(jobs[share * len(jobs) // tasks : (share + 1) * len(jobs) // tasks])


def planned_compactions(
    jobs: Sequence[Job], state: LogState, fs: FileSystem, planner: CompactionPlanner
) -> list[PlannedCompaction]:
    """Return the compactions that jobs name, planned against a state, which may be newer than the jobs.

    Jobs that are no longer due are skipped. Raises the same errors as `open_metadata`.
    """
    buckets, names = set(), set()
    for job in jobs:
        buckets.add(plan_of(job).bucket)
        names.add(job.id)
    adds = [add for add in state.segments.values() if add.directory_key in buckets]
    due = planner.list_due(open_metadata(fs, adds, planner.key_types), backoffs_of(state.jobs))
    return [planned for planned in due if planned.compaction.name in names]


def run_compactions(
    compactor: Compactor, compactions: Iterable[PlannedCompaction], piece_bytes: int
) -> AssemblyResults:
    """Run compactions until the time budget is used; compactions that failed before run last.

    Never raises: errors are logged with the path, the compaction stays due, and the remaining compactions run.
    """
    clock = compactor.stage.fs.context.clock
    began_s = clock.monotonic_s()
    rewrites: list[Rewrite] = []
    failed: list[str] = []
    for results in compactor.compact_all(pieces_of(compactions, piece_bytes)):
        for compaction, rewrite, error in results:
            if error is not None:
                _log.warning("compaction of %d runs failed and will be retried: %s", len(compaction.runs), error)
                failed += failed_ids(compaction, error)
            if rewrite is not None:
                rewrites.append(rewrite)
        if clock.monotonic_s() - began_s > BUDGET_S:
            break
    return AssemblyResults(tuple(rewrites), tuple(failed))


def _join_origins(runs: Sequence[Run]) -> Origin:
    """Return the query of the oldest run, and the batches of all runs."""
    oldest = runs[0].add.origin
    first, last = oldest.first_batch, oldest.last_batch
    for run in runs[1:]:
        first = min(first, run.add.origin.first_batch)
        last = max(last, run.add.origin.last_batch)
    return Origin(oldest.query_id, first, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactor:
    """Runs compactions."""

    stage: Stage  # of the task; also provides the file system, clock and ids
    definition: StoreDefinition  # schema and keys of new runs
    encoding: str  # key of the definition of the encoding of new runs
    open_spool: Callable[[], RunSpool]  # creates a file for new runs
    read_version: int  # version at which the inputs are live
    window_bytes: int = _WINDOW_BYTES

    def compact_all(self, pieces: Iterable[Piece]) -> Iterator[tuple[CompactionResult, ...]]:
        """Yield the results of each piece; stop after a piece that failed because the storage is unavailable."""
        for piece in pieces:
            results = self.compact(piece)
            yield results
            if results[-1].is_storage_away:
                return

    def compact(self, piece: Piece) -> tuple[CompactionResult, ...]:
        """Return the result of each compaction; stop if the storage is unavailable.

        If one compaction fails, each is run separately, so that it does not affect the others.
        """
        try:
            rewrites = self._rewrite(piece)
        except Exception as error:
            if len(piece) == 1 or is_away(error):
                return (CompactionResult(piece[0].compaction, None, error),)
        else:
            results = []
            for planned, rewrite in zip(piece, rewrites, strict=True):
                results.append(CompactionResult(planned.compaction, rewrite))
            return tuple(results)
        done: tuple[CompactionResult, ...] = ()
        for planned in piece:
            done += self.compact((planned,))
            if done[-1].is_storage_away:
                break
        return done

    def _rewrite(self, piece: Piece) -> list[Rewrite]:
        """Return the rewrites of compactions; if one fails, delete all spools."""
        rewrites = []
        outputs = Outputs(self.open_spool, self.encoding, piece[0].max_file_bytes)
        # The spools of a batch contain neighbouring buckets next to each other.
        input_adds: list[Add] = []
        for planned in piece:
            input_adds += adds_of(planned.inputs)
        files = CoalescingFiles(OpenFiles(self.stage.fs, maps=False), input_adds)
        try:
            for planned in piece:
                adds = planned.move_runs(self.stage.fs.context.ids)
                if planned.inputs:
                    runs = Inputs(files, self.definition, self.window_bytes // len(planned.inputs))
                    adds += self._write_runs(planned, runs, outputs)
                replaced = tuple(adds_of(planned.compaction.runs))
                rewrites.append(Rewrite(replaced, tuple(adds), self.read_version))
            outputs.end()
        except BaseException:
            outputs.discard()
            raise
        return rewrites

    def _write_runs(self, compaction: PlannedCompaction, runs: Inputs, outputs: Outputs) -> list[Add]:
        """Write the folded rows of a compaction; return the adds of the new runs."""
        runs.open(compaction.inputs)
        tables = self._align_tables(runs.fold(compaction.inputs, compaction.terms, self.window_bytes), compaction)
        rows = FoldedRows(tables, compaction.cuts, len(self.definition.keys), outputs.piece_bytes)
        bucket, origin = compaction.inputs[0].add.directory_key, _join_origins(compaction.inputs)
        run_bytes = outputs.equal_bytes(compaction.size)
        written = []
        while rows.has_more():
            written.append(outputs.write(bucket, rows, origin, run_bytes))
        adds = []
        for result in compaction.results(written):
            run = result.run or outputs.write(bucket, rows, origin)
            adds.append(compaction.add_of(run, result.purges))
        return adds

    def _align_tables(self, tables: Iterator[pa.Table], compaction: PlannedCompaction) -> Iterator[pa.Table]:
        """Yield tables with the same columns: all columns of a single table, or the union of the columns of several."""
        head = list(itertools.islice(tables, 2))
        if len(head) <= 1:
            yield from head
            return
        ops = 0
        for run in compaction.inputs:
            ops |= run.metadata.ops
        if compaction.terms.is_bottommost and self.definition.sequence is None:
            ops = 1 << SET
        columns = self.definition.names_with(ops)
        for table in itertools.chain(head, tables):
            yield self.definition.align(table).select(columns)
