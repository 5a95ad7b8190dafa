"""Reading files of others: ftfile's source against Spark's own, and its decoders alone."""

from __future__ import annotations

import io
import logging
import os
import shutil
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import arro3.io
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.report import Cell, Table
from benchmarks.rows import DDL, make_rows
from benchmarks.sinks import NOOP
from benchmarks.spark_session import in_own_process, open_session, run_stream
from benchmarks.worker_cpu import python_ticks, ticks_to_s
from ftfile.source.contents import fingerprints
from ftfile.source.decode import rows_of_share
from ftfile.source.plan import Range, SourcePlan
from ftfile.source.settings import FileDecoding
from ftfile.storage.registry import open_filesystem
from ftfile.testing.context import current

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
MILLION = 1_000_000
FORMATS = ("text", "json", "csv", "parquet")
SOURCES = ("ftfile", "spark")
LINE = "value string"
ROWS_OPTION = "FTFILE_BENCHMARK_ROWS"
DECODER_COLUMNS = ("format", "MB", "M rows/s of CPU", "MB/s of CPU")
DECODER_NOTE = "One task's work without Spark, from local files in the page cache to Arrow batches: the best of three."
SOURCE_COLUMNS = ("format", "ftfile M rows/s", "spark M rows/s", "x spark's", "ftfile's Python CPU s/M rows")
SOURCE_NOTE = (
    "Streams with trigger(availableNow) to Spark's noop sink, with two tasks at a time: medians over the rounds of the "
    "query's addBatch time; ratios are taken within a round."
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is read; the first round warms the JVM and is not counted."""

    files: int
    rows_per_file: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One query."""

    million_rows_per_s: float
    cpu_s_per_million_rows: float


def run(settings: Settings) -> list[Table]:
    """Read the same rows in every format; the variable FTFILE_BENCHMARK_ROWS chooses how many."""
    rows = int(os.environ.get(ROWS_OPTION, 4 * MILLION))
    size = Size(2, 500, 1) if settings.smoke else Size(8, rows // 8, 3)
    for file_format in FORMATS:
        write_files(settings.directory / file_format, file_format, size)
    lines = [_decoder_line(settings.directory / file_format, file_format) for file_format in FORMATS]
    decoders = Table("decoders of other programs' files", DECODER_COLUMNS, tuple(lines), DECODER_NOTE)
    rounds = in_own_process(measure, settings.directory, size)
    title = f"sources of other programs' files: {size.files * size.rows_per_file:,} rows, {size.rounds} rounds"
    return [decoders, Table(title, SOURCE_COLUMNS, tuple(_line(name, rounds) for name in FORMATS), SOURCE_NOTE)]


def write_files(directory: Path, file_format: str, size: Size) -> None:
    """Write files of one format; those of text have the lines of csv."""
    directory.mkdir(parents=True)
    for number in range(size.files):
        rows = make_rows(size.rows_per_file, seed=number).combine_chunks()
        sink = io.BytesIO()
        if file_format == "json":
            arro3.io.write_ndjson(rows.to_batches()[0], sink)
        elif file_format == "parquet":
            pa.parquet.write_table(rows, sink, compression="snappy", use_dictionary=["kind"])
        else:
            options = pa.csv.WriteOptions(include_header=False, quoting_style="needed")
            pa.csv.write_csv(rows.drop_columns("event_time").add_column(0, "event_time", _iso(rows)), sink, options)
        (directory / f"{number:04d}.{file_format}").write_bytes(sink.getvalue())


def _iso(rows: pa.Table) -> pa.ChunkedArray:
    return pa.compute.strftime(rows["event_time"], "%Y-%m-%dT%H:%M:%SZ")


def _decoder_line(directory: Path, file_format: str) -> tuple[Cell, ...]:
    fs, decoding = open_filesystem(str(directory), current()), FileDecoding(file_format)
    schema = pa.schema([("value", pa.string())]) if file_format == "text" else make_rows(1, seed=0).schema
    ranges = [_range(path, whole=file_format == "parquet") for path in sorted(directory.iterdir())]
    times, rows = [], 0
    for _ in range(3):
        began = time.process_time()
        shares = SourcePlan(tuple(ranges)).shares(decoding.max_partition_bytes)
        rows = sum(batch.num_rows for share in shares for batch in rows_of_share(fs, share, schema, decoding))
        times.append(time.process_time() - began)
    size_mb = sum(found.end for found in ranges) / MILLION
    line = (file_format, size_mb, rows / MILLION / min(times), size_mb / min(times))
    LOGGER.info("files: decoder: %s", line)
    return line


def _range(path: Path, *, whole: bool) -> Range:
    content, status = path.read_bytes(), path.stat()
    found = fingerprints(lambda offset, length: content[offset : offset + length], len(content))
    assert found is not None
    return Range(path.name, 0, len(content), *found, len(content), status.st_mtime_ns // MILLION, whole=whole)


Round = dict[tuple[str, str], Sample]


def measure(directory: Path, size: Size) -> list[Round]:
    """Stream every format from both sources, in alternating order, in one JVM."""
    rounds = []
    with open_session(directory, unix_sockets=True) as spark:
        for number in range(size.rounds + 1):
            samples = {}
            for file_format in FORMATS:
                for source in sorted(SOURCES, reverse=bool(number % 2)):
                    samples[file_format, source] = _sample(spark, directory, file_format, source)
            rounds.append(samples)
    return rounds[1:]


def _sample(spark: SparkSession, directory: Path, file_format: str, source: str) -> Sample:
    run_directory = directory / "run"
    shutil.rmtree(directory / "state", ignore_errors=True)
    before = python_ticks()
    stream = run_stream(_frame(spark, directory, file_format, source), NOOP, run_directory)
    cpu_s = ticks_to_s(before, python_ticks())
    sample = Sample(stream.rows / MILLION / stream.add_batch_s, cpu_s / stream.rows * MILLION)
    LOGGER.info("files: %s %s: %s", source, file_format, sample)
    return sample


def _frame(spark: SparkSession, directory: Path, file_format: str, source: str) -> DataFrame:
    reader = spark.readStream.schema(LINE if file_format == "text" else DDL)
    if source == "ftfile":
        state = str(directory / "state")
        reader = reader.format("ftfile").option("fileFormat", file_format).option("stateLocation", state)
    else:
        reader = reader.format(file_format)
    return reader.load(str(directory / file_format))


def _line(file_format: str, rounds: list[Round]) -> tuple[Cell, ...]:
    ours = [samples[file_format, "ftfile"] for samples in rounds]
    theirs = [samples[file_format, "spark"] for samples in rounds]
    speeds = [statistics.median(sample.million_rows_per_s for sample in found) for found in (ours, theirs)]
    pairs = zip(ours, theirs, strict=True)
    ratio = statistics.median(own.million_rows_per_s / other.million_rows_per_s for own, other in pairs)
    return (file_format, *speeds, ratio, statistics.median(sample.cpu_s_per_million_rows for sample in ours))
