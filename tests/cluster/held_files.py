"""A driver for `held+<scheme>:` URLs: the driver of the scheme, in which one process stops within a file on demand.

The process never continues: it waits until it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ftfile.log.format.layout import is_staged
from ftfile.storage.registry import WrapperFileSystem, WrapperStream
from ftfile.testing.context import open_filesystem

if TYPE_CHECKING:
    from ftfile.storage.api import FileSystem, OutputStream
    from ftfile.storage.paths import Location

# Names the directory of the orders in all processes.
ORDERS = "FTFILE_TEST_ORDERS"
SCHEMES = ("file", "hdfs", "s3")


@dataclass(frozen=True)
class Held:
    """The waiting process, and its file in the directory."""

    process: int
    path: str


class Order:
    """Orders for a scheme and their results, in files of a directory."""

    def __init__(self, directory: Path, scheme: str) -> None:
        self._ordered, self._taken, self._told = (directory / f"{scheme}.{end}" for end in ("stop", "taken", "told"))

    def give(self, written_bytes: int) -> None:
        """Stop the first process that has written this number of bytes of a file."""
        self._ordered.write_text(str(written_bytes))

    def written_bytes(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return int(self._ordered.read_text())
        return None

    def taken(self) -> bool:
        """Return True if this process must stop, because it is the first to ask."""
        with contextlib.suppress(FileNotFoundError):
            self._ordered.rename(self._taken)
            return True
        return False

    def stop(self, path: str) -> NoReturn:
        """Record this process and its file, and wait to be killed."""
        self._taken.write_text(json.dumps(asdict(Held(os.getpid(), path))))
        self._taken.rename(self._told)
        while True:
            time.sleep(1)

    def held(self) -> Held | None:
        return Held(**json.loads(self._told.read_text())) if self._told.exists() else None


class HeldFileSystem(WrapperFileSystem):
    def __init__(self, inner: FileSystem, order: Order) -> None:
        super().__init__(inner)
        self._order = order

    def create(self, path: str) -> OutputStream:
        stream = super().create(path)
        written_bytes = self._order.written_bytes() if is_staged(path) else None
        return stream if written_bytes is None else _HeldStream(stream, self, self._order, written_bytes)


class _HeldStream(WrapperStream):
    def __init__(self, inner: OutputStream, owner: HeldFileSystem, order: Order, written_bytes: int) -> None:
        super().__init__(inner, owner)
        self._order, self._left_bytes = order, written_bytes

    def _write(self, data: memoryview) -> None:
        if data.nbytes > self._left_bytes and self._order.taken():
            super()._write(data[: self._left_bytes])
            if self.has_capability("hsync"):
                super()._hsync()
            self._order.stop(self.path)
        super()._write(data)
        self._left_bytes = max(self._left_bytes - data.nbytes, 0)


def open_location(location: Location) -> HeldFileSystem:
    url = location.url.removeprefix("held+")
    fs = open_filesystem(url, settings=location.settings, clock=location.context.clock)
    return HeldFileSystem(fs, Order(Path(os.environ[ORDERS]), url.partition(":")[0]))


def install(directory: Path) -> None:
    """Install the driver for every process with `directory` on its path, like an installed package."""
    information = directory / "held_files-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: held-files\nVersion: 1\n")
    entries = "".join(f"held+{scheme} = {__name__}:open_location\n" for scheme in SCHEMES)
    (information / "entry_points.txt").write_text(f"[ftfile.filesystems]\n{entries}")
