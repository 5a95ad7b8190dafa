"""Openings of writers, and the bytes of their files of windows."""

from __future__ import annotations

import zlib

import pytest

from ftfile.core.errors import CorruptData
from ftfile.filters.chain import Chain
from ftfile.log.format.layout import WalName, wal_path
from ftfile.log.wal import Opening, WalFiles
from ftfile.testing.fs.crashing import CrashingFileSystem

NAME = WalName(2, 1)


@pytest.mark.parametrize(
    ("opening", "names", "lost"),
    [
        ((0, 0), [], None),
        ((0, 0), [(1, 0)], 1),
        ((2, 2), [(1, 5), (2, 0), (2, 7)], None),
        ((2, 2), [(2, 7), (3, 0)], 3),
        ((3, 1), [(1, 5), (3, 0)], None),
        ((3, 1), [(1, 5), (2, 0), (3, 0)], None),
        ((3, 1), [(1, 5), (2, 1), (3, 0)], 2),
        ((3, 1), [(1, 5), (3, 1)], 3),
    ],
)
def test_files_show_that_the_log_has_lost_an_opening(
    opening: tuple[int, int], names: list[tuple[int, int]], lost: int | None
) -> None:
    assert Opening(*opening, "id").lost_epoch([WalName(*name) for name in names]) == lost


def test_a_file_byte_by_byte() -> None:
    """As docs/internals/format.md has it."""
    fs = CrashingFileSystem()
    files = WalFiles(fs, "w", Chain(), "id")
    files.prepare()
    files.write(NAME, {"after": -1}, memoryview(b"a stream\n"))
    content = b'{"ftfileWal":1,"id":"id","after":-1}\na stream\n'
    assert fs.read("_ftfile/wal/w/_0000000002-0000000001.wal") == content + b"crc32:%08x" % zlib.crc32(content)
    header, message = files.read(NAME)
    assert (header, bytes(message)) == ({"ftfileWal": 1, "id": "id", "after": -1}, b"a stream\n")


def test_a_file_without_a_byte_is_damaged() -> None:
    fs = CrashingFileSystem()
    files = WalFiles(fs, "w", Chain(), "id")
    files.prepare()
    fs.put(wal_path("w", NAME), b"")
    with pytest.raises(CorruptData, match="at its end"):
        files.read(NAME)


def test_a_file_of_another_store_is_none_of_this_one() -> None:
    fs = CrashingFileSystem()
    files = WalFiles(fs, "w", Chain(), "theirs")
    files.prepare()
    files.write(NAME, {"after": -1}, memoryview(b"a stream\n"))
    with pytest.raises(CorruptData, match=r"windows of this store, with the id 'ours'.*the id 'theirs'"):
        WalFiles(fs, "w", Chain(), "ours").read(NAME)
