"""Directories of very many files that can be read: further names of those that are there, in real records."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import ftfile
from ftfile.commit.format import layout
from ftfile.commit.format.model import Origin, Record, StreamAuthor
from ftfile.commit.log.bases import write_base
from ftfile.commit.log.log import CommitLog
from ftfile.core.context import SYSTEM
from ftfile.maintenance.ranges import merge_ranges
from ftfile.testing.context import open_filesystem

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.commit.format.model import Add

__all__ = ("link_files",)

FILES_A_COMMIT = 1_000


def link_files(path: Path, files: int) -> None:
    """Commit further names of a directory's files, in commits of 1,000, until there are this many; without syncs."""
    fs = open_filesystem(str(path))
    log = CommitLog(fs)
    originals = [*ftfile.open(path).snapshot().adds.values()]
    head = log.read_on()
    author = StreamAuthor(f"{originals[0].origin.query_id}-links", "run-1", 0)
    for batch, first in enumerate(range(len(originals), files, FILES_A_COMMIT)):
        numbers = range(first, min(files, first + FILES_A_COMMIT))
        adds = tuple(_linked(path, originals[number % len(originals)], author.query_id, batch) for number in numbers)
        now_ms = SYSTEM.clock.now_ms()
        author = replace(author, batch_id=batch)
        record = Record(
            head.version + 1, SYSTEM.ids.unique(), author, now_ms, adds=adds, tasks=2, previous_nonce=head.nonce
        )
        log.create(record)
        head = log.read_on()
    merge_ranges(str(path))
    # The files are at their final names already.
    head = CommitLog(fs).read_on()
    head.unpublished.clear()
    write_base(fs, SYSTEM.ids, head)


def _linked(path: Path, original: Add, query: str, batch: int) -> Add:
    """Return the add of a further name of a file; a file system allows some ten thousand of them."""
    assert original.final_path is not None, f"{original.id} is no part"
    unique = SYSTEM.ids.unique()
    name = f"part-{batch:010d}-{layout.unique_part(unique)}.parquet"
    final = str(PurePosixPath(original.final_path).with_name(name))
    os.link(path / original.final_path, path / final)
    staged = f"{layout.staged_directory(query, batch)}/00000-0-{unique}.staged"
    return replace(original, id=unique, path=staged, final_path=final, origin=Origin(query, batch, batch))
