"""Reads of a version in plain Python, beside pyarrow's own reads of the same files."""

from __future__ import annotations

import logging
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import ftfile
from benchmarks.report import Cell, Table
from ftfile.core.context import SYSTEM
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.messages import TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
PARTITIONS, FILES = 20, 2  # files of each partition
ROWS, SMOKE_ROWS = 10_000_000, 40_000
BATCH_ROWS = 65_536
PARTITION, ROW = 3, 5  # that are asked for
TIMES, SMOKE_TIMES = 5, 1
COLUMNS = ("read", "ftfile, s", "pyarrow, s", "ratio")
NOTE = (
    f"Parquet in {PARTITIONS} partitions of {FILES} files, local disk, warm page cache; medians of {TIMES} in turns. "
    "pyarrow lists the directory anew for each read, as ftfile reads its log anew."
)


def run(settings: Settings) -> list[Table]:
    """Write a directory, and read it both ways."""
    path = str(settings.directory / "reading")
    _write(path, SMOKE_ROWS if settings.smoke else ROWS)
    partition, row = ds.field("p") == PARTITION, ds.field("id") == ROW
    reads: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "all columns": (lambda: _ours(path), lambda: _theirs(path)),
        "one column": (lambda: _ours(path, columns=["v"]), lambda: _theirs(path, columns=["v"])),
        "one partition": (lambda: _ours(path, where=f"p = {PARTITION}"), lambda: _theirs(path, filter=partition)),
        "one row": (lambda: _ours(path, where=f"id = {ROW}"), lambda: _theirs(path, filter=row)),
        "count": (lambda: ftfile.open(path).count(), lambda: _dataset(path).count_rows()),
        "dataset, one column": (
            lambda: ftfile.open(path).dataset().to_table(columns=["v"]).num_rows,
            lambda: _theirs(path, columns=["v"]),
        ),
    }
    rows: list[tuple[Cell, ...]] = []
    for name, calls in reads.items():
        seconds: tuple[list[float], list[float]] = [], []
        for _ in range(SMOKE_TIMES if settings.smoke else TIMES):
            found = []
            for call, taken in zip(calls, seconds, strict=True):
                began = time.perf_counter()
                found.append(call())
                taken.append(time.perf_counter() - began)
            assert found[0] == found[1], f"{name}: {found} rows"
        ours, theirs = map(statistics.median, seconds)
        rows.append((name, ours, theirs, ours / theirs))
        LOGGER.info("reading: %s", rows[-1])
    return [Table("reading", COLUMNS, tuple(rows), NOTE)]


def _write(path: str, rows: int) -> None:
    types = {"id": "long", "v": "double", "word": "string", "p": "integer"}
    query = MicroBatch(path, types, {"partitionBy": "p"})
    for number in range(FILES):
        task = TaskIdentity(query.identity(number), 0, 0)
        message = write_task(query.plan(), task, _batches(number, rows // FILES // PARTITIONS), SYSTEM)
        query.commit(number, [message])


def _batches(number: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a commit, partition by partition."""
    numbers = np.random.default_rng(number)
    words = pa.array([f"word {each}" for each in range(1000)])
    for partition in range(PARTITIONS):
        for start in range(0, rows, BATCH_ROWS):
            count = min(BATCH_ROWS, rows - start)
            first = (number * PARTITIONS + partition) * rows + start
            yield pa.RecordBatch.from_pydict(
                {
                    "id": pa.array(range(first, first + count), pa.int64()),
                    "v": pa.array(numbers.random(count)),
                    "word": words.take(pa.array(numbers.integers(0, 1000, count))),
                    "p": pa.array([partition] * count, pa.int32()),
                }
            )


def _ours(path: str, **arguments: Any) -> int:  # noqa: ANN401 - those of the call
    rows: int = ftfile.open(path).to_arrow(**arguments).num_rows
    return rows


def _theirs(path: str, **arguments: Any) -> int:  # noqa: ANN401 - those of the call
    rows: int = _dataset(path).to_table(**arguments).num_rows
    return rows


def _dataset(path: str) -> ds.Dataset:
    return ds.dataset(path, format="parquet", partitioning="hive")
