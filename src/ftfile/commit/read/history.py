"""The commits that the log keeps, in a few numbers each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.commit.format.model import MaintenanceAuthor, StreamAuthor
from ftfile.commit.log.times import created_ms
from ftfile.commit.read.snapshot import read_records

if TYPE_CHECKING:
    from ftfile.commit.format.model import Record
    from ftfile.commit.log.log import CommitLog

__all__ = ("Version", "read_history", "version_of")


@dataclass(frozen=True, slots=True)
class Version:
    """One commit.

    Attributes:
        operation: `stream`, `batch`, or a maintenance operation.
        query_id: of a streaming write, else None.
        batch_id: of a streaming write, else None.
        job_id: of a batch write or a maintenance operation, else None.
        time_ms: of its creation, by the store's clock, in milliseconds since 1970 UTC; see `Directory.version_at`.
        rows: number that it brought, in finished or in open files, or in runs of a store.
        size_bytes: of the files added, or of the runs.
        files: number of files added; none in a store.
        overwrite: True if it replaced everything that was there.
        replaces: the condition on the partitions that it replaced, or `partitions of the rows`; None if it is no
            overwrite of partitions.
        restored_version: of a restore, the version whose rows came back, else None.
        bad_records: number that could not be written.
        durability: of its files before the commit: `hsync`, `close`, `none`; None when it brought none.
        offsets: Spark's offsets of the batch, one for each source, when the checkpoint was known.
    """

    version: int
    operation: str
    query_id: str | None
    batch_id: int | None
    job_id: str | None
    time_ms: int
    rows: int
    size_bytes: int
    files: int
    files_removed: int
    overwrite: bool
    replaces: str | None
    restored_version: int | None
    bad_records: int
    durability: str | None
    offsets: list[Any] | None


def read_history(log: CommitLog) -> list[Version]:
    """Return the commits that are kept, oldest first."""
    versions = [version_of(record, created_ms(log, record.version)) for record in read_records(log)]
    oldest = log.read_on().log_start
    return [version for version in versions if version.version >= oldest]


def version_of(record: Record, time_ms: int | None) -> Version:
    """Return a record in a few numbers, given its time by the store's clock, or None where that is not known."""
    author = record.author
    stream = author if isinstance(author, StreamAuthor) else None
    operation = author.operation if isinstance(author, MaintenanceAuthor) else "batch"
    return Version(
        version=record.version,
        operation="stream" if stream else operation,
        query_id=stream.query_id if stream else None,
        batch_id=stream.batch_id if stream else None,
        job_id=None if isinstance(author, StreamAuthor) else author.job_id,
        time_ms=record.time_ms if time_ms is None else time_ms,
        rows=record.metrics.get("rows", 0),
        size_bytes=sum(add.length for add in record.adds),
        files=sum(add.kind == "part" for add in record.adds),
        files_removed=sum(remove.kind == "part" for remove in record.removes),
        overwrite=record.overwrite,
        replaces=record.replaces,
        restored_version=record.restored,
        bad_records=record.metrics.get("badRecords", 0),
        durability=record.metrics.get("durability"),
        offsets=stream.offsets if stream else None,
    )
