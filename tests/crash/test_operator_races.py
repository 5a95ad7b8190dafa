"""Two processes of one writer, stopped and resumed at pairs of calls: one ends a window while the other opens.

For every order of their turns: a window that the old process acknowledged is restored. A window that it did not
acknowledge is restored only if the new process had it after opening. Each window counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

from ftfile.core.errors import Fenced, WindowOrder
from ftfile.kv.operator.store import KeyValueStore
from ftfile.storage.registry import register
from ftfile.testing.context import current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.writing.options import forget_logs
from tests.crash.share import some
from tests.crash.turns import TO_THE_END, Turns, TurnsFileSystem
from tests.crash.world import CLOCK, IDS, prefixed
from tests.kit.store_check import check_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem
    from ftfile.testing.fs.volume import Storage

pytestmark = pytest.mark.slow

Result = TypeVar("Result")

SHAPE: dict[str, Any] = {"keys": {"window": "long"}, "values": {"n": "long"}, "merge": "sum", "buckets": 1}
SHARE = 1 / 40
CHECKED = 20  # the store is checked in one of this many races


class RacingFileSystem(TurnsFileSystem):
    """The file system of one process, which waits for its turns after the race has begun."""

    is_racing = False

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        return super().around(operation, path, call) if self.is_racing else call()


class Race(NamedTuple):
    """The calls of both processes. Windows 1 and 2 have ended before, and window 1 is recorded."""

    storage: Storage
    commits: bool  # the old process commits window 3 after it has ended the window
    restore: int | None  # of the new process

    def run(self, *schedule: tuple[str, int], checks: bool = False) -> dict[str, int]:
        """Run both by a schedule, check the store, and return the number of calls of each process."""
        fs, turns = CrashingFileSystem(clock=CLOCK, storage=self.storage), Turns(schedule)
        old_fs, new_fs = RacingFileSystem(fs, "old", turns), RacingFileSystem(fs, "new", turns)
        IDS.start(1, 0)
        old = opened(old_fs, "old")
        for number in (1, 2):
            end_window(old, number)
        old.committed(1)
        acknowledged: list[str] = []
        stores: list[KeyValueStore] = []

        def end_and_commit() -> None:
            IDS.start(2, 0)
            try:
                end_window(old, 3)
                acknowledged.append("ended")
                if self.commits:
                    old.committed(3)
                    acknowledged.append("recorded")
            except Fenced:
                pass

        def open_anew() -> None:
            IDS.start(3, 0)
            try:
                stores.append(opened(new_fs, "new", restore=self.restore))
            except WindowOrder:
                assert self.commits

        old_fs.is_racing = new_fs.is_racing = True
        errors = turns.run({"old": end_and_commit, "new": open_anew})
        old_fs.is_racing = new_fs.is_racing = False
        assert not any(errors.values()), errors
        IDS.start(4, 0)
        self.check(fs, old, stores, acknowledged)
        if checks:
            check_store(fs)
        return turns.calls

    def check(self, fs: FileSystem, old: KeyValueStore, stores: list[KeyValueStore], acknowledged: list[str]) -> None:
        if stores:
            old.merge(9, 1)  # the old process has not yet seen that it is fenced
            with pytest.raises(Fenced):
                old.commit()
        new = stores[0] if stores else opened(fs, "next")
        windows = windows_of(new)
        assert new.last_window == windows[-1]
        if not stores:
            assert (new.recorded_window, windows) == (3, [1, 2, 3]), "a restore was refused without a reason"
        elif self.restore == 2:
            assert windows == [1, 2]
            assert "recorded" not in acknowledged
        else:
            assert windows in ([1, 2], [1, 2, 3])
            assert windows == [1, 2, 3] or not acknowledged, f"window {acknowledged} was acknowledged and is missing"
        assert new.recorded_window == (3 if "recorded" in acknowledged else new.recorded_window)
        end_window(new, 4)
        for call in ("open", "commit"):
            with opened(fs, "next") as again:
                assert windows_of(again) == [*windows, 4]
                if call == "commit":
                    again.committed(4)
                    assert [again.get(number) for number in (*windows, 4)] == [1] * (len(windows) + 1)


def opened(fs: FileSystem, driver: str, **options: Any) -> KeyValueStore:
    register(driver, lambda _: fs)
    forget_logs()
    return KeyValueStore(f"{driver}://store", writer="w", maintenance="none", context=current(), **SHAPE, **options)


def end_window(store: KeyValueStore, number: int) -> None:
    store.begin_window(number)
    store.merge(number, 1)
    store.end_window()


def windows_of(store: KeyValueStore) -> list[int]:
    """Return the windows of a store. Each must count once."""
    counts = {number: store.read(number) for number in range(1, 10)}
    assert set(counts.values()) <= {1, None}, counts
    return [number for number, count in counts.items() if count]


RACES = [
    Race("disk", commits=False, restore=None),
    Race("disk", commits=False, restore=2),
    Race("disk", commits=True, restore=None),
    Race("disk", commits=True, restore=2),
    Race("hdfs", commits=True, restore=None),
    Race("s3", commits=True, restore=None),
]


@pytest.fixture(autouse=True)
def one_world() -> Iterator[None]:
    with repeatable(CLOCK, IDS):
        yield


@pytest.mark.parametrize(
    ("race", "first"),
    [*((race, "old") for race in RACES), *((race, "new") for race in RACES if race.storage == "disk")],
)
def test_every_pair_of_calls(race: Race, first: str, seed: int) -> None:
    second = "new" if first == "old" else "old"
    calls = race.run((first, TO_THE_END))
    calls = {name: max(count, race.run((second, TO_THE_END))[name]) for name, count in calls.items()}
    pairs = [(step, other) for step in range(calls[first] + 1) for other in range(1, calls[second] + 1)]
    chosen = some(pairs, seed, SHARE)
    for number, (step, other) in enumerate(chosen):
        schedule = ((first, step), (second, other), (first, TO_THE_END))
        with prefixed(f"{race}, {schedule}"):
            race.run(*schedule, checks=number % CHECKED == 0)
    print(f"{race}: {calls}, {len(chosen)} of {len(pairs)} pairs")
    assert len(pairs) > 100
