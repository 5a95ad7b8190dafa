"""One run: rows pass through Kafka into files while every process on the way is killed, and are compared afterwards."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import ftfile
from tests import quick_spark
from tests.archives import spark_options
from tests.cluster.cluster import EXECUTOR, kill
from tests.demos.files.hdfs_path import HdfsPath
from tests.demos.files.kill import Kill, Victim
from tests.demos.files.sinks import Stream, observe
from tests.demos.files.struck import StruckJob
from tests.kafka.broker import connector_jars
from tests.kafka.feed import Feed, load_lines
from tests.kafka.plan import plan_blows
from tests.kafka.proof import FileRows, check_history, compare, read_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftfile.log.read.history import Version
    from tests.cluster.cluster import Cluster
    from tests.demos.files.kill import Hit
    from tests.demos.files.report import Console
    from tests.demos.files.sinks import State
    from tests.hdfs.minicluster import MiniCluster
    from tests.kafka.broker import Broker
    from tests.kafka.plan import Blow
    from tests.kafka.proof import PartitionVerdict

__all__ = ("PARTITIONS", "TOPIC", "Outcome", "Settings", "Surroundings", "run")

TOPIC = "flights"
PARTITIONS = 3
# Options that a plain reader needs to separate values that contain quotes.
MORE_OPTIONS = {"csv": {"header": "true", "escape": '"'}}
# The worker that is killed.
WORKER = "a"


@dataclass(frozen=True, slots=True)
class Settings:
    """The rows, the format of the files, and the seed of the kills.

    Attributes:
        rows: number of records.
        seconds: in which the producer receives them.
        rolling: options of the sink that end files.
    """

    seed: int
    rows: int
    seconds: float
    file_format: str
    rolling: Mapping[str, str]
    quick: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The running servers and the locations of all files.

    Attributes:
        hdfs: None for a local directory.
        home: for a local directory, logs and scratch.
        environment: of the driver.
    """

    cluster: Cluster
    broker: Broker
    hdfs: MiniCluster | None
    home: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The kills, and the comparison after them.

    Attributes:
        sent: number of rows that the producer received.
        producer_faults: number of records lost or duplicated between the producer's input and Kafka.
        files: as plain readers see them.
        partitions: the comparison of Kafka with the files.
        versions: the history of the directory.
        faults: of the history, or of files that are still open.
        stream_s: seconds from the first row to the end of the stream.
    """

    sent: int
    producer_faults: int
    hits: tuple[Hit, ...]
    files: FileRows
    partitions: tuple[PartitionVerdict, ...]
    versions: tuple[Version, ...]
    faults: tuple[str, ...]
    stream_s: float

    @property
    def exact(self) -> bool:
        """True if the files contain each sent record once, and the history is right."""
        found = all(partition.exact for partition in self.partitions) and not self.files.unreadable
        return found and not self.producer_faults and not self.faults


def run(settings: Settings, around: Surroundings, console: Console) -> Outcome:
    """Stream all rows under the kills, then compare.

    Raises:
        DemoError: the application failed, stopped making progress, or ended too early.
    """
    lines = load_lines(around.home, settings.rows)
    stream = _stream(around, settings.file_format)
    around.broker.create_topic(TOPIC, PARTITIONS)
    feed = Feed(around.broker.start_producer(TOPIC), lines, settings.seconds)
    job = KafkaJob(settings, around, stream, feed, console)
    started_s = time.monotonic()
    hits = job.run(plan_blows(settings.seed, len(lines), quick=settings.quick))
    stream_s = time.monotonic() - started_s
    console.progress("comparing Kafka with the files")
    return _judge(settings, around, stream, hits, feed.sent, stream_s)


class KafkaJob(StruckJob):
    """The application on a cluster, and the servers that it uses."""

    def __init__(self, settings: Settings, around: Surroundings, stream: Stream, feed: Feed, console: Console) -> None:
        script, argument = Path(__file__).with_name("job.py"), _write_job(settings, around, stream)
        super().__init__(script, argument, [stream], 0, console, environment=around.environment)
        self._around = around
        self._feed = feed
        self._stream = stream
        self._drawn = random.Random(settings.seed)
        # A batch begins every half second.
        self.down_s = 1.0 if settings.quick else self.down_s

    def run(self, blows: Sequence[Blow]) -> tuple[Hit, ...]:
        """Stream all rows under the kills, and return the kills.

        Raises:
            DemoError: the application failed, stopped making progress, or ended too early.
        """
        hits: list[Hit] = []
        started_s = time.monotonic()
        try:
            self.run_on(lambda: observe(self._stream).recorded >= 0)
            self._feed.hurry()
            for blow in blows:
                self._go_on_to(blow.after_rows)
                not_before = observe(self._stream).begun + 1
                planned = Kill(self._stream.name, blow.moment, not_before, blow.delay_s, blow.victim)
                hits += self.strike(planned, started_s)
            self._feed.release()
            self.run_on(lambda: self._feed.has_ended)
            self._around.broker.end_producer()
            self._argument.with_name("stop").touch()
            self.run_on()
        finally:
            self.end()
        return tuple(hits)

    def describe(self, states: list[State]) -> str:
        """Print the progress of the producer and the stream."""
        return f"{self._feed.sent:,} rows sent, {states[0].describe()}"

    def _go_on_to(self, rows: int) -> None:
        self.run_on(lambda: self._feed.sent >= rows)

    def _kill_servers(self, victim: Victim) -> None:
        cluster = self._around.cluster
        executors = sorted(process for worker in cluster.workers.values() for process in worker.members(EXECUTOR))
        if victim in {Victim.BROKER, Victim.BROKER_AND_DRIVER}:
            self._around.broker.kill_broker()
        elif victim is Victim.WORKER:
            cluster.workers[WORKER].kill()
        elif victim is Victim.EXECUTOR:
            kill(self._drawn.choice(executors))
        else:
            workers = [found for executor in executors if (found := cluster.python_workers(executor))]
            kill(*self._drawn.choice(workers))

    def _start_servers(self, victim: Victim) -> None:
        if victim is Victim.WORKER:
            self._around.cluster.start_worker(WORKER)
        else:
            self._around.broker.start()

    def _name_servers(self, victim: Victim) -> str:
        return Victim.BROKER.value if victim is Victim.BROKER_AND_DRIVER else victim.value

    def _bring_back(self, victim: Victim) -> None:
        # Spark restarts its executors and their Python workers.
        if victim not in {Victim.PYTHON, Victim.EXECUTOR}:
            super()._bring_back(victim)


def _stream(around: Surroundings, file_format: str) -> Stream:
    if around.hdfs is None:
        return Stream(TOPIC, "ftfile", around.home / "files", around.home / "checkpoint")
    home = HdfsPath(around.hdfs.pages, around.hdfs.url, f"/{around.home.name}-{file_format}")
    return Stream(TOPIC, "ftfile", home / "files", home / "checkpoint")


def _write_job(settings: Settings, around: Surroundings, stream: Stream) -> Path:
    """Write the settings of the application to a file and return its path."""
    scratch = around.home / "scratch"
    scratch.mkdir(exist_ok=True)
    job = {
        "master": around.cluster.url,
        "output": str(stream.output),
        "stop": str(around.home / "stop"),
        "source": {
            "kafka.bootstrap.servers": around.broker.address,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(max(settings.rows // 20, 1)),
        },
        "sink": {
            "fileFormat": settings.file_format,
            "checkpointLocation": str(stream.checkpoint),
            **settings.rolling,
            **MORE_OPTIONS.get(settings.file_format, {}),
        },
        "settings": {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "768m",
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} {quick_spark.java_options()}",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": spark_options(),
            "spark.jars": connector_jars(),
            "spark.local.dir": str(scratch),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        },
    }
    argument = around.home / "job.json"
    argument.write_text(json.dumps(job, indent=2), encoding="utf-8")
    return argument


def _judge(
    settings: Settings, around: Surroundings, stream: Stream, hits: tuple[Hit, ...], sent: int, stream_s: float
) -> Outcome:
    ends = around.broker.end_offsets(TOPIC)
    kafka = around.broker.read_topic(TOPIC, sum(ends.values()))
    ids = pc.cast(pc.replace_substring_regex(kafka["value"], r'^\{"id":(\d+),.*', r"\1"), pa.int64()).to_numpy()
    output = stream.output
    if isinstance(output, HdfsPath):
        output.download(around.home / "copy", f".{settings.file_format}")
        output = around.home / "copy"
    files = read_files(output, settings.file_format)
    directory = ftfile.open(str(stream.output))
    versions = directory.history()
    faults = check_history(TOPIC, versions, ends, directory.to_arrow)
    if not_finished := directory.status().open:
        faults.append(f"{len(not_finished)} files are still open")
    return Outcome(
        sent=sent,
        producer_faults=len(ids) - len(np.unique(ids)) + abs(sent - len(np.unique(ids))),
        hits=hits,
        files=files,
        partitions=tuple(compare(TOPIC, ends, kafka, files.rows)),
        versions=tuple(versions),
        faults=tuple(faults),
        stream_s=stream_s,
    )
