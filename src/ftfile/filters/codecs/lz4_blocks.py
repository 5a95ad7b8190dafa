"""LZ4 as Hadoop and Spark write and read it: `.lz4` files that the command `lz4` does not know."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import lz4.block

from ftfile.filters.codecs.codec import Codec
from ftfile.filters.codecs.hadoop_blocks import BlockDecoder, BlockEncoder

if TYPE_CHECKING:
    from ftfile.filters.api import Buffer, Stream

__all__ = ("Lz4Blocks",)

# As much as Hadoop puts into a block: its readers have buffers of 256 KiB for data and for chunks.
_BLOCK_BYTES = 261_100
_HIGH_LEVEL_MIN = 3


class Lz4Blocks(Codec):
    """LZ4 in Hadoop's blocks."""

    __slots__ = ()

    name: ClassVar[str] = "lz4"
    extension: ClassVar[str] = ".lz4"
    levels: ClassVar[tuple[int, int]] = (1, 12)
    frame_bytes: ClassVar[int] = 4 * _BLOCK_BYTES

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.encoder`."""
        return BlockEncoder(_BLOCK_BYTES, partial(_compress, self.used_level))

    def decoder(self, identity: str) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.decoder`."""
        return BlockDecoder("LZ4", _decompress, lz4.block.LZ4BlockError)


def _compress(level: int, data: Buffer) -> bytes:
    mode: dict[str, Any] = (
        {"mode": "high_compression", "compression": level} if level >= _HIGH_LEVEL_MIN else {"mode": "default"}
    )
    compressed: bytes = lz4.block.compress(data, store_size=False, **mode)
    return compressed


def _decompress(chunk: bytes, size_bytes: int) -> bytes:
    plain: bytes = lz4.block.decompress(chunk, uncompressed_size=size_bytes)
    return plain
