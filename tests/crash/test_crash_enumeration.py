"""Every crash of a stream, and every crash of its recovery: write, commit, publish, and their repetitions.

A scenario runs once on a file system that keeps a journal. For every moment of the run, every disk that a power cut may
leave is checked. Then Spark restarts on it and continues to the end, and the directory is checked again. The same is
done for a process that is killed at every moment. Then power is cut at every moment of these recoveries. The suite
tries a share of the recoveries, and `make long` all of them. Of similar disks, the suite tries a few.
"""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import AlreadyExists, OutcomeUnknown
from ftfile.filters import aes_gcm
from ftfile.filters.keys import forget_keys
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import StreamAuthor
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem, CrashState, KillState, crash_states, kill_states
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from tests.crash.alike import Alike
from tests.crash.programs import PROGRAM, PROGRAM_AND_QUERY, PROGRAM_ENCRYPTED, PROGRAM_ROLLING
from tests.crash.scenarios import (
    BATCHES,
    COMPACTING,
    COMPRESSED,
    DELETING,
    DELETING_OPEN,
    DIRECT,
    ENCRYPTED,
    NAMED,
    ONE_PROCESS,
    PARTITIONED,
    REPEATING,
    REPLACING,
    REPLACING_PARTITIONS,
    RESTORING,
    RESTORING_OPEN,
    ROLLING,
    SORTING,
    TWO_QUERIES,
    TWO_ROLLING,
    UNDOING,
    VACUUMED,
    WINDOWS,
)
from tests.crash.share import RECOVERIES_SHARE, THOROUGH, some
from tests.crash.stores import (
    ENCRYPTED_STORE,
    REBUCKETED_STORE,
    REPLACED_STORE,
    STORE,
    TWO_INTO_A_STORE,
    WIDENED_STORE,
)
from tests.crash.world import CLOCK, CRASH_KEYS, IDS, Passed, Scenario, never, prefixed
from tests.unit.writing.files.encrypted import FIRST, ring_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ftfile.testing.fs.volume import Storage

pytestmark = pytest.mark.slow

# Lower bounds of the number of distinct states if all are tried: with fewer states, the exploration is broken.
STATES_MIN = {
    BATCHES: 8_000,
    COMPACTING: 1_000,
    COMPRESSED: 4_000,
    DELETING: 2_000,
    DELETING_OPEN: 20_000,
    NAMED: 5_000,
    ONE_PROCESS: 2_000,
    PARTITIONED: 4_000,
    PROGRAM: 2_000,
    PROGRAM_AND_QUERY: 1_500,
    PROGRAM_ROLLING: 12_000,
    REPLACING: 2_500,
    REPLACING_PARTITIONS: 700,
    RESTORING: 1_500,
    RESTORING_OPEN: 8_000,
    UNDOING: 700,
    REPEATING: 6_000,
    ROLLING: 15_000,
    SORTING: 1_000,
    TWO_QUERIES: 2_000,
    TWO_ROLLING: 15_000,
    WINDOWS: 12_000,
}
# The share of these states that the suite tries at least: the states of the first crash, and a share of the rest.
PORTION = 1 if THOROUGH else 0.008


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(CRASH_KEYS.partition(":")[2], ring_text(first=FIRST))
    # Fixed random bytes: states without another difference are equal.
    monkeypatch.setattr(aes_gcm, "random_bytes", lambda count: (IDS.unique() * 2).encode()[:count])
    yield
    forget_keys()


class Exploration:
    """The seen states of a scenario: digests of disks, with the batches that Spark had recorded by then.

    Args:
        scenario: the scenario that is crashed.
        seed: also draws the recoveries that are crashed.
        limit: greatest number of states of one moment, and of moments of a recovery; by default all.
    """

    def __init__(self, scenario: Scenario, seed: int, limit: int | None = None) -> None:
        self.scenario = scenario
        self.seed = seed
        self.limit = limit
        self.seen: set[tuple[bytes, tuple[str, ...]]] = set()
        self.selection = Alike(seed, every=THOROUGH or scenario.vacuum)
        self._finished: set[tuple[bytes, frozenset[str]]] = set()
        self._passed = Passed()

    def explore(self, storage: Storage = "disk") -> None:
        start = self.scenario.start(storage)
        whole = start.filesystem()
        self.scenario.play(whole, 1, start.notes, whole.note)
        self.scenario.check_finished(whole)
        crashed = crash_states(whole, seen=self.seen, limit_per_point=self.limit)
        states: list[CrashState | KillState] = [*kill_states(whole), *crashed]
        chosen = {id(state) for state in some(states, self.seed, RECOVERIES_SHARE)}
        for state in states:
            if isinstance(state, KillState) and id(state) not in chosen:
                continue  # a power cut can leave the same disk, and a recovery that is not crashed behaves the same
            if isinstance(state, CrashState) and not self.selection.is_tried(state) and id(state) not in chosen:
                continue
            recovered, old_names = self.recover(state, run=2, to_the_end=id(state) in chosen)
            if id(state) not in chosen:
                continue
            crashed = crash_states(recovered, seen=self.seen, limit_per_point=self.limit and 1)
            for again in filter(self.selection.is_tried, itertools.islice(crashed, self.limit)):
                self.recover(again, 3, old_names, before=f"{state}; then, in the recovery, ")

    def recover(
        self,
        state: CrashState | KillState,
        run: int,
        left: Collection[str] = (),
        before: str = "",
        *,
        to_the_end: bool = False,
    ) -> tuple[CrashingFileSystem, set[str]]:
        """Check the disk after a crash, let Spark resume on it, and check the end.

        Unless `to_the_end` is set, it stops where an earlier recovery had the same disk after the same batch.

        Args:
            state: the crash.
            run: number of this start.
            left: old names that an earlier recovery left.
            before: describes the earlier crash.
            to_the_end: never stop early.

        Returns:
            The disk after the recovery, and the old names that it may leave: only those that were on the disk of a
            crash, and belong to parts that were known as published.
        """
        fs = state.filesystem()
        with prefixed(f"{self.scenario.name}: {before}{state}"):
            lost = state.loss.old_names if isinstance(state, CrashState) else set()
            old_names = self.scenario.check(fs, state.notes, {*left, *lost}).old_names
            is_known = never if to_the_end else self._passed.on(fs, old_names)
            ended = self.scenario.play(fs, run, state.notes, fs.note, is_known)
            finished = fs.digest(), frozenset(old_names)
            if ended and finished not in self._finished:
                self._finished.add(finished)
                self.scenario.check_finished(fs, old_names)
        return fs, old_names


def explore(
    scenario: Scenario,
    record: Callable[[str, object], None],
    seed: int,
    *,
    storage: Storage = "disk",
    limit: int | None = None,
) -> int:
    began_s = time.process_time()
    exploration = Exploration(scenario, seed, limit)
    with repeatable(CLOCK, IDS):
        exploration.explore(storage)
    states, seconds = len(exploration.seen), round(time.process_time() - began_s, 1)
    record("crash_states", states)
    record("tried_states", exploration.selection.tried)
    record("processor_seconds", seconds)
    print(
        f"{scenario.name}: {states} different states, {exploration.selection.tried} tried, in {seconds} s of one core"
    )
    return states


@pytest.mark.parametrize("scenario", STATES_MIN, ids=lambda scenario: scenario.name)
def test_every_crash(scenario: Scenario, record_property: Callable[[str, object], None], seed: int) -> None:
    assert explore(scenario, record_property, seed) >= PORTION * STATES_MIN[scenario]


def test_every_crash_around_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None], seed: int
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
    monkeypatch.setattr(checkpoints, "CHECKPOINTS_KEPT", 1)
    assert explore(REPLACING, record_property, seed) >= PORTION * 5_000


def test_every_crash_around_a_vacuum(
    monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None], seed: int
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
    # Vacuum does not sync its deletions, so there are too many states to try them all.
    assert explore(VACUUMED, record_property, seed, limit=16 if THOROUGH else 4) >= (10_000 if THOROUGH else 250)


# Lower bounds that hold even if few states of a moment are tried.
STORES: dict[Scenario, int] = {
    STORE: 150,
    REPLACED_STORE: 80,
    TWO_INTO_A_STORE: 100,
    ENCRYPTED_STORE: 50,
    REBUCKETED_STORE: 100,
    WIDENED_STORE: 100,
}

# Names are durable at once on HDFS, so there are far fewer states.
ON_HDFS = {
    BATCHES: 2_000,
    PARTITIONED: 1_500,
    PROGRAM: 1_000,
    PROGRAM_AND_QUERY: 700,
    PROGRAM_ROLLING: 8_000,
    REPLACING: 600,
    REPLACING_PARTITIONS: 300,
    RESTORING: 900,
    RESTORING_OPEN: 3_500,
    DELETING: 1_000,
    DELETING_OPEN: 500,
    UNDOING: 600,
    ROLLING: 4_500,
    NAMED: 1_800,
    COMPRESSED: 2_000,
    ENCRYPTED: 2_500,
    REPEATING: 2_500,
    TWO_QUERIES: 900,
    TWO_ROLLING: 3_000,
    WINDOWS: 1_000,
}
# The number of scenarios that the suite draws for each storage system.
DRAWN = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Draw different scenarios for each of the storage systems like HDFS."""
    if "storage" not in metafunc.fixturenames:
        return
    drawn = iter(random.Random(metafunc.config.option.seed).sample([*ON_HDFS], 2 * DRAWN))
    kinds = {storage: [*ON_HDFS] if THOROUGH else [*itertools.islice(drawn, DRAWN)] for storage in ("hdfs", "webhdfs")}
    cells = [(storage, scenario) for storage, scenarios in kinds.items() for scenario in scenarios]
    metafunc.parametrize(
        ("storage", "scenario"), cells, ids=[f"{storage}-{scenario.name}" for storage, scenario in cells]
    )


def test_every_crash_on_hdfs(
    scenario: Scenario, storage: Storage, record_property: Callable[[str, object], None], seed: int
) -> None:
    assert explore(scenario, record_property, seed, storage=storage) >= PORTION * ON_HDFS[scenario]


# On S3 a file is complete or missing: the states differ only in the executed steps.
ON_S3 = {
    BATCHES: 100,
    DIRECT: 100,
    PARTITIONED: 100,
    PROGRAM: 40,
    PROGRAM_AND_QUERY: 50,
    PROGRAM_ROLLING: 150,
    REPLACING: 50,
    REPLACING_PARTITIONS: 50,
    RESTORING: 40,
    RESTORING_OPEN: 100,
    DELETING: 40,
    DELETING_OPEN: 200,
    UNDOING: 30,
    ROLLING: 100,
    NAMED: 100,
    COMPRESSED: 100,
    ENCRYPTED: 100,
    REPEATING: 100,
    TWO_QUERIES: 50,
    TWO_ROLLING: 100,
}


@pytest.mark.parametrize("scenario", ON_S3, ids=lambda scenario: scenario.name)
def test_every_crash_on_s3(scenario: Scenario, record_property: Callable[[str, object], None], seed: int) -> None:
    assert explore(scenario, record_property, seed, storage="s3") >= PORTION * ON_S3[scenario]


@pytest.mark.parametrize("encrypted", [ENCRYPTED, PROGRAM_ENCRYPTED], ids=lambda scenario: scenario.name)
def test_every_crash_of_what_is_encrypted(
    encrypted: Scenario, record_property: Callable[[str, object], None], seed: int
) -> None:
    limit = None if THOROUGH else 4  # all disks differ, because their encrypted content cannot be compared
    assert explore(encrypted, record_property, seed, limit=limit) >= PORTION * 8_000


@pytest.mark.parametrize("scenario", STORES, ids=lambda scenario: scenario.name)
def test_each_query_into_a_store_merges_runs(scenario: Scenario) -> None:
    """Check that each crashed scenario merges runs: otherwise the scenarios would not test merges."""
    with repeatable(CLOCK, IDS):
        state = scenario.start()
        fs = state.filesystem()
        scenario.play(fs, 1, state.notes, fs.note)
        log = CommitLog(scenario.with_keys(fs))
        records = [log.read_record(version) for version in range(log.refresh().version + 1)]
    authors = [record.author for record in records if record is not None and record.removes]
    merging = {author.query_id for author in authors if isinstance(author, StreamAuthor)}
    assert merging == {batch.query for batch in scenario.batches if batch.is_of_a_stream}


@pytest.mark.parametrize("scenario", STORES, ids=lambda scenario: scenario.name)
def test_every_crash_of_a_store(scenario: Scenario, record_property: Callable[[str, object], None], seed: int) -> None:
    assert explore(scenario, record_property, seed, limit=None if THOROUGH else 4) >= STORES[scenario]


class NameInDoubt(WrapperFileSystem, PickledByReference):
    """Gives records their names, fails to make the names durable, and reports that the outcome is unknown."""

    def create_exclusive(self, path: str, content: bytes) -> None:
        if not path.endswith(".record"):
            super().create_exclusive(path, content)
            return
        if self.inner.exists(path):
            raise AlreadyExists("create_exclusive", path, "something is there already")
        with self.inner.create(f"{path}.tmp") as stream:
            stream.write(content)
            stream.hsync()
        self.inner.rename(f"{path}.tmp", path)
        raise OutcomeUnknown("create_exclusive", path, "it is there, but its name could not be made durable")


def test_a_record_whose_name_is_not_durable_is_not_acted_upon(seed: int) -> None:
    with repeatable(CLOCK, IDS):
        fs = CrashingFileSystem(clock=CLOCK)
        BATCHES.play(NameInDoubt(fs), 1, (), fs.note)
        exploration = Exploration(BATCHES, seed)
        for state in crash_states(fs, seen=exploration.seen):
            exploration.recover(state, run=2)
    assert len(exploration.seen) > 200
