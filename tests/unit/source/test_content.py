"""Fingerprints cover only the first KiB of a file and the last KiB before a position."""

from __future__ import annotations

import random

import pytest

from ftfile.source.contents import WINDOW_BYTES, fingerprints, marks_of

DATA = random.Random(1).randbytes(200_000)


def marks(data: bytes, position: int) -> object:
    return fingerprints(lambda offset, length: data[offset : offset + length], position)


@pytest.mark.parametrize("position", [1, 1023, 1024, 1025, 2047, 2048, 2049, 5000])
def test_a_change_is_seen_in_the_first_and_in_the_last_kib_alone(position: int) -> None:
    for at in {0, min(position, WINDOW_BYTES) - 1, max(0, position - WINDOW_BYTES), position - 1}:
        changed = DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 :]
        assert marks(changed, position) != marks(DATA, position), at
    outside = [WINDOW_BYTES] if position > 2 * WINDOW_BYTES else []
    for at in [position, *outside]:
        changed = DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 :]
        assert marks(changed, position) == marks(DATA, position), at


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 3000])
def test_there_are_none_beyond_the_end(size: int) -> None:
    assert marks(DATA[:size], size) is not None
    assert marks(DATA[:size], size + 1) is None
    assert marks(DATA[:size], size + 5000) is None


@pytest.mark.parametrize("size", [0, 1, 1000, 1024, 1500, 65_536, 200_000])
@pytest.mark.parametrize("piece", [7, 1000, 1 << 20])
def test_pieces_of_a_content_have_the_fingerprints_of_the_whole(size: int, piece: int) -> None:
    positions = {1, 256, 1024, 1025, 65_535, 100_000, size + 1}
    pieces = (DATA[at : min(size, at + piece)] for at in range(0, size, piece))
    expected = {position: marks(DATA, position) for position in {*positions, size} if position <= size}
    assert marks_of(pieces, positions) == (size, expected)
