"""Details of a version, of a file, and of the difference between two versions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError, CorruptData, NotFound
from ftfile.log.format import layout
from ftfile.log.format.adds import total_rows
from ftfile.log.format.model import StreamAuthor
from ftfile.log.places import Place, find_part
from ftfile.log.read.compacted_records import cover, list_compacted, read_compacted
from ftfile.log.read.history import offsets_of, operation_of, version_of
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


# Spark's text in a checkpoint for a source without an offset.
NO_OFFSET = "-"
# States for places whose own name is not a state for users.
_STATES = {Place.STAGED: "pending", Place.IMPOSSIBLE: "pending", Place.NOWHERE: "missing"}


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The rows that were read from a source, or from one of its partitions."""

    source: int  # its number in the query, as in Spark's checkpoint: `sources/0`
    # such as `events/7` for a topic and partition of Kafka; None for an offset without partitions
    partition: str | None
    start: Any  # end of the batch before, as Spark writes it; None if nothing had been read before
    end: Any  # end of the last of these batches; equal to `start` if they read nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Consecutive batches of a streaming query, and the offsets that Spark read in them.

    The commits of `ftfile.writer` are batches of a query with its `app_id`, and their positions are its offsets.
    """

    query_id: str
    first_batch: int
    last_batch: int
    # Offsets of the sources before the first batch, as Spark writes them; None at the start of the query. None also if
    # they are not known: the writer had no `checkpointLocation`, or the record is no longer kept.
    offsets_before: list[Any] | None
    offsets: list[Any] | None  # offsets of the sources after the last batch; None if not known
    # For each source, and each partition of Kafka. None if the start or the end is not known.
    offset_ranges: tuple[OffsetRange, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A finished file, a segment of an open file, or a run of a store, as added by a record."""

    path: str  # relative to the directory: the name of a finished file, else the file that contains the segment
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDetails:
    """The result of `OpenedDirectory.version_details`."""

    commit: Version  # as in `Directory.history`
    run_id: str | None  # run of the query that wrote it; None for other writes
    offsets_before: list[Any] | None  # see `Batches`
    offset_ranges: tuple[OffsetRange, ...] | None  # see `Batches`; None for other writes
    added: tuple[AddedFile, ...]
    removed: tuple[RemovedFile, ...]  # finished files that it replaces or drops
    segments_removed: int  # number of removed segments of open files


@dataclass(frozen=True, slots=True)
class ColumnDetails:
    """A column of a version."""

    name: str
    type: str  # in SQL, such as `bigint` or ``struct<`a`:array<string>>``
    nullable: bool


@dataclass(frozen=True, slots=True)
class VersionSchema:
    """The result of `OpenedDirectory.schema`."""

    version: int
    columns: tuple[ColumnDetails, ...]
    ddl: str  # all columns in SQL, as `spark.readStream.schema(…)` accepts them


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that only one of two versions has, or whose type differs."""

    name: str
    old_type: str | None  # in SQL, such as `bigint`; None if the first version does not have the column
    new_type: str | None  # the same for the second version


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDifference:
    """The result of `OpenedDirectory.diff`."""

    old_version: int
    new_version: int
    added: tuple[AddedFile, ...]  # files, and segments of open files, that only the new version has
    removed: tuple[AddedFile, ...]  # files and segments that only the old version has
    # Rows that were only moved to other files, as by a compaction, are not counted. Rows that were added and removed
    # between the versions may be counted in both.
    rows_added: int
    rows_removed: int
    columns: tuple[ColumnChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDetails:
    """The result of `OpenedDirectory.file_details`."""

    path: str
    version: int  # version that added the file
    time_ms: int | None  # of that version, since 1970 UTC by the storage's clock; None if its record is no longer kept
    operation: str | None  # of that version: `stream`, `batch`, `migrate`, or a maintenance operation; None as above
    rows: int
    size_bytes: int  # on storage
    plain_bytes: int  # before compression of lines and encryption
    directory: str
    checksum: str
    format: str  # of the file, such as `parquet`
    filters: tuple[str, ...]  # applied to its bytes in this order, such as `gzip`
    state: str  # as in `FinishedFile`; also `taken` or `damaged` if another file has its name
    batches: Batches | None  # batches of its rows; None if a batch write added them
    operation_id: str | None  # of the batch write that added the rows, or of maintenance if no other author is known
    segments: int  # number of assembled segments; 0 if there were none, and if the record is no longer kept


def version_details(log: CommitLog, version: int) -> VersionDetails:
    """Return the files that a version adds and removes; see `OpenedDirectory.version_details`."""
    head = log.refresh()
    record = None
    if head.log_start <= version <= head.version:
        record = log.read_record(version)
    if record is None:
        raise ConfigError(f"there is no version {version}: the oldest is {head.log_start}, the newest {head.version}")
    author = record.author
    run_id = before = offset_ranges = None
    if isinstance(author, StreamAuthor):
        run_id = author.run_id
        before = _offsets_of(log, author.query_id, author.batch_id - 1, version - 1)
        offset_ranges = _ranges_of(author.batch_id, before, offsets_of(record))
    removed: list[RemovedFile] = []
    segments_removed = 0
    for remove in record.removes:
        if remove.kind == "part":
            removed.append(RemovedFile(remove.final_path or "", remove.length))
        elif remove.kind == "segment":
            segments_removed += 1
    return VersionDetails(
        commit=version_of(record, created_ms(log, version)),
        run_id=run_id,
        offsets_before=before,
        offset_ranges=offset_ranges,
        added=tuple(map(_describe_add, record.adds)),
        removed=tuple(removed),
        segments_removed=segments_removed,
    )


def file_details(log: CommitLog, path: str, version: int | None = None) -> FileDetails:
    """Return the details of a file of a version; see `OpenedDirectory.file_details`."""
    snapshot = take_snapshot(log, version)
    add = part_named(snapshot, path)
    head = log.refresh()
    added = _version_of_add(log, add)
    record = None
    if added >= head.log_start:
        record = log.read_record(added)
    whole = add
    operation = None
    if record is not None:
        operation = operation_of(record)
        whole = _add_in(record, add.id) or add
    batches = operation_id = None
    if add.origin.query_id in head.queries:
        batches = _batches(log, add, added)
    else:
        operation_id = add.origin.query_id
    place = find_part(log.fs, add).place
    return FileDetails(
        path=path,
        version=added,
        time_ms=version_time_ms(log, added),
        operation=operation,
        rows=add.rows,
        size_bytes=add.length,
        plain_bytes=add.logical_length,
        directory=layout.directory_of(add.directory_key),
        checksum=add.checksum,
        format=snapshot.definitions[add.encoding]["format"]["name"],
        filters=add.filters,
        state=_STATES.get(place, place.value),
        batches=batches,
        operation_id=operation_id,
        segments=len({source.add_id for source in whole.ranges}),
    )


def _add_in(record: Record, add_id: str) -> Add | None:
    for add in record.adds:
        if add.id == add_id:
            return add
    return None


def diff(log: CommitLog, old: int | str | datetime, new: int | str | datetime | None) -> VersionDifference:
    """Return the differences of two versions, given by number or time; see `OpenedDirectory.diff`."""
    first, second = _snapshot_of(log, old), _snapshot_of(log, new)
    added, removed = changes_between(first, second)
    rows_added, rows_removed = total_rows(added), total_rows(removed)
    if added and removed:
        # Rows that were rewritten into other files were neither added nor removed by a record.
        in_both = rows_removed - _rows_ended(log, first.version, second.version)
        in_both = min(max(in_both, 0), rows_added, rows_removed)
        rows_added, rows_removed = rows_added - in_both, rows_removed - in_both
    return VersionDifference(
        old_version=first.version,
        new_version=second.version,
        added=tuple(map(_describe_add, added)),
        removed=tuple(map(_describe_add, removed)),
        rows_added=rows_added,
        rows_removed=rows_removed,
        columns=tuple(_column_changes(_types_of(first), _types_of(second))),
    )


def version_schema(log: CommitLog, version: int | None) -> VersionSchema:
    """Return the columns of a version; see `OpenedDirectory.schema`."""
    snapshot = take_snapshot(log, version)
    if snapshot.schema is None:
        raise ConfigError(
            f"no rows have been committed up to version {snapshot.version}, so its columns are unknown. Commit rows "
            "first; an empty table with columns is enough"
        )
    with Decoding(layout.LOG, "the schema of a version"):
        fields = json.loads(snapshot.definitions[snapshot.schema])["fields"]
        columns: list[ColumnDetails] = []
        texts: list[str] = []
        for field in fields:
            column = ColumnDetails(field["name"], sql_type(field["type"]), field["nullable"])
            columns.append(column)
            text = f"{quoted_name(column.name)} {column.type}"
            if not column.nullable:
                text += " NOT NULL"
            texts.append(text)
        return VersionSchema(snapshot.version, tuple(columns), ", ".join(texts))


def _snapshot_of(log: CommitLog, version: int | str | datetime | None) -> Snapshot:
    if isinstance(version, str | date):  # a date is also accepted, as in other calls
        version = parsed_version_at(log, version)
    return take_snapshot(log, version)


def _rows_ended(log: CommitLog, first: int, second: int) -> int:
    """Return the rows that were removed from `first` to `second`; if `first` is newer, the rows added since `second`.

    A restore continues from the version that it restored, so the versions in between are not counted.
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
    """Return the types of the columns of a version; empty before the first write."""
    if snapshot.schema is None:
        return {}
    with Decoding(layout.LOG, "the schema of a version"):
        return sql_types(snapshot.definitions[snapshot.schema])


def _column_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[ColumnChange]:
    """Yield the changed columns, first those of the new version."""
    for name in {**new, **old}:
        if old.get(name) != new.get(name):
            yield ColumnChange(name, old.get(name), new.get(name))


def _describe_add(add: Add) -> AddedFile:
    first, last = add.origin.first_batch, add.origin.last_batch
    directory = layout.directory_of(add.directory_key)
    return AddedFile(
        path=add.final_path or add.path,
        kind=add.kind,
        rows=add.rows,
        size_bytes=add.length,
        directory=directory,
        first_batch=first,
        last_batch=last,
    )


def _batches(log: CommitLog, add: Add, version: int) -> Batches:
    query_id, first, last = add.origin.query_id, add.origin.first_batch, add.origin.last_batch
    before = _offsets_of(log, query_id, first - 1, version)
    after = _offsets_of(log, query_id, last, version)
    return Batches(
        query_id=query_id,
        first_batch=first,
        last_batch=last,
        offsets_before=before,
        offsets=after,
        offset_ranges=_ranges_of(first, before, after),
    )


def _ranges_of(first: int, before: list[Any] | None, after: list[Any] | None) -> tuple[OffsetRange, ...] | None:
    """Return the offset ranges of batches from `first` on; None if the offsets of an end are not known."""
    if after is None or (before is None and first > 0):
        return None
    return ranges_between(before or [], after)


def _offsets_of(log: CommitLog, query_id: str, batch_id: int, version: int) -> list[Any] | None:
    """Return the offsets of a batch that was committed at a version or before; None if they are not known."""
    if batch_id < 0:
        return None
    for earlier in range(version, log.refresh().log_start - 1, -1):
        record = log.read_record(earlier)
        if record is None:
            continue
        author = record.author
        if isinstance(author, StreamAuthor) and author.query_id == query_id and author.batch_id <= batch_id:
            if author.batch_id == batch_id:
                return offsets_of(record)
            return None
    return None


def _version_of_add(log: CommitLog, add: Add) -> int:
    """Return the version that added a live add, from compacted logs, or for the newest versions, from records."""
    while True:
        end = -1
        try:
            for name in cover(list_compacted(log.fs)):
                end = name.last
                for document in read_compacted(log.fs, name, ended=False).kept:
                    versions = document.versions()
                    if add.id in versions.ids:
                        return versions.added[versions.ids.index(add.id)]
        except NotFound:
            continue  # a larger compacted log has replaced this one since the listing
        head = log.refresh()
        for version in range(head.version, max(end, head.log_start - 1), -1):
            record = log.read_record(version)
            if record is not None and _add_in(record, add.id) is not None:
                return version
        raise CorruptData(layout.COMPACTED, f"the version of {add.final_path!r}", "no record of it", "Read again later")


def ranges_between(before: Sequence[Any], after: Sequence[Any]) -> tuple[OffsetRange, ...]:
    """Return the ranges between two lists of offsets, one per source; `before` is empty at the start of a query.

    An offset that is an object of objects has partitions: topics, and the partitions of each topic.
    """
    ranges: list[OffsetRange] = []
    for number, (first, last) in enumerate(zip_longest(before[: len(after)], after)):
        if last in (None, NO_OFFSET):
            continue
        previous = None
        if first != NO_OFFSET:
            previous = first
        for partition, start, end in _by_partition(previous, last):
            ranges.append(OffsetRange(number, partition, start, end))
    return tuple(ranges)


def _has_topics(offset: dict[str, Any]) -> bool:
    """Return True if an offset has the offsets of partitions by topic."""
    return bool(offset) and all(isinstance(partitions, dict) for partitions in offset.values())


class _PartitionOffsets(NamedTuple):
    """The offsets of a partition of a source."""

    partition: str | None  # None for a source without partitions
    start: Any
    end: Any


def _by_partition(first: Any, last: Any) -> Iterator[_PartitionOffsets]:  # noqa: ANN401 - any JSON
    """Yield each partition of a source with its start and end offsets; None as the partition if there are none."""
    if not isinstance(last, dict) or not _has_topics(last):
        yield _PartitionOffsets(None, first, last)
        return
    for topic, ends in last.items():
        starts = None
        if isinstance(first, dict):
            starts = first.get(topic)
        if not isinstance(starts, dict):
            starts = {}
        for partition, end in ends.items():
            yield _PartitionOffsets(f"{topic}/{partition}", starts.get(partition), end)
