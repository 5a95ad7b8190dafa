"""A range as bytes: a line of JSON that says what is where, its checksum, and documents of adds as columns.

The first of two zlib streams of JSON has what decides whether an add is live: ids, and the versions that added and
removed it. The second has the other columns, each as `["constant", value]`, `["dictionary", values, indexes]` or
`["plain", values]`, and under `rare` the fields that few adds have, by the add's position. In paths, a NUL stands for
the add's id.

Live adds come first: who reads a version beyond the range reads no further.
"""

from __future__ import annotations

import itertools
import operator
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.checksum import Decoding, checksum
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.log.format.model import LIST, NUMBER, OBJECT, OR_NULL, TEXT, Add, Field, Fields, many
from ftfile.log.format.record import (
    ADD,
    FILE_BYTES_MAX,
    check_format,
    compact_json,
    from_checked_text,
    json_value,
    to_checked_text,
    within_limits,
)
from ftfile.log.format.tables import definitions_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ftfile.storage.api import InputFile


# In the order of the constructor of `Add`, after its id.
FIELDS = [row for row in ADD.rows if not row.is_rare][1:]
NAMES = [row.name for row in FIELDS]
_RARE = Fields(Add, *(row for row in ADD.rows if row.is_rare and row.name != "segmentRanges"))
_attributes_of = operator.attrgetter(*(row.attribute for row in FIELDS))
# Parts are named after their ids: staged ones wholly, final ones after this many characters. No path has a NUL.
NAMED = {"path": 32, "finalPath": 12}
ID = "\0"
_ADVICE = "While the records that it stands for are kept, ftfile.operate.compact.merge_ranges(path) makes it anew"
_RANGE = "a range of records"
# Level 6 takes twice the time and saves a tenth.
COMPRESSION_LEVEL = 1


@dataclass(slots=True)
class Columns:
    """Adds; lists of one length."""

    ids: list[str] = field(default_factory=list)
    added: list[int] = field(default_factory=list)  # version of the record that brought each
    removed: list[int] = field(default_factory=list)  # version of the record that ended each; empty when they are live
    # By the name of the field; under `rare` a dictionary as JSON has it, or None.
    fields: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in (*NAMES, "rare")})

    def append(self, add: Add, added: int, removed: int | None = None) -> None:
        """Append one add, without the ranges of segments that a part was made from: nobody reads by them."""
        self.ids.append(add.id)
        self.added.append(added)
        if removed is not None:
            self.removed.append(removed)
        for name, value in zip(NAMES, _attributes_of(add), strict=True):
            length = NAMED.get(name)
            self.fields[name].append(value.replace(add.id[:length], ID) if length and value else value)
        self.fields["rare"].append(_RARE.to_json(add) or None)

    def extend(self, other: Columns, chosen: Sequence[bool] | None = None) -> None:
        """Append the chosen adds of another, by default all."""
        pairs: list[tuple[list[Any], list[Any]]]
        pairs = [(self.ids, other.ids), (self.added, other.added), (self.removed, other.removed)]
        pairs += [(self.fields[name], values) for name, values in other.fields.items()]
        for column, values in pairs:
            column.extend(values if chosen is None else itertools.compress(values, chosen))

    def part(self, start: int, end: int | None = None) -> Columns:
        """Return the adds at some positions."""
        fields = {name: values[start:end] for name, values in self.fields.items()}
        return Columns(self.ids[start:end], self.added[start:end], self.removed[start:end], fields)


@dataclass(frozen=True, slots=True)
class Document:
    """Some 50,000 adds at most, and at least one, in the order of their records: two compressed streams."""

    count: int
    ids: bytes
    rest: bytes
    path: str = field(default="", compare=False)  # of the range that it was read from

    @classmethod
    def of(cls, columns: Columns) -> Document:
        """Return the document of these adds."""
        deltas = [after - before for before, after in itertools.pairwise((0, *columns.added))]
        ids = {"id": columns.ids, "addedVersionDeltas": deltas, "removedVersions": columns.removed}
        return cls(len(columns.ids), pack_json(ids), pack_json(_fields_to_json(columns)))

    def versions(self) -> Columns:
        """Return ids and versions alone; the fields stay empty."""
        with Decoding(self.path, _RANGE, _ADVICE):
            text = unpack_json(self.ids)
            ids, deltas, removed = text["id"], text["addedVersionDeltas"], text["removedVersions"]
            check_list("id", ids, str, self.count)
            check_list("addedVersionDeltas", deltas, int, self.count)
            check_list("removedVersions", removed, int, self.count if removed else 0)
            return Columns(ids, list(itertools.accumulate(deltas)), removed)

    def columns(self) -> Columns:
        """Return the adds with all their fields."""
        columns = self.versions()
        with Decoding(self.path, _RANGE, _ADVICE):
            columns.fields = _fields(unpack_json(self.rest), len(columns.ids))
        return columns


def decode_adds(ids: Sequence[str], rest: bytes, path: str) -> Iterator[Add]:
    """Yield the adds of the second stream of a document of the range at a path."""
    with Decoding(path, _RANGE, _ADVICE):
        return adds_from_json(ids, unpack_json(rest))


def decode_columns(count: int, rest: bytes, path: str, names: Sequence[str]) -> list[list[Any]]:
    """Return columns of such a stream, by the names of their fields in records; paths have a NUL for the id."""
    with Decoding(path, _RANGE, _ADVICE):
        text = unpack_json(rest)
        return [_decode(text[row.name], count, row) for name in names for row in FIELDS if row.name == name]


def check_list(name: str, values: object, kind: type, count: int) -> None:
    """Raise a ValueError unless values are a list of this many of a type."""
    if type(values) is not list or len(values) != count or not set(map(type, values)) <= {kind}:
        raise ValueError(f"{name} is {values!r:.80}, and is to have {count} values")


def adds_to_json(adds: Iterable[Add]) -> dict[str, Any]:
    """Return adds without versions, in columns, as plain JSON."""
    columns = Columns()
    for add in adds:
        columns.append(add, 0)
    return {"id": columns.ids, **_fields_to_json(columns)}


def adds_from_json(ids: Sequence[str], text: dict[str, Any]) -> Iterator[Add]:
    """Yield the adds with these ids and the columns that `adds_to_json` wrote; damage is raised by the call itself."""
    fields = _fields(text, len(ids))
    if any(path is None and kind != "segment" for kind, path in zip(fields["kind"], fields["finalPath"], strict=True)):
        raise ValueError("finalPath is missing for a part")
    for name, length in NAMED.items():
        pairs = zip(fields[name], ids, strict=True)
        fields[name] = [path and path.replace(ID, add_id[:length]) for path, add_id in pairs]
    columns = [fields[name] for name in NAMES]
    if not text["rare"]:
        return map(Add, ids, *columns)
    rows = zip(zip(ids, *columns, strict=True), fields["rare"], strict=True)
    return iter([Add(*row, **_RARE.attributes(rare)) if rare else Add(*row) for row, rare in rows])


def pack_json(value: object) -> bytes:
    """Return the value as compressed JSON; ConfigError for one that nobody could read."""
    return zlib.compress(within_limits(compact_json(value)), COMPRESSION_LEVEL)


def unpack_json(content: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the value that `pack_json` wrote; ValueError or zlib.error for damage, and for more than limits allow."""
    stream = zlib.decompressobj()
    text = stream.decompress(content, FILE_BYTES_MAX)
    if not stream.eof or stream.unused_data:
        raise ValueError(f"a stream that does not end with its bytes, or is longer than {FILE_BYTES_MAX} bytes")
    return json_value(text)


def _fields_to_json(columns: Columns) -> dict[str, Any]:
    text: dict[str, Any] = {row.name: _code(columns.fields[row.name], row) for row in FIELDS}
    text["rare"] = {str(at): rare for at, rare in enumerate(columns.fields["rare"]) if rare is not None}
    return text


def _code(values: list[Any], row: Field) -> list[Any]:
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    if len(numbers) == 1:
        return ["constant", _each(row.encode, values[:1])[0]]
    if len(numbers) <= len(values) // 2:
        return ["dictionary", _each(row.encode, list(numbers)), [numbers[value] for value in values]]
    return ["plain", _each(row.encode, values)]


def _fields(text: dict[str, Any], count: int) -> dict[str, list[Any]]:
    fields = {row.name: _decode(text[row.name], count, row) for row in FIELDS}
    fields["rare"] = [None] * count
    for at, rare in text["rare"].items():
        if type(rare) is not dict:
            raise ValueError(f"rare is {rare!r:.80}")
        fields["rare"][int(at)] = rare
    return fields


def _decode(coded: list[Any], count: int, row: Field) -> list[Any]:
    kind, values, *indexes = coded
    if kind == "constant":
        row.check(values)
        return _each(row.decode, [values]) * count
    if type(values) is not list or (kind != "dictionary" and len(values) != count):
        raise ValueError(f"{row.name} is {values!r:.80}, and is to have {count} values")
    row.check_all(values)
    values = _each(row.decode, values)
    if kind != "dictionary":
        return values
    check_list(row.name, indexes[0], int, count)
    return list(map(values.__getitem__, indexes[0]))


def _each(convert: Callable[[Any], Any] | None, values: list[Any]) -> list[Any]:
    return values if convert is None else list(map(convert, values))


RANGE_FORMAT = 1
# Read at once, in the hope that the header is no longer.
HEADER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Range:
    """The sum of the records of consecutive versions, without the records."""

    first: int
    last: int
    nonce: str  # of the record at `last`
    log_start: int = 0  # adds removed at this version or before are left out
    schemas: tuple[tuple[int, str], ...] = ()  # version and key of each change of the rows' schema
    definitions: dict[str, Any] = field(default_factory=dict)
    kept: tuple[Document, ...] = ()  # adds of these versions that are live after the last of them
    ended: tuple[Document, ...] | None = ()  # adds of these versions that one of them removed; None: not read
    removes: dict[str, int] = field(default_factory=dict)  # older adds that one of these versions removed, and which
    previous_nonce: str | None = None  # of the record before `first`, empty for none; None: unknown


class _Placed(NamedTuple):
    adds: int
    ids_length: int
    ids_checksum: str
    rest_length: int
    rest_checksum: str


class _Contents(NamedTuple):
    """The content behind the header, in this order."""

    kept: tuple[_Placed, ...]
    removes_length: int
    removes_checksum: str
    ended: tuple[_Placed, ...]


def pairs_from_json(pairs: list[Any]) -> tuple[tuple[int, str], ...]:
    """Return pairs of a version and a text; a ValueError for others."""
    if not all(type(version) is int and type(text) is str for version, text in pairs):
        raise ValueError(f"pairs of a version and a text are {pairs!r:.80}")
    return tuple((version, text) for version, text in pairs)


DOCUMENT = Fields(
    _Placed,
    Field("adds", "adds", NUMBER),
    Field("idsBytes", "ids_length", NUMBER),
    Field("idsChecksum", "ids_checksum", TEXT),
    Field("fieldsBytes", "rest_length", NUMBER),
    Field("fieldsChecksum", "rest_checksum", TEXT),
)
RANGE = Fields(
    Range,
    Field("firstVersion", "first", NUMBER),
    Field("lastVersion", "last", NUMBER),
    Field("lastNonce", "nonce", TEXT),
    Field("previousNonce", "previous_nonce", TEXT + OR_NULL),
    Field("logStartVersion", "log_start", NUMBER),
    Field("schemas", "schemas", LIST, list, pairs_from_json),
    Field("definitions", "definitions", OBJECT),
    always=True,
)
CONTENTS = Fields(
    _Contents,
    many("live", "kept", DOCUMENT),
    Field("removesBytes", "removes_length", NUMBER),
    Field("removesChecksum", "removes_checksum", TEXT),
    many("ended", "ended", DOCUMENT),
    always=True,
)


def encode_compacted(content: Range) -> bytes:
    """Return the bytes of a range; its ended adds must have been read. ConfigError for one that nobody could read."""
    assert content.ended is not None, "a range without its ended adds is no whole one"
    removes = pack_json({"ids": list(content.removes), "versions": list(content.removes.values())})
    live_documents, ended = (tuple(map(_placed, documents)) for documents in (content.kept, content.ended))
    contents = _Contents(live_documents, len(removes), checksum(removes), ended)
    header = {"ftfileCompacted": RANGE_FORMAT} | RANGE.to_json(content) | CONTENTS.to_json(contents)
    head = to_checked_text([within_limits(compact_json(header))])
    before, behind = (
        b"".join(document.ids + document.rest for document in group) for group in (content.kept, content.ended)
    )
    encoded = head + before + removes + behind
    if len(encoded) > FILE_BYTES_MAX:
        raise ConfigError(f"a range cannot have {len(encoded)} bytes, of {FILE_BYTES_MAX}: nobody could read it")
    return encoded


def decode_compacted(file: InputFile, path: str, *, ended: bool | None) -> Range:
    """Read and check a range from a file.

    With `ended`, the adds that the range itself removed are read, too; with None, no adds at all.
    """
    if file.size_bytes > FILE_BYTES_MAX:
        raise CorruptData(path, f"at most {FILE_BYTES_MAX} bytes", f"{file.size_bytes} bytes", _ADVICE)
    with Decoding(path, _RANGE, _ADVICE):
        header, end = _read_header(file, path)
        header_range = replace(RANGE.from_json(header), ended=None)
        definitions_from_json(header_range.definitions)
        if ended is None:
            return header_range
        contents = CONTENTS.from_json(header)
        lengths = _length(contents.kept) + contents.removes_length, _length(contents.ended)
        if file.size_bytes != end + sum(lengths):
            raise CorruptData(path, f"{end + sum(lengths)} bytes", f"{file.size_bytes} bytes", _ADVICE)
        streams = _Streams(file.read_at(end, sum(lengths) if ended else lengths[0]), path)
        live_documents = tuple(map(streams.document, contents.kept))
        removes = unpack_json(streams.take(contents.removes_length, contents.removes_checksum))
        check_list("ids", removes["ids"], str, len(removes["ids"]))
        check_list("versions", removes["versions"], int, len(removes["ids"]))
        return replace(
            header_range,
            kept=live_documents,
            removes=dict(zip(removes["ids"], removes["versions"], strict=True)),
            ended=tuple(map(streams.document, contents.ended)) if ended else None,
        )


class _Streams:
    def __init__(self, content: bytes, path: str) -> None:
        self._left = memoryview(content)
        self._path = path

    def take(self, length: int, expected: str) -> bytes:
        content, self._left = bytes(self._left[:length]), self._left[length:]
        if len(content) != length or checksum(content) != expected:
            raise CorruptData(self._path, f"{length} bytes with {expected}", checksum(content), _ADVICE)
        return content

    def document(self, placed: _Placed) -> Document:
        ids = self.take(placed.ids_length, placed.ids_checksum)
        return Document(placed.adds, ids, self.take(placed.rest_length, placed.rest_checksum), self._path)


def _read_header(file: InputFile, path: str) -> tuple[dict[str, Any], int]:
    """Return the header, and where the streams begin: after its line and that of its checksum."""
    length = HEADER_BYTES
    while True:
        head = file.read_at(0, length)
        end = head.find(b"\n", head.find(b"\n") + 1) + 1
        if end:
            header: dict[str, Any] = json_value(from_checked_text(head[:end], path, _ADVICE)[0])
            check_format(header, "ftfileCompacted", RANGE_FORMAT, path)
            return header, end
        if len(head) < length:
            raise CorruptData(path, "a header", "none", _ADVICE)
        length *= 8


def _placed(document: Document) -> _Placed:
    ids, rest = document.ids, document.rest
    return _Placed(document.count, len(ids), checksum(ids), len(rest), checksum(rest))


def _length(placed: Iterable[_Placed]) -> int:
    return sum(document.ids_length + document.rest_length for document in placed)
