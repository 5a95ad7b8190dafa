from __future__ import annotations

import itertools
import logging
import os
import pickle
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import Context
from ftfile.core.errors import ConfigError, NotFound, OutcomeUnknown, StorageError, Unavailable, Unsupported
from ftfile.core.retries import RetryPolicy, call_with_retries
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import RetryingFileSystem, WrapperFileSystem
from ftfile.testing.context import ManualClock, SeededIds, current
from ftfile.testing.fs.crashing import CrashingFileSystem, crash_states
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem, RootedFileSystem
from tests.unit.storage.layered import LayeredContract
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem

numbers = itertools.count()


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    filesystem = MemoryFileSystem(f"decorators-{next(numbers)}")
    yield filesystem
    MemoryFileSystem.drop(filesystem.name)


class TestStackOverMemory(LayeredContract):
    @pytest.fixture
    def filesystem(self, memory: MemoryFileSystem) -> FileSystem:
        rooted = RootedFileSystem(memory, "some/where")
        rooted.make_directories("")
        return MeteredFileSystem(RetryingFileSystem(WrapperFileSystem(rooted), current(), "memory://x"))


class TestStackOverLocal(LayeredContract):
    @pytest.fixture
    def filesystem(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSystem:
        self.synced: list[int] = []
        monkeypatch.setattr(os, "fsync", self.synced.append)
        rooted = RootedFileSystem(
            RetryingFileSystem(LocalFileSystem(str(tmp_path), current()), current(), str(tmp_path)), "some/where"
        )
        rooted.make_directories("")
        return MeteredFileSystem(rooted)

    def device_syncs(self, filesystem: FileSystem) -> int:  # noqa: ARG002
        return len(self.synced)


# ------------------------------------------------------------------------------------------------ retrying

CALLS: dict[str, Callable[[FileSystem], object]] = {
    "open": lambda fs: fs.open("file"),
    "read": lambda fs: fs.read("file"),
    "stat": lambda fs: fs.stat("file"),
    "list": lambda fs: fs.list(""),
    "make_directories": lambda fs: fs.make_directories("new"),
    "sync_directory": lambda fs: fs.sync_directory(""),
    "read_at": lambda fs: fs.open("file").read_at(0, 4),
    "create": lambda fs: fs.create("new"),
    "rename": lambda fs: fs.rename("file", "new"),
    "create_exclusive": lambda fs: fs.create_exclusive("new", b""),
    "put": lambda fs: fs.put("new", b""),
    "delete": lambda fs: fs.delete("file"),
    "remove_directory": lambda fs: fs.remove_directory("directory"),
}


SAFE = {"open", "read", "read_at", "stat", "list", "make_directories", "sync_directory"}


def retrying(
    memory: MemoryFileSystem, fault: Fault, clock: ManualClock, attempts: int = 4
) -> tuple[RetryingFileSystem, FaultyFileSystem]:
    memory.put("file", b"data")
    memory.make_directories("directory")
    faulty = FaultyFileSystem(memory, [fault])
    policy = RetryPolicy(attempts=attempts, delay_s=1, growth=3, delay_s_max=5)
    return RetryingFileSystem(faulty, Context(clock=clock, ids=SeededIds(), retry=policy), "memory://x"), faulty


@pytest.mark.parametrize("operation", CALLS)
def test_only_what_is_repeatable_is_repeated(memory: MemoryFileSystem, operation: str) -> None:
    clock = ManualClock()
    fault = Fault(Unavailable, times=3, operations=frozenset({operation}))
    filesystem, faulty = retrying(memory, fault, clock)
    if operation in SAFE:
        CALLS[operation](filesystem)
        assert clock.slept_s == [1, 3, 5]
    else:
        with pytest.raises(Unavailable):
            CALLS[operation](filesystem)
        assert clock.slept_s == []
    assert len(faulty.injected) == (3 if operation in SAFE else 1)


def test_every_operation_of_the_port_was_tried() -> None:
    methods = {name for name, value in vars(WrapperFileSystem).items() if callable(value) and name[0] != "_"}
    # `prove` tests the storage and is not an operation of the protocol: it is neither retried, counted nor failed. A
    # watch never fails; `names_after` lists.
    assert methods - {"around", "inner_path", "prove", "watch", "names_after"} <= CALLS.keys()


def test_retrying_gives_up_with_the_last_error(memory: MemoryFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    filesystem, faulty = retrying(memory, Fault(Unavailable, times=100), clock)
    with caplog.at_level(logging.INFO), pytest.raises(Unavailable):
        filesystem.stat("file")
    assert len(faulty.injected) == 4
    assert clock.slept_s == [1, 3, 5]
    assert "attempt 3 failed, next attempt in 5.0 s" in caplog.text


def test_no_try_begins_after_the_time_limit(memory: MemoryFileSystem) -> None:
    clock = ManualClock()
    faulty = FaultyFileSystem(memory, [Fault(Unavailable, times=100)])
    policy = RetryPolicy(attempts=None, delay_s=1, growth=3, delay_s_max=5, total_s=14.5)
    with pytest.raises(Unavailable):
        RetryingFileSystem(faulty, Context(clock=clock, ids=SeededIds(), retry=policy), "memory://x").stat("file")
    assert clock.slept_s == [1, 3, 5, 5]
    assert RetryPolicy(attempts=None).delay_after_s(10_000) == 5


@pytest.mark.parametrize("error", [OutcomeUnknown, NotFound])
def test_other_errors_are_not_repeated(memory: MemoryFileSystem, error: type[StorageError]) -> None:
    clock = ManualClock()
    filesystem, _ = retrying(memory, Fault(error), clock)
    with pytest.raises(error):
        filesystem.stat("file")
    assert clock.slept_s == []


def test_an_unknown_outcome_is_repeated_only_where_the_call_may_be() -> None:
    clock = ManualClock()
    tries: list[int] = []

    def call() -> int:
        tries.append(len(tries))
        if len(tries) % 2:
            raise OutcomeUnknown("rename", "file", "no reply")
        return len(tries)

    assert call_with_retries(call, RetryPolicy(delay_s=1), clock, is_repeatable=True) == 2
    with pytest.raises(OutcomeUnknown):
        call_with_retries(call, RetryPolicy(delay_s=1), clock)
    assert clock.slept_s == [1]


def test_errors_that_are_not_ours_pass() -> None:
    with pytest.raises(ZeroDivisionError):
        call_with_retries(lambda: 1 // 0, RetryPolicy(), ManualClock())


def test_a_policy_is_checked() -> None:
    assert RetryPolicy(attempts=1).delay_after_s(1) is None
    for wrong in ({"attempts": 0}, {"delay_s": -1}, {"growth": 0.5}, {"total_s": -1}):
        with pytest.raises(ConfigError):
            RetryPolicy(**wrong)


# ------------------------------------------------------------------------------------------------- metered


def test_metered_counts_calls_and_bytes(memory: MemoryFileSystem) -> None:
    metered = MeteredFileSystem(memory)
    with metered.create("file") as stream:
        stream.write(b"12345")
        stream.write(b"678")
        stream.hflush()
    metered.put("hint", b"12")
    metered.create_exclusive("record", b"1234")
    assert metered.read("file") == b"12345678"
    with metered.open("file") as file:
        file.read_at(6, 100)
    with pytest.raises(NotFound):
        metered.stat("nothing")
    counters = metered.counters
    assert counters.calls == {
        **dict.fromkeys(("create", "hflush", "close", "put", "create_exclusive", "read", "open"), 1),
        **dict.fromkeys(("stat", "read_at"), 1),
        "write": 2,
    }
    assert (counters.bytes_written, counters.bytes_read) == (14, 10)


def test_metered_counts_a_failed_write_as_nothing_written(memory: MemoryFileSystem) -> None:
    metered = MeteredFileSystem(FaultyFileSystem(memory, [Fault(OutcomeUnknown)]))
    with pytest.raises(OutcomeUnknown):
        metered.create_exclusive("file", b"data")
    assert (metered.counters.bytes_written, metered.counters.calls["create_exclusive"]) == (0, 1)


def test_a_pickled_meter_goes_on_counting_for_itself(memory: MemoryFileSystem) -> None:
    metered = MeteredFileSystem(memory)
    metered.put("file", b"data")
    copy = pickle.loads(pickle.dumps(metered))
    copy.put("file", b"data")
    assert (metered.counters.calls["put"], copy.counters.calls["put"]) == (1, 2)


class _Below(WrapperFileSystem):
    def inner_path(self, path: str) -> str:
        return f"below/{path}" if path else "below"


def test_a_wrapper_that_translates_paths_translates_all(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = _Below(memory)
    below.make_directories("log")
    below.put("log/a", b"data")
    below.rename("log/a", "log/b")
    assert memory.read("below/log/b") == b"data"
    proven: list[str] = []
    monkeypatch.setattr(memory, "prove", proven.append)
    below.prove("log")
    assert proven == ["below/log"]


# -------------------------------------------------------------------------------------------------- rooted


def test_rooted_sees_only_what_is_below(memory: MemoryFileSystem) -> None:
    rooted = RootedFileSystem(memory, "a/b")
    rooted.make_directories("log")
    memory.put("a/outside", b"")
    rooted.put("log/file", b"data")
    assert memory.read("a/b/log/file") == b"data"
    assert [info.path for info in rooted.list("")] == ["log"]
    assert [info.path for info in rooted.list("log")] == ["log/file"]
    assert rooted.stat("log/file").path == "log/file"
    with pytest.raises(Unsupported):
        rooted.read("../outside")
    with pytest.raises(NotFound, match=r"^nothing: open failed"):
        rooted.read("nothing")


def test_rooted_at_the_root_changes_nothing(memory: MemoryFileSystem) -> None:
    memory.put("file", b"data")
    rooted = RootedFileSystem(memory, "")
    assert rooted.list("") == memory.list("")
    assert rooted.read("file") == b"data"


def test_a_prefix_is_checked(memory: MemoryFileSystem) -> None:
    with pytest.raises(Unsupported):
        RootedFileSystem(memory, "a/../b")


def test_the_name_of_the_root_survives_a_power_cut() -> None:
    disk = CrashingFileSystem()
    rooted = RootedFileSystem(disk, "a/b")
    rooted.make_directories("log")
    disk.note("made")
    rooted.make_directories("data")
    states = [state for state in crash_states(disk) if "made" in state.notes]
    assert {state.filesystem().exists("a/b") for state in states} == {True}
    assert {state.filesystem().exists("a/b/data") for state in states} == {True, False}
