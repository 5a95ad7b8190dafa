"""Avro's object container files.

Every value is nullable, as a union of null and its type: a byte selects the branch.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import os
import zlib
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from ftfile.core.errors import ConfigError, CorruptData
from ftfile.formats.avro_bounds import ROWS_MEMORY_BYTES_MAX, SCHEMA_BYTES_MAX
from ftfile.formats.reading.read_errors import corrupt
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import (
    is_valid,
    list_parts,
    ragged,
    read_varint,
    string_parts,
    strings_from,
    text_scalar,
    values_of,
    varint,
    varints,
    zigzag,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ftfile.formats.avro_bounds import Cost


MARKER_BYTES = 16

BLOCK_BYTES_MAX = 64 << 20  # decompressed

_MAGIC = b"Obj\x01"
_ISAL_ERROR = cast("type[Exception]", isal_zlib.error)
_RAW_DEFLATE = -15
_ISAL_LEVEL_MAX = 3
_CRC_BYTES = 4
_ZLIB_REST_BYTES_MAX = 3  # fastavro leaves the first bytes of zlib's checksum after a deflate stream
_XZ_MEMORY_BYTES_MAX = 256 << 20
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "deflate": partial(isal_zlib.decompressobj, _RAW_DEFLATE),
    "bzip2": bz2.BZ2Decompressor,
    "xz": partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY_BYTES_MAX),
}
_VARINT_BYTES_MAX = 10
_READ_BYTES = 16 << 20  # of one read


def import_fastavro(what: str = "reading Avro") -> Any:  # noqa: ANN401 - a module without types
    """Return fastavro, which reads rows of Avro; raises `ConfigError` if it is missing, with `what` needs it."""
    try:
        import fastavro  # noqa: PLC0415 - needed for few calls
    except ImportError as error:
        raise ConfigError(
            f"{what} needs a package that is not installed ({error}): pip install 'ftfile[avro]', on the driver and "
            "on the executors"
        ) from error
    return fastavro


def header(schema: dict[str, Any], codec: str, marker: bytes) -> bytes:
    """Return the header of a file; `codec` is its name in Avro."""
    entries = {"avro.schema": json.dumps(schema, separators=(",", ":")).encode(), "avro.codec": codec.encode()}
    described = b"".join(_text(key.encode()) + _text(value) for key, value in entries.items())
    return _MAGIC + _long(len(entries)) + described + _long(0) + marker


def block(rows: int, data: bytes | memoryview, marker: bytes) -> bytes:
    """Return a block of rows, given their compressed bytes."""
    return b"".join([_long(rows), _long(len(data)), data, marker])


def compress_block(data: memoryview, codec: str, level: int | None) -> bytes | memoryview:
    """Return the decompressed data of a block; `codec` is its name in Avro."""
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


class Header(NamedTuple):
    """The header of a file of Avro."""

    schema: Any  # JSON
    codec: str
    marker: bytes


def read_header(file: BinaryIO) -> Header:
    """Return the schema, the codec by its name in Avro, and the sync marker, or raise `CorruptData`; blocks follow."""
    return header_of(file, read_metadata(file))


def header_of(file: BinaryIO, entries: dict[bytes, bytes]) -> Header:
    """Return the same as `read_header` for entries of a header; the sync marker follows in the file."""
    try:
        described, codec = entries[b"avro.schema"], entries.get(b"avro.codec", b"null").decode()
        _require_size(len(described), SCHEMA_BYTES_MAX)
        return Header(json.loads(described), codec, _read(file, MARKER_BYTES))
    except (ValueError, KeyError, RecursionError) as error:
        raise _no_header(file, error) from error


def read_metadata(file: BinaryIO) -> dict[bytes, bytes]:
    """Return the entries of the header, or raise `CorruptData`; the sync marker follows."""
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
    return corrupt(file, "an Avro file", f"an invalid header: {error!r}")


def blocks(file: BinaryIO, codec: str, marker: bytes, row: Cost) -> Iterator[tuple[int, bytes]]:
    """Yield the number of rows and the bytes of each block from the current position.

    Raises:
        CorruptData: a block is incomplete, or its rows would take more memory than a block may.
    """
    start = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(start)
    while file.tell() < end:
        try:
            rows, size = _read_long(file), _read_long(file)
            data = _read(file, min(size, end))
            _expect(file, marker)
            plain = _decompress_block(data, codec)
        except (ValueError, OSError, zlib.error, lzma.LZMAError, _ISAL_ERROR) as error:
            raise corrupt(file, "whole blocks of an Avro file", error) from error
        if rows < 0 or row.rows_bytes(rows) > ROWS_MEMORY_BYTES_MAX:
            raise corrupt(
                file,
                f"blocks whose rows take at most {ROWS_MEMORY_BYTES_MAX} bytes in memory",
                f"one of {rows} rows in {len(plain)} bytes, which take more",
            )
        yield rows, plain


class PlainBlocks:
    """A file of blocks, which are decompressed one by one; it is only read forward.

    Attributes:
        rows: of the current block.
        size_bytes: of the current block.
    """

    def __init__(self, schema: Any, plain_blocks: Iterator[tuple[int, bytes]]) -> None:  # noqa: ANN401 - JSON
        self.rows = self.size_bytes = 0
        self._marker = bytes(MARKER_BYTES)
        self._blocks = plain_blocks
        self._piece = io.BytesIO(header(schema, "null", self._marker))

    def tell(self) -> int:
        """Return the position in the block, for readers that need it."""
        return self._piece.tell()

    def read(self, size: int) -> bytes:
        """Return the next bytes, all of one block; empty at the end."""
        data = self._piece.read(size)
        if data or not size:
            return data
        following = next(self._blocks, None)
        if following is None:
            return b""
        self.rows, plain = following
        self.size_bytes = len(plain)
        self._piece = io.BytesIO(block(self.rows, plain, self._marker))
        return self._piece.read(size)


def _decompress_block(data: bytes, codec: str) -> bytes:
    """Return the bytes of a block; `ValueError` if it is incomplete, or longer than `BLOCK_BYTES_MAX`."""
    if codec in _DECOMPRESSORS:
        decompressor = _DECOMPRESSORS[codec]()
        plain: bytes = decompressor.decompress(data, BLOCK_BYTES_MAX)
        if decompressor.eof and len(decompressor.unused_data) <= _ZLIB_REST_BYTES_MAX:
            return plain
        _require_size(len(plain) + (len(plain) == BLOCK_BYTES_MAX))
        raise ValueError(f"a block that is not a complete {codec} stream")
    if codec == "snappy":
        packed, crc = data[:-_CRC_BYTES], int.from_bytes(data[-_CRC_BYTES:], "big")
        plain = pa.Codec("snappy").decompress(packed, _require_size(read_varint(packed)[0]), asbytes=True)
        if isal_zlib.crc32(plain) != crc:
            raise ValueError("a block whose checksum does not match")
        return plain
    if codec == "zstandard":
        plain = bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(BLOCK_BYTES_MAX + 1))
        _require_size(len(plain))
        return plain
    if codec == "null":
        _require_size(len(data))
        return data
    raise ValueError(f"codec {codec!r}")


def _require_size(size_bytes: int, size_bytes_max: int = BLOCK_BYTES_MAX) -> int:
    if size_bytes > size_bytes_max:
        raise ValueError(f"{size_bytes} bytes or more, and at most {size_bytes_max} are supported")
    return size_bytes


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
    data_there = _read(file, len(data))
    if data_there != data:
        raise ValueError(f"{data_there!r} instead of {data!r}")


def _read(file: BinaryIO, size: int) -> bytes:
    if size < 0:
        raise ValueError(f"a length of {size}")
    data = file.read(min(size, _READ_BYTES))
    if len(data) < size:
        data = _read_more(file, size, data)
    return data


def _read_more(file: BinaryIO, size: int, start: bytes) -> bytes:
    """Return `size` bytes that begin with `start`, in steps: a damaged length must not allocate memory."""
    pieces, left = [start], size - len(start)
    while left and pieces[-1]:
        pieces.append(file.read(min(left, _READ_BYTES)))
        left -= len(pieces[-1])
    if left:
        raise ValueError(f"an end {left} bytes too early")
    return b"".join(pieces)


# The branches of `["null", type]`, in zigzag encoding.
_NULL, _PRESENT = 0, 2


def encode_rows(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Return the bytes of each row."""
    return _join_pieces(list(chain.from_iterable(map(_pieces, batch.columns))))


def decimal_bytes(precision: int) -> int:
    """Return the byte length of decimals of a precision."""
    return int(10**precision).bit_length() // 8 + 1


def _join_pieces(pieces: list[pa.Array]) -> pa.BinaryArray:
    """Return the concatenated bytes of columns for each row; a null row has none."""
    nothing = text_scalar(b"", pa.binary())
    return pc.binary_join_element_wise(*pieces, nothing, null_handling="replace", null_replacement="")


def _pieces(array: pa.Array) -> list[pa.Array]:
    """Return the parts of the values of a column, each with its branch."""
    kind, valid = array.type, is_valid(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return [_numbers(_sizes(array), valid), array.view(pa.binary())]
    if pa.types.is_struct(kind):
        branch = _with_branch(np.empty((len(array), 0), np.uint8), 0, valid)
        fields = list(chain.from_iterable(map(_pieces, array.flatten())))
        if not array.null_count:
            return [branch, *fields]
        return [branch, _set_nulls(valid, _join_pieces(fields))]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _list_pieces(array, valid)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return [_numbers(values_of(array, f"i{kind.bit_width // 8}").astype(np.int64), valid)]
    values = _fixed_bytes_of(array)
    return [_with_branch(values, values.shape[1], valid)]


def _list_pieces(array: pa.Array, valid: NDArray[np.bool_]) -> list[pa.Array]:
    """Return counts, elements and their ends; maps have entries of key and value."""
    starts, values = list_parts(array)
    offsets = values_of(starts, np.int32)
    counts = np.diff(offsets).astype(np.int64)
    if pa.types.is_map(array.type):
        keys, items = values.flatten()
        encoded = _join_pieces([ragged(*varints(zigzag(_sizes(keys)))), keys.view(pa.binary()), *_pieces(items)])
    else:
        encoded = _join_pieces(_pieces(values))
    bounds, data = string_parts(encoded)
    # The elements of a row are adjacent, so its bytes are those from the first to the last element.
    elements = strings_from(bounds[offsets], data, pa.binary())
    # A count of zero is the end.
    end = ragged(np.zeros((len(counts), 1), np.uint8), (counts > 0).astype(np.int8))
    return [_numbers(counts, valid), elements, end]


def _sizes(array: pa.Array) -> NDArray[np.int64]:
    offsets, _ = string_parts(array)
    return np.diff(offsets).astype(np.int64)


def _numbers(values: NDArray[np.int64], valid: NDArray[np.bool_]) -> pa.BinaryArray:
    return _with_branch(*varints(zigzag(np.where(valid, values, 0))), valid)


def _fixed_bytes_of(array: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of fixed-width values, one row per value."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return values_of(array.cast(pa.uint8()), np.uint8).reshape(-1, 1)
    width = kind.bit_width // 8
    little = values_of(array, f"V{width}").view(np.uint8).reshape(-1, width)
    if not pa.types.is_decimal(kind):
        return little
    size = decimal_bytes(kind.precision)
    return np.concatenate([np.full((len(array), 1), 2 * size, np.uint8), little[:, size - 1 :: -1]], axis=1)


def _with_branch(
    matrix: NDArray[np.uint8], sizes: NDArray[np.integer] | int, valid: NDArray[np.bool_]
) -> pa.BinaryArray:
    """Return the branch of each value and, if it is not null, the first bytes of its row."""
    with_branch = np.empty((len(valid), 1 + matrix.shape[1]), np.uint8)
    with_branch[:, 0] = np.where(valid, _PRESENT, _NULL)
    with_branch[:, 1:] = matrix
    return ragged(with_branch, 1 + np.where(valid, sizes, 0))


def _set_nulls(valid: NDArray[np.bool_], values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the values that are valid."""
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(values), [bitmap, *values.buffers()[1:]], offset=values.offset)
