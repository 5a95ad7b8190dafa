"""Random histories of a store: its rows equal a dict after every step, and as of every version."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.unit.kv.histories import Store, play

if TYPE_CHECKING:
    from collections.abc import Iterator

HISTORIES = int(os.environ.get("FTFILE_KV_HISTORIES", "160"))
AT_ONCE = 40


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Compactions that are dropped would fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    """0, so that all runs play the same histories, or the value of `--seed`."""
    given = any(argument.startswith("--seed") for argument in request.config.invocation_params.args)
    return int(request.config.option.seed) if given else 0


@pytest.mark.slow
@pytest.mark.parametrize("place", range(0, HISTORIES, AT_ONCE))
def test_rows_are_those_of_a_dict(place: int, first_seed: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first_seed + place, first_seed + min(place + AT_ONCE, HISTORIES)):
        try:
            counts += play(seed).counts
        except BaseException:
            print(f"seed {seed}: repeat with FTFILE_KV_HISTORIES=1 pytest tests/unit/kv --seed={seed}")
            raise
    if place + AT_ONCE <= HISTORIES:
        # What histories are about happens in them, or they try nothing.
        wanted = {"level0", "descend", "level1", "moved", "cut", "rowless", "full", "purge", "dropped", "held", "crash"}
        assert counts.keys() >= wanted, wanted - counts.keys()
        assert counts["groups"] > AT_ONCE


@pytest.mark.slow
def test_histories_repeat() -> None:
    first, second = play(5), play(5)
    assert first.counts == second.counts
    assert [version.live for version in first.versions] == [version.live for version in second.versions]
    assert play(6).counts != first.counts


def test_a_wrong_row_is_noticed() -> None:
    store = Store(1)
    while not store.expected.rows:
        store.batch()
    store.expected.rows.popitem()
    with pytest.raises(AssertionError):
        store.commit([], store.expected, all_done=True)
