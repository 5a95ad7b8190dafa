"""The times of listings, the files that the planner forgets, the late files, and the reported counts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import Unavailable
from ftfile.source import extend
from ftfile.source.known_rows import ROW, key_of
from tests.unit.source.tailing import Tailing

if TYPE_CHECKING:
    from ftfile.storage.api import InputFile

DAY_S = 86_400


def test_FSI_1_2_5_files_are_found_once_and_in_their_order() -> None:
    """Files are ordered by time, then by path, also if their times are equal."""
    tailing = Tailing(maxFilesPerTrigger="2")
    for names in ("dc", "ba", "fe"):
        for name in names:
            tailing.write(name, f"{name}\n")
        tailing.clock.advance(1)
    tailing.drain()
    assert [path for path, _ in tailing.reads] == list("cdabef")
    tailing.drain()
    tailing.restart()
    tailing.drain()
    assert len(tailing.reads) == 6


def test_AFI_17_files_of_five_six_and_no_lines() -> None:
    tailing = Tailing()
    tailing.write("a", "a\n" * 5)
    tailing.write("b", "b\n" * 6)
    tailing.write("c", "")
    tailing.drain()
    tailing.restart()
    tailing.append("c", "c\n" * 8)
    tailing.drain()
    assert tailing.reads == [("a", b"a\n" * 5), ("b", b"b\n" * 6), ("c", b"c\n" * 8)]


def test_AFI_9_12_FSI_11_14_reading_goes_on_inside_files_after_a_restart() -> None:
    tailing = Tailing(maxBytesPerTrigger="5")
    for name in "abc":
        tailing.write(name, "".join(f"{name}{number}\n" for number in range(5)))
    for _ in range(40):
        tailing.restart()
        tailing.scan()
    assert tailing.text == "".join(f"{name}{number}\n" for name in "abc" for number in range(5))


def test_TAIL_1_2_a_file_is_followed_from_its_end() -> None:
    tailing = Tailing(startingOffsets="latest")
    tailing.write("a.log", "before\nhalf")
    tailing.write("b.log", "half a line alone")
    plan = tailing.scan()
    assert plan is not None
    assert not plan.ranges
    tailing.append("a.log", " a line\nafter\n")
    tailing.append("b.log", "\nafter\n")
    tailing.write("c.log", "new\n")
    tailing.restart()
    tailing.drain()
    assert tailing.reads == [
        ("a.log", b"half a line\nafter\n"),
        ("b.log", b"half a line alone\nafter\n"),
        ("c.log", b"new\n"),
    ]


def test_the_latest_offsets_are_pinned_where_nothing_is_yet() -> None:
    """Without a plan, a restart would treat a file that appeared before it as old."""
    tailing = Tailing(startingOffsets="latest")
    assert tailing.scan() is not None
    tailing.write("a.log", "new\n")
    tailing.restart()
    tailing.drain()
    assert tailing.text == "new\n"


def test_the_latest_offsets_of_files_that_are_told_by_content() -> None:
    """Short files are identified, too."""
    tailing = Tailing(startingOffsets="latest", fileIdentity="content")
    tailing.write("a.log", "old\n")
    tailing.scan()
    tailing.append("a.log", "new\n" * 100)
    tailing.settle()
    assert tailing.text == "new\n" * 100


@pytest.mark.parametrize("whole", [False, True])
def test_the_latest_offsets_leave_out_what_is_complete(whole: bool) -> None:
    tailing = Tailing(startingOffsets="latest", tail=str(not whole), maxFilesPerTrigger="1")
    tailing.write("a.log", "old\n")
    tailing.write("b.log", "old\n")
    tailing.clock.advance(15)
    tailing.write("c.log", "being written\n")
    tailing.scan()
    assert len(tailing.known) == (2 if whole else 3)
    tailing.settle()
    assert tailing.text == ("being written\n" if whole else "")


def test_TAIL_4_5_a_file_that_shrinks_or_is_replaced_by_one_as_long_is_read_anew() -> None:
    tailing = Tailing()
    tailing.write("a.log", "one\ntwo\n")
    tailing.drain()
    tailing.write("a.log", "un\n")
    tailing.drain()
    tailing.write("a.log", "du\n")
    tailing.drain()
    assert tailing.text == "one\ntwo\nun\ndu\n"


class _Counting:
    def __init__(self, tailing: Tailing, seconds: float = 0.0) -> None:
        self.listings = 0
        whole = tailing.fs.list

        def count(path: str) -> object:
            self.listings += 1
            tailing.clock.advance(seconds)
            return whole(path)

        tailing.replace("list", count)


def test_FSI_6_the_root_is_listed_once_a_scan_interval() -> None:
    tailing = Tailing(scanInterval="10s")
    tailing.write("a", "x\n")
    counting = _Counting(tailing)
    for _ in range(1000):
        tailing.scan(seconds=0.1)
    assert 10 <= counting.listings <= 11


def test_listing_takes_a_fifth_of_the_time_at_most() -> None:
    tailing = Tailing(scanInterval="1s")
    tailing.write("a", "x\n")
    counting = _Counting(tailing, seconds=30)
    began_s = tailing.clock.monotonic_s()
    while tailing.clock.monotonic_s() - began_s < 1500:
        tailing.scan(seconds=0.1)
    assert 9 <= counting.listings <= 11


def test_what_a_limit_leaves_needs_no_other_listing() -> None:
    tailing = Tailing(scanInterval="10s", maxFilesPerTrigger="1")
    for number in range(20):
        tailing.write(str(number), "x\n")
    counting = _Counting(tailing)
    assert tailing.drain(seconds=0.01) == 20
    assert counting.listings == 1


def test_a_listing_that_is_given_bounds_what_is_read() -> None:
    """As with `availableNow`, neither later files nor later lines are read."""
    tailing = Tailing(maxBytesPerTrigger="4")
    tailing.write("a.log", "one\ntwo\n")
    listing = tailing.planner.list()
    tailing.append("a.log", "three\n")
    tailing.write("b.log", "four\n")
    while tailing.scan(listing) is not None:
        pass
    assert tailing.text == "one\ntwo\n"


def test_27_old_times_within_the_window_are_read_and_others_are_late(caplog: pytest.LogCaptureFixture) -> None:
    tailing = Tailing(maxFileAge="7d")
    tailing.clock.advance(30 * DAY_S)
    tailing.write("new", "new\n")
    tailing.drain()
    for days, name in ((6, "inside"), (8, "outside")):
        tailing.clock.advance(-days * DAY_S)
        tailing.write(name, f"{name}\n")
        tailing.clock.advance(days * DAY_S)
    with caplog.at_level(logging.WARNING):
        tailing.drain()
        tailing.drain()
    assert tailing.text == "new\ninside\n"
    assert [late.path for plan in tailing.plans for late in plan.late] == ["in/outside"]
    assert caplog.text.count("'in/outside'") == 1
    assert tailing.known.late == 1
    tailing.restart()
    tailing.drain()
    assert tailing.planner.report()["late"] == 1
    assert tailing.known.late == 1


def test_27_a_late_file_is_counted_once_however_many_plans_a_listing_has() -> None:
    tailing = Tailing(maxFileAge="7d", maxFilesPerTrigger="1", scanInterval="1min")
    tailing.write("new", "new\n")
    tailing.drain()
    tailing.clock.advance(-8 * DAY_S)
    tailing.write("late", "late\n")
    tailing.clock.advance(8 * DAY_S + 60)
    for number in range(5):
        tailing.write(str(number), "x\n")
    assert tailing.drain() == 5
    assert tailing.known.late == 1


@pytest.mark.parametrize("how", ["rename", "compress"])
def test_27_a_rotated_log_that_was_read_is_not_late(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log was read and forgotten under another name. A compressed copy has the modification time of the log."""
    tailing = Tailing(maxFileAge="1d")
    tailing.write("a.log", "x\n")
    written_ms = tailing.clock.now_ms()
    tailing.drain()
    tailing.clock.advance(2 * DAY_S)
    tailing.write("b.log", "y\n")
    tailing.drain()
    assert len(tailing.known) == 1
    if how == "rename":
        tailing.rename("a.log", "a.log.1")
    else:
        now_ms = tailing.clock.now_ms()
        tailing.clock.set(written_ms)
        tailing.compress("a.log", "a.log.1.gz")
        tailing.clock.set(now_ms)
        tailing.delete("a.log")
    with caplog.at_level(logging.WARNING):
        tailing.settle()
    assert tailing.text == "x\ny\n"
    assert not caplog.records


def test_what_was_forgotten_is_neither_read_again_nor_late(caplog: pytest.LogCaptureFixture) -> None:
    tailing = Tailing(maxFileAge="1d")
    for number in range(5):
        tailing.write(str(number), "x\n")
        tailing.drain()
        tailing.clock.advance(DAY_S)
    with caplog.at_level(logging.WARNING):
        tailing.drain()
    assert len(tailing.known) == 1
    assert len(tailing.reads) == 5
    assert not caplog.records


def test_a_file_touched_since_it_was_read_is_not_forgotten() -> None:
    """The file has a new modification time. If the planner forgot the file, it would read it again."""
    tailing = Tailing(maxFileAge="1d")
    tailing.write("old", "x\n")
    tailing.drain()
    for number in range(4):
        tailing.clock.advance(DAY_S / 2)
        tailing.write("old", "x\n")
        tailing.write(str(number), "y\n")
        tailing.drain()
    tailing.restart()
    tailing.drain()
    assert tailing.text == "x\n" + "y\n" * 4
    tailing.append("old", "z\n")
    tailing.drain()
    assert tailing.text.endswith("y\nz\n")


def test_a_time_in_the_future_does_not_make_all_else_late() -> None:
    tailing = Tailing()
    tailing.clock.advance(10_000 * DAY_S)
    tailing.write("future", "x\n")
    tailing.clock.advance(-10_000 * DAY_S)
    tailing.drain()
    tailing.write("now", "y\n")
    tailing.drain()
    assert tailing.text == "x\ny\n"


def test_a_backlog_of_old_files_is_read_before_any_of_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extend, "KNOWN_FILES_MAX", 2)
    tailing = Tailing(maxFileAge="1d", maxFilesPerTrigger="1")
    for number in range(10):
        tailing.write(str(number), "x\n")
        tailing.clock.advance(DAY_S * 3)
    tailing.drain()
    assert len(tailing.reads) == 10
    assert len(tailing.known) == 1


def test_a_file_that_cannot_be_opened_at_first_is_not_late() -> None:
    tailing = Tailing(maxFileAge="1d")
    tailing.write("a", "x\n")
    tailing.clock.advance(DAY_S * 3)
    tailing.write("b", "y\n")
    open_file = tailing.fs.open

    def refuse(path: str) -> InputFile:
        if path == "in/a":
            raise Unavailable("open", path, "a server restarts")
        return open_file(path)

    tailing.replace("open", refuse)
    tailing.drain()
    tailing.replace("open", open_file)
    tailing.settle()
    assert tailing.reads == [("b", b"y\n"), ("a", b"x\n")]


@pytest.mark.parametrize("same_time", [False, True])
def test_no_more_files_are_known_than_may_be(same_time: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file more than the limit, and many more. All files of the newest time stay known, so that none is late."""
    monkeypatch.setattr(extend, "KNOWN_FILES_MAX", 10)
    tailing = Tailing(maxFilesPerTrigger="3")
    for number in range(40):
        tailing.write(f"{number:02}", "x\n")
        tailing.clock.advance(0 if same_time else 1)
    sizes = []
    while tailing.scan(seconds=0.1) is not None:
        sizes.append(len(tailing.known))
    assert len(tailing.reads) == 40
    assert max(sizes) == (40 if same_time else 10)
    assert tailing.known.rows.nbytes == ROW.itemsize * len(tailing.known)
    tailing.write("new", "x\n")
    tailing.clock.advance(1)
    tailing.drain()
    assert len(tailing.reads) == 41
    assert len(tailing.known) == (1 if same_time else 10)


def test_a_changed_pattern_reads_nothing_again() -> None:
    """The changed pattern changes the root to which patterns are relative."""
    tailing = Tailing("in")
    tailing.write("a.log", "x\n")
    tailing.drain()
    other = Tailing("in/*.log")
    other.name = tailing.name
    assert tailing.settings.root != other.settings.root
    settings = other.settings.root.replace(other.settings.root.split("/")[2], tailing.name)
    assert key_of(settings, "a.log") == key_of(tailing.settings.root, "in/a.log")
    assert tailing.known.get(key_of(settings, "a.log")) is not None


def test_the_report_counts_what_is_left() -> None:
    tailing = Tailing(maxFilesPerTrigger="1")
    assert tailing.planner.report() == {}
    tailing.write("a", "one\ntwo")
    tailing.clock.advance(1)
    tailing.write("b", "three\n")
    oldest = int(tailing.clock.now_ms())
    tailing.scan(seconds=0)
    assert tailing.planner.report() == {
        "known": 0,
        "parked": 0,
        "refused": 0,
        "late": 0,
        "filesBehind": 2,
        "bytesBehind": 9,
        "oldestUnread": oldest - 1000,
    }
    tailing.drain()
    report = tailing.planner.report()
    assert (report["known"], report["filesBehind"], report["bytesBehind"]) == (2, 1, 3)


def test_what_is_remembered_of_files_that_are_gone_is_dropped() -> None:
    tailing = Tailing()
    for number in range(300):
        tailing.write("a", f"half a line {number}")
        tailing.rename("a", str(number))
        if number % 50 == 49:
            tailing.scan()
            for gone in range(number - 49, number + 1):
                tailing.delete(str(gone))
    tailing.scan()
    tailing.scan()
    assert not tailing.planner._memories  # noqa: SLF001


@pytest.mark.slow
def test_names_of_files_that_were_cut_off_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extend, "KNOWN_FILES_MAX", 10)
    tailing = Tailing()
    for number in range(200):
        tailing.write("a", f"a line {number}\nhalf" if number % 2 else "one\n")
        tailing.scan()
    assert len(tailing.planner._memories) <= 12  # noqa: SLF001
