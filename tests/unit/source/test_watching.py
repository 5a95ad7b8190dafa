"""Listings that depend on a watch, which may report too little or too much, or may be unavailable."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import SYSTEM
from ftfile.source.plan import START
from ftfile.source.stream import SourceStream
from ftfile.storage.api import Watch
from tests.kit.files_run import FilesRun
from tests.unit.source.tailing import Tailing

if TYPE_CHECKING:
    from pathlib import Path


class Watching(Watch):
    """A watch of a tail that returns an answer set by the test.

    Attributes:
        answer: True if the watch reports a change.
        asked: number of calls.
        waits_s: the timeout of each wait.
        calls: added directories, and listings, which end with `/`.
    """

    def __init__(self, tailing: Tailing, *, answer: bool = False, listing_s: float = 0) -> None:
        self.answer = answer
        self.waits_s: list[float] = []
        self.calls: list[str] = []
        whole = tailing.fs.list

        def listed(path: str) -> object:
            self.calls.append(f"{path}/")
            tailing.clock.advance(listing_s)
            return whole(path)

        tailing.replace("watch", lambda: self)
        tailing.replace("list", listed)
        tailing.restart()

    @property
    def asked(self) -> int:
        return len(self.waits_s)

    @property
    def listings(self) -> int:
        return self.calls.count("in/")

    def add(self, directory: str) -> None:
        self.calls.append(directory)

    def changed(self, wait_s: float = 0.0) -> bool:
        self.waits_s.append(wait_s)
        return self.answer


def test_a_directory_is_listed_at_once_when_the_watch_says_so() -> None:
    tailing = Tailing(scanInterval="10s")
    watch = Watching(tailing)
    tailing.write("a", "1\n")
    tailing.scan(seconds=0.1)
    tailing.append("a", "2\n")
    tailing.scan(seconds=0.1)
    assert tailing.reads == [("a", b"1\n")]
    watch.answer = True
    tailing.scan(seconds=0.1)
    assert tailing.reads == [("a", b"1\n"), ("a", b"2\n")]
    assert watch.listings == 2


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "listings"), [(False, 10), (True, 1000)])
def test_a_watch_that_lies_neither_loses_nor_doubles_a_line(answer: bool, listings: int) -> None:
    """The watch always reports no change, or always a change."""
    tailing = Tailing(scanInterval="10s")
    watch = Watching(tailing, answer=answer)
    lines = [f"{number}\n".encode() for number in range(1000)]
    for line in lines:
        tailing.append("a", line)
        tailing.scan(seconds=0.1)
    assert listings <= watch.listings <= listings + 1
    tailing.drain(seconds=10)
    assert b"".join(content for _, content in tailing.reads) == b"".join(lines)


def test_listing_takes_a_fifth_of_the_time_at_most_whatever_the_watch_says() -> None:
    tailing = Tailing(scanInterval="1s")
    watch = Watching(tailing, answer=True, listing_s=30)
    tailing.write("a", "1\n")
    began_s = tailing.clock.monotonic_s()
    while tailing.clock.monotonic_s() - began_s < 1500:
        tailing.scan(seconds=0.1)
    assert 9 <= watch.listings <= 11


def test_what_the_watch_says_is_not_asked_for_while_no_listing_may_follow() -> None:
    """The watch reports a change only once."""
    tailing = Tailing(scanInterval="1h")
    watch = Watching(tailing, listing_s=30)
    tailing.write("a", "1\n")
    tailing.scan(seconds=0.1)
    for _ in range(100):
        tailing.scan(seconds=1)
    assert watch.asked == 0
    for _ in range(100):
        tailing.scan(seconds=1)
    assert 75 < watch.asked < 85
    assert watch.listings == 1


def test_a_change_is_waited_for_while_nothing_is_new_until_a_listing_is_due() -> None:
    tailing = Tailing(scanInterval="1s")
    tailing.idle_wait_s = 0.3
    watch = Watching(tailing)
    tailing.write("a", "1\n")
    for seconds in (0, 0.5, 0.4, 0.1, 0):
        tailing.scan(seconds=seconds)
    assert watch.waits_s == [0.3, pytest.approx(0.1), 0.3]
    assert watch.listings == 2


def test_the_watch_is_asked_once_a_listing_may_follow_while_a_change_is_waited_for() -> None:
    tailing = Tailing(scanInterval="1h")
    tailing.idle_wait_s = 600
    watch = Watching(tailing, listing_s=30)
    tailing.write("a", "1\n")
    tailing.scan(seconds=0)
    began_s = tailing.clock.monotonic_s()
    tailing.scan(seconds=0)
    assert watch.waits_s == [600 - 120]
    assert tailing.clock.monotonic_s() - began_s == 120


def test_nothing_is_waited_for_while_there_is_more_to_read() -> None:
    tailing = Tailing(scanInterval="1s", maxFilesPerTrigger="1")
    tailing.idle_wait_s = 0.3
    watch = Watching(tailing)
    for name in "abc":
        tailing.write(name, "1\n")
    for _ in range(4):
        tailing.scan(seconds=0)
    assert len(tailing.reads) == 3
    assert watch.waits_s == [0, 0, 0.3]


def test_storage_without_a_watch_is_waited_for_as_long() -> None:
    tailing = Tailing(scanInterval="1s")
    tailing.idle_wait_s = 0.3
    tailing.restart()
    tailing.write("a", "1\n")
    for _ in range(5):
        tailing.scan(seconds=0)
    assert tailing.clock.slept_s == [0.3, 0.3, 0.3, pytest.approx(0.1)]


def test_directories_are_watched_before_they_are_listed() -> None:
    tailing = Tailing(recursiveFileLookup="true")
    watch = Watching(tailing)
    tailing.write("a", "1\n")
    tailing.write("b/c/a", "1\n")
    tailing.scan()
    assert watch.calls == ["in", "in/", "in/b", "in/b/", "in/b/c", "in/b/c/"]


def test_the_directory_of_a_single_file_is_watched_and_that_of_a_directory_is_not() -> None:
    tailing = Tailing("in/a")
    watch = Watching(tailing)
    tailing.scan()
    assert watch.calls == []
    tailing.write("a", "1\n")
    tailing.scan()
    assert watch.calls == [""]  # relative to `in`


def run_of(path: Path, **options: str) -> FilesRun:
    (path / "in").mkdir()
    given = {"fileFormat": "text", "stateLocation": str(path / "state"), **options}
    return FilesRun(str(path / "in"), {"value": "string"}, given, pause_s=1)


def append(path: Path, text: str) -> None:
    with (path / "in" / "a.log").open("a") as file:
        file.write(text)


@pytest.mark.usefixtures("nobody_waits")
def test_lines_of_local_files_are_read_at_once(tmp_path: Path) -> None:
    run = run_of(tmp_path, scanInterval="1h")
    append(tmp_path, "1\n")
    run.run()
    for number in range(2, 5):
        append(tmp_path, f"{number}\n")
        assert run.run_batch()
        assert not run.run_batch()
    assert [row["value"] for row in run.rows] == ["1", "2", "3", "4"]


def test_a_line_ends_a_wait(tmp_path: Path) -> None:
    run = run_of(tmp_path, scanInterval="1h")
    append(tmp_path, "1\n")
    stream = SourceStream(run.config(), SYSTEM, wait_s=600.0)
    begin = stream.latest_offset(dict(START))
    writer = threading.Timer(0.05, append, (tmp_path, "2\n"))
    writer.start()
    assert stream.latest_offset(begin) != begin
    writer.join()


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_waits")
def test_more_changes_than_the_kernel_keeps_are_one(tmp_path: Path) -> None:
    run = run_of(tmp_path, scanInterval="1h")
    append(tmp_path, "1\n")
    run.run()
    logs = [os.open(tmp_path / "in" / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("a.log", "b.log")]
    for _ in range(10_000):
        for log in logs:
            os.write(log, b"2\n")
    for log in logs:
        os.close(log)
    run.run()
    assert len(run.rows) == 20_001


@pytest.mark.usefixtures("nobody_waits")
@pytest.mark.parametrize(
    ("function", "code"),
    [("_libc_call", errno.EMFILE), ("INotify.add_watch", errno.ENOSPC), ("INotify.read", errno.EIO)],
)
def test_without_room_for_a_watch_the_interval_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(f"inotify_simple.{function}", fail)
    run = run_of(tmp_path, scanInterval="10s")
    append(tmp_path, "1\n")
    run.run()
    append(tmp_path, "2\n")
    assert [run.run_batch() for _ in range(12)].count(True) == 1
    assert [row["value"] for row in run.rows] == ["1", "2"]
