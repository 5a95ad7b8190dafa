"""The format of a compacted log: a line of JSON with its content, its checksum, and documents of adds as columns.

The first of two zlib streams of JSON contains what decides if an add is live: ids, and the versions that added and
removed it. The second stream contains the other columns, each as `["constant", value]`, `["dictionary", values,
indexes]` or `["plain", values]`, and under `rare` fields that few adds have, by the position of the add. In paths, a
NUL stands for the id of the add.

Live adds are first, so that readers of later versions read no further. Statistics are last, and conditions read them.
"""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass, field, replace
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ftfile.core.checksum import Decoding, checksum
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.format.column_coding import check_count, code_column, pack_json, unpack_json
from ftfile.log.format.file_statistics import (
    StatisticsColumns,
    StatisticsPlace,
    check_statistics,
    pack_statistics,
    place_of,
    unpack_statistics,
)
from ftfile.log.format.model import Add, Count, Value, convert
from ftfile.log.format.record import (
    FILE_BYTES_MAX,
    check_definitions,
    check_format,
    compact_json,
    decode_json,
    from_checked_text,
    part_of,
    to_checked_text,
    within_limits,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.storage.api import InputFile


class Rare(Value, frozen=True):
    """Fields that few adds have, so documents have no columns for them."""

    skip_rows: Count = 0
    rolling_stats: dict[str, Any] = msgspec.field(default_factory=dict)


COMPACTED_FORMAT = 1
# Bytes of the first read, which contains most headers completely.
HEADER_BYTES = 1 << 16

# By their names in JSON, in the order of the constructor of `Add`, after its id.
FIELDS = {
    info.encode_name: info
    for info in msgspec.structs.fields(Add)
    if info.name not in {"id", "ranges", "statistics", *Rare.__struct_fields__}
}
_LISTS = {name: GenericAlias(list, info.type) for name, info in FIELDS.items()}
_attributes_of = operator.attrgetter(*(info.name for info in FIELDS.values()))
# Parts are named by their ids: staged ones completely, final ones after this number of characters. No path has a NUL.
NAMED = {"path": 32, "finalPath": 12}
ID = "\0"
_ADVICE = Advice("If the records of its versions exist, ", Remedy("repair", dry_run=False), " rebuilds it")
_COMPACTED_LOG = "a compacted log"


@dataclass(slots=True)
class AddColumns:
    """Adds; lists of the same length."""

    ids: list[str] = field(default_factory=list)
    added: list[int] = field(default_factory=list)  # version of the record that added each
    removed: list[int] = field(default_factory=list)  # version of the record that removed each; empty if they are live
    # By the name of the field; under `rare`, fields that few adds have, or None.
    fields: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in (*FIELDS, "rare")})
    statistics: StatisticsColumns = field(default_factory=StatisticsColumns)

    def append(self, add: Add, added: int, removed: int | None = None) -> None:
        """Append one add, without the ranges of the segments of a part."""
        self.ids.append(add.id)
        self.added.append(added)
        self.statistics.append(add.statistics)
        if removed is not None:
            self.removed.append(removed)
        for name, value in zip(FIELDS, _attributes_of(add), strict=True):
            length = NAMED.get(name)
            self.fields[name].append(value.replace(add.id[:length], ID) if length and value else value)
        is_rare = add.skip_rows or add.rolling_stats
        self.fields["rare"].append(Rare(add.skip_rows, add.rolling_stats) if is_rare else None)

    def extend(self, other: AddColumns, chosen: Sequence[bool] | None = None) -> None:
        """Append chosen adds of another value, by default all."""
        pairs: list[tuple[list[Any], list[Any]]]
        pairs = [(self.ids, other.ids), (self.added, other.added), (self.removed, other.removed)]
        pairs += [(self.fields[name], values) for name, values in other.fields.items()]
        for column, values in pairs:
            column.extend(values if chosen is None else itertools.compress(values, chosen))
        self.statistics.extend(other.statistics, chosen)

    def part(self, start: int, end: int | None = None) -> AddColumns:
        """Return the adds at some positions."""
        fields = {name: values[start:end] for name, values in self.fields.items()}
        return AddColumns(
            self.ids[start:end],
            self.added[start:end],
            removed=self.removed[start:end],
            fields=fields,
            statistics=self.statistics.part(start, end),
        )


class _Ids(Value, frozen=True):
    """The first stream of a document."""

    id: list[str]
    added_version_deltas: list[int]
    removed_versions: list[int]


@dataclass(frozen=True, slots=True)
class Document:
    """At most about 50,000 adds, and at least one, in the order of their records: two compressed streams."""

    count: int
    ids: bytes
    rest: bytes
    path: str = field(default="", compare=False)  # of the compacted log that contains it
    statistics: bytes | None = b""  # bytes of `pack_statistics`; None: not read
    # of the statistics in the compacted log at `path`; None if it has none
    statistics_at: StatisticsPlace | None = field(default=None, compare=False)

    @classmethod
    def of(cls, columns: AddColumns) -> Document:
        """Return the document of these adds. Removed adds lose their statistics, because no condition needs them."""
        deltas = [after - before for before, after in itertools.pairwise((0, *columns.added))]
        ids = _Ids(columns.ids, deltas, columns.removed)
        statistics = b""
        if not columns.removed:
            statistics = pack_statistics(columns.statistics)
        return cls(len(columns.ids), pack_json(ids), rest=pack_json(_code_all(columns)), statistics=statistics)

    def versions(self) -> AddColumns:
        """Return only ids and versions; the fields are empty."""
        with Decoding(self.path, _COMPACTED_LOG, _ADVICE):
            ids = unpack_json(self.ids, _Ids)
            check_count("id", ids.id, self.count)
            check_count("addedVersionDeltas", ids.added_version_deltas, self.count)
            check_count("removedVersions", ids.removed_versions, self.count if ids.removed_versions else 0)
            return AddColumns(ids.id, list(itertools.accumulate(ids.added_version_deltas)), ids.removed_versions)

    def columns(self) -> AddColumns:
        """Return the adds with all fields, and with their statistics if these were read."""
        columns = self.versions()
        with Decoding(self.path, _COMPACTED_LOG, _ADVICE):
            columns.fields = _fields(unpack_json(self.rest, dict[str, Any]), len(columns.ids))
            columns.statistics = unpack_statistics(self.statistics or b"", len(columns.ids))
        return columns


def decode_adds(ids: Sequence[str], rest: bytes, path: str) -> Iterator[Add]:
    """Yield the adds in the second stream of a document of the compacted log at a path."""
    with Decoding(path, _COMPACTED_LOG, _ADVICE):
        return adds_of(ids, unpack_json(rest, dict[str, Any]))


def decode_columns(count: int, rest: bytes, path: str, names: Sequence[str]) -> list[list[Any]]:
    """Return columns of a stream by the names of their fields in records; paths have a NUL for the id."""
    with Decoding(path, _COMPACTED_LOG, _ADVICE):
        columns = unpack_json(rest, dict[str, Any])
        return [_decode(columns, count, name) for name in names]


def adds_by_id(adds: Iterable[Add]) -> dict[str, Any]:
    """Return adds in columns, with their ids and without versions."""
    columns = AddColumns()
    for add in adds:
        columns.append(add, 0)
    return {"id": columns.ids} | _code_all(columns)


def adds_of(ids: Sequence[str], coded: dict[str, Any]) -> Iterator[Add]:
    """Yield the adds with these ids and columns; the call itself raises for damage."""
    fields = _fields(coded, len(ids))
    if any(path is None and kind != "segment" for kind, path in zip(fields["kind"], fields["finalPath"], strict=True)):
        raise ValueError("finalPath is missing for a part")
    for name, length in NAMED.items():
        pairs = zip(fields[name], ids, strict=True)
        fields[name] = [path and path.replace(ID, add_id[:length]) for path, add_id in pairs]
    columns = [fields[name] for name in FIELDS]
    if not coded["rare"]:
        return map(Add, ids, *columns)
    rows = zip(zip(ids, *columns, strict=True), fields["rare"], strict=True)
    return iter([Add(*row, **msgspec.structs.asdict(rare)) if rare else Add(*row) for row, rare in rows])


def _code_all(columns: AddColumns) -> dict[str, Any]:
    """Return a column for each field, and rare fields by position."""
    coded: dict[str, Any] = {name: code_column(columns.fields[name]) for name in FIELDS}
    coded["rare"] = {str(at): rare for at, rare in enumerate(columns.fields["rare"]) if rare is not None}
    return coded


def _fields(coded: dict[str, Any], count: int) -> dict[str, list[Any]]:
    fields = {name: _decode(coded, count, name) for name in FIELDS}
    fields["rare"] = [None] * count
    for at, rare in convert(coded["rare"], dict[str, Rare], "rare").items():
        fields["rare"][int(at)] = rare
    return fields


def _decode(coded: dict[str, Any], count: int, name: str) -> list[Any]:
    kind, values, *indexes = convert(coded[name], list[Any], name)
    if kind == "constant":
        return [convert(values, FIELDS[name].type, name)] * count
    items: list[Any] = convert(values, _LISTS[name], name)
    if kind != "dictionary":
        check_count(name, items, count)
        return items
    positions: list[int] = convert(indexes[0], list[int], name)
    check_count(name, positions, count)
    return list(map(items.__getitem__, positions))


class SchemaChange(NamedTuple):
    """A change of the schema of the rows."""

    version: int
    key: str


class CompactedLogHeader(Value, frozen=True, tag_field="ftfileCompacted", tag=COMPACTED_FORMAT):
    """The fields of a header that are attributes of a compacted log."""

    first: Count = msgspec.field(name="firstVersion")
    last: Count = msgspec.field(name="lastVersion")
    nonce: str = msgspec.field(name="lastNonce")  # of the record at `last`
    previous_nonce: str | None  # of the record before `first`, empty for none; None: unknown
    log_start: Count = msgspec.field(name="logStartVersion")  # adds removed at this version or before are omitted
    definitions: dict[str, Any]
    schemas: tuple[SchemaChange, ...]


class CompactedLog(CompactedLogHeader, frozen=True):
    """The sum of the records of consecutive versions."""

    kept: tuple[Document, ...] = ()  # adds of these versions that are live after the last of them
    ended: tuple[Document, ...] | None = None  # adds of these versions that one of them removed; None: not read
    # older adds that one of these versions removed, with the version
    removes: dict[str, int] = msgspec.field(default_factory=dict)


class Placed(Value, frozen=True):
    """The streams of a document, after those of the previous ones."""

    adds: Count
    ids_bytes: Count
    ids_checksum: str
    fields_bytes: Count
    fields_checksum: str
    # of live adds, at the end of the file
    statistics_bytes: Count = 0
    statistics_index_bytes: Count = 0
    statistics_index_checksum: str = ""


class CompactedLogContents(Value, frozen=True):
    """The fields of a header for the rest of the file: live adds, removes, removed adds, statistics of live adds."""

    removes_bytes: Count
    removes_checksum: str
    live: tuple[Placed, ...]
    ended: tuple[Placed, ...]


class _Removes(Value, frozen=True):
    """The stream between live and removed adds."""

    ids: list[str]
    versions: list[int]


def encode_compacted(content: CompactedLog) -> bytes:
    """Return the bytes of a compacted log, given its removed adds; ConfigError for one that readers would refuse."""
    assert content.ended is not None, "a compacted log without its ended adds is not complete"
    removes = pack_json(_Removes(list(content.removes), list(content.removes.values())))
    live_documents, ended = (tuple(map(_placed, documents)) for documents in (content.kept, content.ended))
    contents = CompactedLogContents(len(removes), checksum(removes), live_documents, ended)
    header = msgspec.to_builtins(part_of(content, CompactedLogHeader)) | msgspec.to_builtins(contents)
    head = to_checked_text([within_limits(compact_json(header))])
    before, behind = (
        b"".join(document.ids + document.rest for document in group) for group in (content.kept, content.ended)
    )
    statistics = b"".join(document.statistics or b"" for document in content.kept)
    encoded = head + before + removes + behind + statistics
    if len(encoded) > FILE_BYTES_MAX:
        raise ConfigError(f"a compacted log has {len(encoded)} bytes, but readers accept at most {FILE_BYTES_MAX}")
    return encoded


def decode_compacted(file: InputFile, path: str, *, ended: bool | None, statistics: bool = False) -> CompactedLog:
    """Read and check a compacted log from a file.

    With `ended`, also the adds that the compacted log itself removed are read; with None, no adds. Statistics are only
    read and checked with `statistics`.
    """
    if file.size_bytes > FILE_BYTES_MAX:
        raise CorruptData(path, f"at most {FILE_BYTES_MAX} bytes", f"{file.size_bytes} bytes", _ADVICE)
    with Decoding(path, _COMPACTED_LOG, _ADVICE):
        line, end = _read_header(file, path)
        content = CompactedLog(**msgspec.structs.asdict(decode_json(line, CompactedLogHeader)))
        check_definitions(content.definitions)
        if ended is None:
            return content
        contents = decode_json(line, CompactedLogContents)
        lengths = _length(contents.live) + contents.removes_bytes, _length(contents.ended)
        behind = end + sum(lengths)
        size_bytes = behind + sum(placed.statistics_bytes for placed in contents.live)
        if file.size_bytes != size_bytes:
            raise CorruptData(path, f"{size_bytes} bytes", f"{file.size_bytes} bytes", _ADVICE)
        streams = _Streams(file.read_at(end, sum(lengths) if ended else lengths[0]), path)
        read_documents = map(streams.document, contents.live)
        live_documents = tuple(_with_places(zip(contents.live, read_documents, strict=True), behind))
        removes = unpack_json(streams.take(contents.removes_bytes, contents.removes_checksum), _Removes)
        if statistics:
            statistics_read = file.read_at(behind, size_bytes - behind)
            live_documents = tuple(_with_statistics(live_documents, statistics_read, behind))
        return msgspec.structs.replace(
            content,
            kept=live_documents,
            removes=dict(zip(removes.ids, removes.versions, strict=True)),
            ended=tuple(map(streams.document, contents.ended)) if ended else None,
        )


def _with_places(documents: Iterable[tuple[Placed, Document]], offset: int) -> Iterator[Document]:
    """Yield documents of live adds with the places of their statistics, which begin at an offset."""
    for placed, document in documents:
        if not placed.statistics_bytes:
            yield document
            continue
        place = StatisticsPlace(
            offset,
            placed.statistics_bytes,
            index_length=placed.statistics_index_bytes,
            index_checksum=placed.statistics_index_checksum,
        )
        yield replace(document, statistics=None, statistics_at=place)
        offset += place.length


def _with_statistics(documents: Iterable[Document], content: bytes, offset: int) -> Iterator[Document]:
    """Yield documents with their statistics, given the bytes from an offset on."""
    for document in documents:
        place = document.statistics_at
        if place is None:
            yield document
            continue
        start = place.offset - offset
        statistics = check_statistics(content[start : start + place.length], place, document.path)
        yield replace(document, statistics=statistics)


class _Streams:
    def __init__(self, content: bytes, path: str) -> None:
        self._left = memoryview(content)
        self._path = path

    def take(self, length: int, expected: str) -> bytes:
        content, self._left = bytes(self._left[:length]), self._left[length:]
        if len(content) != length or checksum(content) != expected:
            raise CorruptData(self._path, f"{length} bytes with {expected}", checksum(content), _ADVICE)
        return content

    def document(self, placed: Placed) -> Document:
        ids = self.take(placed.ids_bytes, placed.ids_checksum)
        return Document(placed.adds, ids, self.take(placed.fields_bytes, placed.fields_checksum), self._path)


def _read_header(file: InputFile, path: str) -> tuple[bytes, int]:
    """Return the header, and the start of the streams: after its line and the line of its checksum."""
    length = HEADER_BYTES
    while True:
        head = file.read_at(0, length)
        end = head.find(b"\n", head.find(b"\n") + 1) + 1
        if end:
            line = from_checked_text(head[:end], path, _ADVICE)[0]
            check_format(line, "ftfileCompacted", COMPACTED_FORMAT, path)
            return line, end
        if len(head) < length:
            raise CorruptData(path, "a header", "none", _ADVICE)
        length *= 8


def _placed(document: Document) -> Placed:
    assert document.statistics is not None, "the statistics were not read"
    placed = Placed(
        document.count,
        len(document.ids),
        ids_checksum=checksum(document.ids),
        fields_bytes=len(document.rest),
        fields_checksum=checksum(document.rest),
    )
    if not document.statistics:
        return placed
    place = place_of(document.statistics, 0)
    return msgspec.structs.replace(
        placed,
        statistics_bytes=place.length,
        statistics_index_bytes=place.index_length,
        statistics_index_checksum=place.index_checksum,
    )


def _length(placed: Iterable[Placed]) -> int:
    return sum(document.ids_bytes + document.fields_bytes for document in placed)
