"""Two drivers on one directory, stopped and resumed at every pair of steps, such as a zombie and its successor."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import Fenced
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.operate.flush import flush
from ftfile.testing.context import current, repeatable
from ftfile.testing.fs.crashing import crash_states
from tests.crash.alike import Alike
from tests.crash.programs import ProgramScenario
from tests.crash.scenarios import CSV
from tests.crash.share import SHARE, THOROUGH, some
from tests.crash.stores import StoreScenario
from tests.crash.turns import TO_THE_END, Turns, TurnsFileSystem
from tests.crash.world import CLOCK, IDS, Batch, Passed, Scenario, prefixed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.testing.fs.crashing import CrashingFileSystem
    from ftfile.testing.fs.volume import Storage

pytestmark = pytest.mark.slow

CONTINUE = (("onNewQuery", "continue"),)
ROLLING = (("rolling", "policy"),)
COMPACT, DROP = Batch("", "compact", "upkeep"), Batch("", "drop", "upkeep too")
SORT = Batch("", "sort", "upkeep")
UNSORTED = (Batch("dbac", query="before"),)
DELETE = Batch("x", "delete", "deleting")
# Back to the first batch.
RESTORE = Batch("ax", "restore", "restoring")
REPLACED = Batch("yz", "overwrite", query="before")


@dataclass(frozen=True)
class Race:
    """The actions of two drivers at the same time, after a first batch of two parts.

    Attributes:
        first: batches of the driver that begins; without batches, it flushes the open files.
        second: batches of the other driver, with the same rule.
        options: of both.
        partitioned: rows are partitioned by their letters.
        before: batches that run before both drivers.
    """

    name: str
    first: tuple[Batch, ...]
    second: tuple[Batch, ...]
    options: tuple[tuple[str, str], ...] = ()
    partitioned: bool = False
    before: tuple[Batch, ...] = ()

    def scenario(self) -> Scenario:
        batches = {batch.note: batch for batch in (Batch("ax"), *self.before, *self.first, *self.second)}
        options = (*CONTINUE, *self.options)
        flushes = not (self.first and self.second) or ("rolling", "policy") in options
        return Scenario(
            self.name,
            tuple(batches.values()),
            settled=1 + len(self.before),
            partitioned=self.partitioned,
            options=options,
            flush=flushes,
        )


@dataclass(frozen=True)
class StoreRace(Race):
    """The same on a store, after two batches whose runs are due for a merge: both drivers execute that merge."""

    def scenario(self) -> Scenario:
        settled = Batch("ax"), Batch("ay", batch_id=1)
        batches = {batch.note: batch for batch in (*settled, *self.first, *self.second)}
        return StoreScenario(self.name, tuple(batches.values()), settled=2, options=(*CONTINUE, *self.options))


@dataclass(frozen=True)
class ProgramRace(Race):
    """The same with the program `w`, which writes by `ftfile.writer`.

    Attributes:
        is_replaced: both drivers are processes of the program, and the newer one fences the other.
    """

    is_replaced: bool = False

    def scenario(self) -> Scenario:
        plain = super().scenario()
        values = {each.name: getattr(plain, each.name) for each in fields(plain)}
        return ProgramScenario(**values | {"checkpoint": True, "programs": ("w",)})


# In the suite, the first races are tried at a fifth of the steps and at a share of the pairs of steps. The other
# races are tried at fewer steps.
FIRST_RACES = 5
FIRST_SHARE = 1 / 5
OTHERS_SHARE = 1 / 30
# The number of steps of the other driver before which the suite cuts the power: long races have hundreds.
CUTS_MAX = 2
RACES = [
    Race("zombie and successor", (Batch("b", batch_id=1),), (Batch("b", batch_id=1), Batch("c", batch_id=2))),
    Race("two queries", (Batch("b", batch_id=1),), (Batch("c", query="q"),)),
    Race("compaction and overwrite", (COMPACT,), (Batch("c", "overwrite", query="q"),)),
    Race("two compactions", (COMPACT,), (replace(COMPACT, query="too"),)),
    ProgramRace(
        "two processes of a program",
        (Batch("b", query="w"), Batch("c", query="w", batch_id=1)),
        (Batch("b", query="w"), Batch("c", query="w", batch_id=1)),
        is_replaced=True,
    ),
    Race("two sorts", (SORT,), (replace(SORT, query="too"),), CSV, before=UNSORTED),
    Race("sort and compaction", (SORT,), (replace(COMPACT, query="too"),), CSV, before=UNSORTED),
    Race("sort and overwrite", (SORT,), (Batch("c", "overwrite", query="q"),), CSV, before=UNSORTED),
    Race("compaction and append", (COMPACT,), (Batch("c", query="q"),)),
    Race("two overwrites", (Batch("b", "overwrite", batch_id=1),), (Batch("c", "overwrite", query="q"),)),
    Race("compaction and drop", (COMPACT,), (DROP,)),
    Race("drop and append", (DROP,), (Batch("b", batch_id=1),)),
    Race("one transaction twice", (Batch("b", "transaction", "app"),), (Batch("b", "transaction", "app"),)),
    Race("zombie that is ahead", (Batch("b", batch_id=1), Batch("c", batch_id=2)), (Batch("b", batch_id=1),)),
    Race("drop and a flush", (DROP,), (), ROLLING),
    Race("two flushes", (), (), ROLLING),
    Race(
        "batches and a flush",
        (Batch("bc", batch_id=1), Batch("", batch_id=2)),
        (),
        (*ROLLING, ("maxRecordsPerFile", "2")),
    ),
    Race(
        "two queries with open files",
        (Batch("b", batch_id=1), Batch("", batch_id=2)),
        (Batch("c", query="q"), Batch("", query="q", batch_id=1)),
        (*ROLLING, ("maxRecordsPerFile", "1")),
    ),
    Race(
        "open files and overwrite",
        (Batch("b", batch_id=1), Batch("", batch_id=2)),
        (Batch("c", "overwrite", query="q"),),
        (*ROLLING, ("maxRecordsPerFile", "1")),
    ),
    Race(
        "open files and an overwrite of partitions",
        (Batch("b", batch_id=1), Batch("", batch_id=2)),
        (Batch("cb", "replace", query="q"),),
        (*ROLLING, ("maxRecordsPerFile", "1")),
        partitioned=True,
    ),
    Race(
        "open files and compaction",
        (Batch("b", batch_id=1), Batch("", batch_id=2)),
        (COMPACT,),
        (*ROLLING, ("maxRecordsPerFile", "1")),
    ),
    Race("restore and append", (RESTORE,), (Batch("b", batch_id=1),), before=(DROP,)),
    Race("restore and compaction", (RESTORE,), (COMPACT,), before=(REPLACED,)),
    Race("restore and overwrite", (RESTORE,), (Batch("c", "overwrite", query="q"),), before=(DROP,)),
    Race("two restores", (RESTORE,), (replace(RESTORE, query="too"),), before=(DROP,)),
    Race(
        "restore and open files",
        (RESTORE,),
        (Batch("b", batch_id=1), Batch("", batch_id=2)),
        (*ROLLING, ("maxRecordsPerFile", "1")),
        before=(DROP,),
    ),
    Race("delete and compaction", (DELETE,), (COMPACT,)),
    Race("delete and append", (DELETE,), (Batch("b", batch_id=1),)),
    Race("delete and overwrite", (DELETE,), (Batch("c", "overwrite", query="q"),)),
    Race("two deletes", (DELETE,), (replace(DELETE, query="too"),)),
    Race("delete and a flush", (DELETE,), (), ROLLING),
    Race(
        "delete and open files",
        (DELETE,),
        (Batch("b", batch_id=1), Batch("", batch_id=2)),
        (*ROLLING, ("maxRecordsPerFile", "1")),
    ),
    ProgramRace("a program and a query", (Batch("b", query="w"),), (Batch("c", batch_id=1),)),
    ProgramRace("a program and a compaction", (Batch("b", query="w"),), (COMPACT,)),
    ProgramRace("a program and a restore", (Batch("b", query="w"),), (RESTORE,), before=(DROP,)),
    ProgramRace("a program and a delete", (Batch("", query="w"), Batch("b", query="w", batch_id=1)), (DELETE,)),
    ProgramRace(
        "a program and a flush",
        (Batch("bc", query="w"), Batch("", query="w", batch_id=1)),
        (),
        (*ROLLING, ("maxRecordsPerFile", "2")),
    ),
    ProgramRace(
        "two processes of a program with open files",
        (Batch("b", query="w"), Batch("c", query="w", batch_id=1)),
        (Batch("b", query="w"), Batch("c", query="w", batch_id=1)),
        (*ROLLING, ("maxRecordsPerFile", "1")),
        is_replaced=True,
    ),
    StoreRace("two queries into a store", (Batch("ab", batch_id=2),), (Batch("Ac", query="q"),)),
    StoreRace("compaction of a store and append", (COMPACT,), (Batch("Ab", query="q"),)),
    StoreRace("an operator and a query", (Batch("ab", "window", "w"),), (Batch("Ac", batch_id=2),)),
]


class Ring:
    """Runs a race repeatedly from the same start."""

    def __init__(self, race: Race, storage: Storage = "disk", seed: int = 0) -> None:
        self.race = race
        self.selection = Alike(seed)
        self.scenario = race.scenario()
        self._start = self.scenario.start(storage)
        self._checked: set[bytes] = set()
        self._passed = Passed()
        self.runs = 0

    def run(self, *schedule: tuple[str, int]) -> dict[str, int]:
        """Run under a schedule, check new states, and return the number of calls of each driver."""
        fs, calls = self.race_once(*schedule)
        with prefixed(f"{self.race.name}, {schedule}"):
            if (digest := fs.digest()) not in self._checked:
                self._checked.add(digest)
                self.check(fs)
        return calls

    def check(self, fs: CrashingFileSystem) -> None:
        """Check the disk after both drivers, finish the open files, and check it again."""
        if self.scenario.flush:
            notes = [batch.note for batch in self.scenario.batches]
            self.scenario.check(fs, notes)
            self.scenario.play(fs, 3, notes, lambda _: None)
        self.scenario.check_finished(fs)

    def calls_alone(self) -> dict[str, int]:
        """Return the number of calls of each driver if it runs before the other."""
        return {name: self.run((name, TO_THE_END))[name] for name in ("first", "second")}

    def race_once(self, *schedule: tuple[str, int]) -> tuple[CrashingFileSystem, dict[str, int]]:
        fs = self._start.filesystem()
        turns = Turns(schedule)
        self.runs += 1
        first, second = self.race.first, self.race.second
        errors = turns.run(
            {
                "first": lambda: self.drive(fs, turns, "first", 1, first),
                "second": lambda: self.drive(fs, turns, "second", 2, second),
            }
        )
        for name, error in errors.items():
            if error is not None:
                raise AssertionError(f"{self.race.name}, {schedule}: {name} failed: {error!r}") from error
        return fs, turns.calls

    def drive(self, fs: CrashingFileSystem, turns: Turns, name: str, run: int, batches: tuple[Batch, ...]) -> None:
        own = TurnsFileSystem(fs, name, turns)
        for step, batch in enumerate(batches):
            IDS.start(run, step)
            query = self.scenario.query(own, batch.query, run, driver=name)
            # The committer of the batch may delete an empty directory that a task has just created.
            query.attempts = 4
            try:
                self.scenario.run_batch(batch, query, run=2)
            except Fenced:
                if isinstance(self.race, ProgramRace) and self.race.is_replaced:
                    return
                raise
            fs.note(batch.note)
        if not batches:
            IDS.start(run, 0)
            flush(self.scenario.query(own, "a", run, driver=name).path, context=current())

    def crash(self, seen: set[tuple[bytes, tuple[str, ...]]], *schedule: tuple[str, int]) -> dict[str, int]:
        """Run under a schedule, cut the power at every moment of it, and recover."""
        fs, calls = self.race_once(*schedule)
        for state in filter(self.selection.is_tried, crash_states(fs, seen=seen)):
            with prefixed(f"{self.race.name}, {schedule}, {state}"):
                survived = state.filesystem()
                old_names = self.scenario.check(survived, state.notes, state.loss.old_names).old_names
                is_known = self._passed.on(survived, old_names)
                if self.scenario.play(survived, 3, state.notes, survived.note, is_known):
                    self.scenario.check_finished(survived, old_names)
        return calls


@pytest.fixture(params=[True, False], ids=["with checkpoints", "without checkpoints"])
def with_checkpoints(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checkpoints and ranges at about every second version, or none."""
    if request.param:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
    with repeatable(CLOCK, IDS):
        yield


@pytest.mark.usefixtures("with_checkpoints")
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_the_other_runs_wholly_between_any_two_calls(race: Race, seed: int) -> None:
    ring = Ring(race)
    calls = ring.calls_alone()
    share = FIRST_SHARE if race in RACES[:FIRST_RACES] else OTHERS_SHARE
    for name, other in (("first", "second"), ("second", "first")):
        for step in some(range(calls[name] + 1), seed, share):
            ring.run((name, step), (other, TO_THE_END))
    assert ring.runs > 70 * share


@pytest.mark.usefixtures("with_checkpoints")
@pytest.mark.parametrize("publish", ["copy", "direct"])
def test_the_other_runs_wholly_between_any_two_calls_on_s3(publish: str, seed: int) -> None:
    ring = Ring(replace(RACES[0], options=(("publish", publish),)), "s3")
    calls = ring.calls_alone()
    for name, other in (("first", "second"), ("second", "first")):
        for step in some(range(calls[name] + 1), seed, FIRST_SHARE):
            ring.run((name, step), (other, TO_THE_END))
    assert ring.runs > 50 * FIRST_SHARE


@pytest.mark.parametrize("with_checkpoints", [False], indirect=True)
@pytest.mark.parametrize("race", RACES[:FIRST_RACES], ids=lambda race: race.name)
@pytest.mark.usefixtures("with_checkpoints")
def test_every_pair_of_steps(race: Race, seed: int) -> None:
    ring = Ring(race)
    calls = ring.calls_alone()
    for step in some(range(1, calls["first"]), seed):
        for other_step in some(range(1, calls["second"]), seed, FIRST_SHARE):
            ring.run(("first", step), ("second", other_step), ("first", TO_THE_END))


@pytest.mark.parametrize("with_checkpoints", [False], indirect=True)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
@pytest.mark.usefixtures("with_checkpoints")
def test_power_is_cut_while_both_run(race: Race, seed: int) -> None:
    ring = Ring(race, seed=seed)
    seen: set[tuple[bytes, tuple[str, ...]]] = set()
    calls = ring.crash(seen, ("first", TO_THE_END))
    steps = range(calls["first"] + 1)
    for step in some(steps, seed, min(SHARE, CUTS_MAX / len(steps))):
        ring.crash(seen, ("first", step), ("second", TO_THE_END))
    print(f"{race.name}: {len(seen)} different states of {ring.runs} races, {ring.selection.tried} tried")
    assert len(seen) > (200 if THOROUGH else 10)
