"""Jobs of what is due, the results of one, holds, and which jobs a record takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from msgspec import structs

from ftfile.core.errors import CorruptData, EncodingError
from ftfile.kv.planning import plan
from ftfile.kv.planning.holds import failed_ids, hold_of, holds_after, is_held
from ftfile.kv.planning.picker import Terms
from ftfile.kv.planning.plan import PlannedCompaction, Planner, Result, acceptable, compactions_of
from ftfile.kv.planning.rules import DEFAULT_PLAN, Hold
from ftfile.kv.planning.runs import Marks, Run, placed, run_of
from ftfile.log.checks import Rewrite
from ftfile.log.format.model import Add, AssemblyTask, Origin
from ftfile.testing.context import SeededIds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

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
        others.pop("level", 0),
    )
    name = IDS.unique()
    rows = 0 if keys is None else 100
    add = Add(name, "segment", name, None, length, length, "", rows, "b=00000", "e", Origin("q", 0, 0))
    return structs.replace(add, rolling_stats=marks.to_json(), **others)


def plan_of(live: Sequence[Add], holds: Sequence[Hold] = (), now_ms: int = 0, tasks: int = 1) -> list[AssemblyTask]:
    return Planner(SETTINGS, [pa.int64()], IDS, now_ms).jobs(live, holds, tasks=tasks)


def named(jobs: Sequence[AssemblyTask]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(job.reason, [run_of(add).marks.at for add in job.inputs]) for job in jobs]


def points(*versions: int) -> list[tuple[int, int]]:
    return [(version, version) for version in versions]


class TestMarks:
    def test_they_come_back(self) -> None:
        marks = Marks((1 << 20, 5 << 20), ((b"a", 1), (b"b", -1)), (((), (b"x",)), ((b"y", 2), None)), 5, 99, 1, 7, 8)
        assert Marks.from_json(marks.to_json()) == marks
        assert Marks.from_json(Marks((0, 0), None).to_json()) == Marks((0, 0), None)

    def test_positions_are_versions_and_places(self) -> None:
        found = placed([a_run(0), a_run(0)], 7, 123)
        assert [run_of(add).marks.at for add in found] == points(7 << 20, 7 << 20 | 1)
        assert {run_of(add).marks.committed_ms for add in found} == {123}


class TestJobs:
    def test_neighbouring_buckets_share_jobs_and_tasks_share_buckets(self) -> None:
        live = [a_run(version, directory_key=f"b={bucket:05d}") for bucket in range(8) for version in range(16)]
        jobs = plan_of(live, tasks=2)
        assert [[each.runs[0].add.directory_key[-1] for each in compactions_of(job)] for job in jobs] == [
            [*"0123"],
            [*"4567"],
        ]
        terms = Terms(is_bottommost=True, expired_ms=-SETTINGS.tombstone_ttl_ms)
        assert all(each.terms == terms for job in jobs for each in compactions_of(job))
        assert len(plan_of(live)) == 1

    def test_they_are_what_is_due_as_tasks_do_it(self) -> None:
        live = [
            *(a_run(version, (10 * version, 10 * version + 5), 40 * MIB, level=1) for version in range(2)),
            *(a_run(version, (0, 99), 40 * MIB) for version in (2, 3)),
        ]
        (job,) = plan_of(live, now_ms=9)
        assert named([job]) == [("descend", points(2, 3))]
        (planned,) = compactions_of(job)
        assert planned == PlannedCompaction(
            tuple(map(run_of, live[2:])),
            1,
            Terms(is_bottommost=False, expired_ms=9 - SETTINGS.tombstone_ttl_ms),
            ((0,), (10,), (16,)),
            SETTINGS.max_file_bytes,
        )
        assert planned.moves == ()
        assert planned.merged == planned.runs


class TestResults:
    def planned(self, *runs: Add, cuts: Sequence[int] = (), is_bottommost: bool = False) -> PlannedCompaction:
        terms = Terms(is_bottommost=is_bottommost, expired_ms=0)
        return PlannedCompaction(tuple(map(run_of, runs)), 1, terms, tuple((cut,) for cut in cuts), 100 * MIB)

    def test_they_have_the_level_positions_and_time_of_what_was_merged(self) -> None:
        move = a_run((1, 2), (50, 60), 25 * MIB, committed_ms=1)
        planned = self.planned(
            move, a_run(3, (0, 9), committed_ms=7), a_run((4, 8), (5, 40), committed_ms=5), cuts=[50]
        )
        assert [run.add for run in planned.moves] == [move]
        output = run_of(a_run(0, (0, 40)))
        marks = run_of(planned.add_of(output, ())).marks
        assert (marks.at, marks.committed_ms, marks.level, marks.keys) == ((3, 8), 5, 1, ((0,), (40,)))
        (moved,) = planned.moved(IDS)
        assert moved.id != move.id
        assert run_of(moved).marks == Marks((1, 2), ((50,), (60,)), committed_ms=1, level=1)
        assert structs.replace(moved, id=move.id, rolling_stats=move.rolling_stats) == move

    def test_runs_move_on_their_way_down_alone(self) -> None:
        planned = self.planned(a_run(1, (50, 60), 25 * MIB, level=1))
        assert planned.moves == ()

    def test_each_has_purges_up_to_the_next_one_or_a_cut(self) -> None:
        purges: list[KeyRange] = [((5,), (25,)), ((30,), (31,)), ((45,), None)]
        planned = self.planned(a_run(1), a_run(2, purges=purges), cuts=[10, 20, 30, 40, 50])
        outputs = [run_of(a_run(0, keys)) for keys in ((0, 9), (21, 22), (23, 29), (40, 41))]
        assert [(result.run and result.run.marks.keys, result.purges) for result in planned.results(outputs)] == [
            (((0,), (9,)), (((5,), (10,)),)),
            (None, (((10,), (20,)),)),
            (((21,), (22,)), (((20,), (23,)),)),
            (((23,), (29,)), (((23,), (25,)),)),
            (None, (((30,), (31,)),)),
            (((40,), (41,)), (((45,), (50,)),)),
            (None, (((50,), None),)),
        ]

    def test_where_no_older_row_is_purges_leave(self) -> None:
        planned = self.planned(a_run(2, purges=[((5,), (25,))]), cuts=[10], is_bottommost=True)
        assert planned.results([]) == []
        output = run_of(a_run(0, (0, 9)))
        assert planned.results([output]) == [Result(output, ())]


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
        retry, job = plan_of([*self.LIVE, *more], holds)
        assert [add.id for add in retry.inputs] == [add.id for add in (*self.LIVE[3:], *more)]
        older, newer = compactions_of(job)
        assert [run.marks.at for run in older.runs] == points(0, 1, 2)
        assert [run.marks.at for run in newer.runs] == points(*range(4, 20))
        assert (older.terms.is_bottommost, newer.terms.is_bottommost) == (True, False)

    def test_values_that_have_no_result_hold_the_runs_that_were_merged(self) -> None:
        _, holds = self.failing()
        assert holds == [Hold(self.LIVE[0].id, 15)]
        more = [a_run(version) for version in range(16, 32)]
        retry, flush = plan_of([*self.LIVE, *more], holds)
        assert (retry.id, retry.attempts, hold_of(retry)) == (self.LIVE[0].id, 1, holds[0])
        assert len(retry.inputs) == 32
        assert compactions_of(retry)[0].terms == Terms(is_bottommost=True, expired_ms=-SETTINGS.tombstone_ttl_ms)
        assert named([flush]) == [("level0", points(*range(16, 32)))]

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


def test_a_run_that_is_left_counts_by_its_rows() -> None:
    assert Run(a_run(1, None), Marks((1, 1), None)).size == 0
    assert Run(a_run(1, None), Marks((1, 1), None)).begins == ()
