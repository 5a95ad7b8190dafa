"""A stream on a file system that fails: the steps of Spark around the sink, and the invariants of every moment."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal

import ftfile
from ftfile.core.errors import FtfileError
from ftfile.filters.keys import Keys
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import BatchWriteAuthor, MaintenanceAuthor, StreamAuthor
from ftfile.log.read.dead_letters import read_dead_letters
from ftfile.log.sealed import SealedFileSystem
from ftfile.operate.flush import flush
from ftfile.storage.registry import register
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, SeededIds, current
from ftfile.testing.fs.crashing import CrashingFileSystem, crash_states
from ftfile.testing.micro_batch import BatchQuery, MicroBatch
from ftfile.writing.files.file_writer import forget_caches

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

    from ftfile.log.format.model import Author
    from ftfile.storage.api import FileSystem
    from ftfile.testing.checker import DirectoryReport
    from ftfile.testing.fs.crashing import CrashState
    from ftfile.testing.fs.volume import Storage

Change = Literal[
    "append",
    "overwrite",
    "replace",
    "transaction",
    "compact",
    "sort",
    "drop",
    "delete",
    "restore",
    "purge",
    "rebucket",
    "window",
]


class WorldIds:
    """Names that depend only on run and batch, so that states without another difference are equal.

    Each thread of a test is a separate driver; the threads in which `ftfile.writer` writes rows belong to their driver.
    Two drivers must not use the same run.
    """

    def __init__(self) -> None:
        self._source: ContextVar[SeededIds] = ContextVar("source")

    def start(self, run: int, step: int) -> None:
        self._source.set(SeededIds(1000 * run + step))

    def unique(self) -> str:
        source = self._source.get(None)
        if source is None:
            source = SeededIds()
            self._source.set(source)
        return source.unique()


# Longer than the retention of a vacuum.
SETTLED_AGO_S = 8 * 86_400
CLOCK = ManualClock()
NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
CRASH_KEYS = "env:FTFILE_KEYS_OF_THE_WORLD"
IDS = WorldIds()


@dataclass(frozen=True)
class Batch:
    """One micro-batch of one query, or another operation on the directory, with one row for each letter.

    Attributes:
        letters: for a drop, the dropped partitions, or none for all. For a delete, the letters of the deleted rows. For
            a restore, the rows after the restore.
        change: the operation; `replace` overwrites the partitions of its rows. A `transaction` is a batch write of the
            application `query` with the version `batch_id`. A `window` is a window of an operator, with the same
            fields.
        troubled: in its first run a speculative attempt loses, another attempt fails, and both leave files.
    """

    letters: str
    change: Change = "append"
    query: str = "a"
    batch_id: int = 0
    troubled: bool = False

    @property
    def note(self) -> str:
        """Return the note for Spark's commit log, or for another caller's log, when the batch is over."""
        return f"{self.query}/{self.batch_id}"

    @property
    def is_of_a_stream(self) -> bool:
        return self.change in {"append", "overwrite", "replace"}

    @property
    def is_upkeep(self) -> bool:
        return self.change in {"compact", "sort", "drop", "delete", "restore", "purge", "rebucket"}

    @property
    def lines(self) -> list[str]:
        return [f"{letter}{number}" for number, letter in enumerate(self.letters)]

    @property
    def rows(self) -> Counter[bytes]:
        return Counter(line.encode() for line in self.lines)


def hour_of(line: str) -> int:
    """Return the hour of a row in a scenario with times."""
    return (ord(line[0]) - ord("a")) // 3


def value_of(line: bytes) -> str:
    """Return the row of a line of JSON."""
    value: str = json.loads(line)["value"]
    return value


@dataclass
class Query(MicroBatch):
    """A query whose options change with its batches."""

    options: dict[str, str] = field(default_factory=dict)


# Called with the run of a scenario and the number of batches that ended. True if the rest was already tested.
Known = Callable[[int, int], bool]


def never(_run: int, _batches: int) -> bool:
    """Return False, to continue to the end."""
    return False


class Passed:
    """The disks of recoveries after each batch. Recoveries with equal disks continue the same way."""

    def __init__(self) -> None:
        self._disks: set[tuple[int, int, bytes, frozenset[str]]] = set()

    def on(self, fs: CrashingFileSystem, old_names: Collection[str]) -> Known:
        """Return a function that returns True if an earlier recovery had the disk and `old_names` of this recovery."""

        def is_known(run: int, batches: int) -> bool:
            before = len(self._disks)
            self._disks.add((run, batches, fs.digest(), frozenset(old_names)))
            return len(self._disks) == before

        return is_known


@dataclass(frozen=True)
class Scenario:
    """Batches in the order in which they run.

    Attributes:
        settled: number of batches that ended so long ago that all their files are durable.
        new_processes: Spark starts a new Python process for each batch.
        checkpoint: the sink can read Spark's checkpoint, which no crash here damages.
        flush: open files are finished at the end.
        named: the letters of rows choose their files; rows whose letter is a dot name no file.
        vacuum: runs before the last batch; the files of settled batches are older than its retention.
        timed: rows have times by their letters: `abc` in one hour, `def` in the next, and so on. No file has rows of
            two hours.
    """

    name: str
    batches: tuple[Batch, ...]
    settled: int = 0
    new_processes: bool = False
    partitioned: bool = False
    checkpoint: bool = False
    options: tuple[tuple[str, str], ...] = ()
    flush: bool = False
    named: bool = False
    vacuum: bool = False
    timed: bool = False

    def start(self, storage: Storage = "disk") -> CrashState:
        """Return the disk after the settled batches, with Spark's notes about them."""
        fs = CrashingFileSystem(clock=CLOCK, storage=storage)
        CLOCK.advance(-SETTLED_AGO_S)
        for step, batch in enumerate(self.batches[: self.settled]):
            IDS.start(0, step)
            self.run_batch(batch, self.query(fs, batch.query))
            fs.note(batch.note)
        CLOCK.advance(SETTLED_AGO_S)
        return next(state for state in crash_states(fs) if state.point == len(fs.journal))

    def play(
        self,
        fs: FileSystem,
        run: int,
        recorded: Sequence[str],
        record: Callable[[str], None],
        is_known: Known = never,
    ) -> bool:
        """Restart Spark and resume with the first batch that is not recorded; return True at the end.

        Args:
            fs: the file system of the directory.
            run: number of this start: rows are dealt to tasks differently, and names are new.
            recorded: notes of the batches that ended in earlier runs.
            record: called with the note of each batch that ends.
            is_known: called with the run and the number of batches that ended. If it returns True, this method returns
                False.
        """
        queries = {name: self.query(fs, name, run) for name in {batch.query: None for batch in self.batches}}
        for step, batch in enumerate(self.batches):
            if self.vacuum and step == len(self.batches) - 1:
                IDS.start(run, step + 1)
                ftfile.vacuum(queries[batch.query].path, dry_run=False, context=current())
            if batch.note not in recorded:
                IDS.start(run, step)
                self.run_batch(batch, queries[batch.query], run)
                record(batch.note)
                if is_known(run, step + 1):
                    return False
        if self.flush:
            IDS.start(run, len(self.batches))
            flush(next(iter(queries.values())).path, context=current())
        return True

    def query(self, fs: FileSystem, name: str, run: int = 1, driver: str = "world") -> BatchQuery:
        """Return a restarted query. Drivers of different names share only the disk."""
        register(driver, lambda _: fs)
        query = self.query_at(f"{driver}://directory", name)
        query.restart()
        query.run_id = f"run-{run}"
        return query

    def query_at(self, path: str, name: str) -> BatchQuery:
        columns = {"value": "string"} | ({"letter": "string"} if self.partitioned or self.named else {})
        columns |= {"at": "timestamp"} if self.timed else {}
        options = {"fileFormat": "json" if self.timed else "text"}
        options |= {"partitionBy": "letter"} if self.partitioned else {}
        options |= {"eventTimeInterval": "at:1h"} if self.timed else {}
        options |= {"fileNameColumn": "letter", "badRecords": "deadLetter"} if self.named else {}
        checkpoint = f"memory://spark/{self.name}/{name}" if self.checkpoint else None
        return Query(path, columns, options | dict(self.options), name, checkpoint)

    def run_batch(self, batch: Batch, query: BatchQuery, run: int = 1) -> None:
        if self.new_processes:
            forget_caches()
        if batch.is_upkeep:
            self.maintain(batch, query.path)
            return
        tasks = self.deal(batch, tasks=2 if run == 1 else 1)
        if batch.change == "transaction":
            query.options = {**query.options, "txnAppId": batch.query, "txnVersion": str(batch.batch_id)}
            query.run_batch_write(current().ids.unique(), tasks)
            return
        query.overwrite = batch.change in {"overwrite", "replace"}
        if query.overwrite:
            mode = {"partitionOverwriteMode": "dynamic"} if batch.change == "replace" else {}
            query.options = {**query.options, **mode}
            query.options.pop("rolling", None)  # an overwrite leaves no file open
        if batch.troubled and run == 1:
            planned, writer = query.pickled_plan(), query.identity(batch.batch_id)
            query.run_task(planned, writer, 0, tasks[0], attempt=1)
            with contextlib.suppress(ConnectionError, FtfileError):
                query.run_task(planned, writer, 1, tasks[1], attempt=1, error=ConnectionError("executor lost"))
        query.run(batch.batch_id, tasks)

    def maintain(self, batch: Batch, path: str) -> None:
        if batch.change == "restore":
            ftfile.restore(path, batch.batch_id, context=current())
            return
        if batch.change == "delete":
            ranges = (f"(value >= '{letter}' AND value < '{chr(ord(letter) + 1)}')" for letter in batch.letters)
            ftfile.delete(path, " OR ".join(ranges), context=current())
            return
        if batch.change == "compact":
            ftfile.compact(path, commit_every=1, context=current())
            return
        if batch.change == "sort":
            ftfile.compact(path, sort_by="value", target_bytes=5, context=current())
            return
        where: Any = {"letter": list(batch.letters)} if batch.letters else "all"
        ftfile.drop(path, where, context=current())

    def deal(self, batch: Batch, tasks: int) -> list[list[dict[str, Any]]]:
        rows = [self.row_of(line) for line in batch.lines]
        return [rows[task::tasks] for task in range(tasks)]

    def row_of(self, line: str) -> dict[str, Any]:
        row: dict[str, Any] = {"value": line}
        row |= {"letter": line[0]} if self.partitioned or self.named else {}
        return row | ({"at": NOON + timedelta(hours=hour_of(line))} if self.timed else {})

    def expected(self, batches: Iterable[Batch]) -> Counter[bytes]:
        """Return the expected rows after these batches were committed in this order."""
        rows: Counter[bytes] = Counter()
        for batch in batches:
            dropped = batch.change in {"overwrite", "restore"} or (batch.change == "drop" and not batch.letters)
            for row in list(rows):
                if dropped or (batch.change in {"drop", "delete", "replace"} and row[:1].decode() in batch.letters):
                    del rows[row]
            if not batch.is_upkeep or batch.change == "restore":
                rows.update(row for row in batch.rows if not self.is_bad(row))
        return rows

    def is_bad(self, row: bytes) -> bool:
        """Return True if a row cannot be written."""
        return self.named and row.startswith(b".")

    def batch_of(self, author: Author) -> Batch | None:
        """Return the batch of this author, or the first batch of its kind. None for a flush."""
        if isinstance(author, MaintenanceAuthor):
            return next((batch for batch in self.batches if batch.change == author.operation), None)
        note = f"{author.query_id}/{author.batch_id}" if isinstance(author, StreamAuthor) else _transaction(author)
        return next(batch for batch in self.batches if batch.note == note)

    def batches_of(self, authors: Iterable[Author]) -> Iterator[Batch | None]:
        """Yield the batch of each author. Each restore has a separate batch; surplus restores repeat the last batch."""
        restores = [batch for batch in reversed(self.batches) if batch.change == "restore"]
        for author in authors:
            is_restore = isinstance(author, MaintenanceAuthor) and author.operation == "restore"
            if not is_restore:
                yield self.batch_of(author)
                continue
            yield restores.pop() if len(restores) > 1 else restores[0]

    def with_keys(self, fs: FileSystem) -> FileSystem:
        """Return the directory as a process with its keys sees it."""
        return SealedFileSystem(fs, Keys(CRASH_KEYS)) if ("keyProvider", CRASH_KEYS) in self.options else fs

    def check(self, fs: FileSystem, recorded: Sequence[str], old_names: Collection[str] = ()) -> DirectoryReport:
        """Check the invariants of every moment, which hold even before a recovery.

        Args:
            fs: the file system of the directory.
            recorded: notes of the batches that ended.
            old_names: see `check_directory`.
        """
        report, batches = self.check_batches(fs, recorded, old_names)
        expected = self.expected(batches)
        assert report.live_rows == expected, f"the log should hold {expected} and holds {report.live_rows}"
        twice = [row for row, count in report.visible_rows.items() if count > 1]
        assert not twice, f"a lister sees {twice} more than once"
        for path, content in report.visible.items() if self.partitioned else ():
            letters = {line[:1].decode() for line in content.splitlines()}
            assert path.startswith(f"letter={''.join(letters)}/"), f"{path} holds {letters}"
        for path, content in report.visible.items() if self.timed else ():
            hours = {hour_of(value_of(line)) for line in content.splitlines()}
            assert len(hours) == 1, f"{path} holds rows of the hours {hours}"
        if self.named:
            self.check_named(fs, report, batches)
        return report

    def check_batches(
        self, fs: FileSystem, recorded: Sequence[str], old_names: Collection[str]
    ) -> tuple[DirectoryReport, list[Batch]]:
        """Check the directory and its batches; return the committed batches in their order."""
        by_query: dict[str, list[int]] = {}
        for batch in (batch for batch in self.batches if batch.note in recorded and batch.is_of_a_stream):
            by_query.setdefault(batch.query, []).append(batch.batch_id)
        direct = ("publish", "direct") in self.options
        keyed = self.with_keys(fs)
        report = check_directory(
            keyed, recorded_by_spark=by_query, rows_of=self.rows_of, direct=direct, old_names=old_names
        )
        streams = [author for author in report.authors if isinstance(author, StreamAuthor)]
        assert all((author.offsets_hash is not None) == self.checkpoint for author in streams)
        batches = [batch for batch in self.batches_of(report.authors) if batch is not None]
        if report.log_start:
            # Batches before the first kept record have no records any more.
            batches[:0] = self.batches[: self.batches.index(batches[0]) if batches else len(recorded)]
        written = {batch.note for batch in batches}
        once = {"transaction", "window"}
        returned = {batch.note for batch in self.batches if batch.change in once and batch.note in recorded}
        assert returned <= written, f"{returned - written} returned without a record"
        return report, batches

    def rows_of(self, content: bytes) -> Iterable[Hashable]:
        """Return the rows of a part or segment."""
        lines = content.splitlines()
        return [value_of(line).encode() for line in lines] if self.timed else lines

    def check_named(self, fs: FileSystem, report: DirectoryReport, committed: Sequence[Batch]) -> None:
        """Check that each row is in the file that it names, or is a dead letter once."""
        for path, content in report.visible.items():
            assert {path[0]} == {line[:1].decode() for line in content.splitlines()}, f"{path} holds {content!r}"
        bad = Counter(row for batch in committed for row in batch.rows.elements() if self.is_bad(row))
        kept = Counter(letter.row["value"].encode() for letter in read_dead_letters(CommitLog(fs)))
        assert kept == bad, f"the dead letters should be {bad} and are {kept}"

    def check_finished(self, fs: FileSystem, old_names: Collection[str] = ()) -> None:
        """Check the state after all batches ran to their end."""
        report = self.check(fs, [batch.note for batch in self.batches], old_names)
        assert report.live_rows == report.visible_rows, f"visible is {report.visible_rows}"
        if self.timed or ("fileFormat", "csv") in self.options:  # text has no statistics
            self.check_reads(fs, report)

    def check_reads(self, fs: FileSystem, report: DirectoryReport) -> None:
        """Check that a read with a condition returns its rows, with the statistics of files and without them."""
        rows: Counter[Any] = report.live_rows
        matches = sorted(row.decode() for row in rows.elements() if row.startswith(b"b"))
        path = self.query(fs, self.batches[0].query).path
        for statistics in (True, False):
            opened = ftfile.open(path, statistics=statistics, context=current())
            table = opened.to_arrow(columns=["value"], where="value >= 'b' AND value < 'c'")
            values = sorted(table["value"].to_pylist())
            assert values == matches, f"a read with statistics {statistics} returns {values} instead of {matches}"


def _transaction(author: BatchWriteAuthor) -> str:
    assert author.transaction is not None, f"{author} belongs to no batch of the scenario"
    return f"{author.transaction.app_id}/{author.transaction.version}"


@contextlib.contextmanager
def prefixed(what: str) -> Iterator[None]:
    """Prefix an error inside the block with the events before it."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {error}") from error
