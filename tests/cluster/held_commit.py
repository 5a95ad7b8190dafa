"""A driver for `held+hdfs:` URLs: HDFS, on which one process waits before it creates a record, if the test orders it.

Its setting `orders` is a local directory. It imports no tests, because it is sent to the processes of an application.
"""

from __future__ import annotations

import contextlib
import os
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from ftfile.core.errors import FtfileError
from ftfile.storage.api import READING
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.paths import Location
    from ftfile.storage.registry import Result

__all__ = ("PREFIX", "CommitHold", "pack")

PREFIX = "held+"
RECORD = ".record"


class CommitHold:
    """An order for a commit, the process that waits, and the changes that this process makes afterwards."""

    def __init__(self, directory: Path) -> None:
        self._order, self._held, self._resumed, self._calls = (
            directory / name for name in ("order", "held", "resumed", "calls")
        )

    def give_order(self) -> None:
        """Let the next process that creates a record wait."""
        self._order.touch()

    def process(self) -> int | None:
        """Return the process that waits."""
        with contextlib.suppress(FileNotFoundError):
            return int(self._held.read_text())
        return None

    def release(self) -> None:
        """Let the process continue."""
        self._held.rename(self._resumed)

    def calls(self) -> list[str]:
        """Return the changes that the process tried after the wait: operation, path and result."""
        with contextlib.suppress(FileNotFoundError):
            return self._calls.read_text().splitlines()
        return []

    def wait_if_ordered(self) -> None:
        """Wait in this process, if it is the first to take the order."""
        process = self._order.with_name(f"process-{os.getpid()}")
        try:
            self._order.rename(process)
        except FileNotFoundError:
            return
        process.write_text(str(os.getpid()))
        process.rename(self._held)
        while self._held.exists():
            time.sleep(0.01)

    def record_call(self, call: str) -> None:
        """Record a change, if this process has waited."""
        with contextlib.suppress(FileNotFoundError):
            if self._resumed.read_text() == str(os.getpid()):
                with self._calls.open("a") as calls:
                    calls.write(f"{call}\n")


class _HeldFileSystem(WrapperFileSystem):
    def __init__(self, location: Location) -> None:
        settings = dict(location.settings)
        self._hold = CommitHold(Path(settings.pop("orders")))
        url, context = location.url.removeprefix(PREFIX), location.context
        super().__init__(open_filesystem(url, settings=settings, clock=context.clock, policy=context.retry))

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        if operation in READING:
            return call()
        if operation == "create_exclusive" and path.endswith(RECORD):
            self._hold.wait_if_ordered()
        outcome = "done"
        try:
            return call()
        except FtfileError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._hold.record_call(f"{operation} {path} {outcome}")


def pack(archive: Path) -> None:
    """Write this driver as an archive for `--py-files`, with its entry point."""
    with zipfile.ZipFile(archive, "w") as package:
        package.write(__file__, "held_commit.py")
        package.writestr("held_commit-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: held-commit\nVersion: 1\n")
        entry = f"[ftfile.filesystems]\n{PREFIX}hdfs = held_commit:_HeldFileSystem\n"
        package.writestr("held_commit-1.dist-info/entry_points.txt", entry)
