"""Sequences of filters, of which the first one processes written bytes first.

The module of a filter is imported at first use.
"""

from __future__ import annotations

import itertools
import operator
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ftfile.core.codecs import CODECS
from ftfile.core.errors import ConfigError
from ftfile.core.extensions import load_class
from ftfile.filters.api import Filter, PiecedStream, SizedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ftfile.filters.api import Buffer, ByteWriter, Stream
    from ftfile.filters.codecs import CompressionCodec
    from ftfile.filters.keys import Keys


ENTRY_POINT_GROUP = "ftfile.filters"

_FED_BYTES = 64 << 10  # for a filter that returns all of its output at once

ENCRYPTION = {"aes-gcm": "ftfile.filters.aes_gcm:AesGcm"}

_BUILT_IN = {name: f"ftfile.filters.{codec.code}" for name, codec in CODECS.items()} | ENCRYPTION


def codec(name: str, level: int | None = None) -> CompressionCodec:
    """Return a codec; `ConfigError` if its package is missing, or the level is not supported."""
    codec_filter = cast("CompressionCodec", filter_class(name).from_definition({"level": level}))
    if level is None:
        return codec_filter
    if codec_filter.levels is None:
        raise ConfigError(f"compressionLevel={level} with compression={name}: this codec has no levels")
    low, high = codec_filter.levels
    if not low <= level <= high:
        raise ConfigError(f"option compressionLevel={level}: for {name} it must be {low} to {high}")
    return codec_filter


def filter_class(name: str) -> type[Filter]:
    """Return the class of a filter; `ConfigError` if it is unknown or cannot be loaded."""
    class_ = load_class("filter", name, built_in=_BUILT_IN, group=ENTRY_POINT_GROUP, base=Filter)  # type: ignore[type-abstract]
    if name in CODECS and (package := CODECS[name].package):
        try:
            pkgutil.resolve_name(package)
        except ImportError as error:
            raise ConfigError(
                f"compression={name} needs a package that is not installed here ({error}): "
                f"pip install 'ftfile[{name}]', on the driver and on the executors"
            ) from error
    return class_


@dataclass(frozen=True, slots=True)
class Chain:
    """The filters of a file, in the order in which they are applied when it is written.

    The leading filters that join make *frames*, which can be moved between files unchanged. The other filters are the
    *envelope* around all frames of a file or segment, which is written again for another file.
    """

    filters: tuple[Filter, ...] = ()

    @classmethod
    def from_definition(cls, definition: Iterable[Mapping[str, Any]], keys: Keys | None = None) -> Chain:
        """Return the chain of a definition; `ConfigError` if a filter is not installed."""
        filters = []
        for entry in definition:
            filter_ = filter_class(entry["name"]).from_definition(entry)
            filters.append(filter_.with_keys(keys))
        return cls(tuple(filters))

    @classmethod
    def for_reading(cls, names: Sequence[str], keys: Keys | None = None) -> Chain:
        """Return the chain that decodes; `ConfigError` if a filter is not installed."""
        return cls.from_definition(({"name": name} for name in names), keys)

    def definition(self) -> list[dict[str, Any]]:
        """Return the filters with their settings, in order, as plain JSON."""
        return [{"name": filter_.name, **filter_.definition()} for filter_ in self.filters]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names in order, which the log stores for each file."""
        # shares the empty tuple of defaults: see `part_of`
        return tuple(filter_.name for filter_ in self.filters) or ()

    @property
    def extension(self) -> str:
        """Return the ending of file names."""
        return "".join(filter_.extension for filter_ in self.filters)

    @property
    def framing(self) -> tuple[Filter, ...]:
        """Return the filters that make frames."""
        return tuple(itertools.takewhile(operator.attrgetter("joins"), self.filters))

    @property
    def frame_bytes(self) -> int:
        """Return the number of plain bytes in a frame."""
        return max(filter_.frame_bytes for filter_ in self.framing)

    def frame(self, data: Buffer) -> bytes:
        """Return data as one frame."""
        for filter_ in self.framing:
            stream = filter_.encoder("", len(data))
            data = stream.feed(data) + stream.finish()
        return bytes(data)

    def open_frames(self, frames: bytes) -> bytes:
        """Return the data of frames; `BadStream` if one is damaged or incomplete."""
        return _all_of(Composed(_decoders(self.framing, "")), frames)

    def sealer(self, identity: str) -> Composed:
        """Start an envelope."""
        return Composed([filter_.encoder(identity) for filter_ in self._envelope])

    def unseal(self, data: bytes, identity: str) -> bytes:
        """Return the frames in an envelope; `BadStream` if it is damaged, incomplete, or of another file."""
        return _all_of(Composed(_decoders(self._envelope, identity)), data)

    def decoder(self, identity: str) -> Composed:
        """Start to decode a file or segment."""
        return Composed(_decoders(self._envelope, identity) + _decoders(self.framing, ""))

    def decode(self, data: bytes, identity: str) -> bytes:
        """Return decoded `data`; `BadStream` if it is damaged, incomplete, or of another file."""
        return _all_of(self.decoder(identity), data)

    @property
    def _envelope(self) -> tuple[Filter, ...]:
        return self.filters[len(self.framing) :]


def _decoders(filters: Sequence[Filter], identity: str) -> list[Stream]:
    return [filter_.decoder(identity) for filter_ in reversed(filters)]


class Composed:
    """Several streams in sequence."""

    def __init__(self, streams: list[Stream]) -> None:
        self._streams = streams

    def feed(self, data: Buffer, /) -> bytes:
        """Return all available output."""
        for stream in self._streams:
            data = stream.feed(data)
        return bytes(data)

    def pieces(self, data: Buffer) -> Iterator[bytes]:
        """Yield the output of `feed` in pieces."""
        *before, last = self._streams
        for stream in before:
            data = stream.feed(data)
        if isinstance(last, SizedStream):
            return last.pieces(data)
        return iter((last.feed(data),))

    def size_of(self, fed_bytes: int) -> int | None:
        """Return the length of the whole output for this number of input bytes; None if unknown."""
        size: int | None = fed_bytes
        for stream in self._streams:
            if size is not None and isinstance(stream, SizedStream):
                size = stream.size_of(size)
            else:
                size = None
        return size

    def finish(self) -> bytes:
        """Return the rest of the output."""
        rest = b""
        for stream in self._streams:
            rest = stream.feed(rest) + stream.finish() if rest else stream.finish()
        return rest

    def all_pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the output of `feed` for each of these pieces, and of `finish`, in pieces of bounded length."""
        output = iter(pieces)
        for stream in self._streams:
            output = _output(stream, output)
        return output


def _output(stream: Stream, pieces: Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(stream, PiecedStream):  # which is as fast for a small piece
        for piece in pieces:
            yield from stream.pieces(piece)
    else:
        for piece in pieces:
            view = memoryview(piece)
            for start in range(0, len(view), _FED_BYTES):
                yield stream.feed(view[start : start + _FED_BYTES])
    yield stream.finish()


def _all_of(stream: Stream, data: bytes) -> bytes:
    return stream.feed(data) + stream.finish()


class FilteredFile:
    """A file or segment that accepts plain bytes.

    Bytes are collected to frames. So an open file needs no compressor, files can be joined, and the length of a file is
    known after every frame. The envelope around the frames of a file is one stream. Without filters, bytes are written
    directly to the target. For the identity, see `Filter.encoder`.
    """

    def __init__(self, target: ByteWriter, chain: Chain, identity: str) -> None:
        self.position = 0  # in plain bytes
        self._target = target
        self._chain = chain
        self._start = target.position
        self._frame_bytes = max(1, chain.frame_bytes) if chain.framing else 0
        self._envelope = chain.sealer(identity) if chain.framing != chain.filters else None
        self._sealed_bytes = 0  # input of the envelope
        self._held_bytes = 0  # input without output, if the filter does not report its length
        self._open = bytearray()  # of the next frame
        self._framed_plain_bytes = 0
        self._framed_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Return the number of plain bytes that are in no frame yet."""
        return len(self._open)

    @property
    def size_bytes(self) -> int:
        """Return the length of the file if it ended now; an estimate while a frame is open."""
        return self.size_bytes_with(round(len(self._open) * self._ratio))

    def size_bytes_with(self, framed_bytes: int) -> int:
        """Return the length of the file with more bytes of frames and its end."""
        size = None
        if self._envelope is not None:
            size = self._envelope.size_of(self._sealed_bytes + framed_bytes)
        if size is None:
            return self._target.position - self._start + self._held_bytes + framed_bytes
        return size

    def framed_room(self, limit_bytes: int) -> int:
        """Return the bytes of frames that fit below a size, negative if the file is too long; no frame is open."""
        room = limit_bytes - self.size_bytes
        if room > 0:
            return room - (self.size_bytes_with(room) - limit_bytes)
        return room

    def size_bytes_max(self, plain_bytes: int) -> int:
        """Return the greatest possible length of the file with more plain bytes; random data expands."""
        unframed = len(self._open) + plain_bytes
        return self.size_bytes_with(unframed + unframed // 32 + 640)

    def plain_room(self, limit_bytes: int) -> int:
        """Return the plain bytes with which the file has about this size; at least one."""
        return max(1, int((limit_bytes - self.size_bytes) / self._ratio))

    def reaches(self, limit_bytes: int) -> bool:
        """Return True if the file has this length; if the length is an estimate, end the frame and measure."""
        if self.size_bytes < limit_bytes:
            return False
        self.flush()
        return self.size_bytes >= limit_bytes

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append plain bytes and return their number."""
        view = memoryview(data).cast("B")
        self.position += view.nbytes
        if not self._frame_bytes:
            self._append(view)
            return view.nbytes
        start = 0
        if self._open:
            start = self._frame_bytes - len(self._open)
            self._open += view[:start]
            if len(self._open) == self._frame_bytes:
                self.flush()
        while view.nbytes - start >= self._frame_bytes:
            self._write_frame(view[start : start + self._frame_bytes])
            start += self._frame_bytes
        self._open += view[start:]
        return view.nbytes

    def write_frames(self, frames: bytes, plain_bytes: int) -> None:
        """Append complete frames of other files of this chain, with this number of plain bytes."""
        self.flush()
        self._append(frames)
        self.position += plain_bytes
        self._count(plain_bytes, len(frames))

    def write_beside(self, append: Callable[[], object], plain_bytes: int) -> None:
        """Count bytes, plain or frames of this chain, that `append` writes directly to the target."""
        self.flush()
        before = self._target.position
        append()
        self.position += plain_bytes
        self._count(plain_bytes, self._target.position - before)

    def flush(self) -> None:
        """End the open frame, if there is one."""
        if self._open:
            frame, self._open = self._open, bytearray()
            self._write_frame(frame)

    def finish(self) -> None:
        """End the open frame and the envelope; the target stays open."""
        self.flush()
        if self._envelope is not None:
            self._target.write(self._envelope.finish())
            self._held_bytes, self._envelope = 0, None

    @property
    def _ratio(self) -> float:
        # Initially nothing is known, and an estimate must not be too small.
        if self._framed_bytes:
            return self._framed_bytes / self._framed_plain_bytes
        return 1.0

    def _write_frame(self, data: bytearray | memoryview) -> None:
        frame = self._chain.frame(data)
        self._append(frame)
        self._count(len(data), len(frame))

    def _count(self, plain_bytes: int, framed_bytes: int) -> None:
        self._framed_plain_bytes += plain_bytes
        self._framed_bytes += framed_bytes

    def _append(self, data: bytes | memoryview) -> None:
        if self._envelope is None:
            self._target.write(data)
            return
        self._sealed_bytes += len(data)
        out_bytes = sum(map(self._target.write, self._envelope.pieces(data)))
        self._held_bytes = self._held_bytes + len(data) if not out_bytes else 0


def chain_from_options(
    compression: str | None, level: int | None, names: Sequence[str], encryption: Filter | None = None
) -> Chain:
    """Return the filters of the options, or raise `ConfigError`: compression, then `filters`, then encryption."""
    if compression is None:
        compression = "none"
    if compression not in {"none", *CODECS}:
        raise ConfigError(f"option compression={compression!r}: for lines it must be none, {', '.join(CODECS)}")
    if level is not None and compression == "none":
        raise ConfigError(f"compressionLevel={level} without compression: name the codec, as in compression=gzip")
    for name in names:
        if name in CODECS:
            raise ConfigError(f"filters={name} is a codec: set compression={name}")
        if name in ENCRYPTION:
            raise ConfigError(f"filters={name} encrypts: set encryption={name}, which comes after all filters")
    chain: list[Filter] = []
    if compression != "none":
        chain.append(codec(compression, level))
    chain += [filter_class(name).from_definition({}) for name in names]
    if encryption is not None:
        chain.append(encryption)
    return Chain(tuple(chain))
