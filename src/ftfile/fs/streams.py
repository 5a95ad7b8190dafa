"""Input files as Python's own file objects, for libraries that want `read`, `readinto` and `seek`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftfile.fs.api import InputFile

# Small reads are served from one read-ahead of this size; larger ones go straight to the store.
BUFFER_BYTES = 128 * 1024


def as_file(file: InputFile) -> io.BufferedReader:
    """Return `file` as a seekable binary file object of its length at opening; closing it closes `file`."""
    return _Input(file)


class _Input(io.BufferedReader):
    """Returns the bytes of large reads as the store gives them, where `BufferedReader` would copy them twice."""

    def __init__(self, file: InputFile) -> None:
        super().__init__(_RawInput(file), BUFFER_BYTES)
        self._file = file

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < BUFFER_BYTES:
            return super().read(size)
        position = self.tell()
        data = self._file.read_at(position, size)
        self.seek(position + len(data))
        return data


class _RawInput(io.RawIOBase):
    def __init__(self, file: InputFile) -> None:
        super().__init__()
        self._file = file
        self._position = 0
        self.name = file.path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size_bytes}
        if whence not in starts:
            raise ValueError(f"whence is 0, 1 or 2, not {whence}")
        position = starts[whence] + offset
        if position < 0:
            raise ValueError(f"cannot seek {self._file.path!r} to {position}, before its start")
        self._position = position
        return position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        data = self._file.read_at(self._position, len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            super().close()
