"""The finished files of a version with their states, and the shares of adds that tasks read."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from ftfile.core.arguments import check_count
from ftfile.core.errors import ConfigError
from ftfile.core.tasks import OPEN_COST_BYTES, TASK_BYTES, pack_things
from ftfile.formats.api import Span, Wanted
from ftfile.formats.partition_paths import columns_in_path
from ftfile.formats.parts import is_splittable, read_add, recorded_names
from ftfile.log.format import layout
from ftfile.log.places import Place, find_part, list_or_empty, walk
from ftfile.log.read.snapshot import take_snapshot
from ftfile.read.file_bounds import ColumnBounds, file_bounds
from ftfile.read.selection import matching_rows, path_values, rows_of_path
from ftfile.read.shared_columns import columns_of_list, decode_columns, encode_columns
from ftfile.rows.spark_types import recorded_schema
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ftfile.formats.api import RowFilter
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.compacted import AddColumns
    from ftfile.log.format.model import Add
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.storage.api import FileSystem


# Number of files that a listing returns in about the time that a check of one file takes.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedFile:
    """One committed file.

    The state is `published` if the file is at `path` with its length, `pending` if it is committed but not at `path`
    yet, `retired` if a later version has replaced it, and `missing` if the committed file is at none of these places.

    Attributes:
        path: relative to the directory.
        size_bytes: on storage.
        partition: the values of its partition columns, as in its rows; empty without partition columns.
        directory: the sub-directory, such as `column=value/…`; empty for the directory itself.
        query_id: the streaming query that wrote it, else None.
        batch_id: its last micro-batch of that query, else None.
        operation_id: the batch write or maintenance operation that wrote it, as in `history()`, else None.
        checksum: of the bytes on storage.
        statistics: bounds by column; fields of structs are named like `address.city`. None if they were not requested.
    """

    path: str
    rows: int
    size_bytes: int
    partition: dict[str, Any]
    directory: str
    query_id: str | None
    batch_id: int | None
    operation_id: str | None
    checksum: str
    state: FileState
    statistics: dict[str, ColumnBounds] | None = None


def finished_files(
    log: CommitLog, version: int | None = None, limit: int | None = None, *, statistics: bool = False
) -> list[FinishedFile]:
    """Return the finished files of a version, or only the last ones; see `Directory.files`."""
    check_count("limit", limit)
    snapshot = take_snapshot(log, version)
    newest = islice(_newest_parts(snapshot), None if limit is None else min(limit, len(snapshot.adds)))
    parts = [*newest][::-1]
    partitions = _partitions(snapshot, parts)
    queries, files = log.refresh().queries, []
    is_few = len(parts) * LISTED_AT_ONCE < len(snapshot.adds)
    states = None
    if is_few:
        states = parallel(log.fs, lambda part: _STATES[find_part(log.fs, part).place], parts)
    bounds: dict[str, dict[str, ColumnBounds]] = {}
    if statistics:
        bounds = file_bounds(log.fs, snapshot, frozenset(part.id for part in parts))
    for add, state in zip(parts, states or _file_states(log.fs, parts), strict=True):
        origin = add.origin
        is_stream = origin.query_id in queries
        files.append(
            FinishedFile(
                path=add.final_path or add.path,
                rows=add.rows,
                size_bytes=add.length,
                partition=dict(partitions.get((add.directory_key, add.encoding), {})),
                directory=layout.directory_of(add.directory_key),
                query_id=origin.query_id if is_stream else None,
                batch_id=origin.last_batch if is_stream else None,
                operation_id=None if is_stream else origin.query_id,
                checksum=add.checksum,
                state=state,
                statistics=bounds.get(add.id),
            )
        )
    return files


def _newest_parts(snapshot: Snapshot) -> Iterator[Add]:
    """Yield the finished files of a version, newest first."""
    for add in snapshot.newest_first():
        if add.kind == "part":
            yield add


def part_named(snapshot: Snapshot, path: str) -> Add:
    """Return the finished file of a version with a path; a ConfigError with similar paths if it does not exist."""
    for part in _newest_parts(snapshot):
        if part.final_path == path:
            return part
    paths = []
    for add in snapshot.adds.values():
        if add.kind == "part" and add.final_path is not None:
            paths.append(add.final_path)
    raise ConfigError(_no_such_file(path, snapshot.version, paths))


def _no_such_file(path: str, version: int, names: Sequence[str]) -> str:
    """Return the text that a version does not contain a file, with similar names."""
    if any(candidate.startswith(f"{path}/") for candidate in names):
        return (
            f"{path!r} is a directory with files in version {version}, not a file: give one of its files, or select "
            "rows with a condition"
        )
    name = path.rpartition("/")[2]
    near = [candidate for candidate in names if name and name in candidate][:3]
    meant = ""
    if near:
        meant = f": did you mean {' or '.join(map(repr, near))}?"
    return f"there is no finished file {path!r} in version {version}{meant}"


def _partitions(snapshot: Snapshot, parts: Sequence[Add]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return, for each directory and encoding, the values of the columns in its path."""
    if snapshot.schema is None:
        return {}
    schema = recorded_schema(snapshot.definitions[snapshot.schema])
    partitions: dict[tuple[str, str], dict[str, Any]] = {}
    for add in parts:
        place = add.directory_key, add.encoding
        if place not in partitions:
            values = path_values(snapshot.definitions[add.encoding], add.directory_key, schema)
            partitions[place] = {name: value.as_py() for name, value in values.items()}
    return partitions


def _file_states(fs: FileSystem, parts: Sequence[Add]) -> list[FileState]:
    """Return the state of each part.

    The stage and each directory are listed once. Only parts that are not at their path are searched.
    """
    directories = sorted({layout.parent(part.final_path or "") for part in parts})
    sizes = {}
    for info in chain.from_iterable(parallel(fs, partial(list_or_empty, fs), directories)):
        if not info.is_directory:
            sizes[info.path] = info.size_bytes
    staged = walk(fs, layout.STAGED)
    states: list[FileState] = ["published"] * len(parts)
    odd_numbers, odd_parts = [], []
    for number, part in enumerate(parts):
        is_staged = part.path in staged and part.path != part.final_path
        if is_staged or sizes.get(part.final_path or "") != part.length:
            odd_numbers.append(number)
            odd_parts.append(part)
    places = parallel(fs, lambda part: find_part(fs, part).place, odd_parts)
    for number, place in zip(odd_numbers, places, strict=True):
        states[number] = _STATES[place]
    return states


_SHARE_BYTES_MIN = 4 << 20  # minimum for a read that is distributed to cores
_TASKS_MAX = 100_000  # approximate maximum; larger reads get larger tasks

# The size of a core's cache: the JVM copies a batch and then reads its rows. Larger batches are slower.
_ROWS_MAX = 8_192
_BYTES = 256 << 10  # approximate


class AddRange(NamedTuple):
    """An add, or a share of its rows."""

    add: Add
    span: Span | None = None


class _EncodedShare(msgspec.Struct):
    """The form in which a share is sent to a task."""

    adds: dict[str, Any]  # see `encode_columns`
    spans: dict[int, tuple[int, int]]  # number and count, by the positions of adds that several tasks read
    encodings: dict[str, Any]  # definitions of all encodings that the adds refer to, by key


@dataclass(frozen=True, slots=True)
class Share:
    """The ranges that one task reads, in their order, encoded once."""

    content: bytes = b""

    @property
    def ranges(self) -> Sequence[AddRange]:
        """Return the ranges, newly decoded."""
        return self.decode()[0]

    def decode(self) -> tuple[Sequence[AddRange], dict[str, Any]]:
        """Return the ranges, and the definitions of all encodings that the adds refer to, by key."""
        if not self.content:
            return (), {}
        contents = msgspec.msgpack.decode(self.content, type=_EncodedShare)
        ranges = []
        for position, add in enumerate(decode_columns(contents.adds)):
            span = contents.spans.get(position)
            ranges.append(AddRange(add, None if span is None else Span(*span)))
        return ranges, contents.encodings


def pack(
    adds: Iterable[Add], definitions: Mapping[str, Any], task_bytes: int = TASK_BYTES, cores: int = 1
) -> list[Share]:
    """Return the shares of tasks that read some adds; see `pack_columns`."""
    return pack_columns(columns_of_list(adds), definitions, task_bytes, cores)


def pack_columns(
    adds: AddColumns, definitions: Mapping[str, Any], task_bytes: int = TASK_BYTES, cores: int = 1
) -> list[Share]:
    """Return the shares of tasks, each of about `task_bytes`, in the order of the adds.

    Opening a file counts as 1 MiB. Large files with row groups are split between tasks. A small read is distributed to
    `cores` tasks if it has enough files. No file is opened.
    """
    lengths = adds.fields["lengthBytes"]
    whole = sum(lengths) + OPEN_COST_BYTES * len(lengths)
    limit = max(min(task_bytes, max(_SHARE_BYTES_MIN, -(-whole // cores))), whole // _TASKS_MAX)
    shared = _shared_rows(adds, definitions, limit)
    encoded = _EncodedDefinitions(definitions)
    return [_share(adds, group, encoded) for group in pack_things(shared, _cost, limit + OPEN_COST_BYTES)]


def read_share(
    fs: FileSystem, share: Share, requested: pa.Schema, *, is_old: bool = True, row_filter: RowFilter | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of adds with the requested columns, matched by name without case.

    If the adds are not `is_old`, they are live; see `open_add`. The filter uses requested columns with the same types,
    spelled as in the files.
    """
    ranges, encodings = share.decode()
    recorded = {key: _as_recorded(encoding, requested) for key, encoding in encodings.items()}
    for add, span in ranges:
        encoding, schema = encodings[add.encoding], recorded[add.encoding]
        in_path = columns_in_path(encoding)
        if in_path.issuperset(schema.names):
            if span is None or span.number == 0:
                batches = rows_of_path(add, encoding, schema)
            else:
                batches = iter(())
        else:
            batches = read_add(fs, add, encoding, schema, is_old=is_old, wanted=Wanted(row_filter, span))
        # otherwise all rows of the add match
        if row_filter is not None and not in_path.issuperset(row_filter.schema.names):
            where = row_filter.where
            batches = chain.from_iterable(matching_rows(batch, where).to_batches() for batch in batches)
        for batch in batches:
            yield batch.rename_columns(requested.names)


class _SharedRows(NamedTuple):
    """The position of an add in its columns, and the share of its rows."""

    position: int
    cost: int
    span: Span | None


_cost = operator.attrgetter("cost")


def _shared_rows(adds: AddColumns, definitions: Mapping[str, Any], limit: int) -> Iterator[_SharedRows]:
    """Yield the adds, and the shares of large adds, in their order."""
    fields = adds.fields
    for position, length in enumerate(fields["lengthBytes"]):
        count = -(-length // limit)
        encoding = fields["encoding"][position]
        if count <= 1 or not is_splittable(
            fields["kind"][position], fields["filters"][position], definitions[encoding]
        ):
            yield _SharedRows(position, length + OPEN_COST_BYTES, None)
            continue
        for number in range(count):
            yield _SharedRows(position, length // count + OPEN_COST_BYTES, Span(number, count))


class _EncodedDefinitions(dict[str, msgspec.Raw]):
    """Definitions by key, each encoded once for all shares."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        super().__init__()
        self._definitions = definitions

    def __missing__(self, key: str) -> msgspec.Raw:
        self[key] = msgspec.Raw(msgspec.msgpack.encode(self._definitions[key]))
        return self[key]


def _share(adds: AddColumns, group: Sequence[_SharedRows], encoded: _EncodedDefinitions) -> Share:
    """Return the share of consecutive adds. Two spans of the same add are too large to be in one share."""
    start, end = group[0].position, group[-1].position + 1
    assert end - start == len(group), "two spans of an add are in one share"
    spans = {}
    for rows in group:
        if rows.span is not None:
            spans[rows.position - start] = rows.span.number, rows.span.count
    encodings = {key: encoded[key] for key in dict.fromkeys(adds.fields["encoding"][start:end])}
    return Share(msgspec.msgpack.encode(_EncodedShare(encode_columns(adds, start, end), spans, encodings)))


def _as_recorded(encoding: dict[str, Any], requested: pa.Schema) -> pa.Schema:
    column_names = [*recorded_schema(encoding["schema"]).names, *columns_in_path(encoding)]
    names = recorded_names(column_names, requested.names)
    return pa.schema([field.with_name(name) for name, field in zip(names, requested, strict=True)])


def small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows without a copy in batches of at most 8,192 rows and about 256 KiB, and at least one row."""
    for batch in batches:
        count = max(1, min(_ROWS_MAX, _BYTES * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, count):
            yield batch if count >= batch.num_rows else batch.slice(start, count)
