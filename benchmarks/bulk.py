"""Rows per second of large micro-batches, and the Python processor time they take."""

from __future__ import annotations

import logging
import os
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table
from benchmarks.rows import DDL, write_parquet_input
from benchmarks.sinks import NOOP, NULL, SINKS, Sink, alternating, choose_sinks
from benchmarks.spark_session import in_own_process, open_session, run_stream
from benchmarks.worker_cpu import python_ticks, ticks_to_s

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.settings import Settings

__all__ = ("FILES_PER_BATCH", "FULL", "ROWS_PER_FEW", "SMOKE", "measure", "run")

LOGGER = logging.getLogger(__name__)
MILLION = 1_000_000
FILES_PER_BATCH = 2  # one to each of the two tasks
ROWS_PER_FEW = 100
COLUMNS = (
    "sink",
    "M rows/s",
    "x spark's own",
    "x null",
    "Python CPU s/M rows",
    "beyond null",
    "output MB",
)
NOTE = (
    "Medians over the rounds of the query's addBatch time; ratios are taken within a round. "
    "'spark noop' is the source alone."
)


@dataclass(frozen=True, slots=True)
class Size:
    """The amount streamed; the first rounds warm the JVM and are not counted."""

    files: int
    rows_per_file: int
    warm_up_rounds: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One query: its speed, its Python CPU, and the size of what it left."""

    million_rows_per_s: float
    cpu_s_per_million_rows: float
    output_mb: float


FULL = Size(files=8, rows_per_file=500_000, warm_up_rounds=1, rounds=7)
SMOKE = Size(files=2, rows_per_file=1_000, warm_up_rounds=0, rounds=1)
Round = dict[Sink, Sample]


def run(settings: Settings) -> list[Table]:
    """Stream the same rows into every sink, in alternating order, in one JVM."""
    size = SMOKE if settings.smoke else FULL
    directory = settings.directory / "bulk"
    write_parquet_input(directory / "few", FILES_PER_BATCH, ROWS_PER_FEW)
    write_parquet_input(directory / "many", size.files, size.rows_per_file)
    sinks = (NOOP, *choose_sinks(SINKS, settings.sinks))
    rounds = in_own_process(measure, directory, size, sinks)
    title = f"bulk: {size.files * size.rows_per_file:,} rows, 2 tasks, {size.rounds} rounds"
    return [Table(title, COLUMNS, tuple(_row(sink, rounds) for sink in sinks), NOTE)]


def measure(directory: Path, size: Size, sinks: tuple[Sink, ...]) -> list[Round]:
    """Stream what is in `few` and `many` of a directory into sinks, round by round, and return what is counted."""
    with open_session(directory, unix_sockets=True) as spark:
        few, many = _frame(spark, directory / "few"), _frame(spark, directory / "many")
        rounds = []
        for order in alternating(sinks, size.warm_up_rounds + size.rounds):
            samples = {}
            for sink in order:
                samples[sink] = _sample(few, many, sink, directory / "run")
                _check_rows(spark, sink, directory / "run", size)
            rounds.append(samples)
    return rounds[size.warm_up_rounds :]


def _frame(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(str(directory))


def _sample(few: DataFrame, many: DataFrame, sink: Sink, directory: Path) -> Sample:
    run_stream(few, sink, directory)  # starts workers anew that Spark has ended meanwhile
    os.sync()  # what others left unwritten is not this sink's
    before = python_ticks()
    stream = run_stream(many, sink, directory)
    cpu_s = ticks_to_s(before, python_ticks())
    sample = Sample(
        stream.rows / MILLION / stream.add_batch_s,
        cpu_s / stream.rows * MILLION,
        _finished_bytes(directory / "out") / MILLION,
    )
    LOGGER.info("bulk: %s: %s", sink.label, sample)
    return sample


def _finished_bytes(directory: Path) -> int:
    """Return the size of what a plain reader of the directory sees."""
    files = (file for file in directory.rglob("*") if file.is_file())
    visible = (file for file in files if not _is_hidden(file.relative_to(directory)))
    return sum(file.stat().st_size for file in visible)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def _check_rows(spark: SparkSession, sink: Sink, directory: Path, size: Size) -> None:
    """Refuse to time a sink that loses rows."""
    if sink.file_format is None:
        return
    found = spark.read.schema(DDL).format(sink.file_format).load(str(directory / "out")).count()
    expected = size.files * size.rows_per_file
    if found != expected:
        raise RuntimeError(f"{sink.label} left {found} rows of {expected} in {directory / 'out'}")


def _row(sink: Sink, rounds: list[Round]) -> tuple[Cell, ...]:
    def median(value: Callable[[Round], float]) -> float:
        return statistics.median(value(samples) for samples in rounds)

    def times_as_fast(rival: Sink) -> float:
        return median(lambda samples: samples[sink].million_rows_per_s / samples[rival].million_rows_per_s)

    def cpu_s(samples: Round, measured: Sink) -> float:
        return samples[measured].cpu_s_per_million_rows

    own = _spark_own(sink, rounds)
    return (
        sink.label,
        median(lambda samples: samples[sink].million_rows_per_s),
        None if own is None else times_as_fast(own),
        times_as_fast(NULL),
        median(lambda samples: cpu_s(samples, sink)) if sink.in_python else None,
        median(lambda samples: cpu_s(samples, sink) - cpu_s(samples, NULL)) if sink.in_python else None,
        rounds[0][sink].output_mb if sink.file_format else None,
    )


def _spark_own(sink: Sink, rounds: list[Round]) -> Sink | None:
    """Return Spark's own sink for the same file format, if it was measured."""
    return next((own for own in rounds[0] if sink.file_format and own.spark_format == sink.file_format), None)
