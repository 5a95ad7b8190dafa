"""One run of the demonstration: kill and restart each sink until the plan is done, then count the rows."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demo import data
from tests.demo.check import Verdict, check_directory, connect
from tests.demo.kill import Hit, Kill, hunt, plan_kills
from tests.demo.process import SparkApp, own_environment
from tests.demo.sinks import State, Stream, Target, is_log_complete, observe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from tests.demo.report import Console

__all__ = (
    "ATTEMPTS_PER_KILL",
    "PARTITION_BY",
    "DemoError",
    "Job",
    "Settings",
    "SinkRun",
    "Watch",
    "Workspace",
    "judge",
    "prepare",
    "run_sink",
    "write_job",
)

PARTITION_BY = {"json": "", "parquet": "month"}
PROGRESS_INTERVAL_S = 0.2
END_POLL_S = 0.05
ATTEMPTS_PER_KILL = 3


class DemoError(Exception):
    """The demonstration could not be carried out; the message says why."""


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
    """The directory everything lies in, and the source: its rows in DuckDB, the batches its files make.

    A kill after Spark has listed files for a batch and before it has noted the batch makes one batch of two.
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
        """True if both readers found every row once, and the sink's log holds every batch once, in order."""
        verdicts = (*self.plain.values(), *self.by_spark.values())
        return self.log_is_complete and all(verdict.exact for verdict in verdicts)


def prepare(settings: Settings, root: Path) -> Workspace:
    """Load the flights and cut the input files below ``root``."""
    connection = connect()
    rows = data.load_flights(connection, root, settings.rows)
    files = data.cut_files(connection, root / "input", settings.files)
    return Workspace(root, connection, rows, -(-files // settings.files_per_batch))


def run_sink(settings: Settings, workspace: Workspace, sink: str, console: Console) -> SinkRun:
    """Stream everything through one sink under the kill plan, then read the result.

    Raises:
        DemoError: The application failed, stood still, or ended before every kill of the plan was done.
    """
    targets = tuple(_target(workspace.root, sink, file_format) for file_format in settings.formats)
    job = Job(write_job(settings, workspace.root, targets), targets, workspace.batches, console)
    started_s = time.monotonic()
    hits: list[Hit] = []
    for kill in plan_kills(settings.seed, settings.formats, workspace.batches):
        for _ in range(ATTEMPTS_PER_KILL):
            hits.append(job.run_until(kill, f"{sink}, run {len(hits) + 1}"))
            console.hit(hits[-1], hits[-1].killed_at_s - started_s)
            if hits[-1].counts:
                break
        else:
            raise DemoError(f"{sink}: {ATTEMPTS_PER_KILL} kills in a row came too late")
    job.run_to_end(f"{sink}, run {len(hits) + 1}")
    return judge(workspace, sink, targets, hits, time.monotonic() - started_s, console)


def judge(
    workspace: Workspace, sink: str, targets: Sequence[Target], hits: Sequence[Hit], stream_s: float, console: Console
) -> SinkRun:
    """Count the rows that the readers find once a sink's streams have ended."""
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


class Job:
    """The Spark application of one sink, which can be started as often as it was killed.

    Args:
        argument: of the script.
        targets: the streams of the application.
        batches: number that each stream will have; 0 if it is not known.
        console: shows the progress.

    Attributes:
        stall_timeout_s: time without any progress after which the application counts as stuck.
    """

    stall_timeout_s = 120.0

    def __init__(self, argument: Path, targets: Sequence[Stream], batches: int, console: Console) -> None:
        self._argument = argument
        self._targets = targets
        self._batches = batches
        self._console = console

    def run_until(self, kill: Kill, title: str) -> Hit:
        """Run the application until the planned moment and kill it there.

        Raises:
            DemoError: The application failed, stood still, or ended before the moment came.
        """
        app = self._start()
        try:
            hit = hunt(app, kill, self._targets, Watch(self, title))
        finally:
            app.kill()
        if hit is None:
            raise DemoError(f"{title}: ended before {kill.target} was {kill.moment.value}\n{app.last_words()}")
        return hit

    def run_to_end(self, title: str) -> None:
        """Run the application until it ends by itself.

        Raises:
            DemoError: The application failed or stood still.
        """
        app = self._start()
        watch = Watch(self, title)
        try:
            while app.exit_code is None:
                watch()
                time.sleep(END_POLL_S)
        finally:
            app.kill()
        if app.exit_code != 0:
            raise DemoError(f"{title}: the application failed (exit code {app.exit_code})\n{app.last_words()}")

    def show(self, text: str) -> None:
        """Show what the application is doing."""
        self._console.progress(text)

    def describe(self, states: list[State]) -> str:
        """Say how far each stream is."""
        if any(isinstance(target, Target) and target.read_back.exists() for target in self._targets):
            return "Spark reads the result"
        pairs, of = zip(self._targets, states, strict=True), f"/{self._batches}" if self._batches else ""
        return "batches " + ", ".join(f"{target.name} {state.recorded + 1}{of}" for target, state in pairs)

    def observe(self) -> list[State]:
        """Look at every stream."""
        return [observe(target) for target in self._targets]

    def _start(self) -> SparkApp:
        log = self._argument.with_suffix(".log")
        return SparkApp(Path(__file__).with_name("job.py"), self._argument, log, own_environment(log.parent))


class Watch:
    """Shows the progress of a running job, and gives up on one that stands still."""

    def __init__(self, job: Job, title: str, *, starts: bool = True) -> None:
        self._job = job
        self._title = title
        self._looked_at_s = 0.0
        self._started_at_s = self._moved_at_s = time.monotonic()
        self._states = job.observe()
        self._has_moved = not starts

    def __call__(self) -> None:
        """Look, but not more often than the eye can follow.

        Raises:
            DemoError: No stream has moved for the job's `stall_timeout_s`.
        """
        now_s = time.monotonic()
        if now_s - self._looked_at_s < PROGRESS_INTERVAL_S:
            return
        self._looked_at_s = now_s
        states = self._job.observe()
        if states != self._states:
            self._states, self._moved_at_s, self._has_moved = states, now_s, True
        if now_s - self._moved_at_s > self._job.stall_timeout_s:
            raise DemoError(f"{self._title}: no stream has moved for {self._job.stall_timeout_s:.0f} s")
        doing = self._job.describe(states) if self._has_moved else "Spark starts"
        self._job.show(f"{self._title}, {now_s - self._started_at_s:.0f} s: {doing}")


def _on_disk(target: Target, copy: Path) -> Path:
    """Return where a plain reader of the disk finds the output: what it would read is copied if it is elsewhere."""
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
    """Write what the application needs to know, and return the file."""
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
