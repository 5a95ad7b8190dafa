"""The intervals of versions that one compacted log can replace: any two are disjoint or nested.

A *prefix* contains all versions before `x`, where `x` is a power of two or a multiple of `largest(x)`. A *block* begins
at another version, which is a multiple of its size; the size is a power of two, at most `largest(first)`. The size of a
block divides each end of a prefix behind its first version, so no block crosses a prefix. Blocks are nested like the
nodes of a binary tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


# A block has at most this number of versions, or a quarter of the versions before it. Both numbers are part of the
# format: with other numbers, compacted logs could overlap.
BLOCK_VERSIONS = 64
SHARE_BEFORE = 4


class Interval(NamedTuple):
    """Consecutive versions, including both ends."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """Return the number of versions."""
        return self.last - self.first + 1

    def holds(self, other: Interval) -> bool:
        """Return True if another interval is within this one."""
        return self.first <= other.first and other.last <= self.last


def largest_interval_of(first: int) -> int:
    """Return the maximum size of a block that begins at a version, a power of two."""
    share = max(first // SHARE_BEFORE, 1)
    return max(BLOCK_VERSIONS, 1 << (share.bit_length() - 1))


def may_stand(first: int, last: int) -> bool:
    """Return True if one compacted log can replace these versions."""
    size = last - first + 1
    if size < 1:
        return False
    if first == 0:
        return _is_power(size) or size % largest_interval_of(size) == 0
    return _is_power(size) and first % size == 0 and size <= largest_interval_of(first)


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def blocks(first: int, end: int) -> Iterator[Interval]:
    """Yield the fewest blocks for the versions from `first` to before `end`; a block from version 0 has any size."""
    while first < end:
        size = 1
        while first + 2 * size <= end and may_stand(first, first + 2 * size - 1):
            size *= 2
        yield Interval(first, first + size - 1)
        first += size


def fewest_intervals_of(end: int) -> list[Interval]:
    """Return the fewest intervals for all versions before `end`, at most 1 + 2 log2(end): a prefix, and blocks."""
    prefix_end = end - end % largest_interval_of(end)
    if prefix_end == 0:
        return [*blocks(0, end)]
    return [Interval(0, prefix_end - 1), *blocks(prefix_end, end)]


def halves(whole: Interval) -> list[Interval]:
    """Return smaller intervals for the same versions, two or more: two halves of a block, possibly more of a prefix."""
    middle = (whole.first + whole.last + 1) // 2
    if whole.first == 0:
        middle = 1 << (whole.last.bit_length() - 1)
    return [Interval(whole.first, middle - 1), *blocks(middle, whole.last + 1)]
