"""Random histories of a writer: openings, restores, windows, commits, zombies, faults, kills and power cuts.

Rows are merged by `append`, so the content of a store is the text of its windows in their order. The test keeps the set
of contents that the next opening may find. A failed call adds a content. A call that returns keeps only the contents
that agree with it, and so does the log.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

import ftfile
from ftfile import kv
from ftfile.core.errors import Fenced, FtfileError, OutcomeUnknown, SchemaError, Unavailable, WindowOrder
from ftfile.filters.keys import Keys
from ftfile.log.commit_log import CommitLog
from ftfile.log.sealed import SealedFileSystem
from ftfile.log.wal import recorded_window
from ftfile.storage.registry import WrapperFile, WrapperFileSystem, WrapperStream, register
from ftfile.testing.context import SeededIds, current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.writing.options import forget_logs
from tests.crash.share import THOROUGH
from tests.crash.world import CRASH_KEYS
from tests.kit.failing_calls import Killed
from tests.kit.store_check import check_store
from tests.unit.writing.files.encrypted import FIRST, ring_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.storage.api import FileSystem, InputFile, OutputStream
    from ftfile.testing.fs.volume import Storage

pytestmark = pytest.mark.slow

Result = TypeVar("Result")
Token = tuple[int, int]  # the number of a window, and a payload that is merged in the window
Content = tuple[Token, ...]
Effect = Literal["before", "after", "kill before", "kill after"]

HISTORIES = 500 if THOROUGH else 20
STEPS = 40
FAULTS_SHARE = 1 / 5
SHAPE: dict[str, Any] = {"keys": {"k": "string"}, "values": {"text": "string"}, "merge": "append"}


class FailingFileSystem(WrapperFileSystem, PickledByReference):
    """Fails one call, or kills the process, before or after the call's effect. A killed process makes no calls."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self._calls_left: int | None = None
        self._effect: Effect = "before"
        self.is_killed = False
        self.has_failed = False

    def arm(self, calls: int | None, effect: Effect) -> None:
        """Fail the call after this number of calls, or no call if it is None."""
        self._calls_left, self._effect, self.has_failed = calls, effect, False

    def disarm(self) -> None:
        """Let no later call fail."""
        self._calls_left = None

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        if self.is_killed:
            raise Killed
        if self._calls_left is None:
            return call()
        self._calls_left -= 1
        if self._calls_left >= 0:
            return call()
        self._calls_left, self.has_failed = None, True
        if self._effect.endswith("after"):
            call()
        if self._effect.startswith("kill"):
            self.is_killed = True
            raise Killed
        raise (Unavailable if self._effect == "before" else OutcomeUnknown)(operation, path, "injected")

    def create(self, path: str) -> OutputStream:
        return WrapperStream(super().create(path), self)

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)


@dataclass
class Process:
    """A process that has opened the store."""

    number: int
    store: kv.KeyValueStore
    fs: FailingFileSystem
    windows: Content  # that have ended, by the state of the process
    durable: int  # the last window that is acknowledged or recorded
    changes: Content = ()  # of the window that has not ended
    begun: int | None = None
    has_old_buckets: bool = False

    @property
    def has_more(self) -> bool:
        """Return True if there are changes that are in no file and no record."""
        return bool(self.changes) or any(number > self.durable for number, _ in self.windows)


@dataclass
class History:
    """A store, the processes that have opened it, and the contents that its next opening may find."""

    seed: int
    rng: random.Random = field(init=False)
    processes: list[Process] = field(default_factory=list)
    newest: Process | None = None
    may_be_fenced: bool = False  # an opening after the newest one has failed at an unknown record
    contents: set[Content] = field(default_factory=lambda: {()})
    openings: int = 0
    cuts: int = 0
    faults: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        kinds: list[Storage] = ["disk", "hdfs", "s3"]
        self.fs = CrashingFileSystem(storage=kinds[self.seed % 3])
        self.keyed: dict[str, Any] = {"key_provider": CRASH_KEYS} if self.seed % 5 == 0 else {}
        self.payloads = itertools.count()
        self.steps: list[str] = []

    # ------------------------------------------------------------------------------------------------ content

    @property
    def keyed_fs(self) -> FileSystem:
        return SealedFileSystem(self.fs, Keys(CRASH_KEYS)) if self.keyed else self.fs

    def recorded(self) -> int:
        return recorded_window(CommitLog(self.keyed_fs).refresh(), "w")

    def agree(self, content: Content) -> None:
        """Keep the contents that begin with `content`."""
        self.contents = {each for each in self.contents if each[: len(content)] == content}
        assert self.contents, f"no content begins with {content}"

    def look(self) -> None:
        """Read the recorded content in another process."""
        if CommitLog(self.keyed_fs).refresh().version < 0:
            return
        register("reader", lambda _: self.fs)
        forget_logs()
        with kv.open("reader://store", context=current(), **self.keyed) as reader:
            self.agree(parsed(reader.get("all", "")))

    # ------------------------------------------------------------------------------------------------ steps

    def play(self) -> None:
        for _ in range(STEPS):
            live = [process for process in self.processes if not process.fs.is_killed]
            step = self.rng.choice(STEP_CHOICES)
            if step == "open" or not live:
                self.open()
            elif step in {"cut", "vacuum", "rebucket"}:
                getattr(self, step)()
            else:
                newest = [self.newest] if self.newest in live else []
                getattr(self, step)(self.rng.choice([*live, *newest * 3 * len(live)]))
            self.processes = [process for process in self.processes if not process.fs.is_killed]
            self.look()
        self.finish()

    def failing(self, fs: FailingFileSystem, call: Callable[[], Result], calls_max: int) -> Result | Exception | None:
        """Return the result of a call or its error, or None if the process was killed during the call."""
        fails = self.rng.random() < FAULTS_SHARE
        effects: list[Effect] = ["before", "after", "kill before", "kill after"]
        fs.arm(self.rng.randrange(calls_max) if fails else None, self.rng.choice(effects))
        try:
            return call()
        except Killed:
            return None
        except FtfileError as error:
            return error
        finally:
            self.faults += fs.has_failed
            fs.disarm()

    def open(self) -> None:
        recorded = self.recorded()
        last = max(number for content in self.contents for number, _ in [(recorded, 0), *content])
        restore = self.rng.randint(recorded - 1, last + 2) if self.rng.random() < 1 / 4 else None
        fs = FailingFileSystem(self.fs)
        register("operator", lambda _: fs)
        forget_logs()
        is_new = CommitLog(self.keyed_fs).refresh().version < 0
        shape = {**SHAPE, "buckets": 2} if is_new else {}
        store = self.failing(
            fs,
            lambda: kv.KeyValueStore(
                "operator://store",
                writer="w",
                restore=restore,
                maintenance="none",
                context=current(),
                **shape,
                **self.keyed,
            ),
            70,
        )
        self.steps.append(f"open {restore=}: {store!r}")
        restored = {up_to(content, restore) for content in self.contents} if restore is not None else self.contents
        if restore is not None and restore < recorded:
            assert fs.has_failed or isinstance(store, WindowOrder), store
            # A call that fails before the restore is refused does not change files either.
            assert not isinstance(store, kv.KeyValueStore)
            return
        if not isinstance(store, kv.KeyValueStore):
            assert fs.has_failed, f"without a fault: {store!r}"
            self.contents = self.contents | restored
            self.may_be_fenced = True
            return
        self.openings += 1
        content = parsed(store.read("all", ""))
        assert content in restored, f"{content} was restored instead of one of {restored}"
        assert restore in {None, store.last_window}
        self.contents = {content}
        self.newest, self.may_be_fenced = Process(self.openings, store, fs, content, store.last_window), False
        self.processes.append(self.newest)

    def end_window(self, process: Process) -> None:
        if process.begun is None:
            if process.changes:
                return
            process.begun = process.store.last_window + self.rng.randint(1, 3)
            process.store.begin_window(process.begun)
        self.change(process, process.begun, self.rng.choice([0, 1, 1, 2]))
        content, has_more = process.windows + process.changes, process.has_more
        outcome = self.failing(process.fs, process.store.end_window, 8)
        self.steps.append(f"end {content[-3:]} by {process.number}: {outcome!r}")
        if outcome is None and not process.fs.is_killed:
            process.windows, process.durable = content, process.begun
            process.changes, process.begun = (), None
            if has_more:
                self.require_newest(process)
                self.contents = {content}
        else:
            self.failed(process, outcome, content)

    def commit(self, process: Process) -> None:
        number = process.begun if process.begun is not None else process.store.last_window + self.rng.randint(1, 3)
        self.change(process, number, self.rng.choice([0, 1, 2]))
        content, recorded = process.windows + process.changes, process.store.recorded_window
        records = any(window > recorded for window, _ in content)
        call = process.store.commit if process.begun is not None else lambda: process.store.commit(number)
        outcome = self.failing(process.fs, call, 40)
        self.steps.append(f"commit {content[-3:]} by {process.number}: {outcome!r}")
        process.windows, process.changes, process.begun = content, (), None
        if outcome is None and not process.fs.is_killed:
            process.durable = number
            if records:
                self.require_newest(process)
                self.contents.add(content)
                self.agree(content)
                assert parsed(process.store.get("all", "")) == content
        else:
            self.failed(process, outcome, content, commits=True)
            assert process.fs.is_killed or process.store.last_window == number

    def committed(self, process: Process) -> None:
        number = self.rng.randint(-1, process.store.last_window)
        before = process.store.recorded_window
        content = up_to(process.windows, max(number, process.durable))
        outcome = self.failing(process.fs, lambda: process.store.committed(number), 40)
        self.steps.append(f"committed {number} by {process.number}: {outcome!r}")
        if outcome is None and not process.fs.is_killed:
            process.durable = max(number, process.durable)
            if process.store.recorded_window > before:
                self.require_newest(process)
                self.contents.add(content)
                self.agree(up_to(process.windows, number))
        else:
            self.failed(process, outcome, content, commits=True)

    def close(self, process: Process) -> None:
        self.failing(process.fs, process.store.close, 4)
        self.drop(process)

    def drop(self, process: Process) -> None:
        """Drop the object, like a process that ends without closing the store."""
        self.steps.append(f"drop {process.number}")
        self.processes.remove(process)
        if process is self.newest:
            self.newest = None

    def cut(self) -> None:
        """Cut the power: all processes end, and changes that are not durable may be lost."""
        *_, (_, notes, replay) = self.fs.states()
        disk, loss = next(iter(replay.sample(SeededIds(self.rng.randrange(1 << 30)))))
        self.steps.append(f"power cut: {loss}")
        self.fs = self.fs.after_power_cut(disk, notes)
        self.processes.clear()
        self.newest = None
        self.cuts += 1

    def vacuum(self) -> None:
        self.steps.append("vacuum")
        if CommitLog(self.keyed_fs).refresh().version >= 0:
            register("upkeep", lambda _: self.fs)
            forget_logs()
            ftfile.vacuum("upkeep://store", dry_run=False, retention="0s", force=True, context=current(), **self.keyed)

    def rebucket(self) -> None:
        if CommitLog(self.keyed_fs).refresh().version < 0:
            return
        register("upkeep", lambda _: self.fs)
        forget_logs()
        buckets = self.rng.choice([1, 2, 4])
        report = kv.rebucket("upkeep://store", buckets, context=current(), **self.keyed)
        self.steps.append(f"{report}")
        for process in self.processes:
            process.has_old_buckets |= report.version is not None

    # ------------------------------------------------------------------------------------------------

    def change(self, process: Process, number: int, count: int) -> None:
        tokens = tuple((number, next(self.payloads)) for _ in range(count))
        for token in tokens:
            process.store.merge("all", text_of([token]))
        process.changes += tokens

    def require_newest(self, process: Process) -> None:
        assert process is self.newest, "a fenced process has acknowledged or recorded a window"

    def failed(self, process: Process, outcome: Exception | None, content: Content, *, commits: bool = False) -> None:
        """Count a call that raised. Its windows may be restored if no newer process had opened the store."""
        is_fenced = isinstance(outcome, Fenced) and (process is not self.newest or self.may_be_fenced)
        is_redefined = commits and isinstance(outcome, SchemaError) and process.has_old_buckets
        assert process.fs.has_failed or is_fenced or is_redefined, f"without a fault: {outcome!r}"
        if process is self.newest:
            self.contents.add(content)
        if process.fs.is_killed and process is self.newest:
            self.newest = None

    def finish(self) -> None:
        """Open the store a last time, commit its content, and check the whole store."""
        register("operator", lambda _: self.fs)
        forget_logs()
        with kv.KeyValueStore(
            "operator://store", writer="w", maintenance="none", context=current(), **SHAPE, **self.keyed
        ) as store:
            content = parsed(store.read("all", ""))
            assert content in self.contents, f"{content} was restored instead of one of {self.contents}"
            store.committed(store.last_window)
            assert parsed(store.get("all", "")) == content
        check_store(self.keyed_fs)


STEP_CHOICES = [
    *["open"] * 8,
    *["end_window"] * 16,
    *["commit"] * 4,
    *["committed"] * 6,
    *["close", "drop", "cut", "vacuum", "rebucket"],
]


def text_of(tokens: Iterable[Token]) -> str:
    return "".join(f"{number}:{payload} " for number, payload in tokens)


def parsed(text: str) -> Content:
    return tuple((int(number), int(payload)) for number, _, payload in (item.partition(":") for item in text.split()))


def up_to(content: Content, number: int) -> Content:
    return tuple(token for token in content if token[0] <= number)


def test_histories(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CRASH_KEYS.partition(":")[2], ring_text(first=FIRST))
    openings = cuts = faults = 0
    for number in range(seed, seed + HISTORIES):
        with repeatable(ids=SeededIds(number)):
            history = History(number)
            try:
                history.play()
            except Exception:
                print("\n".join(history.steps))
                print(f"history {number}")
                raise
        openings, cuts, faults = openings + history.openings, cuts + history.cuts, faults + history.faults
    print(f"{HISTORIES} histories: {openings} openings, {cuts} power cuts, {faults} faults")
    assert min(openings / 5, cuts, faults) > HISTORIES / 4
