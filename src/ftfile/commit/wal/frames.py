"""Frames: the pieces of a file of windows, each with its length and checksums.

A file begins with a frame that tells what came before it, and has a frame for each window behind. The checksum of a
frame's header tells a frame that was not written to its end from one that was damaged later.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ftfile.core.checksum import crc32
from ftfile.core.errors import CorruptData

BEGIN, WINDOW = 0, 1

_MAGIC = b"FTW\x01"
# Magic bytes, kind, window, length and checksum of the content; then the checksum of all this.
_FIELDS = struct.Struct("<4sIqQI")
_CHECKSUM = struct.Struct("<I")
FRAME_HEADER_BYTES = _FIELDS.size + _CHECKSUM.size

_ADVICE = "Restore the file from a copy. What is behind the damage cannot be told from what is missing"


class Frame(NamedTuple):
    """A whole frame."""

    kind: int  # `BEGIN` or `WINDOW`
    window: int  # its number; of a beginning, that of the last window before the file, -1 for none
    offset: int  # in the file
    content: bytes  # as it is on storage

    @property
    def end(self) -> int:
        """Return the offset behind it."""
        return self.offset + FRAME_HEADER_BYTES + len(self.content)


def encode_frame(kind: int, window: int, content: bytes) -> bytes:
    """Return the bytes of a frame."""
    fields = _FIELDS.pack(_MAGIC, kind, window, len(content), crc32(content))
    return fields + _CHECKSUM.pack(crc32(fields)) + content


def read_frames(content: bytes, path: str, whole_to: int | None = None) -> list[Frame]:
    """Return the frames of a file, up to the first that is not whole.

    Args:
        content: of the file.
        path: for errors.
        whole_to: the offset up to which frames are known to have been durable; only these are returned. None if that
            is not known: then all behind a frame that is not whole was never durable.

    Raises:
        CorruptData: the file has less than it is known to have had, or a frame behind one that is not whole.
    """
    frames: list[Frame] = []
    offset = 0
    while whole_to is None or offset < whole_to:
        frame = _frame_at(content, offset)
        if frame is None:
            break
        frames.append(frame)
        offset = frame.end
    if whole_to is not None and offset != whole_to:
        raise CorruptData(path, f"whole frames up to {whole_to}", f"up to {offset}", _ADVICE)
    if whole_to is None and (later := _next_header(content, offset)) is not None:
        raise CorruptData(path, f"a whole frame at {offset}", f"damage, and another frame at {later}", _ADVICE)
    return frames


def _header(content: bytes, offset: int) -> tuple[int, int, int, int] | None:
    """Return kind, window, length and checksum of the frame at an offset, or None if none begins there."""
    end = offset + _FIELDS.size
    if len(content) < end + _CHECKSUM.size or not content.startswith(_MAGIC, offset):
        return None
    if _CHECKSUM.unpack_from(content, end)[0] != crc32(memoryview(content)[offset:end]):
        return None
    _, kind, window, length, checksum = _FIELDS.unpack_from(content, offset)
    return kind, window, length, checksum


def _frame_at(content: bytes, offset: int) -> Frame | None:
    header = _header(content, offset)
    if header is None:
        return None
    kind, window, length, checksum = header
    start = offset + FRAME_HEADER_BYTES
    found = content[start : start + length]
    if len(found) < length or crc32(found) != checksum:
        return None
    return Frame(kind, window, offset, found)


def _next_header(content: bytes, offset: int) -> int | None:
    """Return the offset of the next header behind a frame that is not whole; None if there is none."""
    header = _header(content, offset)
    # What is inside of a frame may look like one.
    place = offset + 1 if header is None else offset + FRAME_HEADER_BYTES + header[2]
    while (place := content.find(_MAGIC, place)) >= 0:
        if _header(content, place) is not None:
            return place
        place += 1
    return None
