"""Files that take long to close are closed side by side, and a failure of one fails the attempt."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

import ftfile
from ftfile.core.errors import OutcomeUnknown, StorageError
from ftfile.log.format import layout
from ftfile.storage.registry import WrapperFileSystem, WrapperStream
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import Capabilities, FileSystem, OutputStream

LETTERS = "abcdefgh"
ROWS = [{"letter": letter, "value": letter} for letter in LETTERS]
OPTIONS = {"fileFormat": "text", "partitionBy": "letter"}


class SlowToClose(WrapperFileSystem, PickledByReference):
    """Closing a file takes until all others are being closed as well; it fails for a file with certain content."""

    def __init__(self, inner: FileSystem, failing: bytes = b"never") -> None:
        super().__init__(inner)
        self._all_there = threading.Barrier(len(LETTERS))
        self._failing = failing

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, concurrency=len(LETTERS))

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        result = call()
        if operation == "close":
            self._all_there.wait(timeout=300)
            if self._failing in self.inner.read(path):
                raise OutcomeUnknown("close", path, "no answer")
        return result

    def create(self, path: str) -> OutputStream:
        return WrapperStream(super().create(path), self)


def test_files_of_a_task_are_closed_side_by_side() -> None:
    with mounted(SlowToClose(CrashingFileSystem())) as url:
        MicroBatch(url, {"letter": "string", "value": "string"}, OPTIONS).run(0, [ROWS])
        assert sorted(ftfile.open(url).to_arrow().column("value").to_pylist()) == list(LETTERS)


def test_a_file_that_cannot_be_closed_fails_the_attempt_which_leaves_nothing() -> None:
    disk = CrashingFileSystem()
    with mounted(SlowToClose(disk, failing=b"f")) as url:
        query = MicroBatch(url, {"letter": "string", "value": "string"}, OPTIONS)
        with pytest.raises(OutcomeUnknown, match="close"):
            query.run_tasks(0, [ROWS])
        assert disk.list(layout.staged_directory(query.query_id)) == []


class TwoAtOnce(WrapperFileSystem, PickledByReference):
    """Closes two files at once; the first close that is asked for is another one's business."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.closing = 0
        self.aborted: list[str] = []
        self.refused = ""

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, concurrency=2)

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation == "close":
            self.closing += 1
            if self.closing == 1:
                return self.first_close(path, call)
        return call()

    def first_close(self, path: str, call: Callable[[], Any]) -> Any:
        del call
        self.refused = path
        raise StorageError("close", path, "refused")

    def create(self, path: str) -> OutputStream:
        return _Watched(super().create(path), self)


class _Watched(WrapperStream):
    def _abort(self) -> bool:
        cast("TwoAtOnce", self._owner).aborted.append(self.path)
        return super()._abort()


def one_file_each(url: str) -> MicroBatch:
    return MicroBatch(url, {"value": "string"}, {"fileFormat": "text", "maxRecordsPerFile": "1"})


def test_the_failure_of_an_early_close_is_heard_and_what_was_begun_given_up() -> None:
    storage = CrashingFileSystem(storage="s3")
    watched = TwoAtOnce(storage)
    with mounted(watched) as url:
        query = one_file_each(url)
        with pytest.raises(StorageError, match="refused"):
            query.run_tasks(0, [[{"value": letter} for letter in LETTERS]])
        # A storage system may have invisible parts of a large file.
        assert watched.refused in watched.aborted
        assert not storage.exists(layout.staged_directory(query.query_id))


class CloseIsSlow(TwoAtOnce):
    """The first close takes a while, or until something is deleted."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self._deleted = threading.Event()
        self.is_closed = threading.Event()

    def first_close(self, path: str, call: Callable[[], Any]) -> Any:
        del path
        self._deleted.wait(0.2)
        call()
        self.is_closed.set()

    def delete(self, path: str) -> None:
        try:
            super().delete(path)
        finally:
            self._deleted.set()


@pytest.mark.slow
def test_files_of_a_failed_attempt_are_deleted_when_they_are_closed() -> None:
    storage = CrashingFileSystem(storage="s3")
    slow = CloseIsSlow(storage)
    with mounted(slow) as url:
        query = one_file_each(url)
        with pytest.raises(ConnectionError):
            query.run_task(
                query.pickled_plan(), query.identity(0), 0, [{"value": "a"}], error=ConnectionError("executor lost")
            )
        assert slow.is_closed.wait(300)
        assert not storage.exists(layout.staged_directory(query.query_id))
