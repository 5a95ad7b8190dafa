"""Following a directory: idle, behind, and at its beginning, without Spark; and batches of one row in Spark."""

from __future__ import annotations

import logging
import resource
import shutil
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.large_directory import write_directory
from benchmarks.null_source import NullSource
from benchmarks.report import Cell, Table, percentile
from benchmarks.rows import write_text_input
from benchmarks.spark_session import in_own_process, open_session, transports
from ftfile.core.context import SYSTEM
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import DirectoryFollowOptions
from ftfile.read.log_planner import FollowConfig
from ftfile.read.log_positions import START
from ftfile.read.new_rows import FollowStream
from ftfile.testing.micro_batch import MicroBatch, spark_schema

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
COLUMNS = {"value": "string"}
# Versions, files of each, and files of a plan.
LONG, SMOKE_LONG = (100_000, 1, 1_000), (40, 1, 4)
WIDE, SMOKE_WIDE = (1_000, 1_000, 1_000), (4, 10, 10)
LOOKS, SMOKE_LOOKS = 2_000, 2
PLANNED = ("directory", "work", "plans", "CPU ms a plan", "CPU s in all", "versions per CPU s", "MB beyond imports")
NOTE = (
    "Processor time of the process that Spark asks, offsets and partitions, without reading a row; each line in a "
    "process of its own. The directories were written without syncs: records, empty files, a checkpoint and a range."
)
SOURCES = ("null source", "ftfile", "spark text")
TRIGGERS = ("source", "batches", "addBatch min ms", "p50 ms", "over null ms", "trigger min ms", "p50 ms of triggers")
TRIGGERS_NOTE = "Into Spark's noop sink. The null source is a Python source that yields one row and looks at nothing."


@dataclass(frozen=True, slots=True)
class Size:
    """How many micro-batches; the first batches of each query, and the first round, are not counted."""

    batches: int
    warm_up: int
    rounds: int


FULL = Size(batches=40, warm_up=10, rounds=3)
SMOKE = Size(batches=2, warm_up=0, rounds=2)
Times = dict[str, list[dict[str, int]]]


def run(settings: Settings) -> list[Table]:
    """Measure plans without Spark, then triggers over TCP and over unix sockets."""
    tables = [Table("follow: plans", PLANNED, tuple(_plans(settings)), NOTE)]
    size = SMOKE if settings.smoke else FULL
    for transport, unix_sockets in transports().items():
        times = in_own_process(_triggers, settings.directory / transport, size, unix_sockets=unix_sockets)
        title = f"follow: one row to a batch over {transport}, {size.rounds - 1} rounds"
        tables.append(Table(title, TRIGGERS, tuple(_row(source, times) for source in SOURCES), TRIGGERS_NOTE))
    return tables


def _plans(settings: Settings) -> list[tuple[Cell, ...]]:
    long, wide = (SMOKE_LONG, SMOKE_WIDE) if settings.smoke else (LONG, WIDE)
    looks = SMOKE_LOOKS if settings.smoke else LOOKS
    rows: list[tuple[Cell, ...]] = []
    for versions, files, limit in (long, wide):
        path = settings.directory / f"{versions}-{files}"
        in_own_process(write_directory, path, versions, files)
        label = f"{versions:,} versions of {files:,} files" if files > 1 else f"{versions:,} versions"
        options = {"path": str(path), "maxFilesPerTrigger": str(limit)}
        found = {
            "idle": in_own_process(_idle, options, looks),
            f"behind, {limit:,} files a plan": in_own_process(
                _apply_records_since, {**options, "startingVersion": "0"}
            ),
            f"from the first snapshot, {limit:,} files a plan": in_own_process(_apply_records_since, options),
        }
        for work, (plans, spent_s, megabytes) in found.items():
            rate = versions / spent_s if work.startswith("behind") else None
            rows.append((label, work, plans, 1000 * spent_s / plans, spent_s, rate, megabytes))
            LOGGER.info("follow: %s", rows[-1])
        shutil.rmtree(path)
    return rows


def _stream(options: dict[str, str]) -> FollowStream:
    return FollowStream(
        FollowConfig.from_options(parse_options(options, DirectoryFollowOptions), spark_schema(COLUMNS)), SYSTEM
    )


def _idle(options: dict[str, str], looks: int) -> tuple[int, float, None]:
    """Return the number of looks at a log that does not go on, and their processor time in seconds."""
    stream = _stream({**options, "startingVersion": "latest"})
    end = stream.latest_offset(START)
    stream.latest_offset(end)
    began = time.process_time()
    for _ in range(looks):
        stream.latest_offset(end)
    return looks, time.process_time() - began, None


def _apply_records_since(options: dict[str, str]) -> tuple[int, float, float]:
    """Return the number of plans to the head of the log, their processor time in seconds, and the memory in MB."""
    stream = _stream(options)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, plans, began = START, 0, time.process_time()
    while (end := stream.latest_offset(start)) != start:
        stream.shares(start, end)
        start, plans = end, plans + 1
    spent_s = time.process_time() - began
    return plans, spent_s, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024


def _triggers(directory: Path, size: Size, *, unix_sockets: bool) -> Times:
    batches = size.warm_up + size.batches
    query = MicroBatch(str(directory / "followed"), COLUMNS, {"fileFormat": "text"})
    for number in range(batches):
        query.run(number, [[{"value": str(number)}]])
    write_text_input(directory / "in", batches, 1)
    times: Times = {source: [] for source in SOURCES}
    with open_session(directory, unix_sockets=unix_sockets) as spark:
        spark.dataSource.register(NullSource)
        for number in range(size.rounds):
            for source in SOURCES if number % 2 else SOURCES[::-1]:
                reader = _reader(spark, source, directory, batches)
                found = _run(reader, directory / f"checkpoint-{number}-{source}", batches)[size.warm_up :]
                LOGGER.info("follow: %s: %s", source, found)
                times[source] += found if number else []
    return times


def _reader(spark: SparkSession, source: str, directory: Path, batches: int) -> DataStreamReader:
    reader = spark.readStream.option("maxFilesPerTrigger", "1")
    if source == "ftfile":
        return reader.format("ftfile").options(startingVersion="0", path=str(directory / "followed"))
    if source == "spark text":
        return reader.format("text").option("path", str(directory / "in"))
    return spark.readStream.format("benchmark_one_row").option("batches", str(batches))


def _run(reader: DataStreamReader, checkpoint: Path, batches: int) -> list[dict[str, int]]:
    """Return the durations of each batch in milliseconds, as Spark reports them."""
    query = reader.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    found = [progress.durationMs for progress in query.recentProgress if progress.numInputRows]
    if len(found) != batches:
        raise RuntimeError(f"{len(found)} batches of one row, and not {batches}")
    return found


def _row(source: str, times: Times) -> tuple[Cell, ...]:
    add_ms, trigger_ms, null_ms = (
        [each[name] for each in times[of]]
        for of, name in ((source, "addBatch"), (source, "triggerExecution"), (SOURCES[0], "addBatch"))
    )
    over_ms = statistics.median(add_ms) - statistics.median(null_ms)
    return (
        source,
        len(add_ms),
        min(add_ms),
        percentile(add_ms, 50),
        over_ms,
        min(trigger_ms),
        percentile(trigger_ms, 50),
    )
