"""A log that cannot be read from a version on: what follows is put aside, with what it made visible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.files import list_or_empty
from ftfile.commit.format import layout
from ftfile.commit.log.bases import list_bases
from ftfile.commit.log.log import CommitLog
from ftfile.commit.read.ranges import list_ranges
from ftfile.core.errors import CorruptData
from ftfile.maintenance.repair.quarantine import set_aside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.core.ids import IdSource
    from ftfile.fs.api import FileSystem

__all__ = ("cut_log",)


def cut_log(fs: FileSystem, ids: IdSource, version: int) -> None:
    """Put the records from a version on aside, newest first, and before each the files that it made visible.

    Repeatable: what is left of a cut that was interrupted is found and put aside like all the rest.
    """
    for path in list(_derived(fs, version)):
        set_aside(fs, ids, path, f"it stands for records from version {version} on, which cannot be read")
    infos = list_or_empty(fs, layout.LOG)
    names = [(name, info.path) for info in infos if (name := layout.parse_log_name(info.path)) is not None]
    reason = f"the log cannot be read from version {version} on"
    for name, path in sorted(names, key=lambda pair: (-pair[0].version, pair[0].nonce or "", pair[1])):
        if name.version < version:
            break
        if name.nonce is None:
            for visible in _made_visible(fs, name.version):
                set_aside(fs, ids, visible, f"version {name.version} brought it, and is put aside: {reason}")
        set_aside(fs, ids, path, reason)


def _derived(fs: FileSystem, version: int) -> Iterator[str]:
    yield from (layout.base_path(name) for name in list_bases(fs) if name.version >= version)
    yield from (layout.range_path(name) for name in list_ranges(fs) if name.last >= version)
    if fs.exists(layout.PUBLISHED_HINT):
        yield layout.PUBLISHED_HINT


def _made_visible(fs: FileSystem, version: int) -> list[str]:
    try:
        record = CommitLog(fs).read_record(version)
    except CorruptData:
        return []
    return [add.final_path for add in record.adds if add.final_path is not None] if record is not None else []
