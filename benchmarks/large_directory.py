"""Directories of many batches, written in a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.commit.format import layout
from ftfile.commit.format.model import Add, Origin, Record, StreamAuthor
from ftfile.commit.format.record import encode_record
from ftfile.commit.log.bases import write_base
from ftfile.commit.log.log import CommitLog
from ftfile.core.checksum import checksum
from ftfile.core.context import SYSTEM
from ftfile.maintenance.ranges import merge_ranges
from ftfile.testing.context import open_filesystem

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("write_directory",)

ENCODING = "text"


def write_directory(path: Path, batches: int, files: int, encoding: dict[str, Any] | None = None) -> None:
    """Write a directory as this number of batches, of as many empty files each, leave it; without syncs.

    `encoding` describes the files, as the log has it.
    """
    fs = open_filesystem(str(path))
    CommitLog(fs).prepare_directory()
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
        content = encode_record(record).content
        (path / layout.record_path(batch)).write_bytes(content)
        previous, definitions = record.nonce, {}
    merge_ranges(str(path))
    log = CommitLog(fs)
    head = log.read_on()
    head.unpublished.clear()
    write_base(fs, SYSTEM.ids, head)


def _add(batch: int) -> Add:
    unique = SYSTEM.ids.unique()
    return Add(
        id=unique,
        kind="part",
        path=f"{layout.staged_directory('query', batch)}/00000-0-{unique}.staged",
        final_path=f"part-{batch:010d}-{layout.unique_part(unique)}.txt",
        length=0,
        logical_length=0,
        checksum=checksum(b""),
        rows=0,
        bucket="",
        encoding=ENCODING,
        origin=Origin("query", batch, batch),
    )
