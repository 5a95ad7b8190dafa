"""Files that take long to close are closed side by side, and a failure of one fails the attempt."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.commit import layout
from ftfile.core.errors import OutcomeUnknown
from ftfile.fs.wrapper import WrapperFileSystem, WrapperStream
from ftfile.testing.by_reference import PickledByReference
from ftfile.testing.crashing import CrashingFileSystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.testing.mounting import mounted

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.fs.api import Capabilities, FileSystem, OutputStream

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
            self._all_there.wait(timeout=60)
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
            query.write(0, [ROWS])
        assert disk.list(layout.staged_directory(query.query_id, 0)) == []
