"""What is due as tasks do it and as records name it, the results of one, backoffs, and what a record takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from msgspec import structs

from ftfile.core.errors import CorruptData, EncodingError
from ftfile.kv.compactor import planned_compactions
from ftfile.kv.planning.picker import DEFAULT_PLAN, Backoff, Compaction
from ftfile.kv.planning.plan import (
    CompactionPlanner,
    PlannedCompaction,
    Result,
    Terms,
    backoffs_after,
    backoffs_of,
    failed_ids,
    is_held,
    job_of,
    keep_acceptable,
    pieces_of,
)
from ftfile.kv.planning.runs import Run, RunMetadata, place_adds, run_of
from ftfile.log.checks import Rewrite
from ftfile.log.format.model import Add, Job, Origin
from ftfile.log.state import LogState, SharedMap
from ftfile.testing.context import SeededIds
from ftfile.testing.fs.memory import MemoryFileSystem

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
    metadata = RunMetadata(
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
    return structs.replace(add, rolling_stats=metadata.to_json(), **others)


def plan_of(live: Sequence[Add], backoffs: Sequence[Backoff] = (), now_ms: int = 0) -> list[PlannedCompaction]:
    return CompactionPlanner(SETTINGS, [pa.int64()], now_ms).list_due(live, backoffs)


def named(due: Sequence[PlannedCompaction]) -> list[tuple[str, list[tuple[int, int]]]]:
    kinds = ["retry" if planned.compaction.backoff else planned.compaction.kind for planned in due]
    return [
        (kind, [run.metadata.at for run in planned.compaction.runs]) for kind, planned in zip(kinds, due, strict=True)
    ]


def points(*versions: int) -> list[tuple[int, int]]:
    return [(version, version) for version in versions]


class TestMetadata:
    def test_they_come_back(self) -> None:
        metadata = RunMetadata(
            (1 << 20, 5 << 20), ((b"a", 1), (b"b", -1)), (((), (b"x",)), ((b"y", 2), None)), 5, 99, 1, 7, 8
        )
        assert RunMetadata.from_json(metadata.to_json()) == metadata
        assert RunMetadata.from_json(RunMetadata((0, 0), None).to_json()) == RunMetadata((0, 0), None)

    def test_positions_are_versions_and_places(self) -> None:
        found = place_adds([a_run(0), a_run(0)], 7, 123)
        assert [run_of(add).metadata.at for add in found] == points(7 << 20, 7 << 20 | 1)
        assert {run_of(add).metadata.committed_ms for add in found} == {123}


class TestDue:
    def test_neighbouring_buckets_share_files_up_to_their_bytes(self) -> None:
        live = [a_run(version, directory_key=f"b={bucket:05d}") for bucket in range(8) for version in range(16)]
        due = plan_of(live)
        assert [planned.size for planned in due] == [16_000] * 8
        assert [len(piece) for piece in pieces_of(due, 48_000)] == [3, 3, 2]
        assert [len(piece) for piece in pieces_of(due, 1)] == [1] * 8
        terms = Terms(is_bottommost=True, expired_ms=-SETTINGS.tombstone_ttl_ms)
        assert {planned.terms for planned in due} == {terms}

    def test_retries_come_last_each_by_itself(self) -> None:
        live = [a_run(version, directory_key=f"b={bucket:05d}") for bucket in range(4) for version in range(16)]
        pieces = pieces_of(plan_of(live, [Backoff(live[0].id, 15, attempts=2), Backoff(live[16].id, 31)]), 1 << 30)
        buckets = [[planned.compaction.runs[0].add.directory_key[-1] for planned in piece] for piece in pieces]
        assert buckets == [["2", "3"], ["1"], ["0"]]

    def test_it_is_as_tasks_do_it(self) -> None:
        live = [
            *(a_run(version, (10 * version, 10 * version + 5), 40 * MIB, level=1) for version in range(2)),
            *(a_run(version, (0, 99), 40 * MIB) for version in (2, 3)),
        ]
        (planned,) = plan_of(live, now_ms=9)
        assert planned == PlannedCompaction(
            compaction=Compaction("descend", tuple(map(run_of, live[2:]))),
            terms=Terms(is_bottommost=False, expired_ms=9 - SETTINGS.tombstone_ttl_ms),
            cuts=((0,), (10,), (16,)),
            max_file_bytes=SETTINGS.max_file_bytes,
        )
        assert planned.moves == ()
        assert planned.inputs == planned.compaction.runs

    def test_a_record_names_the_oldest_run_and_the_bucket(self) -> None:
        live = [a_run(version) for version in range(16)]
        (planned,) = plan_of(live)
        payload = {"bucket": "b=00000", "taskCount": 3}
        assert job_of(planned.compaction, 3) == Job(live[0].id, "level0", (), payload=payload)

    def test_of_a_retry_it_names_what_is_held(self) -> None:
        live = [a_run((1, 2), (0, 9), level=1), a_run((1, 2), (10, 19), level=1, purges=[((5,), (15,))])]
        backoff = Backoff(live[1].id, 2, attempts=3, not_before=70)
        (planned,) = plan_of(live, [backoff])
        assert planned.compaction.runs[0].add.id == live[0].id != planned.compaction.name
        job = job_of(planned.compaction, 1)
        assert (job.id, job.reason, job.attempts) == (live[1].id, "retry", 3)
        assert backoffs_of([job]) == [backoff]

    def test_a_task_does_what_its_jobs_name_alone(self) -> None:
        """Of a bucket in which a run is held, and of another one."""
        live = [a_run(version, directory_key=f"b={bucket:05d}") for bucket in range(2) for version in range(20)]
        jobs = [job_of(planned.compaction, 1) for planned in plan_of(live, [Backoff(live[3].id, 3)])]
        assert [job.reason for job in jobs] == ["retry", "level0", "level0", "level0"]
        state = LogState(20, segments=SharedMap({add.id: add for add in live}), jobs=tuple(jobs))
        fs, planner = MemoryFileSystem("named"), CompactionPlanner(SETTINGS, [pa.int64()], 0)
        for job in jobs:
            (planned,) = planned_compactions([job], state, fs, planner)
            assert job_of(planned.compaction, 1) == job


class TestResults:
    def planned(self, *runs: Add, cuts: Sequence[int] = (), is_bottommost: bool = False) -> PlannedCompaction:
        terms = Terms(is_bottommost=is_bottommost, expired_ms=0)
        compaction = Compaction("descend", tuple(map(run_of, runs)))
        return PlannedCompaction(
            compaction=compaction, terms=terms, cuts=tuple((cut,) for cut in cuts), max_file_bytes=100 * MIB
        )

    def test_they_have_the_level_positions_and_time_of_what_was_merged(self) -> None:
        move = a_run((1, 2), (50, 60), 25 * MIB, committed_ms=1)
        planned = self.planned(
            move, a_run(3, (0, 9), committed_ms=7), a_run((4, 8), (5, 40), committed_ms=5), cuts=[50]
        )
        assert [run.add for run in planned.moves] == [move]
        output = run_of(a_run(0, (0, 40)))
        metadata = run_of(planned.add_of(output, ())).metadata
        assert (metadata.at, metadata.committed_ms, metadata.level, metadata.keys) == ((3, 8), 5, 1, ((0,), (40,)))
        (moved,) = planned.move_runs(IDS)
        assert moved.id != move.id
        assert run_of(moved).metadata == RunMetadata((1, 2), ((50,), (60,)), committed_ms=1, level=1)
        assert structs.replace(moved, id=move.id, rolling_stats=move.rolling_stats) == move

    def test_runs_move_on_their_way_down_alone(self) -> None:
        planned = self.planned(a_run(1, (50, 60), 25 * MIB))
        assert planned.moves == planned.compaction.runs
        level1 = planned.compaction._replace(kind="level1")
        assert replace(planned, compaction=level1).moves == ()

    def test_each_has_purges_up_to_the_next_one_or_a_cut(self) -> None:
        purges: list[KeyRange] = [((5,), (25,)), ((30,), (31,)), ((45,), None)]
        planned = self.planned(a_run(1), a_run(2, purges=purges), cuts=[10, 20, 30, 40, 50])
        outputs = [run_of(a_run(0, keys)) for keys in ((0, 9), (21, 22), (23, 29), (40, 41))]
        assert [(result.run and result.run.metadata.keys, result.purges) for result in planned.results(outputs)] == [
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


class TestAccept:
    def test_one_whose_inputs_are_gone_or_taken_is_dropped(self) -> None:
        live = [a_run(1), a_run(2)]
        by_id = {add.id: add for add in live}
        rewrites = [Rewrite(tuple(live), (a_run((1, 2)),), 0) for _ in range(2)]
        assert keep_acceptable(by_id, rewrites) == rewrites[:1]
        assert keep_acceptable({live[0].id: live[0]}, rewrites) == []

    def test_one_that_comes_when_others_have_merged_what_is_around_it(self) -> None:
        live = [a_run((0, 1), (0, 99)), a_run(2, (0, 9)), a_run(3, (0, 9))]
        by_id = {add.id: add for add in live}
        assert len(keep_acceptable(by_id, [Rewrite((*live[1:],), (a_run((2, 3), (0, 9)),), 0)])) == 1
        assert keep_acceptable(by_id, [Rewrite((*live[1:],), (a_run((1, 3), (0, 9)),), 0)]) == []
        assert len(keep_acceptable(by_id, [Rewrite((*live[1:],), (a_run((1, 3), (100, 101)),), 0)])) == 1

    def test_each_is_seen_by_those_after_it(self) -> None:
        live = [a_run(1), a_run(2), a_run(3), a_run(4)]
        rewrites = [
            Rewrite((live[0], live[1]), (a_run((1, 2)),), 0),
            Rewrite((live[2], live[3]), (a_run((2, 4)),), 0),
        ]
        assert keep_acceptable({add.id: add for add in live}, rewrites) == rewrites[:1]


@pytest.mark.parametrize(
    "change", [{"bucket": 1}, {"taskCount": "2"}, {"taskCount": -1}, {"last": -1}, {"notBefore": None}], ids=str
)
def test_a_plan_that_no_task_can_execute_is_damage(change: dict[str, Any]) -> None:
    plan = {"bucket": "b=00000", "taskCount": 1}
    backoffs_of([Job("run", "level0", (), payload=plan)])
    with pytest.raises(CorruptData, match="the plan of the job"):
        backoffs_of([Job("run", "level0", (), payload=plan | change)])


class TestBackoffs:
    LIVE = tuple(a_run(version) for version in range(16))
    BY_ID: ClassVar = {add.id: add for add in LIVE}

    def failing(self, path: str | None = None) -> list[Backoff]:
        """Return what is held once the only compaction of the runs has failed."""
        (planned,) = plan_of(self.LIVE)
        error = EncodingError("no sum") if path is None else CorruptData(path, "a block", "another")
        compaction = planned.compaction
        return backoffs_after([], [compaction], failed_ids(compaction, error), self.BY_ID, 5)

    def test_a_damaged_run_holds_itself_alone(self) -> None:
        backoffs = self.failing(self.LIVE[3].path)
        assert backoffs == [Backoff(self.LIVE[3].id, 3)]
        more = [a_run(version) for version in range(16, 20)]
        due = plan_of([*self.LIVE, *more], backoffs)
        assert named(due) == [
            ("retry", points(*range(3, 20))),
            ("level0", points(0, 1, 2)),
            ("level0", points(*range(4, 20))),
        ]
        assert [planned.terms.is_bottommost for planned in due] == [False, True, False]

    def test_values_that_have_no_result_hold_the_runs_that_were_merged(self) -> None:
        backoffs = self.failing()
        assert backoffs == [Backoff(self.LIVE[0].id, 15)]
        more = [a_run(version) for version in range(16, 32)]
        due = plan_of([*self.LIVE, *more], backoffs)
        assert named(due) == [("retry", points(*range(32))), ("level0", points(*range(16, 32)))]
        assert due[0].terms == Terms(is_bottommost=True, expired_ms=-SETTINGS.tombstone_ttl_ms)

    def test_one_that_failed_often_is_left_out_for_a_while(self) -> None:
        backoffs = self.failing()
        for version in range(1, 3):
            (planned,) = plan_of(self.LIVE, backoffs)
            assert not is_held(job_of(planned.compaction, 1), version)
            failed = failed_ids(planned.compaction, EncodingError("no sum"))
            backoffs = backoffs_after(backoffs, [planned.compaction], failed, self.BY_ID, version)
        (planned,) = plan_of(self.LIVE, backoffs)
        job = job_of(planned.compaction, 1)
        assert job.attempts == 3
        assert is_held(job, 65)
        assert not is_held(job, 66)
        assert backoffs_after(backoffs, [planned.compaction], [], self.BY_ID, 10) == backoffs

    def test_it_ends_with_its_run(self) -> None:
        backoffs = self.failing()
        rest = {add.id: add for add in self.LIVE[1:]}
        assert backoffs_after(backoffs, [], [backoffs[0].run], rest, 6) == []
        assert named(plan_of(self.LIVE[1:], backoffs)) == []

    def test_what_did_not_fail_is_not_held(self) -> None:
        (planned,) = plan_of(self.LIVE)
        assert backoffs_after([], [planned.compaction], ["another"], self.BY_ID, 1) == []

    def test_a_retry_ends_before_another_hold(self) -> None:
        due = plan_of(self.LIVE, [Backoff(self.LIVE[9].id, 9), Backoff(self.LIVE[2].id, 4)])
        assert named(due[:2]) == [("retry", points(*range(9, 16))), ("retry", points(*range(2, 9)))]

    def test_what_was_merged_all_the_same_is_not_held(self) -> None:
        live = [a_run(version, directory_key=f"b=0000{number}") for version in range(16) for number in range(3)]
        due = [planned.compaction for planned in plan_of(live)]
        rest = {add.id: add for add in live if add.directory_key == "b=00001"}
        (backoff,) = backoffs_after([], due, {add.id for add in live}, rest, 1)
        assert rest[backoff.run].directory_key == "b=00001"


def test_a_run_that_is_left_counts_by_its_rows() -> None:
    assert Run(a_run(1, None), RunMetadata((1, 1), None)).size == 0
    assert Run(a_run(1, None), RunMetadata((1, 1), None)).begins == ()
