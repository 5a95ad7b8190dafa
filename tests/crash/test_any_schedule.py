"""Two queries with open files, and all maintenance, at the same time, in turns of random length."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import CorruptData, NotFound, StaleFiles
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, repeatable
from tests.crash.share import some
from tests.crash.turns import Turns, TurnsFileSystem
from tests.crash.world import CLOCK, IDS, Batch, Scenario, prefixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.testing.fs.crashing import CrashingFileSystem

pytestmark = pytest.mark.slow

QUERIES = {
    "a": (Batch("bcd", batch_id=1), Batch("", batch_id=2), Batch("e", batch_id=3), Batch("", batch_id=4)),
    "q": (Batch("u", query="q"), Batch("vw", query="q", batch_id=1), Batch("", query="q", batch_id=2)),
}
SCENARIO = Scenario(
    "any schedule",
    (Batch("ax"), *QUERIES["a"], *QUERIES["q"]),
    settled=1,
    options=(("onNewQuery", "continue"), ("rolling", "policy"), ("maxRecordsPerFile", "2")),
    flush=True,
)
UPKEEP: dict[str, Callable[[str], object]] = {
    "flush": lambda path: ftfile.flush(path, context=current()),
    "compact": lambda path: ftfile.compact(path, context=current()),
    "vacuum": lambda path: ftfile.vacuum(path, dry_run=False, retention="0s", force=True, context=current()),
}
TRIES = 30


@pytest.fixture(autouse=True)
def _with_checkpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checkpoints and ranges at about every second version, so that vacuum deletes records, too."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
    with repeatable(CLOCK, IDS):
        yield


def run_query(fs: CrashingFileSystem, turns: Turns, name: str, run: int) -> None:
    """Run the batches of a query. If vacuum deleted files of a batch, repeat it as a restarted Spark does."""
    for step, batch in enumerate(QUERIES[name]):
        for tried in range(TRIES):
            IDS.start(run + tried, step)
            query = SCENARIO.query(TurnsFileSystem(fs, name, turns), name, run + tried, driver=name)
            query.attempts = 4
            try:
                SCENARIO.run_batch(batch, query, run=2)
            except (StaleFiles, CorruptData, NotFound):
                CLOCK.advance(0.01)
            else:
                break
        else:
            raise AssertionError(f"{batch} fails for ever")


def run_upkeep(fs: CrashingFileSystem, turns: Turns, operations: list[str]) -> None:
    for step, operation in enumerate(operations):
        IDS.start(900, step)
        path = SCENARIO.query(TurnsFileSystem(fs, "upkeep", turns), "a", 900, driver="upkeep").path
        CLOCK.advance(0.01)
        UPKEEP[operation](path)


@pytest.mark.parametrize("hundred", range(3))
def test_no_row_is_lost_or_doubled(hundred: int, seed: int) -> None:
    """Run under a hundred schedules, or in the suite under a sixth of them."""
    start = SCENARIO.start()
    for number in some(range(100 * hundred, 100 * hundred + 100), seed, 1 / 6):
        rng = random.Random(number)
        longest = rng.choice([2, 10, 60])
        schedule = [(rng.choice(["a", "q", "upkeep"]), rng.randint(1, longest)) for _ in range(600)]
        operations = [rng.choice(sorted(UPKEEP)) for _ in range(6)]
        fs, turns = start.filesystem(), Turns(schedule)
        drivers: dict[str, Callable[[], object]] = {
            "a": partial(run_query, fs, turns, "a", 100),
            "q": partial(run_query, fs, turns, "q", 500),
            "upkeep": partial(run_upkeep, fs, turns, operations),
        }
        errors = turns.run(drivers)
        with prefixed(f"schedule {number}, {operations}"):
            for error in filter(None, errors.values()):
                raise error
            expected = SCENARIO.expected(SCENARIO.batches)
            assert check_directory(fs).live_rows == expected
            IDS.start(3, 0)
            CLOCK.advance(1)
            ftfile.flush(SCENARIO.query(fs, "a").path, context=current())
            report = check_directory(fs)
            assert (report.live_rows, report.visible_rows) == (expected, expected)
