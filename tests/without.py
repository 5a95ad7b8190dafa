"""A run in which files that are only derived are gone before each step: they save work, and decide nothing."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from ftfile.commit import layout
from ftfile.commit.log import CommitLog
from ftfile.core.errors import FtfileError, NotFound
from ftfile.fs.wrapper import WrapperFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from ftfile.fs.api import FileSystem

__all__ = ("DERIVED", "left_out")

# What is deleted, by the name that `--without` takes.
DERIVED = {"hints": layout.HINTS, "ranges": layout.RANGES}


@contextlib.contextmanager
def left_out(name: str, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Delete files of this kind whenever somebody reads the log on: each plan, commit, flush, vacuum and open."""
    read_on = CommitLog.read_on

    @functools.wraps(read_on)
    def read_on_without(log: CommitLog, *args: Any, **more: Any) -> Any:
        with contextlib.suppress(FtfileError):
            _forget(log.fs, name)
        return read_on(log, *args, **more)

    patch.setattr(CommitLog, "read_on", read_on_without)
    yield


def _forget(fs: FileSystem, name: str) -> None:
    directory, first = DERIVED[name], layout.record_path(0)
    # Past faults, counters and turns of the tests.
    while isinstance(fs, WrapperFileSystem):
        directory, first = fs.inner_path(directory), fs.inner_path(first)
        fs = fs.inner
    if name == "ranges" and not fs.exists(first):
        return  # what a vacuum let go is in ranges alone
    for info in fs.list(directory):
        with contextlib.suppress(NotFound):
            fs.delete(info.path)
