"""The segments of a job on their way into parts: read where somebody must see the bytes, else copied by the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.encoding.api import LineFormat
from ftfile.filters.chain import Chain
from ftfile.parts.reader import plain_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.attempt.stage import StagedFile
    from ftfile.commit.format.model import Add
    from ftfile.encoding.api import Format
    from ftfile.fs.api import FileSystem
    from ftfile.keys.keys import Keys

__all__ = ("SegmentReader", "SegmentReaders")


class SegmentReader:
    """One segment.

    Args:
        fs: where it is.
        segment: which.
        file_format: of its rows.
        chain: its filters.
        copied_from: how long a range is at least that the store copies; None where it copies nothing.

    Attributes:
        may_be_copied: its bytes are bound to no place, and the store copies ranges of that length.
    """

    def __init__(
        self, fs: FileSystem, segment: Add, file_format: Format, chain: Chain, copied_from: int | None
    ) -> None:
        self.segment = segment
        self._fs = fs
        self._format = file_format
        self._chain = chain
        self._data: bytes | None = None
        self.may_be_copied = (
            copied_from is not None and segment.length >= copied_from and chain.framing == chain.filters
        )

    @property
    def data(self) -> bytes:
        """Return the segment as joiners take it: frames of lines, or the plain bytes of other formats.

        Raises:
            CorruptData: it is not what was committed.
        """
        if self._data is None:
            framed = isinstance(self._format, LineFormat)
            with self._fs.open(self.segment.path) as file:
                self._data = plain_segment(file, self.segment, self._chain, framed=framed)
        return self._data

    def copy_to(self, file: StagedFile) -> None:
        """Append the whole segment to a file without seeing it; what the log says of it is counted in."""
        segment = self.segment
        file.copy_from(segment.path, segment.offset, segment.length, segment.checksum)


class SegmentReaders:
    """All segments of a job, in order.

    Args:
        fs: where they are.
        segments: which.
        file_format: of their rows.
        keys: of the directory; None where it is not encrypted.
        copies: use the store's copies.
    """

    def __init__(
        self, fs: FileSystem, segments: Iterable[Add], file_format: Format, keys: Keys | None, *, copies: bool
    ) -> None:
        self._fs = fs
        self._segments = iter(segments)
        self._format = file_format
        self._keys = keys
        capabilities = fs.capabilities
        is_copying = copies and "copy" in capabilities.stream_capabilities
        self._copied_from = capabilities.copy_bytes_min if is_copying else None
        self._seen: list[SegmentReader] = []

    def sample(self, size_bytes: int) -> list[bytes]:
        """Return the first segments that must be read, until they reach that size; at least one."""
        sample: list[bytes] = []
        taken = 0
        for reader in self._rest():
            self._seen.append(reader)
            if reader.may_be_copied:
                break
            sample.append(reader.data)
            taken += len(reader.data)
            if taken >= size_bytes:
                break
        return sample

    def __iter__(self) -> Iterator[SegmentReader]:
        """Yield them."""
        seen, self._seen = self._seen, []
        while seen:
            yield seen.pop(0)  # its bytes are kept no longer
        yield from self._rest()

    def _rest(self) -> Iterator[SegmentReader]:
        for segment in self._segments:
            chain = Chain.for_reading(segment.filters, self._keys)
            yield SegmentReader(self._fs, segment, self._format, chain, self._copied_from)
