"""Streams on Spark Connect whose server, Python processes and clients are killed, or frozen, at drawn moments."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests import quick_spark
from tests.cluster.connect_stream import ConnectStream
from tests.cluster.numbered_rows import check_numbers, draw_kill
from tests.demos.files.kill import Moment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[ConnectStream]:
    found = ConnectStream(tmp_path, {"JAVA_TOOL_OPTIONS": quick_spark.java_options()})
    try:
        yield found
    finally:
        found.stop()


def test_each_row_is_there_once_if_processes_are_killed(connect: ConnectStream, seed: int) -> None:
    rng = random.Random(seed)
    connect.start()
    kills = [
        (connect.kill_server, Moment.WINDOW),
        (connect.kill_server, Moment.WRITING),
        (connect.kill_client, rng.choice([*Moment])),
        (connect.kill_python, rng.choice([*Moment])),
    ]
    rng.shuffle(kills)
    for kill, moment in kills:
        kill(draw_kill(rng, connect.stream, moment))
    connect.run_to_end()
    check_numbers(connect.stream, connect.numbers.count)


def test_each_row_is_there_once_if_a_frozen_server_wakes_up(connect: ConnectStream, seed: int) -> None:
    rng = random.Random(seed)
    connect.start()
    moments = [*Moment]
    rng.shuffle(moments)
    for moment in moments:
        connect.overtake(draw_kill(rng, connect.stream, moment))
    connect.run_to_end()
    check_numbers(connect.stream, connect.numbers.count)
