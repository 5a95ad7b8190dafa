"""LZ4 frames, as the command `lz4` writes them, with a checksum of their content.

Spark and Hadoop read another framing as `.lz4`, and this one in a file of that name exhausts their memory: hence
`.lz4f`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import lz4.frame

from ftfile.filters.codecs.codec import Codec, FrameDecoder

if TYPE_CHECKING:
    from ftfile.filters.api import Buffer, Stream

__all__ = ("Lz4Frame",)


class Lz4Frame(Codec):
    """LZ4 frames."""

    __slots__ = ()

    name: ClassVar[str] = "lz4frame"
    extension: ClassVar[str] = ".lz4f"
    levels: ClassVar[tuple[int, int]] = (1, 12)

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.encoder`."""
        return _Lz4FrameEncoder(self.used_level, size_bytes)

    def decoder(self, identity: str) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.decoder`."""
        return FrameDecoder("LZ4", lz4.frame.LZ4FrameDecompressor, RuntimeError)


class _Lz4FrameEncoder:
    def __init__(self, level: int, size_bytes: int | None) -> None:
        self._compressor = lz4.frame.LZ4FrameCompressor(
            block_size=lz4.frame.BLOCKSIZE_MAX1MB, compression_level=level, content_checksum=True
        )
        self._head: bytes = self._compressor.begin(size_bytes or 0)

    def feed(self, data: Buffer, /) -> bytes:
        head, self._head = self._head, b""
        compressed: bytes = self._compressor.compress(data)
        return head + compressed

    def finish(self) -> bytes:
        compressed: bytes = self._compressor.flush()
        return self._head + compressed
