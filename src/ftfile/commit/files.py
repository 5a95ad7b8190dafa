"""Files that may be missing, as directories may be of which a copy leaves out empty ones; checks of staged files."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.log.times import time_text
from ftfile.core.errors import CorruptData, NotADirectory, NotFound, StaleFiles
from ftfile.fs.calls.parallel import parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.commit.format.model import Add
    from ftfile.fs.api import FileInfo, FileSystem

__all__ = (
    "check_file",
    "check_staged",
    "delete_file",
    "find_files",
    "list_or_empty",
    "stat_or_none",
    "walk",
    "write_file",
)


_ADVICE = (
    "The attempt that wrote it failed, the file was changed, or its host wrote to a disk of its own: start the query "
    "again, with a path that all hosts share"
)


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


def check_staged(fs: FileSystem, adds: Iterable[Add], horizon_ms: int) -> None:
    """Check that every file is there, whole, and younger than the vacuum horizon; then make their names durable."""
    adds = tuple(adds)
    found = find_files(fs, adds)
    for add in adds:
        check_file(add, found.get(add.path), horizon_ms)
    if fs.capabilities.directory_sync:
        directories = {layout.parent(add.path) for add in adds}
        chain = {above for directory in directories for above in layout.ancestors(directory)}
        for directory in sorted(chain - set(layout.ancestors(layout.META)), reverse=True):
            fs.sync_directory(directory)


def find_files(fs: FileSystem, adds: Iterable[Add]) -> dict[str, FileInfo]:
    """Return the files of the adds that exist, by path; also others of the stage."""
    paths = [add.path for add in adds]
    directories = {layout.parent(path) for path in paths if layout.is_staged(path)}
    # Directories of data are never listed: they grow.
    direct = parallel(fs, lambda path: stat_or_none(fs, path), [path for path in paths if not layout.is_staged(path)])
    listed = [info for directory in directories for info in list_or_empty(fs, directory)]
    return {info.path: info for info in (*listed, *direct) if info is not None}


def check_file(add: Add, info: FileInfo | None, horizon_ms: int) -> None:
    """Check the file of one add: CorruptData for another length, StaleFiles if vacuum may delete it at any moment."""
    end = add.offset + add.length
    expected = f"{add.length} bytes" if add.kind == "part" else f"{end} bytes or more"
    if info is None:
        raise CorruptData(add.path, expected, "no such file", _ADVICE)
    if info.size_bytes != end if add.kind == "part" else info.size_bytes < end:
        raise CorruptData(add.path, expected, f"{info.size_bytes} bytes", _ADVICE)
    if info.modified_ms <= horizon_ms:
        raise StaleFiles(
            f"{add.path!r} was last written at {time_text(info.modified_ms)}, and a vacuum may delete everything "
            f"unrecorded that was written up to {time_text(horizon_ms)}. Either the batch took longer than the "
            "vacuum's retention: start the query again, and vacuum with a longer retention. Or the store's clock was "
            "ahead when the vacuum ran, and the horizon lies in the future: ftfile.vacuum(path, dry_run=False) takes "
            "it back"
        )
