"""Hiding removed parts: only recorded parts are moved or deleted, and missing files do not block it."""

from __future__ import annotations

import contextlib
import logging
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import MissingPart, NameCollision, NotFound, NotPublished, PermissionDenied
from ftfile.log import checkpoints, places
from ftfile.log import publish as keeping
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, MaintenanceAuthor, Remove
from ftfile.log.places import is_recorded
from ftfile.log.protocol import catch_up
from ftfile.log.publish import still_live
from ftfile.log.records import read_published
from ftfile.log.state import SharedMap
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import WrapperFile, WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Call, Fault, FaultyFileSystem
from tests.unit.log.conftest import Driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ftfile.log.format.model import Add
    from ftfile.storage.api import Capabilities, FileSystem, InputFile
    from ftfile.testing.fs.volume import Storage

FOR_EVER = 10**9
_Result = TypeVar("_Result")


def lose_hint(driver: Driver) -> None:
    """Let the next commit check every record again."""
    with contextlib.suppress(NotFound):
        driver.fs.delete(layout.PUBLISHED_HINT)
    driver.restart()


def is_published(driver: Driver) -> bool:
    """Return True if the hint names the head of the log."""
    hint, head = read_published(driver.fs), driver.log.refresh()
    return hint is not None and (hint.version, hint.nonce) == (head.version, head.nonce)


class TestGoneDirectories:
    def test_of_removed_parts(self, driver: Driver, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A user ran `rm -r month=7` before the overwrite in ftfile."""
        gone = [driver.stage(0, name=f"month=7/{number}") for number in range(2)]
        kept = driver.stage(0, name="month=8/part")
        driver.commit(0, *gone, kept)
        shutil.rmtree(tmp_path / "out/month=7")
        new = driver.stage(1, name="month=8/new")
        driver.commit(1, new, overwrite=True)
        assert is_published(driver)
        assert "2 of 3 removed parts did not exist any more" in caplog.text
        assert "month=7/0" in caplog.text
        assert not driver.fs.exists("month=7")
        assert [info.path for info in driver.fs.list("month=8")] == ["month=8/new"]
        caplog.clear()
        lose_hint(driver)
        driver.commit_new(2)
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    def test_that_are_files_now(self, driver: Driver, tmp_path: Path) -> None:
        driver.commit(0, driver.stage(0, name="month=7/part"))
        shutil.rmtree(tmp_path / "out/month=7")
        driver.fs.create_exclusive("month=7", b"mine")
        driver.commit(1, overwrite=True)
        assert is_published(driver)
        assert driver.text("month=7") == b"mine"

    def test_of_published_parts_are_not_made_again(self, driver: Driver, tmp_path: Path) -> None:
        driver.commit(0, driver.stage(0, name="month=7/part"))
        shutil.rmtree(tmp_path / "out/month=7")
        lose_hint(driver)
        driver.commit_new(1)
        assert not driver.fs.exists("month=7")

    @pytest.mark.parametrize("storage", ["local", "disk", "hdfs", "webhdfs"])
    def test_of_what_is_hidden(self, tmp_path: Path, storage: Storage | Literal["local"]) -> None:
        """A tool that copies directories may leave empty ones out."""
        fs: FileSystem = (
            LocalFileSystem(str(tmp_path), SYSTEM) if storage == "local" else CrashingFileSystem(storage=storage)
        )
        driver = Driver(fs)
        old = driver.commit_new(0)
        assert fs.remove_directory(layout.RETIRED)
        new = driver.stage(1)
        driver.commit(1, new, overwrite=True)
        assert driver.visible() == {new.final_path}
        assert fs.exists(layout.retired_path(old.id))
        check_directory(fs)

    def test_the_name_of_one_that_is_made_again_is_durable(self, driver: Driver) -> None:
        driver.commit_new(0)
        driver.fs.remove_directory(layout.RETIRED)
        watched = FaultyFileSystem(driver.fs)
        driver.commit(1, overwrite=True, log=CommitLog(watched))
        synced = [call.path for call in watched.calls if call.operation == "sync_directory"]
        assert synced[synced.index(layout.RETIRED) - 1] == layout.META

    @pytest.mark.parametrize("lost", [layout.HINTS, layout.CHECKPOINTS, layout.COMPACTED, layout.STAGED])
    def test_of_what_is_derived(
        self, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
    ) -> None:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 0)
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 1)
        driver.commit_new(0)
        shutil.rmtree(tmp_path / "out" / lost)
        driver.log.refresh()  # it knows that all directories are there
        driver.commit_new(1)
        assert lost == layout.STAGED or driver.fs.list(lost)
        check_directory(driver.fs)


class TestForeignFiles:
    """Somebody's own file lies at the name of a removed part."""

    @pytest.fixture
    def old(self, driver: Driver) -> Add:
        return driver.commit_new(0)

    def put(self, driver: Driver, old: Add, content: bytes) -> str:
        assert old.final_path is not None
        if driver.fs.exists(old.final_path):
            driver.fs.delete(old.final_path)
        driver.fs.create_exclusive(old.final_path, content)
        return old.final_path

    def test_before_the_removal(self, driver: Driver, old: Add, caplog: pytest.LogCaptureFixture) -> None:
        path = self.put(driver, old, b"somebody's\n")
        driver.commit(1, overwrite=True)
        assert driver.text(path) == b"somebody's\n"
        assert "1 of 1 removed parts were replaced by other files" in caplog.text
        assert is_published(driver)
        caplog.clear()
        driver.commit_new(2)
        assert "other files" not in caplog.text

    def test_a_directory(self, driver: Driver, old: Add) -> None:
        driver.fs.delete(old.final_path or "")
        driver.fs.make_directories(f"{old.final_path}/below")
        driver.commit(1, overwrite=True)
        assert driver.fs.exists(f"{old.final_path}/below")
        assert is_published(driver)

    @pytest.mark.parametrize("content", [b"owr\n", b"somebody's\n"])
    @pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "vacuumed"])
    def test_after_the_removal(self, driver: Driver, old: Add, content: bytes, *, hidden: bool) -> None:
        driver.commit(1, overwrite=True)
        if not hidden:
            driver.fs.delete(layout.retired_path(old.id))
        path = self.put(driver, old, content)
        lose_hint(driver)
        driver.commit_new(2)
        assert driver.text(path) == content
        assert driver.fs.exists(layout.retired_path(old.id)) is hidden

    def test_of_the_same_length_where_the_part_is_hidden_already(self, driver: Driver, old: Add) -> None:
        """Another committer was faster, and then somebody wrote the file."""
        driver.fs.rename(old.final_path or "", layout.retired_path(old.id))
        path = self.put(driver, old, b"owr\n")
        driver.commit(1, overwrite=True)
        assert driver.text(path) == b"owr\n"

    def test_at_the_name_of_a_part_that_was_removed_before_it_was_published(self, driver: Driver) -> None:
        add = driver.stage(0)
        path = self.put(driver, add, b"somebody's\n")
        driver.create_record(author=driver.author(0), adds=(add,), lineage_start=0)
        driver.create_record(author=MaintenanceAuthor("drop", "d"), removes=(Remove.of(add),))
        driver.commit_new(1)
        assert is_published(driver)
        assert driver.text(path) == b"somebody's\n"

    def test_at_the_name_of_a_live_part_long_after(self, driver: Driver) -> None:
        """The state has forgotten whether the part was removed; the ranges and records have not."""
        add = driver.stage(0)
        path = self.put(driver, add, b"somebody's\n")
        driver.create_record(author=driver.author(0), adds=(add,), lineage_start=0)
        state = replace(driver.log.refresh(), removed=SharedMap(), removed_since=2)
        checkpoints.write_checkpoint(driver.fs, SYSTEM.ids, state)
        driver.restart()
        with pytest.raises(NameCollision):
            driver.commit_new(1)
        driver.fs.delete(path)
        driver.commit_new(1)
        assert driver.text(path) == b"row\n"

    def test_at_the_name_of_dead_letters(self, driver: Driver) -> None:
        letter = driver.stage(0, name=layout.dead_letter_path("query-1", 0, 0, "{id}"))
        driver.fs.make_directories(layout.parent(letter.final_path or ""))
        path = self.put(driver, letter, b"somebody's\n")
        with pytest.raises(NameCollision):
            driver.commit(0, dead_letters=(letter,))
        driver.fs.delete(path)
        driver.commit_new(1)
        assert driver.text(path) == b"row\n"

    def test_a_part_that_was_not_hidden_is_hidden_by_who_comes_next(self, driver: Driver, old: Add) -> None:
        driver.create_record(author=MaintenanceAuthor("drop", "d"), removes=(Remove.of(old),))
        driver.commit_new(1)
        assert not driver.fs.exists(old.final_path or "")
        assert driver.text(layout.retired_path(old.id)) == b"row\n"

    @pytest.mark.parametrize("piece_bytes", [5, places.PIECE_BYTES])
    def test_content_is_compared_piece_by_piece(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
    ) -> None:
        monkeypatch.setattr(places, "PIECE_BYTES", piece_bytes)
        content = bytes(2 * piece_bytes + 1)
        add = driver.stage(0, content + b"b")
        assert is_recorded(driver.fs, driver.fs.stat(add.path), add)
        other = driver.stage(0, content + b"B")
        assert not is_recorded(driver.fs, driver.fs.stat(other.path), add)
        assert not is_recorded(driver.fs, driver.fs.stat(add.path)._replace(path="gone"), add)


class StandsStill(WrapperFileSystem):
    """The storage of a process that stands still while others act: after an operation on a path, by its beginning."""

    def __init__(self, inner: FileSystem, operation: str, path: str, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._operation, self._path = operation, path
        self._act: Callable[[], object] | None = act

    def around(self, operation: str, path: str, call: Callable[[], _Result]) -> _Result:
        result = call()
        act = self._act
        if act is not None and operation == self._operation and path.startswith(self._path):
            self._act = None
            act()
        return result

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)


class TestLatePublisher:
    """Others have published its record, a vacuum has released the name, and a newer part has it."""

    @pytest.mark.parametrize("is_hidden", [False, True], ids=["deleted", "hidden"])
    @pytest.mark.parametrize("content", [b"row\n", b"new\n"])
    @pytest.mark.parametrize(
        ("operation", "path"),
        [("create_exclusive", layout.record_path(1)), ("stat", "same"), ("open", "same"), ("read_at", "same")],
    )
    def test_keeps_the_newer_part(
        self,
        driver: Driver,
        monkeypatch: pytest.MonkeyPatch,
        content: bytes,
        operation: str,
        path: str,
        *,
        is_hidden: bool,
    ) -> None:
        """The vacuum deletes the hidden file after it has released the name."""
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 1)
        old = driver.stage(0, name="same")
        driver.commit(0, old)

        def others() -> None:
            other = Driver(driver.fs)
            other.commit(1, other.stage(1))
            other.create_record(author=MaintenanceAuthor("vacuum", "v"), log_start=2, vacuumed_to=2, published=2)
            if not is_hidden:
                driver.fs.delete(layout.retired_path(old.id))
            other.commit(2, other.stage(2, content, name="same"))

        log = CommitLog(StandsStill(driver.fs, operation, path, others))
        driver.commit_as(MaintenanceAuthor("drop", "d"), overwrite=True, log=log)
        assert CommitLog(driver.fs).refresh().version == 4
        assert driver.text("same") == content
        assert driver.fs.exists(layout.retired_path(old.id)) == is_hidden

    def test_names_a_foreign_file_of_the_same_length(self, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
        old = driver.stage(0, name="same")
        driver.commit(0, old)
        driver.fs.delete("same")
        driver.fs.create_exclusive("same", b"owr\n")
        driver.commit(1, overwrite=True)
        assert driver.text("same") == b"owr\n"
        assert "1 of 1 removed parts were replaced by other files" in caplog.text


class TestManyParts:
    @pytest.mark.slow
    def test_more_than_there_are_threads(self, driver: Driver) -> None:
        class Wide(WrapperFileSystem):
            @property
            def capabilities(self) -> Capabilities:
                return replace(super().capabilities, concurrency=64)

        fs = Wide(driver.fs)
        old = [driver.stage(0) for _ in range(100)]
        driver.commit(0, *old, log=CommitLog(fs))
        new = [driver.stage(1) for _ in range(100)]
        driver.commit(1, *new, overwrite=True, log=CommitLog(fs))
        assert driver.visible() == {add.final_path for add in new}
        assert len(driver.fs.list(layout.RETIRED)) == 100

    def test_a_warning_names_the_first_of_many(self, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
        old = [driver.stage(0) for _ in range(7)]
        driver.commit(0, *old)
        for add in old:
            driver.fs.delete(add.final_path or "")
        driver.commit(1, overwrite=True)
        assert "7 of 7 removed parts did not exist any more" in caplog.text
        assert caplog.text.count("part-0-") == 5
        assert is_published(driver)


class TestMissingParts:
    def test_deleted_dead_letters_are_no_missing_part(self, driver: Driver) -> None:
        driver.with_policy(on_missing_part="fail")
        letter = driver.stage(0, name=layout.dead_letter_path("query-1", 0, 0, "{id}"))
        driver.commit(0, dead_letters=(letter,))
        driver.fs.delete(letter.final_path or "")
        lose_hint(driver)
        driver.commit_new(1)
        assert is_published(driver)

    def test_deleted_rows_beside_them_are(self, driver: Driver) -> None:
        driver.with_policy(on_missing_part="fail")
        letter = driver.stage(0, name=layout.dead_letter_path("query-1", 0, 0, "{id}"))
        add = driver.stage(0)
        driver.commit(0, add, dead_letters=(letter,))
        for path in (letter.final_path, add.final_path):
            driver.fs.delete(path or "")
        lose_hint(driver)
        with pytest.raises(MissingPart, match="1 committed part"):
            driver.commit_new(1)

    def test_one_that_only_warns_is_told_of_once(self, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
        add = driver.commit_new(0)
        driver.fs.delete(add.final_path or "")
        lose_hint(driver)
        driver.commit_new(1)
        assert caplog.text.count("moved or deleted") == 1
        assert is_published(driver)
        assert driver.log.refresh().unpublished == {}


class TestDurability:
    """A process that acts on another's record makes it durable first."""

    @pytest.fixture
    def watched(self, driver: Driver) -> FaultyFileSystem:
        return FaultyFileSystem(driver.fs)

    def test_before_publishing_without_a_commit(self, driver: Driver, watched: FaultyFileSystem) -> None:
        driver.commit_new(0)
        add = driver.stage(1)
        driver.create_record(author=driver.author(1), adds=(add,))
        catch_up(CommitLog(watched), BatchWriteAuthor("j"))
        calls = watched.calls
        assert Call("sync_directory", layout.LOG) in calls[: calls.index(Call("rename", add.path))]

    def test_before_a_part_is_called_removed(self, driver: Driver, watched: FaultyFileSystem) -> None:
        add = driver.commit_new(0)
        log = CommitLog(watched)
        log.refresh(durable=True)
        del watched.calls[:]
        driver.create_record(author=MaintenanceAuthor("drop", "d"), removes=(Remove.of(add),))
        assert still_live(log, [add], 0) == []
        assert Call("sync_directory", layout.LOG) in watched.calls


class TestStuck:
    def test_what_cannot_be_hidden_waits_and_is_hidden_later(self, driver: Driver) -> None:
        old = driver.commit_new(0)
        denied = Fault(PermissionDenied, times=FOR_EVER, operations=frozenset({"rename"}), path=old.final_path or "")
        log = CommitLog(FaultyFileSystem(driver.fs, [denied]))
        with pytest.raises(NotPublished, match="After the cause is fixed"):
            driver.commit(1, overwrite=True, log=log)
        assert driver.visible() == {old.final_path}
        driver.commit_new(2)
        assert old.final_path not in driver.visible()
        assert is_published(driver)

    def test_a_vacuum_that_lets_a_record_go_says_that_it_is_published(self, driver: Driver) -> None:
        """An older checkpoint or a lost hint may not know, and the name may be another part's by then."""
        old = driver.stage(0, name="same")
        driver.commit(0, old)
        driver.create_record(author=MaintenanceAuthor("drop", "d"), removes=(Remove.of(old),))
        state = CommitLog(driver.fs).refresh()
        assert state.unpublished.keys() == {0, 1}
        driver.create_record(author=MaintenanceAuthor("vacuum", "v"), log_start=1, published=0)
        assert CommitLog(driver.fs).refresh().unpublished.keys() == {1}
        driver.create_record(author=MaintenanceAuthor("vacuum", "w"), log_start=2, published=1)
        assert CommitLog(driver.fs).refresh().unpublished == {}
