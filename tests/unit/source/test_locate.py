"""A task finds the file of its range or raises an error; it never reads bytes of another file."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile.core.codecs import CODECS
from ftfile.core.errors import CorruptData, FileChanged, PermissionDenied
from ftfile.source import decode
from ftfile.source.contents import CONTENT_BYTES_MIN
from ftfile.source.decoding.lines import RangeContent
from ftfile.source.settings import FileDecoding
from ftfile.storage.local import LocalFileSystem
from tests.kit.rotating import RotatingLog
from tests.unit.source.planned import LINE, packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import FileInfo
    from tests.unit.source.planned import Files

LOG = b"".join(b"line %04d of the log\n" % number for number in range(500))
ROWS = LOG.decode().splitlines()
JSON = b"".join(b'{"number": %03d}\n' % number for number in range(100, 600))


def test_scenario_19_a_file_renamed_while_its_task_waits_is_found(files: Files) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log", 21)
    file.rename(files.root / "app.log.1")
    assert files.lines(planned) == ROWS[1:]
    files.write("app.log", b"another line\n" * 3000)
    assert files.lines(planned) == ROWS[1:]


def test_scenario_19_a_chain_of_renames_is_followed_through(files: Files) -> None:
    file = files.write("logs/app.log", LOG)
    files.write("logs/app.log.1", LOG[:-1] + b"!")
    planned = files.range("logs/app.log")
    (files.root / "logs/app.log.1").rename(files.root / "logs/app.log.2")
    file.rename(files.root / "logs/app.log.1")
    assert files.lines(planned) == ROWS


def test_a_file_renamed_in_its_directory_is_found_without_a_look_at_others(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.write("logs/app.log", LOG)
    planned = files.range("logs/app.log")
    file.rename(files.root / "logs/app.log.1")
    listed: list[str] = []
    list_directory = LocalFileSystem.list

    def note(fs: LocalFileSystem, path: str) -> list[FileInfo]:
        listed.append(path)
        return list_directory(fs, path)

    monkeypatch.setattr(LocalFileSystem, "list", note)
    assert files.lines(planned) == ROWS
    assert listed == ["logs"]


@pytest.mark.parametrize("target", ["logs/old/2026/app.log", "app.log", "others/app.log"])
@pytest.mark.parametrize("replaced", [False, True])
def test_scenario_19_a_file_moved_to_another_directory_is_found(files: Files, target: str, replaced: bool) -> None:
    file = files.write("logs/app.log", LOG)
    planned = files.range("logs/app.log", 21)
    moved = files.write(target, b"")
    (files.root / "logs/loop").symlink_to(files.root)
    file.replace(moved)
    if replaced:
        files.write("logs/app.log", LOG[::-1])
    assert files.lines(planned) == ROWS[1:]


@pytest.mark.parametrize("most", [3, 4])
def test_a_moved_file_is_looked_for_in_so_many_directories(
    files: Files, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directories nearest to the root are searched: the root, two directories in it, and one below these."""
    monkeypatch.setattr(decode, "DIRECTORIES_MAX", most)
    file = files.write("logs/app.log", LOG)
    planned = files.range("logs/app.log")
    file.rename(files.write("old/2026/app.log", b""))
    if most == 4:
        assert files.lines(planned) == ROWS
    else:
        with pytest.raises(FileChanged):
            files.lines(planned)


@pytest.mark.parametrize("missing", [False, True])
def test_files_that_are_gone_are_looked_for_in_all_directories_once(
    files: Files, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All directories are searched, however many there are. A directory that cannot be listed is skipped."""
    ranges = []
    for number in range(9):
        file = files.write(f"logs/{number}.log", LOG)
        ranges.append(files.range(f"logs/{number}.log"))
        if number or missing:
            file.unlink()
        else:
            (files.root / "old").mkdir()
            file.rename(files.root / "old/app.log")
    files.write("secret/app.log", LOG)
    listed: list[str] = []
    list_directory = LocalFileSystem.list

    def refuse(fs: LocalFileSystem, path: str) -> list[FileInfo]:
        listed.append(path)
        if path == "secret":
            raise PermissionDenied("list", path, "not yours")
        return list_directory(fs, path)

    monkeypatch.setattr(LocalFileSystem, "list", refuse)
    assert files.lines(ranges, ignore_missing_files=True) == ([] if missing else ROWS)
    assert listed.count("secret") == 1


@pytest.mark.parametrize("rotations", [1, 5])
@pytest.mark.parametrize("missing", ["fails", "is ignored"])
def test_scenario_19_a_log_is_renamed_again_while_it_is_looked_for(
    files: Files, rotations: int, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is renamed after the listing that contains it and before it is opened."""
    log = RotatingLog(files.root / "app.log")
    log.write(ROWS)
    planned = files.range("app.log")
    log.rotate()
    left = rotations
    list_directory = LocalFileSystem.list

    def list_and_rotate(fs: LocalFileSystem, path: str) -> list[FileInfo]:
        nonlocal left
        found = list_directory(fs, path)
        if left:
            left -= 1
            log.write(["another line"] * 1000)
            log.rotate()
        return found

    monkeypatch.setattr(LocalFileSystem, "list", list_and_rotate)
    assert files.lines(planned, ignore_missing_files=missing == "is ignored") == ROWS
    log.close()


@pytest.mark.parametrize("name", CODECS)
def test_scenario_19_a_file_compressed_while_its_task_waits_is_found_by_its_content(files: Files, name: str) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log", 42, 2100)
    files.write(f"app.log.1{CODECS[name].ending}", packed(name, LOG[:3000], LOG[3000:]))
    file.unlink()
    assert files.lines(planned, file_identity="content") == ROWS[2:100]
    with pytest.raises(FileChanged, match="are lost, because the file is missing"):
        files.lines(planned)


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [1, 50, 700])
def test_scenario_19_each_task_has_its_own_cut_of_a_file_compressed_meanwhile(files: Files, max_bytes: int) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log", 42, 2100)
    files.write("app.log.1.gz", gzip.compress(LOG))
    file.unlink()
    assert files.lines(planned, file_identity="content", max_partition_bytes=max_bytes) == ROWS[2:100]


def test_scenario_18_a_copy_is_found_by_its_content(files: Files) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log")
    shutil.copy(file, files.root / "app.log.1")
    os.truncate(file, 0)
    assert files.lines(planned, file_identity="content") == ROWS
    with pytest.raises(FileChanged, match="other content"):
        files.lines(planned)


def test_a_copy_of_little_content_is_not_trusted(files: Files) -> None:
    for size in (CONTENT_BYTES_MIN - 1, CONTENT_BYTES_MIN):
        file = files.write("app.log", LOG[:size])
        planned = files.range("app.log")
        shutil.copy(file, files.root / "other.log")
        file.unlink()
        if size < CONTENT_BYTES_MIN:
            with pytest.raises(FileChanged):
                files.lines(planned, file_identity="content")
        else:
            assert "\n".join(files.lines(planned, file_identity="content")) == LOG[:size].decode().rstrip("\n")


@pytest.mark.parametrize("file_identity", ["native", "content"])
@pytest.mark.parametrize(
    "change",
    [
        lambda log: log[:-1],
        lambda log: log[:0],
        lambda log: b"L" + log[1:],
        lambda log: log[:1023] + b"x" + log[1024:],
        lambda log: log[:-1024] + b"x" + log[-1023:],
        lambda log: log[:-1] + b" ",
    ],
    ids=["shorter", "empty", "first byte", "end of the head", "start of the tail", "last byte"],
)
def test_scenario_20_other_content_of_any_length_is_refused_tail_4(
    files: Files, change: Callable[[bytes], bytes], file_identity: str
) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log")
    file.write_bytes(change(LOG))
    with pytest.raises(FileChanged, match="other content"):
        files.lines(planned, file_identity=file_identity, ignore_missing_files=True)


def test_scenario_20_a_file_of_the_same_length_is_another_one_tail_5(files: Files) -> None:
    files.write("app.log", LOG)
    planned = files.range("app.log")
    files.write("app.log", LOG[::-1])
    with pytest.raises(FileChanged):
        files.lines(planned)


def test_what_was_added_behind_a_range_changes_nothing(files: Files) -> None:
    file = files.write("app.log", LOG[:210])
    planned = files.range("app.log")
    file.write_bytes(LOG)
    assert files.lines(planned) == ROWS[:10]


def test_a_whole_file_that_grew_is_another_one(files: Files) -> None:
    content = gzip.compress(LOG)
    files.write("app.log.gz", content)
    planned = files.whole("app.log.gz")
    files.write("app.log.gz", content + content)
    with pytest.raises(FileChanged):
        files.lines(planned)


def test_a_whole_file_that_was_renamed_keeps_its_codec(files: Files) -> None:
    file = files.write("app.log.1.gz", gzip.compress(LOG))
    planned = files.whole("app.log.1.gz")
    file.rename(files.root / "app.log.2.done")
    assert files.lines(planned) == ROWS


def test_scenario_28_an_inode_that_is_used_again_does_not_tell(files: Files) -> None:
    files.write("app.log", LOG)
    planned = files.range("app.log")
    file = files.root / "app.log"
    file.rename(files.root / "app.log.1")
    (files.root / "app.log.1").write_bytes(LOG[::-1])  # the same inode
    with pytest.raises(FileChanged):
        files.lines(planned)


def test_scenario_21_a_file_that_vanished_is_an_error_or_ignored(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    file = files.write("gone.log", LOG)
    files.write("there.log", b"here\n")
    ranges = [files.range("gone.log"), files.range("there.log")]
    file.unlink()
    with pytest.raises(FileChanged, match=r"'gone\.log'.*ignoreMissingFiles"):
        files.lines(ranges)
    assert files.lines(ranges, ignore_missing_files=True) == ["here"]
    assert "gone.log" in caplog.text
    shutil.rmtree(files.root)
    assert files.lines(ranges, ignore_missing_files=True) == []


def test_a_damaged_archive_beside_it_is_no_candidate(files: Files) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log")
    files.write("app.log.1.gz", gzip.compress(LOG)[:-20])
    files.write("app.log.2.gz", gzip.compress(LOG))
    file.unlink()
    assert files.lines(planned, file_identity="content") == ROWS


def test_a_file_beside_it_that_may_not_be_read_is_no_candidate(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log")
    files.write("app.log.1", LOG)
    files.write("app.log.2", LOG)
    file.unlink()
    refusing = type(files.fs)
    original = refusing.open

    def open_(self: Any, path: str) -> Any:
        if path == "app.log.1":
            raise PermissionDenied("open", path, "not yours")
        return original(self, path)

    monkeypatch.setattr(refusing, "open", open_)
    assert files.lines(planned, file_identity="content") == ROWS


def test_plain_content_of_an_archive_is_read_from_the_middle_on(files: Files) -> None:
    """The archive of a rotated log that was read before it was compressed."""
    files.write("plain", LOG)
    plain = files.range("plain", 21 * 100, 21 * 200)
    file = files.write("app.log.1.gz", gzip.compress(LOG))
    planned = type(plain)("app.log.1.gz", plain.start, plain.end, plain.head, plain.tail, 1, 1, None, False, "gzip")
    assert files.lines(planned) == ROWS[100:200]
    file.write_bytes(gzip.compress(LOG[: 21 * 150]))
    (files.root / "plain").unlink()
    with pytest.raises(FileChanged):
        files.lines(planned)


def at_each_reading(files: Files, path: str, change: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Change files after the content of a file was read beyond the parts that are compared."""
    with files.fs.open(path) as file_object:
        opened = type(file_object)
    original = opened.read_at

    def read_at(self: Any, offset: int, length: int) -> bytes:
        data: bytes = original(self, offset, length)
        if length > 1024:
            change()
        return data

    monkeypatch.setattr(opened, "read_at", read_at)


@pytest.mark.parametrize("whole", [False, True])
def test_a_change_while_it_is_read_fails_the_task(files: Files, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log", whole=whole)
    at_each_reading(files, "app.log", lambda: file.write_bytes(LOG.replace(b"line", b"Line")), monkeypatch)
    with pytest.raises(FileChanged, match="have other content"):
        files.lines(planned)


@pytest.mark.parametrize("begun", [b"", b"begun", JSON[::-1]])
@pytest.mark.parametrize("file_format", ["text", "json"])
def test_a_log_cut_off_while_it_is_read_is_read_in_its_copy(
    files: Files, begun: bytes, file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.write("app.log", JSON)
    planned = files.range("app.log", 0, len(JSON) // 2)
    schema = LINE if file_format == "text" else pa.schema([("number", pa.int64())])
    decoding = FileDecoding(file_format, file_identity="content", bad_records="fail")
    expected = files.rows(planned, schema, decoding)

    def rotate(_: RangeContent) -> bool:
        files.write("app.log.1", JSON)
        file.write_bytes(begun)
        monkeypatch.setattr(RangeContent, "has_range", compared)
        return True

    compared = RangeContent.has_range
    monkeypatch.setattr(RangeContent, "has_range", rotate)
    assert files.rows(planned, schema, decoding) == expected
    assert len(expected) == 250


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_a_log_cut_off_in_any_moment_of_a_task_is_read_in_its_copy(
    files: Files, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is copied or compressed. Then it is emptied or rewritten with other lines. One task or several read the
    range.
    """
    drawn = random.Random(number)
    lines = [b"%d %s" % (place, b"x" * drawn.randrange(40)) for place in range(drawn.randrange(300, 4000))]
    start, end = sorted(drawn.sample(range(200, len(lines)), 2))
    log = b"".join(line + b"\n" for line in lines)
    ends = [0, *accumulate(len(line) + 1 for line in lines)]
    file = files.write("app.log", log)
    planned = files.range("app.log", ends[start], ends[end])
    with files.fs.open("app.log") as file_object:
        opened = type(file_object)
    original, reads_left = opened.read_at, iter(range(drawn.randrange(8), -1, -1))

    def read_at(self: Any, offset: int, length: int) -> bytes:
        data: bytes = original(self, offset, length)
        if next(reads_left, None) == 0:
            copy, content = drawn.choice([("app.log.1", log), ("app.log.1.gz", gzip.compress(log))])
            files.write(copy, content)
            file.write_bytes(drawn.choice([b"", b"begun\n", log[::-1], log[: len(log) // 2]]))
        return data

    monkeypatch.setattr(opened, "read_at", read_at)
    rows = files.lines(planned, file_identity="content", max_partition_bytes=drawn.choice([4096, 16 << 20]))
    assert rows == [line.decode() for line in lines[start:end]]


def test_a_log_cut_off_behind_its_first_batches_fails_the_task(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task has already passed rows to Spark. Spark discards them because the task fails."""
    log = b"".join(b"%09d\n" % number for number in range(2_000_000))
    file = files.write("app.log", log)
    planned = files.range("app.log")
    files.write("app.log.1", log)
    at_each_reading(files, "app.log", lambda: file.write_bytes(log[::-1]), monkeypatch)
    with pytest.raises(FileChanged, match="while it was read"):
        files.lines(planned, file_identity="content")


@pytest.mark.parametrize("changes", [decode.READINGS_MAX - 1, decode.READINGS_MAX])
def test_a_file_that_goes_on_being_changed_is_read_a_few_times(
    files: Files, changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log")
    compared = RangeContent.has_range
    contents = iter([LOG, LOG[::-1]] * changes)

    def has_range(content: RangeContent) -> bool:
        file.write_bytes(next(contents, LOG))
        return compared(content)

    monkeypatch.setattr(RangeContent, "has_range", has_range)
    if changes < decode.READINGS_MAX:
        assert files.lines(planned) == ROWS
    else:
        with pytest.raises(FileChanged, match="while it was read"):
            files.lines(planned)


def test_a_file_that_becomes_shorter_while_it_is_read_fails_the_task(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.write("app.log", LOG)
    planned = files.range("app.log")
    with files.fs.open("app.log") as file_object:
        wrapped = type(file_object)
    original = wrapped.read_at

    def read_at(opened: Any, offset: int, length: int) -> bytes:
        if length > 1024:
            os.truncate(file, 100)
        return original(opened, offset, length)

    monkeypatch.setattr(wrapped, "read_at", read_at)
    with pytest.raises(FileChanged):
        files.lines(planned)


def test_damage_of_a_packed_file_is_damage(files: Files) -> None:
    files.write("app.log.gz", gzip.compress(LOG)[:-10])
    with pytest.raises(CorruptData, match=r"app\.log\.gz"):
        files.lines(files.whole("app.log.gz"))
