"""A thousand small micro-batches: how many files are left, what readers and batches pay, and how much is written."""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pandas

import ftfile
from benchmarks.report import Cell, Table, percentile
from benchmarks.rows import DDL, write_parquet_input
from benchmarks.sinks import Sink
from benchmarks.spark_session import in_own_process, open_session, run_stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
PARTITIONS = 2
ROWS = 500  # of a partition in a batch
BATCHES, SMOKE_BATCHES = 1_000, 3
WARM_UP = 10
REPEATS, SMOKE_REPEATS = 3, 1
LIMIT = "64m"
ROLLED = Sink("ftfile rolled", "ftfile", "parquet", (("rolling", "policy"), ("maxBytesPerFile", LIMIT)))
SINKS = (
    Sink("ftfile every batch", "ftfile", "parquet", (("fileFormat", "parquet"),)),
    ROLLED,
    Sink("spark parquet", "parquet", "parquet"),
)
FILE_COLUMNS = ("sink", "files", "MB", "bytes written per byte", "addBatch p50 ms", "p90 ms", "flush s")
READ_COLUMNS = ("sink", "Spark s", "DuckDB s", "pandas s")
FILE_NOTE = (
    "Bytes written are those of every file that was ever in the directory: parts, spools, the log. Spark's progress "
    "tells the times; a flush at the end finishes what is open."
)
READ_NOTE = "Medians of {}: one sum over each of two columns, of all files found by the reader's own listing."


@dataclass(frozen=True, slots=True)
class Outcome:
    """The files of one sink, and the times of the sink and its readers."""

    files: int
    size_bytes: int
    written_bytes: int
    add_batch_ms: tuple[int, ...]
    flush_s: float
    spark_s: float
    duckdb_s: float
    pandas_s: float


def run(settings: Settings) -> list[Table]:
    """Stream the same small batches into each sink, then read them back."""
    directory = settings.directory / "rolling"
    batches = SMOKE_BATCHES if settings.smoke else BATCHES
    write_parquet_input(directory / "in", batches * PARTITIONS, ROWS)
    repeats = SMOKE_REPEATS if settings.smoke else REPEATS
    # A JVM to each sink, except where figures mean nothing.
    groups = [SINKS] if settings.smoke else [(sink,) for sink in SINKS]
    outcomes: dict[Sink, Outcome] = {}
    for sinks in groups:
        outcomes |= in_own_process(_measure_all, directory, sinks, batches, repeats)
    what = f"{batches:,} batches of {PARTITIONS * ROWS:,} rows on {PARTITIONS} partitions"
    files = Table(f"rolling: {what}, {LIMIT}", FILE_COLUMNS, tuple(map(_file_row, outcomes.items())), FILE_NOTE)
    reads = Table(f"reading {what}", READ_COLUMNS, tuple(map(_read_row, outcomes.items())), READ_NOTE.format(repeats))
    return [files, reads]


def _measure_all(directory: Path, sinks: tuple[Sink, ...], batches: int, repeats: int) -> dict[Sink, Outcome]:
    with open_session(directory, unix_sockets=True) as spark:
        return {sink: _measure(spark, directory, sink, batches, repeats) for sink in sinks}


def _measure(spark: SparkSession, directory: Path, sink: Sink, batches: int, repeats: int) -> Outcome:
    out = directory / "run/out"
    source = spark.readStream.schema(DDL).option("maxFilesPerTrigger", PARTITIONS)
    stream = run_stream(source.parquet(str(directory / "in")), sink, directory / "run")
    began = time.perf_counter()
    if sink == ROLLED:
        ftfile.flush(out)
    flush_s = time.perf_counter() - began
    paths = [path for path in out.rglob("*") if path.is_file()]
    parts = [path for path in paths if path.parent == out and path.suffix == ".parquet"]
    expected = batches * PARTITIONS * ROWS
    outcome = Outcome(
        len(parts),
        sum(path.stat().st_size for path in parts),
        sum(path.stat().st_size for path in paths),
        tuple(batch.add_batch_ms for batch in stream.batches[WARM_UP if batches > WARM_UP else 0 :]),
        flush_s,
        _median_s(lambda: _read_with_spark(spark, out), expected, repeats),
        _median_s(lambda: _read_with_duckdb(out), expected, repeats),
        _median_s(lambda: _read_with_pandas(out), expected, repeats),
    )
    LOGGER.info("rolling: %s: %d files, %d bytes", sink.label, outcome.files, outcome.size_bytes)
    return outcome


def _read_with_spark(spark: SparkSession, out: Path) -> int:
    row = spark.read.schema(DDL).parquet(str(out)).selectExpr("count(*)", "sum(reading)", "sum(sequence)").first()
    assert row is not None
    return int(row[0])


def _read_with_duckdb(out: Path) -> int:
    query = f"SELECT count(*), sum(reading), sum(sequence) FROM read_parquet('{out}/*.parquet')"
    row = duckdb.connect().execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _read_with_pandas(out: Path) -> int:
    frame = pandas.read_parquet(out, columns=["reading", "sequence"])
    frame.sum()
    return len(frame)


def _median_s(read: Callable[[], int], expected: int, repeats: int) -> float:
    times_s = []
    for _ in range(repeats):
        began = time.perf_counter()
        found = read()
        times_s.append(time.perf_counter() - began)
        if found != expected:
            raise RuntimeError(f"{found} rows of {expected} were read ")
    return statistics.median(times_s)


def _file_row(item: tuple[Sink, Outcome]) -> tuple[Cell, ...]:
    sink, outcome = item
    return (
        sink.label,
        outcome.files,
        outcome.size_bytes / 1e6,
        outcome.written_bytes / outcome.size_bytes,
        percentile(outcome.add_batch_ms, 50),
        percentile(outcome.add_batch_ms, 90),
        outcome.flush_s if sink == ROLLED else None,
    )


def _read_row(item: tuple[Sink, Outcome]) -> tuple[Cell, ...]:
    sink, outcome = item
    return (sink.label, outcome.spark_s, outcome.duckdb_s, outcome.pandas_s)
