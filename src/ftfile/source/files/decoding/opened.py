"""A foreign file that is open: its bytes as they are stored, and its plain content behind codecs and encryption."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from ftfile.commit.format.layout import storage_identity
from ftfile.core.errors import FileChanged
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import plain_pieces, stream_errors
from ftfile.fs.api import RangeFile
from ftfile.fs.streams import as_file
from ftfile.source.files.growth import Fingerprints, codec_as_written, codec_of, fingerprints, marks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.fs.api import InputFile
    from ftfile.keys.keys import Keys
    from ftfile.source.files.plan import Range

_ENCRYPTED = ".enc"

_READ_BYTES = 4 << 20


def filters_of_name(name: str) -> tuple[str, ...]:
    """Return the filters that the ending of a file's name tells, in the order in which they were applied."""
    plain, encrypted, _ = name.rpartition(_ENCRYPTED) if name.endswith(_ENCRYPTED) else (name, "", "")
    codec = codec_of(plain)
    return (*([codec] if codec else []), *(["aes-gcm"] if encrypted else []))


def filters_of_range(planned: Range) -> tuple[str, ...]:
    """Return the filters of the file in which a range was planned; a file that is read in cuts has none."""
    if planned.compression:
        return (planned.compression,)
    return filters_of_name(planned.path) if planned.whole else ()


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file in which a range was found.

    Attributes:
        file: as it is stored; its opener closes it.
        filters: by their names, in the order in which they were applied.
    """

    file: InputFile
    planned: Range
    filters: tuple[str, ...] = ()
    keys: Keys | None = None

    def has_range(self) -> bool:
        """Return True if the content before the end of the range is that which was planned."""
        planned = self.planned
        expected = Fingerprints(planned.head, planned.tail)
        if planned.whole:
            return self.file.size_bytes == planned.end and fingerprints(self.file.read_at, planned.end) == expected
        if not self.filters:
            return fingerprints(self.file.read_at, planned.end) == expected
        _, found = marks_of(self.plain_pieces(0, planned.end), [planned.end])
        return found.get(planned.end) == expected

    def require_range(self) -> None:
        """Raise `FileChanged` if the file was changed while it was read."""
        if not self.has_range():
            raise FileChanged(f"{self.planned.path!r} was changed while it was read")

    def stored_pieces(self, start: int, end: int, step: int = _READ_BYTES) -> Iterator[bytes]:
        """Yield the bytes `[start, end)` as they are stored, `step` at a time; `FileChanged` if there are fewer."""
        while start < end:
            data = self.file.read_at(start, min(step, end - start))
            if not data:
                raise FileChanged(f"{self.planned.path!r} became shorter while it was read")
            yield data
            start += len(data)

    def plain_pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the plain content from one offset to another, by default to its end; `CorruptData` if it is damaged."""
        position = 0
        for piece in self._decoded():
            begin = max(0, start - position)
            position += len(piece)
            if end is not None and position >= end:
                yield piece[begin : len(piece) - (position - end)]
                return
            if begin < len(piece):
                yield piece[begin:]

    def as_file(self) -> BinaryIO:
        """Return the plain content as a seekable file: if it is small, or not stored as it is, all of it is in memory.

        Readers of columns come back to the end of a file, and each time costs a call of the store.
        """
        if not self.filters and self.file.size_bytes > _READ_BYTES:
            # Closing it leaves the file open, which is looked at again.
            return as_file(RangeFile(self.planned.path, self.file.size_bytes, self.file.read_at))
        plain = io.BytesIO(b"".join(self.plain_pieces()))
        plain.name = self.planned.path  # what errors call it
        return plain

    def _decoded(self) -> Iterator[bytes]:
        stored = self.stored_pieces(0, self.file.size_bytes)
        if not self.filters:
            yield from stored
            return
        with stream_errors(self.planned.path):
            filters = (codec_as_written(*self.filters, self.file.read_at),) if len(self.filters) == 1 else self.filters
            # The sink bound an encrypted file to the id in its name.
            decoder = Chain.for_reading(filters, self.keys).decoder(storage_identity("part", self.planned.path))
        yield from plain_pieces(stored, decoder, self.planned.path)
