"""The compression codecs `lz4` and `snappy` in Hadoop's block format, which Spark reads and writes.

A block is the length of its data, then chunks: the length of the compressed chunk, and the chunk. Lengths are four
bytes, big endian. A file has no end mark and no checksum: only the log shows a missing end, or damage that still
decompresses. The command `lz4` cannot read it: HADOOP-12990.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import lz4.block
import pyarrow as pa

from ftfile.filters.api import BadStream
from ftfile.filters.codecs import CompressionCodec
from ftfile.rows.buffers import read_varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.filters.api import Buffer, Stream


# No writer makes longer blocks, and a damaged length must not allocate all memory.
BLOCK_BYTES_MAX = 64 << 20

_LENGTH_BYTES = 4

# Hadoop's block size: its readers have buffers of 256 KiB for data and for chunks.
_LZ4_BLOCK_BYTES, _SNAPPY_BLOCK_BYTES = 261_100, 218_422
_LZ4_HIGH_LEVEL_MIN = 3
_SNAPPY = pa.Codec("snappy")


class Lz4Blocks(CompressionCodec):
    """LZ4 in Hadoop's blocks."""

    name, levels = "lz4", (1, 12)
    frame_bytes = 4 * _LZ4_BLOCK_BYTES

    def compressor(self, _size_bytes: int | None, /) -> Stream:
        mode: dict[str, Any] = {"mode": "default"}
        if self.used_level >= _LZ4_HIGH_LEVEL_MIN:
            mode = {"mode": "high_compression", "compression": self.used_level}
        return BlockEncoder(_LZ4_BLOCK_BYTES, partial(lz4.block.compress, store_size=False, **mode))

    def decompressor(self) -> Stream:
        return BlockDecoder("LZ4", lz4.block.decompress, lz4.block.LZ4BlockError)


class SnappyBlocks(CompressionCodec):
    """snappy in Hadoop's blocks."""

    name = "snappy"
    frame_bytes = 5 * _SNAPPY_BLOCK_BYTES

    def compressor(self, _size_bytes: int | None, /) -> Stream:
        return BlockEncoder(_SNAPPY_BLOCK_BYTES, partial(_SNAPPY.compress, asbytes=True))

    def decompressor(self) -> Stream:
        return BlockDecoder("snappy", _decode_snappy, pa.ArrowException, OSError)


def _decode_snappy(chunk: bytes, size_bytes_max: int) -> bytes:
    """Return the data of a chunk, which begins with the length of the data as a varint."""
    try:
        length, _ = read_varint(chunk, bytes_max=5)
    except ValueError:
        raise BadStream("the length of a snappy chunk", chunk[:5].hex()) from None
    if length > size_bytes_max:
        raise BadStream(f"a snappy chunk of at most {size_bytes_max} bytes", f"a chunk of {length} bytes")
    plain: bytes = _SNAPPY.decompress(chunk, length, asbytes=True)
    return plain


class BlockEncoder:
    """Writes blocks of one chunk each."""

    def __init__(self, block_bytes: int, compress: Callable[[Buffer], bytes]) -> None:
        self._block_bytes = block_bytes
        self._compress = compress
        self._rest = bytearray()

    def feed(self, data: Buffer, /) -> bytes:
        view, start, pieces = memoryview(data).cast("B"), 0, []
        if self._rest:
            start = self._block_bytes - len(self._rest)
            self._rest += view[:start]
            if len(self._rest) < self._block_bytes:
                return b""
            pieces, self._rest = self._block(bytes(self._rest)), bytearray()
        while len(view) - start >= self._block_bytes:
            pieces += self._block(view[start : start + self._block_bytes])
            start += self._block_bytes
        self._rest += view[start:]
        return b"".join(pieces)

    def finish(self) -> bytes:
        if self._rest:
            return b"".join(self._block(bytes(self._rest)))
        return b""

    def _block(self, data: Buffer) -> list[bytes]:
        chunk = self._compress(data)
        return [len(data).to_bytes(_LENGTH_BYTES, "big"), len(chunk).to_bytes(_LENGTH_BYTES, "big"), chunk]


class BlockDecoder:
    """Reads blocks of any number of chunks.

    `decompress(chunk, max_bytes)` returns the data of a chunk; `errors` mean damage.
    """

    def __init__(self, name: str, decompress: Callable[[bytes, int], bytes], *errors: type[Exception]) -> None:
        self._name = name
        self._decompress = decompress
        self._errors = errors
        self._rest = bytearray()
        self._missing = 0
        self._blocks = 0

    def feed(self, data: Buffer, /) -> bytes:
        self._rest += data
        pieces, start = [], 0
        while True:
            chunk_start = start + (_LENGTH_BYTES if self._missing else 2 * _LENGTH_BYTES)
            if chunk_start > len(self._rest):
                break
            missing = self._missing or self._length(start)
            end = chunk_start + self._length(chunk_start - _LENGTH_BYTES)
            if end > len(self._rest):
                break
            pieces.append(self._chunk(bytes(self._rest[chunk_start:end]), missing))
            self._missing = missing - len(pieces[-1])
            self._blocks += not self._missing
            start = end
        del self._rest[:start]
        return b"".join(pieces)

    def finish(self) -> bytes:
        if self._rest or self._missing or not self._blocks:
            raise BadStream(f"the end of a {self._name} block", "the end of the data before the end of the block")
        return b""

    def _length(self, start: int) -> int:
        length = int.from_bytes(self._rest[start : start + _LENGTH_BYTES], "big")
        if not 0 < length <= BLOCK_BYTES_MAX:
            raise BadStream(f"a {self._name} block of at most {BLOCK_BYTES_MAX} bytes", f"a block of {length} bytes")
        return length

    def _chunk(self, chunk: bytes, missing: int) -> bytes:
        try:
            piece = self._decompress(chunk, missing)
        except self._errors as error:
            raise BadStream(f"{self._name} data", str(error)) from error
        if not 0 < len(piece) <= missing:
            raise BadStream(f"a {self._name} chunk of at most {missing} bytes", f"a chunk of {len(piece)} bytes")
        return piece
