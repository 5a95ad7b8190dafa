"""The end of an ORC file with the calendar and Spark's types, which Arrow's writer leaves out, and without long texts.

Statistics of stripes and a footer are Protobuf messages; the postscript, another one, follows, and its length in a
byte. In compressed files, those before it are made of chunks, each with its length and a flag for one that is not
compressed.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.arrays.varints import read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TEXT_BYTES_MAX = 1024  # of a text in statistics, as in those of Spark's own writer

# Numbers of fields, and their values.
_FOOTER_TYPES, _FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN = 4, 11, 2
_TYPE_ATTRIBUTES, _ATTRIBUTE_KEY, _ATTRIBUTE_VALUE = 7, 1, 2
_POSTSCRIPT_FOOTER_LENGTH, _POSTSCRIPT_COMPRESSION, _POSTSCRIPT_BLOCK_SIZE, _POSTSCRIPT_STATISTICS_LENGTH = 1, 2, 3, 5
_STRIPE_STATISTICS, _FOOTER_STATISTICS, _COLUMN_OF_STRIPE, _TEXTS_OF_COLUMN = 1, 7, 1, 4
_LEAST, _GREATEST, _LOWER_BOUND, _UPPER_BOUND = 1, 2, 4, 5
_TAIL_FOOTER, _FOOTER_STRIPES, _STRIPE_ROWS = 2, 3, 5
_NUMBER, _BYTES = 0, 2
_SURROGATES, _AFTER_SURROGATES = 0xD800, 0xE000  # these are no characters
_ZLIB, _SNAPPY, _ZSTD = 1, 2, 5
_CHUNK_HEAD_BYTES = 3


def amended(tail: bytes, spark_types: Mapping[int, str], *, has_long_texts: bool = False) -> bytes:
    """Return the end of a file, with all statistics of stripes and the whole footer, amended.

    `spark_types` are Spark's names of types, by their numbers, where ORC's do not say them: TIMESTAMP_NTZ is stored as
    a number, and before 4.2 Spark does not know the type of an instant. Of texts that are longer than `TEXT_BYTES_MAX`
    (`has_long_texts`: there may be some), the statistics get bounds, as those of Spark's own writer, and not copies
    that every reader of the file would read.
    """
    postscript = tail[-1 - tail[-1] : -1]
    known = {number: value for number, value, _ in _fields(postscript) if isinstance(value, int)}
    codec = known[_POSTSCRIPT_COMPRESSION]
    end = len(tail) - 1 - len(postscript)
    start = end - known[_POSTSCRIPT_FOOTER_LENGTH]
    footer = _amended(_plain(tail[start:end], codec), spark_types)
    lengths = {}
    statistics = b""
    if has_long_texts:
        footer = _within(footer, _FOOTER_STATISTICS, _bounded)
        end, start = start, start - known[_POSTSCRIPT_STATISTICS_LENGTH]
        statistics = _within(_plain(tail[start:end], codec), _STRIPE_STATISTICS, _bounded_columns)
        statistics = _packed(statistics, known)
        lengths[_POSTSCRIPT_STATISTICS_LENGTH] = len(statistics)
    footer = _packed(footer, known)
    lengths[_POSTSCRIPT_FOOTER_LENGTH] = len(footer)
    described = b"".join(
        _number(number, lengths[number]) if number in lengths else raw for number, _, raw in _fields(postscript)
    )
    return tail[:start] + statistics + footer + described + bytes([len(described)])


def _packed(message: bytes, postscript: Mapping[int, int]) -> bytes:
    return _chunks(message, postscript[_POSTSCRIPT_BLOCK_SIZE]) if postscript[_POSTSCRIPT_COMPRESSION] else message


def _within(message: bytes, wanted: int, change: Callable[[bytes], bytes]) -> bytes:
    """Return a message with a change made to each of its messages of a number."""
    return b"".join(
        _text(number, change(value)) if number == wanted and isinstance(value, bytes) else raw
        for number, value, raw in _fields(message)
    )


def _bounded_columns(stripe: bytes) -> bytes:
    return _within(stripe, _COLUMN_OF_STRIPE, _bounded)


def _bounded(column: bytes) -> bytes:
    return _within(column, _TEXTS_OF_COLUMN, _bounded_texts)


def _bounded_texts(statistics: bytes) -> bytes:
    """Return statistics of texts with short bounds in place of the least and the greatest, where these are long."""
    kept = []
    for number, value, raw in _fields(statistics):
        if not isinstance(value, bytes) or len(value) <= TEXT_BYTES_MAX:
            kept.append(raw)
            continue
        text = value[:TEXT_BYTES_MAX].decode(errors="ignore")  # without a part of a character
        if number == _LEAST:
            kept.append(_text(_LOWER_BOUND, text.encode()))
        else:
            kept.append(_text(_UPPER_BOUND, _next(text).encode()) if _next(text) else raw)
    return b"".join(kept)


def _next(text: str) -> str:
    """Return a text that is greater than all that begin so; an empty one if there is none."""
    text = text.rstrip(chr(sys.maxunicode))
    if not text:
        return ""
    code = ord(text[-1]) + 1
    return text[:-1] + chr(_AFTER_SURROGATES if code == _SURROGATES else code)


def stripe_rows(tail: bytes) -> list[int]:
    """Return the number of rows of each stripe, from a file's tail as ORC's library keeps it: one plain message."""
    footer = next(value for number, value, _ in _fields(tail) if number == _TAIL_FOOTER and isinstance(value, bytes))
    stripes = [value for number, value, _ in _fields(footer) if number == _FOOTER_STRIPES and isinstance(value, bytes)]
    return [
        sum(value for number, value, _ in _fields(stripe) if number == _STRIPE_ROWS and isinstance(value, int))
        for stripe in stripes
    ]


def _amended(footer: bytes, spark_types: Mapping[int, str]) -> bytes:
    # Without a calendar, readers take dates before 1582 for Julian ones.
    kept, types = [], 0
    for number, value, raw in _fields(footer):
        if number == _FOOTER_TYPES and isinstance(value, bytes):
            kept.append(_text(number, value + (_attribute(spark_types[types]) if types in spark_types else b"")))
            types += 1
        elif number != _FOOTER_CALENDAR:
            kept.append(raw)
    return b"".join([*kept, _number(_FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN)])


def _attribute(spark_type: str) -> bytes:
    value = _text(_ATTRIBUTE_KEY, b"spark.sql.catalyst.type") + _text(_ATTRIBUTE_VALUE, spark_type.encode())
    return _text(_TYPE_ATTRIBUTES, value)


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
