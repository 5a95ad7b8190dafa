"""Protobuf messages and compressed chunks of ORC files, at the end of files and stripes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.rows.buffers import read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Iterator


_NUMBER, _BYTES = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}  # the lengths of numbers, which ORC does not use, by kind
_ZLIB, _SNAPPY, _ZSTD = 1, 2, 5
_CHUNK_HEAD_BYTES = 3
_CHUNK_BYTES_MAX = 1 << 23  # the largest that a header can contain


class Field(NamedTuple):
    """A field of a message."""

    number: int
    value: int | bytes
    content: bytes  # with the key


def fields(message: bytes) -> Iterator[Field]:
    """Yield number, value and bytes of each field; a ValueError for bytes that are not a message."""
    position = 0
    while position < len(message):
        start = position
        key, position = read_varint(message, position)
        kind = key & 7
        value: int | bytes
        if kind in _FIXED_BYTES:
            value = message[position : position + _FIXED_BYTES[kind]]
            position += _FIXED_BYTES[kind]
        elif kind in {_NUMBER, _BYTES}:
            value, position = read_varint(message, position)
            if kind == _BYTES:
                size = value
                value = message[position : position + size]
                position += size
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        yield Field(key >> 3, value, message[start:position])


def number_field(field: int, value: int) -> bytes:
    """Return a numeric field."""
    return varint(field << 3 | _NUMBER) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    """Return a text or message field."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def decode_message(data: bytes, codec: int) -> bytes:
    """Return decompressed data, given ORC's number of the codec.

    Raises:
        ValueError: a chunk is damaged, or too large for ORC.
    """
    if not codec:
        return data
    blocks, position = [], 0
    while position < len(data):
        head = int.from_bytes(data[position : position + _CHUNK_HEAD_BYTES], "little")
        position += _CHUNK_HEAD_BYTES
        chunk = data[position : position + (head >> 1)]
        position += len(chunk)
        try:
            blocks.append(chunk if head & 1 else _decompress_chunk(chunk, codec))
        except OSError as error:  # pyarrow raises it for damaged bytes
            raise ValueError(str(error)) from error
    return b"".join(blocks)


def _decompress_chunk(chunk: bytes, codec: int) -> bytes:
    if codec == _ZLIB:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            return _decode_whole(stream.decompress(chunk, _CHUNK_BYTES_MAX + 1))
        except zlib.error as error:
            raise ValueError(str(error)) from error
    if codec == _SNAPPY:
        size, _ = read_varint(chunk)
        if size > _CHUNK_BYTES_MAX:
            raise ValueError(f"a chunk of {size} bytes")
        plain: bytes = pa.Codec("snappy").decompress(chunk, size, asbytes=True)
        return plain
    assert codec == _ZSTD, f"codec {codec}"
    return _decode_whole(bytes(pa.CompressedInputStream(pa.BufferReader(chunk), "zstd").read(_CHUNK_BYTES_MAX + 1)))


def _decode_whole(data: bytes) -> bytes:
    if len(data) > _CHUNK_BYTES_MAX:
        raise ValueError(f"a chunk of more than {_CHUNK_BYTES_MAX} bytes")
    return data


def chunks(data: bytes, size_max: int) -> bytes:
    """Return data in uncompressed chunks."""
    output = bytearray()
    for start in range(0, len(data), size_max):
        piece = data[start : start + size_max]
        output += (len(piece) << 1 | 1).to_bytes(_CHUNK_HEAD_BYTES, "little")
        output += piece
    return bytes(output)
