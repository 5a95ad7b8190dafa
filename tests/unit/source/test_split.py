"""The split of ranges into the shares of tasks."""

from __future__ import annotations

import pickle
from typing import Any

from ftfile.core.tasks import OPEN_COST_BYTES, TASK_BYTES
from ftfile.source.plan import FileShare, Range, SourcePlan

MIB = 1 << 20


def planned(path: str, size_bytes: int, start: int = 0, **fields: Any) -> Range:
    return Range(path, start, size_bytes, "head", "tail", size_bytes, 0, **fields)


def split(ranges: list[Range]) -> list[FileShare]:
    return SourcePlan(tuple(ranges)).shares(TASK_BYTES)


def test_a_large_file_is_cut_every_max_partition_bytes_fsi_4() -> None:
    shares = split([planned("a", 70 * MIB + 1, start=1)])
    places = [(cut.start, cut.end) for share in shares for cut in share.cuts]
    assert places == [(1, 32 * MIB + 1), (32 * MIB + 1, 64 * MIB + 1), (64 * MIB + 1, 70 * MIB + 1)]
    assert len(shares) == 3


def test_what_is_read_whole_is_not_cut_fsi_3() -> None:
    ranges = [planned("a.parquet", 70 * MIB, whole=True), planned("b.gz", 70 * MIB, compression="gzip")]
    assert [[(cut.start, cut.end) for cut in share.cuts] for share in split(ranges)] == [[(0, 70 * MIB)]] * 2


def test_small_ranges_are_packed_in_their_order_afi_21_25() -> None:
    ranges = [planned(str(number), 7 * MIB) for number in range(9)]
    shares = split(ranges)
    assert [[cut.range.path for cut in share.cuts] for share in shares] == [list("0123"), list("4567"), ["8"]]


def test_opening_a_file_counts_like_reading_one() -> None:
    shares = split([planned(str(number), 1) for number in range(100)])
    assert max(len(share.cuts) for share in shares) == 32 * MIB // (OPEN_COST_BYTES + 1)


def test_the_same_ranges_have_the_same_shares_afi_4_5_fsi_5() -> None:
    ranges = [planned(str(number), number * MIB) for number in range(40)]
    shares = split(ranges)
    assert shares == split(list(ranges)) == pickle.loads(pickle.dumps(shares))
    assert [cut.range for share in shares for cut in share.cuts if cut.start == cut.range.start] == ranges[1:]


def test_nothing_has_no_shares() -> None:
    assert split([]) == []
    assert split([planned("a", 5, start=5)]) == []
