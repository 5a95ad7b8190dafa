"""Files of windows that are recorded, of writers that were never closed: a vacuum deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.kind_of_directory import store_of
from ftfile.commit.files import list_own
from ftfile.commit.format import layout
from ftfile.commit.sealed.filesystem import keys_of
from ftfile.core.errors import CorruptData
from ftfile.core.logs import get_logger
from ftfile.filters.chain import Chain
from ftfile.kv.definition import StoreDefinition
from ftfile.kv.operator.chain import FileCodec, list_wal, newest_file
from ftfile.kv.operator.epochs import recorded_window

if TYPE_CHECKING:
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileSystem

__all__ = ("unneeded_windows", "writers_of_windows")

_log = get_logger(__name__)


def writers_of_windows(fs: FileSystem) -> list[str]:
    """Return the directories of writers' windows."""
    return [info.path for info in list_own(fs, layout.WAL) if info.is_directory]


def unneeded_windows(fs: FileSystem, head: LogState) -> list[str]:
    """Return the files of windows that no restart needs: of each writer, never the newest one, which may be in use."""
    text = store_of(head)
    if text is None or head.encoding is None:
        return []
    filters = Chain.from_definition(head.definitions[head.encoding]["filters"], keys_of(fs))
    found: list[str] = []
    for directory in writers_of_windows(fs):
        writer = directory.rpartition("/")[2]
        codec = FileCodec(fs, writer, filters, StoreDefinition.from_json(text))
        names = list_wal(fs, writer)
        try:
            newest = newest_file(fs, writer, codec, names)
        except CorruptData as error:
            _log.warning("windows of writer %s stay, for a file of them is damaged: %s", writer, error)
            continue
        # Of the files before one that follows only recorded windows, no window comes back.
        if newest is not None and newest[1][0].window <= recorded_window(head, writer):
            found += [layout.wal_path(writer, name) for name in names if name < newest[0]]
    return found
