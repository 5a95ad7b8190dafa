"""Making parts of segments: against copying the bytes, and against pyarrow writing the same rows."""

from __future__ import annotations

import logging
import os
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet

from benchmarks.report import Cell, Table
from benchmarks.rows import make_rows
from ftfile.log.commit_log import CommitLog
from ftfile.rows.spark_types import spark_schema_json
from ftfile.testing.context import current, open_filesystem
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.assembler import Assembler
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.messages import OperationIdentity, StreamIdentity, TaskIdentity
from ftfile.writing.stage import Stage
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.settings import Settings
    from ftfile.log.state import LogState

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS, SMOKE_ROWS = 600_000, 3_000
SEGMENT_ROWS = (30_000, 1_500)
ROUNDS, SMOKE_ROUNDS = 7, 1
CHUNK_BYTES = 1 << 20
COLUMNS = ("format", "rows in a segment", "segments", "MB", "assembly ms", "rival ms", "x rival")
NOTE = (
    "Medians of alternating rounds; every file is synced. The rival is a copy of as many bytes in pieces of 1 MiB for "
    "json, and pyarrow writing the same rows from memory for parquet."
)


def run(settings: Settings) -> list[Table]:
    """Assemble the same rows from segments of several sizes."""
    rows = make_rows(SMOKE_ROWS if settings.smoke else ROWS, seed=0).combine_chunks()
    lines = [
        _measure(settings, rows, file_format, min(size, rows.num_rows))
        for file_format in ("json", "parquet")
        for size in SEGMENT_ROWS
    ]
    return [Table(f"assembly of {rows.num_rows:,} rows", COLUMNS, tuple(lines), NOTE)]


def _measure(settings: Settings, rows: pyarrow.Table, file_format: str, segment_rows: int) -> tuple[Cell, ...]:
    directory = settings.directory / f"{file_format}-{segment_rows}"
    head = _due(directory, rows, file_format, segment_rows)
    segments = head.jobs[0].inputs
    size = sum(segment.length for segment in segments)
    source = directory / "copied"
    source.write_bytes(os.urandom(size))
    rivals: dict[str, Callable[[Path], None]] = {
        "json": lambda target: _copy(source, target),
        "parquet": lambda target: _write_parquet(rows, target),
    }
    ours_ms, theirs_ms = [], []
    for number in range(SMOKE_ROUNDS if settings.smoke else ROUNDS):
        os.sync()
        fs = open_filesystem(str(directory / "out"))
        stage = Stage(fs, TaskIdentity(OperationIdentity("benchmark"), 0, 0))
        assembler = Assembler(fs, stage, head.definitions, head.version)
        ours_ms.append(_time_ms(partial(_assemble, assembler, head)))
        stage.discard()
        os.sync()
        theirs_ms.append(_time_ms(partial(rivals[file_format], directory / "target")))
        (directory / "target").unlink()
        LOGGER.info("assembly: %s: round %d: %.0f and %.0f ms", directory.name, number, ours_ms[-1], theirs_ms[-1])
    ratio = statistics.median(theirs / ours for ours, theirs in zip(ours_ms, theirs_ms, strict=True))
    figures = (len(segments), size / 1e6, statistics.median(ours_ms), statistics.median(theirs_ms), ratio)
    return (file_format, segment_rows, *figures)


def _due(directory: Path, rows: pyarrow.Table, file_format: str, segment_rows: int) -> LogState:
    """Commit the rows as segments of one file, a batch to each, until the file is due."""
    schema = spark_schema_json(rows.schema)
    batches = rows.num_rows // segment_rows
    options = {"path": str(directory / "out"), "fileFormat": file_format, "maxBatchesPerFile": str(batches)}
    for batch_id in range(batches):
        plan = plan_write(FileSink(), SinkConfig.from_options(options, schema), current())
        task = TaskIdentity(StreamIdentity("query", "run", batch_id), 0, 0)
        segment = rows.slice(batch_id * segment_rows, segment_rows)
        message = write_task(plan, task, segment.to_batches(10_000), current())
        commit_batch(plan.sink, plan.config, [message], batch_id, current())
    return CommitLog(open_filesystem(str(directory / "out"))).refresh()


def _assemble(assembler: Assembler, head: LogState) -> None:
    (job,) = head.jobs
    done = assembler.assemble(job)
    if sum(part.rows for part in done.adds) != sum(segment.rows for segment in job.inputs):
        raise RuntimeError("the assembly lost rows")


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb", buffering=0) as writer:
        while chunk := reader.read(CHUNK_BYTES):
            writer.write(chunk)
        os.fsync(writer.fileno())


def _write_parquet(rows: pyarrow.Table, target: Path) -> None:
    with pyarrow.OSFile(str(target), "wb") as sink:
        pyarrow.parquet.write_table(
            rows, sink, compression="zstd", compression_level=1, use_dictionary=["kind"], row_group_size=250_000
        )
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def _time_ms(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000
