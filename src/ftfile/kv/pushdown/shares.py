"""The share of each task that reads a store."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.packing import packed
from ftfile.kv.buckets import bucket_number
from ftfile.kv.key_ranges import clip, overlap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.kv.key_ranges import KeyRange
    from ftfile.kv.key_values import Key
    from ftfile.kv.planning.runs import Run
    from ftfile.kv.pushdown.selection import Selection

# A task reads about as much of a bucket at most; neighbouring buckets share one up to the other.
SPLIT_BYTES, JOIN_BYTES = 128 << 20, 32 << 20


class BucketShare(NamedTuple):
    """Ranges of keys, apart and rising, in one bucket."""

    bucket: int
    ranges: tuple[KeyRange, ...]


def shares_of(
    runs: Iterable[Run], selection: Selection, split_bytes: int = SPLIT_BYTES, join_bytes: int = JOIN_BYTES
) -> list[tuple[BucketShare, ...]]:
    """Return the shares of each task that reads a selection of runs, by bucket.

    A bucket with more than `split_bytes` is read by several tasks; neighbours with no more than `join_bytes` by one.
    """
    groups = packed(_sized_shares(runs, selection, split_bytes), itemgetter(1), join_bytes)
    return [tuple(share for share, _ in group) for group in groups]


def _sized_shares(runs: Iterable[Run], selection: Selection, split_bytes: int) -> Iterable[tuple[BucketShare, int]]:
    """Yield a share for each bucket with rows, and more for a large one, each with the bytes of its runs."""
    buckets: dict[int, list[Run]] = {}
    for run in runs:
        buckets.setdefault(bucket_number(run.add.bucket), []).append(run)
    for number, members in sorted(buckets.items()):
        if selection.buckets is None or number in selection.buckets:
            for start, end in _stretches(members, split_bytes):
                ranges = clip(selection.ranges, start, end)
                sizes = [run.size for run in members if run.marks.keys and overlap(ranges, *run.marks.keys)]
                if sizes:
                    yield BucketShare(number, ranges), sum(sizes)


def _stretches(runs: Iterable[Run], split_bytes: int) -> Iterable[KeyRange]:
    """Yield ranges of a bucket with about as many bytes, cut where runs begin: large ones are apart."""
    start: Key = ()
    size_bytes = 0
    for run in sorted((run for run in runs if run.marks.keys), key=lambda run: run.begins):
        if size_bytes and size_bytes + run.size > split_bytes and run.begins > start:
            yield start, run.begins
            start, size_bytes = run.begins, 0
        size_bytes += run.size
    yield start, None
