"""Directories of many batches, or of many files, written in a moment."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from msgspec import structs

import ftfile
from ftfile.core.checksum import checksum
from ftfile.core.context import SYSTEM
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Add, Origin, Record, StreamAuthor
from ftfile.log.format.record import encode_record
from ftfile.operate.compact import compact_log
from ftfile.testing.context import open_filesystem

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("link_files", "write_directory")

ENCODING = "text"
FILES_A_COMMIT = 1_000


def write_directory(path: Path, batches: int, files: int, encoding: dict[str, Any] | None = None) -> None:
    """Write a directory as this number of batches, of as many empty files each, leave it; without syncs.

    `encoding` describes the files, as the log has it.
    """
    CommitLog(open_filesystem(str(path))).prepare_directory()
    previous = ""
    definitions: dict[str, Any] = {ENCODING: encoding or {"format": {"name": "text"}}}
    schema = None
    if encoding is not None:
        schema = "columns"
        definitions[schema] = encoding["schema"]
    for batch in range(batches):
        adds = tuple(_add(batch) for _ in range(files))
        for add in adds:
            (path / (add.final_path or "")).touch()
        author = StreamAuthor("query", "run", batch, f"{batch}", None)
        record = Record(
            batch,
            SYSTEM.ids.unique(),
            author,
            0,
            adds=adds,
            tasks=2,
            previous_nonce=previous,
            definitions=definitions,
            schema=schema,
            encoding=None if schema is None else ENCODING,
        )
        _create(path, record)
        previous, definitions = record.nonce, {}
    _end_with_base(path)


def link_files(path: Path, files: int) -> None:
    """Commit further names of a directory's files, in commits of 1,000, until there are this many; without syncs.

    A file system allows some ten thousand names of a file.
    """
    head = CommitLog(open_filesystem(str(path))).refresh()
    originals = [*ftfile.open(path).snapshot().adds.values()]
    version, previous = head.version, head.nonce
    for batch, first in enumerate(range(len(originals), files, FILES_A_COMMIT)):
        numbers = range(first, min(files, first + FILES_A_COMMIT))
        author = StreamAuthor("links", "run", batch)
        adds = tuple(_linked(path, originals[number % len(originals)], batch) for number in numbers)
        version, now_ms = version + 1, SYSTEM.clock.now_ms()
        record = Record(version, SYSTEM.ids.unique(), author, now_ms, adds=adds, tasks=2, previous_nonce=previous)
        _create(path, record)
        previous = record.nonce
    _end_with_base(path)


def _create(path: Path, record: Record) -> None:
    encoded = encode_record(record)
    if encoded.companion is not None:
        (path / layout.companion_path(record.version, record.nonce)).write_bytes(encoded.companion)
    (path / layout.record_path(record.version)).write_bytes(encoded.content)


def _end_with_base(path: Path) -> None:
    """Let one file stand for all records, and one for the state, in which all files are at their final names."""
    compact_log(str(path))
    fs = open_filesystem(str(path))
    head = CommitLog(fs).refresh()
    head.unpublished.clear()
    write_checkpoint(fs, SYSTEM.ids, head)


def _linked(path: Path, original: Add, batch: int) -> Add:
    """Return the add of a further name of a file."""
    assert original.final_path is not None, f"{original.id} is no part"
    unique = SYSTEM.ids.unique()
    name = f"part-{batch:010d}-{layout.unique_part(unique)}{PurePosixPath(original.final_path).suffix}"
    final = str(PurePosixPath(original.final_path).with_name(name))
    os.link(path / original.final_path, path / final)
    staged = f"{layout.staged_directory('links')}/00000-0-{unique}.staged"
    return structs.replace(original, id=unique, path=staged, final_path=final, origin=Origin("links", batch, batch))


def _add(batch: int) -> Add:
    unique = SYSTEM.ids.unique()
    return Add(
        id=unique,
        kind="part",
        path=f"{layout.staged_directory('query')}/00000-0-{unique}.staged",
        final_path=f"part-{batch:010d}-{layout.unique_part(unique)}.txt",
        length=0,
        logical_length=0,
        checksum=checksum(b""),
        rows=0,
        directory_key="",
        encoding=ENCODING,
        origin=Origin("query", batch, batch),
    )
