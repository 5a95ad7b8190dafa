"""Vacuum during a batch whose files it may delete, stopped and resumed at every pair of steps, without a retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import FtfileError
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.testing.context import current, open_filesystem, repeatable
from ftfile.testing.fs.crashing import crash_states
from tests.crash.share import THOROUGH, some
from tests.crash.turns import TO_THE_END, Turns, TurnsFileSystem
from tests.crash.world import CLOCK, IDS, Batch, Scenario, prefixed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ftfile.testing.fs.crashing import CrashingFileSystem

pytestmark = pytest.mark.slow

SETTLED = (Batch("a", troubled=True), Batch("b", "overwrite", batch_id=1), Batch("c", batch_id=2))
BATCHES = {
    "append": Batch("d", batch_id=3),
    "compact": Batch("", "compact", "upkeep"),
    "overwrite": Batch("d", "overwrite", batch_id=3),
    "open files": Batch("d", batch_id=3),
    "restore": Batch("a", "restore", "upkeep"),
}
ROLLING = (("rolling", "policy"), ("maxRecordsPerFile", "1"))


@pytest.fixture(autouse=True)
def _with_checkpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checkpoints and ranges at about every second version, so that vacuum deletes records, too."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
    with repeatable(CLOCK, IDS):
        yield


class Race:
    """A batch, and a vacuum that treats every file without a record as old enough."""

    def __init__(self, change: str) -> None:
        self.batch = BATCHES[change]
        first = 4 if self.batch.is_of_a_stream else 3
        more = tuple(Batch("", batch_id=batch_id) for batch_id in range(first, first + 2))
        rolls = change == "open files"
        self.stride = 2 if rolls else 1  # it makes twice as many calls
        self.scenario = Scenario(
            f"vacuum and {change}",
            (*SETTLED, self.batch, *more),
            settled=len(SETTLED),
            options=ROLLING if rolls else (),
            flush=rolls,
        )
        settled = self.scenario.start().filesystem()
        IDS.start(5, 0)
        # The horizon never passes the newest record, so one record must be as young as the files of the batch.
        log = CommitLog(open_filesystem(self.scenario.query(settled, "a").path))
        commit(log, MaintenanceAuthor("vacuum", "of nothing"), lambda *_: Body())
        self._start = next(state for state in crash_states(settled) if state.point == len(settled.journal))
        self._start_ms = CLOCK.now_ms()
        self._checked: set[tuple[bytes, tuple[str, ...], int]] = set()
        self.refused = self.runs = 0

    def run(self, *schedule: tuple[str, int]) -> dict[str, int]:
        """Run under a schedule, continue from new states, and return the number of calls of each process."""
        fs, calls = self.race_once(*schedule)
        left = fs.digest(), tuple(recorded(fs)), CLOCK.now_ms()
        with prefixed(f"{self.scenario.name}, {schedule}"):
            if left not in self._checked:
                self._checked.add(left)
                self.go_on(fs, recorded(fs))
        return calls

    def race_once(self, *schedule: tuple[str, int]) -> tuple[CrashingFileSystem, dict[str, int]]:
        fs, turns = self._start.filesystem(), Turns(schedule)
        CLOCK.set(self._start_ms)  # so that runs without another difference leave equal disks
        errors = turns.run({"batch": lambda: self.commit(fs, turns), "vacuum": lambda: self.vacuum(fs, turns)})
        self.runs += 1
        self.refused += errors["batch"] is not None
        with prefixed(f"{self.scenario.name}, {schedule}, {errors}"):
            assert errors["vacuum"] is None
            assert errors["batch"] is None or isinstance(errors["batch"], FtfileError)
            self.scenario.check(fs, recorded(fs))
        return fs, turns.calls

    def go_on(self, fs: CrashingFileSystem, notes: Sequence[str], old_names: Collection[str] = ()) -> None:
        """Finish the scenario after the vacuum, and run vacuum once more."""
        CLOCK.advance(1)
        # Files that the vacuum deleted cannot be restored.
        is_refused = self.batch.change == "restore" and self.batch.note not in notes
        if not is_refused:
            self.scenario.play(fs, 3, notes, lambda _: None)
            self.scenario.check_finished(fs, old_names)
        CLOCK.advance(1)
        IDS.start(4, 0)
        ftfile.vacuum(self.scenario.query(fs, "a").path, dry_run=False, retention="0s", force=True, context=current())
        self.scenario.check(fs, notes) if is_refused else self.scenario.check_finished(fs)

    def commit(self, fs: CrashingFileSystem, turns: Turns) -> None:
        query = self.scenario.query(TurnsFileSystem(fs, "batch", turns), "a", 1, driver="batch")
        IDS.start(1, 0)
        query.attempts = 4
        self.scenario.run_batch(self.batch, query, run=2)
        fs.note(self.batch.note)

    def vacuum(self, fs: CrashingFileSystem, turns: Turns) -> None:
        query = self.scenario.query(TurnsFileSystem(fs, "vacuum", turns), "a", 2, driver="vacuum")
        IDS.start(2, 0)
        ftfile.vacuum(query.path, dry_run=False, retention="0s", force=True, context=current())


def recorded(fs: CrashingFileSystem) -> list[str]:
    """Return the notes of the batches that ended."""
    return [batch.note for batch in SETTLED] + [step.path for step in fs.journal if step.kind == "note"]


@pytest.mark.parametrize("change", BATCHES)
def test_every_pair_of_steps(change: str, seed: int) -> None:
    race = Race(change)
    calls = race.run(("batch", TO_THE_END))
    assert race.refused == 0
    pause = (4 if THOROUGH else 12) * race.stride
    for step in some(range(calls["batch"] + 1), seed):
        for other_step in (*range(1 + seed % pause, calls["vacuum"], pause), TO_THE_END):
            race.run(("batch", step), ("vacuum", other_step), ("batch", TO_THE_END))
    print(f"{race.scenario.name}: {race.refused} of {race.runs} batches refused")
    assert race.refused < race.runs
    assert race.refused or not THOROUGH, "vacuum must interfere with the batch at some steps"


@pytest.mark.parametrize("change", BATCHES)
def test_power_is_cut_while_both_run(change: str, seed: int) -> None:
    race = Race(change)
    seen: set[tuple[bytes, tuple[str, ...]]] = set()
    calls = race.run(("batch", TO_THE_END))
    for step in some(range(0, calls["batch"] + 1, race.stride), seed):
        fs, _ = race.race_once(("batch", step), ("vacuum", TO_THE_END))
        for state in some([*crash_states(fs, seen=seen, limit_per_point=2)], seed, 1 / 2):
            survived = state.filesystem()
            with prefixed(f"{race.scenario.name}, {step}, {state}"):
                before = race.scenario.check(survived, state.notes, state.loss.old_names)
                race.go_on(survived, state.notes, before.old_names)
    print(f"{race.scenario.name}: {len(seen)} different states")
    assert len(seen) > (500 if THOROUGH else 15)
