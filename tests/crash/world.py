"""A stream on a file system that can crash: what Spark does around the sink, and what must be true at any moment."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ftfile.commit import layout
from ftfile.commit.model import Add, Origin
from ftfile.commit.proposal import Rewrite
from ftfile.commit.protocol import Committed, commit
from ftfile.commit.snapshot import open_add, take_snapshot
from ftfile.core.checksum import checksum
from ftfile.fs.registry import register
from ftfile.sink.config import SinkConfig
from ftfile.sink.driver import check_messages, make_proposal
from ftfile.sink.writer import open_log
from ftfile.testing.checker import check_directory
from ftfile.testing.crashing import CrashingFileSystem, crash_states
from ftfile.testing.clock import ManualClock, SeededIds
from ftfile.testing.micro_batch import MicroBatch, spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ftfile.commit.proposal import Proposal
    from ftfile.sink.message import TaskCommit
    from ftfile.testing.checker import DirectoryReport
    from ftfile.testing.crashing import CrashState

Change = Literal["append", "overwrite", "compact"]

URL = "world://directory"


class WorldIds:
    """Names that depend on the run and the batch only, so that states which differ in nothing else are equal."""

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
    """One micro-batch of one query: its rows, and what else happens in it.

    Attributes:
        change: what its record does besides adding the rows.
        troubled: a speculative attempt loses and another attempt fails; both leave what they left.
    """

    rows: str
    change: Change = "append"
    query: str = "a"
    batch_id: int = 0
    troubled: bool = False


@dataclass
class Query(MicroBatch):
    """A query that can also replace what is there, as overwriting and compacting commits will."""

    change: Change = "append"

    def config(self) -> SinkConfig:
        return _config(self.path, tuple(self.columns), tuple(self.options.items()))

    def commit(self, batch_id: int, messages: Sequence[TaskCommit | None]) -> Committed:
        if self.change == "append":
            return super().commit(batch_id, messages)
        config = self.config()
        proposal = make_proposal(config, check_messages(messages, batch_id))
        if self.change == "overwrite":
            proposal = replace(proposal, overwrite=True)
        else:
            proposal = replace(proposal, rewrites=(self.compaction(batch_id, proposal),))
        return commit(open_log(self.path), proposal, config.policy)

    def compaction(self, batch_id: int, proposal: Proposal) -> Rewrite:
        """Write one part that holds the rows of all live parts, as a task would."""
        log = open_log(self.path)
        snapshot = take_snapshot(log)
        inputs = tuple(snapshot.adds.values())
        content = b"".join(open_add(add, log.fs.read) for add in inputs)
        part_id = IDS.unique()
        directory = layout.staged_directory(self.query_id, batch_id)
        log.fs.make_directories(directory)
        with log.fs.create(f"{directory}/{part_id}.staged") as stream:
            stream.write(content)
            stream.hsync()
        add = Add(
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
        return Rewrite(inputs, (add,), known_at=snapshot.version)


@functools.cache
def _config(path: str, columns: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> SinkConfig:
    return SinkConfig.from_options({"path": path, **dict(options)}, spark_schema(dict.fromkeys(columns, "string")))


@dataclass(frozen=True)
class Scenario:
    """Batches in the order in which Spark runs them.

    Attributes:
        settled: how many of them ended so long ago that all of it is durable.
    """

    name: str
    batches: tuple[Batch, ...]
    settled: int = 0
    partitioned: bool = False
    options: tuple[tuple[str, str], ...] = ()

    def start(self, *, directory_sync: bool = True) -> CrashState:
        """Return the disk after the batches that ended long ago."""
        fs = CrashingFileSystem(clock=CLOCK, directory_sync=directory_sync)
        self.play(fs, (), 1, self.batches[: self.settled])
        return next(state for state in crash_states(fs) if state.point == len(fs.journal))

    def play(
        self,
        fs: CrashingFileSystem,
        notes: Sequence[str],
        run: int,
        batches: Sequence[Batch] | None = None,
    ) -> None:
        """Start Spark anew and go on with the first batch that it has not recorded."""
        register("world", lambda _: fs)
        queries: dict[str, Query] = {}
        for step, batch in enumerate(self.batches if batches is None else batches):
            query = queries.setdefault(batch.query, self.query(batch.query, run))
            if (note := f"{batch.query}/{batch.batch_id}") not in notes:
                IDS.start(run, step)
                self.run_batch(query, batch, run)
                fs.note(note)

    def query(self, name: str, run: int) -> Query:
        columns = {"value": "string"} | ({"letter": "string"} if self.partitioned else {})
        options = {"fileFormat": "text"} | ({"partitionBy": "letter"} if self.partitioned else {})
        query = Query(URL, columns, options | dict(self.options), query_id=name)
        query.restart()
        query.run_id = f"run-{run}"
        return query

    def run_batch(self, query: Query, batch: Batch, run: int) -> Committed:
        query.change = batch.change
        tasks = self.deal(batch.rows, run)
        if batch.troubled and run == 1:
            planned, writer = query.plan(), query.identity(batch.batch_id)
            query.run_task(planned, writer, 0, tasks[0], attempt=1)
            try:
                query.run_task(planned, writer, 1, tasks[1], attempt=1, error=ConnectionError("executor lost"))
            except ConnectionError:
                pass
        return query.run(batch.batch_id, tasks)

    def deal(self, rows: str, run: int) -> list[list[dict[str, Any]]]:
        """Partition a batch: otherwise in each run, as Spark does."""
        count = 2 if run == 1 else 1
        shown = [self.row(letter, number) for number, letter in enumerate(rows)]
        return [shown[task::count] for task in range(count)]

    def row(self, letter: str, number: int) -> dict[str, Any]:
        value = f"{letter}{number}"
        return {"value": value, "letter": letter} if self.partitioned else {"value": value}

    def expected(self, count: int) -> Counter[bytes]:
        """Return the rows that are right after the first `count` batches."""
        rows: Counter[bytes] = Counter()
        for batch in self.batches[:count]:
            if batch.change == "overwrite":
                rows.clear()
            rows.update(self.row(letter, number)["value"].encode() for number, letter in enumerate(batch.rows))
        return rows

    def check(self, fs: CrashingFileSystem, notes: Sequence[str]) -> DirectoryReport:
        """Check what must be true at any moment, also before anybody recovers."""
        recorded: dict[str, list[int]] = {}
        for note in notes:
            query, _, batch_id = note.partition("/")
            recorded.setdefault(query, []).append(int(batch_id))
        report = check_directory(fs, recorded_by_spark=recorded)
        assert report.live_rows == self.expected(len(report.records)), report.live_rows
        assert all(count == 1 for count in report.visible_rows.values()), report.visible_rows
        return report

    def check_finished(self, fs: CrashingFileSystem) -> None:
        """Check what must be true when all batches ran to their end."""
        report = self.check(fs, [f"{batch.query}/{batch.batch_id}" for batch in self.batches])
        assert report.live_rows == report.visible_rows == self.expected(len(self.batches))
