"""A driver for `slow:` URLs: the local driver, which is slow while a file is next to the directory.

While `hold` exists, renames wait. While `hold-records` exists, records wait, and the file `held` reports a waiting
record.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ftfile.log.format import layout
from ftfile.storage.local import LocalFileSystem

if TYPE_CHECKING:
    from ftfile.storage.paths import Location


class SlowFileSystem(LocalFileSystem):
    def rename(self, source: str, target: str) -> None:
        while (Path(self.root).parent / "hold").exists():
            time.sleep(0.05)
        super().rename(source, target)

    def create_exclusive(self, path: str, content: bytes) -> None:
        hold = Path(self.root).parent / "hold-records"
        while path.startswith(f"{layout.LOG}/") and hold.exists():
            hold.with_name("held").touch()
            time.sleep(0.05)
        super().create_exclusive(path, content)


def open_location(location: Location) -> SlowFileSystem:
    return SlowFileSystem(location.path, location.context)


def install(directory: Path) -> None:
    """Install the driver for every process with `directory` on its path, like an installed package."""
    information = directory / "slow_files-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-files\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[ftfile.filesystems]\nslow = {__name__}:open_location\n")
