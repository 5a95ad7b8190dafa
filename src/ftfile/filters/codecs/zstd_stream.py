"""zstd frames, with their length and a checksum of their content."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import zstandard

from ftfile.filters.codecs.codec import Codec, FrameDecoder

if TYPE_CHECKING:
    from ftfile.filters.api import Buffer, Stream

__all__ = ("Zstd",)


class Zstd(Codec):
    """zstd frames (RFC 8878)."""

    __slots__ = ()

    name: ClassVar[str] = "zstd"
    extension: ClassVar[str] = ".zst"
    levels: ClassVar[tuple[int, int]] = (1, zstandard.MAX_COMPRESSION_LEVEL)

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.encoder`."""
        return _ZstdEncoder(self.used_level, size_bytes)

    def decoder(self, identity: str) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.decoder`."""
        return FrameDecoder("zstd", zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError)


class _ZstdEncoder:
    def __init__(self, level: int, size_bytes: int | None) -> None:
        compressor = zstandard.ZstdCompressor(level, write_checksum=True)
        self._compressor = compressor.compressobj(-1 if size_bytes is None else size_bytes)

    def feed(self, data: Buffer, /) -> bytes:
        return self._compressor.compress(data)

    def finish(self) -> bytes:
        return self._compressor.flush()
