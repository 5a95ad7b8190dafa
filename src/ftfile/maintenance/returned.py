"""Removed parts at their final names again: where publishing copies, a late copy may bring one back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.format.model import Remove
from ftfile.commit.read.snapshot import snapshot_at
from ftfile.core.errors import NotFound

if TYPE_CHECKING:
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileInfo

__all__ = ("find_removed",)


def find_removed(log: CommitLog, head: LogState) -> list[tuple[Remove, FileInfo]]:
    """Return the files at the names of removed parts: these, or somebody else's.

    Of all whose removal is in a record that is kept: however late, one vacuum looks before that goes.
    """
    live, known = set(snapshot_at(log, head).adds), snapshot_at(log, head, since=head.log_start).adds
    if len(live) == len(known):
        return []
    parts = [add for add in known.values() if add.final_path is not None]
    removed = {add.final_path: add for add in parts if add.id not in live and add.final_path is not None}
    for add in (add for add in parts if add.id in live):
        removed.pop(add.final_path or "", None)
    found: list[FileInfo] = []
    for directory in {layout.parent(path) for path in removed}:
        found += [info for info in _children(log, directory) if info.path in removed]
    return [(Remove.of(removed[info.path]), info) for info in found]


def _children(log: CommitLog, directory: str) -> list[FileInfo]:
    try:
        return log.fs.list(directory)
    except NotFound:
        return []
