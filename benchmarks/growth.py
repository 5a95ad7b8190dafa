"""The cost of a long life: commits, restarts and snapshots of a directory after many batches and files."""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from benchmarks.report import Cell, Table, percentile
from ftfile.core.checksum import checksum
from ftfile.core.context import SYSTEM
from ftfile.log.checkpoints import encode_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Add, Body, Fingerprint, Origin, StreamAuthor
from ftfile.log.protocol import commit
from ftfile.log.read.snapshot import take_snapshot
from ftfile.testing.context import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.settings import Settings
    from ftfile.storage.api import FileSystem

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
FILES = 10  # of a batch
BATCHES = (10, 1_000, 10_000, 100_000)
SMOKE_BATCHES = (2, 6)
WINDOW, SMOKE_WINDOW = 200, 2
SEGMENTS, SMOKE_SEGMENTS = 100_000, 40
SEGMENTS_PER_BATCH = 100
REPEATS = 5
COLUMNS = (
    "after batches",
    "files",
    "commit p50 ms",
    "commit p90 ms",
    "state KB",
    "restart ms",
    "restart and snapshot ms",
)
NOTE = (
    "The committer alone, on the disk. Commits are the next {} ones; restarts and snapshots medians of {}, by a log "
    "that remembers nothing, with a warm page cache. The last line is the same directory with open segments."
)
CONTENT = b"a row\n"


@dataclass(slots=True)
class _Writer:
    """A stream's committer without a stream: stages files as tasks do, and commits them."""

    fs: FileSystem
    log: CommitLog = field(init=False)
    batches: int = 0
    checksum: str = field(default_factory=lambda: checksum(CONTENT))

    def __post_init__(self) -> None:
        self.log = CommitLog(self.fs)

    def commit(self, adds: tuple[Add, ...]) -> float:
        """Commit the next batch and return how long it took, in ms."""
        author = StreamAuthor("query", "run", self.batches, f"{self.batches}", None)
        fingerprint = Fingerprint("content/1", f"{self.batches}", covers_content=True)
        began = time.perf_counter()
        commit(self.log, author, lambda *_: Body(adds=adds, tasks=2), fingerprint=fingerprint)
        self.batches += 1
        return (time.perf_counter() - began) * 1000

    def stage_parts(self) -> tuple[Add, ...]:
        return tuple(self._add("part", self._write("staged")) for _ in range(FILES))

    def stage_segments(self) -> tuple[Add, ...]:
        path = self._write("spool")
        return tuple(self._add("segment", path, f"key={number}") for number in range(SEGMENTS_PER_BATCH))

    def _write(self, ending: str) -> str:
        directory = layout.staged_directory("query")
        self.fs.make_directories(directory)
        path = f"{directory}/{SYSTEM.ids.unique()}.{ending}"
        with self.fs.create(path) as stream:
            stream.write(CONTENT * (SEGMENTS_PER_BATCH if ending == "spool" else 1))
        return path

    def _add(self, kind: Literal["part", "segment"], path: str, directory: str = "") -> Add:
        unique = SYSTEM.ids.unique()
        return Add(
            id=unique,
            kind=kind,
            path=path,
            final_path=f"part-{self.batches:010d}-{layout.unique_part(unique)}.txt" if kind == "part" else None,
            length=len(CONTENT),
            logical_length=len(CONTENT),
            checksum=self.checksum,
            rows=1,
            directory_key=directory,
            encoding="text",
            origin=Origin("query", self.batches, self.batches),
        )


def run(settings: Settings) -> list[Table]:
    """Commit batch after batch into one directory, and measure on the way."""
    ends, window = (SMOKE_BATCHES, SMOKE_WINDOW) if settings.smoke else (BATCHES, WINDOW)
    writer = _Writer(open_filesystem(str(settings.directory / "out")))
    rows = []
    for end in ends:
        while writer.batches < end:
            writer.commit(writer.stage_parts())
        times_ms = [writer.commit(writer.stage_parts()) for _ in range(window)]
        rows.append(_row(f"{end:,}", writer, times_ms))
        LOGGER.info("growth: %s", rows[-1])
    segments = SMOKE_SEGMENTS if settings.smoke else SEGMENTS
    for _ in range(max(1, segments // SEGMENTS_PER_BATCH)):
        writer.commit(writer.stage_segments())
    times_ms = [writer.commit(writer.stage_parts()) for _ in range(window)]
    rows.append(_row(f"with {segments:,} open segments", writer, times_ms))
    return [Table(f"growth: {FILES} files to a batch", COLUMNS, tuple(rows), NOTE.format(window, REPEATS))]


def _row(label: str, writer: _Writer, times_ms: list[float]) -> tuple[Cell, ...]:
    found = len(take_snapshot(CommitLog(writer.fs)).adds)
    state = encode_checkpoint(writer.log.refresh())
    return (
        label,
        found,
        percentile(times_ms, 50),
        percentile(times_ms, 90),
        len(state) / 1000,
        _median_ms(lambda: CommitLog(writer.fs).refresh()),
        _median_ms(lambda: take_snapshot(CommitLog(writer.fs))),
    )


def _median_ms(work: Callable[[], object]) -> float:
    times_ms = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times_ms.append((time.perf_counter() - began) * 1000)
    return statistics.median(times_ms)
