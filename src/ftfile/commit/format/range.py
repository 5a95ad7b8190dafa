"""A range as bytes: a line of JSON that says what is where, its checksum, and compressed documents of adds.

What is live at the range's end comes first: who reads a version beyond it reads no further.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ftfile.commit.format.columns import Columns, decode_columns, decode_ids, encode_columns, pack_json, unpack_json
from ftfile.commit.format.record import UNREADABLE, from_checked_text, to_checked_text
from ftfile.core.checksum import checksum, matches
from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.fs.api import InputFile

__all__ = ("RANGE_FORMAT", "Document", "Range", "decode_range", "decode_summary", "encode_range")

RANGE_FORMAT = 1
# Read at once, in the hope that the header is no longer.
HEADER_BYTES = 1 << 16
_ADVICE = "While the records that it stands for are kept, ftfile.maintenance.ranges.merge_ranges(path) makes it anew"


@dataclass(frozen=True, slots=True)
class Document:
    """Some 50,000 adds at most, in the order of their records, compressed."""

    count: int
    ids: bytes
    rest: bytes

    @classmethod
    def of(cls, columns: Columns) -> Document:
        """Return the document of these adds."""
        return cls(len(columns.ids), *encode_columns(columns))

    def versions(self) -> Columns:
        """Return ids and versions alone."""
        return decode_ids(self.ids)

    def columns(self) -> Columns:
        """Return everything."""
        return decode_columns(self.ids, self.rest)


@dataclass(frozen=True, slots=True)
class Range:
    """What the records of consecutive versions say, without the records.

    Attributes:
        nonce: of the record at `last`.
        previous_nonce: of the record before `first`, empty for none; None when it is not known.
        log_start: adds removed at this version or before are not in it any more.
        schemas: version and key of each change of the rows' schema.
        definitions: all that the records brought.
        kept: adds of these versions that are live after the last of them.
        ended: adds of these versions that one of them removed; None when they were not read.
        removes: id of each older add that one of these versions removed, and which.
    """

    first: int
    last: int
    nonce: str
    log_start: int = 0
    schemas: tuple[tuple[int, str], ...] = ()
    definitions: dict[str, Any] = field(default_factory=dict)
    kept: tuple[Document, ...] = ()
    ended: tuple[Document, ...] | None = ()
    removes: dict[str, int] = field(default_factory=dict)
    previous_nonce: str | None = None


def encode_range(content: Range) -> bytes:
    """Return the bytes of a range; its ended adds must have been read."""
    assert content.ended is not None, "a range without its ended adds is no whole one"
    removes = pack_json([list(content.removes), list(content.removes.values())])
    header = {
        "ftfileRange": RANGE_FORMAT,
        "first": content.first,
        "last": content.last,
        "nonce": content.nonce,
        "previousNonce": content.previous_nonce,
        "logStart": content.log_start,
        "schemas": content.schemas,
        "definitions": content.definitions,
        "kept": [_describe(document) for document in content.kept],
        "removes": [len(removes), checksum(removes)],
        "ended": [_describe(document) for document in content.ended],
    }
    head = to_checked_text([json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()])
    kept, ended = (b"".join(_streams(documents)) for documents in (content.kept, content.ended))
    return head + kept + removes + ended


def decode_range(file: InputFile, path: str, *, ended: bool) -> Range:
    """Read and check a range.

    Args:
        file: open on it.
        path: for messages.
        ended: whether to read also the adds that it removed itself.

    Raises:
        CorruptData: a checksum does not match, or the format is not known.
    """
    try:
        header, start = _read_header(file, path)
        expected = start + _length(header["kept"]) + header["removes"][0] + _length(header["ended"])
        if file.size_bytes != expected:
            raise CorruptData(path, f"{expected} bytes", f"{file.size_bytes} bytes", _ADVICE)
        streams = _Streams(file, path, start)
        streams.load(_length(header["kept"]) + header["removes"][0])
        kept = streams.documents(header["kept"])
        removes = unpack_json(streams.take(*header["removes"]))
        if ended:
            streams.load(_length(header["ended"]))
        return replace(
            _summary(header),
            schemas=tuple((version, key) for version, key in header["schemas"]),
            definitions={**header["definitions"]},
            kept=kept,
            ended=streams.documents(header["ended"]) if ended else None,
            removes=dict(zip(*removes, strict=True)),
        )
    except UNREADABLE as error:
        raise CorruptData(path, "a range of records", f"unreadable fields ({error!r})", _ADVICE) from error


def decode_summary(file: InputFile, path: str) -> Range:
    """Return which versions a range stands for, and of which log, without what it says of them.

    Raises:
        CorruptData: see `decode_range`.
    """
    try:
        return _summary(_read_header(file, path)[0])
    except UNREADABLE as error:
        raise CorruptData(path, "a range of records", f"unreadable fields ({error!r})", _ADVICE) from error


def _summary(header: dict[str, Any]) -> Range:
    first, last, log_start = header["first"], header["last"], header["logStart"]
    nonce, previous_nonce = header["nonce"], header["previousNonce"]
    numbers = all(type(number) is int for number in (first, last, log_start))
    if not (numbers and type(nonce) is str and type(previous_nonce) in {str, type(None)}):
        raise ValueError("a number or a text of another type")
    return Range(first, last, nonce, log_start, ended=None, previous_nonce=previous_nonce)


class _Streams:
    """Hands out what lies one after the other in a file, checked."""

    def __init__(self, file: InputFile, path: str, start: int) -> None:
        self._file = file
        self._path = path
        self._end = start
        self._data = memoryview(b"")

    def load(self, length: int) -> None:
        self._data = memoryview(self._file.read_at(self._end, length))
        self._end += length

    def take(self, length: int, expected: str) -> bytes:
        content, self._data = bytes(self._data[:length]), self._data[length:]
        if len(content) != length or not matches(content, expected):
            raise CorruptData(self._path, f"{length} bytes with {expected}", checksum(content), _ADVICE)
        return content

    def documents(self, described: Iterable[list[Any]]) -> tuple[Document, ...]:
        return tuple(Document(count, self.take(*ids), self.take(*rest)) for count, ids, rest in described)


def _read_header(file: InputFile, path: str) -> tuple[dict[str, Any], int]:
    """Return the header, and where the streams begin: after its line and that of its checksum."""
    length = HEADER_BYTES
    while True:
        head = file.read_at(0, length)
        end = head.find(b"\n", head.find(b"\n") + 1) + 1
        if end:
            header: dict[str, Any] = json.loads(from_checked_text(head[:end], path, _ADVICE)[0])
            if header["ftfileRange"] != RANGE_FORMAT:
                found = repr(header["ftfileRange"])
                raise CorruptData(path, f"range format {RANGE_FORMAT}", found, "Use a newer ftfile")
            return header, end
        if len(head) < length:
            raise CorruptData(path, "a header", "none", _ADVICE)
        length *= 8


def _describe(document: Document) -> list[Any]:
    streams = (document.ids, document.rest)
    return [document.count, *([len(stream), checksum(stream)] for stream in streams)]


def _length(described: Iterable[list[Any]]) -> int:
    return sum(ids[0] + rest[0] for _, ids, rest in described)


def _streams(documents: Iterable[Document]) -> Iterator[bytes]:
    for document in documents:
        yield document.ids
        yield document.rest
