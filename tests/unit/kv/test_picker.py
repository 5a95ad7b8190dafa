"""The runs to compact, the rows that a compaction may omit, and the ends of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec import structs

from ftfile.kv.planning.picker import DEFAULT_PLAN, Backoff, Compaction, groups_of, pick, runs_in, sorted_runs
from ftfile.kv.planning.plan import Terms, cuts_of, divide_purges, moves_of, terms_of
from ftfile.kv.planning.runs import Run, RunMetadata
from ftfile.log.format.model import Add, Origin
from ftfile.testing.context import SeededIds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.kv.planning.picker import Kind

RULES = DEFAULT_PLAN
MIB = 1 << 20
FILE = RULES.max_file_bytes
IDS = SeededIds(3)
DAY_MS = 86_400_000
KINDS = [pa.int64()]


def a_run(
    at: int | tuple[int, int],
    keys: tuple[int, int] | None = (0, 100),
    size: int = 1000,
    *,
    level: int = 0,
    rows: int = 100,
    purges: Sequence[KeyRange] = (),
    **metadata: Any,
) -> Run:
    positions = at if isinstance(at, tuple) else (at, at)
    ends = None if keys is None else ((keys[0],), (keys[1],))
    rows, name = rows if keys else 0, IDS.unique()
    add = Add(name, "segment", name, None, size, size, "", rows, "b=00000", "e", Origin("q", 0, 0))
    metadata = {"level": level, "ops": int(keys is not None)} | metadata
    return Run(add, RunMetadata(positions, ends, tuple(purges), **metadata))


def below(at: int | tuple[int, int], keys: tuple[int, int], size: int = 20 * MIB, **metadata: Any) -> Run:
    """Return a run of level 1."""
    return a_run(at, keys, size, level=1, **metadata)


def due(runs: Sequence[Run], backoffs: Sequence[Backoff] = (), **rules: Any) -> list[tuple[str, list[int]]]:
    """Return the kind of the due compaction, and the first positions of its runs."""
    chosen = pick(runs[::-1], backoffs, structs.replace(RULES, **rules))
    return [(each.kind, [run.metadata.at[0] for run in each.runs]) for each in chosen]


class TestSortedRuns:
    def test_are_runs_whose_positions_overlap(self) -> None:
        runs = [a_run(7), a_run((0, 4), (50, 99)), a_run((0, 4), (0, 49)), a_run((5, 6)), a_run((2, 3), (100, 101))]
        members = sorted_runs(runs)
        assert [member.at for member in members] == [(0, 4), (5, 6), (7, 7)]
        assert runs_in(members) == (runs[2], runs[1], runs[4], runs[3], runs[0])
        assert (members[0].size, members[0].rows) == (3000, 300)

    def test_groups_are_runs_that_meet_by_rows_and_purges(self) -> None:
        runs = [
            *(below(1, (0, 9)), below(4, (9, 20)), below(2, (21, 30)), below(3, (40, 41))),
            a_run(5, None, level=1, purges=[((30,), (35,))]),
        ]
        assert groups_of(runs) == [[runs[0], runs[1]], [runs[2], runs[4]], [runs[3]]]
        endless = a_run(0, None, level=1, purges=[((10,), None)])
        assert groups_of([*runs, endless]) == [[endless, runs[0], runs[2], runs[3], runs[1], runs[4]]]


class TestLevel0:
    def test_new_runs_are_merged_when_there_are_enough(self) -> None:
        runs = [a_run((0, 5), size=10 * MIB, rows=9000), *(a_run(version) for version in range(6, 22))]
        assert due(runs[:-1]) == []
        assert due(runs) == [("level0", [*range(6, 22)])]

    @pytest.mark.parametrize("size", [{"size": MIB}, {"rows": 500_000}])
    def test_or_have_the_bytes_or_rows(self, size: dict[str, Any]) -> None:
        runs = [a_run((0, 5), size=50 * MIB, rows=9_000_000), *(a_run(version, **size) for version in (6, 7))]
        assert due(runs) == [("level0", [6, 7])]
        assert due(runs[:-1]) == []

    def test_a_large_new_run_is_merged_like_those_of_compactions(self) -> None:
        runs = [a_run((0, 5), size=50 * MIB, rows=9000), *(a_run(version, size=2 * MIB) for version in (6, 7, 8, 9))]
        assert due(runs[:-1]) == []
        assert due(runs) == [("level0", [6, 7, 8, 9])]

    def test_smaller_ones_are_one_more_of_a_tier(self) -> None:
        sizes = [3000, 32, 32, 32, 8, 8, 8, 6]
        runs = [a_run((2 * place, 2 * place + 1), size=size * MIB) for place, size in enumerate(sizes)]
        large: dict[str, Any] = {"max_file_bytes": 1 << 40}
        assert due(runs[1:], [Backoff(runs[1].add.id, 1)], **large)[0][0] == "level0"
        assert due([a_run(0, rows=90_000, size=3000 * MIB), *runs[1:]], **large) == [("level0", [*range(2, 16, 2)])]
        assert due([a_run(0, rows=90_000, size=3000 * MIB), *runs[1:3], *runs[4:]], **large) == [
            ("level0", [8, 10, 12, 14])
        ]

    def test_the_oldest_joins_for_garbage_while_there_is_no_level_1(self) -> None:
        oldest = a_run((0, 5), size=30 * MIB, rows=1000)
        small: dict[str, Any] = {"size": 3 * MIB, "ops": 0b101}
        assert due([oldest, a_run((6, 7), rows=399, **small)]) == []
        assert due([oldest, a_run((6, 7), rows=400, **small)]) == [("level0", [0, 6])]
        assert due([oldest, a_run((6, 7), rows=200, deletes=200, **small)]) == [("level0", [0, 6])]
        assert due([oldest, a_run((6, 7), rows=1, size=12 * MIB)]) == [("level0", [0, 6])]
        assert due([oldest, a_run((6, 7), purges=[((1,), (2,))])]) == [("level0", [0, 6])]
        assert due([below(0, (0, 9)), a_run((1, 5), size=MIB, rows=1000), a_run((6, 7), rows=999)]) == []

    def test_what_is_flushed_joins_at_once(self) -> None:
        new = [a_run(version, rows=30) for version in range(6, 22)]
        assert due([a_run((0, 5), size=30 * MIB, rows=1200), *new]) == [("level0", [0, *range(6, 22)])]
        assert due([a_run((0, 5), size=30 * MIB, rows=1201), *new]) == [("level0", [*range(6, 22)])]


class TestDescent:
    def test_half_a_file_descends(self) -> None:
        halves = [a_run((0, 5), size=FILE // 4, rows=9000), a_run((6, 7), size=FILE // 4)]
        assert due(halves) == [("descend", [0, 6])]
        assert due([a_run((0, 5), size=FILE // 4 - 1, rows=9000), halves[1]]) != due(halves)
        assert due([a_run((0, 5), size=FILE)]) == []  # one sorted run

    def test_so_does_a_tenth_of_level_1_or_what_is_flushed(self) -> None:
        assert due([below(0, (0, 9), 200 * MIB), a_run(1, size=20 * MIB)]) == [("descend", [1])]
        assert due([below(0, (0, 9), 200 * MIB), a_run(1, size=20 * MIB - 1)]) == []
        assert due([below(0, (0, 9), MIB), a_run(1, size=RULES.flush_bytes)])[0] == ("descend", [1])
        assert due([below(0, (0, 9), MIB), a_run(1, size=RULES.flush_bytes - 1)]) == []

    def test_a_compaction_reads_two_files_or_two_sorted_runs(self) -> None:
        runs = [a_run(place, size=FILE * 4 // 5, rows=10**9) for place in range(4)]
        assert due(runs) == [("descend", [0, 1])]
        assert due([a_run(place, size=9 * FILE) for place in range(4)]) == [("descend", [0, 1])]
        assert due([a_run(place, size=FILE // 2) for place in range(9)]) == [("descend", [0, 1, 2, 3])]

    def test_nothing_newer_than_a_hold_descends(self) -> None:
        runs = [a_run(place, size=FILE // 2) for place in range(5)]
        backoff = Backoff(runs[0].add.id, 0)
        kinds = dict(due(runs, [backoff]))
        assert kinds == {"level0": [1, 2, 3, 4]}
        assert due(runs, [Backoff(runs[2].add.id, 2)])[1] == ("descend", [0, 1])


class TestLevel1:
    def test_a_group_is_compacted_whole_for_garbage(self) -> None:
        oldest, other = below((0, 5), (0, 50), rows=1000), below(1, (60, 70))
        newer: dict[str, Any] = {"size": MIB, "level": 1}
        assert due([oldest, other, a_run((6, 7), (0, 50), rows=399, **newer)]) == []
        assert due([oldest, other, a_run((6, 7), (0, 50), rows=400, **newer)]) == [("level1", [0, 6])]
        assert due([oldest, other, a_run((6, 7), (0, 50), rows=200, deletes=200, **newer)]) == [("level1", [0, 6])]
        assert due([oldest, other, a_run((6, 7), None, purges=[((3,), (4,))], level=1)]) == [("level1", [0, 6])]

    def test_purges_without_older_rows_leave_by_themselves(self) -> None:
        assert due([a_run(0, None, purges=[((3,), (4,))], level=1), below(1, (8, 9))]) == [("level1", [0])]

    def test_tiers_of_a_group(self) -> None:
        oldest = below((0, 1), (0, 99), FILE, rows=10**6)
        tier = [below((2 * place, 2 * place + 1), (0, 99), 4 * MIB) for place in range(1, 5)]
        assert due([oldest, *tier[:-1]]) == []
        assert due([oldest, *tier]) == [("level1", [2, 4, 6, 8])]

    def test_no_more_sorted_runs_than_some_but_the_oldest(self) -> None:
        sizes = [FILE, *(size for tier in (12 * MIB, 3 * MIB, 700_000) for size in (tier, tier, tier))]
        runs = [below(place, (0, 99), size, rows=10**6 // (1 + place * 50)) for place, size in enumerate(sizes)]
        assert due(runs[:8], fan_in=9) == []
        assert due(runs[:9], fan_in=9) == [("level1", [*range(1, 9)])]

    def test_small_neighbours_are_joined(self) -> None:
        small = [below(place, (10 * place, 10 * place + 5), MIB) for place in range(5)]
        assert due(small) == [("level1", [0, 1, 2, 3, 4])]
        assert due(small[:3]) == []
        assert due([*small[:2], below(2, (20, 25), FILE // 16), *small[3:]]) == []
        part = [below(place, (10 * place, 10 * place + 5), FILE // 17) for place in range(18)]
        assert due(part) == [("level1", [*range(17)])]


class TestBackoffs:
    RUNS = tuple(a_run(place, size=4 * MIB) for place in range(9))

    def test_a_hold_divides_and_is_tried_with_all_newer_runs(self) -> None:
        found = [*pick(self.RUNS, [Backoff(self.RUNS[4].add.id, 4)], RULES)]
        assert [run.metadata.at[0] for run in found[0].runs] == [4, 5, 6, 7, 8]
        assert (found[0].kind, found[0].backoff) == ("level0", Backoff(self.RUNS[4].add.id, 4))
        assert due(self.RUNS, [Backoff(self.RUNS[4].add.id, 4)])[1:] == [
            ("level0", [0, 1, 2, 3]),
            ("level0", [5, 6, 7, 8]),
        ]

    def test_up_to_the_next_hold(self) -> None:
        retries = due(self.RUNS, [Backoff(self.RUNS[7].add.id, 7), Backoff(self.RUNS[2].add.id, 4)])[:2]
        assert retries == [("level0", [7, 8]), ("level0", [2, 3, 4, 5, 6])]

    def test_of_a_group_it_leaves_other_groups_and_levels_alone(self) -> None:
        group = [below(0, (0, 50), rows=9), below(1, (0, 50), rows=9)]
        others = [below(2, (60, 70), rows=9), below(3, (60, 70), rows=9)]
        level0 = [a_run(4 + place) for place in range(16)]
        found = due([*group, *others, *level0], [Backoff(group[0].add.id, 1)])
        assert found == [("level0", [*range(4, 20)]), ("level1", [0, 1]), ("level1", [2, 3])]

    def test_a_small_group_that_is_held_is_not_joined(self) -> None:
        small = [below(place, (10 * place, 10 * place + 5), MIB) for place in range(5)]
        assert due(small, [Backoff(small[4].add.id, 4)]) == [("level1", [4]), ("level1", [0, 1, 2, 3])]
        assert due(small, [Backoff(small[2].add.id, 2)]) == [("level1", [2])]


class TestTerms:
    def terms(self, runs: Sequence[Run], *others: Run, now_ms: int = 10 * DAY_MS) -> Terms:
        return terms_of(runs, [*others, *runs], RULES, now_ms)

    def test_it_is_bottommost_where_no_older_run_has_its_keys(self) -> None:
        runs = [a_run(4, (10, 20)), a_run(5, (30, 40))]
        assert self.terms(runs, a_run(6)).is_bottommost
        assert self.terms(runs, a_run(3, (0, 9)), a_run(2, (41, 99))).is_bottommost
        for older in (a_run(3, (0, 10)), a_run(3, (40, 99)), a_run(3, (25, 26))):
            assert not self.terms(runs, older).is_bottommost

    def test_purges_count_as_rows(self) -> None:
        runs = [a_run(4, (10, 20)), a_run(5, None, purges=[((90,), None)])]
        assert not self.terms(runs, a_run(3, (1000, 1001))).is_bottommost
        assert not self.terms([a_run(4, (10, 20))], a_run(3, None, purges=[((0,), (12,))])).is_bottommost

    def test_deletes_expire_by_the_clock_and_by_the_commits_of_newer_runs_with_their_keys(self) -> None:
        runs = [a_run(4, (10, 20), committed_ms=DAY_MS)]
        assert self.terms(runs).expired_ms == 3 * DAY_MS
        assert self.terms(runs, a_run(5, (15, 30), committed_ms=8 * DAY_MS)).expired_ms == DAY_MS
        assert self.terms(runs, a_run(5, (21, 30), committed_ms=8 * DAY_MS)).expired_ms == 3 * DAY_MS
        assert self.terms(runs, a_run(3, (15, 30), committed_ms=DAY_MS)).expired_ms == 3 * DAY_MS


class TestCuts:
    GROUPS = (below(0, (10, 20), FILE // 8), below(1, (30, 40), FILE // 8 - 1), below(2, (50, 60), FILE))

    def cuts(self, *runs: Run, kind: Kind = "descend", groups: Sequence[Run] = GROUPS) -> tuple[Key, ...]:
        return cuts_of(Compaction(kind, runs), [*groups, *runs], KINDS, RULES)

    def moves(self, *runs: Run) -> tuple[Run, ...]:
        return moves_of(Compaction("descend", runs), self.cuts(*runs), RULES.max_file_bytes)

    def test_they_are_where_large_groups_begin_and_behind_the_last(self) -> None:
        run = a_run(5, (0, 99))
        assert self.cuts(run) == ((10,), (50,), (61,))
        assert self.cuts(run, groups=()) == ()
        assert self.cuts(run, groups=[a_run(0, None, level=1, purges=[((3,), None)])]) == ()
        assert self.cuts(run, kind="level0") == self.cuts(run, kind="level1") == ()

    def test_the_greatest_key_has_none_behind(self) -> None:
        run, greatest = a_run(5, (0, 99)), (1 << 63) - 1
        assert self.cuts(run, groups=[below(0, (10, greatest), FILE)]) == ((10,),)

    def test_a_large_run_that_meets_no_other_moves(self) -> None:
        large = a_run(5, (70, 80), FILE // 4)
        assert (self.cuts(large), self.moves(large)) == (((10,), (50,), (61,), (70,)), (large,))
        assert self.moves(large, a_run(6, (0, 69))) == (large,)
        assert self.moves(large, a_run(6, (0, 70))) == ()
        assert self.moves(large, a_run(6, None, purges=[((75,), (76,))])) == ()
        assert self.moves(a_run(5, (70, 80), FILE // 4 - 1)) == ()

    @pytest.mark.parametrize(("keys", "moves"), [((40, 49), 1), ((40, 50), 0), ((50, 55), 1), ((60, 61), 0)])
    def test_none_with_a_cut_in_it(self, keys: tuple[int, int], moves: int) -> None:
        assert len(self.moves(a_run(5, keys, FILE // 4))) == moves

    def test_none_whose_purges_have_a_cut_in_them(self) -> None:
        assert self.moves(a_run(5, (50, 55), FILE // 4, purges=[((55,), None)])) == ()

    def test_purges_are_divided_among_results(self) -> None:
        purges = [((0,), (15,)), ((12,), (33,)), ((40,), None)]
        assert divide_purges(purges, [(), (10,), (35,)], (50,)) == [
            (((0,), (10,)),),
            (((10,), (33,)),),
            (((40,), (50,)),),
        ]
        assert divide_purges(purges, [()], None) == [(((0,), (33,)), ((40,), None))]
