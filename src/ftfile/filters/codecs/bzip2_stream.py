"""bzip2, as Python brings it."""

from __future__ import annotations

import bz2
from typing import TYPE_CHECKING, ClassVar

from ftfile.filters.codecs.codec import Codec, FrameDecoder

if TYPE_CHECKING:
    from ftfile.filters.api import Buffer, Stream

__all__ = ("Bzip2",)


class Bzip2(Codec):
    """bzip2 streams, each with a CRC-32."""

    __slots__ = ()

    name: ClassVar[str] = "bzip2"
    extension: ClassVar[str] = ".bz2"
    levels: ClassVar[tuple[int, int]] = (1, 9)
    level_default: ClassVar[int] = 9
    # One block at level 9, but for what run lengths add.
    frame_bytes: ClassVar[int] = 890_000

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.encoder`."""
        return _Bzip2Encoder(self.used_level)

    def decoder(self, identity: str) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.decoder`."""
        return FrameDecoder("bzip2", bz2.BZ2Decompressor, OSError, ValueError)


class _Bzip2Encoder:
    def __init__(self, level: int) -> None:
        self._compressor = bz2.BZ2Compressor(level)

    def feed(self, data: Buffer, /) -> bytes:
        return self._compressor.compress(data)

    def finish(self) -> bytes:
        return self._compressor.flush()
