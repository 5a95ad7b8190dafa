"""Closing a file by `hdfs-native` before the library notices that it is closed."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import OutcomeUnknown
from ftfile.core.retries import RetryPolicy
from ftfile.storage.hdfs import native as native_driver
from ftfile.testing.context import open_filesystem
from tests.unit.storage.fake_hdfs import Names, install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.storage.api import FileSystem

FULL = "/out/file"


@pytest.fixture
def names() -> Names:
    """An HDFS that closes files slowly."""
    return Names(slow=True)


@pytest.fixture
def fs(names: Names, monkeypatch: pytest.MonkeyPatch) -> FileSystem:
    install(monkeypatch, names)
    monkeypatch.setattr(native_driver, "WAITS_S", (0.001,) * 3)
    return open_filesystem("hdfs://namenode:8020/out", settings={"patience": "0"}, policy=RetryPolicy(attempts=1))


@contextlib.contextmanager
def noticed(names: Names) -> Iterator[None]:
    """Let the library find a file closed, in a while."""

    def close() -> None:
        with names.changed:
            assert names.changed.wait_for(lambda: names.open_files, 300)
        time.sleep(0.05)
        with names.changed:
            names.open_files.clear()
            names.changed.notify_all()

    thread = threading.Thread(target=close)
    thread.start()
    yield
    thread.join()


def write(fs: FileSystem, content: bytes = b"data") -> None:
    with fs.create("file") as stream:
        stream.write(content)


def count(names: Names, what: str) -> int:
    return names.asked.count(what)


def test_a_file_whose_blocks_are_complete_is_released(fs: FileSystem, names: Names) -> None:
    write(fs)
    assert count(names, "recover") == 1
    fs.create_exclusive("log", b"content")
    assert count(names, "recover") == 2
    fs.put("hint", b"content")
    assert fs.stat("hint").size_bytes == 7  # who asks for it waits for it
    assert count(names, "recover") == 3


def test_who_asks_for_a_hint_of_its_own_waits_until_it_is_closed(fs: FileSystem, names: Names) -> None:
    names.unreported = True
    with noticed(names):
        fs.put("hint", b"content")
        fs.stat("hint")
        assert count(names, "closed") == 1


def test_one_whose_last_block_is_not_is_left_alone(fs: FileSystem, names: Names) -> None:
    names.unreported = True
    with noticed(names):
        write(fs)
    assert (count(names, "recover"), count(names, "closed")) == (0, 1)


def test_nor_is_one_of_full_blocks_of_which_nobody_can_tell(fs: FileSystem, names: Names) -> None:
    names.block_bytes = 2
    with noticed(names):
        write(fs)
    assert (count(names, "summary"), count(names, "recover")) == (0, 0)


def test_an_empty_one_has_nothing_to_wait_for(fs: FileSystem, names: Names) -> None:
    with noticed(names):
        write(fs, b"")
    assert (count(names, "summary"), count(names, "recover")) == (0, 0)


PANIC = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


@pytest.mark.parametrize("what", ["summary", "recover"])
@pytest.mark.parametrize("error", [RuntimeError("connection reset by peer"), PANIC("index out of range")])
def test_what_goes_wrong_beside_is_nobodys_error(fs: FileSystem, names: Names, what: str, error: BaseException) -> None:
    names.errors[what] = [error]
    with noticed(names):
        write(fs)
    assert names.files == {FULL: b"data"}
    assert count(names, "closed") == 1


def test_what_the_library_says_is(fs: FileSystem, names: Names) -> None:
    names.errors["closed"] = [RuntimeError("connection reset by peer")]
    names.unreported = True
    stream = fs.create("file")
    stream.write(b"x" * (3 << 20))
    with noticed(names), pytest.raises(OutcomeUnknown):
        stream.close()


def test_so_many_threads_are_left_behind_and_no_more(
    fs: FileSystem, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_driver, "LEFT_BEHIND_MAX", 0)
    with noticed(names):
        write(fs)
    assert (count(names, "summary"), count(names, "closed")) == (0, 1)
