"""Batch writes with an identity of the user's own: written once, however often they are repeated."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, InvalidMessages, NotPublished, ReplayMismatch, Unavailable
from ftfile.log import checkpoints
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.log.read.compacted_writer import write_due_compacted
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_writer import FileSink, forget_caches
from ftfile.writing.messages import OperationIdentity
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.log.protocol import Committed

ROWS: list[dict[str, Any]] = [{"id": 1}, {"id": 2}]


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def job(out: str, version: int | str, app: str = "app", **more: Any) -> MicroBatch:
    options = {"fileFormat": "json", "txnAppId": app, "txnVersion": str(version)}
    return MicroBatch(out, {"id": "long"}, options, **more)


def write(out: str, version: int, rows: list[dict[str, Any]] = ROWS, app: str = "app") -> Committed:
    return job(out, version, app).run_batch_write(current().ids.unique(), [rows, []])


def ids(out: str) -> list[int]:
    found = check_directory(open_filesystem(out))
    rows: list[int] = sorted(ftfile.open(out).to_arrow()["id"].to_pylist())
    assert sum(found.visible_rows.values()) == len(rows)
    return rows


class TestOnce:
    def test_a_repeated_write_is_found(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        assert not write(out, 0).replayed
        assert write(out, 0).replayed
        assert ids(out) == [1, 2]
        assert "WARNING" not in caplog.text

    @pytest.mark.slow
    def test_any_version_up_to_the_last_counts_as_found(self, out: str) -> None:
        assert [write(out, version).replayed for version in (3, 5, 3, 5, 9)] == [False, False, True, True, False]
        assert ids(out) == [1, 1, 1, 2, 2, 2]

    def test_equal_rows_in_other_partitions_are_the_same_write(self, out: str) -> None:
        for version in (0, 1):
            write(out, version)
        for version in (0, 1):
            partitions = [[ROWS[1]], [], [ROWS[0]]]
            assert job(out, version).run_batch_write(current().ids.unique(), partitions).replayed

    @parametrize("version", [0, 2, 3, 5], quick=1)
    def test_other_rows_are_refused(self, out: str, version: int) -> None:
        """As after the checkpoint of the stream was deleted, and its batches are counted from 0 again."""
        for each in (0, 2, 5):
            write(out, each, [{"id": each}])
        forget_caches()
        with pytest.raises(ReplayMismatch, match=rf"write {version} of .*last write 5.*checkpoint"):
            write(out, version, [{"id": 8}])
        assert ids(out) == [0, 2, 5]

    def test_other_rows_may_be_dropped(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        write(out, 0)
        batch = job(out, 0)
        batch.options = {**batch.options, "onReplayMismatch": "keep"}
        assert batch.run_batch_write("again", [[{"id": 8}]]).replayed
        assert ids(out) == [1, 2]
        assert "the new rows are dropped (onReplayMismatch=keep)" in caplog.text

    def test_rows_that_only_sum_up_alike_are_refused(self, out: str) -> None:
        def text(*words: str) -> Committed:
            batch = MicroBatch(out, {"order": "string"}, job(out, 0).options)
            return batch.run_batch_write(current().ids.unique(), [[{"order": word} for word in words]])

        text("order-0021", "order-0005")
        with pytest.raises(ReplayMismatch):
            text("order-0012", "order-0500")

    def test_an_overwrite_with_other_rows_is_refused(self, out: str) -> None:
        job(out, 0, overwrite=True).run_batch_write("first", [ROWS])
        with pytest.raises(ReplayMismatch):
            job(out, 0, overwrite=True).run_batch_write("second", [ROWS[:1]])
        assert ids(out) == [1, 2]

    @pytest.mark.slow
    def test_a_version_whose_record_is_not_kept_is_refused(self, out: str) -> None:
        for version in range(3):
            write(out, version)
        log = CommitLog(open_filesystem(out))
        write_checkpoint(log.fs, current().ids, log.refresh())
        write_due_compacted(log, log.refresh())
        commit(log, MaintenanceAuthor("vacuum", "v"), lambda *_: Body(log_start=2))
        log.fs.delete(layout.record_path(1))
        forget_caches()
        assert write(out, 2).replayed
        with pytest.raises(ReplayMismatch, match="no longer contains its record"):
            write(out, 1)

    def test_applications_do_not_know_each_other(self, out: str) -> None:
        assert [write(out, 0, app=app).replayed for app in "aba"] == [False, False, True]

    def test_streams_and_other_writes_stand_beside_them(self, out: str) -> None:
        write(out, 7)
        stream = MicroBatch(out, {"id": "long"}, {"fileFormat": "json"})
        stream.run(0, [ROWS])
        stream.run_batch_write("plain", [ROWS])
        assert write(out, 7).replayed
        assert ids(out) == [1, 1, 1, 2, 2, 2]

    def test_the_last_version_is_in_the_checkpoints(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 0)
        write(out, 3)
        forget_caches()
        assert write(out, 3).replayed

    def test_an_overwrite_that_is_repeated_replaces_nothing(self, out: str) -> None:
        overwrite = job(out, 0, overwrite=True)
        overwrite.run_batch_write("first", [ROWS])
        write(out, 1, [{"id": 3}])
        assert overwrite.run_batch_write("second", [ROWS]).replayed
        assert ids(out) == [1, 2, 3]

    def test_a_writer_left_behind_commits_nothing(self, out: str) -> None:
        """Both wrote their files before either committed."""
        (first,), (second,) = (self.written(out, name) for name in ("first", "second"))
        committer = plan_write(FileSink(), job(out, 0).config(), current())
        assert not commit_batch(committer.sink, committer.config, [first], None, current()).replayed
        assert commit_batch(committer.sink, committer.config, [second], None, current()).replayed
        assert ids(out) == [1, 2]

    def written(self, out: str, name: str) -> list[Any]:
        batch = job(out, 0)
        return [batch.run_task(batch.pickled_plan(), OperationIdentity(name), 0, ROWS)]

    def test_after_a_failure_to_publish_it_may_simply_be_repeated(self) -> None:
        inner = CrashingFileSystem()
        stuck = Fault(Unavailable, operations=frozenset({"rename"}), times=10**9)
        with repeatable(), mounted(FaultyFileSystem(inner, [stuck])) as out, pytest.raises(NotPublished):
            write(out, 0)
        with repeatable(), mounted(inner) as out:
            assert write(out, 0).replayed
            assert ids(out) == [1, 2]

    def test_publishing_is_tried_for_a_while_as_for_a_stream(self) -> None:
        passing = Fault(Unavailable, operations=frozenset({"rename"}), times=6)
        with repeatable(), mounted(FaultyFileSystem(CrashingFileSystem(), [passing])) as out:
            write(out, 0)
            assert ids(out) == [1, 2]


class TestTasks:
    def test_a_task_that_finds_it_writes_nothing(self, out: str) -> None:
        write(out, 0)
        again = job(out, 0)
        message = again.run_task(again.pickled_plan(), OperationIdentity("again"), 0, ROWS)
        assert message.found_committed
        assert message.parts == ()

    def test_a_task_looks_further_than_the_driver_did(self, out: str) -> None:
        late = job(out, 0)
        planned = late.pickled_plan()
        write(out, 0)
        assert late.run_task(planned, OperationIdentity("late"), 0, ROWS, attempt=1).found_committed
        first = late.run_task(planned, OperationIdentity("late"), 0, ROWS)
        assert not first.found_committed
        assert commit_batch(late.sink, late.config(), [first], None, current()).replayed
        assert ids(out) == [1, 2]

    def test_a_plain_write_never_looks_like_another(self, out: str) -> None:
        plain = MicroBatch(out, {"id": "long"}, {"fileFormat": "json"})
        for _ in range(2):
            assert not plain.run_batch_write("job", [ROWS]).replayed

    @pytest.mark.slow
    def test_the_writer_knows_of_its_own_application_alone(self, out: str) -> None:
        for number in range(20):
            write(out, number, app=f"app-{number}")
        assert pickle.loads(job(out, 4, app="app-4").pickled_plan()).view.transactions == {"app-4": 4}

    def test_a_message_that_found_what_is_not_there_is_an_error(self, out: str, tmp_path: Path) -> None:
        write(out, 0)
        again = job(out, 0)
        found = again.run_task(again.pickled_plan(), OperationIdentity("again"), 0, ROWS)
        with pytest.raises(InvalidMessages, match="no record"):
            commit_batch(FileSink(), job(str(tmp_path / "empty"), 0).config(), [found], None, current())


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"txnAppId": "a"}, "txnAppId without txnVersion"),
            ({"txnVersion": "1"}, "txnVersion without txnAppId"),
            ({"txnAppId": "", "txnVersion": "1"}, "txnAppId='': it must be a name"),
            ({"txnAppId": "a", "txnVersion": "-1"}, "a whole number of 0 or more"),
            ({"txnAppId": "a", "txnVersion": "one"}, "a whole number of 0 or more"),
        ],
    )
    def test_mistakes(self, out: str, options: dict[str, str], text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            MicroBatch(out, {"id": "long"}, options).pickled_plan()
