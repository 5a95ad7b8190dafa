"""`onPublish` is called for every file at least once, after any crash, and for records of any age."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, NotPublished, PermissionDenied, UserCodeError
from ftfile.log.checkpoints import list_checkpoints
from ftfile.log.format import layout
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.log.read.snapshot import added_by
from ftfile.operate.compact import compact_log
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.batch import abort_batch, commit_batch, plan_write
from ftfile.writing.files import publishing as hooks
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.messages import OperationIdentity
from tests.kit.parameters import parametrize
from tests.unit.writing.files import user_code

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = {"id": "long", "word": "string"}
HOOK = {"fileFormat": "json", "onPublish": "tests.unit.writing.files.user_code:hear"}
OPEN = HOOK | {"rolling": "policy", "maxBatchesPerFile": "100"}
CODE = tuple(f"tests.unit.writing.files.user_code:{name}" for name in ("hear", "hear_and_fail"))


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[Any]]:
    user_code.HEARD.clear()
    yield user_code.HEARD
    user_code.HEARD.clear()


def rows(*words: str) -> list[dict[str, Any]]:
    return [{"id": number, "word": word} for number, word in enumerate(words)]


def assert_all_told(out: str, heard: list[Any]) -> None:
    assert {part.path for part in heard} == {file.path for file in ftfile.open(out).files()}


def die_before_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ftfile.writing.files.publishing.call_on_publish", die)


def refuse(*_: object, **__: object) -> list[Any]:
    raise PermissionDenied("rename", "x", "no")


class TestBatches:
    @pytest.mark.slow
    def test_that_write_a_checkpoint(self, out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ftfile.log.checkpoints.CHECKPOINT_MIN_BYTES", 0)
        query = MicroBatch(out, COLUMNS, HOOK)
        for batch in range(20):
            query.run(batch, [rows("a")])
        assert [part.batch_id for part in heard] == list(range(20))
        assert list_checkpoints(open_filesystem(out))

    @pytest.mark.slow
    def test_with_a_record_of_more_than_1_mib(self, out: str, heard: list[Any]) -> None:
        query = MicroBatch(out, COLUMNS, HOOK | {"partitionBy": "word"})
        query.run(0, [rows(*map(str, range(3000)))])
        assert list_checkpoints(open_filesystem(out))
        assert len(heard) == 3000

    @parametrize("others", [0, 3], quick=1)
    def test_that_died_and_lie_behind_a_checkpoint(
        self, out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch, others: int
    ) -> None:
        monkeypatch.setattr("ftfile.log.checkpoints.CHECKPOINT_MIN_BYTES", 0)
        query = MicroBatch(out, COLUMNS, HOOK)
        query.run(0, [rows("a")])
        with monkeypatch.context() as patched:
            die_before_the_hook(patched)
            with pytest.raises(KeyboardInterrupt):
                query.run(1, [rows("b"), rows("c")])
        other = MicroBatch(out, COLUMNS, {"fileFormat": "json", "onNewQuery": "continue"}, query_id="another")
        for batch in range(others):
            other.run(batch, [[]])
        query.restart()
        assert query.run(1, [rows("b"), rows("c")]).replayed
        assert [part.batch_id for part in heard] == [0, 1, 1]
        assert_all_told(out, heard)

    def test_that_another_query_published(self, out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        query = MicroBatch(out, COLUMNS, HOOK)

        def die(*_: object, created: int | None = None, **__: object) -> list[Any]:
            if created is not None:
                raise KeyboardInterrupt
            return []

        with monkeypatch.context() as patched:
            patched.setattr("ftfile.log.protocol.roll_forward", die)
            with pytest.raises(KeyboardInterrupt):
                query.run(0, [rows("a")])
        assert not [*Path(out).glob("part*")]
        replace(query, query_id="another", options={"fileFormat": "json", "onNewQuery": "continue"}).run(0, [[]])
        assert len([*Path(out).glob("part*")]) == 1
        assert heard == []
        query.restart()
        query.run(0, [rows("a")])
        assert_all_told(out, heard)

    @pytest.mark.slow
    def test_whose_record_was_vacuumed(self, out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ftfile.log.checkpoints.CHECKPOINT_MIN_BYTES", 0)
        query = MicroBatch(out, COLUMNS, HOOK | {"partitionBy": "word"})
        query.run(0, [rows("a")])
        with monkeypatch.context() as patched:
            die_before_the_hook(patched)
            with pytest.raises(KeyboardInterrupt):
                query.run(1, [rows("b", "c", "d")])
        other = MicroBatch(
            out, COLUMNS, {"fileFormat": "json", "onNewQuery": "continue", "partitionBy": "word"}, query_id="another"
        )
        for batch in range(4):
            other.run(batch, [rows("b")])
        ftfile.drop(out, {"word": "d"})
        compact_log(out)
        log = query.config().log(current())
        commit(log, MaintenanceAuthor("vacuum", "v"), lambda *_: Body(horizon_ms=1, log_start=4))
        for version in range(4):
            log.fs.delete(layout.record_path(version))
        query.restart()
        query.run(1, [rows("b", "c", "d")])
        assert [(part.directory, part.version) for part in heard] == [("word=a", 0), ("word=b", 1), ("word=c", 1)]
        check_directory(open_filesystem(out))

    def test_whose_record_is_lost_say_so(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, HOOK)
        for batch in range(2):
            query.run(batch, [rows("a")])
        log = query.config().log(current())
        log.refresh()
        Path(out, "_ftfile/log", f"_{0:020d}.record").unlink()
        with pytest.raises(CorruptData, match="neither"):
            added_by(log, 0)

    def test_before_the_last_are_not_told_again(self, out: str, heard: list[Any]) -> None:
        query = MicroBatch(out, COLUMNS, HOOK)
        for batch in range(3):
            query.run(batch, [rows("a")])
        assert query.run(1, [rows("a")]).replayed
        assert len(heard) == 3

    def test_that_are_written_by_jobs(self, out: str, heard: list[Any]) -> None:
        query = MicroBatch(out, COLUMNS, HOOK)
        for job in range(2):
            query.run_batch_write(f"job-{job}", [rows("a")])
        assert [part.query_id for part in heard] == ["job-0", "job-1"]


class TestFlushes:
    def open_files(self, out: str) -> MicroBatch:
        query = MicroBatch(out, COLUMNS, OPEN)
        query.run(0, [rows("a")])
        return query

    def test_tell_once_and_leave_nothing_to_tell(self, out: str, heard: list[Any]) -> None:
        query = self.open_files(out)
        ftfile.flush(out, code=CODE)
        assert len(heard) == 1
        query.run(1, [rows("b")])
        ftfile.flush(out, code=CODE)
        ftfile.flush(out, code=CODE)
        assert len(heard) == 2
        assert_all_told(out, heard)
        assert not hooks.queries_with_unreported(query.config().log(current()).refresh())

    @pytest.mark.parametrize("later", ["flush", "batch"])
    def test_that_died_are_told_of_by_a_later_one(
        self, out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch, later: str
    ) -> None:
        query = self.open_files(out)
        with monkeypatch.context() as patched:
            die_before_the_hook(patched)
            with pytest.raises(KeyboardInterrupt):
                ftfile.flush(out, code=CODE)
        assert len(ftfile.open(out).files()) == 1
        assert heard == []
        query.restart()
        if later == "flush":
            ftfile.flush(out, code=CODE)
        else:
            query.run(1, [[]])
        assert_all_told(out, heard)
        query.run(2 if later == "batch" else 1, [[]])
        assert len(heard) == 1

    def test_of_what_an_earlier_configuration_left_open_are_the_query_s_own(self, out: str, heard: list[Any]) -> None:
        query = MicroBatch(out, COLUMNS, OPEN)
        query.run(0, [rows("a")])
        query.options = HOOK | {"partPrefix": "mine"}
        query.run(1, [rows("b")])
        assert ftfile.flush(out, code=CODE).files == 1
        assert_all_told(out, heard)
        assert all(part.path.startswith("mine-") for part in heard)

    def test_whose_function_fails_are_told_of_again(self, out: str, heard: list[Any]) -> None:
        query = MicroBatch(out, COLUMNS, OPEN | {"onPublish": "tests.unit.writing.files.user_code:hear_and_fail"})
        query.run(0, [rows("a")])
        with pytest.raises(UserCodeError, match="hear_and_fail' raised"):
            ftfile.flush(out, code=CODE)
        heard.clear()
        query.options = OPEN
        query.run(1, [[]])
        assert len(heard) == 1

    def test_import_no_function_that_the_caller_does_not_name(self, out: str, heard: list[Any]) -> None:
        self.open_files(out)
        for code in ((), ["os:system"]):
            for dry_run in (True, False):
                with pytest.raises(ConfigError, match=r"onPublish='.*user_code:hear'.*flush with code=\['.*:hear'\]"):
                    ftfile.flush(out, code=code, dry_run=dry_run)
        assert (ftfile.open(out).files(), heard) == ([], [])
        assert ftfile.flush(out, code=CODE).files == len(heard) == 1

    def test_of_another_query_are_its_own_business(
        self, out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        query = self.open_files(out)
        with monkeypatch.context() as patched:
            die_before_the_hook(patched)
            with pytest.raises(KeyboardInterrupt):
                ftfile.flush(out, code=CODE)
        replace(query, query_id="another", options=HOOK | {"onNewQuery": "continue"}).run(0, [[]])
        ftfile.flush(out, query_id="another", code=CODE)
        assert heard == []
        ftfile.flush(out, code=CODE)
        assert len(heard) == 1

    def test_that_are_not_published_yet_are_told_of_when_they_are(
        self, out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        query = self.open_files(out)
        with monkeypatch.context() as patched:
            patched.setattr("ftfile.log.publish.place", refuse)
            with pytest.raises(NotPublished):
                ftfile.flush(out, code=CODE)
            query.run(1, [[]])
            assert heard == []
        query.run(2, [[]])
        assert_all_told(out, heard)


class TestAbort:
    def test_of_a_batch_that_is_committed(
        self, out: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
        query.run(0, [rows("a")])
        with monkeypatch.context() as patched:
            patched.setattr("ftfile.log.publish.place", refuse)
            with pytest.raises(NotPublished):
                query.run(1, [rows("b")])
            assert "batch 1 is committed as version 1; the next commit continues to publish it" in caplog.text
            assert "until vacuum deletes them" not in caplog.text
        query.run(1, [rows("b")])
        assert ftfile.open(out).to_arrow().num_rows == 2

    def test_of_a_job_that_is_committed(
        self, out: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
        messages = [query.run_task(query.pickled_plan(), OperationIdentity("job"), 0, rows("a"))]
        plan = plan_write(FileSink(), query.config(), current())
        monkeypatch.setattr("ftfile.log.publish.place", refuse)
        with pytest.raises(NotPublished):
            commit_batch(plan.sink, plan.config, messages, None, current())
        abort_batch(plan.config, messages, None, current())
        assert "operation job is committed as version 0; the next commit continues to publish it" in caplog.text

    def test_of_a_batch_before_the_last(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
        for batch in range(3):
            query.run(batch, [rows("a")])
        query.abort(1, query.run_tasks(1, [rows("a")]))
        assert "batch 1 is committed as version 1; the next commit" in caplog.text

    def test_of_what_is_not_committed(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
        query.run(0, [rows("a")])
        query.abort(1, query.run_tasks(1, [rows("b"), rows("c")]))
        assert "Spark aborts batch 1. It is not committed; 2 staged files stay until vacuum deletes them" in caplog.text
        messages = [query.run_task(query.pickled_plan(), OperationIdentity("job"), 0, rows("a"))]
        abort_batch(query.config(), messages, None, current())
        assert "Spark aborts operation job. It is in none of the last 16 versions; 1 staged files stay" in caplog.text
        query.abort(1, [None])
        assert "the staged files of its tasks stay until vacuum deletes them" in caplog.text
        assert "committed as version 1" not in caplog.text

    def test_of_a_directory_that_cannot_be_read(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
        query.run(0, [rows("a")])
        messages = query.run_tasks(1, [rows("b")])
        plan = plan_write(FileSink(), query.config(), current())
        Path(out, "_ftfile/log", f"_{0:020d}.record").write_text("damaged")
        abort_batch(plan.config, messages, 1, current())
        assert "It is unknown whether it is committed: " in caplog.text
