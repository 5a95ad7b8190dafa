"""Of all intervals that ranges may stand for, any two are disjoint, or one is within the other."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.log.format import layout
from ftfile.log.format.version_blocks import (
    Interval,
    blocks,
    fewest_intervals_of,
    halves,
    largest_interval_of,
    may_stand,
)

SOME_ENDS = [*range(1, 700), 895, 896, 1000, 4095, 4096, 4097, 99_999, 10**6, 10**6 + 7]


def legal_intervals(end: int) -> list[Interval]:
    """Return all intervals before a version that one range may stand for."""
    legal = [Interval(0, last) for last in range(end) if may_stand(0, last)]
    size = 1
    while size <= end:
        legal += [Interval(first, first + size - 1) for first in range(size, end, size)]
        size *= 2
    return [interval for interval in legal if may_stand(*interval)]


def check_nested(intervals: list[Interval]) -> None:
    """Check that no two intervals cross."""
    open_intervals: list[Interval] = []
    for interval in sorted(intervals, key=lambda interval: (interval.first, -interval.last)):
        while open_intervals and open_intervals[-1].last < interval.first:
            open_intervals.pop()
        assert not open_intervals or open_intervals[-1].holds(interval), (open_intervals[-1], interval)
        open_intervals.append(interval)


def test_no_two_cross() -> None:
    """All that may stand for versions up to 3,000: beyond two sizes of the largest block."""
    assert largest_interval_of(0) == 64
    assert largest_interval_of(3000) == 512
    check_nested(legal_intervals(3000))


@pytest.mark.slow
def test_no_two_cross_among_more_versions() -> None:
    check_nested(legal_intervals(70_000))


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_no_two_that_are_written_cross(end: int, other_end: int) -> None:
    """By committers and vacuums at any two heads."""
    written = [*fewest_intervals_of(end), *blocks(0, end), *fewest_intervals_of(other_end), *blocks(0, other_end)]
    parts = [half for interval in written if interval.size > 1 for half in halves(interval)]
    check_nested([*written, *parts])
    assert all(may_stand(*interval) for interval in (*written, *parts))


@pytest.mark.parametrize("end", SOME_ENDS)
def test_they_are_whole_and_few(end: int) -> None:
    for intervals in (fewest_intervals_of(end), [*blocks(0, end)]):
        assert (intervals[0].first, intervals[-1].last) == (0, end - 1)
        assert all(before.last + 1 == behind.first for before, behind in itertools.pairwise(intervals))
    assert len(fewest_intervals_of(end)) <= 1 + 2 * math.log2(end + 1)


@pytest.mark.parametrize("end", [2, 3, 64, 192, 896, 1024, 5000])
def test_halves_make_up_the_whole(end: int) -> None:
    for interval in (*fewest_intervals_of(end), *blocks(0, end)):
        if interval.size > 1:
            parts = halves(interval)
            assert len(parts) >= 2
            assert (parts[0].first, parts[-1].last) == interval
            assert all(before.last + 1 == behind.first for before, behind in itertools.pairwise(parts))


def test_of_a_thousand_versions_there_are_four() -> None:
    assert fewest_intervals_of(1000) == [(0, 895), (896, 959), (960, 991), (992, 999)]


@pytest.mark.parametrize(("first", "last"), [(4, 11), (1, 2), (0, 9), (64, 66), (128, 255), (3, 2)])
def test_a_file_for_other_versions_is_no_range(first: int, last: int) -> None:
    name = layout.CompactedName(first, last, "0" * 16)
    assert layout.parse_compacted_name(layout.compacted_path(name)) is None


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 191), (4, 7), (256, 319), (512, 639)])
def test_a_file_for_such_versions_is_one(first: int, last: int) -> None:
    name = layout.CompactedName(first, last, "0" * 16)
    assert layout.parse_compacted_name(layout.compacted_path(name)) == name
