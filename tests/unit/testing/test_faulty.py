from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import (
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    StreamClosed,
    Unavailable,
)
from ftfile.testing.fs.faulty import STANDARD_FAULTS, Call, Fault, FaultyFileSystem, fault_sweep
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.unit.storage.layered import LayeredContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem

numbers = itertools.count()


def new_memory() -> MemoryFileSystem:
    filesystem = MemoryFileSystem(f"faulty-{next(numbers)}")
    MemoryFileSystem.drop(filesystem.name)
    return filesystem


class TestFaultyWithoutFaults(LayeredContract):
    @pytest.fixture
    def filesystem(self) -> FileSystem:
        return FaultyFileSystem(new_memory())


def only(error: type[StorageError], effect: str, *operations: str, at: int = 0) -> FaultyFileSystem:
    assert effect in {"before", "after"}
    fault = Fault(error, "after" if effect == "after" else "before", at, operations=frozenset(operations))
    filesystem = FaultyFileSystem(new_memory(), [fault])
    filesystem.inner.put("file", b"data")
    return filesystem


CHANGES: dict[str, tuple[Callable[[FileSystem], object], Callable[[FileSystem], bool]]] = {
    "create": (lambda fs: fs.create("new"), lambda fs: fs.exists("new")),
    "rename": (lambda fs: fs.rename("file", "new"), lambda fs: fs.exists("new")),
    "create_exclusive": (lambda fs: fs.create_exclusive("new", b"1"), lambda fs: fs.exists("new")),
    "put": (lambda fs: fs.put("file", b"new"), lambda fs: fs.read("file") == b"new"),
    "delete": (lambda fs: fs.delete("file"), lambda fs: not fs.exists("file")),
    "make_directories": (lambda fs: fs.make_directories("new"), lambda fs: fs.exists("new")),
}


@pytest.mark.parametrize("effect", ["before", "after"])
@pytest.mark.parametrize("operation", CHANGES)
def test_a_change_fails_before_or_after_its_effect(operation: str, effect: str) -> None:
    change, happened = CHANGES[operation]
    filesystem = only(OutcomeUnknown, effect, operation)
    with pytest.raises(OutcomeUnknown, match=f"{operation}.*injected {effect} the effect"):
        change(filesystem)
    assert happened(filesystem.inner) == (effect == "after")


@pytest.mark.parametrize("effect", ["before", "after"])
def test_a_write_fails_before_or_after_its_effect(effect: str) -> None:
    filesystem = only(OutOfSpace, effect, "write", at=1)
    stream = filesystem.create("new")
    stream.write(b"first ")
    with pytest.raises(OutOfSpace):
        stream.write(b"second")
    assert filesystem.inner.read("new") == (b"first second" if effect == "after" else b"first ")
    with pytest.raises(StreamClosed):
        stream.write(b"third")


@pytest.mark.parametrize("operation", ["write", "hflush", "close"])
def test_a_failing_stream_never_leaves_a_file_that_looks_complete(operation: str) -> None:
    filesystem = only(Unavailable, "before", operation)

    def write() -> None:
        with filesystem.create("new") as stream:
            stream.write(b"data")
            stream.hflush()

    with pytest.raises(Unavailable):
        write()
    assert [info.path for info in filesystem.list("")] == ["file"]


def test_an_error_that_the_caller_swallows_still_fails_the_close() -> None:
    filesystem = only(Unavailable, "before", "write")
    stream = filesystem.create("new")
    with pytest.raises(Unavailable):
        stream.write(b"data")
    with pytest.raises(StreamClosed, match="failed"):
        stream.close()
    with pytest.raises(StreamClosed, match="failed"), stream:
        pass  # the caller believes that all is well
    assert not filesystem.exists("new")


def test_reads_fail_too() -> None:
    filesystem = only(Unavailable, "before", "read_at", "read")
    with filesystem.open("file") as file, pytest.raises(Unavailable):
        file.read_at(0, 4)
    assert filesystem.read("file") == b"data"


def test_calls_are_chosen_by_number_operation_and_path() -> None:
    fault = Fault(Unavailable, at=1, times=2, operations=frozenset({"put"}), path="log/*")
    filesystem = FaultyFileSystem(new_memory(), [fault])
    filesystem.make_directories("log")
    failed = []
    for path in ("log/0", "other", "log/1", "log/2", "log/3"):
        try:
            filesystem.put(path, b"")
        except Unavailable:
            failed.append(path)
    assert failed == ["log/1", "log/2"]
    assert [call for _, call in filesystem.injected] == [Call("put", "log/1"), Call("put", "log/2")]
    assert len(filesystem.calls) == 6


def test_each_fault_counts_for_itself() -> None:
    filesystem = FaultyFileSystem(new_memory(), [Fault(Unavailable, at=0), Fault(OutOfSpace, at=1)])
    for error in (Unavailable, OutOfSpace):
        with pytest.raises(error):
            filesystem.put("file", b"")
    filesystem.put("file", b"")


def test_a_pickled_copy_is_the_object_itself() -> None:
    filesystem = only(Unavailable, "before", "put")
    assert pickle.loads(pickle.dumps(filesystem)) is filesystem
    data = pickle.dumps(filesystem)
    del filesystem
    with pytest.raises(LookupError, match="another process"):
        pickle.loads(data)


# --------------------------------------------------------------------------------------------------- sweep


def prepared() -> FileSystem:
    filesystem = new_memory()
    filesystem.make_directories("log")
    return filesystem


def publish(filesystem: FileSystem) -> str:
    """Write a part, commit it, and give it its name: the last may fail and be caught up with."""
    with filesystem.create("staged") as stream:
        stream.write(b"data")
    filesystem.create_exclusive("log/0", b"staged")
    try:
        filesystem.rename("staged", "final")
    except StorageError:
        return "committed"
    return "published"


@pytest.mark.parametrize("fault", STANDARD_FAULTS, ids=str)
def test_a_sweep_fails_each_call_once(fault: Fault) -> None:
    runs = list(fault_sweep(fault, prepared, publish))
    assert [run.call.operation for run in runs] == ["create", "write", "close", "create_exclusive", "rename"]
    assert [run.fault.at for run in runs] == [0, 1, 2, 3, 4]
    for run in runs[:-1]:
        assert type(run.error) is fault.error
        assert run.file_system.exists("log/0") == (run.call.operation == "create_exclusive" and fault.effect == "after")
        assert "raised" in str(run)
    assert runs[-1].result == "committed"
    assert runs[-1].file_system.exists("final") == (fault.effect == "after")
    assert str(runs[-1]).endswith("rename 'staged', call 4: survived")


def test_a_sweep_of_chosen_calls() -> None:
    fault = Fault(PermissionDenied, operations=frozenset({"rename"}))
    assert [run.result for run in fault_sweep(fault, prepared, publish)] == ["committed"]


def test_a_sweep_lets_defects_pass() -> None:
    def defective(filesystem: FileSystem) -> None:
        try:
            filesystem.stat("log")
        except StorageError:
            raise ZeroDivisionError from None

    with pytest.raises(ZeroDivisionError):
        list(fault_sweep(Fault(Unavailable), prepared, defective))


def test_a_sweep_reports_a_scenario_that_fails_without_any_fault() -> None:
    def broken(filesystem: FileSystem) -> bytes:
        return filesystem.read("nothing")

    with pytest.raises(NotFound):
        list(fault_sweep(Fault(Unavailable), prepared, broken))


@pytest.fixture(autouse=True)
def no_storage_left() -> Iterator[None]:
    yield
    for number in range(next(numbers)):
        MemoryFileSystem.drop(f"faulty-{number}")
