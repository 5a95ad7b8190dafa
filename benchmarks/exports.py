"""Exports to other table formats: of one commit, beside the commit itself; of a directory of many files."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import ftfile
from benchmarks.large_directory import write_directory
from benchmarks.report import Cell, Table, percentile
from benchmarks.rows import TEXT_COLUMNS
from ftfile.testing.context import current
from ftfile.testing.micro_batch import MicroBatch, spark_schema

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
FORMATS = ("delta", "iceberg")
FILES = 8
BATCHES, SMOKE_BATCHES = 100, 3
WARM_UP = 2
MANY_FILES, SMOKE_MANY_FILES = 100_000, 200
FILES_A_BATCH = 100
COMMIT_COLUMNS = ("step", "times", "p50 ms", "p99 ms")
MANY_COLUMNS = ("format", "files", "first export s", "export of no change s")
NOTE = "One warm process; each export opens the directory anew, as ftfile.export does."


def run(settings: Settings) -> list[Table]:
    """Export after each of some commits, and then a directory of many files, which need not have rows."""
    batches = SMOKE_BATCHES if settings.smoke else BATCHES
    many = SMOKE_MANY_FILES if settings.smoke else settings.files or MANY_FILES
    ms = _each_commit(settings.directory / "commits", batches + WARM_UP)
    rows = tuple(_row(step, times[WARM_UP:]) for step, times in ms.items())
    return [
        Table(f"export of a commit of {FILES} files", COMMIT_COLUMNS, rows, NOTE),
        Table("export of many files", MANY_COLUMNS, _many_files(settings.directory / "many", many // FILES_A_BATCH)),
    ]


def _each_commit(directory: Path, batches: int) -> dict[str, list[float]]:
    query = MicroBatch(str(directory), TEXT_COLUMNS)
    partitions = [[{"sequence": number, "message": "m" * 35}] for number in range(FILES)]
    ms: dict[str, list[float]] = {"commit": [], **{f"export to {to}": [] for to in FORMATS}}
    for batch in range(batches):
        messages = query.run_tasks(batch, partitions)
        began = time.perf_counter()
        query.commit(batch, messages)
        ms["commit"].append((time.perf_counter() - began) * 1000)
        for to in FORMATS:
            began = time.perf_counter()
            assert ftfile.export(str(directory), to, context=current()).versions == 1
            ms[f"export to {to}"].append((time.perf_counter() - began) * 1000)
    return ms


def _many_files(directory: Path, batches: int) -> tuple[tuple[Cell, ...], ...]:
    schema = spark_schema(TEXT_COLUMNS)
    encoding = {"format": {"name": "parquet"}, "filters": [], "partitionBy": [], "timeZone": "UTC", "schema": schema}
    write_directory(directory, batches, FILES_A_BATCH, encoding)
    rows: list[tuple[Cell, ...]] = []
    for to in FORMATS:
        times = []
        for _ in range(2):
            began = time.perf_counter()
            ftfile.export(str(directory), to, context=current())
            times.append(time.perf_counter() - began)
        rows.append((to, batches * FILES_A_BATCH, *times))
        LOGGER.info("export: %s", rows[-1])
    return tuple(rows)


def _row(step: str, ms: list[float]) -> tuple[Cell, ...]:
    return step, len(ms), percentile(ms, 50), percentile(ms, 99)
