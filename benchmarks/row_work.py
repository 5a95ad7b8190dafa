"""CPU time of what the sink does with rows besides encoding them: fingerprints, and routing into directories."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy
import pyarrow
import pyarrow.parquet

from benchmarks.report import Table
from benchmarks.rows import make_rows
from ftfile.writing.bad_records import raise_fault
from ftfile.writing.files.directories import PartitionColumn, Router
from ftfile.writing.fingerprint import FingerprintAccumulator

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.settings import Settings

    Work = Callable[[list[pyarrow.RecordBatch]], None]

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS, SMOKE_ROWS = 1_000_000, 1_000
ROUNDS, SMOKE_ROUNDS = 9, 1
BATCH_ROWS = (10_000, 100_000)  # what Spark sends by default; what the sink collects before it routes
DIRECTORIES = (10, 1_000)
NOTE = "The lowest of {} alternating rounds in one process. Encoding stands there for comparison; it writes to memory."


def run(settings: Settings) -> list[Table]:
    """Time each kind of work on the same rows, in batches of two sizes."""
    rows = make_rows(SMOKE_ROWS if settings.smoke else ROWS, seed=0)
    work: dict[str, tuple[pyarrow.Table, Work]] = {
        "parquet, zstd": (rows, _encode),
        "fingerprint content": (rows, partial(_fingerprint, kind="content")),
        "fingerprint strong": (rows, partial(_fingerprint, kind="strong")),
        **{f"route to {count:,} directories": (_with_key(rows, count), _route) for count in DIRECTORIES},
    }
    inputs = {(label, size): _batches(table, size) for label, (table, _) in work.items() for size in BATCH_ROWS}
    times_ms: dict[tuple[str, int], list[float]] = {key: [] for key in inputs}
    rounds = SMOKE_ROUNDS if settings.smoke else ROUNDS
    for number in range(rounds):
        LOGGER.info("rows: round %d of %d", number + 1, rounds)
        for (label, size), batches in inputs.items():
            times_ms[label, size].append(_time_ms(work[label][1], batches))
    columns = ("work", *(f"ms/M rows, batches of {size:,}" for size in BATCH_ROWS))
    millions = rows.num_rows / 1_000_000
    lines = [(label, *(min(times_ms[label, size]) / millions for size in BATCH_ROWS)) for label in work]
    return [Table("CPU time besides encoding", columns, tuple(lines), NOTE.format(rounds))]


def _with_key(rows: pyarrow.Table, count: int) -> pyarrow.Table:
    keys = numpy.random.default_rng(count).integers(0, count, rows.num_rows)
    names = pyarrow.array([f"key-{number}" for number in range(count)])
    return rows.append_column("key", names.take(pyarrow.array(keys)))


def _batches(rows: pyarrow.Table, size: int) -> list[pyarrow.RecordBatch]:
    """Batches with memory of their own, as Spark's have."""
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=size)
    return list(pyarrow.ipc.open_stream(sink.getvalue()))


def _encode(batches: list[pyarrow.RecordBatch]) -> None:
    table = pyarrow.Table.from_batches(batches)
    pyarrow.parquet.write_table(table, pyarrow.BufferOutputStream(), compression="zstd", use_dictionary=["kind"])


def _fingerprint(batches: list[pyarrow.RecordBatch], kind: str) -> None:
    accumulator = FingerprintAccumulator(kind)
    for batch in batches:
        accumulator.update(batch)


def _route(batches: list[pyarrow.RecordBatch]) -> None:
    router = Router([PartitionColumn("key", "UTC")], raise_fault)
    for batch in batches:
        router.route(batch)


def _time_ms(work: Work, batches: list[pyarrow.RecordBatch]) -> float:
    began = time.process_time()
    work(batches)
    return (time.process_time() - began) * 1000
