"""gzip: by ISA-L where it has the level, else by zlib."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, ClassVar, cast

from isal import isal_zlib

from ftfile.filters.codecs.codec import Codec, FrameDecoder

if TYPE_CHECKING:
    from ftfile.filters.api import Buffer, Stream

__all__ = ("Gzip",)

_WITH_HEADER = 31
_ERROR = cast("type[Exception]", isal_zlib.error)
_ISAL_LEVEL_MAX = 3


class Gzip(Codec):
    """gzip members (RFC 1952), each with its CRC-32 and length."""

    __slots__ = ()

    name: ClassVar[str] = "gzip"
    extension: ClassVar[str] = ".gz"
    levels: ClassVar[tuple[int, int]] = (1, 9)

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.encoder`."""
        return _GzipEncoder(self.used_level)

    def decoder(self, identity: str) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.decoder`."""
        return FrameDecoder("gzip", lambda: isal_zlib.decompressobj(_WITH_HEADER), _ERROR)


class _GzipEncoder:
    def __init__(self, level: int) -> None:
        library = isal_zlib if level <= _ISAL_LEVEL_MAX else zlib
        self._compressor = library.compressobj(level, zlib.DEFLATED, _WITH_HEADER)

    def feed(self, data: Buffer, /) -> bytes:
        compressed: bytes = self._compressor.compress(data)
        return compressed

    def finish(self) -> bytes:
        compressed: bytes = self._compressor.flush()
        return compressed
