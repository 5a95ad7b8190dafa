from __future__ import annotations

import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.formats.reading import CoalescingFile

MIB = 1 << 20
KIB = 1 << 10


class Counted(io.BytesIO):
    """Counts reads."""

    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        return super().read(size)


@pytest.mark.parametrize(
    ("pieces", "reads"),
    [
        ([(10, 100), (100, 300)], 1),
        ([(100, 300), (10, 100)], 1),
        ([(10, 100), (100 + 8 * KIB, 9 * KIB)], 1),
        ([(10, 100), (101 + 8 * KIB, 9 * KIB)], 2),
        ([(0, MIB), (MIB, 32 * MIB)], 1),
        ([(0, MIB), (MIB, 32 * MIB + 1)], 2),
        ([(0, 32 * MIB + 1)], 1),
    ],
    ids=["neighbours", "in any order", "a hole", "a larger one", "at most so large", "larger", "one that is larger"],
)
def test_neighbours_are_read_at_once(pieces: list[tuple[int, int]], reads: int) -> None:
    content = random.Random(0).randbytes(10 * KIB) + bytes(33 * MIB)
    inner = Counted(content)
    file = CoalescingFile(inner)
    file.expect(pieces)
    for start, end in sorted(pieces):
        file.seek(start)
        assert bytes(file.read(end - start)) == content[start:end]
        assert file.tell() == end
    assert inner.reads == reads


numbers = st.integers(-20, 60)


@given(
    st.binary(max_size=40),
    st.lists(st.tuples(numbers, numbers), max_size=6),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12),
)
def test_bytes_are_those_of_the_file_whatever_was_expected(
    content: bytes, pieces: list[tuple[int, int]], reads: list[tuple[int, int]]
) -> None:
    file = CoalescingFile(io.BytesIO(content))
    file.expect(pieces)
    for start, size in reads:
        file.seek(start)
        assert bytes(file.read(size)) == content[start : start + size]
        assert file.tell() == start + len(content[start : start + size])
    assert file.seek(0, io.SEEK_END) == len(content)
