"""Every crash of planning and of its recovery, and two drivers stopped and resumed at every step.

A query reads files of lines, and its state is on a file system that keeps a journal. For every moment, every disk that
a power cut or a kill may leave is checked: no offset is ahead of its plan. Then the query restarts and finds more
lines. In the end it has read every line once.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import StateLost
from ftfile.log import checkpoints
from ftfile.log.format import layout
from ftfile.source import plan_log
from ftfile.source.plan import PlanPosition, SourcePlan
from ftfile.source.plan_log import PlanLog
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem, CrashState, KillState, crash_states, kill_states
from ftfile.testing.fs.faulty import fault_sweep
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.source_run import Killed
from tests.crash.alike import Alike
from tests.crash.faults import FAULTS
from tests.crash.planning import Planning
from tests.crash.share import THOROUGH, some
from tests.crash.turns import TO_THE_END, Turns, TurnsFileSystem
from tests.crash.world import CLOCK, IDS, prefixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.testing.fs.volume import Storage
    from tests.crash.planning import NotedRun

pytestmark = pytest.mark.slow

ONE_FILE = {"maxFilesPerTrigger": "1"}
FIRST = Planning("first", {"a.log": 2}, {"a.log": 1, "b.log": 1})
MANY = Planning("many", {f"{name}.log": 1 for name in "abcdefgh"}, {"a.log": 1, "h.log": 1}, ONE_FILE)
LINES = Planning("lines", {"a.log": 7, "b.log": 1}, {"a.log": 1}, {"maxBytesPerTrigger": "8"})
PLANNINGS = [FIRST, MANY, LINES]
# Lower bounds of the number of distinct states if all are tried.
STATES_MIN = {"disk": {"first": 60, "many": 1_000, "lines": 1_000}, "s3": {"first": 20, "many": 60, "lines": 60}}
STATES_MIN["hdfs"] = STATES_MIN["webhdfs"] = {"first": 30, "many": 200, "lines": 200}
PORTION = 1 if THOROUGH else 0.06


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trim before the last plan but one, with columns and a checkpoint at every second plan."""
    monkeypatch.setattr(plan_log, "VERSIONS_KEPT", 1)
    monkeypatch.setattr(plan_log, "COLUMNS_MIN_BYTES", checkpoints.RECORD_COST_BYTES)
    with repeatable(CLOCK, IDS):
        yield


class Exploration:
    """The seen states of planning: digests of disks, with Spark's checkpoint at that time."""

    def __init__(self, planning: Planning, seed: int) -> None:
        self.planning = planning
        self.seed = seed
        self.seen: set[tuple[bytes, tuple[str, ...]]] = set()
        self.selection = Alike(seed)

    def explore(self, storage: Storage) -> None:
        whole = CrashingFileSystem(clock=CLOCK, storage=storage)
        query = self.planning.play(whole, 1, (), whole.note)
        self.planning.check_finished(whole, query, 1)
        self.trimmed = self.planning.log_start(whole, query)
        crashed = crash_states(whole, seen=self.seen)
        states: list[CrashState | KillState] = [*kill_states(whole), *crashed]
        chosen = {id(state) for state in some(states, self.seed)}
        for state in states:
            is_tried = isinstance(state, CrashState) and self.selection.is_tried(state)
            if not is_tried and id(state) not in chosen:
                continue
            recovered = self.recover(state, run=2)
            if id(state) in chosen:
                crashed = itertools.islice(crash_states(recovered, seen=self.seen), None if THOROUGH else 8)
                for again in filter(self.selection.is_tried, crashed):
                    self.recover(again, run=3, before=f"{state}; then, in the recovery, ")

    def recover(self, state: CrashState | KillState, run: int, before: str = "") -> CrashingFileSystem:
        """Check a state after a crash, let the query resume from it, and check the end."""
        fs = state.filesystem()
        with prefixed(f"{self.planning.name}: {before}{state}"):
            self.planning.check(fs, state.notes)
            query = self.planning.play(fs, run, state.notes, fs.note)
            self.planning.check_finished(fs, query, run)
        return fs


@pytest.mark.parametrize("storage", STATES_MIN)
@pytest.mark.parametrize("planning", PLANNINGS, ids=lambda planning: planning.name)
def test_every_crash(
    planning: Planning, storage: Any, record_property: Callable[[str, object], None], seed: int
) -> None:
    began_s = time.process_time()
    exploration = Exploration(planning, seed)
    exploration.explore(storage)
    states, seconds = len(exploration.seen), round(time.process_time() - began_s, 1)
    record_property("crash_states", states)
    record_property("processor_seconds", seconds)
    tried = exploration.selection.tried
    print(f"{planning.name} on {storage}: {states} different states, {tried} tried, in {seconds} s of one core")
    assert states >= PORTION * STATES_MIN[storage][planning.name]
    assert exploration.trimmed or planning is FIRST, "no plan was trimmed"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("planning", [MANY, LINES], ids=lambda planning: planning.name)
def test_a_fault_at_every_call(planning: Planning, fault: str, seed: int) -> None:
    """Check that no offset or a durable offset is returned: after any fault, the restarted query reads every line once.

    Every call is tried; in the suite every 18th.
    """
    notes: list[str] = []

    def play(fs: Any) -> NotedRun:
        notes.clear()
        return planning.play(fs, 1, (), notes.append)

    raised = survived = 0
    step = 1 if THOROUGH else 18
    first = dataclasses.replace(FAULTS[fault], at=FAULTS[fault].at + seed % step)
    for run in fault_sweep(first, lambda: CrashingFileSystem(clock=CLOCK), play, step):
        with prefixed(str(run)):
            fs = run.file_system
            planning.check(fs, notes)
            query = planning.play(fs, 2, [*notes], notes.append)
            planning.check_finished(fs, query, 2)
        raised += run.error is not None
        survived += run.error is None
    # A call is retried if the storage is unavailable for a moment.
    assert raised or not THOROUGH or fault == "Unavailable before"
    assert raised + survived > 40 / step


class Dying(WrapperFileSystem, PickledByReference):
    """Gives one record its name, and dies before the name is durable."""

    def create_exclusive(self, path: str, content: bytes) -> None:
        if not path.endswith(f"_{1:020d}.record"):
            super().create_exclusive(path, content)
            return
        with self.inner.create(f"{path}.tmp") as stream:
            stream.write(content)
            stream.hsync()
        self.inner.rename(f"{path}.tmp", path)
        raise Killed("planned")


def test_no_offset_is_ahead_of_what_survives_the_power() -> None:
    """Plan after the plan of another driver, which died before the plan's name was durable."""
    IDS.start(1, 0)
    fs = CrashingFileSystem(clock=CLOCK)
    begin = PlanPosition("0" * 32, -1, "")
    first = PlanLog(fs, begin.log_id, "run").add(begin, SourcePlan(low=1))
    with pytest.raises(Killed):
        PlanLog(Dying(fs), begin.log_id, "run").add(first, SourcePlan(low=2))
    found = PlanLog(fs, begin.log_id, "other run").position_after(first)
    assert found is not None
    fs.note("returned")
    lost = 0
    for state in crash_states(fs):
        is_there = state.filesystem().exists(layout.record_path(1))
        assert is_there or "returned" not in state.notes
        lost += not is_there
    assert lost


class Drivers:
    """Two processes of one query: each with a separate copy of the checkpoint, with one state."""

    def __init__(self, planning: Planning, begun: int, batches: tuple[int, int]) -> None:
        self.planning = planning
        self.batches = batches
        fs = CrashingFileSystem(clock=CLOCK)
        IDS.start(0, 0)
        planning.write_files(1)
        query = planning.query(fs)
        query.run(begun)
        self.begun = query
        self.start = next(state for state in crash_states(fs) if state.point == len(fs.journal))
        self.runs = 0
        self.lost = 0
        self._checked: set[tuple[bytes, str]] = set()

    def run(self, *schedule: tuple[str, int]) -> dict[str, int]:
        """Let both processes plan under a schedule, check, and return the number of calls of each."""
        fs, turns = self.start.filesystem(), Turns(schedule)
        queries: dict[str, NotedRun] = {}

        def drive(name: str, number: int) -> None:
            IDS.start(number + 1, 0)
            query = self.planning.query(TurnsFileSystem(fs, name, turns), driver=name)
            query.offsets, query.commits = [*self.begun.offsets], self.begun.commits
            query.batches, query.adds = dict(self.begun.batches), dict(self.begun.adds)
            queries[name] = query
            query.run(self.batches[number])

        self.planning.write_files(1)
        errors = turns.run({"first": lambda: drive("first", 0), "second": lambda: drive("second", 1)})
        self.runs += 1
        self.lost += any(errors.values())
        said = [(query.offsets, query.commits, query.batches, query.adds) for query in queries.values()]
        left = fs.digest(), repr((said, errors))
        with prefixed(f"{self.planning.name}, {schedule}, {errors}"):
            if left not in self._checked:
                self._checked.add(left)
                self.check(fs, queries, errors)
        return turns.calls

    def check(self, fs: CrashingFileSystem, queries: dict[str, NotedRun], errors: dict[str, Any]) -> None:
        assert all(error is None or isinstance(error, StateLost) for error in errors.values())
        assert any(error is None for error in errors.values()), "both drivers fail with StateLost"
        first, second = queries["first"], queries["second"]
        both = min(len(first.offsets), len(second.offsets))
        assert first.offsets[:both] == second.offsets[:both], "two plans for one batch"
        for number in range(both):
            if number in first.batches and number in second.batches:
                assert first.batches[number] == second.batches[number]
        winner = max((query for name, query in queries.items() if errors[name] is None), key=lambda q: len(q.offsets))
        lines = self.planning.write_files(2)
        end = self.planning.query(fs)
        end.offsets, end.commits = [*winner.offsets], winner.commits
        end.batches, end.adds = dict(winner.batches), dict(winner.adds)
        IDS.start(9, 0)
        end.run(100)
        assert Counter(row["value"] for row in end.rows) == lines
        self.planning.check(fs, [json.dumps({"offset": offset}) for offset in end.offsets])


RACES = {
    "zombie and successor": (MANY, 1, (1, 7)),
    "side by side": (MANY, 0, (3, 3)),
    "lines": (LINES, 2, (2, 3)),
}


@pytest.mark.parametrize("race", [name for name in RACES if RACES[name][1]])
def test_the_other_plans_wholly_between_any_two_calls(race: str) -> None:
    drivers = Drivers(*RACES[race])
    calls = {name: drivers.run((name, TO_THE_END))[name] for name in ("first", "second")}
    for name, other in (("first", "second"), ("second", "first")):
        for step in range(calls[name] + 1):
            drivers.run((name, step), (other, TO_THE_END))
    assert drivers.runs > 40
    print(f"{race}: {drivers.lost} of {drivers.runs} drivers ended")
    assert drivers.lost or race != "zombie and successor", "only a driver whose plan was trimmed fails"


@pytest.mark.parametrize("race", [name for name in RACES if RACES[name][1]])
def test_every_pair_of_steps(race: str, seed: int) -> None:
    drivers = Drivers(*RACES[race])
    calls = {name: drivers.run((name, TO_THE_END))[name] for name in ("first", "second")}
    for step in some(range(1, calls["first"]), seed):
        for other_step in some(range(1, calls["second"]), seed, 1 / 5):
            drivers.run(("first", step), ("second", other_step), ("first", TO_THE_END))
