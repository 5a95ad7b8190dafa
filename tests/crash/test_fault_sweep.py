"""A fault at every call of write, commit, publish and replay: each row is stored once, with or without an error."""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import TYPE_CHECKING, TypeVar, cast

import pytest

from ftfile.core.errors import CorruptData, Fenced, FtfileError
from ftfile.filters import aes_gcm
from ftfile.filters.keys import forget_keys
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.storage.registry import WrapperFile, WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import fault_sweep
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from tests.crash.faults import FAULTS
from tests.crash.programs import PROGRAM, PROGRAM_AND_QUERY, PROGRAM_ENCRYPTED, PROGRAM_ROLLING, PROGRAM_THAT_RETRIES
from tests.crash.scenarios import (
    BATCHES,
    COMPRESSED,
    ENCRYPTED,
    NAMED,
    PARTITIONED,
    REPEATING,
    REPLACING,
    RESTORING,
    ROLLING,
    VACUUMED,
)
from tests.crash.share import THOROUGH
from tests.crash.stores import REBUCKETED_STORE, REPLACED_STORE, STORE, TWO_INTO_A_STORE, WIDENED_STORE, StoreScenario
from tests.crash.world import CLOCK, CRASH_KEYS, IDS, Batch, Scenario, prefixed
from tests.unit.writing.files.encrypted import FIRST, ring_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem, InputFile
    from ftfile.testing.checker import DirectoryReport
    from ftfile.testing.fs.faulty import Fault
    from ftfile.testing.fs.volume import Storage
    from ftfile.writing.messages import TaskCommit

pytestmark = pytest.mark.slow

Result = TypeVar("Result")

SCENARIOS = [
    *(BATCHES, COMPRESSED, ENCRYPTED, NAMED, PARTITIONED, REPLACING, REPEATING, RESTORING, ROLLING, VACUUMED),
    *(STORE, REPLACED_STORE, REBUCKETED_STORE, TWO_INTO_A_STORE, WIDENED_STORE),
    *(PROGRAM, PROGRAM_AND_QUERY, PROGRAM_ENCRYPTED, PROGRAM_ROLLING),
]
FIRST_READS = 12
# The other options are not supported under final names.
DIRECT = (("publish", "direct"),)
WRITTEN_DIRECTLY = [
    dataclasses.replace(each, options=DIRECT)
    for each in SCENARIOS
    if not each.options and not isinstance(each, StoreScenario)
]
STORAGE_KINDS: dict[str, tuple[Storage, list[Scenario]]] = {
    "disk": ("disk", SCENARIOS),
    "hdfs": ("hdfs", SCENARIOS),
    "webhdfs": ("webhdfs", SCENARIOS),
    "s3": ("s3", SCENARIOS),
    "s3 direct": ("s3", WRITTEN_DIRECTLY),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Draw from the matrix of storage systems, scenarios and faults: each system runs each fault and each scenario.

    If the scenario is fixed, the disk runs with each fault, and each other storage system with two faults.
    """
    rng = random.Random(metafunc.config.option.seed)
    if "model" in metafunc.fixturenames:
        drawn = {model: FAULTS if THOROUGH or model == "disk" else rng.sample([*FAULTS], 2) for model in STORAGE_KINDS}
        models = [pytest.param(model, FAULTS[name], id=f"{model}-{name}") for model in drawn for name in drawn[model]]
        metafunc.parametrize(("model", "fault"), models)
    if "storage" not in metafunc.fixturenames:
        return
    cells = []
    for storage, (_, scenarios) in STORAGE_KINDS.items():
        dealt = itertools.cycle(rng.sample(scenarios, len(scenarios)))
        pairs = itertools.product(scenarios, FAULTS) if THOROUGH else zip(dealt, FAULTS, strict=False)
        cells += [pytest.param(storage, *pair, id=f"{storage}-{pair[0].name}-{pair[1]}") for pair in pairs]
    metafunc.parametrize(("storage", "scenario", "fault"), cells)


@pytest.fixture(autouse=True)
def repeatable_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
    monkeypatch.setenv(CRASH_KEYS.partition(":")[2], ring_text(first=FIRST))
    # Fixed random bytes: states without another difference are equal.
    monkeypatch.setattr(aes_gcm, "random_bytes", lambda count: (IDS.unique() * 2).encode()[:count])
    with repeatable(CLOCK, IDS):
        yield
    forget_keys()


class Sweep:
    """Runs a scenario with the last batch replayed, and keeps the batches that Spark recorded in the run."""

    def __init__(self, scenario: Scenario, storage: Storage = "disk") -> None:
        self.scenario = scenario
        self.recorded: list[str] = []
        self.seen: set[tuple[bytes, tuple[str, ...], bool]] = set()
        self._finished: set[bytes] = set()
        self._start = scenario.start(storage)

    def make(self) -> FileSystem:
        return self._start.filesystem()

    def run(self, fs: FileSystem) -> None:
        self.recorded = list(self._start.notes)
        self.scenario.play(fs, 1, self.recorded, self.recorded.append)
        self.recorded.pop()  # the last commit returned, and Spark died before it recorded the commit
        self.scenario.play(fs, 2, self.recorded, self.recorded.append)

    def check(self, fs: FileSystem, *, survived: bool) -> None:
        """Check the disk after the fault if it is new. Then the stream must continue as if there had been no fault."""
        assert isinstance(fs, CrashingFileSystem)
        left = fs.digest(), tuple(self.recorded), survived
        if left in self.seen:
            return
        self.seen.add(left)
        earlier = self.scenario.check(fs, self.recorded)
        if survived:
            self._check_finished(fs)
        self.scenario.play(fs, 3, self.recorded, self.recorded.append)
        self._check_finished(fs)
        direct = self.scenario.options == DIRECT
        keyed = self.scenario.with_keys(fs)
        check_directory(keyed, earlier=earlier, rows_of=self.scenario.rows_of, direct=direct)

    def _check_finished(self, fs: CrashingFileSystem) -> None:
        """Check a disk at the end, unless an equal disk was checked."""
        if (digest := fs.digest()) not in self._finished:
            self.scenario.check_finished(fs)
            self._finished.add(digest)


def test_a_fault_at_every_call(storage: str, scenario: Scenario, fault: str, seed: int) -> None:
    """Inject a fault at every call.

    The suite tries every 20th call, and every 60th of the longest scenario, chosen by the seed.
    """
    step = 1 if THOROUGH else 60 if scenario.vacuum else 20
    first = dataclasses.replace(FAULTS[fault], at=FAULTS[fault].at + seed % step)
    sweep = Sweep(scenario, STORAGE_KINDS[storage][0])
    survived = raised = 0
    for run in fault_sweep(first, sweep.make, sweep.run, step):
        with prefixed(str(run)):
            sweep.check(run.file_system, survived=run.error is None)
        survived += run.error is None
        raised += run.error is not None
    assert survived + raised > 40 / step
    assert raised or not THOROUGH, "no fault raised an error"


def batches_on(model: str) -> tuple[Callable[[], FileSystem], Scenario]:
    """Return a function that creates an empty storage system, and `BATCHES` in the form for this storage."""
    storage, scenarios = STORAGE_KINDS[model]
    scenario = next(each for each in scenarios if each.name == BATCHES.name)
    return lambda: CrashingFileSystem(clock=CLOCK, storage=storage), scenario


def checked(scenario: Scenario, fs: FileSystem) -> DirectoryReport:
    return check_directory(fs, direct=scenario.options == DIRECT)


def test_a_fault_at_every_call_of_a_commit_that_is_called_again(model: str, fault: Fault) -> None:
    """Repeat the commit with the same messages: its outcome may be unknown, and its files may be committed."""
    make, scenario = batches_on(model)
    messages: list[TaskCommit] = []
    batch = scenario.batches[0]

    def written() -> FileSystem:
        fs = make()
        messages[:] = scenario.query(fs, "a").run_tasks(0, scenario.deal(batch, tasks=2))
        return fs

    def commit(fs: FileSystem) -> None:
        scenario.query(fs, "a").commit(0, messages)

    for run in fault_sweep(fault, written, commit):
        with prefixed(str(run)):
            commit(run.file_system)
            report = scenario.check(run.file_system, [batch.note])
            assert report.live_rows == report.visible_rows == batch.rows


def test_a_fault_at_every_call_of_a_batch_write(model: str, fault: Fault) -> None:
    """Without a batch id, a second try is another write: a successful try is stored once, a failed one at most once."""
    make, scenario = batches_on(model)
    batch = Batch("ab")

    def write(fs: FileSystem) -> None:
        scenario.query(fs, "a").run_batch_write(current().ids.unique(), scenario.deal(batch, tasks=2))

    for run in fault_sweep(fault, make, write):
        with prefixed(str(run)):
            rows = checked(scenario, run.file_system).live_rows
            assert rows == batch.rows or (not rows and run.error is not None), rows
            write(run.file_system)
            assert checked(scenario, run.file_system).visible_rows == rows + batch.rows


def test_a_fault_at_every_call_of_a_transaction_that_is_repeated(model: str, fault: Fault) -> None:
    """For every outcome of the first try, the rows are stored once after the second try."""
    make, scenario = batches_on(model)
    batch = Batch("ab", "transaction", "app", 7)

    def write(fs: FileSystem) -> None:
        scenario.run_batch(batch, scenario.query(fs, "app"))

    for run in fault_sweep(fault, make, write):
        with prefixed(str(run)):
            rows = checked(scenario, run.file_system).live_rows
            assert rows == batch.rows or (not rows and run.error is not None), rows
            write(run.file_system)
            assert checked(scenario, run.file_system).visible_rows == batch.rows


@pytest.mark.parametrize("times", [1, 2, 3, 5, 9, 20])
def test_errors_in_a_row_of_a_program_that_reacts(times: int, seed: int) -> None:
    """A program commits again, aborts, and writes again; its reactions fail, too. No reaction fences its own process.

    The suite draws an error for each number of errors, and tries every 20th call.
    """
    step = 1 if THOROUGH else 20
    faults = [fault for fault in FAULTS.values() if fault.times == 1]
    sweep, raised = Sweep(PROGRAM_THAT_RETRIES), 0
    for fault in faults if THOROUGH else [faults[(seed + times) % len(faults)]]:
        first = dataclasses.replace(fault, at=seed % step, times=times)
        for run in fault_sweep(first, sweep.make, sweep.run, step):
            with prefixed(str(run)):
                assert not isinstance(run.error, Fenced)
                sweep.check(run.file_system, survived=run.error is None)
            raised += run.error is not None
    assert raised or not THOROUGH


class Damaged(WrapperFileSystem, PickledByReference):
    """Flips a bit in the result of the n-th read."""

    def __init__(self, inner: FileSystem, at: int) -> None:
        super().__init__(inner)
        self.reads = 0
        self._at = at

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        result = super().around(operation, path, call)
        return cast("Result", self.damaged(result)) if isinstance(result, bytes) else result

    def damaged(self, content: bytes) -> bytes:
        self.reads += 1
        if self.reads - 1 != self._at or not content:
            return content
        middle = len(content) // 2
        return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_flipped_bit_in_every_read(scenario: Scenario, seed: int) -> None:
    """Flip a bit in every read.

    The suite tries the first reads, which read every kind of file, and every 14th of the remaining reads.
    """
    sweep, step = Sweep(scenario), 1 if THOROUGH else 14
    noticed, at = 0, 0
    while True:
        inner = sweep.make()
        damaged = Damaged(inner, at)
        error: FtfileError | None = None
        try:
            sweep.run(damaged)
        except FtfileError as raised:
            error = raised
        if damaged.reads <= at:
            break
        with prefixed(f"read {at}: {error!r}"):
            assert error is None or isinstance(error, CorruptData)
            sweep.check(inner, survived=error is None)
        noticed += error is not None
        at += 1 if at < FIRST_READS else step + (at == FIRST_READS) * (seed % step)
    assert noticed or not THOROUGH
