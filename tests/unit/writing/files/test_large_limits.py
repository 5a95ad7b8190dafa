"""Beyond limits of open files as they are, which other tests set to a few."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from ftfile.core.context import SYSTEM
from ftfile.core.errors import NameCollision
from ftfile.log.apply import state_after
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import Add, Body, Job, MaintenanceAuthor, Origin, Record, Remove, StreamAuthor
from ftfile.log.protocol import commit
from ftfile.log.state import LogState, QueryState, SharedMap
from ftfile.operate import flush as flushing
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files import rolling_plan as plan
from ftfile.writing.files.rolling_plan import DUE_SEGMENTS_MAX, RollingPlanner
from ftfile.writing.files.rolling_rules import ALL_END

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Iterator[MemoryFileSystem]:
    yield MemoryFileSystem(request.node.name)
    MemoryFileSystem.drop(request.node.name)


def test_a_final_row_beyond_a_thousand_segments(storage: MemoryFileSystem) -> None:
    with mounted(storage) as url:
        query = MicroBatch(url, {"word": "string", "last": "boolean"}, {"fileFormat": "text", "finalizeColumn": "last"})
        query.run(0, [[{"word": f"w{task}", "last": task == 1000}] for task in range(1001)])
        query.run(1, [[], []])  # of as many tasks the first two have a job each
    head = CommitLog(storage).refresh()
    assert not head.segments
    report = check_directory(storage)
    assert sorted(add.rows for add in report.live.values()) == [1, 1000]


def test_more_segments_are_due_than_a_record_names(storage: MemoryFileSystem) -> None:
    tasks, directories = 101, 100
    assert tasks * directories > DUE_SEGMENTS_MAX
    clock = ManualClock()
    with repeatable(clock), mounted(storage) as url:
        options = {"fileFormat": "text", "partitionBy": "k", "rolloverInterval": "1h"}
        query = MicroBatch(url, {"word": "string", "k": "string"}, options)
        query.run(0, [[{"word": f"w{task}", "k": f"{k}"} for k in range(directories)] for task in range(tasks)])
        clock.advance(3600)
        named = []
        for batch in range(1, 4):
            query.run(batch, [[]])
            named.append(Counter(len(job.inputs) for job in CommitLog(storage).refresh().jobs))
    assert named == [{tasks: DUE_SEGMENTS_MAX // tasks}, {tasks: 1}, {}]
    report = check_directory(storage)
    assert [add.rows for add in report.live.values()] == [tasks] * directories


def segment(number: int, directory: str = "") -> Add:
    stats = {"partition": number, "index": 0, "committedMs": 0}
    origin = Origin("query", 0, 0)
    return Add(
        f"{directory}{number}", "segment", "a", None, 1, 1, "", 1, directory, "text", origin, rolling_stats=stats
    )


@pytest.mark.parametrize(
    ("max_segments", "found"), [(1_000, [[1_000] * 10, [1, 1]]), (20_000, [[DUE_SEGMENTS_MAX + 1], [1]])]
)
def test_a_group_of_more_segments_than_a_record_names(max_segments: int, found: list[list[int]]) -> None:
    """It does not keep the group behind it back, whether one job may have all of its segments or not."""
    segments = {each.id: each for each in [*map(segment, range(DUE_SEGMENTS_MAX + 1)), segment(0, "behind")]}
    head = LogState(0, "0", segments=SharedMap(segments), definitions={"text": {}})
    rules = structs.replace(ALL_END, max_batches=None, age_ms=1, max_segments=max_segments)
    planner = RollingPlanner("query", "text", rules, SYSTEM.ids)
    named = []
    for batch in range(1, 3):
        author = StreamAuthor("query", "run", batch, None, None)
        jobs = planner.plan(head, Body(tasks=1), author, 1, ())
        named.append([len(job.inputs) for job in jobs])
        removes = tuple(Remove.of(add) for job in jobs for add in job.inputs)
        head = state_after(head, Record(batch, f"{batch}", author, 0, removes=removes, previous_nonce=head.nonce))
    assert named == found
    assert not head.segments


def test_jobs_of_a_query_that_is_gone() -> None:
    job = Job("job", "age", (segment(0),))
    for version, is_awaited in ((plan.FOREIGN_JOB_RECORDS - 1, True), (plan.FOREIGN_JOB_RECORDS, False)):
        head = LogState(version, queries=SharedMap({"query": QueryState(0, 0, "run", None, 0, None)}))
        assert plan._is_awaited(job, head) is is_awaited  # noqa: SLF001


def test_a_pause_is_seen_again_after_more_records_of_others_than_repeat_jobs(storage: MemoryFileSystem) -> None:
    clock = ManualClock()
    with repeatable(clock), mounted(storage) as url:
        options = {"fileFormat": "text", "inactivityInterval": "1h", "onNewQuery": "continue"}
        one, two = (MicroBatch(url, {"word": "string"}, options, query_id) for query_id in ("one", "two"))
        one.run(0, [[{"word": "a"}]])
        clock.advance(3600)
        one.run(1, [[{"word": "b"}]])
        log = CommitLog(storage)
        for _ in range(plan.FOREIGN_JOB_RECORDS):
            commit(log, MaintenanceAuthor("test", "x"), lambda *_: Body())
        assert [job.reason for job in log.refresh().jobs] == ["inactivity"]
        two.run(0, [[{"word": "z"}]])
        assert not log.refresh().jobs
        for batch, word in enumerate("cde", 2):
            one.run(batch, [[{"word": word}]])
    assert check_directory(storage).visible_rows == Counter([b"a"])


def test_a_name_of_a_flush_that_a_batch_of_more_files_has(storage: MemoryFileSystem) -> None:
    """The flush reports it, and leaves the rows open; the next batch uses other names."""
    with mounted(storage) as url:
        names = {"partFileName": "{name}-{batch}-{index}{ext}", "ifExists": "fail"}
        query = MicroBatch(url, {"word": "string"}, {"fileFormat": "text", "rolling": "policy"} | names)
        query.run(0, [[{"word": "a"}]])
        file = f"part-{0:010d}-{flushing.FIRST_NUMBER + flushing.NUMBERS_PER_VERSION}.txt"
        # As if the batch had had that number: the flush is one version later.
        query.options = {"fileFormat": "text", "partFileName": file, "ifExists": "fail"}
        query.run_batch_write("job", [[{"word": "b"}]])
        query.options = {"fileFormat": "text", "rolling": "policy"} | names
        with pytest.raises(NameCollision, match=file):
            flushing.flush(url, context=current())
        assert check_directory(storage).live_rows == Counter([b"a", b"b"])
        query.run(1, [[]])
        assert flushing.flush(url, context=current()).files == 1
    assert check_directory(storage).visible_rows == Counter([b"a", b"b"])
