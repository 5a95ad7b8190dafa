"""Time of the first write of a fresh application, with and without `ftfile-python`."""

from __future__ import annotations

import logging
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ftfile.spark
from benchmarks.report import Cell, Table, percentile
from benchmarks.rows import text_rows, write_text_input
from benchmarks.sinks import FLOOR, NULL, SINKS, Sink, choose_sinks
from benchmarks.spark_session import in_own_process, open_session, run_stream
from benchmarks.worker_cpu import python_s_of_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROUNDS, SMOKE_ROUNDS = 5, 1
PARTITIONS = 2
BATCH_ROWS = 1000
COLUMNS = ("write", "sink", "Python", "applications", "p50 ms", "slowest ms", "over null ms", "Pythons p50 s")
NOTE = (
    "Each application has its own JVM and one write, over unix sockets. A stream has one micro-batch of four rows, and "
    f"its time is that of addBatch; a batch write has {BATCH_ROWS} rows. Differences are medians of the differences "
    "to the null sink with the same Python within a round. The last column has the processor time of all Pythons that "
    "Spark started."
)
DELIVERED, LAUNCHER = "as delivered", "ftfile-python"


@dataclass(frozen=True, slots=True)
class Case:
    """A first write: how, by which sink, and with which Python of the workers."""

    write: str  # `stream` or `batch`
    sink: Sink
    python: str  # `DELIVERED` or `LAUNCHER`


@dataclass(frozen=True, slots=True)
class First:
    """The cost of one first write."""

    time_ms: int
    python_s: float


def run(settings: Settings) -> list[Table]:
    """Start an application for each case, round after round, in alternating order."""
    rounds = SMOKE_ROUNDS if settings.smoke else ROUNDS
    sinks = choose_sinks((FLOOR, *SINKS), settings.sinks)
    write_text_input(settings.directory / "in", PARTITIONS, 2)
    cases = list(_cases(sinks))
    firsts: dict[Case, list[First]] = {case: [] for case in cases}
    for number in range(rounds):
        for case in cases if number % 2 == 0 else reversed(cases):
            first = in_own_process(_first, settings.directory, case)
            firsts[case].append(first)
            LOGGER.info("first: %s %s %s: %s", case.write, case.sink.label, case.python, first)
    rows = tuple(_row(case, firsts) for case in cases)
    return [Table(f"first write of an application, {rounds} rounds", COLUMNS, rows, NOTE)]


def _cases(sinks: tuple[Sink, ...]) -> list[Case]:
    cases = []
    for write in ("stream", "batch"):
        for sink in sinks:
            if write == "batch" and sink in {NULL, FLOOR}:
                continue  # they have no batch write
            cases.append(Case(write, sink, DELIVERED))
            if sink.in_python:
                cases.append(Case(write, sink, LAUNCHER))
    return cases


def _first(directory: Path, case: Case) -> First:
    python = ftfile.spark.python() if case.python == LAUNCHER else sys.executable
    with open_session(directory, unix_sockets=True, python=python) as spark:
        time_ms = (
            _stream_ms(spark, directory, case.sink) if case.write == "stream" else _batch_ms(spark, directory, case)
        )
        return First(time_ms, python_s_of_spark())


def _stream_ms(spark: SparkSession, directory: Path, sink: Sink) -> int:
    stream = run_stream(text_rows(spark, directory / "in", PARTITIONS), sink, directory / "run")
    (batch,) = stream.batches
    return batch.add_batch_ms


def _batch_ms(spark: SparkSession, directory: Path, case: Case) -> int:
    shutil.rmtree(directory / "run", ignore_errors=True)
    frame = spark.range(BATCH_ROWS)
    writer = frame.write.format(case.sink.spark_format).options(**dict(case.sink.options)).mode("append")
    began = time.perf_counter()
    writer.save(str(directory / "run"))
    return round(1000 * (time.perf_counter() - began))


def _row(case: Case, firsts: dict[Case, list[First]]) -> tuple[Cell, ...]:
    times_ms = [first.time_ms for first in firsts[case]]
    null = firsts.get(Case(case.write, NULL, case.python))
    over_ms = None
    if null is not None:
        over_ms = statistics.median(time_ms - first.time_ms for time_ms, first in zip(times_ms, null, strict=True))
    python_s = statistics.median(first.python_s for first in firsts[case])
    shown = case.python if case.sink.in_python else None
    return (
        case.write,
        case.sink.label,
        shown,
        len(times_ms),
        percentile(times_ms, 50),
        max(times_ms),
        over_ms,
        python_s,
    )
