"""The interface of byte filters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.filters.keys import Keys


__all__ = ("BadStream", "Buffer", "ByteWriter", "Filter", "PiecedStream", "SizedStream", "Stream")


Buffer = bytes | bytearray | memoryview


class ByteWriter(Protocol):
    """The target of encoded bytes."""

    @property
    def position(self) -> int:
        """Return the number of written bytes."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append all of `data` and return its length."""


class BadStream(Exception):
    """Bytes are not valid output of a filter, or end too early; callers that know the file raise `CorruptData`."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(expected, actual)
        self.expected = expected
        self.found = actual

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}"


class Stream(Protocol):
    """One direction of a filter for one stream: used once, by one thread, with bounded memory."""

    def feed(self, data: Buffer, /) -> bytes:
        """Process the next bytes, which the caller can reuse at once, and return the available output.

        Raises:
            BadStream: when decoding, the bytes are not valid output of the filter.
        """

    def finish(self) -> bytes:
        """Return the rest of the output.

        Raises:
            BadStream: when decoding, the stream ended too early.
        """


@runtime_checkable
class PiecedStream(Stream, Protocol):
    """A stream with output in pieces of bounded length, even if a few bytes expand to much output."""

    def pieces(self, data: Buffer) -> Iterator[bytes]:
        """Yield the output of `feed` in pieces; all of them must be consumed before the next `feed`."""


@runtime_checkable
class SizedStream(PiecedStream, Protocol):
    """An encoding stream whose output length follows from its input length."""

    def size_of(self, fed_bytes: int) -> int:
        """Return the length of the whole output in bytes for this number of input bytes."""


class Filter(ABC):
    """A filter with its settings: immutable, picklable, comparable, and without secrets.

    A filter of another package is an entry point of the group `ftfile.filters`: its name is the name of the filter, its
    value a class derived from this one.

    Attributes:
        name: key of the registry; the log stores it for each file.
        extension: the ending of file names, with the dot.
        joins: concatenated outputs decode to concatenated inputs.
        frame_bytes: of a filter that joins, the number of bytes after which an output can end; a file that is being
            written
            needs this memory.
    """

    name: ClassVar[str]
    extension: ClassVar[str] = ""
    joins: ClassVar[bool] = False
    frame_bytes: ClassVar[int] = 1 << 20

    def definition(self) -> dict[str, Any]:
        """Return the settings as plain JSON for the log; files are assembled with the settings of their segments."""
        return {}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Filter:  # noqa: ARG003 - for those with settings
        """Build from `definition()`; an empty one makes a filter that decodes."""
        return cls()

    def with_keys(self, keys: Keys | None) -> Filter:  # noqa: ARG002 - for those that encrypt
        """Return the filter with keys, if it needs any; definitions contain no keys."""
        return self

    @abstractmethod
    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:
        """Start a stream.

        Args:
            identity: of the file or segment, unique; a filter can bind its output to it. Empty for frames, which can be
                moved to
                other files.
            size_bytes: the length of the input, if known.
        """

    @abstractmethod
    def decoder(self, identity: str) -> Stream:
        """Start to decode the output of an encoder with this identity, or of several encoders if the filter joins."""
