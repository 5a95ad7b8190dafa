"""A directory that another process creates while this process opens it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError
from ftfile.log.opening import open_log
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch
from ftfile.testing.source_run import SourceRun
from ftfile.writing.files.file_writer import forget_caches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

Result = TypeVar("Result")

COLUMNS = {"id": "long"}
CALLS = 12


class Others(WrapperFileSystem, PickledByReference):
    """Lets another process act before a call, counted from 1."""

    def __init__(self, name: str, call: int) -> None:
        super().__init__(MemoryFileSystem(name))
        self.calls_left = call
        self.act: Callable[[], object] = lambda: None

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        self.calls_left -= 1
        if self.calls_left == 0:
            self.act()
        return super().around(operation, path, call)


@contextlib.contextmanager
def created_before(name: str, call: int) -> Iterator[str]:
    """Yield the URL of a directory that another process creates before a call of the storage."""
    fs = Others(f"{name}-{call}", call)
    with mounted(fs) as url:

        def create() -> None:
            forget_caches()
            MicroBatch(url, COLUMNS, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
            forget_caches()

        fs.act = create
        yield url
    MemoryFileSystem.drop(f"{name}-{call}")


def test_it_is_complete_or_not_there(request: pytest.FixtureRequest) -> None:
    found = set()
    for call in range(1, CALLS):
        with created_before(request.node.name, call) as url:
            found.add(_version(url))
    assert found == {None, 0}


def _version(url: str) -> int | None:
    try:
        return open_log(url, Access(context=current())).refresh().version
    except ConfigError:
        return None


def test_a_stream_waits_for_it_or_reads_it(request: pytest.FixtureRequest) -> None:
    batches = set()
    for call in range(1, CALLS):
        with created_before(request.node.name, call) as url:
            run = SourceRun(url, COLUMNS)
            batches.add(run.run())
            if not open_filesystem(url).exists("_ftfile"):
                continue
            run.run()
            assert run.rows == [{"id": 1}]
    assert batches == {0, 1}
