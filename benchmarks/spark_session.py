"""Spark for benchmarks: one JVM to a measurement, the same settings for all, streams into a sink."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pyspark
from pyspark.sql import DataFrame, SparkSession

from benchmarks.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.sinks import Sink

__all__ = ("Batch", "StreamRun", "in_own_process", "one_process_for_all", "open_session", "run_stream", "transports")

P = ParamSpec("P")
R = TypeVar("R")
ROOT = Path(__file__).resolve().parent.parent
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
_shared: list[ProcessPoolExecutor] = []


@dataclass(frozen=True, slots=True)
class Batch:
    """The progress that Spark reports for one micro-batch."""

    rows: int
    add_batch_ms: int
    trigger_ms: int


@dataclass(frozen=True, slots=True)
class StreamRun:
    """The micro-batches of one query, in order."""

    batches: tuple[Batch, ...]

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(batch.rows for batch in self.batches)

    @property
    def add_batch_s(self) -> float:
        """Seconds of all batches together, from planning a batch to its commit by the sink."""
        return sum(batch.add_batch_ms for batch in self.batches) / 1000


def in_own_process(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a module-level function in a fresh interpreter, and so with a JVM of its own; see `one_process_for_all`."""
    if _shared:
        return _shared[0].submit(function, *args, **kwargs).result()
    with _process() as pool:
        return pool.submit(function, *args, **kwargs).result()


@contextmanager
def one_process_for_all() -> Iterator[None]:
    """Let everything that wants a process of its own share one, and its JVM, where figures mean nothing."""
    with _process() as pool:
        _shared.append(pool)
        try:
            yield
        finally:
            _shared.clear()


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), show_progress)


@contextmanager
def open_session(
    directory: Path, *, unix_sockets: bool, more: Mapping[str, str] | None = None, python: str = sys.executable
) -> Iterator[SparkSession]:
    """Open Spark with two cores, its own files under ``directory``, and ``more`` settings.

    The workers run ``python``, and get this package. One process can hold one JVM setting of the
    sockets only: call it inside ``in_own_process``.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *inherited])
    builder = SparkSession.builder.master("local[2]").appName("ftfile benchmarks")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "localhost",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        UNIX_SOCKETS: str(unix_sockets).lower(),
    }
    for key, value in (settings | dict(more or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def run_stream(frame: DataFrame, sink: Sink, directory: Path, output: str | None = None) -> StreamRun:
    """Stream a bounded source into a sink, as many micro-batches as the source makes.

    ``directory`` is replaced; the files are left in its ``out``, or in ``output``.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if sink.data_source is not None:
        frame.sparkSession.dataSource.register(sink.data_source)
    writer = frame.writeStream.format(sink.spark_format).options(**dict(sink.options))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    if sink.file_format is not None:
        writer = writer.option("path", output or str(directory / "out"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = (made for made in query.recentProgress if made.numInputRows)
    return StreamRun(
        tuple(
            Batch(made.numInputRows, made.durationMs["addBatch"], made.durationMs["triggerExecution"])
            for made in progress
        )
    )


def transports() -> dict[str, bool]:
    """Return the ways from the JVM to Python; Spark 4.0 knows no unix sockets."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    return {"tcp": False, "unix": True} if version >= (4, 1) else {"tcp": False}
