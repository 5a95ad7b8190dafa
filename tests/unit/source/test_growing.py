"""Lines of growing files: complete lines, limits, and a last line that is never terminated."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftfile.source.contents import end_of_lines, first_line_end, last_line_end
from ftfile.testing.context import repeatable
from tests.kit.files_run import FilesRun
from tests.kit.parameters import parametrize
from tests.unit.source.tailing import Tailing, parked

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileInfo


def test_15_half_a_line_half_a_character_and_half_a_line_end_wait() -> None:
    tailing = Tailing()
    tailing.write("a.log", "one\ntw")
    tailing.drain()
    tailing.append("a.log", "ö".encode()[:1])
    tailing.drain()
    assert tailing.text == "one\n"
    tailing.append("a.log", "ö".encode()[1:] + b"\r")
    tailing.drain()
    assert tailing.text == "one\n"
    tailing.append("a.log", "\nthree")
    tailing.drain()
    assert tailing.text == "one\ntwö\r\n"


def test_16_a_last_line_without_its_end_counts_when_the_file_does_not_change() -> None:
    tailing = Tailing(closeInactive="1min")
    tailing.write("a.log", "one\ntwo")
    tailing.drain()
    tailing.clock.advance(30)
    tailing.append("a.log", ".")
    tailing.scan()
    tailing.scan(seconds=59)
    assert tailing.text == "one\n"
    tailing.scan(seconds=2)
    assert tailing.text == "one\ntwo."
    assert tailing.scan() is None
    tailing.append("a.log", "\nthree\n")
    tailing.drain()
    assert tailing.text == "one\ntwo.\nthree\n"


@pytest.mark.parametrize("restarts", [False, True])
@parametrize("ahead_s", [None, -400, 3600], quick=1)
def test_16_no_time_of_the_storage_tears_a_line(ahead_s: int | None, restarts: bool) -> None:
    """The storage's clock is wrong, or its times do not change (None), while a writer slowly writes a line."""
    tailing = Tailing()
    began_ms, list_files = tailing.clock.now_ms(), tailing.fs.list

    def list_with_odd_times(path: str) -> list[FileInfo]:
        infos = list_files(path)
        times = [began_ms if ahead_s is None else info.modified_ms + 1000 * ahead_s for info in infos]
        return [info._replace(modified_ms=time) for info, time in zip(infos, times, strict=True)]

    tailing.replace("list", list_with_odd_times)
    for first in ("one\n", ""):
        tailing.append("a.log", first)
        tailing.scan()
        for _ in range(10):
            tailing.append("a.log", ".")
            if restarts:
                tailing.restart()
            tailing.scan(seconds=60)
        tailing.append("a.log", "two\n")
        tailing.settle()
    assert tailing.text == "one\n..........two\n..........two\n"
    assert all(data.endswith(b"\n") for _, data in tailing.reads)


def test_16_a_new_process_counts_from_the_newest_plan() -> None:
    tailing = Tailing(closeInactive="1min")
    tailing.write("a.log", "one\ntwo")
    tailing.write("b.log", "three")
    tailing.scan()
    tailing.restart()
    tailing.scan(seconds=59)
    assert tailing.text == "one\n"
    tailing.restart()
    tailing.scan(seconds=1)
    assert tailing.text == "one\ntwo"
    tailing.scan(seconds=60)  # the first listing of this process contained the line
    assert tailing.text == "one\ntwothree"


@pytest.mark.parametrize("before", ["", "one\n"])
def test_16_in_a_run_of_one_listing_the_age_of_a_file_counts(before: str) -> None:
    """`availableNow` lists once in each run, so no process observes the file for long enough."""
    tailing = Tailing(closeInactive="1min")
    if before:
        tailing.write("a.log", before)
        tailing.drain()
    tailing.append("a.log", "two")
    for seconds, text in ((57, before), (2, f"{before}two")):
        tailing.clock.advance(seconds)
        tailing.restart()
        tailing.scan(tailing.planner.list(), seconds=0.5)
        assert tailing.text == text


def test_a_name_that_is_not_utf_8_is_a_name(tmp_path: Path) -> None:
    names = [b"\xff.log", b"\xc3(.log", "e\u0301.log".encode(), "\u00e9.log".encode(), b"new\nline %20.log"]
    files = [tmp_path / "in" / os.fsdecode(name) for name in names]
    (tmp_path / "in").mkdir()
    options = {"fileFormat": "text", "stateLocation": str(tmp_path / "state"), "scanInterval": "0s"}
    with repeatable():
        run = FilesRun(str(tmp_path / "in"), {"value": "string"}, options, pause_s=2)
        for line in ("one", "two"):
            for number, file in enumerate(files):
                with file.open("a") as stream:
                    stream.write(f"{line} {number}\n")
            run.run()
            run.restart()
        assert sorted(row["value"] for row in run.rows) == [f"{line} {n}" for line in ("one", "two") for n in range(5)]


def test_16_a_clock_behind_that_of_the_storage_closes_files_too() -> None:
    tailing = Tailing(closeInactive="1min")
    tailing.clock.advance(86_400)
    tailing.write("a.log", "one")
    tailing.clock.advance(-86_400)
    tailing.scan()
    tailing.scan(seconds=59)
    assert tailing.text == ""
    tailing.scan(seconds=2)
    assert tailing.text == "one"


@pytest.mark.parametrize("line_bytes", [50, 1000])
def test_26_FSI_8_a_large_file_is_read_in_as_many_batches_as_its_limit_says(line_bytes: int) -> None:
    tailing = Tailing(maxBytesPerTrigger="10k")
    line = "x" * (line_bytes - 1) + "\n"
    tailing.write("a.log", line * (50 * 10 * 1024 // line_bytes))
    count = tailing.drain()
    assert 50 <= count <= 50 * (1 + 1 / (10 * 1024 // line_bytes)) + 1
    assert tailing.text == line * (50 * 10 * 1024 // line_bytes)
    assert max(len(data) for _, data in tailing.reads) <= 10 * 1024


def test_26_a_line_longer_than_the_limit_is_a_batch() -> None:
    tailing = Tailing(maxBytesPerTrigger="10")
    tailing.write("a.log", "short\n" + "long" * 100 + "\n" + "short\n")
    tailing.drain()
    assert [len(data) for _, data in tailing.reads] == [6, 401, 6]


def test_26_a_long_line_without_its_end_waits_whatever_the_limit_is() -> None:
    tailing = Tailing(maxBytesPerTrigger="10", closeInactive="1min")
    tailing.write("a.log", "long" * 100)
    tailing.write("b.log", "short\n")
    tailing.drain()
    assert tailing.text == "short\n"
    tailing.scan(seconds=60)
    assert tailing.text == "short\n" + "long" * 100


def test_limits_of_files_and_bytes_count_together() -> None:
    tailing = Tailing(maxFilesPerTrigger="3", maxBytesPerTrigger="25")
    for number in range(10):
        tailing.write(f"{number}.log", "ten bytes\n")
        tailing.clock.advance(1)
    assert tailing.drain() == 5
    assert [len(plan.ranges) for plan in tailing.plans] == [2] * 5
    assert [path for path, _ in tailing.reads] == [f"{number}.log" for number in range(10)]
    unlimited = Tailing(maxFilesPerTrigger="3", maxBytesPerTrigger="25")
    for number in range(10):
        unlimited.write(f"{number}.log", "ten bytes\n")
    unlimited.scan(limited=False)
    assert len(unlimited.reads) == 10


def test_no_line_of_the_next_file_has_room() -> None:
    """The first line of the second file would exceed the limit, so the next batch begins with this file."""
    tailing = Tailing(maxBytesPerTrigger="15")
    tailing.write("a.log", "ten bytes\n")
    tailing.clock.advance(1)
    tailing.write("b.log", "ten bytes\n")
    tailing.drain()
    assert [len(plan.ranges) for plan in tailing.plans] == [1, 1]


@pytest.mark.parametrize(("given", "found"), [("\\r\\n", b"a\nb\r\n"), ("|;", b"a\n|;"), ("ä", "aä".encode())])
def test_TAIL_3_a_separator_of_one_s_own(given: str, found: bytes) -> None:
    separator = given.replace("\\r\\n", "\r\n")
    tailing = Tailing(lineSep=separator)
    tailing.write("a.log", found + b"rest")
    tailing.drain()
    assert tailing.reads == [("a.log", found)]


def ends(data: bytes, separator: bytes) -> list[int]:
    found, at = [], 0
    while (at := data.find(separator, at)) >= 0:
        at += len(separator)
        found.append(at)
    return found


@pytest.mark.slow
@settings(max_examples=settings().max_examples * 4)  # an example is cheap
@given(
    st.lists(st.sampled_from([b"a", b"\n", b"|", b"|;", b"bcd" * 5]), max_size=30).map(b"".join),
    st.sampled_from([b"\n", b"|;", b"\r\n", b"|;a"]),
    st.integers(1, 70),
    st.integers(1, 16),
)
def test_ends_of_lines_are_those_of_the_whole_file(data: bytes, separator: bytes, limit: int, chunk: int) -> None:
    from ftfile.source import contents as growth

    def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    whole, growth_chunk = ends(data, separator), growth._CHUNK_BYTES  # noqa: SLF001 - small chunks meet every border
    growth._CHUNK_BYTES = max(chunk, len(separator))  # noqa: SLF001
    try:
        start, taken = 0, []
        while (end := end_of_lines(read, start, len(data), separator, limit)) > start:
            assert end - start <= limit or not any(start < each <= start + limit for each in whole)
            taken.append(end)
            start = end
        assert set(taken) <= set(whole)
        assert (taken or [0])[-1] == (whole or [0])[-1]
        assert last_line_end(read, 0, len(data), separator) == (whole[-1] if whole else None)
        assert first_line_end(read, 0, len(data), separator) == (whole[0] if whole else None)
    finally:
        growth._CHUNK_BYTES = growth_chunk  # noqa: SLF001


def test_line_ends_beyond_a_chunk_are_found() -> None:
    """More than 64 KiB without a line end, before and after a limit."""
    draw = random.Random(1)
    sizes = [draw.randrange(1, 200_000) for _ in range(20)]
    text = "".join("x" * (size - 1) + "\n" for size in sizes)
    tailing = Tailing(maxBytesPerTrigger="70k")
    tailing.write("a.log", text)
    tailing.drain()
    assert tailing.text == text
    assert all(data.endswith(b"\n") for _, data in tailing.reads)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_with_other_content_than_is_known_is_new_whatever_its_listing_shows(restarts: bool) -> None:
    """The modification time and the length do not change. The content decides after a first line was read."""
    tailing = Tailing(maxBytesPerTrigger="20", failOnDataLoss="false")
    tailing.write("a.log", "".join(f"old line {number:03}\n" for number in range(9)))
    tailing.scan()
    assert tailing.text == "old line 000\n"
    other = "".join(f"new line {number:03}\n" for number in range(9))
    listed = tailing.fs.list
    infos = {info.path: info for info in listed("in")}
    tailing.replace("list", lambda path: [infos.get(info.path, info) for info in listed(path)])
    tailing.write("a.log", other)
    if restarts:
        tailing.restart()
    tailing.settle()
    assert tailing.text == "old line 000\n" + other
    assert not any(parked(plan) for plan in tailing.plans)
