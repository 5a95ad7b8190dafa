"""A driver for `failing:` URLs: the local driver, whose renames fail while a file `broken` is next to the directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ftfile.core.errors import PermissionDenied
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import register

if TYPE_CHECKING:
    from ftfile.storage.paths import Location


class FailingFileSystem(LocalFileSystem):
    def rename(self, source: str, target: str) -> None:
        if (Path(self.root).parent / "broken").exists():
            raise PermissionDenied("rename", source, "the test says so")  # is not retried
        super().rename(source, target)


def open_location(location: Location) -> FailingFileSystem:
    return FailingFileSystem(location.path, location.context)


def install(directory: Path) -> None:
    """Install the driver in this process and for every process with `directory` on its path."""
    information = directory / "failing_files-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: failing-files\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[ftfile.filesystems]\nfailing = {__name__}:open_location\n")
    register("failing", open_location)
