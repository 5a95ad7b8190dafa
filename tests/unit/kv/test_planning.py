"""What is due, what a job replaces, and which jobs a record takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from msgspec import structs

from ftfile.core.errors import CorruptData, EncodingError
from ftfile.kv.planning import plan
from ftfile.kv.planning.holds import Hold, failed_ids, hold_of, holds_after, is_held
from ftfile.kv.planning.jobs import DEFAULT_PLAN, Group, JobTerms, Left, groups_of
from ftfile.kv.planning.plan import acceptable, plan_jobs
from ftfile.kv.planning.runs import Marks, Run, apart, placed, run_of, stretches_of
from ftfile.log.checks import Rewrite
from ftfile.log.format.model import Add, AssemblyTask, Origin
from ftfile.testing.context import SeededIds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.kv.key_columns import KeyRange

SETTINGS = DEFAULT_PLAN
MIB = 1 << 20
IDS = SeededIds(3)


def a_run(  # an add of a live run
    at: int | tuple[int, int],
    keys: tuple[int, int] | None = (0, 100),
    length: int = 1000,
    purges: Sequence[KeyRange] = (),
    **others: Any,
) -> Add:
    marks = Marks(
        at if isinstance(at, tuple) else (at, at),
        None if keys is None else ((keys[0],), (keys[1],)),
        tuple(purges),
        others.pop("ops", 1),
        others.pop("committed_ms", 0),
    )
    name = IDS.unique()
    rows = 0 if keys is None else 100
    add = Add(name, "segment", name, None, length, length, "", rows, "b=00000", "e", Origin("q", 0, 0))
    return structs.replace(add, rolling_stats=marks.to_json(), **others)


def plan_of(live: Sequence[Add], holds: Sequence[Hold] = (), now_ms: int = 0, **others: Any) -> list[AssemblyTask]:
    return plan_jobs(live, holds, others.pop("settings", SETTINGS), IDS, now_ms=now_ms, **others)


def named(jobs: Sequence[AssemblyTask]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(job.reason, [run_of(add).marks.at for add in job.inputs]) for job in jobs]


def points(*versions: int) -> list[tuple[int, int]]:
    return [(version, version) for version in versions]


class TestMarks:
    def test_they_come_back(self) -> None:
        marks = Marks((1 << 20, 5 << 20), ((b"a", 1), (b"b", -1)), (((), (b"x",)), ((b"y", 2), None)), 5, 99)
        assert Marks.from_json(marks.to_json()) == marks
        assert Marks.from_json(Marks((0, 0), None).to_json()) == Marks((0, 0), None)

    def test_positions_are_versions_and_places(self) -> None:
        found = placed([a_run(0), a_run(0)], 7, 123)
        assert [run_of(add).marks.at for add in found] == points(7 << 20, 7 << 20 | 1)
        assert {run_of(add).marks.committed_ms for add in found} == {123}


class TestFlush:
    def test_new_runs_are_merged_when_there_are_enough(self) -> None:
        live = [a_run(version) for version in range(SETTINGS.flush_runs)]
        assert plan_of(live[1:]) == []
        assert named(plan_of(live)) == [("flush", points(*range(16)))]
        oldest = a_run((0, 5), length=10 * MIB)
        live = [oldest, *(a_run(version) for version in range(6, 22))]
        assert named(plan_of(live)) == [("flush", points(*range(6, 22)))]

    @pytest.mark.parametrize("size", [{"length": MIB}, {"rows": 500_000}])
    def test_or_have_the_bytes_or_rows(self, size: dict[str, Any]) -> None:
        oldest = a_run((0, 5), length=100 * MIB)
        live = [oldest, *(a_run(version, **size) for version in (6, 7))]
        assert named(plan_of(live)) == [("flush", points(6, 7))]
        assert plan_of(live[:-1]) == []

    def test_a_large_new_run_is_merged_like_those_that_jobs_wrote(self) -> None:
        live = [a_run((0, 5), length=100 * MIB), *(a_run(version, length=2 * MIB) for version in (6, 7, 8))]
        assert plan_of(live) == []
        live.append(a_run(9, length=2 * MIB))
        assert named(plan_of(live)) == [("merge", points(6, 7, 8, 9))]

    def test_neighbouring_buckets_share_jobs_and_tasks_share_buckets(self) -> None:
        live = [a_run(version, directory_key=f"b={bucket:05d}") for bucket in range(8) for version in range(16)]
        jobs = plan_of(live, tasks=2)
        assert [[group.runs[0].add.directory_key[-1] for group in groups_of(job)] for job in jobs] == [
            [*"0123"],
            [*"4567"],
        ]
        assert all(group.terms == JobTerms((0, 15), True, -SETTINGS.tombstone_ttl_ms)
                   for job in jobs for group in groups_of(job))  # fmt: skip
        assert len(plan_of(live)) == 1


class TestRoom:
    """Records name so many runs; 16 of a bucket are due."""

    def runs(self, *buckets: int, count: int = 16) -> list[Add]:
        return [a_run(version, directory_key=f"b={bucket:05d}") for bucket in buckets for version in range(count)]

    def test_a_record_names_a_bounded_number_of_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "_RUNS_MAX", 40)
        live = self.runs(*range(4))
        jobs = plan_of(live, tasks=4)
        assert len(jobs) == 2
        monkeypatch.setattr(plan, "_RUNS_MAX", 4)
        assert len(plan_of(live, tasks=4)) == 1

    def test_so_does_a_job_unless_it_is_of_one_bucket(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "_RUNS_MAX", 40)
        live = self.runs(*range(4))
        assert [len(job.inputs) for job in plan_of(live)] == [32]
        assert [len(job.inputs) for job in plan_of(self.runs(0, 1, count=50))] == [50]

    def test_what_failed_keeps_no_other_from_its_turn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "_RUNS_MAX", 40)
        broken, live = self.runs(7, 8, 9), self.runs(*range(4))
        holds = [Hold(broken[16 * number].id, 15) for number in range(3)]
        assert [len(job.inputs) for job in plan_of([*broken, *live], holds)] == [16, 16, 16, 32]

    def test_none_overtakes_a_larger_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "_RUNS_MAX", 40)
        live = [*self.runs(0), *self.runs(1, count=30), *self.runs(2)]
        assert [len(job.inputs) for job in plan_of(live, tasks=4)] == [16]
        assert [len(job.inputs) for job in plan_of(live[16:], tasks=4)] == [30]


class TestTiers:
    def test_the_oldest_joins_when_those_above_have_half_its_size(self) -> None:
        live = [a_run((0, 5), length=100 * MIB), a_run((6, 8), length=30 * MIB), a_run((9, 10), length=19 * MIB)]
        assert plan_of(live) == []
        live[-1] = a_run((9, 10), length=20 * MIB)
        (job,) = plan_of(live)
        (group,) = groups_of(job)
        assert group.terms.is_bottom
        assert group.terms.at == (0, 10)

    def test_smaller_ones_are_one_more_of_a_tier(self) -> None:
        sizes = [2000, 32, 32, 32, 8, 8, 8, 6]
        live = [a_run((version, version + 1), length=size * MIB) for version, size in zip(range(0, 99, 2), sizes)]  # noqa: B905
        (job,) = plan_of(live)
        assert len(job.inputs) == 7
        (job,) = plan_of(live[:3] + live[4:])
        assert len(job.inputs) == 4
        assert not groups_of(job)[0].terms.is_bottom

    def test_what_is_held_is_left_alone_and_divides(self) -> None:
        live = [a_run((version, version), length=4 * MIB) for version in range(9)]
        live[0] = a_run((0, 0), length=1000 * MIB)
        retry, *others = named(plan_of(live, [Hold(live[4].id, 4)]))
        assert retry == ("retry", points(4, 5, 6, 7, 8))
        assert others == [("merge", points(5, 6, 7, 8))]
        assert named(plan_of(live)) == [("merge", points(*range(1, 9)))]


class TestCut:
    """A merge of two runs, cut at 50: its output reaches over what is left of them."""

    LIVE = (a_run((0, 4), (0, 99), 9 * MIB), a_run((5, 6), (10, 80), 9 * MIB), a_run((7, 7), (60, 70), 9 * MIB))

    def merged(self) -> tuple[dict[str, Add], Rewrite]:
        (job,) = plan_of(self.LIVE)
        (group,) = groups_of(job)
        share = group.below((50,))
        assert [run.add.id for run in share.folded] == [add.id for add in self.LIVE[:2]]
        output = Run(structs.replace(self.LIVE[0], id="output", path="output"), Marks((0, 0), ((0,), (49,)), (), 1))
        left = {self.LIVE[0].id: Left(60, (51,)), self.LIVE[1].id: Left(40, (52,))}
        rewrite = Rewrite(*share.replacement([output], left, IDS), 0)
        return {add.id: add for add in (*rewrite.adds, self.LIVE[2])}, rewrite

    def test_the_planner_goes_on_there(self) -> None:
        live, rewrite = self.merged()
        assert len(acceptable({add.id: add for add in self.LIVE}, [rewrite])) == 1
        more = [a_run((version, version), length=3 * MIB) for version in range(8, 12)]
        jobs = plan_of([*live.values(), *more])
        assert named(jobs) == [("continue", [(0, 4), (5, 6), (7, 7)]), ("merge", points(8, 9, 10, 11))]
        (group,) = groups_of(jobs[0])
        assert group.terms.at == (0, 7)
        assert group.terms.is_bottom
        assert [(run.marks.keys, run.add.skip_rows, run.add.rows) for run in group.runs[:2]] == [
            (((51,), (99,)), 60, 40),
            (((52,), (80,)), 40, 60),
        ]

    def test_it_is_one_run_when_all_is_done(self) -> None:
        live, _ = self.merged()
        (job,) = plan_of([*live.values()])
        share = groups_of(job)[0].below(None)
        output = Run(structs.replace(self.LIVE[0], id="other", path="other"), Marks((0, 0), ((51,), (99,)), (), 1))
        inputs, adds = share.replacement([output], {}, IDS)
        assert len(inputs) == 3
        (stretch,) = stretches_of(map(run_of, [live["output"], *adds]))
        assert stretch.at == (0, 7)
        assert stretch.unfinished == ()
        assert plan_of([live["output"], *adds]) == []


class TestPurges:
    def share_of(self, *runs: Add, is_bottom: bool = False, relabel_bytes: int = MIB) -> Group:
        return Group(tuple(map(run_of, runs)), JobTerms((0, 9), is_bottom, 0), relabel_bytes)

    def test_across_a_cut_both_parts_have_them(self) -> None:
        purged = a_run(5, (0, 90), purges=[((20,), (70,))])
        share = self.share_of(a_run(4, (0, 90)), purged).below((50,))
        output = Run(a_run(0), Marks((0, 0), ((0,), (49,)), (), 1))
        left = {run.add.id: Left(50, (50,)) for run in share.folded}
        _, adds = share.replacement([output], left, IDS)
        assert [run_of(add).marks.purges for add in adds] == [(((20,), (50,)),), (), (((50,), (70,)),)]

    def test_a_run_with_nothing_but_purges_is_left_without_rows(self) -> None:
        purged = a_run(5, None, purges=[((20,), None)])
        share = self.share_of(a_run(4, (0, 30)), purged).below((50,))
        assert share.purges == (((20,), (50,)),)
        _, (output, rest) = share.replacement(
            [Run(a_run(0, None), Marks((0, 0), None, (), 0))], {purged.id: Left(0, None)}, IDS
        )
        assert run_of(output).marks == Marks((0, 9), None, (((20,), (50,)),), 0)
        assert run_of(rest).marks == Marks((5, 5), None, (((50,), None),))

    def test_at_the_bottom_they_leave(self) -> None:
        share = self.share_of(a_run(4), a_run(5, purges=[((20,), (70,))]), is_bottom=True).below(None)
        assert share.purges == ()
        _, (output,) = share.replacement([Run(a_run(0), Marks((0, 0), ((0,), (100,)), (), 1))], {}, IDS)
        assert run_of(output).marks.purges == ()

    def test_each_output_has_those_from_its_first_key_on(self) -> None:
        large = a_run(3, (40, 50), 2 * MIB, purges=[((60,), (65,))])
        small = a_run(4, (0, 90), purges=[((5,), (9,)), ((52,), (99,))])
        share = self.share_of(
            large, a_run(2, (0, 30)), a_run(5, (70, 90)), a_run(6, None, purges=small_purges())
        ).below(None)
        assert [run.add.id for run in share.relabelled] == [large.id]
        assert small.rows
        outputs = [Run(a_run(0), Marks((0, 0), keys, (), 1)) for keys in (((0,), (30,)), ((70,), (90,)))]
        _, adds = share.replacement(outputs, {}, IDS)
        assert [run_of(add).marks.purges for add in adds] == [(((5,), (9,)),), (((52,), (70,)),), (((70,), (99,)),)]
        assert all(apart(run_of(one), run_of(other)) for one in adds for other in adds if one is not other)


def small_purges() -> list[KeyRange]:
    return [((5,), (9,)), ((52,), (99,))]


class TestRelabel:
    def relabelled(self, *others: Add, cut: int | None = None, is_bottom: bool = False, **large: Any) -> bool:
        runs = [run_of(each) for each in (a_run(1, (40, 50), **{"length": 2 * MIB, **large}), *others)]
        share = Group(tuple(runs), JobTerms((0, 9), is_bottom, 0), MIB).below(None if cut is None else (cut,))
        return bool(share.relabelled)

    def test_a_large_run_that_meets_no_other(self) -> None:
        assert self.relabelled(a_run(2, (51, 60)), a_run(3, (0, 39)))
        assert not self.relabelled(a_run(2, (50, 60)))
        assert not self.relabelled(a_run(2, (0, 40)))
        assert not self.relabelled(length=MIB - 1)

    def test_none_under_a_purge_or_with_one_over_others(self) -> None:
        assert not self.relabelled(a_run(2, None, purges=[((45,), (46,))]))
        assert self.relabelled(a_run(2, None, purges=[((51,), None)]))
        assert not self.relabelled(a_run(2, (60, 70)), purges=[((65,), (80,))])

    def test_none_that_a_cut_divides(self) -> None:
        assert self.relabelled(cut=51)
        assert not self.relabelled(cut=50)

    def test_at_the_bottom_none_of_which_rows_leave_or_change(self) -> None:
        assert self.relabelled(is_bottom=True)
        assert not self.relabelled(is_bottom=True, ops=0b101)
        assert not self.relabelled(is_bottom=True, ops=0b10)
        assert self.relabelled(ops=0b111)

    def test_its_bytes_stay(self) -> None:
        large = a_run(1, (40, 50), 2 * MIB, skip_rows=7)
        share = Group((run_of(large), run_of(a_run(2, (0, 9)))), JobTerms((0, 9), False, 0), MIB).below(None)
        inputs, adds = share.replacement([Run(a_run(0), Marks((0, 0), ((0,), (9,)), (), 1))], {}, IDS)
        assert len(inputs) == 2
        found = run_of(adds[1])
        assert found.add.id != large.id
        assert found.marks.at == (0, 9)
        assert structs.replace(found.add, id=large.id, rolling_stats=large.rolling_stats) == large


class TestAccept:
    def test_one_whose_inputs_are_gone_or_taken_is_dropped(self) -> None:
        live = [a_run(1), a_run(2)]
        by_id = {add.id: add for add in live}
        rewrites = [Rewrite(tuple(live), (a_run((1, 2)),), 0) for _ in range(2)]
        assert acceptable(by_id, rewrites) == rewrites[:1]
        assert acceptable({live[0].id: live[0]}, rewrites) == []

    def test_one_that_comes_when_others_have_merged_what_is_around_it(self) -> None:
        live = [a_run((0, 1), (0, 99)), a_run(2, (0, 9)), a_run(3, (0, 9))]
        by_id = {add.id: add for add in live}
        assert len(acceptable(by_id, [Rewrite((*live[1:],), (a_run((2, 3), (0, 9)),), 0)])) == 1
        assert acceptable(by_id, [Rewrite((*live[1:],), (a_run((1, 3), (0, 9)),), 0)]) == []
        assert len(acceptable(by_id, [Rewrite((*live[1:],), (a_run((1, 3), (100, 101)),), 0)])) == 1

    def test_each_is_seen_by_those_after_it(self) -> None:
        live = [a_run(1), a_run(2), a_run(3), a_run(4)]
        rewrites = [
            Rewrite((live[0], live[1]), (a_run((1, 2)),), 0),
            Rewrite((live[2], live[3]), (a_run((2, 4)),), 0),
        ]
        assert acceptable({add.id: add for add in live}, rewrites) == rewrites[:1]


class TestHolds:
    LIVE = tuple(a_run(version) for version in range(16))
    BY_ID: ClassVar = {add.id: add for add in LIVE}

    def failing(self, *paths: str) -> tuple[AssemblyTask, list[Hold]]:
        """The only job of the runs, and what is held once it has failed."""
        (job,) = plan_of(self.LIVE)
        damage: list[Exception] = [CorruptData(path, "a block", "another") for path in paths]
        errors = damage or [EncodingError("no sum")]
        return job, holds_after([job], failed_ids(job, errors), self.BY_ID, 5)

    def test_a_damaged_run_holds_itself_alone(self) -> None:
        _, holds = self.failing(self.LIVE[3].path)
        assert holds == [Hold(self.LIVE[3].id, 3)]
        more = [a_run(version) for version in range(16, 20)]
        (retry, *others) = plan_of([*self.LIVE, *more], holds)
        assert [add.id for add in retry.inputs] == [add.id for add in (*self.LIVE[3:], *more)]
        assert named(others) == [("flush", points(*range(4, 20))), ("merge", points(0, 1, 2))]
        assert [groups_of(job)[0].terms.is_bottom for job in others] == [False, True]

    def test_values_that_have_no_result_hold_the_runs_that_were_merged(self) -> None:
        _, holds = self.failing()
        assert holds == [Hold(self.LIVE[0].id, 15)]
        more = [a_run(version) for version in range(16, 32)]
        retry, flush = plan_of([*self.LIVE, *more], holds)
        assert (retry.id, retry.attempts, hold_of(retry)) == (self.LIVE[0].id, 1, holds[0])
        assert len(retry.inputs) == 32
        assert sum(add.logical_length for add in retry.inputs) * 1_000_000 < retry.payload["jobBytes"]  # it has no cut
        assert groups_of(retry)[0].terms == JobTerms((0, 31), True, -SETTINGS.tombstone_ttl_ms)
        assert named([flush]) == [("flush", points(*range(16, 32)))]

    def test_one_that_failed_often_is_left_out_for_a_while(self) -> None:
        job, holds = self.failing()
        for version in range(1, 3):
            (job,) = plan_of(self.LIVE, holds)
            assert not is_held(job, version)
            holds = holds_after([job], [job.id], self.BY_ID, version)
        (job,) = plan_of(self.LIVE, holds)
        assert job.attempts == 3
        assert is_held(job, 65)
        assert not is_held(job, 66)
        assert holds_after([job], [], self.BY_ID, 10) == holds

    def test_it_ends_with_its_run(self) -> None:
        _, holds = self.failing()
        (retry,) = plan_of(self.LIVE, holds)
        rest = {add.id: add for add in self.LIVE[1:]}
        assert holds_after([retry], [retry.id], rest, 6) == []
        assert named(plan_of(self.LIVE[1:], holds)) == []

    def test_jobs_that_did_not_fail_are_forgotten(self) -> None:
        (job,) = plan_of(self.LIVE)
        assert holds_after([job], ["another"], self.BY_ID, 1) == []

    def test_a_retry_ends_before_another_hold(self) -> None:
        jobs = plan_of(self.LIVE, [Hold(self.LIVE[9].id, 9), Hold(self.LIVE[2].id, 4)])
        assert named(jobs[:2]) == [("retry", points(*range(9, 16))), ("retry", points(*range(2, 9)))]

    def test_buckets_that_were_merged_all_the_same_are_not_held(self) -> None:
        live = [a_run(version, directory_key=f"b=0000{number}") for version in range(16) for number in range(3)]
        (job,) = plan_of(live)
        rest = {add.id: add for add in live if add.directory_key == "b=00001"}
        (hold,) = holds_after([job], [job.id], rest, 1)
        assert rest[hold.run].directory_key == "b=00001"


def test_deletes_expire_by_the_commits_of_newer_runs() -> None:
    day_ms = 86_400_000
    live = [a_run(version, length=3 * MIB) for version in range(4)]
    newer = a_run(4, committed_ms=8 * day_ms)
    for others, expired_ms in (([], 3 * day_ms), ([newer], 1 * day_ms)):
        (job,) = plan_of([*live, *others], now_ms=10 * day_ms)
        assert groups_of(job)[0].terms.expired_ms == expired_ms


def test_a_run_that_is_left_counts_by_its_rows() -> None:
    assert Run(a_run(1, length=1000, skip_rows=300), Marks((1, 1), None)).size == 250
    assert Run(a_run(1, None), Marks((1, 1), None)).size == 0
    assert Run(a_run(1, None), Marks((1, 1), None)).begins == ()
