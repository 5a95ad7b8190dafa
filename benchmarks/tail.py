"""Tailing a log: from an appended line to its committed row, what a source costs in a tiny batch, and when idle."""

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
from benchmarks.worker_cpu import java_ticks, python_ticks, ticks_to_s
from tests.kit.rotating import RotatingLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS = 4
SOURCES = ("null source", "ftfile text", "spark text")
# A source, and the seconds between two lines: faster than a batch, or slower, so that each line finds the query idle.
FAST, SLOW = (0.05, 0.15), (0.3, 0.5)
TAILS = (("1s", FAST), ("100ms", FAST), ("1s", SLOW), ("100ms", SLOW), ("null source", SLOW))
LATENCY_COLUMNS = ("scanInterval", "s between lines", "lines", "p50 ms", "p99 ms", "max ms", "idle: Python %", "JVM %")
TINY_COLUMNS = ("source", "batches", "addBatch p50 ms", "min ms", "trigger p50 ms", "min ms", "addBatch over null ms")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured; the first lines and batches of every query are not counted."""

    lines: int
    batches: int
    warm_up: int
    rounds: int
    idle_s: float


@dataclass(frozen=True, slots=True)
class Tail:
    """The time from each line to the commit of its batch, and the processor that a query takes without new lines."""

    latencies_ms: list[float]
    python_percent: float
    jvm_percent: float


FULL = Size(lines=300, batches=20, warm_up=10, rounds=3, idle_s=20)
SMOKE = Size(lines=3, batches=2, warm_up=1, rounds=1, idle_s=0.2)


def run(settings: Settings) -> list[Table]:
    """Measure the latency of lines, and the tiny batches of each source into Spark's noop sink."""
    size = SMOKE if settings.smoke else FULL
    transport, unix_sockets = list(transports().items())[-1]
    tails, samples = in_own_process(_measure, settings.directory, size, unix_sockets=unix_sockets)
    floor = statistics.median(samples[SOURCES[0]][0])
    return [
        Table(
            f"tail over {transport}: from an appended line to the commit of its batch",
            LATENCY_COLUMNS,
            tuple(_latency_row(*which, tail) for which, tail in zip(TAILS, tails, strict=True)),
            f"Then the query runs on for {size.idle_s} s without a new line: processor time, of one core.",
        ),
        Table(
            f"tail over {transport}: batches of {ROWS} lines into the noop sink, {size.rounds} rounds",
            TINY_COLUMNS,
            tuple(_tiny_row(source, *samples[source], floor) for source in SOURCES),
            "The null source makes its rows of nothing. Minima mean most on a crowded machine.",
        ),
    ]


def _latency_row(source: str, between_s: tuple[float, float], tail: Tail) -> tuple[Cell, ...]:
    times = tail.latencies_ms
    figures = (percentile(times, 50), percentile(times, 99), max(times), tail.python_percent, tail.jvm_percent)
    return (source, "{} to {}".format(*between_s), len(times), *figures)


def _tiny_row(source: str, add_ms: Sequence[int], trigger_ms: Sequence[int], floor_ms: float) -> tuple[Cell, ...]:
    add, trigger = statistics.median(add_ms), statistics.median(trigger_ms)
    return (source, len(add_ms), add, min(add_ms), trigger, min(trigger_ms), add - floor_ms)


Samples = dict[str, tuple[list[int], list[int]]]


def _measure(directory: Path, size: Size, *, unix_sockets: bool) -> tuple[list[Tail], Samples]:
    with open_session(directory, unix_sockets=unix_sockets) as spark:
        for kind in (ArrivalsDataSource, NullStreamDataSource):
            spark.dataSource.register(kind)
        tails = [
            _tail(spark, directory / f"tail-{number}", source, between_s, size)
            for number, (source, between_s) in enumerate(TAILS)
        ]
        samples: Samples = {source: ([], []) for source in SOURCES}
        for number in range(size.rounds):
            order = SOURCES if number % 2 else SOURCES[::-1]
            for source in order:
                for all_ms, found_ms in zip(
                    samples[source], _sample(spark, directory, source, number, size), strict=True
                ):
                    all_ms.extend(found_ms)
    return tails, samples


def _tail(spark: SparkSession, home: Path, source: str, between_s: tuple[float, float], size: Size) -> Tail:
    home.mkdir()
    arrivals = home / "arrivals"
    if source in SOURCES:
        frame, count = _counted(spark, home)

        def write(number: int) -> None:
            count(number)
    else:
        log = RotatingLog(home / "in" / "app.log")
        frame = _tailed(spark, home, source)

        def write(number: int) -> None:  # noqa: ARG001
            log.write([f"{time.time():.6f}"])

    writer = frame.writeStream.format("benchmark_arrivals").option("path", str(arrivals))
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    drawn = random.Random(1)
    try:
        for number in range(size.warm_up):  # the first of a JVM takes seconds, in which others would wait
            write(number)
            _wait_for(arrivals, number + 1, query)
        for number in range(size.lines):
            write(size.warm_up + number)
            time.sleep(drawn.uniform(*between_s))
        if source not in SOURCES:
            _wait_for(arrivals, size.warm_up + size.lines, query)
        idle = _idle_percent(size.idle_s)
    finally:
        query.stop()
    latencies_ms = [float(line) for line in arrivals.read_text().splitlines()[size.warm_up :]]
    LOGGER.info(
        "tail: %s: p50 %.0f ms, idle: Python %.2f %%, JVM %.2f %%", source, statistics.median(latencies_ms), *idle
    )
    return Tail(latencies_ms, *idle)


def _idle_percent(seconds: float) -> tuple[float, float]:
    """Return the processor time of Python's processes, and of the JVM, over some seconds, in percent of a core."""
    time.sleep(2 * seconds / FULL.idle_s)  # what the last batch leaves to do
    before = python_ticks(), java_ticks()
    time.sleep(seconds)
    after = python_ticks(), java_ticks()
    python, jvm = (100 * ticks_to_s(*both) / seconds for both in zip(before, after, strict=True))
    return python, jvm


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
    return _counted(spark, home)


def _counted(spark: SparkSession, home: Path) -> tuple[DataFrame, Callable[[int], None]]:
    """Return the stream of nothing, and what makes its next batch."""
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
    """As many batches as a counter on disk says, each of a few rows: the time when the counter was written."""

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
        yield pa.RecordBatch.from_pydict({"value": [f"{self._counter.stat().st_mtime:.6f}"] * ROWS})


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
