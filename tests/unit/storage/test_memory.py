from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING

import pytest

from ftfile.testing.context import ManualClock
from ftfile.testing.contracts.filesystem import FileSystemContract
from ftfile.testing.fs.memory import MemoryFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.storage.api import FileSystem

names = (f"test-{number}" for number in itertools.count())


@pytest.fixture
def name() -> Iterator[str]:
    name = next(names)
    yield name
    MemoryFileSystem.drop(name)


class TestMemory(FileSystemContract):
    @pytest.fixture
    def filesystem(self, name: str) -> FileSystem:
        return MemoryFileSystem(name)


def test_a_name_is_one_storage(name: str) -> None:
    MemoryFileSystem(name).put("file", b"data")
    assert MemoryFileSystem(name).read("file") == b"data"
    assert MemoryFileSystem(f"{name}-other").list("") == []
    MemoryFileSystem.drop(f"{name}-other")


def test_dropped_storage_is_gone_for_newcomers_only(name: str) -> None:
    old = MemoryFileSystem(name)
    old.put("file", b"data")
    MemoryFileSystem.drop(name)
    assert old.read("file") == b"data"
    assert MemoryFileSystem(name).list("") == []


def test_a_pickle_holds_the_name_and_not_the_data(name: str) -> None:
    filesystem = MemoryFileSystem(name)
    filesystem.put("file", b"data" * 10_000)
    assert len(pickle.dumps(filesystem)) < 1_000


def test_modification_times_come_from_the_clock(name: str) -> None:
    clock = ManualClock(1_000)
    filesystem = MemoryFileSystem(name, clock=clock)
    with filesystem.create("file") as stream:
        clock.advance(5)
        stream.write(b"data")
        clock.advance(5)
    assert filesystem.stat("file").modified_ms == 6_000
    filesystem.rename("file", "renamed")
    assert filesystem.stat("renamed").modified_ms == 6_000


def test_an_open_file_outlives_its_name(name: str) -> None:
    filesystem = MemoryFileSystem(name)
    filesystem.put("file", b"data")
    with filesystem.open("file") as file:
        filesystem.delete("file")
        assert file.read_at(0, 4) == b"data"


def test_abort_spares_a_new_file_of_the_same_name(name: str) -> None:
    filesystem = MemoryFileSystem(name)
    stream = filesystem.create("file")
    filesystem.delete("file")
    filesystem.put("file", b"new")
    stream.abort()
    assert filesystem.read("file") == b"new"
