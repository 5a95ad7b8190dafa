"""The rows that are streamed: many from Parquet, a few from text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import pyarrow
import pyarrow.parquet

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ("DDL", "TEXT_COLUMNS", "make_rows", "text_rows", "write_parquet_input", "write_text_input")

DDL = "event_time timestamp, kind string, device string, reading double, sequence long, message string"
TEXT_COLUMNS = {"sequence": "long", "message": "string"}
KINDS = 16
DEVICE_CHARS = 12
MESSAGE_CHARS = 35
FIRST_EVENT_US = 1_700_000_000_000_000


def make_rows(count: int, seed: int) -> pyarrow.Table:
    """Return rows of about 90 bytes; the same for the same seed. ``kind`` has few values, the others many."""
    random = numpy.random.default_rng(seed)
    event_us = FIRST_EVENT_US + numpy.cumsum(random.integers(0, 2_000, count))
    kinds = pyarrow.array([f"kind-{number}" for number in range(KINDS)])
    return pyarrow.table(
        {
            "event_time": pyarrow.array(event_us, pyarrow.timestamp("us", "UTC")),
            "kind": kinds.take(pyarrow.array(random.integers(0, KINDS, count))),
            "device": _random_text(random, count, DEVICE_CHARS),
            "reading": random.normal(20, 5, count).round(3),
            "sequence": random.integers(0, 1 << 40, count),
            "message": _random_text(random, count, MESSAGE_CHARS),
        }
    )


def write_parquet_input(directory: Path, files: int, rows_per_file: int) -> None:
    """Write the rows as uncompressed Parquet: the cheapest thing Spark can stream from."""
    directory.mkdir(parents=True)
    for number in range(files):
        pyarrow.parquet.write_table(
            make_rows(rows_per_file, seed=number),
            directory / f"{number:04d}.parquet",
            compression="none",
            use_dictionary=["kind"],
            row_group_size=rows_per_file,
        )


def write_text_input(directory: Path, files: int, rows_per_file: int) -> None:
    """Write a number to a line: a text source adds a few ms to a tiny batch, Parquet over ten."""
    directory.mkdir(parents=True)
    lines = "".join(f"{number}\n" for number in range(rows_per_file))
    for number in range(files):
        (directory / f"{number:06d}.txt").write_text(lines, encoding="utf-8")


def text_rows(spark: SparkSession, directory: Path, files_per_batch: int) -> DataFrame:
    """Stream what ``write_text_input`` wrote, with the columns ``TEXT_COLUMNS``."""
    lines = spark.readStream.option("maxFilesPerTrigger", files_per_batch).text(str(directory))
    return lines.selectExpr("cast(value AS long) AS sequence", "'a message of thirty-five characters' AS message")


def _random_text(random: numpy.random.Generator, count: int, chars: int) -> pyarrow.StringArray:
    letters = random.integers(ord("a"), ord("z") + 1, count * chars, dtype=numpy.uint8)
    offsets = numpy.arange(0, (count + 1) * chars, chars, dtype=numpy.int32)
    return pyarrow.StringArray.from_buffers(count, pyarrow.py_buffer(offsets), pyarrow.py_buffer(letters))
