"""Files of other programs that were read: a look at all of them, one more, and a restart, without Spark."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table, percentile
from benchmarks.spark_session import in_own_process
from ftfile.core.clock import SystemClock
from ftfile.core.context import SYSTEM
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import FilesOptions
from ftfile.source.plan import START
from ftfile.source.stream import SourceConfig, SourceStream
from ftfile.testing.micro_batch import spark_schema

if TYPE_CHECKING:
    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
FILES, SMOKE_FILES = (10_000, 1_000_000), (20,)
FILES_OF_A_DIRECTORY = 1_000
HOUR_S = 3600
COLUMNS = ("files", "work", "times", "CPU ms, median", "CPU µs a file", "s by the clock", "MB beyond imports")
NOTE = (
    "Processor time of the process that Spark asks; the files have one line each, in directories of 1,000, and are in "
    "the page cache. Listing alone is os.scandir with a stat of each file. A look finds nothing new. A plan of one is "
    "a look that finds one new file, with the plan's record made durable; a restart is the first look of a new process."
)


def run(settings: Settings) -> list[Table]:
    """Plan all files at once, then look at them, add to them, and begin again."""
    rows: list[tuple[Cell, ...]] = []
    for count in SMOKE_FILES if settings.smoke else FILES:
        root = settings.directory / str(count)
        write_files(root / "in", count)
        options = {
            "path": str(root / "in"),
            "fileFormat": "text",
            "stateLocation": str(root / "state"),
            "scanInterval": "0s",
            "recursiveFileLookup": "true",
        }
        plans = 20 if count == FILES[0] else 3
        for work in (_list_alone, _first_plan, _looks_and_plans, _restart):
            for name, times, cpu_s, clock_s, megabytes in in_own_process(work, options, plans):
                cpu_ms = 1000 * percentile(cpu_s, 50)
                rows.append((count, name, times, cpu_ms, 1000 * cpu_ms / count, percentile(clock_s, 50), megabytes))
                LOGGER.info("known: %s", rows[-1])
        shutil.rmtree(root)
    return [Table("known: files that were read", COLUMNS, tuple(rows), NOTE)]


def write_files(root: Path, count: int) -> None:
    """Write files of one line each."""
    for number in range(count):
        directory = root / f"{number // FILES_OF_A_DIRECTORY:04d}"
        if number % FILES_OF_A_DIRECTORY == 0:
            directory.mkdir(parents=True)
        (directory / f"{number:07d}.log").write_text(f"{number}\n")


Found = tuple[str, int, list[float], list[float], float | None]


class _Times:
    """Processor and clock times of what is done within `with`."""

    def __init__(self) -> None:
        self.cpu_s: list[float] = []
        self.clock_s: list[float] = []

    def __enter__(self) -> None:
        self._began = time.process_time(), time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.cpu_s.append(time.process_time() - self._began[0])
        self.clock_s.append(time.perf_counter() - self._began[1])

    def found(self, name: str, megabytes: float | None = None) -> Found:
        """Return a line of the table."""
        return name, len(self.cpu_s), self.cpu_s, self.clock_s, megabytes


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class _HurriedClock(SystemClock):
    """The machine's clock, put forward by hand: a scanner waits between listings, as long as they take."""

    ahead_s = 0

    def monotonic_s(self) -> float:
        """Return seconds."""
        return super().monotonic_s() + self.ahead_s


def _stream(options: dict[str, str], clock: SystemClock) -> SourceStream:
    config = SourceConfig.from_options(parse_options(options, FilesOptions), spark_schema({"value": "string"}))
    return SourceStream(config, replace(SYSTEM, clock=clock))


def _list_alone(options: dict[str, str], plans: int) -> list[Found]:
    times = _Times()
    for _ in range(min(plans, 3)):
        with times:
            for directory in os.scandir(options["path"]):
                for entry in os.scandir(directory.path):
                    entry.stat()
    return [times.found("listing alone")]


def _first_plan(options: dict[str, str], plans: int) -> list[Found]:  # noqa: ARG001 - as the others
    before, times, clock = _megabytes(), _Times(), SystemClock()
    with times:
        stream = _stream(options, clock)
        end = stream.latest_offset(START)
        stream.shares(START, end)
    _end(options).write_text(json.dumps(end))
    return [times.found("the plan of all", _megabytes() - before)]


def _looks_and_plans(options: dict[str, str], plans: int) -> list[Found]:
    clock = _HurriedClock()
    before, stream, end = _megabytes(), _stream(options, clock), json.loads(_end(options).read_text())
    looks, made = _Times(), _Times()
    stream.latest_offset(end)
    for _ in range(plans):
        clock.ahead_s += HOUR_S
        with looks:
            found = stream.latest_offset(end)
        if found != end:
            raise RuntimeError(f"nothing is new, but {found} follows {end}")
    for number in range(plans):
        Path(options["path"], "0000", f"new-{number}.log").write_text("new\n")
        clock.ahead_s += HOUR_S
        with made:
            found = stream.latest_offset(end)
            stream.shares(end, found)
        if found == end:
            raise RuntimeError("a file is new, but not planned")
        stream.commit(found)
        end = found
    _end(options).write_text(json.dumps(end))
    return [looks.found("a look"), made.found("a plan of one", _megabytes() - before)]


def _restart(options: dict[str, str], plans: int) -> list[Found]:  # noqa: ARG001 - as the others
    before, end, times = _megabytes(), json.loads(_end(options).read_text()), _Times()
    with times:
        _stream(options, SystemClock()).latest_offset(end)
    return [times.found("a restart", _megabytes() - before)]


def _end(options: dict[str, str]) -> Path:
    """Return the file that keeps the newest offset for the next process."""
    return Path(options["stateLocation"]).with_name("end.json")
