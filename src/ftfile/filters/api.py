"""The interface of byte filters: bytes in, bytes out, and an end that notices whether something is missing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.filters.keys import Keys


__all__ = ("BadStream", "Buffer", "ByteWriter", "Filter", "PiecedStream", "SizedStream", "Stream")


Buffer = bytes | bytearray | memoryview


class ByteWriter(Protocol):
    """Where encoded bytes go."""

    @property
    def position(self) -> int:
        """Return the number of bytes written so far."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append all of `data` and return its length."""


class BadStream(Exception):
    """Bytes are not those that a filter makes, or end too early; callers that know the file raise `CorruptData`."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(expected, actual)
        self.expected = expected
        self.found = actual

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}"


class Stream(Protocol):
    """One direction of a filter at work on one stream: used once, by one thread, in memory that does not grow."""

    def feed(self, data: Buffer, /) -> bytes:
        """Take the next bytes, which the caller may reuse at once, and return the output available so far.

        Raises:
            BadStream: when decoding, they are not what the filter makes.
        """

    def finish(self) -> bytes:
        """Return the rest of the output.

        Raises:
            BadStream: when decoding, the stream ended too early.
        """


@runtime_checkable
class PiecedStream(Stream, Protocol):
    """A stream whose output comes in pieces of bounded length, however much of it few bytes lead to."""

    def pieces(self, data: Buffer) -> Iterator[bytes]:
        """Yield the output of `feed` in pieces, all of which are to be taken before the next bytes are fed."""


@runtime_checkable
class SizedStream(PiecedStream, Protocol):
    """An encoding stream whose output has a length that follows from that of its input."""

    def size_of(self, fed_bytes: int) -> int:
        """Return the length of the whole output, in bytes, for this number of bytes fed."""


class Filter(ABC):
    """A filter with its settings: immutable, picklable, comparable, and without secrets in it.

    A filter from outside is an entry point of the group `ftfile.filters`: its name is that of the filter, its value a
    class derived from this one.

    Attributes:
        name: key of the registry; the log keeps it for each file.
        extension: what names of files get appended, with the dot.
        joins: whether outputs, one after the other, decode to the inputs one after the other.
        frame_bytes: of a filter that joins, after how many bytes an output may as well end: what a file being written
            takes in memory.
    """

    name: ClassVar[str]
    extension: ClassVar[str] = ""
    joins: ClassVar[bool] = False
    frame_bytes: ClassVar[int] = 1 << 20

    def definition(self) -> dict[str, Any]:
        """Return the settings as plain JSON; kept in the log, so that files are made of open segments as these were."""
        return {}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Filter:  # noqa: ARG003 - for those with settings
        """Build from `definition()`; with an empty one, a filter that decodes."""
        return cls()

    def with_keys(self, keys: Keys | None) -> Filter:  # noqa: ARG002 - for those that encrypt
        """Return the filter with keys, where it takes some: they are in no definition."""
        return self

    @abstractmethod
    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:
        """Start a stream.

        Args:
            identity: of the piece of storage that it goes to, never that of another one; a filter may bind its output
                to it. Empty for frames, which may be moved to other files.
            size_bytes: how much will be fed, if that is known.
        """

    @abstractmethod
    def decoder(self, identity: str) -> Stream:
        """Start to read what an encoder with this identity made, or several of them if the filter joins."""
