"""A driver for `dying:` URLs: the local driver, which on demand kills the process that writes a file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from ftfile.log.format.layout import is_staged
from ftfile.storage import local
from ftfile.storage.registry import WrapperFileSystem, WrapperStream

if TYPE_CHECKING:
    from ftfile.storage.api import FileSystem, OutputStream
    from ftfile.storage.paths import Location


class Deaths:
    """Orders for a directory and their results, in files next to the directory."""

    def __init__(self, directory: Path) -> None:
        self._ordered, self._told = directory.with_suffix(".dies"), directory.with_suffix(".died")

    def order(self, batch: int, write: int, times: int = 1) -> None:
        """Order that one task of the batch is killed.

        Args:
            batch: its id.
            write: 0 kills when the file has been created, with the first rows. Otherwise the number of the write call
                that writes only half of a file; the process is also killed if the file is closed before.
            times: number of attempts that are killed.
        """
        self._ordered.write_text(json.dumps([batch, write, times]))

    def ordered_in(self, path: str) -> int | None:
        """Return the number of the write call at which the writer of this file must be killed."""
        if not is_staged(path):
            return None
        with contextlib.suppress(FileNotFoundError):
            batch, write, _ = json.loads(self._ordered.read_text())
            if path.rpartition("/")[2].startswith(f"_{batch}-"):
                return int(write)
        return None

    def claim(self) -> bool:
        """Return True if this process must be killed, because it is the first to ask."""
        with contextlib.suppress(FileNotFoundError):
            batch, write, times = json.loads(self._ordered.read_text())
            self._ordered.rename(self._told)
            if times > 1:
                self.order(batch, write, times - 1)
            return True
        return False

    def die(self, path: str) -> None:
        """Record the path of the file that is being written, and kill this process."""
        self._told.write_text(path)
        os.kill(os.getpid(), signal.SIGKILL)

    def file_of_the_dead(self) -> str | None:
        """Return the path of the file that was being written, or None if no process was killed."""
        return self._told.read_text() if self._told.exists() else None


class DyingFileSystem(WrapperFileSystem):
    def __init__(self, inner: FileSystem, directory: Path) -> None:
        super().__init__(inner)
        self._deaths = Deaths(directory)

    def create(self, path: str) -> OutputStream:
        stream = super().create(path)
        write = self._deaths.ordered_in(path)
        if write is None:
            return stream
        if write == 0 and self._deaths.claim():
            self._deaths.die(path)
        return _LastStream(stream, self, self._deaths, write)


class _LastStream(WrapperStream):
    def __init__(self, inner: OutputStream, owner: DyingFileSystem, deaths: Deaths, write: int) -> None:
        super().__init__(inner, owner)
        self._deaths, self._writes_left = deaths, write

    def _write(self, data: memoryview) -> None:
        self._writes_left -= 1
        if self._writes_left == 0 and self._deaths.claim():
            super()._write(data[: len(data) // 2])
            self._deaths.die(self.path)
        super()._write(data)

    def _close(self) -> None:
        if self._writes_left > 0 and self._deaths.claim():
            self._deaths.die(self.path)
        super()._close()


def open_location(location: Location) -> DyingFileSystem:
    return DyingFileSystem(local.open_location(location), Path(location.path))


def install(directory: Path) -> None:
    """Install the driver for every process with `directory` on its path, like an installed package."""
    information = directory / "dying_files-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: dying-files\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[ftfile.filesystems]\ndying = {__name__}:open_location\n")
