"""Every crash of an operator's store: windows that had ended are restored, and each is recorded once.

The operator's input has windows 0 to 7 and a note of the ended ones. For every moment, every disk that a power
cut or a kill may leave is opened again, with and without a restore. Then the operator continues, and in the end the
store has the content of a dict.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ftfile.core.errors import CorruptData, Fenced, FtfileError
from ftfile.kv.operator.store import KeyValueStore
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.wal import Opening, list_wal, opening_of
from ftfile.storage.registry import register
from ftfile.testing.context import current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem, CrashState, KillState, crash_states, kill_states
from ftfile.testing.fs.faulty import fault_sweep
from ftfile.writing.options import forget_logs
from tests.crash.faults import FAULTS
from tests.crash.share import RECOVERIES_SHARE, THOROUGH, some
from tests.crash.world import CLOCK, IDS, prefixed
from tests.kit.store_check import check_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.storage.api import FileSystem

pytestmark = pytest.mark.slow

WINDOWS = 8
RUNS = itertools.count(1)
STORAGE_KINDS = ["disk", "hdfs", "s3"]
CHECKED = 20  # every 20th recovery is checked as a store: a check takes half as long as a recovery
STATES_MIN = {"disk": 1_000, "hdfs": 300, "s3": 40}


@pytest.fixture(autouse=True)
def one_world() -> Iterator[None]:
    with repeatable(CLOCK, IDS):
        yield


def open_store(fs: FileSystem, **options: Any) -> KeyValueStore:
    IDS.start(next(RUNS), 0)
    register("operator", lambda _: fs)
    forget_logs()
    shape: dict[str, Any] = {"keys": {"word": "string"}, "values": {"n": "long"}, "merge": "sum", "buckets": 2}
    files: dict[str, Any] = {"maintenance": "none", "context": current()}
    return KeyValueStore("operator://store", writer="w", **shape, **files, **options)


def change(target: Any, number: int) -> None:
    """Apply the changes of a window to a store or to a dict."""
    target.merge("all", 1)
    target.put(f"k{number}", number)
    if number == 2:
        target.delete("k0")
    if number == 4:
        target.purge("k1", "k3")
        target.merge("k1", 10)
    if number == 6:
        target.delete("all")
        target.merge("all", 5)


class Model(dict[str, int]):
    """A store in memory."""

    def merge(self, key: str, value: int) -> None:
        self[key] = self.get(key, 0) + value

    def put(self, key: str, value: int) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)

    def purge(self, start: str, end: str) -> None:
        for key in [key for key in self if start <= key < end]:
            del self[key]


def expected(last: int) -> dict[str, int]:
    model = Model()
    for number in range(last + 1):
        change(model, number)
    return model


KEYS = sorted({key for last in range(WINDOWS) for key in expected(last)} | {"none"})


def play(store: KeyValueStore, note: Callable[[str], None]) -> None:
    """Write the remaining windows, record some of them at a time, and the last two at once."""
    for number in range(store.last_window + 1, WINDOWS - 2):
        store.begin_window(number)
        change(store, number)
        store.end_window()
        note(f"ended {number}")
        store.checkpointed(number)
        if number % 3 == 2:
            store.committed(number - 1)
            note(f"recorded {number - 1}")
    for number in range(max(store.last_window + 1, WINDOWS - 2), WINDOWS):
        change(store, number)
        store.commit(number)
        note(f"ended {number}")
        note(f"recorded {number}")
    store.committed(WINDOWS - 1)
    note(f"recorded {WINDOWS - 1}")
    store.close()


class Known(NamedTuple):
    """The input's notes of windows: the last that ended, the last that may have ended, and the last recorded."""

    ended: int
    maybe: int
    recorded: int


def known(notes: Sequence[str]) -> Known:
    ended = maybe = recorded = -1
    for note in notes:
        what, _, number = note.rpartition(" ")
        if what == "recorded":
            recorded = int(number)
        else:
            ended = int(number)
            maybe = max(maybe, ended) if what == "back to" else ended
    return Known(ended, maybe, recorded)


def check(store: KeyValueStore, notes: Sequence[str], restore: int | None = None) -> None:
    ended, maybe, recorded = known(notes)
    assert recorded <= store.recorded_window <= maybe + 1
    if restore is None:
        assert ended <= store.last_window <= maybe + 1, f"windows up to {store.last_window} were restored"
    else:
        assert store.last_window == restore
    committed, all_windows = expected(store.recorded_window), expected(store.last_window)
    assert {key: store.get(key) for key in KEYS} == {key: committed.get(key) for key in KEYS}
    assert {key: store.read(key) for key in KEYS} == {key: all_windows.get(key) for key in KEYS}


def check_finished(fs: FileSystem) -> None:
    """Check the rows, that versions record each window once, and that epochs increase."""
    with open_store(fs) as store:
        check(store, (f"ended {WINDOWS - 1}", f"recorded {WINDOWS - 1}"))
        assert {key: store.get(key) for key in KEYS} == {key: expected(WINDOWS - 1).get(key) for key in KEYS}
    log = CommitLog(fs)
    openings, windows = [], []
    for version in range(log.refresh().version + 1):
        record = log.read_record(version)
        assert record is not None
        openings += [Opening(*change["set"]["w"]) for table, change in record.tables.items() if table == "operators"]
        transaction = getattr(record.author, "transaction", None)
        windows += [transaction.version] if transaction is not None else []
    assert openings == sorted(set(openings))
    assert opening_of(log.refresh(), "w") == openings[-1]
    assert openings[-1].is_owner
    assert windows == sorted(set(windows))
    assert list_wal(fs, "w") == []


class Exploration:
    """The seen states: digests of disks, with the windows that the input knew."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.seen: set[tuple[bytes, tuple[str, ...]]] = set()
        self.recoveries = 0

    def explore(self, storage: Any) -> None:
        whole = CrashingFileSystem(clock=CLOCK, storage=storage)
        play(open_store(whole), whole.note)
        finished = whole.after_kill(len(whole.journal))
        check_finished(finished)
        check_store(finished)
        states: list[CrashState | KillState] = [*kill_states(whole), *crash_states(whole, seen=self.seen)]
        for state in some(states, self.seed, RECOVERIES_SHARE):
            for restores in (False, True):
                recovered = self.recover(state, restores=restores)
            again_crashed = [*itertools.islice(crash_states(recovered, seen=self.seen), 200)]
            for again in some(again_crashed, self.seed, RECOVERIES_SHARE) if again_crashed else ():
                self.recover(again, before=f"{state}; then, in the recovery, ")

    def recover(self, state: CrashState | KillState, *, restores: bool = False, before: str = "") -> CrashingFileSystem:
        fs = state.filesystem()
        self.recoveries += 1
        with prefixed(f"{before}{state}, {'with' if restores else 'without'} a restore"):
            options: dict[str, Any] = {}
            if restores:
                with open_store(fs) as first:
                    recorded = first.recorded_window
                options = {"restore": max(recorded, known(state.notes).ended - 1)}
                # The input has no windows after its checkpoint.
                fs.note(f"back to {options['restore']}")
            store = open_store(fs, **options)
            check(store, state.notes, options.get("restore"))
            play(store, fs.note)
            check_finished(fs)
            if self.recoveries % CHECKED == self.seed % CHECKED:
                check_store(fs)
        return fs


@pytest.mark.parametrize("storage", STORAGE_KINDS)
def test_k8_and_k9_hold_after_every_crash(
    storage: str, seed: int, record_property: Callable[[str, object], None]
) -> None:
    exploration = Exploration(seed)
    exploration.explore(storage)
    record_property("crash_states", len(exploration.seen))
    print(f"{storage}: {len(exploration.seen)} states, {exploration.recoveries} recoveries")
    assert len(exploration.seen) >= STATES_MIN[storage]


def lose_log(fs: FileSystem) -> None:
    for info in fs.list(layout.LOG):
        fs.delete(info.path)


@pytest.mark.parametrize("storage", STORAGE_KINDS)
def test_a_log_that_is_lost_is_told_of_after_every_crash(storage: Any, seed: int) -> None:
    """Includes a process that was killed between the first record and its hint: the next process writes the hint."""
    whole = CrashingFileSystem(clock=CLOCK, storage=storage)
    play(open_store(whole), whole.note)
    every: list[CrashState | KillState] = [*kill_states(whole), *crash_states(whole)]
    for state in some(every, seed, 0.03):
        left = state.filesystem()
        with prefixed(str(state)):
            # A kill does not undo the files of a process that has opened the store. A power cut may undo them.
            if not (isinstance(state, KillState) and state.notes):
                open_store(left).close()
            lose_log(left)
            with pytest.raises(CorruptData, match="lost its newest records"):
                open_store(left)
            assert not left.list(layout.LOG)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("storage", STORAGE_KINDS)
def test_a_fault_at_every_call(storage: Any, fault: str, seed: int) -> None:
    """After any fault, the restarted process resumes after the windows that had ended."""
    notes: list[str] = []

    def scenario(fs: FileSystem) -> None:
        notes.clear()
        play(open_store(fs), notes.append)

    step = 1 if THOROUGH else 50
    first = dataclasses.replace(FAULTS[fault], at=FAULTS[fault].at + seed % step)
    runs = 0
    for run in fault_sweep(first, lambda: CrashingFileSystem(clock=CLOCK, storage=storage), scenario, step):
        runs += 1
        with prefixed(str(run)):
            again = open_store(run.file_system)
            check(again, notes)
            play(again, lambda _: None)
            check_finished(run.file_system)
    assert runs >= 50 // step


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_failed_is_repeated(fault: str, seed: int) -> None:
    """The same process continues after a fault: each call is repeated until it succeeds."""
    if fault.endswith("from then on"):
        pytest.skip("the fault never ends")
    step = 1 if THOROUGH else 24

    def again(call: Callable[[], Any]) -> Any:
        for _ in range(5):
            try:
                return call()
            except Fenced:
                raise
            except FtfileError:
                continue
        return call()

    def scenario(fs: FileSystem) -> None:
        store = again(lambda: open_store(fs))
        for number in range(WINDOWS):
            store.begin_window(number)
            change(store, number)
            again(store.end_window)
            if number % 3 == 2:
                again(functools.partial(store.committed, number - 1))
        again(functools.partial(store.committed, WINDOWS - 1))
        again(store.refresh)
        final = {key: expected(WINDOWS - 1).get(key) for key in KEYS}
        assert {key: again(functools.partial(store.get, key)) for key in KEYS} == final
        store.close()

    first = dataclasses.replace(FAULTS[fault], at=FAULTS[fault].at + seed % step)
    for run in fault_sweep(first, lambda: CrashingFileSystem(clock=CLOCK), scenario, step):
        with prefixed(str(run)):
            assert run.error is None, run.error
            check_finished(run.file_system)
