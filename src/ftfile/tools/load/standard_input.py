"""Reads of stdin, which Ctrl-C ends in every thread."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_POLL_S = 0.2
_READ_BYTES = 1 << 20
_interrupted = threading.Event()


class _Stdin:
    """The stdin of this process. A read waits for data, and fails after Ctrl-C."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer only at the end; all remaining bytes for a negative size."""
        pieces = []
        piece_bytes = _READ_BYTES
        while size:
            while not select.select([self._descriptor], [], [], _POLL_S)[0]:
                if _interrupted.is_set():
                    raise OSError("interrupted")
            if size > 0:
                piece_bytes = min(size, _READ_BYTES)
            piece = os.read(self._descriptor, piece_bytes)
            if not piece:
                break
            pieces.append(piece)
            if size > 0:
                size -= len(piece)
        return b"".join(pieces)


def stdin() -> _Stdin | BinaryIO:
    """Return stdin without a buffer; if it has no file descriptor, the object that stands for it."""
    try:
        return _Stdin(sys.stdin.fileno())
    except (OSError, ValueError):
        return sys.stdin.buffer


@contextmanager
def interrupt_reads() -> Iterator[None]:
    """Let Ctrl-C end the reads of stdin within the block.

    Python interrupts only the main thread, which waits for the thread that reads. In a thread other than the main
    thread, nothing is changed.
    """
    before: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        _interrupted.set()
        before(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _interrupted.clear()
