"""Compression codecs whose frames contain their own end, such as gzip and zstd."""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from isal import isal_zlib

from ftfile.core.codecs import CODECS
from ftfile.filters.api import BadStream, Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ftfile.filters.api import Buffer, Stream


# Input of one call of a decompressor. It copies all input after the end of its frame, so small frames in a larger input
# would be copied once for each frame.
_FED_BYTES = 64 << 10
# Output of one call of a decompressor, since a few bytes can decode to a million times their length.
_PLAIN_BYTES = 4 << 20
_GZIP_HEADER = 31  # the argument `wbits` of zlib: a gzip header, and a window of 32 KiB
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_FRAME_HEAD_BYTES = 5  # the magic number, and the byte that describes the rest of the frame header
_ZSTD_BLOCK_HEAD_BYTES = 3
_ZSTD_BLOCK_BYTES = 128 << 10
_ZSTD_REPEATED = 1  # the kind of a block that stores one byte, and how often it is repeated
_ISAL_LEVEL_MAX = 3  # ISA-L has no higher levels
_XZ_MEMORY_BYTES_MAX = 256 << 20  # more than level 9 needs
_XZ_DICTIONARY_BYTES_MIN = 4096


@dataclass(frozen=True, slots=True)
class CompressionCodec(Filter):
    """A compression codec whose frames can be concatenated."""

    joins: ClassVar[bool] = True
    levels: ClassVar[tuple[int, int] | None] = None  # the lowest and the highest level
    level_default: ClassVar[int] = 1  # a fast level

    level: int | None = None  # None for the default

    def __init_subclass__(cls) -> None:
        if (name := vars(cls).get("name")) in CODECS:
            cls.extension = CODECS[name].ending

    @property
    def used_level(self) -> int:
        """Return the requested level, or the default."""
        if self.level is None:
            return self.level_default
        return self.level

    def definition(self) -> dict[str, Any]:
        return {"level": self.level}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> CompressionCodec:
        return cls(definition.get("level"))

    @abstractmethod
    def compressor(self, _size_bytes: int | None, /) -> Stream:
        """Start a stream that compresses an input of this size in bytes, which is None if it is unknown."""

    @abstractmethod
    def decompressor(self) -> Stream:
        """Start a stream that decompresses one or more frames in sequence."""

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:
        del identity  # compressed frames can be moved to other files
        return self.compressor(size_bytes)

    def decoder(self, identity: str) -> Stream:
        del identity
        return self.decompressor()


class _Compressor(Protocol):
    """The interface of Python's libraries for the compression of one frame."""

    def compress(self, data: Buffer, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Decompressor(Protocol):
    """The interface of Python's libraries for the decompression of one frame, with bounded pieces of output.

    While neither `eof` nor `needs_input` is true, more output is available without more input.
    """

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: Buffer, max_length: int, /) -> bytes: ...


class Gzip(CompressionCodec):
    """gzip members (RFC 1952), each with a CRC-32 and its length. ISA-L compresses up to level 3, zlib above it."""

    name, levels = "gzip", (1, 9)

    def compressor(self, _size_bytes: int | None, /) -> Stream:
        library = isal_zlib if self.used_level <= _ISAL_LEVEL_MAX else zlib
        return _FrameEncoder(library.compressobj(self.used_level, zlib.DEFLATED, _GZIP_HEADER))

    def decompressor(self) -> Stream:
        library_error = cast("type[Exception]", isal_zlib.error)
        return FrameDecoder(self.name, _GzipFrame, library_error)


class Bzip2(CompressionCodec):
    """bzip2 streams, each with a CRC-32."""

    name, levels = "bzip2", (1, 9)
    level_default = 9
    frame_bytes = 890_000  # one block at level 9, without the growth by run lengths

    def compressor(self, _size_bytes: int | None, /) -> Stream:
        return _FrameEncoder(bz2.BZ2Compressor(self.used_level))

    def decompressor(self) -> Stream:
        return FrameDecoder(self.name, bz2.BZ2Decompressor, OSError, ValueError)


class Xz(CompressionCodec):
    """xz streams, each with a CRC-64."""

    name, levels = "xz", (0, 9)
    frame_bytes = 4 << 20

    def compressor(self, size_bytes: int | None, /) -> Stream:
        settings = {"id": lzma.FILTER_LZMA2, "preset": self.used_level}
        if size_bytes is not None:
            # For some kilobytes, tables for the dictionary of the level, some megabytes, take longer than compression.
            level_bytes = 1 << (18 + self.used_level)
            settings["dict_size"] = max(min(size_bytes, level_bytes), _XZ_DICTIONARY_BYTES_MIN)
        return _FrameEncoder(lzma.LZMACompressor(lzma.FORMAT_XZ, lzma.CHECK_CRC64, filters=[settings]))

    def decompressor(self) -> Stream:
        start = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES_MAX)
        return FrameDecoder(self.name, start, lzma.LZMAError)


class Zstd(CompressionCodec):
    """zstd frames (RFC 8878), each with a checksum of its content, and with its length if that is known."""

    name, levels = "zstd", (1, 22)

    def compressor(self, size_bytes: int | None, /) -> Stream:
        import zstandard

        compressor = zstandard.ZstdCompressor(self.used_level, write_checksum=True)
        if size_bytes is None:
            size_bytes = -1  # unknown
        return _FrameEncoder(compressor.compressobj(size_bytes))

    def decompressor(self) -> Stream:
        import zstandard

        decompressor = zstandard.ZstdDecompressor()

        def start() -> _ZstdFrame:
            return _ZstdFrame(decompressor.decompressobj())

        return FrameDecoder(self.name, start, zstandard.ZstdError)


class Lz4Frame(CompressionCodec):
    """LZ4 frames in the format of the command `lz4`, with a checksum of their content.

    The ending is `.lz4f`. Spark and Hadoop use another format for `.lz4`, and reading a frame as that format exhausts
    their memory.
    """

    name, levels = "lz4frame", (1, 12)

    def compressor(self, size_bytes: int | None, /) -> Stream:
        import lz4.frame

        compressor = lz4.frame.LZ4FrameCompressor(
            block_size=lz4.frame.BLOCKSIZE_MAX1MB, compression_level=self.used_level, content_checksum=True
        )
        return _FrameEncoder(compressor, compressor.begin(size_bytes or 0))

    def decompressor(self) -> Stream:
        import lz4.frame

        return FrameDecoder("lz4", lz4.frame.LZ4FrameDecompressor, RuntimeError)


class _FrameEncoder:
    """Encodes one frame; `head` is output that precedes the output of the compressor."""

    def __init__(self, compressor: _Compressor, head: bytes = b"") -> None:
        self._compressor = compressor
        self._head = head

    def feed(self, data: Buffer, /) -> bytes:
        head, self._head = self._head, b""
        return head + self._compressor.compress(data)

    def finish(self) -> bytes:
        return self._head + self._compressor.flush()


class _GzipFrame:
    """A gzip member with the interface `_Decompressor`, which `isal_zlib` does not have."""

    def __init__(self) -> None:
        self._frame: Any = isal_zlib.decompressobj(_GZIP_HEADER)

    @property
    def needs_input(self) -> bool:
        return not self._frame.unconsumed_tail

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return cast("bytes", self._frame.unused_data)

    def decompress(self, data: Buffer, max_length: int, /) -> bytes:
        return cast("bytes", self._frame.decompress(data or self._frame.unconsumed_tail, max_length))


class _ZstdFrame:
    """A zstd frame, whose blocks are passed to the library a few at a time, to limit the output of a call.

    A frame consists of a header and blocks. A block decodes to at most 128 KiB, but can be stored in a few bytes. Its
    header contains its length, its kind, and a flag for the last block.
    """

    def __init__(self, frame: Any) -> None:  # noqa: ANN401 - imported where it is needed
        self._frame = frame
        self._rest: Buffer = b""  # input that was not decompressed yet
        self._head = b""  # the known bytes of the next header: first of the frame, then of each block
        self._head_bytes = _ZSTD_FRAME_HEAD_BYTES  # length of that header
        self._body_bytes = 0  # input up to that header

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return not self._rest

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data) + bytes(self._rest)

    def decompress(self, data: Buffer, max_length: int, /) -> bytes:
        data = data or self._rest
        end = self._end_of_blocks(data, max_length // _ZSTD_BLOCK_BYTES)
        self._rest = data[end:]
        return bytes(self._frame.decompress(data[:end]))

    def _end_of_blocks(self, data: Buffer, blocks: int) -> int:
        """Return the length of the data up to the end of this number of blocks, or of all data if it has fewer."""
        position = 0
        while position < len(data) and (blocks or self._body_bytes):
            if not self._body_bytes:
                missing_bytes = self._head_bytes - len(self._head)
                piece = bytes(data[position : position + missing_bytes])
                self._head += piece
                position += len(piece)
                if len(self._head) == self._head_bytes:
                    self._body_bytes = self._body_length()
                    self._head, self._head_bytes = b"", _ZSTD_BLOCK_HEAD_BYTES
                    blocks -= 1
            step = min(self._body_bytes, len(data) - position)
            position += step
            self._body_bytes -= step
        return position

    def _body_length(self) -> int:
        """Return the number of bytes between the current header and the next block header."""
        if self._head_bytes == _ZSTD_FRAME_HEAD_BYTES:
            if not self._head.startswith(_ZSTD_MAGIC):
                return sys.maxsize  # another kind of frame, which is passed to the library as a whole
            descriptor = self._head[-1]
            is_single_segment = (descriptor >> 5) & 1
            window_bytes = 1 - is_single_segment
            dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
            size_bytes = (is_single_segment, 2, 4, 8)[descriptor >> 6]
            return window_bytes + dictionary_bytes + size_bytes
        head = int.from_bytes(self._head, "little")
        if head & 1:
            return sys.maxsize  # the last block: the library recognizes the end of the frame
        if head >> 1 & 3 == _ZSTD_REPEATED:
            return 1
        return head >> 3


class FrameDecoder:
    """Decodes one or more frames. `start` returns a decompressor of a frame, which raises `errors` for damaged data."""

    def __init__(self, name: str, start: Callable[[], _Decompressor], *errors: type[Exception]) -> None:
        self._name = name
        self._start = start
        self._errors = errors
        self._frame: _Decompressor | None = None
        self._frames = 0  # complete ones

    def feed(self, data: Buffer, /) -> bytes:
        return b"".join(self.pieces(data))

    def pieces(self, data: Buffer) -> Iterator[bytes]:
        """Yield the output of `feed` in pieces of some megabytes."""
        view = memoryview(data).cast("B")
        start = 0
        while start < len(view):
            if self._frame is None:
                self._frame = self._start()
            frame = self._frame
            end = min(start + _FED_BYTES, len(view))
            yield self._decode_frame(frame, view[start:end])
            while not (frame.eof or frame.needs_input):
                yield self._decode_frame(frame, b"")
            start = end
            if frame.eof:
                self._frame = None
                self._frames += 1
                start = end - len(frame.unused_data or b"")

    def _decode_frame(self, frame: _Decompressor, data: Buffer) -> bytes:
        try:
            return frame.decompress(data, _PLAIN_BYTES)
        except self._errors as error:
            raise BadStream(f"a {self._name} frame", str(error)) from error

    def finish(self) -> bytes:
        if self._frame is not None or not self._frames:
            raise BadStream(f"the end of a {self._name} frame", "the end of the data before the end of the frame")
        return b""
