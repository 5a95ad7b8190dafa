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
    """Bytes are not valid output of a filter, or end too early. Callers replace it by `CorruptData` with the file."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(expected, actual)
        self.expected = expected
        self.found = actual

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}"


class Stream(Protocol):
    """An encoder or a decoder of one stream. It is used once, by one thread, and needs bounded memory."""

    def feed(self, data: Buffer, /) -> bytes:
        """Process the next bytes, and return the available output. Afterwards, the caller can overwrite `data`.

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
    """A stream that returns output in pieces of bounded length, even if a few bytes expand to much output."""

    def pieces(self, data: Buffer) -> Iterator[bytes]:
        """Yield the output of `feed` in pieces. The caller must consume all pieces before the next `feed`."""


@runtime_checkable
class SizedStream(PiecedStream, Protocol):
    """An encoding stream whose output length follows from its input length."""

    def size_of(self, fed_bytes: int) -> int:
        """Return the length of the whole output in bytes for this number of input bytes."""


class Filter(ABC):
    """A filter with its settings: immutable, picklable, comparable, and without secrets.

    A filter of another package is an entry point of the group `ftfile.filters`. Its name is the name of the filter, and
    its value is a class derived from this class.

    Attributes:
        name: key of the registry; the log stores it for each file.
        extension: the ending of file names, with the dot.
        joins: True if concatenated outputs decode to concatenated inputs.
        frame_bytes: for a filter that joins, the number of input bytes after which an output can end. Each file that is
            being written needs this memory.
    """

    name: ClassVar[str]
    extension: ClassVar[str] = ""
    joins: ClassVar[bool] = False
    frame_bytes: ClassVar[int] = 1 << 20

    def definition(self) -> dict[str, Any]:
        """Return the settings as plain JSON for the log; files are assembled with the settings of their segments."""
        return {}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Filter:  # noqa: ARG003 - used by filters with settings
        """Build a filter from `definition()`; an empty definition is sufficient to decode."""
        return cls()

    def with_keys(self, keys: Keys | None) -> Filter:  # noqa: ARG002 - used by filters that encrypt
        """Return the filter with keys if it needs keys, else the filter itself; definitions contain no keys."""
        return self

    @abstractmethod
    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:
        """Start a stream that encodes.

        Args:
            identity: the unique name of the file or segment, to which a filter can bind its output. It is empty for
                frames, which can be moved to other files.
            size_bytes: the length of the input; None if it is unknown.
        """

    @abstractmethod
    def decoder(self, identity: str) -> Stream:
        """Start to decode the output of an encoder with this identity, or of several encoders if the filter joins."""
