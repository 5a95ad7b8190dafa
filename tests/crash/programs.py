"""Programs that write by `ftfile.writer` on a file system that fails, as the queries of the other scenarios."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.core.errors import CommitError, Fenced, StorageError
from ftfile.log.commit_log import CommitLog
from ftfile.log.protocol import Committed
from ftfile.testing.context import current
from ftfile.writing.applications import application_of
from tests.crash.scenarios import CSV, ENCRYPTED
from tests.crash.world import Batch, Query, Scenario

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from ftfile.operate.writers.application_writer import DirectoryWriter
    from ftfile.storage.api import FileSystem
    from ftfile.testing.checker import DirectoryReport
    from ftfile.testing.micro_batch import BatchQuery

__all__ = (
    "PROGRAM",
    "PROGRAM_AND_QUERY",
    "PROGRAM_ENCRYPTED",
    "PROGRAM_ROLLING",
    "PROGRAM_THAT_RETRIES",
    "Program",
    "ProgramScenario",
)

# Options of queries that writers refuse.
_OF_QUERIES = {"onNewQuery"}


@dataclass
class Program(Query):
    """A program whose position is the number of its last batch.

    `run` writes a batch after the position. In the order of its attempts it commits again, calls `abort`, and writes
    the rows again.
    """

    threads: int | None = None
    writer: DirectoryWriter | None = field(default=None, init=False)

    def restart(self) -> None:
        """End the process of the program, which leaves only the storage."""
        super().restart()
        self.writer = None

    def open(self) -> DirectoryWriter:
        """Return the writer of this process."""
        if self.writer is None:
            options: dict[str, Any] = {}
            for name, value in self.options.items():
                if name not in _OF_QUERIES:
                    options[re.sub("([A-Z])", r"_\1", name).lower()] = value
            self.writer = ftfile.writer(self.path, self.query_id, threads=self.threads, context=current(), **options)
        return self.writer

    def batches_of(self, rows: Sequence[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        """Return rows as the argument of `write`."""
        return self._batches(rows, None)

    def run(self, batch_id: int, partitions: Sequence[Sequence[dict[str, Any]]]) -> Committed:
        """Write the rows of each partition by one call, and commit them, unless the position is after them."""
        writer = self.open()
        attempt = 0
        while (-1 if writer.position is None else writer.position) < batch_id:
            attempt += 1
            try:
                self._attempt(attempt, writer, batch_id, partitions)
            except Fenced:
                raise
            except (CommitError, StorageError):
                if attempt >= self.attempts:
                    raise
        return Committed(writer.version, replayed=False)

    def _attempt(
        self, attempt: int, writer: DirectoryWriter, batch_id: int, partitions: Sequence[Sequence[dict[str, Any]]]
    ) -> None:
        if attempt % 3 == 0:
            writer.abort()
            return
        if attempt % 3 == 1:
            for rows in filter(None, partitions):
                writer.write(self.batches_of(rows))
        writer.commit(batch_id)


@dataclass(frozen=True)
class ProgramScenario(Scenario):
    """A scenario in which some queries are programs. A batch without letters commits only a position.

    Attributes:
        programs: names of these queries.
        attempts: of each batch by one process.
    """

    programs: tuple[str, ...] = ("a",)
    attempts: int = 1

    def query_at(self, path: str, name: str) -> BatchQuery:
        query = super().query_at(path, name)
        if name not in self.programs:
            return query
        return Program(path, query.columns, dict(query.options), name, attempts=self.attempts)

    def check(self, fs: FileSystem, recorded: Sequence[str], old_names: Collection[str] = ()) -> DirectoryReport:
        """Also check that the position of each program is the position after its rows in the log."""
        report = super().check(fs, recorded, old_names)
        head = CommitLog(self.with_keys(fs)).refresh()
        for name in self.programs:
            application, query = application_of(head, name), head.queries.get(name)
            position = None if application is None else application.position
            committed = None if query is None else query.last_batch
            assert position == committed, f"the position of {name} is {position}, its last batch {committed}"
        return report


# One batch has no rows. The first opening creates the log.
PROGRAM = ProgramScenario(
    "program", (Batch("ab"), Batch("", batch_id=1), Batch("cd", batch_id=2), Batch("e", batch_id=3)), checkpoint=True
)
# Files stay open over batches, processes and positions without rows.
PROGRAM_ROLLING = ProgramScenario(
    "program-rolling",
    (Batch("abc"), Batch("d", batch_id=1), Batch("", batch_id=2), Batch("e", batch_id=3)),
    settled=1,
    checkpoint=True,
    options=(*CSV, ("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# Between the batches of a program: a query, a compaction, and a restore that removes rows and no position.
PROGRAM_AND_QUERY = ProgramScenario(
    "program-and-query",
    (
        Batch("ab", query="w"),
        Batch("c"),
        Batch("d", query="w", batch_id=1),
        Batch("", "compact", "upkeep"),
        Batch("ab", "restore", "upkeep", 1),
        Batch("e", query="w", batch_id=2),
        Batch("f", batch_id=1),
    ),
    settled=2,
    checkpoint=True,
    programs=("w",),
)
PROGRAM_ENCRYPTED = ProgramScenario(
    "program-encrypted",
    (Batch("ab"), Batch("", batch_id=1), Batch("c", batch_id=2)),
    settled=1,
    checkpoint=True,
    options=ENCRYPTED.options,
    flush=True,
)
# The same process reacts to errors.
PROGRAM_THAT_RETRIES = replace(PROGRAM_ROLLING, name="program-that-retries", settled=0, attempts=20)
