"""Files that may be missing, as may their directories: a copy of a directory may leave out empty ones."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.core.errors import NotADirectory, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.fs.api import FileInfo, FileSystem


def stat_or_none(fs: FileSystem, path: str) -> FileInfo | None:
    """Return the file or directory at a path; None for nothing, also where a file is in the place of its directory."""
    try:
        return fs.stat(path)
    except (NotFound, NotADirectory):
        return None


def list_or_empty(fs: FileSystem, directory: str) -> list[FileInfo]:
    """Return the files and directories directly in a directory; none where there is no directory."""
    try:
        return list_own(fs, directory)
    except NotADirectory:
        return []


def list_own(fs: FileSystem, directory: str) -> list[FileInfo]:
    """List a directory below `_ftfile`, which may be missing; NotADirectory names a file in its place."""
    try:
        return fs.list(directory)
    except NotFound:
        return []


def walk(fs: FileSystem, directory: str) -> dict[str, FileInfo]:
    """Return all files below a directory, by path."""
    found: dict[str, FileInfo] = {}
    waiting = [directory]
    while waiting:
        for info in list_or_empty(fs, waiting.pop()):
            if info.is_directory:
                waiting.append(info.path)
            else:
                found[info.path] = info
    return found


def delete_file(fs: FileSystem, path: str) -> None:
    """Delete a file that others may have deleted already."""
    with contextlib.suppress(NotFound):
        fs.delete(path)


def write_file(fs: FileSystem, write: Callable[[str, bytes], None], path: str, content: bytes) -> None:
    """Write a whole file by `fs.create_exclusive` or `fs.put`, and make its directory if that is missing."""
    try:
        write(path, content)
    except NotFound:
        directory = layout.parent(path)
        fs.make_directories(directory)
        fs.sync_directory(layout.parent(directory))
        write(path, content)
