"""On a real HDFS: one writer against its library, commits of few and many files, streams against Spark's own sink.

The servers run on this machine, so that figures are good for comparisons alone. Closing a file waits for a delay that
the servers have: 400 ms as Hadoop is delivered, 5 ms where it was set so; see docs/hdfs.md.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hdfs
import hdfs_native

from benchmarks.report import Cell, Table, percentile
from benchmarks.rows import DDL, text_rows, write_parquet_input, write_text_input
from benchmarks.sinks import Sink
from benchmarks.spark_session import in_own_process, open_session, run_stream
from ftfile.storage.hdfs.native import NativeHdfsFileSystem
from ftfile.storage.hdfs.webhdfs import WebHdfsFileSystem
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.hdfs.minicluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from benchmarks.settings import Settings
    from ftfile.storage.hdfs.base import HadoopFileSystem

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
MEGA = 1_000_000
DELAY = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms"
SHORT_MS, DELIVERED_MS = 5, 400
CHUNK_BYTES = 1 << 20

WRITING = ("writer", "MB/s", "x library alone")
WRITING_NOTE = "From creating a file to having closed it, synced; medians over the rounds, ratios within a round."
COMMITS = ("by", "files", "times", "commit p50 ms", "calls of the library")
COMMITS_NOTE = (
    "Local checkpoint; tasks have closed the files before. A call of the library may be several requests. "
    f"Close delay {SHORT_MS} ms."
)
STREAMS = ("sink", "close delay ms", "tiny: addBatch p50 ms", "over spark's own ms", "bulk: M rows/s", "x spark's own")
STREAMS_NOTE = (
    "Tiny: 4 rows, json. Bulk: parquet. Checkpoints are local. Medians over the rounds of each JVM; differences and "
    "ratios are taken within a round."
)


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of everything; the first rounds, and the first batches of each query, are not counted."""

    file_bytes: int
    file_rounds: int
    commits: dict[int, int]
    tiny_batches: int
    tiny_warm_up: int
    files: int
    rows_per_file: int
    warm_up_rounds: int
    rounds: int
    delays_ms: tuple[int, ...]


FULL = Size(128 << 20, 5, {8: 10, 100: 3, 1_000: 2}, 8, 4, 8, 500_000, 1, 3, (DELIVERED_MS, SHORT_MS))
SMOKE = Size(4 << 20, 1, {8: 1, 20: 1}, 1, 1, 2, 1_000, 0, 1, (SHORT_MS,))

TASKS = 2


def run(settings: Settings) -> list[Table]:
    """Start an HDFS for each delay, and measure."""
    size = SMOKE if settings.smoke else FULL
    streams: list[tuple[Cell, ...]] = []
    for delay_ms in size.delays_ms:
        with MiniCluster(settings={DELAY: str(delay_ms)}) as cluster:
            if delay_ms == SHORT_MS:
                writing, commits = [*_measure_writers(cluster, size)], [*_measure_commits(cluster, size)]
            roots = {"hdfs": cluster.url, "webhdfs": cluster.web_url}
            rounds = in_own_process(_measure_streams, settings.directory / f"streams-{delay_ms}", size, roots, delay_ms)
            streams += _stream_rows(rounds, delay_ms)
    return [
        Table(f"one writer of {size.file_bytes >> 20} MiB on HDFS", WRITING, tuple(writing), WRITING_NOTE),
        Table("commits on HDFS", COMMITS, tuple(commits), COMMITS_NOTE),
        Table(
            f"streams on HDFS: {TASKS} tasks, {size.files * size.rows_per_file:,} rows in bulk",
            STREAMS,
            tuple(streams),
            STREAMS_NOTE,
        ),
    ]


# ------------------------------------------------------------------------------- one writer


def _measure_writers(cluster: MiniCluster, size: Size) -> Iterator[tuple[Cell, ...]]:
    chunk = bytes(range(256)) * (CHUNK_BYTES // 256)
    count = size.file_bytes // CHUNK_BYTES
    names = (f"/writer/{number}" for number in itertools.count())
    native, web = hdfs_native.Client(cluster.url), hdfs.InsecureClient(cluster.pages.rstrip("/"))
    native.mkdirs("/writer", create_parent=True)

    def by_native(path: str) -> None:
        writer = native.inner.create(path, hdfs_native.WriteOptions())
        for _ in range(count):
            writer.write(chunk)
        writer.hsync()
        writer.close()

    def by_web(path: str) -> None:
        # Every block synced, as ftfile asks for.
        place = web._create(path, overwrite="false", createflag="CREATE,SYNC_BLOCK").headers["Location"]  # noqa: SLF001
        with web._session.put(place, data=itertools.repeat(chunk, count)) as reply:  # noqa: SLF001
            reply.raise_for_status()

    def by_ftfile(root: str) -> Callable[[str], None]:
        fs = open_filesystem(root)

        def write(path: str) -> None:
            with fs.create(path[1:]) as stream:
                for _ in range(count):
                    stream.write(chunk)
                if stream.has_capability("hsync"):
                    stream.hsync()

        return write

    writers = {
        "hdfs-native alone": by_native,
        "ftfile hdfs://": by_ftfile(cluster.url),
        "hdfs alone": by_web,
        "ftfile webhdfs://": by_ftfile(cluster.web_url),
    }
    rounds = []
    for order in _alternating(tuple(writers), 1 + size.file_rounds):
        rounds.append({label: _seconds(writers[label], next(names)) for label in order})
        LOGGER.info("hdfs: one writer: %s", rounds[-1])
    for label in writers:
        library = "hdfs alone" if label in {"hdfs alone", "ftfile webhdfs://"} else "hdfs-native alone"
        speed = statistics.median(size.file_bytes / MEGA / each[label] for each in rounds[1:])
        yield label, speed, statistics.median(each[library] / each[label] for each in rounds[1:])


def _alternating(labels: tuple[str, ...], rounds: int) -> Iterator[tuple[str, ...]]:
    for number in range(rounds):
        yield labels if number % 2 == 0 else labels[::-1]


def _seconds(call: Callable[[str], None], path: str) -> float:
    began = time.perf_counter()
    call(path)
    return time.perf_counter() - began


# ------------------------------------------------------------------------------- commits


def _measure_commits(cluster: MiniCluster, size: Size) -> Iterator[tuple[Cell, ...]]:
    roots: dict[str, tuple[str, type[HadoopFileSystem]]] = {
        "hdfs": (cluster.url, NativeHdfsFileSystem),
        "webhdfs": (cluster.web_url, WebHdfsFileSystem),
    }
    for scheme, (root, driver) in roots.items():
        for files, times in size.commits.items():
            with _counted(driver) as calls:
                measured = [*_commits(root, cluster.web_url, f"/commits-{scheme}-{files}", files, times + 1, calls)][1:]
            yield (
                f"{scheme}://",
                files,
                times,
                percentile([time_ms for time_ms, _ in measured], 50),
                statistics.median(count for _, count in measured),
            )


def _commits(
    root: str, web_root: str, directory: str, files: int, times: int, calls: list[None]
) -> Iterator[tuple[float, int]]:
    """Commit batches of `files` files; yield the time of each, in ms, and its number of calls."""
    columns = {"bucket": "long", "word": "string"}
    options = {"fileFormat": "text", "partitionBy": "bucket"}
    # Many files are written faster by WebHDFS, and it makes no difference to the commit.
    writing, committing = (MicroBatch(each + directory, columns, options) for each in (web_root, root))
    rows = [{"bucket": bucket, "word": "word"} for bucket in range(files)]
    for batch in range(times):
        messages = writing.run_tasks(batch, [rows])
        before, began = len(calls), time.perf_counter()
        committing.commit(batch, messages)
        yield (time.perf_counter() - began) * 1000, len(calls) - before
        LOGGER.info("hdfs: commit of %d files in %s", files, directory)


@contextlib.contextmanager
def _counted(driver: type[HadoopFileSystem]) -> Iterator[list[None]]:
    """Give a list that grows with each call of a driver's library."""
    calls: list[None] = []
    real = driver.run

    def run(self: HadoopFileSystem, *given: Any, **more: Any) -> Any:  # noqa: ANN401 - passed on
        calls.append(None)
        return real(self, *given, **more)

    driver.run = run  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        driver.run = real  # type: ignore[method-assign]


# ------------------------------------------------------------------------------- streams

Round = dict[str, tuple[float, float]]
OWN = "spark's own"
# By whom, and to which root; few rows are json, and many parquet.
SINKS = {"ftfile hdfs://": "hdfs", "ftfile webhdfs://": "webhdfs", OWN: "hdfs"}


def _measure_streams(directory: Path, size: Size, roots: dict[str, str], delay_ms: int) -> list[Round]:
    """Stream the same few and many rows into every sink; return addBatch ms of few, and M rows/s of many."""
    batches = size.tiny_warm_up + size.tiny_batches
    write_text_input(directory / "tiny", batches * TASKS, 4 // TASKS)
    write_parquet_input(directory / "many", size.files, size.rows_per_file)
    outputs = (f"/streams/{number}" for number in itertools.count())
    rounds: list[Round] = []
    with open_session(directory, unix_sockets=True) as spark:
        spark.sparkContext._jsc.hadoopConfiguration().set(DELAY, str(delay_ms))  # noqa: SLF001
        tiny = text_rows(spark, directory / "tiny", TASKS)
        many = spark.readStream.schema(DDL).option("maxFilesPerTrigger", TASKS).parquet(str(directory / "many"))
        for order in _alternating(tuple(SINKS), size.warm_up_rounds + size.rounds):
            made: Round = {}
            for label in order:
                root, path = roots[SINKS[label]], next(outputs)
                few = run_stream(tiny, _sink(label, "json"), directory / "run", f"{root}{path}/few")
                times_ms = [batch.add_batch_ms for batch in few.batches[size.tiny_warm_up :]]
                stream = run_stream(many, _sink(label, "parquet"), directory / "run", f"{root}{path}/many")
                _check_rows(spark, f"{roots['hdfs']}{path}/many", size)
                made[label] = statistics.median(times_ms), stream.rows / MEGA / stream.add_batch_s
                LOGGER.info("hdfs: delay %d ms: %s: %s", delay_ms, label, made[label])
            rounds.append(made)
    return rounds[size.warm_up_rounds :]


def _sink(label: str, file_format: str) -> Sink:
    if label == OWN:
        return Sink(label, file_format, file_format)
    return Sink(label, "ftfile", file_format, (("fileFormat", file_format),))


def _check_rows(spark: SparkSession, output: str, size: Size) -> None:
    """Refuse to time a sink that loses rows."""
    found = spark.read.parquet(output).count()
    if found != size.files * size.rows_per_file:
        raise RuntimeError(f"{found} rows of {size.files * size.rows_per_file} are in {output}")


def _stream_rows(rounds: list[Round], delay_ms: int) -> Iterator[tuple[Cell, ...]]:
    for label in SINKS:
        yield (
            label,
            delay_ms,
            statistics.median(samples[label][0] for samples in rounds),
            statistics.median(samples[label][0] - samples[OWN][0] for samples in rounds),
            statistics.median(samples[label][1] for samples in rounds),
            statistics.median(samples[label][1] / samples[OWN][1] for samples in rounds),
        )
