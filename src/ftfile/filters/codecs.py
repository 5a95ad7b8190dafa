"""Compression codecs whose frames carry their own end: gzip, bzip2, xz, zstd and LZ4 frames, each a row of settings."""

from __future__ import annotations

import bz2
import lzma
import zlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from isal import isal_zlib

from ftfile.filters.api import BadStream, Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from ftfile.filters.api import Buffer, Stream

    _Reading: TypeAlias = tuple[Callable[[], "Decompressor"], tuple[type[Exception], ...]]

__all__ = ("Bzip2", "Codec", "Compressor", "Decompressor", "FrameDecoder", "Gzip", "Lz4Frame", "Xz", "Zstd")

# A decompressor copies what it was fed behind the end of its frame: with all of many frames, that would be too much.
_FED_BYTES = 64 << 10
_GZIP_HEADER = 31
_ISAL_LEVEL_MAX = 3
_XZ_MEMORY_BYTES_MAX = 256 << 20  # more than level 9 needs
_XZ_DICTIONARY_BYTES_MIN = 4096


@dataclass(frozen=True, slots=True)
class Codec(Filter):
    """A compression codec. Its frames may follow each other.

    Attributes:
        levels: the lowest and the highest; None where there are none.
        level_default: one that costs little.
        level: None for the default.
    """

    joins: ClassVar[bool] = True
    levels: ClassVar[tuple[int, int] | None] = None
    level_default: ClassVar[int] = 1

    level: int | None = None

    @property
    def used_level(self) -> int:
        """Return the level asked for, or the default."""
        return self.level_default if self.level is None else self.level

    def definition(self) -> dict[str, Any]:
        """See `Filter.definition`; another level is another definition."""
        return {"level": self.level}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Codec:
        """See `Filter.from_definition`."""
        return cls(definition.get("level"))


class Compressor(Protocol):
    """The interface of Python's libraries for compressing one frame."""

    def compress(self, data: Buffer, /) -> bytes:
        """Return the output available so far."""

    def flush(self) -> bytes:
        """Return the end of the frame."""


class Decompressor(Protocol):
    """The interface of Python's libraries for decompressing one frame."""

    @property
    def eof(self) -> bool:
        """Return True once the frame has ended."""

    @property
    def unused_data(self) -> bytes | None:
        """Return the data after the end of the frame."""

    def decompress(self, data: Buffer, /) -> bytes:
        """Return the output available so far."""


class _FrameCodec(Codec):
    """A codec of a library that compresses one frame piece by piece."""

    __slots__ = ()

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.encoder`."""
        return _FrameEncoder(*self._writing(size_bytes))

    def decoder(self, identity: str) -> Stream:  # noqa: ARG002 - for other filters
        """See `Filter.decoder`."""
        start, errors = self._reading()
        return FrameDecoder(self.name.removesuffix("frame"), start, *errors)

    @abstractmethod
    def _writing(self, size_bytes: int | None) -> tuple[Compressor, bytes]:
        """Return a compressor, and the bytes that stand before its output."""

    @abstractmethod
    def _reading(self) -> _Reading:
        """Return a function that makes decompressors, and the errors that these raise for damaged data."""


class Gzip(_FrameCodec):
    """gzip members (RFC 1952), each with its CRC-32 and length: by ISA-L where that is as good, else by zlib."""

    __slots__ = ()

    name, extension, levels = "gzip", ".gz", (1, 9)

    def _writing(self, size_bytes: int | None) -> tuple[Compressor, bytes]:  # noqa: ARG002
        library = isal_zlib if self.used_level <= _ISAL_LEVEL_MAX else zlib
        return library.compressobj(self.used_level, zlib.DEFLATED, _GZIP_HEADER), b""

    def _reading(self) -> _Reading:
        return (lambda: isal_zlib.decompressobj(_GZIP_HEADER)), (cast("type[Exception]", isal_zlib.error),)


class Bzip2(_FrameCodec):
    """bzip2 streams, each with a CRC-32."""

    __slots__ = ()

    name, extension, levels = "bzip2", ".bz2", (1, 9)
    level_default = 9
    frame_bytes = 890_000  # one block at level 9, but for what run lengths add

    def _writing(self, size_bytes: int | None) -> tuple[Compressor, bytes]:  # noqa: ARG002
        return bz2.BZ2Compressor(self.used_level), b""

    def _reading(self) -> _Reading:
        return bz2.BZ2Decompressor, (OSError, ValueError)


class Xz(_FrameCodec):
    """xz streams, each with a CRC-64."""

    __slots__ = ()

    name, extension, levels = "xz", ".xz", (0, 9)
    frame_bytes = 4 << 20

    def _writing(self, size_bytes: int | None) -> tuple[Compressor, bytes]:
        settings = {"id": lzma.FILTER_LZMA2, "preset": self.used_level}
        if size_bytes is not None:
            # Tables for the level's megabytes would cost more than compressing some kilobytes.
            settings["dict_size"] = max(min(size_bytes, 1 << (18 + self.used_level)), _XZ_DICTIONARY_BYTES_MIN)
        return lzma.LZMACompressor(lzma.FORMAT_XZ, lzma.CHECK_CRC64, filters=[settings]), b""

    def _reading(self) -> _Reading:
        return (lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES_MAX)), (lzma.LZMAError,)


class Zstd(_FrameCodec):
    """zstd frames (RFC 8878), with their length and a checksum of their content."""

    __slots__ = ()

    name, extension, levels = "zstd", ".zst", (1, 22)

    def _writing(self, size_bytes: int | None) -> tuple[Compressor, bytes]:
        import zstandard

        compressor = zstandard.ZstdCompressor(self.used_level, write_checksum=True)
        return compressor.compressobj(-1 if size_bytes is None else size_bytes), b""

    def _reading(self) -> _Reading:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj, (zstandard.ZstdError,)


class Lz4Frame(_FrameCodec):
    """LZ4 frames, as the command `lz4` writes them, with a checksum of their content.

    Spark and Hadoop read another framing as `.lz4`, and this one in a file of that name exhausts their memory: hence
    `.lz4f`.
    """

    __slots__ = ()

    name, extension, levels = "lz4frame", ".lz4f", (1, 12)

    def _writing(self, size_bytes: int | None) -> tuple[Compressor, bytes]:
        import lz4.frame

        compressor = lz4.frame.LZ4FrameCompressor(
            block_size=lz4.frame.BLOCKSIZE_MAX1MB, compression_level=self.used_level, content_checksum=True
        )
        return compressor, compressor.begin(size_bytes or 0)

    def _reading(self) -> _Reading:
        import lz4.frame

        return lz4.frame.LZ4FrameDecompressor, (RuntimeError,)


class _FrameEncoder:
    def __init__(self, compressor: Compressor, head: bytes) -> None:
        self._compressor = compressor
        self._head = head

    def feed(self, data: Buffer, /) -> bytes:
        head, self._head = self._head, b""
        return head + self._compressor.compress(data)

    def finish(self) -> bytes:
        return self._head + self._compressor.flush()


class FrameDecoder:
    """Decodes one or more frames, one after the other.

    Args:
        name: of the codec, for messages.
        start: makes a decompressor of one frame.
        errors: that it raises for damaged data.
    """

    def __init__(self, name: str, start: Callable[[], Decompressor], *errors: type[Exception]) -> None:
        self._name = name
        self._start = start
        self._errors = errors
        self._frame: Decompressor | None = None
        self._frames = 0

    def feed(self, data: Buffer, /) -> bytes:
        """See `Stream.feed`."""
        pieces = []
        view, start = memoryview(data).cast("B"), 0
        while start < len(view):
            frame = self._frame or self._start()
            end = min(start + _FED_BYTES, len(view))
            try:
                pieces.append(frame.decompress(view[start:end]))
            except self._errors as error:
                raise BadStream(f"a {self._name} frame", str(error)) from error
            self._frame, start = frame, end
            if frame.eof:
                self._frame, start = None, end - len(frame.unused_data or b"")
                self._frames += 1
        return b"".join(pieces)

    def finish(self) -> bytes:
        """See `Stream.finish`."""
        if self._frame is not None or not self._frames:
            raise BadStream(f"the end of a {self._name} frame", "the end of the data before it")
        return b""
