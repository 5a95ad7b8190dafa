"""Files that may be missing, and files below `_ftfile` whose directory may be: a copy may leave out empty ones."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.core.errors import NotADirectory, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.fs.api import FileInfo, FileSystem

__all__ = ("create_file", "delete_file", "list_or_empty", "put_file", "stat_or_none", "walk")


def stat_or_none(fs: FileSystem, path: str) -> FileInfo | None:
    """Return the file or directory at a path; None for nothing, also where a file is in the place of its directory."""
    try:
        return fs.stat(path)
    except (NotFound, NotADirectory):
        return None


def list_or_empty(fs: FileSystem, directory: str) -> list[FileInfo]:
    """Return the files and directories directly in a directory; none where there is no directory."""
    try:
        return fs.list(directory)
    except (NotFound, NotADirectory):
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


def create_file(fs: FileSystem, path: str, content: bytes) -> None:
    """Create a whole file exclusively, and its directory if that is missing."""
    _in_directory(fs, fs.create_exclusive, path, content)


def put_file(fs: FileSystem, path: str, content: bytes) -> None:
    """Write a hint over an older one, and make its directory if that is missing."""
    _in_directory(fs, fs.put, path, content)


def delete_file(fs: FileSystem, path: str) -> None:
    """Delete a file that others may have deleted already."""
    with contextlib.suppress(NotFound):
        fs.delete(path)


def _in_directory(fs: FileSystem, write: Callable[[str, bytes], None], path: str, content: bytes) -> None:
    try:
        write(path, content)
    except NotFound:
        directory = layout.parent(path)
        fs.make_directories(directory)
        fs.sync_directory(layout.parent(directory))
        write(path, content)
