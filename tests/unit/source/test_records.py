"""If several lines cannot be parsed together, each half of them is parsed separately."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.source.decoding.records import in_halves


@pytest.mark.slow
@given(bad=st.sets(st.integers(0, 40)), count=st.integers(0, 40), smallest=st.integers(1, 5))
def test_all_but_the_smallest_bad_pieces_are_taken_once_and_in_order(bad: set[int], count: int, smallest: int) -> None:
    taken: list[int] = []

    def take(start: int, end: int) -> None:
        if bad.intersection(range(start, end)):
            raise ValueError(f"{start} to {end}")
        taken.extend(range(start, end))

    untaken = list(in_halves(take, count, ValueError, smallest=smallest))
    left_out = [number for piece in untaken for number in range(piece.start, piece.end)]
    assert sorted(taken + left_out) == [*range(count)]
    assert (taken, left_out) == (sorted(taken), sorted(left_out))
    for piece in untaken:
        assert 0 < piece.end - piece.start <= smallest
        assert bad.intersection(range(piece.start, piece.end))
        assert str(piece.error) == f"{piece.start} to {piece.end}"


def test_one_bad_line_costs_a_few_tries() -> None:
    calls: list[tuple[int, int]] = []

    def take(start: int, end: int) -> None:
        calls.append((start, end))
        if start <= 700 < end:
            raise ValueError

    [piece] = in_halves(take, 1024, ValueError)
    assert (piece.start, piece.end) == (700, 701)
    assert calls[0] == (0, 1024)
    assert len(calls) == 1 + 2 * 10
    calls.clear()
    assert list(in_halves(take, 0, ValueError)) == []
    assert calls == []


def test_other_errors_are_raised() -> None:
    def take(start: int, end: int) -> None:
        raise KeyError(start, end)

    with pytest.raises(KeyError):
        list(in_halves(take, 9, ValueError))
