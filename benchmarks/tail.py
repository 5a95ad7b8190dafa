"""Tailing a log: from an appended line to its committed row, and what a source costs in a tiny batch."""

from __future__ import annotations

import logging
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from benchmarks.report import Cell, Table, percentile
from benchmarks.spark_session import in_own_process, open_session, transports
from ftfile.testing.rotating import RotatingLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS = 4
INTERVALS = ("1s", "100ms")
SOURCES = ("null source", "ftfile text", "spark text")
LATENCY_COLUMNS = ("scanInterval", "lines", "p50 ms", "p99 ms", "max ms")
TINY_COLUMNS = ("source", "batches", "addBatch p50 ms", "min ms", "trigger p50 ms", "min ms", "addBatch over null ms")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured; the first lines and batches of every query are not counted."""

    lines: int
    batches: int
    warm_up: int
    rounds: int


FULL = Size(lines=300, batches=20, warm_up=10, rounds=3)
SMOKE = Size(lines=3, batches=2, warm_up=1, rounds=1)


def run(settings: Settings) -> list[Table]:
    """Measure the latency of lines, and the tiny batches of each source into Spark's noop sink."""
    size = SMOKE if settings.smoke else FULL
    transport, unix_sockets = list(transports().items())[-1]
    latencies, samples = in_own_process(_measure, settings.directory, size, unix_sockets=unix_sockets)
    floor = statistics.median(samples[SOURCES[0]][0])
    return [
        Table(
            f"tail over {transport}: a line appended every 50 to 150 ms, until the commit of its batch",
            LATENCY_COLUMNS,
            tuple(_latency_row(interval, latencies[interval]) for interval in INTERVALS),
        ),
        Table(
            f"tail over {transport}: batches of {ROWS} lines into the noop sink, {size.rounds} rounds",
            TINY_COLUMNS,
            tuple(_tiny_row(source, *samples[source], floor) for source in SOURCES),
            "The null source makes its rows of nothing. Minima mean most on a crowded machine.",
        ),
    ]


def _latency_row(interval: str, latencies_ms: Sequence[float]) -> tuple[Cell, ...]:
    figures = (percentile(latencies_ms, 50), percentile(latencies_ms, 99), max(latencies_ms))
    return (interval, len(latencies_ms), *figures)


def _tiny_row(source: str, add_ms: Sequence[int], trigger_ms: Sequence[int], floor_ms: float) -> tuple[Cell, ...]:
    add, trigger = statistics.median(add_ms), statistics.median(trigger_ms)
    return (source, len(add_ms), add, min(add_ms), trigger, min(trigger_ms), add - floor_ms)


Samples = dict[str, tuple[list[int], list[int]]]


def _measure(directory: Path, size: Size, *, unix_sockets: bool) -> tuple[dict[str, list[float]], Samples]:
    with open_session(directory, unix_sockets=unix_sockets) as spark:
        for kind in (ArrivalsDataSource, NullStreamDataSource):
            spark.dataSource.register(kind)
        latencies = {interval: _latencies_ms(spark, directory / f"latency-{interval}", interval, size)
                     for interval in INTERVALS}  # fmt: skip
        samples: Samples = {source: ([], []) for source in SOURCES}
        for number in range(size.rounds):
            order = SOURCES if number % 2 else SOURCES[::-1]
            for source in order:
                for all_ms, found_ms in zip(
                    samples[source], _sample(spark, directory, source, number, size), strict=True
                ):
                    all_ms.extend(found_ms)
    return latencies, samples


def _latencies_ms(spark: SparkSession, home: Path, interval: str, size: Size) -> list[float]:
    """Return the times from each line to the commit of its batch."""
    log, arrivals = RotatingLog(home / "in" / "app.log"), home / "arrivals"
    frame = _tailed(spark, home, interval)
    writer = frame.writeStream.format("benchmark_arrivals").option("path", str(arrivals))
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    drawn = random.Random(1)
    try:
        for number in range(size.warm_up):  # the first of a JVM takes seconds, in which others would wait
            log.write([f"{time.time():.6f}"])
            _wait_for(arrivals, number + 1, query)
        for _ in range(size.lines):
            log.write([f"{time.time():.6f}"])
            time.sleep(drawn.uniform(0.05, 0.15))
        _wait_for(arrivals, size.warm_up + size.lines, query)
    finally:
        query.stop()
        log.close()
    found = [float(line) for line in arrivals.read_text().splitlines()[size.warm_up :]]
    LOGGER.info("tail: scanInterval=%s: p50 %.0f ms", interval, statistics.median(found))
    return found


def _wait_for(arrivals: Path, count: int, query: StreamingQuery) -> None:
    while not arrivals.exists() or len(arrivals.read_text().splitlines()) < count:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        time.sleep(0.05)


def _tailed(spark: SparkSession, home: Path, interval: str) -> DataFrame:
    reader = spark.readStream.format("ftfile").option("fileFormat", "text").option("scanInterval", interval)
    return reader.option("checkpointLocation", str(home / "checkpoint")).load(str(home / "in"))


def _sample(spark: SparkSession, directory: Path, source: str, number: int, size: Size) -> tuple[list[int], list[int]]:
    """Return the milliseconds of each tiny batch: of addBatch, and of the whole trigger."""
    home = directory / f"{source.replace(' ', '-')}-{number}"
    frame, offer = _offered(spark, source, home)
    query = frame.writeStream.format("noop").option("checkpointLocation", str(home / "checkpoint")).start()
    try:
        for batch in range(size.warm_up + size.batches):
            offer(batch)
            query.processAllAvailable()
    finally:
        query.stop()
    made = [progress.durationMs for progress in query.recentProgress if progress.numInputRows][size.warm_up :]
    add_ms, trigger_ms = ([times[name] for times in made] for name in ("addBatch", "triggerExecution"))
    LOGGER.info("tail: %s: addBatch %s ms, trigger %s ms", source, add_ms, trigger_ms)
    return add_ms, trigger_ms


def _offered(spark: SparkSession, source: str, home: Path) -> tuple[DataFrame, Callable[[int], None]]:
    """Return a stream of a source, and what makes its next batch."""
    home.mkdir()
    (home / "in").mkdir()
    if source == "ftfile text":
        log = RotatingLog(home / "in" / "app.log")
        return _tailed(spark, home, "0s"), lambda batch: log.write([f"{batch} {row}" for row in range(ROWS)])
    if source == "spark text":

        def add_file(batch: int) -> None:
            hidden = home / f"{batch}.txt"
            hidden.write_text("".join(f"{batch} {row}\n" for row in range(ROWS)))
            hidden.rename(home / "in" / hidden.name)

        return spark.readStream.text(str(home / "in")), add_file
    counter = home / "counter"
    counter.write_text("0")
    frame = spark.readStream.format("benchmark_null_stream").option("counter", str(counter)).load()

    def count(batch: int) -> None:
        hidden = home / "next"
        hidden.write_text(str(batch + 1))
        hidden.rename(counter)

    return frame, count


class ArrivalsWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """Notes for each row, which is the time when it was written, how long ago that is when its batch is committed."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send all rows to the commit."""
        return _Arrived([float(value) for batch in iterator for value in batch.column(0).to_pylist()])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: ARG002
        """Append the milliseconds since each row was written."""
        now_s = time.time()
        times_s = [time_s for message in messages if isinstance(message, _Arrived) for time_s in message.times_s]
        with Path(self._path).open("a") as file:
            file.writelines(f"{(now_s - time_s) * 1000:.3f}\n" for time_s in times_s)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Do nothing."""


@dataclass
class _Arrived(WriterCommitMessage):
    times_s: list[float]


class ArrivalsDataSource(DataSource):
    """The format ``benchmark_arrivals``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "benchmark_arrivals"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArrivalsWriter:  # noqa: ARG002
        """Return the writer."""
        return ArrivalsWriter(self.options["path"])


class NullStreamReader(DataSourceStreamReader):
    """As many batches as a counter on disk says, each of a few rows made of nothing."""

    def __init__(self, counter: str) -> None:
        self._counter = Path(counter)

    def initialOffset(self) -> dict[str, Any]:
        """Return the beginning."""
        return {"batches": 0}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # what Spark 4.0 calls
        """Return the number of batches on the counter."""
        return {"batches": int(self._counter.read_text())}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """Return one partition."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield a few rows."""
        yield pa.RecordBatch.from_pydict({"value": [str(row) for row in range(ROWS)]})


class NullStreamDataSource(DataSource):
    """The format ``benchmark_null_stream``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "benchmark_null_stream"

    def schema(self) -> str:
        """Return one column."""
        return "value string"

    def streamReader(self, schema: StructType) -> NullStreamReader:  # noqa: ARG002
        """Return the reader."""
        return NullStreamReader(self.options["counter"])
