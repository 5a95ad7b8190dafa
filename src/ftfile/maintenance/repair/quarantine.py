"""The quarantine: files that were in the way or misled, each with a note of where it was."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from ftfile.commit.files import list_or_empty
from ftfile.commit.format import layout
from ftfile.commit.log.bases import list_bases
from ftfile.commit.log.log import CommitLog
from ftfile.commit.read.ranges import list_ranges
from ftfile.core.errors import AlreadyExists, CorruptData, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.fs.api import FileSystem

__all__ = ("cut_log", "set_aside")


def set_aside(fs: FileSystem, path: str, reason: str) -> None:
    """Move a file to the quarantine, after a note that says where it was and why; nothing where there is none."""
    try:
        info = fs.stat(path)
    except NotFound:
        return
    fs.make_directories(layout.QUARANTINE)
    name = f"{layout.QUARANTINE}/{fs.context.ids.unique()[:16]}"
    note = {"path": path, "reason": reason, "sizeBytes": info.size_bytes, "modifiedMs": info.modified_ms}
    with contextlib.suppress(AlreadyExists):
        fs.create_exclusive(f"{name}.origin", json.dumps(note, indent=1).encode() + b"\n")
    try:
        fs.rename(path, f"{name}.quarantined")
    except NotFound:
        return
    for directory in (layout.parent(path), layout.QUARANTINE, layout.META):
        with contextlib.suppress(NotFound):
            fs.sync_directory(directory)


def cut_log(fs: FileSystem, version: int) -> None:
    """Put the records from a version on aside, newest first, and before each the files that it made visible.

    Repeatable: what is left of a cut that was interrupted is found and put aside like all the rest.
    """
    for path in list(_derived(fs, version)):
        set_aside(fs, path, f"it stands for records from version {version} on, which cannot be read")
    infos = list_or_empty(fs, layout.LOG)
    names = [(name, info.path) for info in infos if (name := layout.parse_log_name(info.path)) is not None]
    reason = f"the log cannot be read from version {version} on"
    for name, path in sorted(names, key=lambda pair: (-pair[0].version, pair[0].nonce or "", pair[1])):
        if name.version < version:
            break
        if name.nonce is None:
            for visible in _made_visible(fs, name.version):
                set_aside(fs, visible, f"version {name.version} brought it, and is put aside: {reason}")
        set_aside(fs, path, reason)


def _derived(fs: FileSystem, version: int) -> Iterator[str]:
    yield from (layout.base_path(name) for name in list_bases(fs) if name.version >= version)
    yield from (layout.range_path(name) for name in list_ranges(fs) if name.last >= version)
    yield layout.PUBLISHED_HINT


def _made_visible(fs: FileSystem, version: int) -> list[str]:
    try:
        record = CommitLog(fs).read_record(version)
    except CorruptData:
        return []
    return [add.final_path for add in record.adds if add.final_path is not None] if record is not None else []
