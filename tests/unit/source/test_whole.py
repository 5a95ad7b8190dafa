"""Files that are read as a whole: when they are complete, and how later changes are handled."""

from __future__ import annotations

import gzip
import itertools
import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from ftfile.core.errors import CorruptData, PermissionDenied, Unavailable
from ftfile.testing.context import repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.unit.source.tailing import Tailing, parked

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ftfile.storage.api import InputFile

TABLE = pa.table({"a": list(range(100))})


def stored(file_format: str) -> bytes:
    sink = pa.BufferOutputStream()
    if file_format == "parquet":
        pq.write_table(TABLE, sink)
    elif file_format == "orc":
        pyarrow.orc.write_table(TABLE, sink)
    else:
        pyarrow.feather.write_feather(TABLE, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@pytest.mark.parametrize("file_format", ["parquet", "orc", "arrow"])
def test_22_a_half_written_file_is_parked_and_the_rest_goes_on(
    file_format: str, caplog: pytest.LogCaptureFixture
) -> None:
    content = stored(file_format)
    tailing = Tailing(file_format=file_format)
    tailing.write("half", content[: len(content) // 2])
    tailing.write("whole", content)
    tailing.drain()
    assert tailing.reads == [("whole", content)]
    with caplog.at_level(logging.WARNING):
        tailing.drain(seconds=10)
    assert [entry.path for entry in parked(tailing.plans[-1])] == ["in/half"]
    assert (
        f"'in/half' is skipped until it changes: its end is not the end of a complete {file_format} file" in caplog.text
    )
    assert tailing.planner.report()["parked"] == 1
    tailing.restart()
    tailing.drain(seconds=60)
    assert len(tailing.reads) == 1
    tailing.write("half", content)
    tailing.drain()
    assert tailing.reads[1:] == [("half", content)]
    assert tailing.planner.report()["parked"] == 0


def test_22_a_parked_file_is_looked_at_once_by_each_new_process(caplog: pytest.LogCaptureFixture) -> None:
    """A process that can read the file, for example because it has the codec, reads it although it did not change."""
    tailing = Tailing(maxRetries="1", maxFilesPerTrigger="1")
    tailing.write("a.log.gz", gzip.compress(b"one\n"))
    tailing.write("b.log", "two\n")
    opened = Opened(tailing)
    opened.error = CorruptData("in/a.log.gz", "gzip", "something else")
    for _ in range(9):
        tailing.scan(seconds=11)
    assert [entry.path for plan in tailing.plans for entry in parked(plan)] == ["in/a.log.gz"]
    for _ in range(2):
        tailing.restart()
        opened.paths.clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert [tailing.scan(seconds=11) for _ in range(9)] == [None] * 9
        assert opened.paths == ["in/a.log.gz"] * 2, "a new process retries the file as often as any other file"
        assert caplog.text.count("'in/a.log.gz' is skipped until it changes: it cannot be read") == 1
        assert tailing.planner.report()["refused"] == 0
    opened.error = None
    assert tailing.scan(seconds=11) is None
    tailing.restart()
    tailing.settle()
    assert [path for path, _ in tailing.reads] == ["b.log", "a.log.gz"]
    assert tailing.planner.report()["parked"] == 0


class Opened:
    """The paths of compressed files that a planner opens.

    Attributes:
        paths: in the order of the calls.
        error: is raised instead of opening a file.
    """

    def __init__(self, tailing: Tailing) -> None:
        self.paths: list[str] = []
        self.error: Exception | None = None
        whole = tailing.fs.open

        def open_file(path: str) -> InputFile:
            if path.endswith(".gz"):
                self.paths.append(path)
                if self.error is not None:
                    raise self.error
            return whole(path)

        tailing.replace("open", open_file)


def test_22_an_overwritten_file_that_is_damaged_stays_overwritten(caplog: pytest.LogCaptureFixture) -> None:
    """The file was read to its end before the damage. After a repair, it is read again only on the user's request."""
    content = stored("parquet")
    tailing = Tailing(file_format="parquet")
    tailing.write("a", content)
    tailing.drain()
    tailing.write("a", b"PAR1 and no end" * 200)
    tailing.settle()
    assert [entry.path for entry in parked(tailing.plans[-1])] == ["in/a"]
    tailing.write("a", b"PAR1 another" + content)
    with caplog.at_level(logging.WARNING):
        tailing.settle()
    assert tailing.reads == [("a", content)]
    assert "'in/a' has changed since it was read" in caplog.text


@pytest.mark.parametrize("options", [{"tail": "false"}, {"multiLine": "true"}], ids=str)
def test_a_file_without_an_end_mark_is_complete_when_it_has_not_changed(options: dict[str, str]) -> None:
    tailing = Tailing(file_format="json", minFileAge="20s", **options)
    tailing.write("a.json", "{}\n")
    tailing.scan(seconds=15)
    tailing.append("a.json", "{}")
    tailing.scan()
    tailing.scan(seconds=19)
    assert tailing.text == ""
    tailing.scan(seconds=1)
    assert tailing.text == "{}\n{}"
    assert tailing.plans[0].ranges[0].whole


def test_where_files_appear_as_a_whole_they_are_complete() -> None:
    tailing = Tailing(tail="false")
    with repeatable(tailing.clock):
        storage = CrashingFileSystem(clock=tailing.clock, storage="s3")
    tailing.storage = tailing.fs = storage
    tailing.restart()
    tailing.write("a.txt", "x")
    tailing.scan()
    assert tailing.text == "x"


def test_compressed_files_are_read_as_a_whole() -> None:
    tailing = Tailing()
    tailing.write("a.log.gz", gzip.compress(b"x\n"))
    tailing.write("a.log", "y\n")
    tailing.drain()
    assert [path for path, _ in tailing.reads] == ["a.log"]
    tailing.drain(seconds=10)
    assert [each.compression for plan in tailing.plans for each in plan.ranges] == ["", "gzip"]


@pytest.mark.slow
def test_23_a_compressed_file_that_is_cut_off_is_parked_where_it_must_be_decoded() -> None:
    """The file begins like a deleted file. To resume after the read part, it must be decoded."""
    import random

    tailing = Tailing(fileIdentity="content", maxRetries="1")
    text = "".join(f"{random.Random(number).random()}\n" for number in range(9000))
    tailing.write("a.log", text)
    tailing.drain()
    tailing.delete("a.log")
    tailing.write("a.log.gz", gzip.compress(text.encode())[:-50_000])
    for _ in range(9):
        tailing.scan(seconds=11)
    (entry,) = parked(tailing.plans[-1])
    assert entry.path == "in/a.log.gz"
    assert "it cannot be read: 'in/a.log.gz' is corrupt" in entry.parked
    assert tailing.text == text


@pytest.mark.parametrize("lz4_frame", [False, True])
def test_the_two_ways_of_lz4_are_told_apart(lz4_frame: bool) -> None:
    from ftfile.filters.chain import Chain

    name = "lz4frame" if lz4_frame else "lz4"
    stream = Chain.for_reading((name,)).filters[0].encoder("")
    tailing = Tailing()
    tailing.write("a.log.lz4", stream.feed(b"x\n" * 100) + stream.finish())
    tailing.drain(seconds=11)
    assert tailing.plans[0].ranges[0].compression == name


@pytest.mark.parametrize("overwrites", [False, True])
def test_FSI_15_a_file_changed_later_is_named_or_read_again(overwrites: bool, caplog: pytest.LogCaptureFixture) -> None:
    tailing = Tailing(tail="false", allowOverwrites=str(overwrites))
    tailing.write("a.txt", "first")
    tailing.drain(seconds=11)
    tailing.write("a.txt", "second")
    with caplog.at_level(logging.WARNING):
        tailing.drain(seconds=11)
        tailing.restart()
        tailing.drain(seconds=11)
    assert [data for _, data in tailing.reads] == ([b"first", b"second"] if overwrites else [b"first"])
    assert [record.getMessage() for record in caplog.records] == (
        [] if overwrites else ["'in/a.txt' has changed since it was read; allowOverwrites=true reads such files again"]
    )


def test_a_file_that_was_only_touched_is_not_read_again(caplog: pytest.LogCaptureFixture) -> None:
    tailing = Tailing(tail="false", allowOverwrites="true")
    tailing.write("a.txt", "first")
    tailing.drain(seconds=11)
    tailing.write("a.txt", "first")
    with caplog.at_level(logging.WARNING):
        tailing.drain(seconds=11)
    assert len(tailing.reads) == 1
    assert not caplog.records


@pytest.mark.slow
def test_a_whole_file_that_was_renamed_is_not_read_again() -> None:
    tailing = Tailing(tail="false")
    tailing.write("a.txt", "first")
    tailing.drain(seconds=11)
    tailing.rename("a.txt", "b.txt")
    tailing.write("a.txt", "second")
    tailing.drain(seconds=11)
    assert [data for _, data in tailing.reads] == [b"first", b"second"]


def test_17_compressed_logs_are_read_after_three_rotations_that_nobody_saw() -> None:
    """As with logrotate's `rotate 2`, `compress` and `delaycompress`: a name or an inode now belongs to another log."""
    for reuses_inode in (False, True):
        tailing = Tailing()
        for day in range(9):
            if tailing.storage.exists("in/a.log.1"):
                if tailing.storage.exists("in/a.log.2.gz") and not reuses_inode:
                    tailing.delete("a.log.2.gz")
                tailing.compress("a.log.1", "a.log.2.gz")
                tailing.delete("a.log.1")
            if tailing.storage.exists("in/a.log"):
                tailing.rename("a.log", "a.log.1")
            tailing.write("a.log", f"day {day}\n")
            if day in {2, 5, 8}:
                tailing.settle()
        packed = [gzip.decompress(data) for path, data in tailing.reads if path.endswith(".gz")]
        assert packed == [b"day 0\n", b"day 3\n", b"day 6\n"]
        plain = [data for path, data in tailing.reads if not path.endswith(".gz")]
        assert sorted(plain) == [b"day %d\n" % day for day in (1, 2, 4, 5, 7, 8)]


@pytest.mark.parametrize("identity", ["native", "content"])
@pytest.mark.parametrize("name", ["a.log.{}.gz", "{}.txt"])
def test_17_a_whole_file_renamed_to_the_name_of_a_deleted_one_is_not_read_again(
    name: str, identity: str, caplog: pytest.LogCaptureFixture
) -> None:
    tailing = Tailing(tail=str(name.endswith("gz")), fileIdentity=identity)
    contents = [gzip.compress(f"{'x' * 500} {number}\n".encode()) for number in range(2)]
    for number, content in enumerate(contents):
        tailing.write(name.format(number), content)
    tailing.settle()
    tailing.delete(name.format(1))
    tailing.rename(name.format(0), name.format(1))
    tailing.restart()  # the first listing of the process contains an old file
    with caplog.at_level(logging.WARNING):
        tailing.settle()
        tailing.restart()
        tailing.settle()
    assert sorted(data for _, data in tailing.reads) == sorted(contents)
    assert not caplog.records


class _Failing:
    """`open` of some files fails a number of times."""

    def __init__(self, tailing: Tailing, error: Callable[..., Any], path: str, times: int) -> None:
        self.left, self.calls = times, 0
        original = tailing.fs.open

        def fail(asked: str) -> Any:
            if asked == path and self.left:
                self.left -= 1
                self.calls += 1
                raise error("open", asked, "as the test wants it")
            return original(asked)

        tailing.replace("open", fail)


@pytest.mark.parametrize("error", [Unavailable, PermissionDenied])
def test_AFI_20_a_file_that_fails_is_tried_again_and_read_once(error: Callable[..., Any]) -> None:
    tailing = Tailing()
    failing = _Failing(tailing, error, "in/b.log", 4)
    for name in "abc":
        tailing.write(f"{name}.log", f"{name}\n")
    for _ in range(40):
        tailing.scan()
    assert failing.calls == 4
    assert sorted(tailing.reads) == [("a.log", b"a\n"), ("b.log", b"b\n"), ("c.log", b"c\n")]


@pytest.mark.slow
def test_22_a_refused_file_is_tried_ever_more_seldom_and_read_once_it_opens(caplog: pytest.LogCaptureFixture) -> None:
    tailing = Tailing(maxRetries="3")
    tailing.write("b.log", "b\n")
    tailing.drain()
    known = tailing.known
    failing = _Failing(tailing, PermissionDenied, "in/b.log", 13)
    tailing.append("b.log", "c\n")
    tries: list[int] = []
    refused: list[int] = []
    with caplog.at_level(logging.WARNING):
        for second in range(3000):
            plan = tailing.scan(seconds=1)
            if failing.calls > len(tries):
                tries.append(second)
                refused += [second] if plan is not None else []
    gaps = [after - before for before, after in itertools.pairwise(tries)]
    assert gaps == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]
    assert refused == [tries[3]], "one plan names the file after three retries, and no other plan"
    (file,) = tailing.plans[1].refused
    assert file.path == "in/b.log"
    assert "as the test wants it" in file.reason
    assert caplog.text.count("'in/b.log' cannot be read, and is tried again") == 1
    assert not parked(tailing.plans[1])
    assert tailing.known.rows.tolist() == known.rows.tolist()
    assert tailing.planner.report()["refused"] == 1
    tailing.scan(seconds=900)
    assert tailing.text == "b\nc\n"
    tailing.scan()
    assert tailing.planner.report()["refused"] == 0


def test_22_a_refused_file_is_read_by_the_next_process() -> None:
    tailing = Tailing(maxRetries="0")
    failing = _Failing(tailing, PermissionDenied, "in/b.log", 9999)
    tailing.write("b.log", "b\n")
    for _ in range(3):
        tailing.scan(seconds=1000)
    assert [[file.path for file in plan.refused] for plan in tailing.plans] == [["in/b.log"]]
    tailing.restart()
    failing.left = 0
    tailing.drain()
    assert tailing.reads == [("b.log", b"b\n")]


def test_a_refused_file_that_is_gone_is_not_counted() -> None:
    tailing = Tailing(maxRetries="0")
    _Failing(tailing, PermissionDenied, "in/b.log", 9999)
    tailing.write("b.log", "b\n")
    tailing.scan()
    assert tailing.planner.report()["refused"] == 1
    tailing.delete("b.log")
    tailing.scan()
    assert tailing.planner.report()["refused"] == 0


def test_a_file_that_opens_and_has_nothing_new_is_not_refused() -> None:
    tailing = Tailing(maxRetries="0")
    _Failing(tailing, PermissionDenied, "in/b.log", 1)
    tailing.write("b.log", "half a line")
    tailing.scan()
    assert tailing.planner.report()["refused"] == 1
    tailing.scan()
    tailing.scan()
    assert tailing.planner.report()["refused"] == 0


@pytest.mark.slow
def test_no_more_than_a_hundred_refused_files_are_in_a_plan() -> None:
    tailing = Tailing(maxRetries="0")

    def refuse(path: str) -> Any:
        raise PermissionDenied("open", path, "as the test wants it")

    tailing.replace("open", refuse)
    for number in range(120):
        tailing.write(f"{number}.log", "b\n")
    assert tailing.drain() == 1
    assert len(tailing.plans[0].refused) == 100
    assert tailing.planner.report()["refused"] == 120


@pytest.mark.parametrize("identity", ["native", "content"])
def test_a_refused_file_that_is_renamed_again_and_again_is_read_once(identity: str) -> None:
    """The refused file has the old name of another file, and a new file has the name of the refused file."""
    tailing = Tailing(maxRetries="0", fileIdentity=identity)
    line = f"{{}} {'x' * 300}\n".format
    tailing.write("a.log.1", line("older"))
    tailing.write("a.log", line("newer"))
    tailing.drain()
    tailing.append("a.log", line("rest"))
    tailing.rename("a.log.1", "a.log.2")
    tailing.rename("a.log", "a.log.1")
    tailing.write("a.log", line("next"))
    failing = _Failing(tailing, PermissionDenied, "in/a.log.1", 9999)
    for _ in range(5):
        tailing.scan(seconds=20)
    assert failing.calls > 1
    tailing.rename("a.log.2", "a.log.3")
    tailing.rename("a.log.1", "a.log.2")
    tailing.settle()
    words = [line.split()[0] for line in tailing.text.splitlines()]
    assert sorted(words) == ["newer", "next", "older", "rest"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_log_that_begins_as_the_refused_one_waits_for_that(restarts: bool) -> None:
    """Otherwise the new log would be taken for the renamed file, and that file would be read again when it opens."""
    tailing = Tailing(maxRetries="0")
    tailing.write("a.log", "banner\n")
    tailing.drain()
    tailing.rename("a.log", "a.log.1")
    tailing.write("a.log", "banner\nmore\n")
    failing = _Failing(tailing, PermissionDenied, "in/a.log.1", 9999)
    for _ in range(5):
        tailing.scan(seconds=1000)
        if restarts:
            tailing.restart()
    assert failing.calls > 1
    failing.left = 0
    tailing.settle()
    tailing.drain(seconds=1000)
    assert tailing.reads == [("a.log", b"banner\n"), ("a.log", b"banner\nmore\n")]
    assert len(tailing.known) == 2


def test_a_renamed_file_that_could_not_be_opened_goes_on() -> None:
    tailing = Tailing(maxRetries="0")
    tailing.write("a.log", "a\n")
    tailing.drain()
    tailing.rename("a.log", "b.log")
    tailing.append("b.log", "b\n")
    _Failing(tailing, PermissionDenied, "in/b.log", 1)
    tailing.scan()
    tailing.drain()
    tailing.append("b.log", "c\n")
    tailing.drain()
    assert tailing.text == "a\nb\nc\n"


@pytest.mark.parametrize("content", [b"", b"x"])
def test_an_empty_file_is_no_file_yet(content: bytes) -> None:
    tailing = Tailing(tail="false")
    tailing.write("a.txt", b"")
    tailing.drain(seconds=11)
    assert not tailing.plans
    tailing.write("a.txt", content)
    tailing.drain()
    tailing.drain(seconds=11)
    assert tailing.text == content.decode()


@pytest.mark.parametrize("options", [{}, {"fileIdentity": "content"}, {"tail": "false"}, {"startingOffsets": "latest"}])
def test_a_file_of_unknown_length_is_parked_until_its_storage_tells(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    tailing = Tailing(**options)
    tailing.write("a.log", "one\n")
    tailing.write("b.log.gz", gzip.compress(b"two\n"))
    whole = tailing.fs.list
    tailing.replace("list", lambda path: [info._replace(size_bytes=-1) for info in whole(path)])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            tailing.scan(seconds=11)
            tailing.restart()
    assert not tailing.reads
    reasons = [(entry.path, entry.parked) for plan in tailing.plans for entry in parked(plan)]
    reason = "its storage does not report the length of the file: copy it to a storage system that does"
    assert reasons == [("in/a.log", reason), ("in/b.log.gz", reason)]
    assert caplog.text.count(reason) == 6, "each process logs the reason once"
    assert tailing.planner.report() == {}
    tailing.scan()
    assert (tailing.planner.report()["parked"], tailing.planner.report()["bytesBehind"]) == (2, 0)
    tailing.replace("list", whole)
    tailing.settle()
    assert sorted(gzip.decompress(data) if path.endswith(".gz") else data for path, data in tailing.reads) == [
        b"one\n",
        b"two\n",
    ]
