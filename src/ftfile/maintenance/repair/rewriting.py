"""Repairs that are records: rows that are given up, and parts that get another name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.format.model import Body, Remove
from ftfile.commit.places import has_content
from ftfile.commit.protocol import record_of
from ftfile.core.errors import CommitError, CorruptData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.format.model import Add, MaintenanceAuthor
    from ftfile.commit.log.log import CommitLog
    from ftfile.core.ids import IdSource
    from ftfile.fs.api import FileSystem

__all__ = ("OPERATION", "copy_to", "record_changes", "renamed")

OPERATION = "repair"
TRIES = 100
# Of a file that is copied, in memory at once.
PIECE_BYTES = 4 << 20
# One ending for the format, one for the compression.
_ENDINGS = re.compile(r"(?:\.[A-Za-z0-9]{1,12}){1,2}$")


def renamed(add: Add, ids: IdSource) -> Add:
    """Return a part with another id, staged and final name; encrypted content stays readable under it."""
    # Content is bound to the part of the id that names have.
    unique = layout.unique_part(add.id)
    new_id = unique + ids.unique()[len(unique) :]
    endings = _ENDINGS.search((add.final_path or "").rpartition("/")[2])
    directory = layout.bucket_directory(add.bucket)
    final = f"part-{add.origin.last_batch:010d}-repaired-{layout.unique_part(new_id)}{endings[0] if endings else ''}"
    staged = f"{layout.parent(add.path)}/repaired-{new_id}.staged"
    return replace(add, id=new_id, path=staged, final_path=f"{directory}/{final}" if directory else final)


def copy_to(fs: FileSystem, add: Add, source: str) -> None:
    """Stage a copy of a file as that of a part, unless that is there; CorruptData if it is not what was recorded."""
    if has_content(fs, add.path, add):
        return
    directory = layout.staged_directory(OPERATION, 0)
    fs.make_directories(directory)
    fs.make_directories(layout.parent(add.path))
    copy = f"{directory}/{fs.context.ids.unique()}.staged"
    with fs.open(source) as file, fs.create(copy) as stream:
        for offset in range(0, file.size_bytes, PIECE_BYTES):
            stream.write(file.read_at(offset, PIECE_BYTES))
        if stream.has_capability("hsync"):
            stream.hsync()
    if not has_content(fs, copy, add):
        raise CorruptData(source, f"{add.length} bytes with {add.checksum}", "others", "Restore it from a copy")
    fs.rename(copy, add.path)
    for above in layout.ancestors(layout.parent(add.path)):
        fs.sync_directory(above)


def record_changes(
    log: CommitLog, author: MaintenanceAuthor, given_up: Sequence[Add], renames: Sequence[tuple[Add, Add]]
) -> None:
    """Create one record that ends adds, and begins others of the same rows.

    The removed names belong to others, or to nobody: publishing the record must not retire what is there, so that the
    record says of each a name that nothing ever had. CommitError if others changed the log at every try.
    """
    changes: list[tuple[Add, Add | None]] = [*((add, None) for add in given_up), *renames]
    read_version = log.read_on(durable=True).version
    nonce = log.ids.unique()
    for _ in range(TRIES):
        head = log.read_on(durable=True)
        live = [(ends, begins) for ends, begins in changes if head.is_live(ends, read_version)]
        ended = {ends.id for ends, _ in live}
        body = Body(
            adds=tuple(begins for _, begins in live if begins is not None),
            removes=tuple(_removal(ends) for ends, _ in live),
            assembly_jobs=tuple(job for job in head.assembly_jobs if not ended & {add.id for add in job.inputs}),
        )
        if not live or log.create(record_of(log, head, body, author, nonce)) is not None:
            return
    raise CommitError("others changed the log at every try: repair again later")


def _removal(add: Add) -> Remove:
    if add.kind == "segment":
        return Remove.of(add)
    return replace(Remove.of(add), final_path=f"{layout.RETIRED}/{add.id}.given-up")
