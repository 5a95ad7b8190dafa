"""xz, as Python brings it."""

from __future__ import annotations

import lzma
from typing import TYPE_CHECKING, ClassVar

from ftfile.filters.codecs.codec import Codec, FrameDecoder

if TYPE_CHECKING:
    from ftfile.filters.api import Buffer, Stream

__all__ = ("Xz",)

# More than level 9 needs.
_MEMORY_BYTES_MAX = 256 << 20
_DICTIONARY_BYTES_MIN = 4096


class Xz(Codec):
    """xz streams, each with a CRC-64."""

    __slots__ = ()

    name: ClassVar[str] = "xz"
    extension: ClassVar[str] = ".xz"
    levels: ClassVar[tuple[int, int]] = (0, 9)
    frame_bytes: ClassVar[int] = 4 << 20

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.encoder`."""
        return _XzEncoder(self.used_level, size_bytes)

    def decoder(self, identity: str) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.decoder`."""
        return FrameDecoder(
            "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_BYTES_MAX), lzma.LZMAError
        )


class _XzEncoder:
    def __init__(self, level: int, size_bytes: int | None) -> None:
        settings: dict[str, int] = {"id": lzma.FILTER_LZMA2, "preset": level}
        if size_bytes is not None:
            # Tables for the level's megabytes would cost more than compressing some kilobytes.
            settings["dict_size"] = max(min(size_bytes, 1 << (18 + level)), _DICTIONARY_BYTES_MIN)
        self._compressor = lzma.LZMACompressor(lzma.FORMAT_XZ, lzma.CHECK_CRC64, filters=[settings])

    def feed(self, data: Buffer, /) -> bytes:
        return self._compressor.compress(data)

    def finish(self) -> bytes:
        return self._compressor.flush()
