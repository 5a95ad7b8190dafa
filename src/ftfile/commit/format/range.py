"""A range as bytes: a line of JSON that says what is where, its checksum, and compressed documents of adds.

Live adds come first: who reads a version beyond the range reads no further.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.commit.format.columns import Document, pack_json, unpack_json
from ftfile.commit.format.fields import LIST, NUMBER, OBJECT, OR_NULL, TEXT, Field, Fields, many
from ftfile.commit.format.record import UNREADABLE, check_format, compact_json, from_checked_text, to_checked_text
from ftfile.core.checksum import checksum, matches
from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.fs.api import InputFile

RANGE_FORMAT = 1
# Read at once, in the hope that the header is no longer.
HEADER_BYTES = 1 << 16
_ADVICE = "While the records that it stands for are kept, ftfile.maintenance.ranges.merge_ranges(path) makes it anew"


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
    Field("schemas", "schemas", LIST, list, lambda pairs: tuple((version, key) for version, key in pairs)),
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


def encode_range(content: Range) -> bytes:
    """Return the bytes of a range; its ended adds must have been read."""
    assert content.ended is not None, "a range without its ended adds is no whole one"
    removes = pack_json({"ids": list(content.removes), "versions": list(content.removes.values())})
    kept, ended = (tuple(map(_placed, documents)) for documents in (content.kept, content.ended))
    contents = _Contents(kept, len(removes), checksum(removes), ended)
    header = {"ftfileRange": RANGE_FORMAT} | RANGE.to_json(content) | CONTENTS.to_json(contents)
    head = to_checked_text([compact_json(header)])
    before, behind = (b"".join(each.ids + each.rest for each in group) for group in (content.kept, content.ended))
    return head + before + removes + behind


def decode_range(file: InputFile, path: str, *, ended: bool | None) -> Range:
    """Read and check a range from a file.

    With `ended`, the adds that the range itself removed are read, too; with None, no adds at all.
    """
    try:
        header, end = _read_header(file, path)
        found = replace(RANGE.from_json(header), ended=None)
        if ended is None:
            return found
        contents = CONTENTS.from_json(header)
        lengths = _length(contents.kept) + contents.removes_length, _length(contents.ended)
        if file.size_bytes != end + sum(lengths):
            raise CorruptData(path, f"{end + sum(lengths)} bytes", f"{file.size_bytes} bytes", _ADVICE)
        streams = _Streams(file.read_at(end, sum(lengths) if ended else lengths[0]), path)
        kept = tuple(map(streams.document, contents.kept))
        removes = unpack_json(streams.take(contents.removes_length, contents.removes_checksum))
        return replace(
            found,
            kept=kept,
            removes=dict(zip(removes["ids"], removes["versions"], strict=True)),
            ended=tuple(map(streams.document, contents.ended)) if ended else None,
        )
    except UNREADABLE as error:
        raise CorruptData(path, "a range of records", f"unreadable fields ({error!r})", _ADVICE) from error


class _Streams:
    def __init__(self, content: bytes, path: str) -> None:
        self._left = memoryview(content)
        self._path = path

    def take(self, length: int, expected: str) -> bytes:
        content, self._left = bytes(self._left[:length]), self._left[length:]
        if len(content) != length or not matches(content, expected):
            raise CorruptData(self._path, f"{length} bytes with {expected}", checksum(content), _ADVICE)
        return content

    def document(self, placed: _Placed) -> Document:
        ids = self.take(placed.ids_length, placed.ids_checksum)
        return Document(placed.adds, ids, self.take(placed.rest_length, placed.rest_checksum))


def _read_header(file: InputFile, path: str) -> tuple[dict[str, Any], int]:
    """Return the header, and where the streams begin: after its line and that of its checksum."""
    length = HEADER_BYTES
    while True:
        head = file.read_at(0, length)
        end = head.find(b"\n", head.find(b"\n") + 1) + 1
        if end:
            header: dict[str, Any] = json.loads(from_checked_text(head[:end], path, _ADVICE)[0])
            check_format(header, "ftfileRange", RANGE_FORMAT, path)
            return header, end
        if len(head) < length:
            raise CorruptData(path, "a header", "none", _ADVICE)
        length *= 8


def _placed(document: Document) -> _Placed:
    ids, rest = document.ids, document.rest
    return _Placed(document.count, len(ids), checksum(ids), len(rest), checksum(rest))


def _length(placed: Iterable[_Placed]) -> int:
    return sum(each.ids_length + each.rest_length for each in placed)
