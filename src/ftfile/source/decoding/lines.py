"""An open file of another program, whose content is read as bytes, lines or records.

Lines are returned in blocks of UTF-8 that end with a line feed.
"""

from __future__ import annotations

import codecs
import io
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import pyarrow as pa

from ftfile.core.codecs import ENCRYPTION_FILTER, filters_of_name
from ftfile.core.errors import CorruptData, FileChanged
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import plain_pieces, stream_errors
from ftfile.formats.binary_records import BinaryRecords
from ftfile.formats.reading.batches import batch_of
from ftfile.log.format.layout import storage_identity
from ftfile.rows.buffers import strings_from
from ftfile.source.contents import Fingerprints, codec_as_written, fingerprints, marks_of
from ftfile.source.decoding.utf_16 import utf_8_pieces
from ftfile.storage.api import RangeFile, as_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.filters.keys import Keys
    from ftfile.source.plan import Cut, Range
    from ftfile.source.settings import FileDecoding
    from ftfile.storage.api import InputFile


FILE_BYTES_MAX = 512 << 20  # of the plain content of a file that is read into memory as a whole
TEXT_BYTES_MAX = 64 << 20  # of a text with many records: as text and values, it needs a multiple of its size
LINE_BYTES_MAX = 512 << 20  # the strings of a row must stay below 2 GiB, also if all bytes are replaced

_SEARCH_BYTES = 64 << 10

_READ_BYTES = 4 << 20

_PADDING = b"\n\n\n"  # not part of a longer character in any accepted encoding; a character has at most four bytes


def filters_of_range(planned: Range) -> tuple[str, ...]:
    """Return the filters of the file of a range. A file that is read in cuts has no filters."""
    if planned.compression:
        return (planned.compression,)
    if planned.whole:
        return filters_of_name(planned.path)
    return ()


@dataclass(frozen=True, slots=True)
class RangeContent:
    """The content of a range, in an open file."""

    file: InputFile  # with the stored bytes; the caller closes it
    planned: Range
    filters: tuple[str, ...] = ()  # names in the order in which the filters were applied
    keys: Keys | None = None
    utf_16: FileDecoding | None = None  # for a file in UTF-16; its plain content is then the text in UTF-8

    @property
    def is_encrypted(self) -> bool:
        """Return True for a file whose bytes are all authenticated."""
        return ENCRYPTION_FILTER in self.filters

    def has_range(self) -> bool:
        """Return True if the content before the end of the range is the planned content."""
        planned = self.planned
        expected = Fingerprints(planned.head, planned.tail)
        if planned.whole and self.file.size_bytes != planned.end:
            return False
        if planned.whole or not self.filters:
            return fingerprints(self.file.read_at, planned.end) == expected
        try:
            _, marks = marks_of(self.pieces(), [planned.end])
        except CorruptData:  # the file was replaced
            return False
        return marks.get(planned.end) == expected

    def require_range(self) -> None:
        """Raise `FileChanged` if the file changed during the read."""
        if not self.has_range():
            raise FileChanged(f"{self.planned.path!r} changed while it was read")

    def stored_pieces(self, start: int, end: int, step: int = _READ_BYTES) -> Iterator[bytes]:
        """Yield the stored bytes `[start, end)` in pieces of `step` bytes; `FileChanged` if the file is shorter."""
        while start < end:
            data = self.file.read_at(start, min(step, end - start))
            if not data:
                raise FileChanged(f"{self.planned.path!r} became shorter while it was read")
            yield data
            start += len(data)

    def pieces(self, start: int = 0, enough: int | None = None) -> Iterator[bytes]:
        """Yield the plain content from an offset to the end of the range, or of a file that is read as a whole.

        After the offset `enough`, the pieces are small, because the caller stops soon.

        Raises:
            CorruptData: the file is damaged after the pieces that were yielded.
            FileChanged: the file became shorter.
        """
        if self.utf_16 is not None:
            stored = replace(self, utf_16=None).pieces(0, enough)
            text = utf_8_pieces(stored, self.utf_16, self.planned.path)
            yield from _pieces_from(text, start)
            return
        end = None if self.planned.whole else self.planned.end
        if not self.filters:
            end = self.file.size_bytes if end is None else end
            middle = end if enough is None else min(enough, end)
            yield from self.stored_pieces(start, middle)
            yield from self.stored_pieces(max(start, middle), end, _SEARCH_BYTES)
            return
        position = 0
        for piece in self._decode_pieces():
            begin = max(0, start - position)
            position += len(piece)
            if end is not None and position >= end:
                yield piece[begin : len(piece) - (position - end)]
                return
            if begin < len(piece):
                yield piece[begin:]

    def read_whole(self, bytes_max: int = FILE_BYTES_MAX) -> bytes:
        """Return the plain content.

        Raises:
            CorruptData: the content has more than `bytes_max` bytes, even if the stored file is small.
        """
        pieces, size_bytes = [], 0
        for piece in self.pieces():
            pieces.append(piece)
            size_bytes += len(piece)
            if size_bytes > bytes_max:
                raise CorruptData(self.planned.path, f"files of at most {bytes_max} bytes", "a larger one")
        return b"".join(pieces)

    def as_file(self) -> BinaryIO:
        """Return the plain content as a seekable file.

        A small, compressed or encrypted file is read into memory. Readers of columnar files return to the end of a file
        several times, and each read costs a call of the storage.
        """
        if not self.filters and self.file.size_bytes > _READ_BYTES:
            # Closing this file leaves the stored file open, because it is checked again.
            return as_file(RangeFile(self.planned.path, self.file.size_bytes, self.file.read_at))
        plain = io.BytesIO(self.read_whole())
        plain.name = self.planned.path  # the name in errors
        return plain

    def _decode_pieces(self) -> Iterator[bytes]:
        stored = self.stored_pieces(0, self.file.size_bytes)
        with stream_errors(self.planned.path):
            filters = self.filters
            if len(self.filters) == 1:
                filters = (codec_as_written(*self.filters, self.file.read_at),)
            # The sink bound an encrypted file to the id in its name.
            decoder = Chain.for_reading(filters, self.keys).decoder(storage_identity("part", self.planned.path))
        yield from plain_pieces(stored, decoder, self.planned.path)


def _pieces_from(pieces: Iterable[bytes], start: int) -> Iterator[bytes]:
    """Yield pieces without the bytes before an offset."""
    for piece in pieces:
        if start < len(piece):
            yield piece[start:]
        start = max(0, start - len(piece))


def line_blocks(
    content: RangeContent, cut: Cut, separator: bytes, skip_until: int = 0, bytes_max: int | None = None
) -> Iterator[bytes]:
    """Yield the lines that start in a cut, in blocks of some megabytes of the plain content.

    Every block ends with a separator; if the last line has no separator, it is added. Lines before `skip_until`, an
    offset in the plain content, are skipped.

    Raises:
        CorruptData: the file is damaged after the lines that were yielded, or a line has more than `bytes_max` bytes.
            The default is `LINE_BYTES_MAX`.
        FileChanged: the file became shorter.
    """
    planned = cut.range
    start, end = max(cut.start, skip_until), sys.maxsize if planned.whole else cut.end
    # A line that begins before the cut belongs to the previous cut: the first line starts after the first separator.
    is_at_line = start in {planned.start, skip_until}
    if is_at_line:
        begin = start
    else:
        begin = max(planned.start, start - len(separator))
    blocks = _whole_lines(content.pieces(begin, end), separator, planned.path, bytes_max)
    blocks = _cut_lines_between(blocks, begin, start=start, end=end, separator=separator)
    if start:
        return blocks
    return _without_mark(blocks)


def first_lines(content: RangeContent, separator: bytes) -> Iterator[bytes]:
    """Yield the lines from the start of the plain content to the end of the range, as `line_blocks` does."""
    return _whole_lines(content.pieces(enough=0), separator, content.planned.path)


def _cut_lines_between(blocks: Iterable[bytes], begin: int, start: int, end: int, separator: bytes) -> Iterator[bytes]:
    """Yield the lines that start in `[start, end)`, from blocks of whole lines at the offset `begin`.

    If `begin` is before `start`, the first line starts after the first separator.
    """
    for block in blocks:
        first = 0
        if begin < start:
            first = block.find(separator) + len(separator)
        if begin + len(block) >= end:
            if begin + first < end:
                last = block.find(separator, max(0, end - len(separator) - begin)) + len(separator)
                yield block[first:last]
            return
        yield block[first:]
        begin += len(block)


def _whole_lines(pieces: Iterable[bytes], separator: bytes, path: str, bytes_max: int | None = None) -> Iterator[bytes]:
    if bytes_max is None:
        bytes_max = LINE_BYTES_MAX
    held: list[bytes] = []
    held_bytes, more = 0, len(separator) - 1
    for piece in pieces:
        if more and held:  # a separator may begin in one piece and end in the next
            border = held.pop()
            held_bytes -= len(border)
            piece = border + piece  # noqa: PLW2901
        end = piece.rfind(separator) + len(separator)
        if end >= len(separator):
            yield b"".join([*held, memoryview(piece)[:end]]) if held else piece[:end]
            held, held_bytes, piece = [], 0, piece[end:]  # noqa: PLW2901
        if piece:
            held += [piece[:-more], piece[-more:]] if more else [piece]
            held_bytes += len(piece)
        if held_bytes > bytes_max:
            raise CorruptData(path, f"lines of at most {bytes_max} bytes", "a longer one")
    if held_bytes:
        yield b"".join([*held, separator])


def _without_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks without a UTF-8 byte-order mark at the start of the file."""
    for number, block in enumerate(blocks):
        yield block.removeprefix(codecs.BOM_UTF8) if number == 0 else block


def as_utf_8(block: bytes, decoding: FileDecoding) -> bytes:
    """Return whole lines in UTF-8. Invalid bytes become U+FFFD."""
    if decoding.encoding != "utf-8":
        # The padding prevents that half a character at the end of the block is joined with the line end.
        return (block + _PADDING).decode(decoding.encoding, "replace")[: -len(_PADDING)].encode()
    if block.isascii() or _is_utf_8(block):
        return block
    return block.decode("utf-8", "replace").encode()


def _is_utf_8(block: bytes) -> bool:
    text = strings_from(np.array([0, len(block)]), np.frombuffer(block, np.uint8), pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


_NEWLINE = ord("\n")


def text_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a cut without their ends. A binary column contains the unchanged bytes."""
    is_raw = bool(len(schema)) and pa.types.is_binary(schema.types[0])
    if is_raw:
        separator = decoding.separator
    else:
        separator = decoding.line_sep.encode()
    for block in line_blocks(content, cut, decoding.separator):
        lines = _split(block if is_raw else as_utf_8(block, decoding), separator)
        columns = [lines.view(kind) for kind in schema.types]
        yield batch_of(columns, schema, len(lines))


def _split(block: bytes, separator: bytes) -> pa.BinaryArray:
    """Return the lines of a block without their ends. A carriage return before a line feed is part of the end."""
    if separator != b"\n":
        return pa.array(block.split(separator)[:-1], pa.binary())
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends - np.arange(len(ends))
    return strings_from(offsets, np.frombuffer(block.replace(b"\n", b""), np.uint8), pa.binary())


def binary_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield one row for the file with its stored or decrypted bytes, or one row for each record in its content."""
    del cut
    if decoding.framing is None:
        yield _whole_file(content, schema)
        return
    if decoding.length_prefix:
        end = b""
    else:
        end = decoding.delimiter or b""
    file = cast("BinaryIO", _PlainPieces(content.pieces(), content.planned.path, end))
    yield from BinaryRecords(decoding.framing).decode(file, schema)


def _whole_file(content: RangeContent, schema: pa.Schema) -> pa.RecordBatch:
    planned, length, data = content.planned, content.planned.end, b""
    # An encrypted file has the length of its authenticated content.
    if content.is_encrypted or "content" in map(str.lower, schema.names):
        if length > FILE_BYTES_MAX:
            raise CorruptData(planned.path, f"files of at most {FILE_BYTES_MAX} bytes", f"one of {length}")
        stored = replace(content, filters=(ENCRYPTION_FILTER,) if content.is_encrypted else ())
        data = b"".join(stored.pieces())
        length = len(data)
    values: dict[str, Any] = {
        "path": planned.path,
        "length": length,
        "modificationtime": 1000 * planned.modified_ms,
        "content": data,
    }
    columns = [pa.array([values[field.name.lower()]], field.type) for field in schema]
    return batch_of(columns, schema, 1)


class _PlainPieces:
    """A file of pieces that ends with `end`, which is added if it is missing."""

    def __init__(self, pieces: Iterator[bytes], name: str, end: bytes) -> None:
        self.name = name
        self._pieces = pieces
        self._end = end
        self._last = b""

    def read(self, _: int) -> bytes:
        """Return the next piece of any size; empty at the end."""
        for piece in self._pieces:
            if piece:
                if self._end:
                    self._last = (self._last + piece)[-len(self._end) :]
                else:
                    self._last = b""
                return piece
        missing = b""
        if self._last not in {b"", self._end}:
            missing = self._end
        self._last = b""
        return missing
