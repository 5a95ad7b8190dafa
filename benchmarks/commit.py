"""Time of the sink's commit of eight staged files: alone, and beside Spark."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table, percentile
from benchmarks.rows import TEXT_COLUMNS, text_rows, write_text_input
from benchmarks.sinks import Sink
from benchmarks.spark_session import in_own_process, open_session, run_stream
from ftfile.spark.datasource import FtFileDataSource
from ftfile.spark.file_writers import FtFileStreamWriter
from ftfile.testing.context import current
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from benchmarks.settings import Settings

__all__ = ("TimedDataSource", "TimedWriter", "run")

LOGGER = logging.getLogger(__name__)
FILES = 8
BATCHES, SMOKE_BATCHES = 500, 4
SPARK_BATCHES, SMOKE_SPARK_BATCHES = 60, 3
WARM_UP = 2
COLUMNS = ("step", "times", "p50 ms", "p99 ms")
NOTE = "Spark builds the writer anew before it calls commit; alone, both run in one warm process."
OPTIONS = {"fileFormat": "json"}
TIMES_SUFFIX = ".commit-ms"


def run(settings: Settings) -> list[Table]:
    """Commit batch after batch into one directory, first without Spark and then as Spark does it."""
    batches, spark_batches = (SMOKE_BATCHES, SMOKE_SPARK_BATCHES) if settings.smoke else (BATCHES, SPARK_BATCHES)
    build_ms, commit_ms = _commit_alone(settings.directory / "alone", batches)
    beside_ms = in_own_process(_commit_in_spark, settings.directory / "spark", spark_batches)
    rows = (
        _row("alone: build the writer", build_ms),
        _row("alone: commit", commit_ms),
        _row("beside Spark: commit", beside_ms),
    )
    return [Table(f"commit of {FILES} files", COLUMNS, rows, NOTE)]


def _commit_alone(directory: Path, batches: int) -> tuple[list[float], list[float]]:
    checkpoint = directory / "checkpoint"
    options = {**OPTIONS, "checkpointLocation": str(checkpoint)}
    query = MicroBatch(str(directory / "out"), TEXT_COLUMNS, options)
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query.query_id}), encoding="utf-8")
    partitions = [[{"sequence": number, "message": "m" * 35}] for number in range(FILES)]
    build_ms, commit_ms = [], []
    for batch_id in range(batches + WARM_UP):
        (checkpoint / f"offsets/{batch_id}").write_text(f'v1\n{{}}\n{{"logOffset":{batch_id}}}', encoding="utf-8")
        messages = query.run_tasks(batch_id, partitions)
        began = time.perf_counter()
        options = {"path": query.path, **query.options}
        plan = plan_write(FileSink(), SinkConfig.from_options(options, spark_schema(TEXT_COLUMNS)), current())
        built = time.perf_counter()
        commit_batch(plan.sink, plan.config, messages, batch_id, current())
        commit_ms.append((time.perf_counter() - built) * 1000)
        build_ms.append((built - began) * 1000)
    _check_files(directory / "out", batches + WARM_UP)
    return build_ms[WARM_UP:], commit_ms[WARM_UP:]


def _commit_in_spark(directory: Path, batches: int) -> list[float]:
    write_text_input(directory / "in", files=(batches + WARM_UP) * FILES, rows_per_file=1)
    sink = Sink("timed", "ftfile_timed", "json", tuple(OPTIONS.items()), TimedDataSource)
    with open_session(directory, unix_sockets=True) as spark:
        spark.conf.set("spark.sql.files.maxPartitionBytes", "4k")  # a task to every file
        run_stream(text_rows(spark, directory / "in", FILES), sink, directory / "run")
    _check_files(directory / "run/out", batches + WARM_UP)
    times = (directory / f"run/out{TIMES_SUFFIX}").read_text(encoding="utf-8").split()
    return [float(time_ms) for time_ms in times][WARM_UP:]


def _check_files(directory: Path, batches: int) -> None:
    """Refuse to call something a commit of eight files that was none."""
    found = len(list(directory.glob("part-*.json")))
    if found != batches * FILES:
        raise RuntimeError(f"{batches} batches of {FILES} files left {found} files in {directory}")


def _row(step: str, times_ms: list[float]) -> tuple[Cell, ...]:
    LOGGER.info("commit: %s: slowest %s ms", step, [round(time_ms, 2) for time_ms in sorted(times_ms)[-5:]])
    return (step, len(times_ms), percentile(times_ms, 50), percentile(times_ms, 99))


class TimedWriter(FtFileStreamWriter):
    """The product's writer, with a clock around its commit."""

    times_path: str

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Commit, and note how long it took in a file beside the directory."""
        began = time.perf_counter()
        super().commit(messages, batchId)
        took_ms = (time.perf_counter() - began) * 1000
        with Path(self.times_path).open("a", encoding="utf-8") as times:
            times.write(f"{took_ms}\n")


class TimedDataSource(FtFileDataSource):
    """The format ``ftfile_timed``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ftfile_timed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> TimedWriter:
        """Return the writer."""
        writer = TimedWriter(self.options, schema, overwrite=overwrite)
        writer.times_path = self.options["path"] + TIMES_SUFFIX
        return writer
