"""What the compression codecs share: levels, and frames one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ftfile.filters.api import BadStream, Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.filters.api import Buffer

__all__ = ("Codec", "Decompressor", "FrameDecoder")

# A decompressor copies what it was fed behind the end of its frame: with all of many frames, that would be too much.
_FED_BYTES = 64 << 10


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


class Decompressor(Protocol):
    """How Python's libraries decompress one frame."""

    @property
    def eof(self) -> bool:
        """Say whether the frame ended."""

    @property
    def unused_data(self) -> bytes | None:
        """Return what came after it."""

    def decompress(self, data: Buffer, /) -> bytes:
        """Return what can be said so far."""


class FrameDecoder:
    """Decodes one or more frames, one after the other.

    Args:
        what: they are, for messages.
        start: makes a decompressor of one frame.
        errors: that it raises for damaged data.
    """

    def __init__(self, what: str, start: Callable[[], Decompressor], *errors: type[Exception]) -> None:
        self._what = what
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
                raise BadStream(f"a {self._what} frame", str(error)) from error
            if frame.eof:
                self._frame, start = None, end - len(frame.unused_data or b"")
                self._frames += 1
            else:
                self._frame, start = frame, end
        return b"".join(pieces)

    def finish(self) -> bytes:
        """See `Stream.finish`."""
        if self._frame is not None or not self._frames:
            raise BadStream(f"the end of a {self._what} frame", "the end of the data before it")
        return b""
