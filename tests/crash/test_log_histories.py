"""Two committers with pauses before any call of the storage, vacuums, readers, kills, losses and restores."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.crash.log_history import LogHistory

pytestmark = pytest.mark.slow

HISTORIES = 500 if os.environ.get("FTFILE_THOROUGH") else 24
STEPS = (100, 300, 600)


def test_each_promised_version_reads_as_its_records_say(seed: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(HISTORIES):
        history = LogHistory(seed + number)
        try:
            history.play(random.Random(seed + number).choice(STEPS))
        except Exception as error:
            raise AssertionError(f"history {seed + number}, {dict(history.counts)}: {error}") from error
        counts += history.counts
    assert {"commits", "vacuums", "deaths", "restores", "reads", "versions"} <= counts.keys()
    assert {"ranges lost", "ranges damaged", "checkpoints lost"} <= counts.keys()


def test_the_same_seed_is_the_same_history() -> None:
    first, second = LogHistory(3), LogHistory(3)
    first.play(100)
    second.play(100)
    assert first.counts == second.counts
