"""The quarantine: files that were in the way or misled, each with a note of where it was."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.core.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from ftfile.core.ids import IdSource
    from ftfile.fs.api import FileSystem

__all__ = ("set_aside",)


def set_aside(fs: FileSystem, ids: IdSource, path: str, reason: str) -> str | None:
    """Move a file to the quarantine; repeatable.

    Args:
        fs: of the directory.
        ids: for its name there.
        path: of the file.
        reason: for the note beside it, which is there first.

    Returns:
        Where it is now; None if nothing was there.
    """
    try:
        info = fs.stat(path)
    except NotFound:
        return None
    fs.make_directories(layout.QUARANTINE)
    name = f"{layout.QUARANTINE}/{ids.unique()[:16]}"
    target = f"{name}.quarantined"
    note = {"path": path, "reason": reason, "sizeBytes": info.size_bytes, "modifiedMs": info.modified_ms}
    with contextlib.suppress(AlreadyExists):
        fs.create_exclusive(f"{name}.origin", json.dumps(note, indent=1).encode() + b"\n")
    try:
        fs.rename(path, target)
    except NotFound:
        return None
    for directory in (layout.parent(path), layout.QUARANTINE, layout.META):
        with contextlib.suppress(NotFound):
            fs.sync_directory(directory)
    return target
