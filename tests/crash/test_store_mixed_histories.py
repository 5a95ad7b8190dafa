"""Random histories of stores that queries and an operator write, with upkeep, kills, zombies and power cuts."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.crash.share import THOROUGH
from tests.crash.store_history import STEPS, play

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

HISTORIES = int(os.environ.get("FTFILE_MIXED_HISTORIES", "2000" if THOROUGH else "10"))
AT_ONCE = 10
# Rarer events occur once in some hundred histories: a late batch that is refused, a feed that is overtaken.
EVENTS = {"killed", "cut", "fault", "lost answer", "interrupted", "late", "fenced", "restored", "old"}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Messages about dropped merges and lost windows would fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("place", range(0, HISTORIES, AT_ONCE))
def test_rows_are_those_of_a_dict_that_follows_the_log(place: int, seed: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(place, min(place + AT_ONCE, HISTORIES)):
        counts += play(f"{seed}-{number}")
    if place + AT_ONCE <= HISTORIES:
        expected = EVENTS | {step.__name__ for step in STEPS}
        assert counts.keys() >= expected, expected - counts.keys()
