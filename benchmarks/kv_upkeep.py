"""Bytes that a whole store writes for each byte of its rows, over thousands of batches with merges and vacuums."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import ftfile
import ftfile.kv
from benchmarks.kv_puts import remove, written_bytes
from benchmarks.kv_rows import VALUE_BYTES
from benchmarks.report import Cell, Table
from benchmarks.spark_session import in_own_process
from ftfile.core.context import SYSTEM
from ftfile.kv.config import StoreConfig
from ftfile.kv.writer import StoreSink
from ftfile.rows.buffers import from_numpy
from ftfile.rows.spark_types import spark_schema_json
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.messages import StreamIdentity, TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("tables",)

FLUSHES, SMOKE_FLUSHES = 4_096, 32
FLUSH_ROWS = 250
VACUUM_EVERY = 256
# Flushes' worth of keys that are updated at random; None for keys that rise.
WORKLOADS: dict[str, int | None] = {"updates of 64 flushes": 64, "new, rising": None}
COLUMNS = (
    "keys",
    "flushes",
    "run bytes per byte",
    "written bytes per byte",
    "runs, mean",
    "runs, most",
    "disk bytes per live byte",
    "batches/s",
)
NOTE = (
    "One bucket, {flushes:,} batches of {rows} rows with values of {value} bytes, each of which counts as a flush "
    "(`flushSize`), with `maxFileSize` and the rows of a flush scaled down alike; a vacuum every {vacuum} "
    "batches. `run bytes` are those of new runs in records, for each byte of the runs that batches bring, these "
    "included; `written bytes` those given to system calls, the log and its checkpoints included, for each such byte. "
    "`disk` is the whole directory after the last vacuum, for each byte of one merged run."
)


def tables(directory: Path, *, smoke: bool) -> list[Table]:
    """Write each workload into a store of its own."""
    flushes = SMOKE_FLUSHES if smoke else FLUSHES
    rows: list[tuple[Cell, ...]] = []
    for label, distinct in WORKLOADS.items():
        path = directory / f"upkeep-{label}".replace(" ", "-").replace(",", "")
        rows.append((label, flushes, *in_own_process(_measured, path, distinct, flushes)))
        remove(path)
    note = NOTE.format(flushes=flushes, rows=FLUSH_ROWS, value=VALUE_BYTES, vacuum=VACUUM_EVERY)
    return [Table("a whole store with its upkeep", COLUMNS, tuple(rows), note)]


def _measured(path: Path, distinct: int | None, flushes: int) -> tuple[float, ...]:
    config, clock = _config(path), SYSTEM.clock
    brought = made = written = 0
    runs: list[int] = []
    files: set[str] = set()
    began_s = clock.monotonic_s()
    for number, rows in enumerate(_flushes(distinct, flushes)):
        before = written_bytes()
        plan = plan_write(StoreSink(), config, SYSTEM)
        message = write_task(plan, TaskIdentity(StreamIdentity("query", "run", number), 0, 0), [rows], SYSTEM)
        record = commit_batch(plan.sink, plan.config, [message], number, SYSTEM).record
        if number % VACUUM_EVERY == VACUUM_EVERY - 1 or number == flushes - 1:
            ftfile.vacuum(path, dry_run=False, retention="0s", force=True)
        written += written_bytes() - before
        assert record is not None
        brought += sum(segment.length for segment in message.segments)
        # A run that stays where it is has a new add of the same bytes.
        made += sum(add.length for add in record.adds if add.path not in files)
        files |= {add.path for add in record.adds}
        runs.append((runs[-1] if runs else 0) + len(record.adds) - len(record.removes))
    seconds = clock.monotonic_s() - began_s
    disk = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
    ftfile.kv.compact(path, full=True)
    with ftfile.kv.open(path) as reader:
        live = reader.stats().size_bytes
    mean = sum(runs) / len(runs)
    return made / brought, written / brought, mean, max(runs), disk / live, flushes / seconds


def _config(path: Path) -> StoreConfig:
    flush_bytes = FLUSH_ROWS * VALUE_BYTES
    options = {
        "path": str(path),
        "keyColumns": "key",
        "buckets": "1",
        "flushSize": str(FLUSH_ROWS // 2),
        "flushBytes": str(flush_bytes),
        "maxFileSize": str(64 * flush_bytes),
        "vacuumInterval": "0s",
        "compression": "none",
    }
    schema = pa.schema([pa.field("key", pa.int64()), pa.field("value", pa.binary())])
    return StoreConfig.from_options(options, spark_schema_json(schema))


def _flushes(distinct: int | None, flushes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each batch; no key comes twice in one."""
    random = np.random.default_rng(0)
    for number in range(flushes):
        keys = np.arange(FLUSH_ROWS) + number * FLUSH_ROWS
        if distinct is not None:
            keys = random.choice(distinct * FLUSH_ROWS, FLUSH_ROWS, replace=False)
        values = pa.array([random.bytes(VALUE_BYTES) for _ in range(FLUSH_ROWS)])
        yield pa.RecordBatch.from_arrays([from_numpy(keys, pa.int64()), values], names=["key", "value"])
