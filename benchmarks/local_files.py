"""The local disk, measured as other storage systems are: one writer against plain Python, commits with their calls."""

from __future__ import annotations

import logging
import os
import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table, percentile
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
MIB = 1 << 20
FILE_BYTES, SMOKE_FILE_BYTES = 256 * MIB, 4 * MIB
ROUNDS, SMOKE_ROUNDS = 7, 1
COMMITS, SMOKE_COMMITS = {8: 50, 100: 20, 1_000: 5}, {8: 2}
WARM_UP = 1
WRITING_NOTE = "From creating a file to having closed it, synced; medians over the rounds, ratios within a round."
COMMITS_NOTE = "Tasks have closed the files before. Calls of the file system, by its port."


def run(settings: Settings) -> list[Table]:
    """Measure one writer, then commits."""
    return [_writers(settings), _commits(settings)]


def _writers(settings: Settings) -> Table:
    size_bytes, rounds = (SMOKE_FILE_BYTES, SMOKE_ROUNDS) if settings.smoke else (FILE_BYTES, ROUNDS)
    chunk = os.urandom(MIB)
    fs = open_filesystem(str(settings.directory))

    def by_python(path: Path) -> None:
        with path.open("xb", buffering=0) as file:
            for _ in range(size_bytes // MIB):
                file.write(chunk)
            os.fsync(file.fileno())

    def by_ftfile(path: Path) -> None:
        with fs.create(path.name) as stream:
            for _ in range(size_bytes // MIB):
                stream.write(chunk)
            stream.hsync()

    writers: dict[str, Callable[[Path], None]] = {"python alone": by_python, "ftfile": by_ftfile}
    seconds: list[dict[str, float]] = []
    for number in range(rounds + 1):
        taken = {}
        for label in sorted(writers, reverse=bool(number % 2)):
            path = settings.directory / "writer"
            began = time.perf_counter()
            writers[label](path)
            taken[label] = time.perf_counter() - began
            path.unlink()
            os.sync()
        seconds.append(taken)
        LOGGER.info("local: one writer: %s", taken)
    counted = seconds[1:] or seconds
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            label,
            statistics.median(size_bytes / 1e6 / taken[label] for taken in counted),
            statistics.median(taken["python alone"] / taken[label] for taken in counted),
        )
        for label in writers
    )
    title = f"one writer of {size_bytes // MIB} MiB on the local disk"
    return Table(title, ("writer", "MB/s", "x python"), rows, WRITING_NOTE)


def _commits(settings: Settings) -> Table:
    rows = []
    for files, commits in (SMOKE_COMMITS if settings.smoke else COMMITS).items():
        times_ms, calls = _commit(settings.directory / f"commits-{files}", files, commits)
        LOGGER.info("local: commits of %d files: %s", files, times_ms)
        rows.append((files, commits, percentile(times_ms, 50), int(percentile(calls, 50))))
    return Table("commit on the local disk", ("files", "commits", "p50 ms", "calls"), tuple(rows), COMMITS_NOTE)


def _commit(directory: Path, files: int, commits: int) -> tuple[list[float], list[float]]:
    """Commit batches of `files` tasks with a file each; return the time and the number of calls of each."""
    fs = MeteredFileSystem(open_filesystem(str(directory)))
    times_ms, calls = [], []
    with mounted(fs) as url:
        query = MicroBatch(url, {"word": "string"}, {"fileFormat": "text"})
        for batch in range(commits + WARM_UP):
            messages = query.run_tasks(batch, [[{"word": f"word {task}"}] for task in range(files)])
            before, began = fs.counters.calls.total(), time.perf_counter()
            query.commit(batch, messages)
            times_ms.append((time.perf_counter() - began) * 1000)
            calls.append(float(fs.counters.calls.total() - before))
    return times_ms[WARM_UP:], calls[WARM_UP:]
