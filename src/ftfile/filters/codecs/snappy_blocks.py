"""snappy as Hadoop and Spark write and read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from ftfile.filters.api import BadStream
from ftfile.filters.codecs.codec import Codec
from ftfile.filters.codecs.hadoop_blocks import BlockDecoder, BlockEncoder

if TYPE_CHECKING:
    from ftfile.filters.api import Buffer, Stream

__all__ = ("SnappyBlocks",)

# As much as Hadoop puts into a block: its readers have buffers of 256 KiB for data and for chunks.
_BLOCK_BYTES = 218_422
_CODEC = pa.Codec("snappy")


class SnappyBlocks(Codec):
    """snappy in Hadoop's blocks."""

    __slots__ = ()

    name: ClassVar[str] = "snappy"
    extension: ClassVar[str] = ".snappy"
    frame_bytes: ClassVar[int] = 5 * _BLOCK_BYTES

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.encoder`."""
        return BlockEncoder(_BLOCK_BYTES, _compress)

    def decoder(self, identity: str) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.decoder`."""
        return BlockDecoder("snappy", _decompress, pa.ArrowException, OSError)


def _compress(data: Buffer) -> bytes:
    compressed: bytes = _CODEC.compress(data, asbytes=True)
    return compressed


def _decompress(chunk: bytes, size_bytes: int) -> bytes:
    found = _length(chunk)
    if found > size_bytes:
        raise BadStream(f"a snappy chunk of at most {size_bytes} bytes", f"one of {found}")
    plain: bytes = _CODEC.decompress(chunk, found, asbytes=True)
    return plain


def _length(chunk: bytes) -> int:
    """Return how long the data of a chunk is, as its first bytes say: seven bits each, the lowest first."""
    length = 0
    for place, byte in enumerate(chunk[:5]):
        length |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 - the eighth bit says that more follow
            return length
    raise BadStream("the length of a snappy chunk", chunk[:5].hex())
