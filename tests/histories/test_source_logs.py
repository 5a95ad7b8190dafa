"""Random histories of rotated logs: each line that a writer ended is a row once. `--seed` plays other histories."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Literal

import pytest

from tests.histories.source_logs import Conditions, History

if TYPE_CHECKING:
    from tests.histories.source_storage import Times

HISTORIES = int(os.environ.get("FTFILE_SOURCE_HISTORIES", "160"))
AT_ONCE = 20
TRACE_MAX = 60
# Times of the storage, with the seconds by which its clock is ahead.
CLOCKS: tuple[tuple[Times, int], ...] = (("honest", 0), ("still", 0), ("coarse", 0), ("honest", -400), ("honest", 3600))
LETTERS = {
    "native": (
        "",
        "delete",
        "delete swap link",
        "delete again",
        "delete swap link again",
        "delete swap link again refuse",
    ),
    "content": (
        "copy",
        "compress",
        "copy compress delete",
        "copy compress delete swap link again",
        "copy delete refuse",
        "copy compress delete swap link again refuse",
    ),
}


def draw_conditions(seed: int) -> Conditions:
    """Return the conditions of one history."""
    draw = random.Random(f"conditions {seed}")
    identity: Literal["native", "content"] = draw.choice(["native", "content"])
    letters = frozenset(draw.choice(LETTERS[identity]).split())
    times, skew_s = draw.choice(CLOCKS)
    meddling = draw.choice([0.0, 0.05])
    is_available_now = draw.random() < 0.5
    at_once = 1 if meddling else draw.choice([1, 4])
    alike = identity == "native" and draw.random() < 0.5  # by content, files that are equal are one
    return Conditions(identity, letters, times, skew_s, meddling, is_available_now, at_once, alike)


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    """The seed of `--seed`, or 0, so that all runs without it play the same histories."""
    given = any(argument.startswith("--seed") for argument in request.config.invocation_params.args)
    return int(request.config.option.seed) if given else 0


@pytest.mark.parametrize("place", range(0, HISTORIES, AT_ONCE))
def test_each_line_is_read_once(place: int, first_seed: int) -> None:
    for seed in range(first_seed + place, first_seed + min(place + AT_ONCE, HISTORIES)):
        conditions = draw_conditions(seed)
        history = History(seed, conditions)
        lost, twice = history.play()
        trace = "\n".join(history.writers.trace[-TRACE_MAX:])
        repeat = f"FTFILE_SOURCE_HISTORIES=1 pytest tests/histories/test_source_logs.py --seed={seed}"
        assert (lost, twice) == ([], []), f"{conditions}\n{trace}\nrepeat with: {repeat}"
