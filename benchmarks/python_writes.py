"""Writes by `ftfile.write` and `ftfile.writer`: against pyarrow and delta-rs, and their memory."""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import ColumnProperties, WriterProperties, write_deltalake

import ftfile
from benchmarks.python_write_rows import rows_between
from benchmarks.report import Cell, Table
from benchmarks.spark_session import ROOT

if TYPE_CHECKING:
    import pyarrow as pa

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS, SMOKE_ROWS = 4_000_000, 4_000
BATCHES, SMOKE_BATCHES = 40, 4
COMMITS, SMOKE_COMMITS = 200, 3
COMMIT_ROWS = 10
GIGABYTES, SMOKE_GIGABYTES = 10.0, 0.01
ROUNDS, SMOKE_ROUNDS = 5, 1
# The codec and the level that ftfile uses by default, for all writers.
CODEC: Literal["ZSTD"] = "ZSTD"
LEVEL = 1
# The columns for which ftfile chooses a dictionary.
REPETITIVE = ("kind", "city", "quantity")
PEAK_MIB_MAX = 300
COLUMNS = (
    "case",
    "writer",
    "s",
    "rows/s",
    "processor s",
    "MB",
    "ftfile is x as fast",
    "with x as much processor",
    "goal",
)
MEMORY_COLUMNS = ("GB", "s", "processor s", "peak MiB", "goal")
NOTE = (
    "Parquet with zstd of level 1; medians over the rounds, ratios within a round. By default, the peers try a "
    f"dictionary for each column; `tuned` is with dictionaries for the columns {', '.join(REPETITIVE)} only, as in the "
    "files of ftfile. The files and directories of pyarrow are synced in its time; delta-rs syncs nothing."
)
MEMORY_NOTE = "VmHWM of a new process that writes record batches, which it generates, in one commit; GB are in memory."
Write = Callable[["Path"], None]


class Sample(NamedTuple):
    """The time and the files of one writer in a round; `cpu_s` is that of all threads."""

    wall_s: float
    cpu_s: float
    megabytes: float


class Case(NamedTuple):
    """Rows that ftfile and its peers write to an empty directory.

    Attributes:
        name: of the case.
        rows: that each writer writes.
        goal: how many times as fast as the first peer ftfile should be at least.
        writers: write all rows below a path, by name; the first is ftfile.
    """

    name: str
    rows: int
    goal: float
    writers: Mapping[str, Write]


Round = dict[str, Sample]


def run(settings: Settings) -> list[Table]:
    """Compare ftfile with its peers, case by case, and measure its memory."""
    lines: list[tuple[Cell, ...]] = []
    for case in (_one_commit(settings), _many_batches(settings), _small_commits(settings)):
        lines += _compared(case, settings)
    return [Table("pywrite", COLUMNS, tuple(lines), NOTE), _memory(settings)]


def _one_commit(settings: Settings) -> Case:
    rows = _rows(settings)

    def by_ftfile(path: Path) -> None:
        ftfile.write(path, rows, file_format="parquet")

    writers: dict[str, Write] = {
        "ftfile": by_ftfile,
        "pyarrow, synced": partial(_write_dataset, rows, {}),
        "pyarrow, tuned, synced": partial(_write_dataset, rows, {"use_dictionary": [*REPETITIVE]}),
    }
    return Case(name=f"{rows.num_rows:,} rows, one commit", rows=rows.num_rows, goal=0.9, writers=writers)


def _write_dataset(rows: pa.Table, settings: Mapping[str, Any], path: Path) -> None:
    """Write rows by pyarrow, and sync the files and their directory."""
    file_format = ds.ParquetFileFormat()
    options = file_format.make_write_options(compression=CODEC, compression_level=LEVEL, **settings)
    written: list[str] = []
    ds.write_dataset(
        rows, path, format=file_format, file_options=options, file_visitor=lambda file: written.append(file.path)
    )
    for file in written:
        _sync(file)
    _sync(path)


def _many_batches(settings: Settings) -> Case:
    rows = _rows(settings)
    batch_rows = rows.num_rows // (SMOKE_BATCHES if settings.smoke else BATCHES)
    batches = [rows.slice(start, batch_rows) for start in range(0, rows.num_rows, batch_rows)]
    return _commits(f"{len(batches)} commits of {batch_rows:,} rows", batches, goal=1.5)


def _small_commits(settings: Settings) -> Case:
    commits = SMOKE_COMMITS if settings.smoke else COMMITS
    batches = [rows_between(start, start + COMMIT_ROWS) for start in range(0, commits * COMMIT_ROWS, COMMIT_ROWS)]
    return _commits(f"{commits} commits of {COMMIT_ROWS} rows", batches, goal=5)


def _commits(name: str, batches: list[pa.Table], goal: float) -> Case:
    """Return the case that each batch is committed."""
    with_dictionary = ColumnProperties(dictionary_enabled=True)
    tuned = {
        "default_column_properties": ColumnProperties(dictionary_enabled=False),
        "column_properties": dict.fromkeys(REPETITIVE, with_dictionary),
    }

    def by_ftfile(path: Path) -> None:
        with ftfile.writer(path, "pywrite", file_format="parquet") as writer:
            for number, batch in enumerate(batches):
                writer.write(batch)
                writer.commit(number)

    writers: dict[str, Write] = {
        "ftfile": by_ftfile,
        "delta-rs": partial(_append_to_delta, batches, {}),
        "delta-rs, tuned": partial(_append_to_delta, batches, tuned),
    }
    return Case(name=name, rows=sum(batch.num_rows for batch in batches), goal=goal, writers=writers)


def _append_to_delta(batches: list[pa.Table], settings: Mapping[str, Any], path: Path) -> None:
    properties = WriterProperties(compression=CODEC, compression_level=LEVEL, **settings)
    for batch in batches:
        write_deltalake(path, batch, mode="append", writer_properties=properties)


def _rows(settings: Settings) -> pa.Table:
    return rows_between(0, SMOKE_ROWS if settings.smoke else settings.rows or ROWS)


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compared(case: Case, settings: Settings) -> list[tuple[Cell, ...]]:
    """Return the lines of all writers, which run in alternating order. The first round is not counted."""
    rounds: list[Round] = []
    # Nothing is deleted before the last round: for minutes after a deletion, ext4 creates files slowly, because it
    # searches for inodes that were not deleted recently.
    with tempfile.TemporaryDirectory(dir=settings.directory) as directory:
        for number in range((SMOKE_ROUNDS if settings.smoke else ROUNDS) + 1):
            samples: Round = {}
            for label in sorted(case.writers, reverse=bool(number % 2)):
                samples[label] = _sample(case.writers[label], Path(directory, str(number), label), case.rows)
            rounds.append(samples)
            LOGGER.info("pywrite: %s: %s", case.name, samples)
    return [_row(case, label, rounds[1:]) for label in case.writers]


def _sample(write: Write, path: Path, rows: int) -> Sample:
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    write(path)
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    files = [*path.glob("*.parquet")]
    found = sum(pq.read_metadata(file).num_rows for file in files)
    if found != rows:
        raise RuntimeError(f"{path} has {found} rows of {rows}")
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    os.sync()  # the next writer must not wait for these bytes
    return Sample(wall_s, cpu_s, megabytes)


def _row(case: Case, label: str, rounds: list[Round]) -> tuple[Cell, ...]:
    ours, first_peer, *_ = case.writers
    wall_s = statistics.median(samples[label].wall_s for samples in rounds)
    return (
        case.name,
        label,
        wall_s,
        int(case.rows / wall_s),
        statistics.median(samples[label].cpu_s for samples in rounds),
        rounds[0][label].megabytes,
        statistics.median(samples[label].wall_s / samples[ours].wall_s for samples in rounds),
        statistics.median(samples[ours].cpu_s / samples[label].cpu_s for samples in rounds),
        f">= {case.goal}" if label == first_peer else None,
    )


def _memory(settings: Settings) -> Table:
    gigabytes = SMOKE_GIGABYTES if settings.smoke else settings.gigabytes or GIGABYTES
    command = [sys.executable, "-m", "benchmarks.python_write_run", str(settings.directory / "out"), str(gigabytes)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    LOGGER.info("pywrite: memory: %s", found)
    row = (gigabytes, found["wall_s"], found["cpu_s"], found["peak_mib"], f"<= {PEAK_MIB_MAX}")
    return Table("pywrite: memory", MEMORY_COLUMNS, (row,), MEMORY_NOTE)
