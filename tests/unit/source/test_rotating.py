"""Renamed, copied, truncated and compressed files: each line is read once if the identity of the files is decidable."""

from __future__ import annotations

import gzip
import logging
import random
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import PermissionDenied, SourceError
from tests.kit.parameters import parametrize
from tests.unit.source.tailing import Tailing, parked

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import InputFile

BOTH = pytest.mark.parametrize("identity", ["native", "content"])


def lines(first: int, count: int) -> str:
    return "".join(f"line {number:06} of a log that goes on and on\n" for number in range(first, first + count))


@BOTH
@pytest.mark.parametrize("count", [7, 50])
def test_17_a_renamed_file_goes_on(identity: str, count: int) -> None:
    tailing = Tailing(fileIdentity=identity, failOnDataLoss="true")
    tailing.write("a.log", lines(0, count))
    tailing.drain()
    tailing.append("a.log", lines(count, 1))
    tailing.rename("a.log", "a.log.1")
    tailing.write("a.log", lines(count + 1, 2))
    tailing.settle()
    assert sorted(tailing.text.splitlines(keepends=True)) == lines(0, count + 3).splitlines(keepends=True)
    assert len(tailing.known) == 2


@BOTH
@parametrize("restarts", [False, True], quick=1)
def test_17_a_chain_of_three_renamed_files_goes_on(identity: str, restarts: bool) -> None:
    tailing = Tailing(fileIdentity=identity, failOnDataLoss="true")
    written = 0
    for _ in range(5):
        tailing.append("a.log", lines(written, 30))
        tailing.drain()
        tailing.append("a.log", lines(written + 30, 1))
        written += 31
        for number in (3, 2, 1):
            source = "a.log" if number == 1 else f"a.log.{number - 1}"
            if tailing.storage.exists(f"in/a.log.{number}"):
                tailing.delete(f"a.log.{number}")
            if tailing.storage.exists(f"in/{source}"):
                tailing.rename(source, f"a.log.{number}")
        if restarts:
            tailing.restart()
        tailing.drain()
    assert tailing.text == lines(0, written)


def test_17_a_new_file_that_begins_as_the_renamed_one_did_is_read() -> None:
    """The new file has the known path and content, but the known file has another name now."""
    tailing = Tailing()
    tailing.write("a.log", "begin\n")
    tailing.drain()
    tailing.rename("a.log", "a.log.1")
    tailing.write("a.log", "begin\nmore\n")
    tailing.drain()
    assert tailing.reads == [("a.log", b"begin\n"), ("a.log", b"begin\nmore\n")]


@pytest.mark.parametrize("more", [0, 1, 40])
@pytest.mark.parametrize("keeps", [False, True], ids=["moved", "kept"])
def test_17_a_compressed_file_goes_on(more: int, keeps: bool) -> None:
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 60))
    tailing.drain()
    tailing.append("a.log", lines(60, more))
    tailing.rename("a.log", "a.log.1")
    tailing.compress("a.log.1", "a.log.1.gz")
    if not keeps:
        tailing.delete("a.log.1")
    tailing.write("a.log", lines(60 + more, 1))
    tailing.drain(seconds=11)
    tailing.rename("a.log.1.gz", "a.log.2.gz")
    tailing.settle()
    assert sorted(tailing.text.splitlines(keepends=True)) == lines(0, 61 + more).splitlines(keepends=True)


@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize("how", ["copy", "copy and compress", "compress"])
def test_18_of_two_copies_of_a_file_that_is_gone_one_goes_on(how: str, more: int) -> None:
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    numbers = random.Random(how)
    content = "".join(f"{numbers.random()}\n" for _ in range(65))
    rows = content.splitlines(keepends=True)
    tailing.write("a.log", "".join(rows[:60]))
    tailing.drain()
    tailing.append("a.log", "".join(rows[60 : 60 + more]))
    for name, by in zip("bc", (how.split(" and ") * 2)[:2], strict=True):
        getattr(tailing, by)("a.log", f"{name}.gz" if by == "compress" else name)
    tailing.delete("a.log")
    tailing.settle()
    plain = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for _, data in tailing.reads)
    assert b"".join(plain).decode() == "".join(rows[: 60 + more])


@parametrize("more", [0, 5], quick=1)
@pytest.mark.parametrize("keeps", [False, True], ids=["unpacked", "copied"])
@pytest.mark.parametrize("restarts", [False, True])
def test_17_a_compressed_file_that_is_unpacked_again_is_not_read_again(more: int, keeps: bool, restarts: bool) -> None:
    """The content stays known up to the read position, compressed or plain."""
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 60))
    tailing.drain()
    tailing.append("a.log", lines(60, more))
    tailing.compress("a.log", "a.log.1.gz")
    tailing.delete("a.log")
    tailing.settle()
    assert tailing.text == lines(0, 60 + more)
    if restarts:
        tailing.restart()
    tailing.write("a.log.1", lines(0, 60 + more))
    if not keeps:
        tailing.delete("a.log.1.gz")
    tailing.settle()
    assert tailing.text == lines(0, 60 + more)
    tailing.append("a.log.1", lines(60 + more, 1))
    tailing.settle()
    assert tailing.text == lines(0, 61 + more)


def test_17_a_log_that_is_compressed_and_begun_anew_between_two_plans_is_read_once() -> None:
    """If the copy is unpacked later, its lines are not read again: the displaced log has the position of the copy."""
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 60))
    tailing.drain()
    tailing.append("a.log", lines(60, 5))
    tailing.compress("a.log", "a.log.1.gz")
    tailing.delete("a.log")
    assert tailing.scan() is None, "the compressed file may be incomplete"
    tailing.write("a.log", lines(100, 60))
    plan = tailing.scan(seconds=11)
    assert plan is not None
    assert {entry.rule for entry in plan.files} == {"replaced", "continued"}, "one plan has both rules"
    tailing.settle()
    content = gzip.decompress(tailing.storage.read("in/a.log.1.gz"))
    tailing.delete("a.log.1.gz")
    tailing.write("a.log.1", content)
    tailing.settle()
    assert sorted(tailing.text.splitlines(True)) == (lines(0, 65) + lines(100, 60)).splitlines(True)


@pytest.mark.parametrize("is_unpacked", [False, True])
def test_17_a_copy_of_what_a_damaged_file_was_is_not_read_again(is_unpacked: bool) -> None:
    """The damaged file is parked. Reading resumes in its older copy at the position of the file."""
    tailing = Tailing(fileIdentity="content", maxRetries="0", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 60))
    tailing.drain()
    tailing.compress("a.log", "a.log.1.gz")
    tailing.delete("a.log")
    tailing.settle()
    content = tailing.storage.read("in/a.log.1.gz")
    tailing.write("a.log.1.gz", content[:20] + bytes(len(content) - 20))
    tailing.settle()
    assert [entry.path for entry in parked(tailing.plans[-1])] == ["in/a.log.1.gz"]
    tailing.write(*(("b.log", lines(0, 60)) if is_unpacked else ("b.log.gz", content)))
    tailing.settle()
    assert tailing.text == lines(0, 60)
    assert tailing.scan(seconds=11) is None


def test_23_a_damaged_file_and_its_copy_are_both_left_out() -> None:
    tailing = Tailing(fileIdentity="content", maxRetries="0")
    content = gzip.compress(lines(0, 60).encode(), mtime=0)
    for path in ("a.log.gz", "b.log.gz"):
        tailing.write(path, content[:20] + bytes(len(content) - 20))
    tailing.settle()
    assert [entry.path for plan in tailing.plans for entry in parked(plan)] == ["in/a.log.gz", "in/b.log.gz"]
    assert not tailing.reads


def test_17_a_compressed_file_is_read_again_as_native() -> None:
    tailing = Tailing()
    tailing.write("a.log", lines(0, 60))
    tailing.drain()
    tailing.compress("a.log", "a.log.1.gz")
    tailing.delete("a.log")
    tailing.settle()
    assert [path for path, _ in tailing.reads] == ["a.log", "a.log.1.gz"]
    assert tailing.plans[-1].ranges[0].whole
    assert tailing.plans[-1].ranges[0].compression == "gzip"


@parametrize("between", range(4), quick=1)
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("count", [7, 22, 60])
def test_18_a_file_that_is_copied_and_cut_off_is_read_once(between: int, restarts: bool, count: int) -> None:
    """The directory is scanned after one of these steps: new lines, a copy, a truncation, new lines."""
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, count))
    tailing.drain()

    def scan_after(step: int) -> None:
        if step == between:
            if restarts:
                tailing.restart()
            tailing.drain()

    tailing.append("a.log", lines(count, 3))
    scan_after(0)
    tailing.copy("a.log", "a.log.1")
    scan_after(1)
    tailing.write("a.log", "")
    scan_after(2)
    tailing.append("a.log", lines(count + 3, 2))
    scan_after(3)
    tailing.drain(seconds=11)
    tailing.append("a.log", lines(count + 5, 1))
    tailing.settle()
    assert sorted(tailing.text.splitlines(keepends=True)) == lines(0, count + 6).splitlines(keepends=True)


def test_18_a_copy_in_progress_is_followed_without_rows() -> None:
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 100))
    tailing.drain()
    for end in (10, 50, 100):
        tailing.write("a.log.1", lines(0, end))
        tailing.drain()
    tailing.append("a.log", lines(100, 3))
    tailing.drain()
    assert tailing.text == lines(0, 103)
    assert {path for path, _ in tailing.reads} == {"a.log"}


def test_18_a_copy_that_stops_in_a_line_is_still_being_made() -> None:
    """Even after a long rest, the copy is recorded only when it ends at the read position or with a line end."""
    tailing = Tailing(fileIdentity="content")
    tailing.write("a.log", lines(0, 60))
    tailing.drain()
    for size in (300, 1303):
        tailing.write("b.log", lines(0, 60)[:size])
        assert [tailing.scan(seconds=600) for _ in range(3)] == [None] * 3
    tailing.append("b.log", lines(0, 60)[1303:])
    tailing.settle()
    assert [entry.path for entry in tailing.plans[-1].files] == ["in/b.log"]
    assert tailing.text == lines(0, 60)


def test_18_a_copy_in_a_renamed_file_of_which_nothing_was_read_is_none_that_moved() -> None:
    """The identity does not prove the content: a new file may reuse the identity of a deleted file."""
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 60))
    tailing.write("b.log", lines(60, 60))
    tailing.drain()
    tailing.write("a.log", "")
    tailing.drain()
    tailing.rename("a.log", "c.log")
    tailing.copy("b.log", "c.log")
    tailing.settle()
    assert sorted(tailing.text.splitlines(keepends=True)) == lines(0, 120).splitlines(keepends=True)


@pytest.mark.parametrize("restarts", [False, True])
@parametrize("ends", [(10, 20, 100), (20, 50, 100), (20, 100), (7, 100)], quick=2)
def test_18_a_copy_that_rests_below_a_kib_and_grows_is_not_read(ends: tuple[int, ...], restarts: bool) -> None:
    """The short copy is already known, and its known beginning is shorter than the beginning of its original."""
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 100))
    tailing.drain()
    for end in ends:
        tailing.write("a.log.1", lines(0, end))
        tailing.settle()
        if restarts:
            tailing.restart()
    assert tailing.text == lines(0, 100)
    tailing.append("a.log.1", lines(100, 1))
    tailing.settle()
    assert tailing.text == lines(0, 101)


def test_18_a_copy_that_goes_on_with_other_lines_is_read_from_there() -> None:
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 100))
    tailing.drain()
    tailing.copy("a.log", "b.log")
    tailing.drain(seconds=11)
    tailing.append("b.log", "of its own\n")
    tailing.drain(seconds=11)
    assert tailing.text == lines(0, 100) + "of its own\n"


def test_18_a_copy_taken_before_the_last_lines_is_named(caplog: pytest.LogCaptureFixture) -> None:
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 40))
    tailing.drain()
    tailing.copy("a.log", "a.log.1")
    tailing.append("a.log", lines(40, 1))
    tailing.drain()
    tailing.write("a.log", lines(41, 1))
    with caplog.at_level(logging.WARNING):
        tailing.drain(seconds=11)
    tailing.settle()
    assert tailing.text == lines(0, 42)


def test_18_a_copy_first_seen_when_its_original_is_cut_off_is_named(caplog: pytest.LogCaptureFixture) -> None:
    tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 40))
    tailing.drain()
    copy = tailing.storage.read("in/a.log")
    tailing.append("a.log", lines(40, 1))
    tailing.drain()
    tailing.write("a.log.1", copy)
    tailing.write("a.log", lines(41, 1))
    with caplog.at_level(logging.WARNING):
        tailing.settle()
    assert tailing.text == lines(0, 42)
    assert "'in/a.log.1' is treated as a copy of 'in/a.log'" in caplog.text


@pytest.mark.parametrize("grows", [True, False])
def test_18_a_short_copy_of_what_was_cut_off_waits_until_it_rests(grows: bool) -> None:
    """In plans of the same listing, a copy below 1 KiB may be incomplete, or may begin like the log by chance."""
    tailing = Tailing(fileIdentity="content", closeInactive="1min")
    tailing.write("a.log", lines(0, 40))
    tailing.drain()
    tailing.write("a.log.1", lines(0, 10))
    tailing.write("a.log", lines(40, 10))
    listing = tailing.planner.list()
    for _ in range(3):
        tailing.scan(listing, seconds=1)
    assert tailing.text == lines(0, 50)
    if grows:
        tailing.write("a.log.1", lines(0, 40))
        tailing.settle()
    else:
        tailing.scan(listing, seconds=61)
    assert tailing.text == lines(0, 50) + ("" if grows else lines(0, 10))


@pytest.mark.parametrize(("size", "is_matched"), [(255, False), (256, True)])
def test_less_than_256_bytes_tell_no_file(size: int, is_matched: bool) -> None:
    """A shorter file waits for more lines, because a copy of it would be read again."""
    tailing = Tailing(fileIdentity="content", closeInactive="1min", maxBytesPerTrigger="10")
    tailing.write("a.log", "x" * (size - 1) + "\n")
    tailing.drain()
    assert len(tailing.reads) == is_matched
    tailing.drain(seconds=61)
    assert len(tailing.reads) == 1
    tailing.copy("a.log", "a.log.1")
    tailing.drain()
    tailing.drain(seconds=61)
    assert len(tailing.reads) == (1 if is_matched else 2)


def test_several_rotations_between_two_scans() -> None:
    for how in ("copy", "compress"):
        tailing = Tailing(fileIdentity="content", failOnDataLoss="true")
        tailing.write("a.log", lines(0, 40))
        tailing.drain()
        written = 40
        for number in (3, 2, 1):
            tailing.append("a.log", lines(written, 7))
            written += 7
            getattr(tailing, how)("a.log", f"a.log.{number}" + ".gz" * (how == "compress"))
            tailing.write("a.log", "")
        tailing.write("a.log", lines(written, 8))
        tailing.restart()
        tailing.drain(seconds=11)
        content = b"".join(
            gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for _, data in tailing.reads
        ).decode()
        assert sorted(content.splitlines(keepends=True)) == lines(0, written + 8).splitlines(keepends=True)


@BOTH
def test_20_a_shrunk_file_is_a_new_one(identity: str) -> None:
    tailing = Tailing(fileIdentity=identity, failOnDataLoss="true")
    tailing.write("a.log", lines(0, 50))
    tailing.drain()
    tailing.write("a.log", lines(7, 3))
    tailing.settle()
    assert tailing.last == [("a.log", lines(7, 3))]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("rest", ["", "half a line"])
def test_20_a_truncation_that_a_listing_has_seen_counts(rest: str, restarts: bool) -> None:
    """The truncation counts even if the log has its old content again before a line of it is read."""
    tailing = Tailing(failOnDataLoss="true")
    tailing.write("a.log", lines(0, 20))
    tailing.drain()
    tailing.write("a.log", rest)
    tailing.drain()
    if restarts:
        tailing.restart()
    tailing.write("a.log", lines(0, 20))
    tailing.settle()
    assert tailing.text == lines(0, 20) * 2


def test_20_a_truncation_counts_where_a_plan_has_no_room() -> None:
    tailing = Tailing(maxFilesPerTrigger="1", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 20))
    tailing.write("b.log", lines(20, 20))
    tailing.drain()
    tailing.append("a.log", lines(40, 1))
    tailing.clock.advance(1)
    tailing.write("b.log", lines(41, 1))
    tailing.scan()
    assert tailing.last == [("a.log", lines(40, 1))]
    tailing.write("b.log", lines(20, 20))
    tailing.settle()
    assert tailing.last == [("b.log", lines(20, 20))]


@BOTH
def test_20_a_file_replaced_by_one_as_long_is_a_new_one(identity: str) -> None:
    tailing = Tailing(fileIdentity=identity, failOnDataLoss="true")
    tailing.write("a.log", lines(0, 50))
    tailing.drain()
    tailing.delete("a.log")
    tailing.write("a.log", lines(50, 50))
    tailing.drain()
    assert tailing.text == lines(0, 100)


def test_20_content_is_compared_in_the_last_kib_before_the_position() -> None:
    """The first KiB and the length do not change."""
    tailing = Tailing()
    tailing.write("a.log", lines(0, 100))
    tailing.drain()
    tailing.write("a.log", lines(0, 99) + lines(500, 1))
    tailing.drain()
    assert tailing.last == [("a.log", lines(0, 99) + lines(500, 1))]


def test_21_a_file_that_vanished_with_unread_bytes_is_named(caplog: pytest.LogCaptureFixture) -> None:
    tailing = Tailing(maxBytesPerTrigger="100")
    tailing.write("a.log", lines(0, 9))
    tailing.scan()
    tailing.delete("a.log")
    with caplog.at_level(logging.WARNING):
        tailing.drain()
        assert not caplog.records  # the listing may have missed a file that was just renamed
        tailing.drain()
        tailing.drain()
    unread = len(lines(0, 9)) - tailing.plans[0].ranges[0].end
    assert [record.getMessage() for record in caplog.records] == [
        f"1 files, such as 'in/a.log', were deleted or truncated, and {unread} bytes of them were not read"
    ]


def test_21_a_file_that_vanished_with_unread_bytes_fails_the_query_if_so_told() -> None:
    tailing = Tailing(maxBytesPerTrigger="100", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 9))
    tailing.scan()
    tailing.rename("a.log", "a.log.1")
    tailing.drain()
    assert tailing.text == lines(0, 9)
    tailing.write("b.log", lines(0, 9))
    tailing.scan()
    tailing.delete("b.log")
    tailing.scan()
    with pytest.raises(SourceError, match=r"1 files, such as 'in/b\.log', were deleted"):
        tailing.scan()


def test_21_no_loss_is_told_of_while_a_file_waits_that_may_be_the_one() -> None:
    tailing = Tailing(fileIdentity="content", maxBytesPerTrigger="300", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 60))
    tailing.scan()
    tailing.compress("a.log", "a.log.1.gz")
    tailing.delete("a.log")
    for _ in range(3):
        assert tailing.scan() is None
    tailing.settle()
    assert tailing.text == lines(0, 60)


def test_21_a_listing_that_is_given_shows_losses_at_once() -> None:
    tailing = Tailing(maxBytesPerTrigger="100", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 9))
    tailing.scan()
    tailing.delete("a.log")
    tailing.restart()
    with pytest.raises(SourceError, match="deleted or truncated, and 287 bytes"):
        tailing.scan(tailing.planner.list())


@pytest.mark.parametrize("rest", ["", "half a line", "a line\n"])
def test_21_what_was_cut_off_is_lost_at_once(rest: str, caplog: pytest.LogCaptureFixture) -> None:
    """By identity, the lines are lost at once. By content, another path may have them, so the next listing decides."""
    for identity in ("native", "content"):
        tailing = Tailing(maxBytesPerTrigger="300", fileIdentity=identity, failOnDataLoss="true")
        tailing.write("a.log", lines(0, 20))
        tailing.scan()
        tailing.write("a.log", rest)
        if identity == "content":
            tailing.scan()
            tailing.scan()
        with pytest.raises(
            SourceError, match=r"1 files, such as 'in/a\.log', were deleted or truncated, and \d+ bytes"
        ):
            tailing.scan()
    with caplog.at_level(logging.WARNING):
        tailing = Tailing(maxBytesPerTrigger="300")
        tailing.write("a.log", lines(0, 20))
        tailing.scan()
        tailing.write("a.log", rest)
        tailing.settle()
    assert caplog.text.count("were deleted or truncated") == 1


def test_25_two_equal_files_are_both_read() -> None:
    tailing = Tailing()
    tailing.write("a.log", lines(0, 40))
    tailing.write("b.log", lines(0, 40))
    tailing.drain()
    tailing.copy("a.log", "c.log")
    tailing.drain()
    assert [path for path, _ in tailing.reads] == ["a.log", "b.log", "c.log"]


def test_28_an_inode_that_is_used_again_does_not_tell() -> None:
    """The storage gives the identity of a known file to a file with other content."""
    tailing = Tailing()
    tailing.write("a.log", lines(0, 40))
    tailing.drain()
    tailing.rename("a.log", "b.log")
    tailing.write("b.log", lines(40, 30))
    tailing.drain()
    assert tailing.last == [("b.log", lines(40, 30))]


@pytest.mark.slow
def test_a_file_is_compared_with_the_64_newest_that_begin_as_it_does() -> None:
    """The copy of the 65th file is read, because this file is not opened."""
    head = "#" * 1100 + "\n"
    tailing = Tailing(fileIdentity="content")
    for number in range(65):
        tailing.write(f"{number:02}.log", head + lines(100 * number, 20))
        tailing.clock.advance(1)
    tailing.drain()
    assert len(tailing.reads) == 65
    for number in (1, 0):
        assert len(tailing.reads) == 65
        tailing.write(f"{number:02}.copy", head + lines(100 * number, 19))
        tailing.settle()
    assert [path for path, _ in tailing.reads[65:]] == ["00.copy"]


@pytest.mark.parametrize("grown", [False, True])
def test_a_copy_that_is_new_together_with_its_original_is_read_once(grown: bool) -> None:
    tailing = Tailing(fileIdentity="content")
    tailing.write("a.log", lines(0, 30))
    tailing.copy("a.log", "b.log")
    tailing.append("b.log", lines(30, 5 * grown))
    tailing.settle()
    assert tailing.text == lines(0, 30 + 5 * grown)


class _Meddling:
    """Calls a function once, at a given number of calls that open a file."""

    def __init__(self, tailing: Tailing, path: str, at: int, deed: Callable[[], None]) -> None:
        self.opened = 0
        original = tailing.fs.open

        def meddle(asked: str) -> InputFile:
            if asked == path:
                self.opened += 1
                if self.opened == at:
                    deed()
            return original(asked)

        tailing.replace("open", meddle)


@BOTH
@parametrize("at", [1, 2, 3], quick=1)
@pytest.mark.parametrize("how", ["rename", "truncate"])
def test_17_a_file_that_is_rotated_while_a_plan_is_made_is_read_once(identity: str, at: int, how: str) -> None:
    """Before the first or a later opening of the path, a longer file replaces the file at this path."""
    tailing = Tailing(fileIdentity=identity)
    tailing.write("a.log", lines(0, 40))
    tailing.drain()
    added = 0 if how == "truncate" else 5

    def rotate() -> None:
        if how == "rename":
            tailing.rename("a.log", "a.log.1")
        tailing.write("a.log", lines(1000, 100))

    tailing.append("a.log", lines(40, added) if added else "half a line")
    meddling = _Meddling(tailing, "in/a.log", at, rotate)
    tailing.settle()
    if meddling.opened < at:
        rotate()
    tailing.settle()
    found = sorted(tailing.text.splitlines(keepends=True))
    assert found == (lines(0, 40 + added) + lines(1000, 100)).splitlines(keepends=True)


@BOTH
@pytest.mark.parametrize("at", [1, 2])
def test_17_a_file_that_is_rotated_twice_around_a_look_at_it_is_read_once(identity: str, at: int) -> None:
    """If a plan took the second file for the listed file, a later plan would not recognize it by its next name."""
    tailing = Tailing(fileIdentity=identity)

    def rotate() -> None:
        tailing.rename("a.log", "a.log.1")
        tailing.write("a.log", lines(1000, 100))

    if at == 2:
        tailing.write("a.log", lines(0, 20))
        tailing.drain()
    tailing.append("a.log", lines(20 if at == 2 else 0, 20 if at == 2 else 40))
    _Meddling(tailing, "in/a.log", at, rotate)
    tailing.scan()
    if not tailing.storage.exists("in/a.log.1"):
        rotate()
    tailing.rename("a.log.1", "a.log.2")
    tailing.rename("a.log", "a.log.1")
    tailing.write("a.log", lines(2000, 5))
    tailing.settle()
    tailing.settle()
    found = sorted(tailing.text.splitlines(keepends=True))
    assert found == (lines(0, 40) + lines(1000, 100) + lines(2000, 5)).splitlines(keepends=True)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("path", ["in/a.log", "in/a.log.1"])
@parametrize(("count", "behind", "after"), [(7, 5, 3), (7, 50, 300), (60, 5, 3), (60, 50, 300)], quick=1)
def test_18_a_log_that_is_cut_off_before_its_copy_is_compared_is_read_once(
    path: str, at: int, count: int, behind: int, after: int
) -> None:
    """The listing contains the log and its copy, with unread lines. Later the log is shorter or longer than before."""
    tailing = Tailing(fileIdentity="content")
    tailing.write("a.log", lines(0, count))
    tailing.drain()
    tailing.append("a.log", lines(count, behind))
    tailing.copy("a.log", "a.log.1")
    meddling = _Meddling(tailing, path, at, lambda: tailing.write("a.log", lines(2000, after)))
    tailing.scan(seconds=11)
    if meddling.opened < at:
        tailing.write("a.log", lines(2000, after))
    tailing.settle()
    tailing.settle()
    found = sorted(tailing.text.splitlines(keepends=True))
    assert found == (lines(0, count + behind) + lines(2000, after)).splitlines(keepends=True)


def test_17_an_original_that_is_renamed_before_it_is_compared_tells_nothing() -> None:
    """The assumed copy has the name of its original now, so it would be compared with itself."""
    banner = "#" * 1100 + "\n"
    tailing = Tailing(fileIdentity="content")
    tailing.write("a.log", banner + lines(0, 60))
    tailing.drain()
    tailing.rename("a.log", "a.log.1")
    tailing.drain()
    tailing.write("a.log", banner + lines(1000, 9))

    def rotate() -> None:
        tailing.rename("a.log.1", "a.log.2")
        tailing.rename("a.log", "a.log.1")

    meddling = _Meddling(tailing, "in/a.log.1", 1, rotate)
    tailing.scan(seconds=11)
    assert meddling.opened
    tailing.settle()
    tailing.settle()
    found = sorted(tailing.text.splitlines(keepends=True))
    assert found == sorted((banner + lines(0, 60) + banner + lines(1000, 9)).splitlines(keepends=True))


def test_17_a_file_that_is_renamed_before_it_is_opened_is_not_told_by_another_one() -> None:
    """A copy of a known file has the name of the renamed file now."""
    tailing = Tailing(fileIdentity="content")
    tailing.write("a.log", lines(0, 60))
    tailing.drain()
    tailing.write("b.log", lines(1000, 20))

    def rotate() -> None:
        tailing.rename("b.log", "b.log.1")
        tailing.copy("a.log", "b.log")

    meddling = _Meddling(tailing, "in/b.log", 1, rotate)
    tailing.scan(seconds=11)
    assert meddling.opened
    tailing.settle()
    assert tailing.text == lines(0, 60) + lines(1000, 20)


@pytest.mark.parametrize("how", ["compress", "copy"])
@pytest.mark.parametrize("keeps", [False, True], ids=["moved", "kept"])
def test_17_a_refused_file_goes_on_where_its_copy_is_found(how: str, keeps: bool) -> None:
    tailing = Tailing(fileIdentity="content", maxRetries="0", failOnDataLoss="true")
    tailing.write("a.log", lines(0, 40))
    tailing.drain()
    tailing.append("a.log", lines(40, 5))
    is_refused = True
    original = tailing.fs.open

    def refuse(asked: str) -> InputFile:
        if is_refused and asked == "in/a.log":
            raise PermissionDenied("open", asked, "as the test wants it")
        return original(asked)

    tailing.fs.open = refuse  # type: ignore[method-assign,assignment] # only of this storage
    tailing.drain()
    assert [file.path for file in tailing.plans[-1].refused] == ["in/a.log"]
    getattr(tailing, how)("a.log", "a.log.1" + ".gz" * (how == "compress"))
    is_refused = keeps
    if not keeps:
        tailing.delete("a.log")
    tailing.settle()
    assert tailing.text == lines(0, 40 if keeps else 45), "a copy waits for its original"
    is_refused = False
    tailing.append("a.log", lines(45, 1))
    tailing.settle()
    assert sorted(tailing.text.splitlines(keepends=True)) == lines(0, 46).splitlines(keepends=True)
