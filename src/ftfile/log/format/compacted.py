"""The format of a compacted log: a line of JSON with its content, its checksum, and documents of adds as columns.

Each column of a document is a zlib stream of JSON. Lists of ids, and of the versions that added and removed the adds,
decide which adds are live. Every other column is `["constant", value]`, `["dictionary", values, indexes]` or `["plain",
values]`, and `rare` contains fields that few adds have, by the position of the add. In paths, a NUL stands for the id
of the add.

Live adds are first, so that readers of later versions read no further. Statistics are last, and conditions read them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from ftfile.core.checksum import Decoding, checksum
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.format.column_coding import Unpacker, check_count, code_column, pack_json, unpack_json
from ftfile.log.format.file_statistics import (
    StatisticsColumns,
    pack_statistics,
    unpack_bounds,
    unpack_statistics,
)
from ftfile.log.format.model import Add, Count, Value, convert
from ftfile.log.format.record import (
    FILE_BYTES_MAX,
    check_definitions,
    check_format,
    check_limits,
    compact_json,
    decode_json,
    from_checked_text,
    part_of,
    to_checked_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.core.bounds import BoundsColumn
    from ftfile.storage.api import InputFile


_Item = TypeVar("_Item")


class Rare(Value, frozen=True):
    """Fields that few adds have, so documents have no columns for them."""

    skip_rows: Count = 0
    rolling_stats: dict[str, Any] = msgspec.field(default_factory=dict)


COMPACTED_FORMAT = 1
# Bytes of the first read, which contains most headers completely.
HEADER_BYTES = 1 << 17
# Statistics of columns are read at once if the bytes from the first to the last are at most this many.
SPAN_BYTES = 1 << 16

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
_STATISTICS = "the statistics of a document"


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


@dataclass(frozen=True, slots=True)
class Document:
    """At most about 50,000 adds, and at least one, in the order of their records: a compressed stream for each column.

    Columns are fields of adds by their names in records, and `id`, `added`, `removed` and `rare`. The last two are
    missing if they are empty.
    """

    count: int
    columns: dict[str, bytes]
    path: str = field(default="", compare=False)  # of the compacted log that contains it
    statistics: dict[str, bytes] | None = field(default_factory=dict)  # by column; None: not read
    # by column: the offset of its statistics in the compacted log at `path`, and their stream
    places: Mapping[str, tuple[int, Stream]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, columns: AddColumns) -> Document:
        """Return the document of these adds. Removed adds lose their statistics, because no condition needs them."""
        deltas = [after - before for before, after in itertools.pairwise((0, *columns.added))]
        lists = {"id": columns.ids, "added": deltas, "removed": columns.removed}
        streams = {name: pack_json(values) for name, values in (lists | code_fields(columns)).items() if values}
        statistics = {} if columns.removed else pack_statistics(columns.statistics)
        return cls(len(columns.ids), streams, statistics=statistics)

    def versions(self) -> AddColumns:
        """Return only ids and versions; the fields are empty."""
        with Decoding(self.path, _COMPACTED_LOG, _ADVICE):
            ids = self._list("id", list[str])
            # Deltas can be negative: an add that a merge joins to a document can be older than the previous one.
            deltas = self._list("added", list[int])
            removed = self._list("removed", list[Count]) if "removed" in self.columns else []
            return AddColumns(ids, list(itertools.accumulate(deltas)), removed)

    def fields(self, names: Iterable[str]) -> list[list[Any]]:
        """Return columns by the names of their fields in records; paths have a NUL for the id."""
        with Decoding(self.path, _COMPACTED_LOG, _ADVICE):
            return [_decode(_Unpacked(self.columns), self.count, name) for name in names]

    def adds(self, ids: Sequence[str]) -> Iterator[Add]:
        """Yield the adds, which have these ids."""
        with Decoding(self.path, _COMPACTED_LOG, _ADVICE):
            return adds_of(ids, _Unpacked(self.columns))

    def all_columns(self) -> AddColumns:
        """Return the adds with all fields, and with their statistics if these were read."""
        columns = self.versions()
        with Decoding(self.path, _COMPACTED_LOG, _ADVICE):
            columns.fields = _fields(_Unpacked(self.columns), self.count)
            columns.statistics = unpack_statistics(self.statistics or {}, self.count)
        return columns

    def read_bounds(self, file: InputFile, names: Iterable[str]) -> dict[str, BoundsColumn]:
        """Read the statistics of columns from the compacted log; CorruptData for damage. A column can be missing."""
        wanted = {name: self.places[name] for name in names if name in self.places}
        if not wanted:
            return {}
        start = min(offset for offset, _ in wanted.values())
        span = max(offset + stream.length for offset, stream in wanted.values()) - start
        content: bytes | None = None
        if span <= max(SPAN_BYTES, sum(stream.length for _, stream in wanted.values())):
            content = file.read_at(start, span)
        columns: dict[str, BoundsColumn] = {}
        with Decoding(self.path, _STATISTICS, _ADVICE):
            for name, (offset, stream) in wanted.items():
                at = offset - start
                packed = file.read_at(offset, stream.length) if content is None else content[at : at + stream.length]
                columns[name] = unpack_bounds(_check_content(packed, stream, "statistics", self.path), self.count)
        return columns

    def _list(self, name: str, kind: type[list[_Item]]) -> list[_Item]:
        values: list[_Item] = convert(unpack_json(self.columns[name], Any), kind, name)
        check_count(name, values, self.count)
        return values


class _Unpacked(Mapping[str, Any]):
    """The columns of a document, each unpacked when it is used. The limit of a stream holds for all of them."""

    def __init__(self, streams: Mapping[str, bytes]) -> None:
        self._streams = streams
        self._unpacker = Unpacker()

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __getitem__(self, name: str) -> object:
        if name == "rare" and name not in self._streams:
            return {}
        return self._unpacker.value(self._streams[name], Any)


def adds_by_id(adds: Iterable[Add]) -> dict[str, Any]:
    """Return adds in columns, with their ids and without versions."""
    columns = AddColumns()
    for add in adds:
        columns.append(add, 0)
    return {"id": columns.ids} | code_fields(columns)


def adds_of(ids: Sequence[str], coded: Mapping[str, Any]) -> Iterator[Add]:
    """Yield the adds with these ids and columns; the call itself raises for damage."""
    fields = _fields(coded, len(ids))
    if any(path is None and kind != "segment" for kind, path in zip(fields["kind"], fields["finalPath"], strict=True)):
        raise ValueError("finalPath is missing for a part")
    for name, length in NAMED.items():
        pairs = zip(fields[name], ids, strict=True)
        fields[name] = [path and path.replace(ID, add_id[:length]) for path, add_id in pairs]
    columns = [fields[name] for name in FIELDS]
    if not any(fields["rare"]):
        return map(Add, ids, *columns)
    rows = zip(zip(ids, *columns, strict=True), fields["rare"], strict=True)
    return iter([Add(*row, **msgspec.structs.asdict(rare)) if rare else Add(*row) for row, rare in rows])


def code_fields(columns: AddColumns) -> dict[str, Any]:
    """Return a column for each field, and rare fields by position."""
    coded: dict[str, Any] = {name: code_column(columns.fields[name]) for name in FIELDS}
    coded["rare"] = {str(at): rare for at, rare in enumerate(columns.fields["rare"]) if rare is not None}
    return coded


def _fields(coded: Mapping[str, Any], count: int) -> dict[str, list[Any]]:
    fields = {name: _decode(coded, count, name) for name in FIELDS}
    fields["rare"] = [None] * count
    for at, rare in convert(coded["rare"], dict[str, Rare], "rare").items():
        fields["rare"][int(at)] = rare
    return fields


def _decode(coded: Mapping[str, Any], count: int, name: str) -> list[Any]:
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


class Stream(NamedTuple):
    """A compressed stream, which begins where the previous one ends."""

    length: Count
    checksum: str


class Placed(Value, frozen=True):
    """The streams of a document, by column."""

    adds: Count
    columns: dict[str, Stream]  # after the streams of the previous document
    statistics: dict[str, Stream] = msgspec.field(default_factory=dict)  # of live adds, at the end of the file


class CompactedLogContents(Value, frozen=True):
    """The fields of a header for the rest of the file: live adds, removes, removed adds, statistics of live adds."""

    removes: Stream
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
    contents = CompactedLogContents(
        _stream(removes),
        live=tuple(map(_place_document, content.kept)),
        ended=tuple(map(_place_document, content.ended)),
    )
    header = msgspec.to_builtins(part_of(content, CompactedLogHeader)) | msgspec.to_builtins(contents)
    streams = [to_checked_text([check_limits(compact_json(header))])]
    for document in content.kept:
        streams += document.columns.values()
    streams.append(removes)
    for document in content.ended:
        streams += document.columns.values()
    for document in content.kept:
        streams += _statistics(document).values()
    encoded = b"".join(streams)
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
        lengths = _length(contents.live) + contents.removes.length, _length(contents.ended)
        behind = end + sum(lengths)
        size_bytes = behind + sum(stream.length for placed in contents.live for stream in placed.statistics.values())
        if file.size_bytes != size_bytes:
            raise CorruptData(path, f"{size_bytes} bytes", f"{file.size_bytes} bytes", _ADVICE)
        streams = _Streams(file.read_at(end, sum(lengths) if ended else lengths[0]), path)
        kept = tuple(_live_documents(contents.live, streams, behind))
        removes = unpack_json(streams.take(contents.removes, "removes"), _Removes)
        ended_documents = tuple(map(streams.document, contents.ended)) if ended else None
        if statistics:
            streams = _Streams(file.read_at(behind, size_bytes - behind), path)
            kept = tuple(map(streams.with_statistics, kept))
        return msgspec.structs.replace(
            content,
            kept=kept,
            removes=dict(zip(removes.ids, removes.versions, strict=True)),
            ended=ended_documents,
        )


def _live_documents(live: Iterable[Placed], streams: _Streams, offset: int) -> Iterator[Document]:
    """Yield the documents of live adds, with the places of their statistics, which begin at an offset."""
    for placed in live:
        places: dict[str, tuple[int, Stream]] = {}
        for name, stream in placed.statistics.items():
            places[name] = offset, stream
            offset += stream.length
        yield replace(streams.document(placed), statistics=None if places else {}, places=places)


class _Streams:
    def __init__(self, content: bytes, path: str) -> None:
        self._left = memoryview(content)
        self._path = path

    def take(self, stream: Stream, what: str) -> bytes:
        content, self._left = bytes(self._left[: stream.length]), self._left[stream.length :]
        return _check_content(content, stream, what, self._path)

    def document(self, placed: Placed) -> Document:
        columns = {name: self.take(stream, "columns") for name, stream in placed.columns.items()}
        return Document(placed.adds, columns, self._path)

    def with_statistics(self, document: Document) -> Document:
        statistics = {name: self.take(stream, "statistics") for name, (_, stream) in document.places.items()}
        return replace(document, statistics=statistics)


def _stream(content: bytes) -> Stream:
    return Stream(len(content), checksum(content))


def _check_content(content: bytes, stream: Stream, what: str, path: str) -> bytes:
    actual = _stream(content)
    if actual != stream:
        expected, found = (f"{size_bytes} bytes of {what} with {value}" for size_bytes, value in (stream, actual))
        raise CorruptData(path, expected, found, _ADVICE)
    return content


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


def _place_document(document: Document) -> Placed:
    columns = {name: _stream(content) for name, content in document.columns.items()}
    statistics = {name: _stream(content) for name, content in _statistics(document).items()}
    return Placed(document.count, columns, statistics)


def _statistics(document: Document) -> dict[str, bytes]:
    assert document.statistics is not None, "the statistics were not read"
    return document.statistics


def _length(placed: Iterable[Placed]) -> int:
    return sum(stream.length for document in placed for stream in document.columns.values())
