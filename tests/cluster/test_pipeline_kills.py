"""A declarative pipeline whose runs, or their Python processes, are killed at drawn moments."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests import quick_spark
from tests.cluster.numbered_rows import check_numbers, draw_kill
from tests.cluster.pipeline_stream import PipelineStream
from tests.demos.files.kill import Moment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES_OF_RUN = 8


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[PipelineStream]:
    found = PipelineStream(tmp_path, {"JAVA_TOOL_OPTIONS": quick_spark.java_options()})
    try:
        yield found
    finally:
        found.stop()


def test_each_row_is_there_once_in_both_flows_if_runs_are_killed(pipeline: PipelineStream, seed: int) -> None:
    rng = random.Random(seed)
    first, second = rng.sample([*Moment], 2)
    # The second flow has nothing to read before the first flow has run.
    kills = [
        (pipeline.kill_run, pipeline.written, first),
        (pipeline.kill_run, rng.choice(pipeline.streams), second),
        (pipeline.kill_python, rng.choice(pipeline.streams), rng.choice([*Moment])),
    ]
    hits = 0
    for kill, stream, moment in kills:
        pipeline.numbers.extend(FILES_OF_RUN)
        pipeline.start()
        hits += kill(draw_kill(rng, stream, moment))
    assert hits
    # A run of the second flow reads the rows that existed at its start.
    pipeline.start()
    pipeline.run_to_end()
    for stream in pipeline.streams:
        check_numbers(stream, pipeline.numbers.count)
