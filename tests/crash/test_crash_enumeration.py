"""Every crash of a stream, and every crash of the recovery from it: write, commit, publish, and all of them again.

A scenario is run once on a file system that keeps a journal. For every moment of the run, every disk that a power cut
may leave there is checked as it is, then Spark starts anew on it, goes on to the end, and the directory is checked
again. The same for a process killed at every moment. Then power is cut at every moment of every such recovery.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest
from tests.crash.world import CLOCK, IDS, Batch, Scenario

from ftfile.commit import bases
from ftfile.testing.crashing import CrashingFileSystem, crash_states, kill_states
from ftfile.testing.repeatable import repeatable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.testing.crashing import CrashState, KillState

BATCHES = Scenario(
    "batches, one of them empty, with attempts that lose or fail",
    (Batch("ab"), Batch("", batch_id=1), Batch("cd", batch_id=2, troubled=True)),
)
PARTITIONED = Scenario(
    "partitioned directory", (Batch("abab"), Batch("bc", batch_id=1)), partitioned=True
)
REPLACING = Scenario(
    "compaction and overwrite",
    (Batch("a"), Batch("b", "compact", batch_id=1), Batch("c", "overwrite", batch_id=2)),
    settled=1,
)
TWO_QUERIES = Scenario(
    "two queries in one directory",
    (Batch("a"), Batch("b", query="b"), Batch("c", batch_id=1)),
    settled=1,
    options=(("onNewQuery", "continue"),),
)
# How many states each must have at least: fewer, and the exploration has lost its way.
STATES_MIN = {BATCHES: 10_000, PARTITIONED: 7_000, REPLACING: 3_000, TWO_QUERIES: 3_000}


class Exploration:
    """What was seen of a scenario."""

    def __init__(self, scenario: Scenario, *, directory_sync: bool = True) -> None:
        self.scenario = scenario
        self.seen: set[tuple[bytes, tuple[str, ...]]] = set()
        self._finished: set[bytes] = set()
        self._directory_sync = directory_sync

    def explore(self) -> None:
        start = self.scenario.start(directory_sync=self._directory_sync)
        whole = start.filesystem()
        self.scenario.play(whole, start.notes, run=1)
        self.scenario.check_finished(whole)
        states: list[CrashState | KillState] = [*crash_states(whole, seen=self.seen), *kill_states(whole)]
        for recovered, state in [(self.recover(state, run=2), state) for state in states]:
            for again in crash_states(recovered, seen=self.seen):
                self.recover(again, run=3, before=f"{state}, then, while recovering, ")

    def recover(self, state: CrashState | KillState, run: int, before: str = "") -> CrashingFileSystem:
        """Check a disk as it was left, let Spark go on on it, and check the end."""
        fs = state.filesystem()
        with told(f"{self.scenario.name}: {before}{state}"):
            self.scenario.check(fs, state.notes)
            self.scenario.play(fs, state.notes, run)
            if (digest := fs.digest()) not in self._finished:
                self._finished.add(digest)
                self.scenario.check_finished(fs)
        return fs


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Name the crash in whatever went wrong after it."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {error}") from error


def explore(scenario: Scenario, record_property: pytest.RecordProperty, **settings: bool) -> int:
    began = time.process_time()
    exploration = Exploration(scenario, **settings)
    with repeatable(CLOCK, IDS):
        exploration.explore()
    states, seconds = len(exploration.seen), time.process_time() - began
    record_property("crash_states", states)
    record_property("crash_seconds", round(seconds, 1))
    print(f"{scenario.name}: {states} distinct states in {seconds:.1f} s of processor time")
    return states


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", STATES_MIN, ids=lambda scenario: scenario.name)
def test_every_crash(scenario: Scenario, record_property) -> None:
    assert explore(scenario, record_property) >= STATES_MIN[scenario]


@pytest.mark.timeout(900)
def test_every_crash_with_bases(monkeypatch: pytest.MonkeyPatch, record_property) -> None:
    monkeypatch.setattr(bases, "BASE_EVERY", 1)
    monkeypatch.setattr(bases, "BASES_KEPT", 1)
    assert explore(REPLACING, record_property) >= 1_000


@pytest.mark.timeout(900)
def test_every_crash_where_names_are_durable_at_once(record_property) -> None:
    assert explore(BATCHES, record_property, directory_sync=False) >= 1_000


def test_ten_thousand_states() -> None:
    assert sum(STATES_MIN.values()) >= 10_000
