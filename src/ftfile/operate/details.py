"""One version, one file, or two versions compared: batches, the offsets of their sources, and files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError, CorruptData, NotFound
from ftfile.log.format import layout
from ftfile.log.format.model import StreamAuthor
from ftfile.log.places import Place, find_part
from ftfile.log.read.compacted_records import cover, list_compacted, read_range
from ftfile.log.read.history import operation_of, version_of
from ftfile.log.read.snapshot import changes_between, take_snapshot
from ftfile.log.read.times import created_ms, parsed_version_at, version_time_ms
from ftfile.read.shares import part_named
from ftfile.rows.spark_types import quoted_name, sql_type, sql_types
from ftfile.storage.calls import THREADS_MAX, parallel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Record
    from ftfile.log.read.history import Version
    from ftfile.log.read.snapshot import Snapshot


# Spark's text in a checkpoint for a source that has given no offset yet.
NO_OFFSET = "-"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The rows that were read of a source, or of one of its partitions."""

    source: int  # its number in the query, as in Spark's checkpoint: `sources/0`
    partition: str | None  # such as `events/7` for a topic and partition of Kafka; None where an offset has none
    start: Any  # where the batch before had ended, as Spark writes it; None where nothing had been read before
    end: Any  # where the last of these batches ended; equal to `start` where they read nothing


@dataclass(frozen=True, slots=True)
class Batches:
    """Consecutive batches of a streaming query, and what Spark read in them."""

    query_id: str
    first_batch: int
    last_batch: int
    # Where each source stood before the first batch, as Spark writes it; None for the start, and where it is not known:
    # without `checkpointLocation` on the writer, or where the record is not kept.
    offsets_before: list[Any] | None
    offsets: list[Any] | None  # where each source stood after the last batch; None where it is not known
    # What they read of each source, and of each partition of Kafka; None where one end is not known.
    offset_ranges: tuple[OffsetRange, ...] | None


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A finished file, or a piece of one that stays open, or runs of a store, as a record added it."""

    path: str  # relative to the directory; of a finished file, its name, else the file that has it
    kind: str  # `part` for a finished file, else `segment`
    rows: int
    size_bytes: int
    directory: str
    first_batch: int
    last_batch: int


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A finished file that a record replaces or drops."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class VersionDetails:
    """The result of `Directory.version_details`."""

    commit: Version  # as `Directory.history` has it
    run_id: str | None  # of the run of the query that wrote it; None for other writes
    offsets_before: list[Any] | None  # see `Batches`
    offset_ranges: tuple[OffsetRange, ...] | None  # likewise; None for other writes
    added: tuple[AddedFile, ...]
    removed: tuple[RemovedFile, ...]  # finished files that it replaces or drops
    segments_removed: int  # number of pieces of open files that it ends


@dataclass(frozen=True, slots=True)
class ColumnDetails:
    """A column of a version."""

    name: str
    type: str  # as SQL spells it, such as `bigint` or ``struct<`a`:array<string>>``
    nullable: bool


@dataclass(frozen=True, slots=True)
class VersionSchema:
    """The result of `Directory.schema`."""

    version: int
    columns: tuple[ColumnDetails, ...]
    ddl: str  # all columns as SQL, as `spark.readStream.schema(…)` takes them


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that one of two versions has and the other has not, or that has another type."""

    name: str
    old_type: str | None  # as SQL spells it, such as `bigint`; None where the first version has no such column
    new_type: str | None  # likewise, of the second version


@dataclass(frozen=True, slots=True)
class Changes:
    """The result of `Directory.diff`."""

    old_version: int
    new_version: int
    added: tuple[AddedFile, ...]  # files, and pieces of open ones, that the new version has and the old one has not
    removed: tuple[AddedFile, ...]  # and the reverse
    # Those that are only in other files, as after a compaction, are neither; some that came and went may be both.
    rows_added: int
    rows_removed: int
    columns: tuple[ColumnChange, ...]


@dataclass(frozen=True, slots=True)
class FileDetails:
    """The result of `Directory.file_details`."""

    path: str
    version: int  # the one that brought it
    time_ms: int | None  # of that version, since 1970 UTC by the store's clock; None where its record is not kept
    operation: str | None  # of that version: `stream`, `batch`, `migrate`, or of maintenance; None likewise
    rows: int
    size_bytes: int  # on storage
    plain_bytes: int  # before compression of lines and encryption
    directory: str
    checksum: str
    format: str  # of the file, such as `parquet`
    filters: tuple[str, ...]  # through which its bytes went, such as `gzip`, in this order
    state: str  # as in `FinishedFile`, and `taken` or `damaged` where another file is at its name
    batches: Batches | None  # those that its rows come from; None if a batch write brought them
    job_id: str | None  # of the batch write that brought them, or of maintenance where that is all there is
    pieces: int  # number of pieces of open files that it was made of; 0 for none, and where its record is not kept


def version_details(log: CommitLog, version: int) -> VersionDetails:
    """Return the files that a version adds and removes; see `OpenedDirectory.version_details`."""
    head = log.refresh()
    record = log.read_record(version) if head.log_start <= version <= head.version else None
    if record is None:
        raise ConfigError(f"there is no version {version}: the oldest is {head.log_start}, the newest {head.version}")
    author = record.author
    stream = author if isinstance(author, StreamAuthor) else None
    before = _offsets_of(log, stream.query_id, stream.batch_id - 1, version - 1) if stream else None
    return VersionDetails(
        commit=version_of(record, created_ms(log, version)),
        run_id=stream.run_id if stream else None,
        offsets_before=before,
        offset_ranges=_ranges_of(stream.batch_id, before, stream.offsets) if stream else None,
        added=tuple(map(_added, record.adds)),
        removed=tuple(
            RemovedFile(remove.final_path or "", remove.length) for remove in record.removes if remove.kind == "part"
        ),
        segments_removed=sum(remove.kind == "segment" for remove in record.removes),
    )


def file_details(log: CommitLog, path: str, version: int | None = None) -> FileDetails:
    """Return the details of a file of a version; see `OpenedDirectory.file_details`."""
    snapshot = take_snapshot(log, version)
    add = part_named(snapshot, path)
    head = log.refresh()
    added = _version_of_add(log, add)
    record = log.read_record(added) if added >= head.log_start else None
    whole = next((brought for brought in record.adds if brought.id == add.id), add) if record is not None else add
    is_stream, place = add.origin.query_id in head.queries, find_part(log.fs, add).place
    return FileDetails(
        path=path,
        version=added,
        time_ms=version_time_ms(log, added),
        operation=None if record is None else operation_of(record),
        rows=add.rows,
        size_bytes=add.length,
        plain_bytes=add.logical_length,
        directory=layout.directory_of(add.directory_key),
        checksum=add.checksum,
        format=snapshot.definitions[add.encoding]["format"]["name"],
        filters=add.filters,
        state=_STATES.get(place, place.value),
        batches=_batches(log, add, added) if is_stream else None,
        job_id=None if is_stream else add.origin.query_id,
        pieces=len({piece.add_id for piece in whole.ranges}),
    )


def diff(log: CommitLog, old: int | str | datetime, new: int | str | datetime | None) -> Changes:
    """Return the differences of two versions, or of those of two times; see `OpenedDirectory.diff`."""
    first, second = (_snapshot_of(log, version) for version in (old, new))
    added, removed = changes_between(first, second)
    rows_added, rows_removed = sum(add.rows for add in added), sum(add.rows for add in removed)
    if added and removed:
        # Rows that were written anew came and went in no record.
        in_both = rows_removed - _rows_ended(log, first.version, second.version)
        in_both = min(max(in_both, 0), rows_added, rows_removed)
        rows_added, rows_removed = rows_added - in_both, rows_removed - in_both
    return Changes(
        first.version,
        second.version,
        tuple(map(_added, added)),
        tuple(map(_added, removed)),
        rows_added,
        rows_removed,
        tuple(_column_changes(_types_of(first), _types_of(second))),
    )


def version_schema(log: CommitLog, version: int | None) -> VersionSchema:
    """Return the columns of a version; see `OpenedDirectory.schema`."""
    snapshot = take_snapshot(log, version)
    if snapshot.schema is None:
        raise ConfigError("nothing has been committed yet, so the columns are not known")
    with Decoding(layout.LOG, "the schema of a version"):
        fields = json.loads(snapshot.definitions[snapshot.schema])["fields"]
        columns = tuple(ColumnDetails(field["name"], sql_type(field["type"]), field["nullable"]) for field in fields)
        ends = ["" if column.nullable else " NOT NULL" for column in columns]
        texts = (f"{quoted_name(column.name)} {column.type}{end}" for column, end in zip(columns, ends, strict=True))
        return VersionSchema(snapshot.version, columns, ", ".join(texts))


def _snapshot_of(log: CommitLog, version: int | str | datetime | None) -> Snapshot:
    if isinstance(version, str | date):  # a date, too, as in other calls
        version = parsed_version_at(log, version)
    return take_snapshot(log, version)


def _rows_ended(log: CommitLog, first: int, second: int) -> int:
    """Return the rows of one version that are not in another; of one from before, the rows that came since.

    What lies between a restore and the version that it restored did not happen.
    """
    rows, oldest = 0, log.refresh().log_start
    records: dict[int, Record | None] = {}
    while first != second:
        newer = max(first, second)
        if newer not in records:
            versions = range(max(newer + 1 - THREADS_MAX, min(first, second) + 1), newer + 1)
            records = dict(zip(versions, parallel(log.fs, log.read_record, versions), strict=True))
        record = records[newer]
        if record is None:
            raise CorruptData(layout.record_path(newer), "a record", "no record", "Read again later")
        source = newer - 1
        if record.restored is not None and record.restored >= oldest:
            source = record.restored
        else:
            rows += record.rows_removed if newer == second else version_of(record, None).rows
        first, second = (source, second) if newer == first else (first, source)
    return rows


def _types_of(snapshot: Snapshot) -> dict[str, str]:
    """Return the types of the columns of a version; none before the first write."""
    if snapshot.schema is None:
        return {}
    with Decoding(layout.LOG, "the schema of a version"):
        return sql_types(snapshot.definitions[snapshot.schema])


def _column_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[ColumnChange]:
    """Yield the columns that differ: those of the new types first."""
    for name in {**new, **old}:
        if old.get(name) != new.get(name):
            yield ColumnChange(name, old.get(name), new.get(name))


# Of those places that are not called as users know them.
_STATES = {Place.STAGED: "pending", Place.IMPOSSIBLE: "pending", Place.NOWHERE: "missing"}


def _added(add: Add) -> AddedFile:
    first, last = add.origin.first_batch, add.origin.last_batch
    directory = layout.directory_of(add.directory_key)
    return AddedFile(add.final_path or add.path, add.kind, add.rows, add.length, directory, first, last)


def _batches(log: CommitLog, add: Add, version: int) -> Batches:
    query_id, first, last = add.origin.query_id, add.origin.first_batch, add.origin.last_batch
    before, after = (_offsets_of(log, query_id, batch_id, version) for batch_id in (first - 1, last))
    return Batches(query_id, first, last, before, after, _ranges_of(first, before, after))


def _ranges_of(first: int, before: list[Any] | None, after: list[Any] | None) -> tuple[OffsetRange, ...] | None:
    """Return the ranges of batches from this one on; None where the offsets of an end are not known."""
    if after is None or (before is None and first > 0):
        return None
    return ranges_between(before or [], after)


def _offsets_of(log: CommitLog, query_id: str, batch_id: int, version: int) -> list[Any] | None:
    """Return the offsets of a batch that was committed at a version or before; None where they are not known."""
    if batch_id < 0:
        return None
    for earlier in range(version, log.refresh().log_start - 1, -1):
        record = log.read_record(earlier)
        author = record.author if record is not None else None
        if isinstance(author, StreamAuthor) and author.query_id == query_id and author.batch_id <= batch_id:
            return author.offsets if author.batch_id == batch_id else None
    return None


def _version_of_add(log: CommitLog, add: Add) -> int:
    """Return the version that brought a live add: ranges know it, and of the newest versions, records."""
    while True:
        end = -1
        try:
            for name in cover(list_compacted(log.fs)):
                end = name.last
                for document in read_range(log.fs, name, ended=False).kept:
                    versions = document.versions()
                    if add.id in versions.ids:
                        return versions.added[versions.ids.index(add.id)]
        except NotFound:
            continue  # a larger range has replaced one since the listing
        head = log.refresh()
        for version in range(head.version, max(end, head.log_start - 1), -1):
            record = log.read_record(version)
            if record is not None and any(brought.id == add.id for brought in record.adds):
                return version
        raise CorruptData(layout.COMPACTED, f"the version of {add.final_path!r}", "no record of it", "Read again later")


def ranges_between(before: Sequence[Any], after: Sequence[Any]) -> tuple[OffsetRange, ...]:
    """Return the ranges between two lists of offsets, one for each source; the first is empty for a query's start.

    An offset that is an object of objects has partitions: topics, and the partitions of each.
    """
    return tuple(
        OffsetRange(number, partition, start, end)
        for number, (first, last) in enumerate(zip_longest(before[: len(after)], after))
        if last not in (None, NO_OFFSET)
        for partition, start, end in _by_partition(None if first == NO_OFFSET else first, last)
    )


def _by_partition(first: Any, last: Any) -> Iterator[tuple[str | None, Any, Any]]:  # noqa: ANN401 - any JSON
    """Yield each partition of a source with its offsets before and after; None and both offsets where it has none."""
    if not last or not isinstance(last, dict) or not all(isinstance(partitions, dict) for partitions in last.values()):
        yield None, first, last
        return
    for topic, ends in last.items():
        starts = first.get(topic) if isinstance(first, dict) else None
        for partition, end in ends.items():
            yield f"{topic}/{partition}", starts.get(partition) if isinstance(starts, dict) else None, end
