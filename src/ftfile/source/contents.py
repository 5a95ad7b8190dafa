"""Codecs, line ends and fingerprints of the contents of files.

The fingerprints cover the first KiB, and the last KiB before a position. Fluent Bit and Vector also identify files by
their first bytes.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.codecs import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    Read: TypeAlias = Callable[[int, int], bytes]


_CHUNK_BYTES = 64 << 10

_LZ4_FRAME = bytes.fromhex("04224d18")

WINDOW_BYTES = 1024
CONTENT_BYTES_MIN = 256  # shorter contents are too often equal by chance, such as two logs with the same header
START_BYTES = 4  # size of the digests in a head: of the first 256 bytes, and of the first KiB


def codec_in(path: str, read: Read) -> str:
    """Return the codec of a file from the extension of its path and its first bytes."""
    return codec_as_written(codec_of(path), read)


def codec_as_written(codec: str, read: Read) -> str:
    """Return the codec of a file: a `.lz4` file consists of Hadoop's blocks or of frames of the command `lz4`."""
    if codec == "lz4" and read(0, len(_LZ4_FRAME)) == _LZ4_FRAME:
        return "lz4frame"
    return codec


def end_of_lines(read: Read, start: int, size: int, separator: bytes, limit: int | None = None) -> int:
    """Return the end of the complete lines after `start` in the next `limit` bytes; `start` if there is no line end.

    If the first line is longer than the limit, its end is returned. The separator must not overlap itself.
    """
    if limit is None:
        bound = size
    else:
        bound = min(size, start + limit)
    end = last_line_end(read, start, bound, separator)
    if end is None and bound < size:
        end = first_line_end(read, max(start, bound - len(separator) + 1), size, separator)
    if end is None:
        return start
    return end


def last_line_end(read: Read, start: int, end: int, separator: bytes) -> int | None:
    """Return the last end of a line in `(start, end]`; None without a line end."""
    high = end
    while high > start:
        low = max(start, high - _CHUNK_BYTES)
        piece = read(low, min(end, high + len(separator) - 1) - low)
        found = piece.rfind(separator)
        if found >= 0:
            return low + found + len(separator)
        high = low
    return None


def first_line_end(read: Read, begin: int, size: int, separator: bytes) -> int | None:
    """Return the first end of a line after `begin`; None without a line end."""
    low = begin
    while low < size:
        piece = read(low, min(size - low, _CHUNK_BYTES + len(separator) - 1))
        found = piece.find(separator)
        if found >= 0:
            return low + found + len(separator)
        low += _CHUNK_BYTES
    return None


class Fingerprints(NamedTuple):
    """Fingerprints of the content before a position, 64 bits each, as hexadecimal digits."""

    head: str  # 8 digits of the first 256 bytes, by which contents are searched, and 8 of the first KiB
    tail: str  # of the last KiB

    @property
    def start(self) -> str:
        """Return the digits of the first 256 bytes."""
        return self.head[: 2 * START_BYTES]


NO_PRINTS = Fingerprints("", "")  # of a file that was not read yet


def fingerprints(read: Callable[[int, int], bytes], position: int) -> Fingerprints | None:
    """Return the fingerprints of the content before `position`; None if the content is shorter.

    `read(offset, length)` returns `length` bytes, or fewer at the end.
    """
    length = min(position, WINDOW_BYTES)
    head = read(0, length)
    if position <= WINDOW_BYTES:
        tail = head
    else:
        tail = read(position - length, length)
    if len(head) < length or len(tail) < length:
        return None
    return _fingerprints(head, tail)


def marks_of(pieces: Iterable[bytes], positions: Iterable[int]) -> tuple[int, dict[int, Fingerprints]]:
    """Return the length of a content, and the fingerprints at its end and at the positions up to its end."""
    wanted, done = sorted(set(positions), reverse=True), {}
    head, window, size = b"", b"", 0
    for piece in pieces:
        head += piece[: WINDOW_BYTES - len(head)]
        window += piece
        size += len(piece)
        while wanted and wanted[-1] <= size:
            position = wanted.pop()
            done[position] = _marks_at(head, window, size - len(window), position)
        window = window[-WINDOW_BYTES:]
    return size, {**done, size: _marks_at(head, window, size - len(window), size)}


def _marks_at(head: bytes, window: bytes, begin: int, position: int) -> Fingerprints:
    """Return the fingerprints at a position; `window` contains the bytes of the content from `begin`."""
    length, end = min(position, WINDOW_BYTES), position - begin
    if position <= WINDOW_BYTES:
        tail = head
    else:
        tail = window[end - length : end]
    return _fingerprints(head[:length], tail[:length])


def _fingerprints(head: bytes, tail: bytes) -> Fingerprints:
    return Fingerprints(_digest(head[:CONTENT_BYTES_MIN], START_BYTES) + _digest(head, START_BYTES), _digest(tail, 8))


def _digest(data: bytes, size: int) -> str:
    return hashlib.blake2b(data, digest_size=size).hexdigest()
