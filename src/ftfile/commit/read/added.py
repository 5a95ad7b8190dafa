"""What one record added, also after a vacuum has deleted the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.read.add_table import Block
from ftfile.commit.read.ranges import cover, list_ranges, read_range
from ftfile.core.errors import CorruptData, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.log import CommitLog
    from ftfile.fs.api import FileSystem

__all__ = ("added_by",)

TRIES = 5


def added_by(log: CommitLog, version: int) -> Sequence[Add]:
    """Return the adds of a version; once its record is deleted, those of them that are in the newest snapshot.

    Raises:
        CorruptData: the record is missing, or the ranges that stand for it.
    """
    for _ in range(TRIES):
        if version < log.read_on().log_start:
            try:
                return _from_ranges(log.fs, version)
            except NotFound:
                continue  # a larger range has replaced one since the listing
        record = log.read_record(version)
        # What lies at a version before the log's start may be a dead record.
        if version < log.read_on().log_start:
            continue
        if record is not None:
            return record.adds
        break
    path = layout.record_path(version)
    raise CorruptData(path, "a record, or a range that stands for it", "neither", "Restore it from a copy")


def _from_ranges(fs: FileSystem, version: int) -> list[Add]:
    removed: set[str] = set()
    blocks: list[Block] = []
    for name in cover(list_ranges(fs)):
        if name.last < version:
            continue
        content = read_range(fs, name, ended=False)
        removed.update(content.removes)
        for document in content.kept if name.first <= version else ():
            versions = document.versions()
            chosen = [added == version for added in versions.added]
            if any(chosen):
                blocks.append(Block(versions.ids, document.rest, chosen))
    for block in blocks:
        block.without(removed)
    return list({add.id: add for block in blocks for add in block.adds()}.values())
