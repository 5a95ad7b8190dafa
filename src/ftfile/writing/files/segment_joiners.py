"""Joiners that append segments to a part, as plain data or as unchanged compressed frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ftfile.filters.api import BadStream
from ftfile.filters.decoded import stream_errors
from ftfile.formats.api import Format, Joiner, Limits, LineFormat, Taken
from ftfile.formats.parts import plain_segment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ftfile.filters.chain import Chain, FilteredFile
    from ftfile.log.format.model import Add
    from ftfile.storage.api import FileSystem
    from ftfile.writing.stage import StagedFile


# The amount of data that is read to decide whether frames are small.
SAMPLE_BYTES = 256 << 10
# Merging has the cost of decompressing and compressing all data.
MERGED_SHARE_MAX = 0.9

# How often a part that must not pass its limit is filled up, each time with rows for what the last frame left.
_STRICT_ROUNDS = 4


class SegmentReader:
    """A segment to append to parts. The storage copies it if possible; otherwise it is read.

    The storage copies ranges of at least `copied_from` bytes; None if it does not support copying.
    """

    def __init__(
        self, fs: FileSystem, segment: Add, file_format: Format, chain: Chain, copied_from: int | None
    ) -> None:
        self.segment = segment
        self._fs = fs
        self._format = file_format
        self._chain = chain
        self._data: bytes | None = None
        # Encrypted content is bound to its path and offset, so it cannot be copied.
        self.may_be_copied = (
            copied_from is not None and segment.length >= copied_from and chain.framing == chain.filters
        )

    @property
    def data(self) -> bytes:
        """Return the verified segment in the form for joiners: frames of lines, or plain bytes for other formats."""
        if self._data is None:
            framed = isinstance(self._format, LineFormat)
            with self._fs.open(self.segment.path) as file:
                self._data = plain_segment(file, self.segment, self._chain, framed=framed)
        return self._data


@dataclass(frozen=True, slots=True)
class PartTarget:
    """The file of a part, and the filters that its content passes."""

    file: StagedFile
    filtered: FilteredFile

    def copy(self, segment: Add) -> None:
        """Append a segment without reading it. The checksum of the file uses the segment's checksum in the log."""
        source = (segment.path, segment.offset, segment.length, segment.checksum)
        self.filtered.write_beside(lambda: self.file.copy_from(*source), segment.logical_length)


def make_joiner(
    file_format: Format, schema: pa.Schema, chain: Chain, target: PartTarget, limits: Limits, *, merge: bool
) -> PartJoiner:
    """Return a joiner that appends segments to a new part. With `merge`, it merges small frames.

    `take(reader, start, rows, skip_rows)` appends rows until the part is full, and returns what was appended. `start`
    is the offset of the data of the remaining `rows`; the first `skip_rows` rows of the data are in another part.
    """
    if chain.filters and isinstance(file_format, LineFormat):
        return _FrameJoiner(file_format, schema, chain=chain, target=target, limits=limits, merge=merge)
    return _PlainJoiner(file_format.joiner(schema, target.filtered, limits), target)


def sample_of(readers: Iterable[SegmentReader]) -> list[bytes]:
    """Return the data of the first segments that must be read, up to `SAMPLE_BYTES`."""
    sample: list[bytes] = []
    for reader in readers:
        if reader.may_be_copied or sum(map(len, sample)) >= SAMPLE_BYTES:
            break
        sample.append(reader.data)
    return sample


def merging_saves(chain: Chain, sample: Sequence[bytes]) -> bool:
    """Return True if a single frame of all sampled data is at least a tenth smaller than the samples."""
    if len(sample) < 2 or not chain.framing:  # noqa: PLR2004 - there is nothing to merge
        return False
    try:
        merged = chain.frame(b"".join(map(chain.open_frames, sample)))
    except BadStream:
        return False  # the joiner reads the segment again and raises an error with its path
    return len(merged) < MERGED_SHARE_MAX * sum(map(len, sample))


class _PlainJoiner:
    """Assembles a part from plain data, with the joiner of the format."""

    def __init__(self, joiner: Joiner, target: PartTarget) -> None:
        self._joiner = joiner
        self.target = target

    @property
    def rows(self) -> int:
        return self._joiner.rows

    def take(self, reader: SegmentReader, start: int, rows: int, skip_rows: int) -> Taken:
        length, is_whole = reader.segment.length, not start and not skip_rows
        if reader.may_be_copied and is_whole:
            copied = self._joiner.try_copy_segment(length, rows, lambda: self.target.copy(reader.segment))
            if copied:
                return Taken(rows, length)
        data = reader.data
        return self._joiner.take(data[start:] if start else data, rows, skip_rows)

    def is_full(self) -> bool:
        return self._joiner.is_full()

    def finish(self) -> None:
        self._joiner.finish()
        self.target.filtered.finish()

    def collect(self, columns: Collection[str]) -> None:
        self._joiner.collect(columns)

    def statistics(self) -> dict[str, tuple[Any, ...]]:
        return self._joiner.statistics()


class _FrameJoiner:
    """Assembles a part from unchanged frames.

    A frame is only rewritten to end the part within it, or to merge small frames.
    """

    def __init__(
        self,
        file_format: LineFormat,
        schema: pa.Schema,
        chain: Chain,
        target: PartTarget,
        limits: Limits,
        *,
        merge: bool,
    ) -> None:
        self.rows = 0
        self._format = file_format
        self._chain = chain
        self.target = target
        self._filtered = target.filtered
        self._limits = limits
        self._merge = merge
        self._is_full = False
        file_format.encoder(schema, target.filtered)  # writes the header of the format

    def take(self, reader: SegmentReader, start: int, rows: int, skip_rows: int) -> Taken:
        assert not start, "the rest of a filtered segment is found by its rows"
        segment = reader.segment
        if reader.may_be_copied and not skip_rows and self._has_room(rows, segment.length):
            self.target.copy(segment)
            self.rows += rows
            joined_rows = rows
        elif not self._merge and not skip_rows and self._has_room(rows, len(reader.data)):
            self._filtered.write_frames(reader.data, segment.logical_length)
            self.rows += rows
            joined_rows = rows
        else:
            with stream_errors(segment.path):
                plain = self._chain.open_frames(reader.data)
            joined_rows = self._take_rows(plain, rows, skip_rows)
        limits = self._limits
        if (limits.max_rows is not None and self.rows >= limits.max_rows) or (
            limits.max_bytes is not None and not limits.strict and self._filtered.reaches(limits.max_bytes)
        ):
            self._is_full = True
        return Taken(joined_rows, 0)

    def is_full(self) -> bool:
        return self._is_full

    def finish(self) -> None:
        self._filtered.finish()

    def collect(self, columns: Collection[str]) -> None:
        """Do nothing: rows are not decoded."""

    def statistics(self) -> dict[str, tuple[Any, ...]]:
        return {}

    def _has_room(self, rows: int, data_bytes: int) -> bool:
        max_rows, max_bytes = self._limits.max_rows, self._limits.max_bytes
        if self._limits.strict:
            self._filtered.flush()  # the estimate of buffered data may be too small
        return (max_rows is None or self.rows + rows <= max_rows) and (
            max_bytes is None or self._filtered.size_bytes_with(data_bytes) <= max_bytes
        )

    def _take_rows(self, plain: bytes, rows: int, skip_rows: int) -> int:
        ends = np.concatenate(([0], self._format.row_ends(plain)))[skip_rows : skip_rows + rows + 1]
        if self._limits.max_rows is not None:
            ends = ends[: self._limits.max_rows - self.rows + 1]
        view = memoryview(plain)
        if self._limits.max_bytes is None:
            joined_rows = self._write(view, ends, 0, len(ends) - 1)
        elif self._limits.strict:
            joined_rows = self._take_within(view, ends, self._limits.max_bytes)
        else:
            joined_rows = self._take_about(view, ends, self._limits.max_bytes)
        return joined_rows

    def _take_about(self, plain: memoryview, ends: NDArray[np.integer], max_bytes: int) -> int:
        """Write rows until the part has about this length."""
        joined_rows = 0
        while joined_rows < len(ends) - 1:
            fitting = int(np.searchsorted(ends, ends[joined_rows] + self._filtered.plain_room(max_bytes)))
            joined_rows = self._write(plain, ends, joined_rows, min(max(fitting, joined_rows + 1), len(ends) - 1))
            if self._filtered.reaches(max_bytes):
                break
        return joined_rows

    def _take_within(self, plain: memoryview, ends: NDArray[np.integer], max_bytes: int) -> int:
        """Write as many rows as fit into a part with this strict limit, but at least one row to an empty part."""
        target, count, joined_rows = self._filtered, len(ends) - 1, 0
        if target.size_bytes_max(int(ends[-1] - ends[0])) <= max_bytes:
            return self._write(plain, ends, 0, count)
        target.flush()
        for _ in range(_STRICT_ROUNDS):
            room = target.framed_room(max_bytes)
            end = int(np.searchsorted(ends, ends[joined_rows] + target.plain_room(max_bytes), side="right")) - 1
            frame = b""
            while end > joined_rows and len(frame := self._chain.frame(plain[ends[joined_rows] : ends[end]])) > room:
                end = joined_rows + int((end - joined_rows) * 0.9 * max(room, 0) / len(frame))
            if end <= joined_rows:
                break
            target.write_frames(frame, int(ends[end] - ends[joined_rows]))
            self.rows += end - joined_rows
            joined_rows = end
            if joined_rows == count:
                return joined_rows
        if not self.rows:
            joined_rows = self._write(plain, ends, 0, 1)
        self._is_full = True
        return joined_rows

    def _write(self, plain: memoryview, ends: NDArray[np.integer], start: int, end: int) -> int:
        self._filtered.write(plain[ends[start] : ends[end]])
        self.rows += end - start
        return end


PartJoiner: TypeAlias = _PlainJoiner | _FrameJoiner
