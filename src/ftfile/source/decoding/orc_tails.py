"""The columns, streams and zones in the footers of an ORC file and its stripes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ftfile.rows.buffers import read_varint
from ftfile.rows.orc_messages import decode_message, fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import orc


# Numbers of fields in ORC's messages.
_TAIL_POSTSCRIPT, _TAIL_FOOTER = 1, 2
_POSTSCRIPT_CODEC = 2
_FOOTER_STRIPES, _FOOTER_TYPES, _TYPE_KIND, _TYPE_PARTS = 3, 4, 1, 2
_STRIPE_START, _STRIPE_INDEX, _STRIPE_DATA, _STRIPE_FOOTER = 1, 2, 3, 4
_STREAMS, _ENCODINGS, _ZONE = 1, 2, 3
_STREAM_KIND, _STREAM_COLUMN, _STREAM_LENGTH, _ENCODING_KIND = 1, 2, 3, 1

_CODECS = frozenset({0, 1, 2, 5})  # codecs that `orc_messages.decode_message` decompresses


class ColumnStream(NamedTuple):
    """Bytes of a column in a stripe."""

    kind: int
    column: int
    start: int
    length: int


class Stripe(NamedTuple):
    """The streams of a stripe, the encodings of its columns, and the zone of its clocks or None."""

    streams: list[ColumnStream]
    encodings: list[int]
    zone: str | None


class OrcTail(NamedTuple):
    """The messages at the end of a file."""

    postscript: bytes
    footer: bytes
    codec: int

    @classmethod
    def of(cls, opened: orc.ORCFile) -> OrcTail:
        """Return the messages of a file."""
        tail = first_values(opened.reader.serialized_file_tail())
        postscript = bytes_of(tail.get(_TAIL_POSTSCRIPT))
        codec = first_values(postscript).get(_POSTSCRIPT_CODEC, 0)
        assert isinstance(codec, int), "the file was opened"
        return cls(postscript, bytes_of(tail.get(_TAIL_FOOTER)), codec)

    def is_decompressed(self) -> bool:
        """Return True if ftfile can decompress the codec of the file."""
        return self.codec in _CODECS

    def kinds(self) -> list[int]:
        """Return the numbers of the types of all columns, including nested columns."""
        kinds = []
        for message in messages(self.footer, _FOOTER_TYPES):
            kinds.append(number_of(first_values(message).get(_TYPE_KIND)))
        return kinds

    def columns_of(self, place: int) -> range:
        """Return the numbers of the column at a place of the schema and of all its nested columns.

        Raises:
            ValueError: the footer has no such columns.
        """
        types = messages(self.footer, _FOOTER_TYPES)
        ends = [*_parts(types[0]), len(types)] if types else []
        if place + 1 >= len(ends) or not ends[place] <= ends[place + 1] <= len(types):
            raise ValueError(f"{len(types)} types without the columns of column {place}")
        return range(ends[place], ends[place + 1])

    def stripes(self, file: BinaryIO) -> Iterator[Stripe]:
        """Yield the footer of each stripe."""
        for message in messages(self.footer, _FOOTER_STRIPES):
            yield self._stripe(file, first_values(message))

    def _stripe(self, file: BinaryIO, message: dict[int, int | bytes]) -> Stripe:
        start = number_of(message.get(_STRIPE_START))
        end = start + number_of(message.get(_STRIPE_INDEX)) + number_of(message.get(_STRIPE_DATA))
        footer = decode_message(read_at(file, end, number_of(message.get(_STRIPE_FOOTER))), self.codec)
        streams, encodings, zone = [], [], None
        for number, value, _ in fields(footer):
            if number == _STREAMS:
                part = first_values(bytes_of(value))
                length = number_of(part.get(_STREAM_LENGTH))
                kind, column = number_of(part.get(_STREAM_KIND)), number_of(part.get(_STREAM_COLUMN))
                streams.append(ColumnStream(kind, column, start, length))
                start += length
            elif number == _ENCODINGS:
                encodings.append(number_of(first_values(bytes_of(value)).get(_ENCODING_KIND)))
            elif number == _ZONE:
                zone = bytes_of(value).decode(errors="replace")
        return Stripe(streams, encodings, zone)


def _parts(message: bytes) -> Iterator[int]:
    """Yield the numbers of the columns within a column."""
    for number, value, _ in fields(message):
        if number != _TYPE_PARTS:
            continue
        if isinstance(value, int):
            yield value
            continue
        position = 0
        while position < len(value):
            part, position = read_varint(value, position)
            yield part


def read_at(file: BinaryIO, start: int, length: int) -> bytes:
    """Return bytes of a file; `ValueError` if the file has fewer."""
    size = file.seek(0, os.SEEK_END)
    if start + length > size:
        raise ValueError(f"{length} bytes at {start} in a file of {size}")
    file.seek(start)
    return file.read(length)


def first_values(message: bytes) -> dict[int, int | bytes]:
    """Return the first value of each field of a message."""
    values: dict[int, int | bytes] = {}
    for number, value, _ in fields(message):
        values.setdefault(number, value)
    return values


def messages(message: bytes, field: int) -> list[bytes]:
    """Return all values of a field that contains messages."""
    values = []
    for number, value, _ in fields(message):
        if number == field:
            values.append(bytes_of(value))
    return values


def bytes_of(value: int | bytes | None) -> bytes:
    """Return a field that is a text or a message; empty if it is missing."""
    if isinstance(value, bytes):
        return value
    return b""


def number_of(value: int | bytes | None) -> int:
    """Return a field that is a number; 0 if it is missing."""
    if isinstance(value, int):
        return value
    return 0
