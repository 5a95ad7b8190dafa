"""From what saving on small frames are merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from ftfile.writing.files.segment_joiners import merging_saves

if TYPE_CHECKING:
    from ftfile.filters.chain import Chain

PIECES = [b"a" * 400, b"b" * 600]


class Sized:
    """A chain whose frame of all has a given length."""

    framing = ("a codec",)

    def __init__(self, merged_bytes: int) -> None:
        self.merged_bytes = merged_bytes

    def open_frames(self, frames: bytes) -> bytes:
        return frames

    def frame(self, data: bytes) -> bytes:
        assert data == b"".join(PIECES)
        return bytes(self.merged_bytes)


@pytest.mark.parametrize(("merged_bytes", "saves"), [(730, True), (890, True), (899, True), (900, False), (910, False)])
def test_a_tenth_must_be_saved(merged_bytes: int, saves: bool) -> None:
    assert merging_saves(cast("Chain", Sized(merged_bytes)), PIECES) is saves


def test_one_piece_is_not_merged() -> None:
    assert not merging_saves(cast("Chain", Sized(1)), PIECES[:1])
