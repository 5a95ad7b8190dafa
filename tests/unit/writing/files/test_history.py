"""The entry of a commit in `history()`: its measures, and the user's name for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.log import protocol, publish
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import ManualClock, current, repeatable
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.writing.batch import commit_batch
from ftfile.writing.files.task import FileTaskSteps
from ftfile.writing.stage import StagedFile

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.log.read.history import VersionMetrics

ROWS = [{"id": n} for n in range(3)]
FORMAT = {"fileFormat": "json"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def query(out: str) -> MicroBatch:
    return MicroBatch(out, {"id": "long"}, FORMAT)


def measured(out: str) -> list[VersionMetrics]:
    return [version.metrics for version in ftfile.open(out).history()]


def taking(clock: ManualClock, seconds: float, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let each call of a function take seconds."""
    before = getattr(owner, name)

    def slow(*args: Any, **options: Any) -> Any:
        clock.advance(seconds)
        return before(*args, **options)

    patch.setattr(owner, name, slow)


class TestTimes:
    def test_are_measured_where_they_pass(self, query: MicroBatch, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = ManualClock()
        taking(clock, 1, monkeypatch, StagedFile, "end")
        taking(clock, 2, monkeypatch, FileTaskSteps, "run_jobs")
        taking(clock, 4, monkeypatch, protocol, "_check_publishable")
        taking(clock, 8, monkeypatch, CommitLog, "create")
        taking(clock, 16, monkeypatch, publish, "place")
        with repeatable(clock):
            # A first attempt without due jobs runs none.
            query.commit(0, [query.run_task(query.pickled_plan(), query.identity(0), 0, ROWS, attempt=1)])
            query.run(1, [[]])
        first, second = measured(out)
        assert (first.write_seconds, first.assembly_seconds, first.sync_seconds) == (3, 2, 1)
        assert (first.prepare_seconds, first.create_seconds, first.publish_seconds) == (4, 8, 16)
        assert (second.create_seconds, second.publish_seconds) == (None, None)

    def test_of_tasks_are_those_of_the_slowest(self, query: MicroBatch, out: str) -> None:
        first, second = query.run_tasks(0, [ROWS, ROWS])
        for message, seconds in ((first, 3.0), (second, 2.0)):
            message.metrics.update(writeSeconds=seconds, assemblySeconds=4 - seconds, syncSeconds=seconds / 4)
        query.commit(0, [first, second])
        (found,) = measured(out)
        assert (found.write_seconds, found.assembly_seconds, found.sync_seconds) == (3, 2, 0.75)

    def test_of_a_commit_of_a_process_that_ended_are_not_known(self, query: MicroBatch, out: str) -> None:
        for batch in range(3):
            query.run(batch, [ROWS])
            if batch == 1:
                query.restart()
        assert [found.publish_seconds is None for found in measured(out)] == [False, True, True]


class TestCounters:
    @pytest.mark.slow
    def test_a_process_knows_the_head_after_its_own_commits(self, query: MicroBatch, out: str) -> None:
        for batch in range(4):
            messages, plan = query.run_tasks(batch, [ROWS]), query.plan()
            if batch == 2:
                query.restart()
            commit_batch(plan.sink, plan.config, messages, batch, current())
        assert [found.log_reads for found in measured(out)] == [0, 0, 2, 0]

    @pytest.mark.slow
    def test_replays_and_their_files_are_told_by_the_next_commit(self, query: MicroBatch, out: str) -> None:
        query.run(0, [ROWS])
        late = query.run_tasks(1, [ROWS, ROWS])
        query.run(1, [ROWS, ROWS])
        query.commit(1, late)
        query.commit(1, query.run_tasks(1, [ROWS, ROWS]))
        query.run(2, [ROWS])
        query.run(3, [ROWS])
        assert [found.replays for found in measured(out)] == [0, 0, 2, 0]
        assert [found.orphans for found in measured(out)] == [0, 0, 2, 0]

    def test_the_files_of_a_commit_that_is_repeated_are_no_orphans(self, query: MicroBatch, out: str) -> None:
        messages = query.run_tasks(0, [ROWS])
        query.commit(0, messages)
        query.commit(0, messages)
        query.run(1, [ROWS])
        assert [(found.replays, found.orphans) for found in measured(out)] == [(0, 0), (1, 0)]

    @pytest.mark.slow
    def test_results_of_jobs_that_come_too_late_are_orphans(self, out: str) -> None:
        query = MicroBatch(out, {"id": "long"}, {**FORMAT, "maxBatchesPerFile": "1"})
        query.run(0, [ROWS])
        messages = query.run_tasks(1, [ROWS])
        ftfile.flush(out)
        query.commit(1, messages)
        query.run(2, [ROWS])
        assert [found.orphans for found in measured(out)] == [0, 0, 0, 1]

    @pytest.mark.slow
    def test_recoveries_are_versions_that_others_left_unpublished(
        self, query: MicroBatch, out: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        query.run(0, [ROWS])
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "roll_forward", lambda *_, **__: [])
            query.run(1, [ROWS])
            query.run(2, [ROWS])
        query.restart()
        query.run(3, [ROWS])
        query.run(4, [ROWS])
        assert [found.recoveries for found in measured(out)] == [0, 0, 0, 2, 0]

    def test_retries_of_tasks(self, query: MicroBatch, out: str) -> None:
        planned, writer = query.pickled_plan(), query.identity(0)
        messages = [query.run_task(planned, writer, partition, ROWS, attempt=2 * partition) for partition in range(2)]
        query.commit(0, messages)
        assert [found.task_retries for found in measured(out)] == [2]

    def test_files_by_reason(self, out: str) -> None:
        query = MicroBatch(out, {"id": "long"}, {**FORMAT, "maxBatchesPerFile": "1"})
        query.run(0, [ROWS])
        query.run(1, [ROWS])
        ftfile.flush(out)
        assert [found.files_by_reason for found in measured(out)] == [{}, {"batches": 1}, {"flush": 1}]

    @pytest.mark.slow
    def test_runs_merged(self, out: str) -> None:
        query = StoreBatch(out, {"id": "long"}, {"keyColumns": "id", "buckets": "1", "flushIntervalCount": "2"})
        for batch in range(4):
            query.run(batch, [ROWS])
        found = [version.metrics.runs_merged for version in ftfile.kv.open(out).history()]
        assert found == [0, 0, 2, 0]


class TestUserMetadata:
    def test_of_streams_and_batch_writes(self, out: str) -> None:
        query = MicroBatch(out, {"id": "long"}, FORMAT | {"userMetadata": "from the läst run"})
        query.run(0, [ROWS])
        query.options = FORMAT
        query.run(1, [ROWS])
        query.options = {**FORMAT, "userMetadata": "a repair", "txnAppId": "mending", "txnVersion": "7"}
        query.run_batch_write("a" * 32, [ROWS])
        found = [(each.user_metadata, each.txn_app_id, each.txn_version) for each in ftfile.open(out).history()]
        assert found == [("from the läst run", None, None), (None, None, None), ("a repair", "mending", 7)]

    def test_of_stores(self, out: str) -> None:
        StoreBatch(out, {"id": "long"}, {"keyColumns": "id", "userMetadata": "x"}).run(0, [ROWS])
        assert ftfile.kv.open(out).history()[0].user_metadata == "x"

    def test_a_text_that_every_record_would_repeat_is_bounded(self, query: MicroBatch, out: str) -> None:
        longest = "ä" * (32 << 10)
        query.options = FORMAT | {"userMetadata": longest}
        query.run(0, [ROWS])
        assert ftfile.open(out).history()[0].user_metadata == longest
        query.options = FORMAT | {"userMetadata": longest + "x"}
        with pytest.raises(ConfigError, match=r"userMetadata.*at most 64 KiB"):
            query.run(1, [ROWS])
