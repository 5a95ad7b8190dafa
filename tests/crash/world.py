"""A stream on a file system that may fail: what Spark does around the sink, and what must be true at any moment."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ftfile.commit import layout
from ftfile.commit.model import Add, Origin, StreamAuthor
from ftfile.commit.proposal import Rewrite
from ftfile.commit.protocol import Committed, commit
from ftfile.commit.snapshot import open_add, take_snapshot
from ftfile.core.checksum import checksum
from ftfile.core.errors import FtfileError
from ftfile.core.ids import SYSTEM_IDS
from ftfile.fs.registry import register
from ftfile.sink.config import SinkConfig
from ftfile.sink.driver import check_messages, make_proposal
from ftfile.sink.writer import forget_logs, open_log
from ftfile.testing.checker import check_directory
from ftfile.testing.clock import ManualClock, SeededIds
from ftfile.testing.crashing import CrashingFileSystem, crash_states
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from ftfile.upkeep.flush import flush

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.commit.proposal import Proposal
    from ftfile.fs.api import FileSystem
    from ftfile.sink.message import TaskCommit
    from ftfile.testing.checker import DirectoryReport
    from ftfile.testing.crashing import CrashState

Change = Literal["append", "overwrite", "compact"]


class WorldIds(threading.local):
    """Names that depend on run and batch alone, so that states that differ in nothing else are equal.

    Each thread is a driver of its own; no two may be in the same run.
    """

    def __init__(self) -> None:
        self._source = SeededIds()

    def start(self, run: int, step: int) -> None:
        self._source = SeededIds(1000 * run + step)

    def unique(self) -> str:
        return self._source.unique()


CLOCK = ManualClock()
IDS = WorldIds()


@dataclass(frozen=True)
class Batch:
    """One micro-batch of one query: one row for each letter, and what else happens in it.

    Attributes:
        change: what its record does besides adding the rows.
        troubled: in its first run a speculative attempt loses, another fails, and both leave files.
    """

    letters: str
    change: Change = "append"
    query: str = "a"
    batch_id: int = 0
    troubled: bool = False

    @property
    def note(self) -> str:
        """Return what Spark's own log of commits says when it is over."""
        return f"{self.query}/{self.batch_id}"

    @property
    def lines(self) -> list[str]:
        return [f"{letter}{number}" for number, letter in enumerate(self.letters)]


@dataclass
class Query(MicroBatch):
    """A query whose commits can also replace what is there."""

    options: dict[str, str] = field(default_factory=dict)
    change: Change = "append"

    def config(self) -> SinkConfig:
        checkpoint = {"checkpointLocation": self.checkpoint} if self.checkpoint else {}
        return _config(self.path, tuple(self.columns), tuple((self.options | checkpoint).items()))

    def commit(self, batch_id: int, messages: Sequence[TaskCommit | None]) -> Committed:
        if self.change == "append":
            return super().commit(batch_id, messages)
        config = self.config()
        proposal = make_proposal(config, check_messages(messages, batch_id), None, 0)
        if self.change == "overwrite":
            proposal = replace(proposal, overwrite=True)
        else:
            proposal = replace(proposal, rewrites=(self.compaction(batch_id, proposal),))
        return commit(open_log(self.path), proposal, config.policy)

    def compaction(self, batch_id: int, proposal: Proposal) -> Rewrite:
        """Write one part with the rows of all that are live, as a task would."""
        log = open_log(self.path)
        snapshot = take_snapshot(log)
        inputs = tuple(snapshot.adds.values())
        content = b"".join(open_add(add, log.fs.read) for add in inputs)
        part_id = SYSTEM_IDS.unique()
        directory = layout.staged_directory(self.query_id, batch_id)
        log.fs.make_directories(directory)
        with log.fs.create(f"{directory}/{part_id}.staged") as stream:
            stream.write(content)
            stream.hsync()
        part = Add(
            id=part_id,
            kind="part",
            path=stream.path,
            final_path=f"part-{part_id}.txt",
            length=len(content),
            logical_length=len(content),
            checksum=checksum(content),
            rows=content.count(b"\n"),
            bucket="",
            encoding=next(iter(proposal.definitions)),
            origin=Origin(self.query_id, 0, batch_id),
        )
        return Rewrite(inputs, (part,), known_at=snapshot.version)


@functools.cache
def _config(path: str, columns: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> SinkConfig:
    return SinkConfig.from_options({"path": path} | dict(options), spark_schema(dict.fromkeys(columns, "string")))


@dataclass(frozen=True)
class Scenario:
    """Batches in the order in which Spark runs them.

    Attributes:
        settled: how many of them ended so long ago that all of it is durable.
        new_processes: Spark keeps no Python process from one batch to the next.
        checkpoint: the sink can read Spark's checkpoint, which no crash here harms.
        flush: what is open at the end is finished.
    """

    name: str
    batches: tuple[Batch, ...]
    settled: int = 0
    new_processes: bool = False
    partitioned: bool = False
    checkpoint: bool = False
    options: tuple[tuple[str, str], ...] = ()
    flush: bool = False

    def start(self, *, directory_sync: bool = True) -> CrashState:
        """Return the disk after the batches that ended long ago, with Spark's notes of them."""
        fs = CrashingFileSystem(clock=CLOCK, directory_sync=directory_sync)
        for step, batch in enumerate(self.batches[: self.settled]):
            IDS.start(0, step)
            self.run_batch(batch, self.query(fs, batch.query))
            fs.note(batch.note)
        return next(state for state in crash_states(fs) if state.point == len(fs.journal))

    def play(self, fs: FileSystem, run: int, recorded: Sequence[str], record: Callable[[str], None]) -> None:
        """Start Spark anew and go on with the first batch that it has not recorded.

        Args:
            fs: what the directory is on.
            run: which start this is: rows are partitioned otherwise, names are new.
            recorded: notes of the batches that ended in earlier runs.
            record: called with the note of each batch that ends.
        """
        queries = {name: self.query(fs, name, run) for name in {batch.query: None for batch in self.batches}}
        for step, batch in enumerate(self.batches):
            if batch.note not in recorded:
                IDS.start(run, step)
                self.run_batch(batch, queries[batch.query], run)
                record(batch.note)
        if self.flush:
            IDS.start(run, len(self.batches))
            flush(next(iter(queries.values())).path)

    def query(self, fs: FileSystem, name: str, run: int = 1, driver: str = "world") -> Query:
        """Return a query that was started anew; drivers of different names share nothing but the disk."""
        register(driver, lambda _: fs)
        columns = {"value": "string"} | ({"letter": "string"} if self.partitioned else {})
        options = {"fileFormat": "text"} | ({"partitionBy": "letter"} if self.partitioned else {})
        checkpoint = f"memory://spark/{self.name}/{name}" if self.checkpoint else None
        query = Query(f"{driver}://directory", columns, options | dict(self.options), name, checkpoint)
        query.restart()
        query.run_id = f"run-{run}"
        return query

    def run_batch(self, batch: Batch, query: Query, run: int = 1) -> Committed:
        query.change = batch.change
        if self.new_processes:
            forget_logs()
        tasks = self.deal(batch, tasks=2 if run == 1 else 1)
        if batch.troubled and run == 1:
            planned, writer = query.plan(), query.identity(batch.batch_id)
            query.run_task(planned, writer, 0, tasks[0], attempt=1)
            with contextlib.suppress(ConnectionError, FtfileError):
                query.run_task(planned, writer, 1, tasks[1], attempt=1, error=ConnectionError("executor lost"))
        return query.run(batch.batch_id, tasks)

    def deal(self, batch: Batch, tasks: int) -> list[list[dict[str, Any]]]:
        more = [{"letter": line[0]} if self.partitioned else {} for line in batch.lines]
        rows = [{"value": line} | extra for line, extra in zip(batch.lines, more, strict=True)]
        return [rows[task::tasks] for task in range(tasks)]

    def expected(self, notes: Sequence[str]) -> Counter[bytes]:
        """Return the rows that are right when these batches were committed, in this order."""
        rows: Counter[bytes] = Counter()
        batches = {batch.note: batch for batch in self.batches}
        for batch in (batches[note] for note in notes):
            if batch.change == "overwrite":
                rows.clear()
            rows.update(line.encode() for line in batch.lines)
        return rows

    def check(self, fs: FileSystem, recorded: Sequence[str]) -> DirectoryReport:
        """Check what must be true at any moment, also before anybody recovers."""
        by_query: dict[str, list[int]] = {}
        for query, _, batch_id in (note.partition("/") for note in recorded):
            by_query.setdefault(query, []).append(int(batch_id))
        report = check_directory(fs, recorded_by_spark=by_query)
        authors = [author for author in report.authors if isinstance(author, StreamAuthor)]
        assert all((author.offsets_hash is not None) == self.checkpoint for author in authors)
        expected = self.expected([f"{author.query_id}/{author.batch_id}" for author in authors])
        assert report.live_rows == expected, f"the log should hold {expected} and holds {report.live_rows}"
        twice = [row for row, count in report.visible_rows.items() if count > 1]
        assert not twice, f"a lister sees {twice} more than once"
        for path, content in report.visible.items() if self.partitioned else ():
            letters = {line[:1].decode() for line in content.splitlines()}
            assert path.startswith(f"letter={''.join(letters)}/"), f"{path} holds {letters}"
        return report

    def check_finished(self, fs: FileSystem) -> None:
        """Check what must be true when all batches ran to their end."""
        report = self.check(fs, [batch.note for batch in self.batches])
        assert report.live_rows == report.visible_rows, f"visible is {report.visible_rows}"


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Say in whatever goes wrong inside what had happened before."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {error}") from error
