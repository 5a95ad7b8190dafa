"""Avro's object container files: a header with the schema, and blocks of rows, each compressed by itself."""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa
from isal import isal_zlib

from ftfile.arrays.varints import read_varint, varint
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.encoding.base.reading import corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER_BYTES = 16

_MAGIC = b"Obj\x01"
_ISAL_ERROR = cast("type[Exception]", isal_zlib.error)
_RAW_DEFLATE = -15
_ISAL_LEVEL_MAX = 3
_CRC_BYTES = 4
_VARINT_BYTES_MAX = 10


def import_fastavro(what: str = "reading Avro") -> Any:  # noqa: ANN401 - a module without types
    """Return fastavro, which reads rows of Avro; raises `ConfigError` where it is not installed, for `what` is done."""
    try:
        import fastavro  # noqa: PLC0415 - needed for few calls
    except ImportError as error:
        raise ConfigError(
            f"{what} needs a package that is not installed here ({error}): pip install 'ftfile[avro]', on the "
            "driver and on the executors"
        ) from error
    return fastavro


def header(schema: dict[str, Any], codec: str, marker: bytes) -> bytes:
    """Return the start of a file; `codec` by its name in Avro."""
    entries = {"avro.schema": json.dumps(schema, separators=(",", ":")).encode(), "avro.codec": codec.encode()}
    described = b"".join(_text(key.encode()) + _text(value) for key, value in entries.items())
    return _MAGIC + _long(len(entries)) + described + _long(0) + marker


def block(rows: int, data: bytes | memoryview, marker: bytes) -> bytes:
    """Return a block of rows from their compressed bytes."""
    return b"".join([_long(rows), _long(len(data)), data, marker])


def compressed(data: memoryview, codec: str, level: int | None) -> bytes | memoryview:
    """Return the data of a block; `codec` by its name in Avro."""
    if codec == "deflate":
        used = level or 1
        library = isal_zlib if used <= _ISAL_LEVEL_MAX else zlib
        compressor = library.compressobj(used, zlib.DEFLATED, _RAW_DEFLATE)
        deflated: bytes = compressor.compress(data) + compressor.flush()
        return deflated
    if codec == "snappy":
        packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
        return packed + isal_zlib.crc32(data).to_bytes(_CRC_BYTES, "big")
    if codec == "zstandard":
        frame: bytes = pa.Codec("zstd", level or 1).compress(data, asbytes=True)
        return frame
    return data


def read_header(file: BinaryIO) -> tuple[Any, str, bytes]:
    """Return the schema, the codec by its name in Avro, and the marker, or raise `CorruptData`; blocks follow."""
    entries = read_metadata(file)
    try:
        schema, codec = json.loads(entries[b"avro.schema"]), entries[b"avro.codec"].decode()
        return schema, codec, _read(file, MARKER_BYTES)
    except (ValueError, KeyError) as error:
        raise _no_header(file, error) from error


def read_metadata(file: BinaryIO) -> dict[bytes, bytes]:
    """Return the entries of the header, or raise `CorruptData`; the marker follows."""
    entries: dict[bytes, bytes] = {}
    try:
        _expect(file, _MAGIC)
        while count := _read_long(file):
            for _ in range(count):
                key = _read(file, _read_long(file))
                entries[key] = _read(file, _read_long(file))
    except (ValueError, KeyError) as error:
        raise _no_header(file, error) from error
    return entries


def _no_header(file: BinaryIO, error: Exception) -> CorruptData:
    return corrupt(file, "an Avro file", f"no header of one: {error!r}")


def blocks(file: BinaryIO, codec: str, marker: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number of rows and the bytes of each block from the position on; `CorruptData` if one is not whole."""
    start = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(start)
    while file.tell() < end:
        try:
            rows, size = _read_long(file), _read_long(file)
            data = _read(file, min(size, end))
            _expect(file, marker)
            plain = _decompressed(data, codec)
        except (ValueError, OSError, zlib.error, _ISAL_ERROR) as error:
            raise corrupt(file, "whole blocks of an Avro file", error) from error
        yield rows, plain


def _decompressed(data: bytes, codec: str) -> bytes:
    if codec == "deflate":
        decompressor = isal_zlib.decompressobj(_RAW_DEFLATE)
        plain: bytes = decompressor.decompress(data)
        if not decompressor.eof or decompressor.unused_data:
            raise ValueError("a block that is no whole deflate stream")
        return plain
    if codec == "snappy":
        packed, crc = data[:-_CRC_BYTES], int.from_bytes(data[-_CRC_BYTES:], "big")
        plain = pa.Codec("snappy").decompress(packed, read_varint(packed)[0], asbytes=True)
        if isal_zlib.crc32(plain) != crc:
            raise ValueError("a block with another checksum than it says")
        return plain
    if codec == "zstandard":
        return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())
    if codec == "null":
        return data
    raise ValueError(f"codec {codec!r}")


def _long(number: int) -> bytes:
    return varint(number << 1)


def _text(data: bytes) -> bytes:
    return _long(len(data)) + data


def _read_long(file: BinaryIO) -> int:
    data = _read(file, 1)
    while data[-1] > 0x7F and len(data) < _VARINT_BYTES_MAX:  # noqa: PLR2004 - there is more
        data += _read(file, 1)
    number, _ = read_varint(data)
    return (number >> 1) ^ -(number & 1)


def _expect(file: BinaryIO, data: bytes) -> None:
    found = _read(file, len(data))
    if found != data:
        raise ValueError(f"{found!r} instead of {data!r}")


def _read(file: BinaryIO, size: int) -> bytes:
    if size < 0:
        raise ValueError(f"a length of {size}")
    data = file.read(size)
    if len(data) != size:
        raise ValueError(f"an end {size - len(data)} bytes too early")
    return data
