"""Reads of CSV files that do not divide a line end."""

from __future__ import annotations

from typing import Protocol


class Readable(Protocol):
    """A file that is read once from its start."""

    def read(self, size: int = -1, /) -> bytes: ...


class WholeLineEnds:
    """A file for pyarrow. No read ends between a carriage return and a line feed.

    pyarrow removes the line feed at the start of a block if the previous block ends with a carriage return, even if
    both are within quotes.
    """

    closed = False

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._next = b""  # bytes that were read from the file, and are returned by the next call

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, or one less; fewer only at the end of the file. For a negative size, return the rest."""
        if size < 0:
            data, self._next = self._next + self._file.read(), b""
            return data
        data = self._next + self._file.read(max(0, size - len(self._next)))
        data, self._next = data[:size], data[size:]
        if len(data) > 1 and data.endswith(b"\r"):
            self._next = self._next or self._file.read(1)
            if self._next.startswith(b"\n"):
                data, self._next = data[:-1], b"\r" + self._next
        return data

    def close(self) -> None:
        """Leave the file open; its owner closes it."""
