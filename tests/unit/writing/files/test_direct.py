"""Files written under their final names: files that remain without a commit, and how vacuum handles them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, StaleFiles, Unavailable
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import ManualClock, SeededIds, current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files import file_writer as sink_writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.log.vacuum import VacuumReport
    from ftfile.storage.api import FileSystem, OutputStream
    from ftfile.writing.messages import TaskCommit

DAY_S = 86_400.0
CLOCK = ManualClock()


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    sink_writer.forget_caches()
    with repeatable(CLOCK, SeededIds()):
        yield
    sink_writer.forget_caches()


class Direct:
    """A directory on a storage system like S3."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs

    def query(self, url: str) -> MicroBatch:
        return MicroBatch(url, {"value": "string"}, {"fileFormat": "text", "publish": "direct"})

    def data(self) -> set[str]:
        return {info.path for info in self.fs.list("") if not info.is_directory}

    def notes(self) -> list[str]:
        return [path for path in self.walk("_ftfile/staged") if path.endswith(".finalPath")]

    def walk(self, directory: str) -> Iterator[str]:
        for info in self.fs.list(directory) if self.fs.exists(directory) else ():
            yield from self.walk(info.path) if info.is_directory else [info.path]


@pytest.fixture
def direct() -> Direct:
    return Direct(CrashingFileSystem(clock=CLOCK, storage="s3"))


def rows(*letters: str) -> list[dict[str, Any]]:
    return [{"value": letter} for letter in letters]


def part_of(messages: list[TaskCommit]) -> str:
    return messages[0].parts[0].path


def vacuum(url: str) -> VacuumReport:
    return ftfile.vacuum(url, retention="24h", dry_run=False, context=current())


def test_a_file_is_there_before_the_commit_and_stays_where_it_is(direct: Direct) -> None:
    with mounted(direct.fs) as url:
        query = direct.query(url)
        messages = query.run_tasks(0, [rows("a")])
        assert direct.data() == {part_of(messages)}
        written = direct.fs.stat(part_of(messages))
        query.commit(0, messages)
        assert direct.fs.stat(part_of(messages)) == written
        assert [file.path for file in ftfile.open(url).files()] == [part_of(messages)]


def test_vacuum_deletes_what_nobody_committed_and_nothing_else(direct: Direct) -> None:
    with mounted(direct.fs) as url:
        query = direct.query(url)
        query.run(0, [rows("a")])
        lost = part_of(query.run_tasks(1, [rows("lost")]))
        foreign = lost.replace("0000000001", "0000000009")
        direct.fs.create_exclusive(foreign, b"of somebody else")
        kept = direct.data() - {lost}
        CLOCK.advance(2 * DAY_S)
        young = part_of(query.run_tasks(1, [rows("young")]))
        told = {(file.path, file.kind) for file in vacuum(url).files if file.kind == "direct"}
        assert told == {(lost, "direct")}
        assert direct.data() == kept | {young}
        assert len(direct.notes()) == 1


def test_what_was_removed_within_the_retention_stays(direct: Direct) -> None:
    with mounted(direct.fs) as url:
        query = direct.query(url)
        query.run(0, [rows("a")])
        CLOCK.advance(2 * DAY_S)
        ftfile.drop(url, "all", context=current())
        vacuum(url)
        assert len(ftfile.open(url).to_arrow(0)) == 1
        CLOCK.advance(2 * DAY_S)
        vacuum(url)
        assert direct.data() == set()
        assert not list(direct.walk("_ftfile/retired"))


def test_a_file_that_could_not_be_deleted_is_found_again(direct: Direct) -> None:
    with mounted(direct.fs) as url:
        query = direct.query(url)
        query.run(0, [rows("a")])
        lost = part_of(query.run_tasks(1, [rows("lost")]))
    CLOCK.advance(2 * DAY_S)
    faulty = FaultyFileSystem(direct.fs, [Fault(Unavailable, operations=frozenset({"delete"}), times=99, path=lost)])
    with mounted(faulty) as url:
        assert vacuum(url).failed == 1
    assert lost in direct.data()
    with mounted(direct.fs) as url:
        vacuum(url)
    assert lost not in direct.data()


def test_a_note_stays_for_as_long_as_its_file_is_too_young_to_go(direct: Direct) -> None:
    class Slow(WrapperFileSystem, PickledByReference):
        """An hour passes between a note and its file."""

        def create_exclusive(self, path: str, content: bytes) -> None:
            super().create_exclusive(path, content)
            if path.endswith(".finalPath"):
                CLOCK.advance(3600)

    with mounted(direct.fs) as url:
        direct.query(url).run(0, [rows("a")])
        kept = direct.data()
    with mounted(Slow(direct.fs)) as url:
        lost = part_of(direct.query(url).run_tasks(1, [rows("lost")]))
    with mounted(direct.fs) as url:
        CLOCK.advance(DAY_S - 1800)  # the horizon is between the two
        assert [file.kind for file in vacuum(url).files] == ["staged"]
        assert len(direct.notes()) == 1
        CLOCK.advance(3600)
        assert {(file.path, file.kind) for file in vacuum(url).files if file.kind == "direct"} == {(lost, "direct")}
        assert direct.data() == kept
        assert direct.notes() == []


def test_two_vacuums_at_once(direct: Direct) -> None:
    class Other(WrapperFileSystem, PickledByReference):
        """Another vacuum runs wholly before the first note is read."""

        first = iter([True])

        def read(self, path: str, bytes_max: int | None = None) -> bytes:
            if path.endswith(".finalPath") and next(self.first, False):
                assert len(vacuum(url).files) == 5
            return super().read(path, bytes_max)

    other = Other(direct.fs)
    with mounted(other) as url:
        query = direct.query(url)
        query.run(0, [rows("a")])
        kept = direct.data()
        query.run_tasks(1, [rows("lost"), rows("lost, too")])
        CLOCK.advance(2 * DAY_S)
        assert vacuum(url).failed == 0
        assert not next(other.first, False)
        assert direct.data() == kept
        assert direct.notes() == []


def test_a_batch_that_took_longer_than_the_retention_of_a_vacuum_is_refused(direct: Direct) -> None:
    with mounted(direct.fs) as url:
        query = direct.query(url)
        query.run(0, [rows("a")])
        messages = query.run_tasks(1, [rows("b")])
        query.run_tasks(1, [rows("lost")])
        CLOCK.advance(2 * DAY_S)
        vacuum(url)
        with pytest.raises(StaleFiles, match="does not exist: a vacuum may have deleted"):
            query.commit(1, messages)
        query.run(1, [rows("b")])
        assert sorted(ftfile.open(url).to_arrow().column("value").to_pylist()) == ["a", "b"]


def test_an_attempt_that_fails_takes_its_file_away(direct: Direct) -> None:
    with mounted(direct.fs) as url:
        query = direct.query(url)
        query.run(0, [rows("a")])
        before = direct.data()
        with pytest.raises(ConnectionError):
            query.run_task(
                query.pickled_plan(), query.identity(1), 0, rows("b"), error=ConnectionError("executor lost")
            )
        assert direct.data() == before


def test_dead_letters_and_rows_that_wait_are_staged_as_elsewhere(direct: Direct) -> None:
    with mounted(direct.fs) as url:
        query = direct.query(url)
        query.options = {**query.options, "badRecords": "deadLetter", "maxRecordBytes": "10B", "onSchemaChange": "any"}
        query.run(0, [rows("a", "b" * 20)])
        assert len([*ftfile.open(url).dead_letters()]) == 1
        assert len(direct.data()) == 1


def test_where_files_are_seen_while_they_are_written_it_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="publish=direct: the file system 'local' shows files before they are complete"
    ):
        MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text", "publish": "direct"}).pickled_plan()
    assert not [*tmp_path.iterdir()]


class Watched(WrapperFileSystem, PickledByReference):
    """Remembers how many notes there were when a file was begun under its final name."""

    def __init__(self, direct: Direct) -> None:
        super().__init__(direct.fs)
        self._direct = direct
        self.notes: list[int] = []

    def create(self, path: str) -> OutputStream:
        if not path.startswith("_ftfile/"):
            self.notes.append(len(self._direct.notes()))
        return super().create(path)


def test_the_note_of_a_file_is_there_before_the_file(direct: Direct) -> None:
    watched = Watched(direct)
    with mounted(watched) as url:
        direct.query(url).run_tasks(0, [rows("a"), rows("b")])
    assert watched.notes == [1, 2]
