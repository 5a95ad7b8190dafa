"""Frames: cut short they are not there, damaged they are an error."""

from __future__ import annotations

import pytest

from ftfile.commit.wal.frames import BEGIN, FRAME_HEADER_BYTES, WINDOW, encode_frame, read_frames
from ftfile.core.errors import CorruptData

PIECES = [
    encode_frame(BEGIN, -1, b"what came before"),
    encode_frame(WINDOW, 7, b""),
    encode_frame(WINDOW, 9, bytes(range(256)) + b"FTW\x01" * 3),
    encode_frame(WINDOW, 10, b"last"),
]
WHOLE = b"".join(PIECES)
ENDS = [sum(map(len, PIECES[: count + 1])) for count in range(len(PIECES))]


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
