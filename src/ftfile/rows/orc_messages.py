"""Messages of Protobuf and compressed chunks, as ORC files have them at their end and at the end of stripes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.rows.buffers import read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Iterator


_NUMBER, _BYTES = 0, 2
_ZLIB, _SNAPPY, _ZSTD = 1, 2, 5
_CHUNK_HEAD_BYTES = 3
_CHUNK_BYTES_MAX = 1 << 23  # that a head can name


def fields(message: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
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


def number_field(field: int, value: int) -> bytes:
    """Return a field that is a number."""
    return varint(field << 3 | _NUMBER) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    """Return a field that is a text or a message."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def plain(data: bytes, codec: int) -> bytes:
    """Return data without the compression of its chunks, whose codec has a number in ORC.

    Raises:
        ValueError: a chunk is damaged, or larger than ORC has it.
    """
    if not codec:
        return data
    blocks, position = [], 0
    while position < len(data):
        head = int.from_bytes(data[position : position + _CHUNK_HEAD_BYTES], "little")
        position += _CHUNK_HEAD_BYTES
        chunk = data[position : position + (head >> 1)]
        position += len(chunk)
        blocks.append(chunk if head & 1 else _decompressed(chunk, codec))
    return b"".join(blocks)


def _decompressed(chunk: bytes, codec: int) -> bytes:
    if codec == _ZLIB:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            return _whole(stream.decompress(chunk, _CHUNK_BYTES_MAX + 1))
        except zlib.error as error:
            raise ValueError(str(error)) from error
    if codec == _SNAPPY:
        size, _ = read_varint(chunk)
        if size > _CHUNK_BYTES_MAX:
            raise ValueError(f"a chunk of {size} bytes")
        plain: bytes = pa.Codec("snappy").decompress(chunk, size, asbytes=True)
        return plain
    assert codec == _ZSTD, f"codec {codec}"
    return _whole(bytes(pa.CompressedInputStream(pa.BufferReader(chunk), "zstd").read(_CHUNK_BYTES_MAX + 1)))


def _whole(data: bytes) -> bytes:
    if len(data) > _CHUNK_BYTES_MAX:
        raise ValueError(f"a chunk of more than {_CHUNK_BYTES_MAX} bytes")
    return data


def chunks(data: bytes, size_max: int) -> bytes:
    """Return data in chunks that are not compressed."""
    pieces = [data[start : start + size_max] for start in range(0, len(data), size_max)]
    return b"".join((len(piece) << 1 | 1).to_bytes(_CHUNK_HEAD_BYTES, "little") + piece for piece in pieces)
