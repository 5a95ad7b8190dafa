"""What files have in common that are read through filters: where they are, and how long they are plain."""

from __future__ import annotations

import io
import os
from typing import BinaryIO

__all__ = ("PlainFile",)


class PlainFile(io.RawIOBase):
    """A seekable file of `plain_bytes`, made of another one; closing it closes that.

    Args:
        file: seekable, with its path as `name`.
        plain_bytes: how much there is, as the log says.
    """

    def __init__(self, file: BinaryIO, plain_bytes: int) -> None:
        super().__init__()
        self.name = str(getattr(file, "name", ""))
        self._file = file
        self._plain_bytes = plain_bytes
        self._position = 0

    def readable(self) -> bool:
        """Return yes."""
        return True

    def seekable(self) -> bool:
        """Return yes."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position and return it; nothing is read yet."""
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._plain_bytes}
        self._position = max(0, starts[whence] + offset)
        return self._position

    def close(self) -> None:
        """Close both; idempotent."""
        try:
            self._file.close()
        finally:
            super().close()
