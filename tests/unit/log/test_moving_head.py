"""A head that moves on while it is rolled forward: looking again for a part that is nowhere finds new records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import NameCollision
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor
from ftfile.log.protocol import Committed
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory

if TYPE_CHECKING:
    from ftfile.log.format.model import Add
    from ftfile.storage.api import FileInfo, FileSystem
    from tests.unit.log.conftest import Driver


class Rival(WrapperFileSystem):
    """Creates the next record when a publisher searches for a missing part."""

    def __init__(self, inner: FileSystem, driver: Driver, gone: Add, add: Add) -> None:
        super().__init__(inner)
        self._driver = driver
        self._gone = gone.final_path
        self._add: Add | None = add

    def stat(self, path: str) -> FileInfo:
        if path == self._gone and self._add is not None:
            add, self._add = self._add, None
            self._driver.create_record(author=BatchWriteAuthor("rival"), adds=(add,))
        return super().stat(path)


@pytest.fixture
def gone(driver: Driver) -> Add:
    """Return a part that was replaced so long ago that no hint records it any more."""
    old = driver.commit_new(0)
    driver.commit(1, driver.stage(1), overwrite=True)
    driver.fs.delete(layout.PUBLISHED_HINT)
    return old


def test_what_came_is_published_before_the_next_record(driver: Driver, gone: Add) -> None:
    theirs, new = driver.stage(9), driver.stage(2)
    seen: list[set[str]] = []

    class Watched(Rival):
        def create_exclusive(self, path: str, content: bytes) -> None:
            if path.endswith(".record"):
                seen.append(driver.visible())
            super().create_exclusive(path, content)

    log = CommitLog(Watched(driver.fs, driver, gone, theirs))
    assert driver.commit(2, new, log=log) == Committed(3, replayed=False)
    assert theirs.final_path in seen[-1]


def test_a_record_that_removes_what_came_waits_for_it(driver: Driver, gone: Add) -> None:
    """Else it would hide the file that is in the way, and the part would come to light when that is moved."""
    theirs = driver.stage(9)
    assert theirs.final_path is not None
    driver.fs.create_exclusive(theirs.final_path, b"foreign")
    late = driver.stage(2)
    with pytest.raises(NameCollision):
        driver.commit(2, late, overwrite=True, log=CommitLog(Rival(driver.fs, driver, gone, theirs)))
    assert driver.text(theirs.final_path) == b"foreign"
    driver.fs.delete(theirs.final_path)
    driver.restart()
    driver.commit_new(2)
    assert check_directory(driver.fs).visible_rows == {b"row": 3}
