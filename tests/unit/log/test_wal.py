"""Frames: cut short they are not there, damaged they are an error."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from ftfile.core.errors import CorruptData
from ftfile.log.wal import BEGIN, FRAME_HEADER_BYTES, WINDOW, encode_frame, read_frames

PAGE = (Path(__file__).parents[3] / "docs/internals/format.md").read_text()
PIECES = [
    encode_frame(BEGIN, -1, b"what came before"),
    encode_frame(WINDOW, 7, b""),
    encode_frame(WINDOW, 9, bytes(range(256)) + b"FTW\x01" * 3),
    encode_frame(WINDOW, 10, b"last"),
]
WHOLE = b"".join(PIECES)
ENDS = [sum(map(len, PIECES[: count + 1])) for count in range(len(PIECES))]


def test_a_frame_byte_by_byte() -> None:
    """As docs/internals/format.md has it."""
    fields = b"".join(
        (b"FTW\x01", *(number.to_bytes(size, "little") for number, size in ((1, 4), (9, 8), (3, 8), (0x352441C2, 4))))
    )
    assert zlib.crc32(b"abc") == 0x352441C2
    assert encode_frame(WINDOW, 9, b"abc") == fields + zlib.crc32(fields).to_bytes(4, "little") + b"abc"
    assert encode_frame(BEGIN, -1, b"")[4:16] == bytes(4) + b"\xff" * 8
    sizes = re.findall(r"^\| (\d+) \|", PAGE.partition("is a sequence of frames")[2], re.MULTILINE)
    assert sum(map(int, sizes)) == FRAME_HEADER_BYTES


def test_frames_come_back() -> None:
    frames = read_frames(WHOLE, "a.wal")
    assert [frame.window for frame in frames] == [-1, 7, 9, 10]
    assert [frame.kind for frame in frames] == [BEGIN, WINDOW, WINDOW, WINDOW]
    assert [frame.content for frame in frames] == [piece[FRAME_HEADER_BYTES:] for piece in PIECES]
    assert [frame.end for frame in frames] == ENDS


def test_a_frame_that_is_cut_off_is_not_there() -> None:
    for length in range(len(WHOLE)):
        whole = [end for end in ENDS if end <= length]
        assert [frame.end for frame in read_frames(WHOLE[:length], "a.wal")] == whole
        # A file may have its length before its bytes.
        padded = WHOLE[:length].ljust(len(WHOLE), b"\0")
        assert [frame.end for frame in read_frames(padded, "a.wal")][: len(whole)] == whole


def test_damage_before_the_last_frame_is_an_error() -> None:
    for place in range(ENDS[-2]):
        damaged = bytearray(WHOLE)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(CorruptData, match=r"a\.wal"):
            read_frames(bytes(damaged), "a.wal")


def test_what_is_known_to_be_durable_must_be_whole() -> None:
    assert [frame.end for frame in read_frames(WHOLE + b"junk", "a.wal", ENDS[2])] == ENDS[:3]
    with pytest.raises(CorruptData, match=str(ENDS[2])):
        read_frames(WHOLE[:-1], "a.wal", ENDS[3])
    for place in range(ENDS[2]):
        damaged = bytearray(WHOLE)
        damaged[place] ^= 1
        with pytest.raises(CorruptData):
            read_frames(bytes(damaged), "a.wal", ENDS[2])
