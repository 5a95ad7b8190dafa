"""The finished files of a version, and where each of them is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ftfile.arrays.spark_types import arrow_schema
from ftfile.commit.files import list_or_empty, walk
from ftfile.commit.format import layout
from ftfile.commit.places import Place, find_part
from ftfile.commit.read.snapshot import take_snapshot
from ftfile.core.arguments import require_count
from ftfile.fs.calls.parallel import parallel
from ftfile.source.selection import path_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.fs.api import FileSystem

# Files that a listing tells of in the time that it takes to look for one.
LISTED_AT_ONCE = 10

FileState: TypeAlias = Literal["published", "pending", "retired", "missing"]

_STATES: dict[Place, FileState] = {
    Place.PUBLISHED: "published",
    Place.STAGED: "pending",
    Place.TAKEN: "pending",
    Place.IMPOSSIBLE: "pending",
    Place.RETIRED: "retired",
    Place.NOWHERE: "missing",
    Place.DAMAGED: "missing",
}


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """One committed file.

    Its state is `published` where it is at `path` with its length; `pending` while it is committed and not there yet;
    `retired` where a later version has replaced it; `missing` where none of these has it as it was committed.

    Attributes:
        path: relative to the directory.
        size_bytes: on storage.
        partition: the values of its partition columns, as in its rows; empty where there are none.
        directory: the sub-directory, such as `column=value/…`; empty for the directory itself.
        query_id: the streaming query that wrote it, else None.
        batch_id: its last micro-batch of that query, else None.
        job_id: the batch write or the maintenance operation that wrote it, as `history()` has it, else None.
        checksum: of the bytes on storage.
    """

    path: str
    rows: int
    size_bytes: int
    partition: dict[str, Any]
    directory: str
    query_id: str | None
    batch_id: int | None
    job_id: str | None
    checksum: str
    state: FileState


def finished_files(log: CommitLog, version: int | None = None, limit: int | None = None) -> list[FinishedFile]:
    """Return the finished files of a version, or the last ones; see `Directory.files`."""
    require_count("limit", limit)
    snapshot = take_snapshot(log, version)
    newest = (add for add in snapshot.newest_first() if add.kind == "part")
    parts = [*islice(newest, None if limit is None else min(limit, len(snapshot.adds)))][::-1]
    partitions = _partitions(snapshot, parts)
    queries, found = log.read_on().queries, []
    is_few = len(parts) * LISTED_AT_ONCE < len(snapshot.adds)
    states = parallel(log.fs, lambda part: _STATES[find_part(log.fs, part).place], parts) if is_few else None
    for add, state in zip(parts, states or _file_states(log.fs, parts), strict=True):
        origin = add.origin
        is_stream = origin.query_id in queries
        found.append(
            FinishedFile(
                path=add.final_path or add.path,
                rows=add.rows,
                size_bytes=add.length,
                partition=dict(partitions.get((add.bucket, add.encoding), {})),
                directory=layout.bucket_directory(add.bucket),
                query_id=origin.query_id if is_stream else None,
                batch_id=origin.last_batch if is_stream else None,
                job_id=None if is_stream else origin.query_id,
                checksum=add.checksum,
                state=state,
            )
        )
    return found


def _partitions(snapshot: Snapshot, parts: Sequence[Add]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return, for each bucket and encoding, the values of the columns in its path."""
    if snapshot.schema is None:
        return {}
    schema = arrow_schema(snapshot.definitions[snapshot.schema])
    values = {
        (bucket, key): path_values(snapshot.definitions[key], bucket, schema)
        for bucket, key in {(add.bucket, add.encoding) for add in parts}
    }
    return {place: {name: value.as_py() for name, value in found.items()} for place, found in values.items()}


def _file_states(fs: FileSystem, parts: Sequence[Add]) -> list[FileState]:
    """Return the state of each part; list the stage and every directory once, and search only for odd parts."""
    directories = sorted({layout.parent(part.final_path or "") for part in parts})
    listed = parallel(fs, lambda directory: list_or_empty(fs, directory), directories)
    sizes = {info.path: info.size_bytes for infos in listed for info in infos if not info.is_directory}
    staged = walk(fs, layout.STAGED)
    found = [
        sizes.get(part.final_path or "") == part.length and (part.path not in staged or part.path == part.final_path)
        for part in parts
    ]
    odd = [part for part, is_there in zip(parts, found, strict=True) if not is_there]
    places = iter(parallel(fs, lambda part: find_part(fs, part).place, odd))
    return ["published" if is_there else _STATES[next(places)] for is_there in found]
