"""Memory of a task that writes many directories at once, each in a fresh process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pyarrow

from benchmarks.memory import memory_mib
from benchmarks.report import Cell, Table
from benchmarks.rows import make_rows
from benchmarks.spark_session import in_own_process
from ftfile.rows.spark_types import spark_schema_json
from ftfile.testing.context import current
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.messages import OperationIdentity, StreamIdentity, TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS, SMOKE_ROWS = 2_000_000, 2_000
BATCH_ROWS = 10_000
DIRECTORIES = (1, 1_000)
OPEN_MIB = 64
OVERHEAD_MIB = 96
COLUMNS = ("files", "format", "directories", "peak MiB above the start", "aim MiB")
NOTE = (
    f"maxOpenBytes is {OPEN_MIB} MiB. The start is after a small task of the same kind; the aim is {OVERHEAD_MIB} MiB "
    "and 1.25 times maxOpenBytes."
)
AIM_MIB = OVERHEAD_MIB + 1.25 * OPEN_MIB


def run(settings: Settings) -> list[Table]:
    """Write the same rows into one directory and into many, finished in the batch and kept open."""
    rows = SMOKE_ROWS if settings.smoke else ROWS
    lines: list[tuple[Cell, ...]] = []
    for rolling in ("batch", "policy"):
        for file_format in ("json", "parquet"):
            for directories in DIRECTORIES:
                directory = settings.directory / f"{rolling}-{file_format}-{directories}"
                peak = in_own_process(_peak_mib, directory, rolling, file_format, rows, directories)
                label = "finished in the batch" if rolling == "batch" else "kept open"
                lines.append((label, file_format, directories, peak, AIM_MIB))
                LOGGER.info("directories: %s", lines[-1])
    return [Table(f"memory of a task of {rows:,} rows", COLUMNS, tuple(lines), NOTE)]


def _peak_mib(directory: Path, rolling: str, file_format: str, rows: int, directories: int) -> float:
    schema = next(_batches(1, directories)).schema
    options = {
        "path": str(directory / "out"),
        "fileFormat": file_format,
        "partitionBy": "key",
        "rolling": rolling,
        "maxOpenBytes": f"{OPEN_MIB}m",
    }
    plan = plan_write(FileSink(), SinkConfig.from_options(options, spark_schema_json(schema)), current())
    author = OperationIdentity if rolling == "batch" else None
    for batch_id, count in enumerate((BATCH_ROWS // 10, rows)):
        identity = author(f"{batch_id}") if author else StreamIdentity("query", "run", batch_id)
        before = memory_mib("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        message = write_task(plan, TaskIdentity(identity, 0, 0), _batches(count, directories), current())
        peak = memory_mib("VmHWM") - before
        found = sum(part.rows for part in message.parts) + sum(segment.rows for segment in message.segments)
        if found != count:
            raise RuntimeError(f"{found} rows of {count} were written")
        commit_batch(plan.sink, plan.config, [message], batch_id, current())
    return peak


def _batches(rows: int, directories: int) -> Iterator[pyarrow.RecordBatch]:
    names = pyarrow.array([f"key-{number}" for number in range(directories)])
    random = numpy.random.default_rng(directories)
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        keys = names.take(pyarrow.array(random.integers(0, directories, count)))
        yield from make_rows(count, seed=start).append_column("key", keys).to_batches()
