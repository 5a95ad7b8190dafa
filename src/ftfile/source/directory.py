"""An ftfile directory as Python sees it: `ftfile.open(path)`."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.kind_of_directory import refuse_store
from ftfile.commit.files import list_or_empty, walk
from ftfile.commit.format import layout
from ftfile.commit.log.times import version_at
from ftfile.commit.opening import open_log
from ftfile.commit.places import Place, find_part
from ftfile.commit.read.dead_letters import DeadLetter, read_dead_letters
from ftfile.commit.read.history import Version, read_history
from ftfile.commit.read.snapshot import Snapshot, take_snapshot
from ftfile.core.errors import ConfigError, CorruptData, StorageError
from ftfile.core.units import parse_time
from ftfile.fs.calls.parallel import parallel
from ftfile.fs.registry import normalise
from ftfile.parts.reader import read_add
from ftfile.source.following import follow_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from ftfile.commit.format.model import Add
    from ftfile.core.context import Context
    from ftfile.fs.api import FileSystem

__all__ = ("Directory", "FinishedFile")

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
        partition: the sub-directory, such as `column=value/…`; empty for the directory itself.
        query_id: the streaming query that wrote it, or the id of a batch write.
        batch_id: the micro-batch; 0 for a batch write.
        checksum: of the bytes on storage.
    """

    path: str
    rows: int
    size_bytes: int
    partition: str
    query_id: str
    batch_id: int
    checksum: str
    state: FileState


class Directory:
    """Reads committed rows and nothing else; every call looks at the log anew. Needs no Spark."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        key_provider: str | None,
        storage: Mapping[str, str] | None,
        context: Context,
    ) -> None:
        self.path = normalise(os.fspath(path))
        self._log = open_log(path, key_provider, storage, context)
        self.file_system = self._log.fs

    def __repr__(self) -> str:
        return f"ftfile.open({self.path!r})"

    def require_files(self) -> None:
        """Raise a ConfigError if the directory is a store of keys and values.

        A log that cannot be read raises nothing here: who reads rows will hear of it, and `verify` says how.
        """
        with contextlib.suppress(CorruptData, StorageError):
            refuse_store(self._log.read_on(), self.path)

    def version(self) -> int:
        """Return the newest version; -1 when nothing has been committed yet."""
        return self._log.read_on().version

    def version_at(self, time: str | datetime) -> int:
        """Return the newest version that was created at or before a time, by the store's clock.

        Text is as in ISO 8601, such as `2024-07-01T12:00:00Z`; without a zone it is UTC.

        Raises:
            ConfigError: it is no time, or no version is as old as that.
        """
        text = time if isinstance(time, str) else time.isoformat()
        try:
            return version_at(self._log, parse_time(text))
        except ValueError:
            raise ConfigError(f"{text!r} is no time as in ISO 8601, such as 2024-07-01T12:00:00Z") from None

    def files(self, version: int | None = None) -> list[FinishedFile]:
        """Return the finished files of a version, by default the newest, in the order of their commits.

        Lists each of their directories once, to find what is missing.

        Raises:
            ConfigError: there is no such version.
        """
        parts = [add for add in take_snapshot(self._log, version).adds.values() if add.kind == "part"]
        return [
            FinishedFile(
                add.final_path or add.path,
                add.rows,
                add.length,
                layout.bucket_directory(add.bucket),
                add.origin.query_id,
                add.origin.last_batch,
                add.checksum,
                state,
            )
            for add, state in zip(parts, _file_states(self.file_system, parts), strict=True)
        ]

    def oldest_version(self) -> int:
        """Return the oldest version that vacuum has left, where `history` begins; 0 when nothing has been committed."""
        return self._log.read_on().log_start

    def history(self) -> list[Version]:
        """Return the commits that are kept, oldest first: from `oldest_version` on."""
        return read_history(self._log)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the live adds of a version with what is needed to read them."""
        return take_snapshot(self._log, version)

    def spark_schema(self, version: int | None = None) -> str:
        """Return the rows' schema as Spark's JSON.

        Raises:
            ConfigError: nothing has been committed, so that there is none.
        """
        return self._schema_of(take_snapshot(self._log, version))

    def to_batches(self, version: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a version, file by file, in bounded memory."""
        yield from self._rows(version)[1]

    def to_arrow(self, version: int | None = None) -> pa.Table:
        """Return all rows of a version; empty, with its schema, when there are none.

        Raises:
            ConfigError: nothing has been committed, or there is no such version.
            CorruptData: a file is not what was committed.
        """
        schema, batches = self._rows(version)
        return pa.Table.from_batches(batches, schema)

    def follow(
        self, offset: dict[str, Any] | None = None, **options: object
    ) -> Iterator[tuple[dict[str, Any], Iterator[pa.RecordBatch]]]:
        """Yield rows that were not read before, batch by batch, each with the offset that stands for all up to there.

        It ends where the log ends when it begins. Keep the offset, plain JSON, with what was made of the rows, and
        give it to the next call: every row comes once. Without one it begins with all rows that are there.

        Args:
            offset: that an earlier call yielded.
            options: those of a stream, such as `maxRowsPerTrigger=1000` or `startingVersion="latest"`.

        Raises:
            ConfigError: an option is wrong, or nothing has been committed, so that there are no columns.
            SourceError: the log cannot be followed from the offset: `HistoryGone`, `AnotherLog`, `ChangedRows`.
        """
        head = self._log.read_on()
        if head.schema is None:
            raise ConfigError(f"nothing has been committed to {self.path!r} yet, so its columns are not known")
        return follow_log(self._log, self.path, arrow_schema(head.definitions[head.schema]), offset, options)

    def dead_letters(self) -> list[DeadLetter]:
        """Return the records of all batches that could not be written, with `badRecords=deadLetter`, and why.

        Raises:
            CorruptData: a file of dead letters is not what was committed.
        """
        return read_dead_letters(self._log)

    def _rows(self, version: int | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        snapshot = take_snapshot(self._log, version)
        schema, is_old = arrow_schema(self._schema_of(snapshot)), version is not None
        read = (
            read_add(self.file_system, add, snapshot.definitions[add.encoding], schema, is_old=is_old)
            for add in snapshot.adds.values()
        )
        return schema, chain.from_iterable(read)

    def _schema_of(self, snapshot: Snapshot) -> str:
        if snapshot.schema is None:
            raise ConfigError(f"nothing has been committed to {self.path!r} yet, so its columns are not known")
        schema: str = snapshot.definitions[snapshot.schema]
        return schema


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
