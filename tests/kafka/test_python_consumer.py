"""The Kafka program of docs/python-writing.md writes each offset once, however often it is killed."""

from __future__ import annotations

import os
import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import ftfile
from ftfile.log.directory import has_log
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.kafka.broker import Broker
from tests.kafka.proof import compare, read_files
from tests.kit.programs import Program, program_text, wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

TOPIC, PARTITIONS = "flights", 3
KILLS = 20 if os.environ.get("FTFILE_THOROUGH") else 2
SECONDS_UNTIL_KILL = (0.0, 2.5)
RECORDS_PER_STEP, STEP_S = 50, 0.05
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def text_for(broker: Broker, out: Path, topic: str = TOPIC) -> str:
    settings = {
        "kafka-1:9092,kafka-2:9092": broker.address,
        '"flights", "/data/flights"': f'"{topic}", "{out}"',
        '"10m"': '"2s"',  # files also end while the program is killed
    }
    return program_text("Copy a topic of Kafka", settings)


class Feed:
    """A thread that feeds a producer until `end` is called; `sent` counts the records."""

    def __init__(self, producer: subprocess.Popen[bytes]) -> None:
        self.sent = 0
        self._producer, self._ended = producer, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        assert self._producer.stdin is not None
        with self._producer.stdin as lines:
            while not self._ended.is_set():
                for _ in range(RECORDS_PER_STEP):
                    lines.write(b'k%d\t{"id": %d}\n' % (self.sent % 50, self.sent))
                    self.sent += 1
                lines.flush()
                time.sleep(STEP_S)


def produce(broker: Broker, topic: str, records: int) -> None:
    producer = broker.start_producer(topic)
    assert producer.stdin is not None
    with producer.stdin as lines:
        lines.write(b"key\tvalue\n" * records)
    broker.end_producer()


def is_at(out: Path, position: dict[str, int]) -> bool:
    """Return True if the newest commit has a position."""
    return [version.position for version in history_of(out)[-1:]] == [position]


def commits_in(out: Path) -> int:
    """Return the number of commits of the program."""
    return sum(version.position is not None for version in history_of(out))


def history_of(out: Path) -> list[ftfile.Version]:
    """Return the versions of a directory; none until its log has been created."""
    if not has_log(open_filesystem(str(out))):
        return []
    return ftfile.open(str(out)).history()


def has_commits(out: Path, commits: int) -> bool:
    """Return True after at least this number of commits."""
    return commits_in(out) >= commits


def test_each_offset_is_in_the_files_once_however_often_the_program_is_killed(
    seed: int, broker: Broker, tmp_path: Path
) -> None:
    out, moments = tmp_path / "out", random.Random(seed)
    broker.create_topic(TOPIC, PARTITIONS)
    text = text_for(broker, out)
    feed = Feed(broker.start_producer(TOPIC))
    for number in range(KILLS):
        enough = commits_in(out) + 1
        with Program(text, tmp_path) as program:
            if number % 4 != 3:  # other kills hit the start of the program
                wait_until(partial(has_commits, out, enough), program)
            time.sleep(moments.uniform(*SECONDS_UNTIL_KILL))
            program.kill()
    with Program(text, tmp_path) as program:
        wait_until(lambda: len([*out.glob("*.parquet")]) > 1, program)
        feed.end()
        broker.end_producer()
        ends = broker.end_offsets(TOPIC)
        wait_until(lambda: is_at(out, {str(partition): end for partition, end in ends.items()}), program)
        program.kill()
    ftfile.flush(str(out))

    assert sum(ends.values()) == feed.sent
    found = read_files(out, "parquet")
    assert not found.unreadable
    verdicts = compare(TOPIC, ends, broker.read_topic(TOPIC, feed.sent), found.rows)
    assert len(verdicts) == PARTITIONS
    assert all(each.exact for each in verdicts), verdicts
    commits = [version for version in ftfile.open(str(out)).history() if version.position is not None and version.rows]
    assert 1 < found.files < len(commits), "files end while the program runs, and have rows of several commits"
    check_directory(open_filesystem(str(out)), rows_of=lambda _: ())  # segments of Parquet files are not lines


def test_a_topic_that_is_missing_ends_the_program(broker: Broker, tmp_path: Path) -> None:
    with Program(text_for(broker, tmp_path / "out", "missing"), tmp_path) as program:
        assert program.end() == 1
        assert "UNKNOWN_TOPIC_OR_PART" in program.output()


def test_records_that_kafka_deleted_before_they_were_read_end_the_program(broker: Broker, tmp_path: Path) -> None:
    topic, out = "expiring", tmp_path / "out"
    text = text_for(broker, out, topic)
    broker.create_topic(topic, 1)
    produce(broker, topic, 20)
    with Program(text, tmp_path) as program:
        wait_until(lambda: is_at(out, {"0": 20}), program)
        program.kill()
    produce(broker, topic, 20)
    admin = AdminClient({"bootstrap.servers": broker.address})  # its futures never end without it
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 30)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 30
    with Program(text, tmp_path) as program:
        assert program.end() == 1
        assert "_AUTO_OFFSET_RESET" in program.output()
    assert ftfile.open(str(out)).count() == 20
