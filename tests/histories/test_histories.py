"""Random histories: each test plays some of them from consecutive seeds. `--seed` plays other histories."""

from __future__ import annotations

import gc
import logging
import os
from typing import TYPE_CHECKING

import pytest

from tests.histories.pairs import ABILITIES, NOT_DRAWN, Met, possible_pairs
from tests.histories.plan import KINDS, OF_PROGRAMS, draw_history, draw_program_history
from tests.histories.playing import HistoryFailed, play, shrink
from tests.histories.small_limits import SMALL_LIMITS, modules_with, small_limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.histories.plan import History

HISTORIES = int(os.environ.get("FTFILE_HISTORIES", "20"))
STEPS = 200
AT_ONCE = 5
ALL_MET = 40


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log messages about intended failures would fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def collected_afterwards() -> Iterator[None]:
    """Garbage is collected only after a test: collections take a quarter of the time of a history."""
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.collect()
    gc.unfreeze()


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    """The seed of `--seed`, or 0, so that all runs without it play the same histories."""
    given = any(argument.startswith("--seed") for argument in request.config.invocation_params.args)
    return int(request.config.option.seed) if given else 0


@pytest.mark.parametrize("place", range(0, HISTORIES, AT_ONCE))
def test_nothing_stays_stuck_and_nothing_goes_missing(place: int, first_seed: int) -> None:
    for seed in range(first_seed + place, first_seed + min(place + AT_ONCE, HISTORIES)):
        play_or_shrink(draw_history(seed, STEPS, without=OF_PROGRAMS))


@pytest.mark.parametrize("place", range(0, max(HISTORIES // 4, 1), AT_ONCE))
def test_programs_and_queries_write_to_one_directory(place: int, first_seed: int) -> None:
    for seed in range(first_seed + place, first_seed + min(place + AT_ONCE, max(HISTORIES // 4, 1))):
        play_or_shrink(draw_history(seed, STEPS))


@pytest.mark.parametrize("place", range(0, HISTORIES, AT_ONCE))
def test_events_happen_during_calls(place: int, first_seed: int) -> None:
    for seed in range(first_seed + place, first_seed + min(place + AT_ONCE, HISTORIES)):
        play_or_shrink(draw_history(seed, 60, events=0.8))


@pytest.mark.skipif(HISTORIES < ALL_MET, reason="few histories meet some abilities only: in `make test-all`")
def test_histories_meet_each_ability_that_has_no_reason(first_seed: int) -> None:
    wanted, met = set(ABILITIES) - NOT_DRAWN.keys(), Met()
    for seed in range(first_seed + 5_000, first_seed + 5_000 + ALL_MET):
        play_or_shrink(draw_history(seed, 60), met)
        if wanted <= met.abilities:
            break
    assert not wanted - met.abilities, "no history draws them: add a step, or a reason to NOT_DRAWN"
    assert not met.abilities & NOT_DRAWN.keys(), "histories draw them: remove their reasons"


def test_a_reason_belongs_to_an_ability() -> None:
    assert not NOT_DRAWN.keys() - set(ABILITIES)
    with_events, of_two = possible_pairs()
    assert all("event power cut" not in pair or "storage memory" not in pair for pair in with_events)
    assert {"storage s3", "storage hdfs"} not in of_two


@pytest.mark.parametrize("place", range(0, HISTORIES, AT_ONCE))
def test_a_program_with_threads_is_interrupted(place: int, first_seed: int) -> None:
    for seed in range(first_seed + place, first_seed + min(place + AT_ONCE, HISTORIES)):
        play_or_shrink(draw_program_history(seed))


def play_or_shrink(history: History, pairs: Met | None = None) -> None:
    """Play a history. If it fails, print the shortest history with the same failure."""
    try:
        play(history, pairs)
    except HistoryFailed as failed:
        least = shrink(failed)
        pytest.fail(
            f"{failed}\nrepeat with: FTFILE_HISTORIES=1 pytest tests/histories --seed={history.seed}\n"
            f"the shortest history with the same failure: {least}\n{least.history}"
        )


def test_histories_repeat() -> None:
    first, second = draw_history(7, 60), draw_history(7, 60)
    assert first == second
    assert draw_history(7, 200).steps[:60] == first.steps
    assert draw_history(8, 60) != first


def test_every_kind_of_step_is_taken() -> None:
    kinds = {step.kind for seed in range(100) for step in draw_history(seed).steps}
    assert kinds == KINDS.keys()


def test_limits_are_small_while_a_history_wants_it() -> None:
    def values() -> dict[str, set[float]]:
        return {name: {getattr(module, name) for module in modules_with(name)} for name in SMALL_LIMITS}

    before = values()
    assert all(min(values) > SMALL_LIMITS[name] for name, values in before.items())
    with small_limits():
        assert values() == {name: {value} for name, value in SMALL_LIMITS.items()}
    assert values() == before
    with small_limits(use=False):
        assert values() == before
