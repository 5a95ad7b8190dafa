"""Compactions, done by tasks beside their own rows: runs become fewer, in memory that does not grow with them."""

from __future__ import annotations

import bisect
import itertools
import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.context import is_away
from ftfile.core.errors import CorruptData
from ftfile.core.logs import get_logger
from ftfile.kv.definition import SET
from ftfile.kv.fold import SortedRows, fold, windows_of
from ftfile.kv.key_columns import StoredKeys
from ftfile.kv.planning.plan import backoffs_of, failed_ids, is_held, pieces_of
from ftfile.kv.planning.runs import open_metadata, run_of
from ftfile.kv.run.pages import Cache
from ftfile.kv.run.reader import SCAN_BYTES
from ftfile.kv.run_files import CoalescingFiles, OpenFiles, open_run
from ftfile.log.checks import Rewrite
from ftfile.log.format.model import Origin
from ftfile.storage.calls import parallel
from ftfile.write.messages import AssemblyResults, segment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key
    from ftfile.kv.planning.picker import Compaction
    from ftfile.kv.planning.plan import Piece, PlannedCompaction, Planner, Terms
    from ftfile.kv.planning.runs import Run
    from ftfile.kv.run.reader import RunReader
    from ftfile.kv.run_files import RunSpool
    from ftfile.log.format.model import Add, AssemblyTask
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from ftfile.write.stage import Stage


# Of small runs, which are read whole when they are opened.
_CACHE_BYTES = 32 << 20
# Of pages and index, for each row.
_INDEX_BYTES = 7
_PIECE_BYTES_MAX = 1 << 20
# Seconds after which no file is begun: rows that come late cost more than compactions that come late.
BUDGET_S = 10.0
# Rows in memory while they are folded, which takes some times as much.
_WINDOW_BYTES = 16 << 20
_log = get_logger(__name__)


class Inputs:
    """Runs that are read once, in the order of keys, each some bytes or a block at a time."""

    def __init__(self, files: OpenFiles, definition: StoreDefinition, read_bytes: int) -> None:
        self._read_bytes = min(read_bytes, SCAN_BYTES)
        self._files = files
        self._definition = definition
        self._cache = Cache(_CACHE_BYTES)
        self._readers: dict[str, RunReader] = {}

    def reader(self, run: Run) -> RunReader:
        """Return the reader of a run; errors name its file."""
        if run.add.id not in self._readers:
            self._readers[run.add.id] = open_run(self._files, run.add, self._cache)
        return self._readers[run.add.id]

    def open(self, runs: Sequence[Run]) -> None:
        """Open runs side by side, as far as they have rows."""
        parallel(self._files.fs, self.reader, [run for run in runs if run.metadata.keys is not None])

    def rows(self, run: Run) -> SortedRows:
        """Return the rows of a run."""
        names = self._definition.keys
        if run.metadata.keys is None:
            return SortedRows(iter(()), self._definition.schema, len(names))
        reader = self.reader(run)
        return SortedRows(self._scan(run, reader), reader.schema, len(names))

    def _scan(self, run: Run, reader: RunReader) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a run; raise a CorruptData behind them unless they are as many as its record says."""
        rows = 0
        for batch in reader.scan(read_bytes=self._read_bytes):
            rows += batch.num_rows
            yield batch
        if rows != run.add.rows:
            raise CorruptData(run.add.path, f"{run.add.rows} rows", f"{rows} rows")

    def folded(self, runs: Sequence[Run], terms: Terms, window_bytes: int) -> Iterator[pa.Table]:
        """Yield the rows of runs, old to new, each key once and sorted, in windows of about some bytes."""
        purges = [run.metadata.purges for run in runs]
        for window in windows_of([self.rows(run) for run in runs], window_bytes):
            yield fold(
                window,
                self._definition,
                is_bottommost=terms.is_bottommost,
                purges=purges,
                expired_ms=terms.expired_ms,
            )


class FoldedRows:
    """Rows by key, each key once, from which runs take what comes next; none has rows on both sides of a cut."""

    def __init__(self, tables: Iterator[pa.Table], cuts: Iterable[Key], key_columns: int, piece_bytes: int) -> None:
        self._tables = tables
        self._cuts = sorted(cuts)
        self._key_columns = key_columns
        self._piece_bytes = piece_bytes
        self._batches: list[pa.RecordBatch] = []  # the next one comes last

    def has_more(self) -> bool:
        """Return True if a row is left."""
        while not self._batches:
            table = next(self._tables, None)
            if table is None:
                return False
            pieces = max(1, -(-table.nbytes // self._piece_bytes))
            rows = max(1, -(-table.num_rows // pieces))
            self._batches = [batch for batch in table.to_batches(max_chunksize=rows) if batch.num_rows][::-1]
        return True

    def of_one_run(self, is_full: Callable[[pa.RecordBatch], bool]) -> Iterator[pa.RecordBatch]:
        """Yield rows up to a cut, or until `is_full` says so of a batch that was yielded."""
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
    """The runs that compactions write, in one spool, or in several where runs are large."""

    open_spool: Callable[[], RunSpool]  # starts a spool
    encoding: str  # key of the definition that says how they are written
    max_file_bytes: int  # no run is longer; a spool ends at half as many bytes

    def __post_init__(self) -> None:
        self._spools: list[RunSpool] = []
        self._is_open = False

    @property
    def piece_bytes(self) -> int:
        """Return the bytes of rows that a run takes at a time."""
        return min(max(self.max_file_bytes // 8, 1), _PIECE_BYTES_MAX)

    def equal_bytes(self, size_bytes: int) -> int:
        """Return the length at which a run ends, so that the fewest runs of as many bytes are equal.

        A run that has all of them ends at a whole file: how many become of them is not known.
        """
        limit = max(self.max_file_bytes - self.piece_bytes, 1)
        return limit if size_bytes <= limit else -(-size_bytes // -(-size_bytes // limit))

    def write(self, bucket: str, rows: FoldedRows, origin: Origin, run_bytes: int | None = None) -> Run:
        """Write a run of the next rows, which has no position yet; without any, an empty run.

        It ends at about `run_bytes`, by default those of a file.
        """
        end_bytes = self.max_file_bytes - self.piece_bytes if run_bytes is None else run_bytes
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
            # What the spool still holds back becomes as small as what it has written.
            ratio = (last_position - start) / last_plain_bytes if last_plain_bytes else 1.0
            size_bytes = last_position - start + (plain_bytes - last_plain_bytes) * min(ratio, 1.0)
            return bool(size_bytes + _INDEX_BYTES * rows_taken >= end_bytes)

        piece = spool.write(bucket, rows.of_one_run(is_full))
        if spool.position >= self.max_file_bytes // 2:
            self.end()
        return run_of(segment_of(piece, self.encoding, origin, {}))

    def end(self) -> None:
        """End the spool that is being written."""
        if self._is_open:
            self._is_open = False
            self._spools[-1].end()

    def discard(self) -> None:
        """Remove all that was written, if possible: nobody refers to it."""
        self._is_open = False
        for spool in self._spools:
            spool.discard()


class CompactionResult(NamedTuple):
    """A compaction that was tried."""

    compaction: Compaction
    rewrite: Rewrite | None  # None if it failed
    error: Exception | None = None

    @property
    def is_store_away(self) -> bool:
        """Return True if the next one would fail, too."""
        return self.error is not None and is_away(self.error)


def share_of(head: LogState, partition: int) -> tuple[AssemblyTask, ...]:
    """Return the due jobs that fall to a task: neighbours, about as many for each task.

    At each version others fall to it, so that none waits for a task that is no longer there. Of the head, the state of
    a view is enough.
    """
    jobs = tuple(job for job in head.assembly_tasks if not is_held(job, head.version + 1))
    tasks = jobs[0].payload["taskCount"] if jobs else 0
    if partition >= tasks:
        return ()
    share = (partition - head.version) % tasks
    return jobs[share * len(jobs) // tasks : (share + 1) * len(jobs) // tasks]


def planned_compactions(
    jobs: Sequence[AssemblyTask], state: LogState, fs: FileSystem, planner: Planner
) -> list[PlannedCompaction]:
    """Return the compactions that jobs name, as they are due in a state, which may be later than the jobs.

    One that is no longer due is passed over. It raises as `open_metadata`.
    """
    buckets, names = {job.payload["bucket"] for job in jobs}, {job.id for job in jobs}
    adds = [add for add in state.segments.values() if add.directory_key in buckets]
    due = planner.due(open_metadata(fs, adds, planner.key_types), backoffs_of(state.assembly_tasks))
    return [planned for planned in due if planned.compaction.name in names]


def run_compactions(
    compactor: Compactor, compactions: Iterable[PlannedCompaction], piece_bytes: int
) -> AssemblyResults:
    """Do compactions, as long as there is time for them; those that failed come last.

    Raises nothing: what fails is logged, with the path, and stays due; others go on.
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


@dataclass(frozen=True, slots=True)
class Compactor:
    """Does compactions."""

    stage: Stage  # of the task; also gives the file system, the clock and the ids
    definition: StoreDefinition  # which new runs follow
    encoding: str  # key of the definition that says how new runs are written
    open_spool: Callable[[], RunSpool]  # starts a file for new runs
    read_version: int  # at which the inputs are live
    window_bytes: int = _WINDOW_BYTES

    def compact_all(self, pieces: Iterable[Piece]) -> Iterator[tuple[CompactionResult, ...]]:
        """Yield the results of each piece. After a piece that finds the store away, no other is tried."""
        for piece in pieces:
            results = self.compact(piece)
            yield results
            if results[-1].is_store_away:
                return

    def compact(self, piece: Piece) -> tuple[CompactionResult, ...]:
        """Return the result of each compaction; none is tried once the store is away.

        Where one fails, each is done by itself, so that it leaves the others alone.
        """
        try:
            rewrites = self._rewrite(piece)
        except Exception as error:
            if len(piece) == 1 or is_away(error):
                return (CompactionResult(piece[0].compaction, None, error),)
        else:
            return tuple(
                CompactionResult(planned.compaction, rewrite) for planned, rewrite in zip(piece, rewrites, strict=True)
            )
        done: tuple[CompactionResult, ...] = ()
        for planned in piece:
            done += self.compact((planned,))
            if done[-1].is_store_away:
                break
        return done

    def _rewrite(self, piece: Piece) -> list[Rewrite]:
        """Return the rewrites of compactions; if one fails, all that was written is removed."""
        rewrites = []
        outputs = Outputs(self.open_spool, self.encoding, piece[0].max_file_bytes)
        # Neighbouring buckets of a batch lie side by side in its spools.
        files = OpenFiles(self.stage.fs, maps=False)
        files = CoalescingFiles(files, (run.add for planned in piece for run in planned.inputs))
        try:
            for planned in piece:
                adds = planned.moved(self.stage.fs.context.ids)
                if planned.inputs:
                    runs = Inputs(files, self.definition, self.window_bytes // len(planned.inputs))
                    adds += self._write_runs(planned, runs, outputs)
                inputs = tuple(run.add for run in planned.compaction.runs)
                rewrites.append(Rewrite(inputs, tuple(adds), self.read_version))
            outputs.end()
        except BaseException:
            outputs.discard()
            raise
        return rewrites

    def _write_runs(self, compaction: PlannedCompaction, runs: Inputs, outputs: Outputs) -> list[Add]:
        """Write the folded rows of a compaction; return the adds of their runs."""
        runs.open(compaction.inputs)
        tables = self._alike(runs.folded(compaction.inputs, compaction.terms, self.window_bytes), compaction)
        rows = FoldedRows(tables, compaction.cuts, len(self.definition.keys), outputs.piece_bytes)
        bucket, origins = compaction.inputs[0].add.directory_key, [run.add.origin for run in compaction.inputs]
        # The query of the oldest run, and the batches of all.
        first, last = min(origin.first_batch for origin in origins), max(origin.last_batch for origin in origins)
        origin = Origin(origins[0].query_id, first, last)
        run_bytes = outputs.equal_bytes(compaction.size)
        written = []
        while rows.has_more():
            written.append(outputs.write(bucket, rows, origin, run_bytes))
        return [
            compaction.add_of(result.run or outputs.write(bucket, rows, origin), result.purges)
            for result in compaction.results(written)
        ]

    def _alike(self, tables: Iterator[pa.Table], compaction: PlannedCompaction) -> Iterator[pa.Table]:
        """Yield tables with the same columns: those that the only one has, or that one of several may have."""
        head = list(itertools.islice(tables, 2))
        if len(head) <= 1:
            yield from head
            return
        ops = reduce(operator.or_, (run.metadata.ops for run in compaction.inputs))
        if compaction.terms.is_bottommost and self.definition.sequence is None:
            ops = 1 << SET
        columns = self.definition.names_with(ops)
        for table in itertools.chain(head, tables):
            yield self.definition.aligned(table).select(columns)
