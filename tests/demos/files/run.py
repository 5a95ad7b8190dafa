"""One run of the demonstration: kill and restart each sink until all planned kills are done, then count the rows."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demos.files import data
from tests.demos.files.check import Verdict, check_directory, connect
from tests.demos.files.kill import Hit, plan_kills
from tests.demos.files.report import TITLES
from tests.demos.files.restarts import Job, MomentMissed
from tests.demos.files.sinks import Target, is_log_complete

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from tests.demos.files.report import Console

__all__ = (
    "JOB_SCRIPT",
    "PARTITION_BY",
    "Settings",
    "SinkRun",
    "Workspace",
    "judge",
    "prepare",
    "run_sink",
    "write_job",
)

JOB_SCRIPT = Path(__file__).with_name("job.py")
RUNS_MAX = 3
PARTITION_BY = {"json": "", "parquet": "month"}


@dataclass(frozen=True, slots=True)
class Settings:
    """The source, the sinks, and the seed of the kills."""

    seed: int
    rows: int | None
    files: int
    files_per_batch: int
    formats: tuple[str, ...]
    sinks: tuple[str, ...]
    on_hdfs: bool = False
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Workspace:
    """The directory of all files, and the source: its rows in DuckDB, and the number of batches of its files.

    A kill after Spark has listed files for a batch and before it has written the batch's offsets merges two batches.
    """

    root: Path
    connection: DuckDBPyConnection
    rows: int
    batches: int


@dataclass(frozen=True, slots=True)
class SinkRun:
    """The result of one sink: its kills, and the rows of each stream that each reader found afterwards."""

    sink: str
    hits: tuple[Hit, ...]
    plain: Mapping[str, Verdict]
    by_spark: Mapping[str, Verdict]
    log_is_complete: bool
    stream_s: float

    @property
    def exact(self) -> bool:
        """True if both readers found every row once, and the sink's log contains every batch once, in order."""
        verdicts = (*self.plain.values(), *self.by_spark.values())
        return self.log_is_complete and all(verdict.exact for verdict in verdicts)


def prepare(settings: Settings, root: Path) -> Workspace:
    """Load the flights and write the input files below ``root``."""
    connection = connect()
    rows = data.load_flights(connection, root, settings.rows)
    files = data.cut_files(connection, root / "input", settings.files)
    return Workspace(root, connection, rows, -(-files // settings.files_per_batch))


def run_sink(settings: Settings, workspace: Workspace, sink: str, console: Console) -> SinkRun:
    """Stream all rows through one sink under the planned kills, then read the result.

    If the application ended before the last planned kill, the run restarts from the beginning, a few times.

    Raises:
        DemoError: the application failed, stopped making progress, or ended too early each time.
    """
    for _ in range(RUNS_MAX - 1):
        try:
            return _run_once(settings, workspace, sink, console)
        except MomentMissed as error:
            console.line(f"once more from the beginning: {str(error).splitlines()[0]}")
            shutil.rmtree(workspace.root / sink)
    return _run_once(settings, workspace, sink, console)


def _run_once(settings: Settings, workspace: Workspace, sink: str, console: Console) -> SinkRun:
    targets = tuple(_target(workspace.root, sink, file_format) for file_format in settings.formats)
    argument = write_job(settings, workspace.root, targets)
    job = Job(JOB_SCRIPT, argument, targets, workspace.batches, console, name=TITLES[sink])
    started_s = time.monotonic()
    kills = plan_kills(settings.seed, settings.formats, workspace.batches)
    hits = [hit for kill in kills for hit in job.strike(kill, started_s)]
    job.run_to_end()
    return judge(workspace, sink, targets, hits, time.monotonic() - started_s, console)


def judge(
    workspace: Workspace, sink: str, targets: Sequence[Target], hits: Sequence[Hit], stream_s: float, console: Console
) -> SinkRun:
    """Count the rows that the readers find after a sink's streams have ended."""
    console.progress(f"{sink}: counting rows")
    connection = workspace.connection
    outputs = {each.name: _on_disk(each, workspace.root / "copies" / each.name) for each in targets}
    return SinkRun(
        sink=sink,
        hits=tuple(hits),
        plain={each.name: check_directory(connection, outputs[each.name], each.file_format) for each in targets},
        by_spark={each.name: check_directory(connection, each.read_back, "parquet") for each in targets},
        log_is_complete=all(is_log_complete(each) for each in targets),
        stream_s=stream_s,
    )


def _on_disk(target: Target, copy: Path) -> Path:
    """Return the local directory of the output for a plain reader. Output elsewhere is copied."""
    if isinstance(target.output, Path):
        return target.output
    target.output.download(copy, f".{target.file_format}")
    return copy


def _target(root: Path, sink: str, file_format: str) -> Target:
    home = root / sink
    return Target(
        name=file_format,
        sink=sink,
        file_format=file_format,
        partition_by=PARTITION_BY[file_format],
        output=home / file_format,
        checkpoint=home / f"{file_format}-checkpoint",
        read_back=home / f"{file_format}-read-by-spark",
    )


def write_job(settings: Settings, root: Path, targets: tuple[Target, ...], task_attempts: int = 1) -> Path:
    """Write the settings of the application to a file and return its path."""
    argument = root / targets[0].sink / "job.json"
    scratch = argument.parent / "scratch"
    scratch.mkdir(parents=True)
    job = {
        "input": str(root / "input"),
        "schema": data.spark_schema(),
        "files_per_batch": settings.files_per_batch,
        "scratch": str(scratch),
        "task_attempts": task_attempts,
        "targets": [{each.name: getattr(target, each.name) for each in fields(target)} for target in targets],
    }
    argument.write_text(json.dumps(job, default=str, indent=2), encoding="utf-8")
    return argument
