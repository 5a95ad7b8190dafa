"""Fingerprints of content: a range goes on only in a file whose content before it is the same.

It is told by the first KiB and the last KiB before a position, as Fluent Bit and Vector tell files by their beginnings.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WINDOW_BYTES = 1024
CONTENT_BYTES_MIN = 256  # shorter ones are too often equal by chance, such as two logs with one header
_DIGEST_BYTES = 8


class Fingerprints(NamedTuple):
    """Of the content before a position, 64 bits each, as hexadecimal digits."""

    head: str
    tail: str


def fingerprints(read: Callable[[int, int], bytes], position: int) -> Fingerprints | None:
    """Return the fingerprints of the content before `position`; None if there is less of it.

    Args:
        read: returns as many bytes from an offset on as asked for, or fewer at the end: `read(offset, length)`.
        position: offset in the content.
    """
    length = min(position, WINDOW_BYTES)
    head = read(0, length)
    tail = head if position <= WINDOW_BYTES else read(position - length, length)
    if len(head) < length or len(tail) < length:
        return None
    return Fingerprints(_digest(head), _digest(tail))


def marks_of(pieces: Iterable[bytes], positions: Iterable[int]) -> tuple[int, dict[int, Fingerprints]]:
    """Return the length of a content, and the fingerprints at its end and at positions, as far as there is so much."""
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
    """Return the fingerprints at a position, of the first bytes of a content and of those from `begin` on."""

    def read(offset: int, length: int) -> bytes:
        return head[:length] if offset == 0 else window[offset - begin : offset - begin + length]

    marks = fingerprints(read, position)
    assert marks is not None, "the window reaches back far enough"
    return marks


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
