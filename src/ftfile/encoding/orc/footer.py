"""The end of an ORC file with the calendar and Spark's types, which Arrow's writer leaves out.

A footer is a Protobuf message; the postscript, another one, follows, and its length in a byte. In compressed files, a
footer is made of chunks, each with its length and a flag for one that is not compressed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.arrays.varints import read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# Numbers of fields, and their values.
_FOOTER_TYPES, _FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN = 4, 11, 2
_TYPE_ATTRIBUTES, _ATTRIBUTE_KEY, _ATTRIBUTE_VALUE = 7, 1, 2
_POSTSCRIPT_FOOTER_LENGTH, _POSTSCRIPT_COMPRESSION, _POSTSCRIPT_BLOCK_SIZE = 1, 2, 3
_TAIL_FOOTER, _FOOTER_STRIPES, _STRIPE_ROWS = 2, 3, 5
_NUMBER, _BYTES = 0, 2
_ZLIB, _SNAPPY, _ZSTD = 1, 2, 5
_CHUNK_HEAD_BYTES = 3


def amended(tail: bytes, wall_clocks: Collection[int]) -> bytes:
    """Return the end of a file, with the whole footer, amended.

    `wall_clocks` are the numbers of types that are Spark's TIMESTAMP_NTZ, which it stores as numbers.
    """
    postscript = tail[-1 - tail[-1] : -1]
    known = {number: value for number, value, _ in _fields(postscript) if isinstance(value, int)}
    end = len(tail) - 1 - len(postscript)
    start = end - known[_POSTSCRIPT_FOOTER_LENGTH]
    codec = known[_POSTSCRIPT_COMPRESSION]
    footer = _amended(_plain(tail[start:end], codec), wall_clocks)
    if codec:
        footer = _chunks(footer, known[_POSTSCRIPT_BLOCK_SIZE])
    described = b"".join(
        _number(number, len(footer)) if number == _POSTSCRIPT_FOOTER_LENGTH else raw
        for number, _, raw in _fields(postscript)
    )
    return tail[:start] + footer + described + bytes([len(described)])


def stripe_rows(tail: bytes) -> list[int]:
    """Return the number of rows of each stripe, from a file's tail as ORC's library keeps it: one plain message."""
    footer = next(value for number, value, _ in _fields(tail) if number == _TAIL_FOOTER and isinstance(value, bytes))
    stripes = [value for number, value, _ in _fields(footer) if number == _FOOTER_STRIPES and isinstance(value, bytes)]
    return [
        sum(value for number, value, _ in _fields(stripe) if number == _STRIPE_ROWS and isinstance(value, int))
        for stripe in stripes
    ]


def _amended(footer: bytes, wall_clocks: Collection[int]) -> bytes:
    # Without a calendar, readers take dates before 1582 for Julian ones.
    attribute = _text(_ATTRIBUTE_KEY, b"spark.sql.catalyst.type") + _text(_ATTRIBUTE_VALUE, b"timestamp_ntz")
    kept, types = [], 0
    for number, value, raw in _fields(footer):
        if number == _FOOTER_TYPES and isinstance(value, bytes):
            more = _text(_TYPE_ATTRIBUTES, attribute) if types in wall_clocks else b""
            kept.append(_text(number, value + more))
            types += 1
        elif number != _FOOTER_CALENDAR:
            kept.append(raw)
    return b"".join([*kept, _number(_FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN)])


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Yield number and value of each field, and its bytes."""
    position = 0
    while position < len(message):
        start = position
        key, position = read_varint(message, position)
        number, position = read_varint(message, position)
        value: int | bytes = number
        if key & 7 == _BYTES:
            value = message[position : position + number]
            position += number
        yield key >> 3, value, message[start:position]


def _number(field: int, value: int) -> bytes:
    return varint(field << 3 | _NUMBER) + varint(value)


def _text(field: int, value: bytes) -> bytes:
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def _plain(data: bytes, codec: int) -> bytes:
    if not codec:
        return data
    found, position = [], 0
    while position < len(data):
        head = int.from_bytes(data[position : position + _CHUNK_HEAD_BYTES], "little")
        position += _CHUNK_HEAD_BYTES
        chunk = data[position : position + (head >> 1)]
        position += len(chunk)
        found.append(chunk if head & 1 else _decompressed(chunk, codec))
    return b"".join(found)


def _decompressed(chunk: bytes, codec: int) -> bytes:
    if codec == _ZLIB:
        return zlib.decompress(chunk, -zlib.MAX_WBITS)
    if codec == _SNAPPY:
        size, _ = read_varint(chunk)
        plain: bytes = pa.Codec("snappy").decompress(chunk, size, asbytes=True)
        return plain
    assert codec == _ZSTD, f"codec {codec}"
    return bytes(pa.CompressedInputStream(pa.BufferReader(chunk), "zstd").read())


def _chunks(data: bytes, size_max: int) -> bytes:
    """Return data in chunks that are not compressed."""
    pieces = [data[start : start + size_max] for start in range(0, len(data), size_max)]
    return b"".join((len(piece) << 1 | 1).to_bytes(_CHUNK_HEAD_BYTES, "little") + piece for piece in pieces)
