"""CPU time of what the sink does with rows besides encoding them: fingerprints, and routing into buckets."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy
import pyarrow
import pyarrow.parquet

from benchmarks.report import Cell, Table
from benchmarks.rows import make_rows
from ftfile.sink.fingerprint import FingerprintAccumulator
from ftfile.sink.routing import route

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS, SMOKE_ROWS = 1_000_000, 1_000
ROUNDS, SMOKE_ROUNDS = 9, 1
BATCH_ROWS = (10_000, 100_000)  # what Spark sends by default; what the sink collects before it routes
BUCKETS = (10, 1_000)
NOTE = "The lowest of {} rounds, alternating, in one process. Encoding is there for comparison: uncompressed rows to memory."


def run(settings: Settings) -> list[Table]:
    """Time each kind of work on the same rows, in batches of two sizes."""
    rows = make_rows(SMOKE_ROWS if settings.smoke else ROWS, seed=0)
    work = {
        "parquet, zstd": _encode,
        "fingerprint content": lambda batches: _fingerprint(batches, "content"),
        "fingerprint strong": lambda batches: _fingerprint(batches, "strong"),
        **{f"route to {count:,} buckets": _route for count in BUCKETS},
    }
    rounds = SMOKE_ROUNDS if settings.smoke else ROUNDS
    times_ms: dict[tuple[str, int], float] = {}
    inputs = {(label, size): _batches(rows, label, size) for label in work for size in BATCH_ROWS}
    for number in range(rounds):
        LOGGER.info("row work: round %d of %d", number + 1, rounds)
        for key, batches in inputs.items():
            times_ms[key] = min(times_ms.get(key, float("inf")), _time_ms(work[key[0]], batches))
    columns = ("work", *(f"ms/M rows, batches of {size:,}" for size in BATCH_ROWS))
    lines = tuple(_line(label, times_ms, rows.num_rows) for label in work)
    return [Table("CPU time besides encoding", columns, lines, NOTE.format(rounds))]


def _batches(rows: pyarrow.Table, label: str, size: int) -> list[pyarrow.RecordBatch]:
    """Rows in memory of their own for each batch, as Spark's are; for routing with a key of so many values."""
    if label.startswith("route"):
        count = next(count for count in BUCKETS if f" {count:,} " in label)
        keys = numpy.random.default_rng(count).integers(0, count, rows.num_rows)
        names = pyarrow.array([f"key-{number}" for number in range(count)])
        rows = rows.append_column("key", names.take(pyarrow.array(keys)))
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
    for batch in batches:
        for _ in route(batch, ["key"]):
            pass


def _time_ms(work: Callable[[list[pyarrow.RecordBatch]], None], batches: list[pyarrow.RecordBatch]) -> float:
    began = time.process_time()
    work(batches)
    return (time.process_time() - began) * 1000


def _line(label: str, times_ms: dict[tuple[str, int], float], rows: int) -> tuple[Cell, ...]:
    return (label, *(times_ms[label, size] * 1_000_000 / rows for size in BATCH_ROWS))
