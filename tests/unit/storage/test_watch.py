"""Watches of local directories: the changes that they report, and that they are hints which may fail."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import RootedFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import Watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_text("a")
    watch = open_filesystem(str(tmp_path)).watch()
    assert watch is not None
    watch.add("in")
    assert not watch.changed()
    return watch


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


@pytest.mark.parametrize(
    "change",
    [
        lambda root: append(root / "in/a.log"),
        lambda root: (root / "in/a.log").write_text(""),
        lambda root: (root / "in/b.log").touch(),
        lambda root: (root / "in/b").mkdir(),
        lambda root: (root / "in/a.log").rename(root / "in/b.log"),
        lambda root: (root / "other").rename(root / "in/other"),
        lambda root: (root / "in").rename(root / "gone"),
    ],
    ids=["append", "truncate", "create", "mkdir", "rename", "move in", "directory moved"],
)
def test_it_tells_once_of_what_appears_or_grows(tmp_path: Path, watch: Watch, change: Callable[[Path], object]) -> None:
    (tmp_path / "other").write_text("o")
    assert not watch.changed()
    change(tmp_path)
    assert watch.changed()
    watch.changed()  # the move of a directory is reported twice
    assert not watch.changed()


def test_it_does_not_tell_of_reading_and_deleting_or_of_other_directories(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "in" / "a.log").read_text()
    assert [*(tmp_path / "in").iterdir()]
    (tmp_path / "in" / "a.log").rename(tmp_path / "a.log")
    append(tmp_path / "a.log")
    assert not watch.changed()


def test_a_directory_that_moved_away_is_watched_no_more_until_it_is_added(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "in").rename(tmp_path / "gone")
    assert watch.changed()
    watch.changed()
    append(tmp_path / "gone" / "a.log")
    assert not watch.changed()
    watch.add("gone")
    append(tmp_path / "gone" / "a.log")
    assert watch.changed()


def test_a_directory_that_is_made_again_is_watched_when_it_is_added_again(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "in" / "a.log").unlink()
    (tmp_path / "in").rmdir()
    watch.changed()
    (tmp_path / "in").mkdir()
    for _ in range(2):
        watch.add("in")
    append(tmp_path / "in" / "a.log")
    assert watch.changed()


def test_what_is_not_there_or_no_directory_is_not_watched(tmp_path: Path, watch: Watch) -> None:
    watch.add("missing")
    watch.add("in/a.log")
    assert not watch.changed()
    append(tmp_path / "in" / "a.log")
    assert watch.changed()


@pytest.mark.slow
def test_more_events_than_the_kernel_keeps_are_one_change(tmp_path: Path, watch: Watch) -> None:
    """The kernel merges consecutive events of the same file."""
    events_max = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    logs = [os.open(tmp_path / "in" / name, os.O_WRONLY | os.O_CREAT) for name in ("a.log", "b.log")]
    for _ in range(events_max // 2 + 10):
        for log in logs:
            os.write(log, b"x")
    for log in logs:
        os.close(log)
    assert watch.changed()
    assert not watch.changed()
    append(tmp_path / "in" / "a.log")
    assert watch.changed()


def failing(code: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_without_room_for_another_instance_there_is_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("inotify_simple._libc_call", failing(errno.EMFILE))
    with caplog.at_level(logging.INFO, "ftfile"):
        assert open_filesystem(str(tmp_path)).watch() is None
    assert "fs.inotify.max_user_instances" in caplog.text


def test_directories_without_room_are_not_watched_and_it_says_so_once(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "more").mkdir()
    with monkeypatch.context() as patched, caplog.at_level(logging.INFO, "ftfile"):
        patched.setattr("inotify_simple.INotify.add_watch", failing(errno.ENOSPC))
        watch.add("more")
        watch.add("more")
    assert caplog.text.count("'more' and other directories below") == 1
    assert "fs.inotify.max_user_watches" in caplog.text
    append(tmp_path / "more" / "a.log")
    assert not watch.changed()
    append(tmp_path / "in" / "a.log")
    assert watch.changed()


def test_a_watch_that_cannot_be_asked_says_nothing(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inotify_simple.INotify.read", failing(errno.EIO))
    assert not watch.changed()


def open_watches() -> int:
    """Return the number of inotify descriptors, independent of other files that other threads open and close."""
    gc.collect()
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of this listing
            targets.append(str(descriptor.readlink()))
    return targets.count("anon_inode:inotify")


@pytest.mark.slow
def test_its_descriptor_is_closed_with_it(tmp_path: Path) -> None:
    fs = open_filesystem(str(tmp_path))
    before = open_watches()
    watch = fs.watch()
    assert open_watches() == before + 1
    del watch
    assert open_watches() == before


def test_a_decorator_watches_the_directory_that_its_path_means(tmp_path: Path) -> None:
    (tmp_path / "some" / "where").mkdir(parents=True)
    rooted = RootedFileSystem(open_filesystem(str(tmp_path)), "some")
    watch = WrapperFileSystem(rooted).watch()
    assert watch is not None
    watch.add("where")
    append(tmp_path / "some" / "where" / "a.log")
    assert watch.changed()


def test_storage_without_word_of_changes_has_no_watch() -> None:
    assert open_filesystem("memory://watched").watch() is None
