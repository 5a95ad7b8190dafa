"""Fingerprints of content: a range goes on only in a file whose content before it is the same.

It is told by the first KiB and the last KiB before a position, as Fluent Bit and Vector tell files by their beginnings.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW_BYTES = 1024
CONTENT_BYTES_MIN = 256  # less content is too little to tell a file
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


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
