"""Writes of `ftfile.write` in plain Python: against pyarrow's dataset and delta-rs, and their memory."""

from __future__ import annotations

import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import deltalake
import pyarrow.dataset as ds

import ftfile
from benchmarks.python_write_rows import rows_between
from benchmarks.report import Cell, Table
from benchmarks.spark_session import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
CODEC, LEVEL = "zstd", 1
PEAK_MIB_MAX = 300
COLUMNS = ("case", "writer", "s", "rows/s", "processor s", "x peer", "wanted")
MEMORY_COLUMNS = ("GB", "s", "processor s", "peak MiB", "wanted")
NOTE = (
    "Parquet with zstd of level 1; medians over the rounds. `x peer` is the speed of ftfile divided by that of the "
    "peer in the same round. The files and directories of pyarrow are synced in its time; delta-rs syncs nothing."
)
MEMORY_NOTE = "VmHWM of a new process that writes record batches, which it generates, in one commit; GB are in memory."


class Sample(NamedTuple):
    """The time of one writer in a round; `cpu_s` is that of all threads."""

    wall_s: float
    cpu_s: float


class Case(NamedTuple):
    """Rows that ftfile and a peer write to an empty directory.

    Attributes:
        name: of the case.
        peer: the name of the peer.
        rows: that each writer writes.
        wanted: how many times as fast as the peer ftfile should be at least.
        ftfile: writes all rows below a path.
        by_peer: likewise.
    """

    name: str
    peer: str
    rows: int
    wanted: float
    ftfile: Callable[[Path], None]
    by_peer: Callable[[Path], None]


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

    def by_pyarrow(path: Path) -> None:
        file_format = ds.ParquetFileFormat()
        options = file_format.make_write_options(compression=CODEC, compression_level=LEVEL)
        written: list[str] = []
        ds.write_dataset(
            rows,
            path,
            format=file_format,
            file_options=options,
            file_visitor=lambda file: written.append(file.path),
        )
        for name in (*written, path):
            _sync(name)

    return Case(
        name=f"{rows.num_rows:,} rows, one commit",
        peer="pyarrow, synced",
        rows=rows.num_rows,
        wanted=0.9,
        ftfile=by_ftfile,
        by_peer=by_pyarrow,
    )


def _many_batches(settings: Settings) -> Case:
    rows = _rows(settings)
    batch_rows = rows.num_rows // (SMOKE_BATCHES if settings.smoke else BATCHES)
    batches = [rows.slice(start, batch_rows) for start in range(0, rows.num_rows, batch_rows)]
    return _commits(f"{len(batches)} commits of {batch_rows:,} rows", batches, wanted=1.5)


def _small_commits(settings: Settings) -> Case:
    commits = SMOKE_COMMITS if settings.smoke else COMMITS
    batches = [rows_between(start, start + COMMIT_ROWS) for start in range(0, commits * COMMIT_ROWS, COMMIT_ROWS)]
    return _commits(f"{commits} commits of {COMMIT_ROWS} rows", batches, wanted=5)


def _commits(name: str, batches: list[pa.Table], wanted: float) -> Case:
    """Return the case that each batch is committed."""
    properties = deltalake.WriterProperties(compression=CODEC.upper(), compression_level=LEVEL)

    def by_ftfile(path: Path) -> None:
        for batch in batches:
            ftfile.write(path, batch, file_format="parquet")

    def by_delta(path: Path) -> None:
        for batch in batches:
            deltalake.write_deltalake(path, batch, mode="append", writer_properties=properties)

    rows = sum(batch.num_rows for batch in batches)
    return Case(name=name, peer="delta-rs", rows=rows, wanted=wanted, ftfile=by_ftfile, by_peer=by_delta)


def _rows(settings: Settings) -> pa.Table:
    return rows_between(0, SMOKE_ROWS if settings.smoke else settings.rows or ROWS)


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compared(case: Case, settings: Settings) -> list[tuple[Cell, ...]]:
    """Return the lines of both writers, which run in alternating order. The first round is not counted."""
    writers = {"ftfile": case.ftfile, case.peer: case.by_peer}
    rounds: list[Round] = []
    for number in range((SMOKE_ROUNDS if settings.smoke else ROUNDS) + 1):
        samples: Round = {}
        for label in sorted(writers, reverse=bool(number % 2)):
            samples[label] = _sample(writers[label], settings.directory / "out", case.rows)
        rounds.append(samples)
        LOGGER.info("pywrite: %s: %s", case.name, samples)
    counted = rounds[1:]
    return [_row(case, label, counted) for label in writers]


def _sample(write: Callable[[Path], None], path: Path, rows: int) -> Sample:
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    write(path)
    sample = Sample(time.perf_counter() - began_s, time.process_time() - began_cpu_s)
    found = ds.dataset(path, exclude_invalid_files=False, ignore_prefixes=["_", "."]).count_rows()
    if found != rows:
        raise RuntimeError(f"{path} has {found} rows of {rows}")
    shutil.rmtree(path)
    os.sync()  # the next writer must not wait for these bytes
    return sample


def _row(case: Case, label: str, rounds: list[Round]) -> tuple[Cell, ...]:
    wall_s = statistics.median(samples[label].wall_s for samples in rounds)
    return (
        case.name,
        label,
        wall_s,
        int(case.rows / wall_s),
        statistics.median(samples[label].cpu_s for samples in rounds),
        statistics.median(samples[case.peer].wall_s / samples[label].wall_s for samples in rounds),
        f">= {case.wanted}" if label == "ftfile" else None,
    )


def _memory(settings: Settings) -> Table:
    gigabytes = SMOKE_GIGABYTES if settings.smoke else settings.gigabytes or GIGABYTES
    command = [sys.executable, "-m", "benchmarks.python_write_run", str(settings.directory / "out"), str(gigabytes)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    LOGGER.info("pywrite: memory: %s", found)
    row = (gigabytes, found["wall_s"], found["cpu_s"], found["peak_mib"], f"<= {PEAK_MIB_MAX}")
    return Table("pywrite: memory", MEMORY_COLUMNS, (row,), MEMORY_NOTE)
