"""An encrypted file as its plain content, decrypted where it is read: for formats that seek."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, cast

from ftfile.core.errors import CorruptData
from ftfile.filters.aes_gcm import HEADER_BYTES_MAX, TAG_BYTES, Opened, header_bytes
from ftfile.filters.api import BadStream
from ftfile.filters.decoded import PlainFile, stream_errors

if TYPE_CHECKING:
    from typing import TypeAlias

    from ftfile.keys.keys import Keys

    Buffer: TypeAlias = bytearray | memoryview

__all__ = ("decrypted_file",)


def decrypted_file(file: BinaryIO, keys: Keys, identity: str, plain_bytes: int) -> BinaryIO:
    """Return the plain content of an encrypted seekable file, whose end is verified first; closing it closes `file`.

    Raises:
        CorruptData: it is not what was written; also by reading.
        ConfigError: its key is not among the keys.
    """
    return cast("BinaryIO", _Decrypted(file, keys, identity, plain_bytes))


class _Decrypted(PlainFile):
    def __init__(self, file: BinaryIO, keys: Keys, identity: str, plain_bytes: int) -> None:
        super().__init__(file, plain_bytes)
        self._held_number = -1
        self._held = b""
        with stream_errors(self.name):
            file_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            start = file.read(min(file_bytes, HEADER_BYTES_MAX))
            self._start = header_bytes(start) if len(start) >= 8 else file_bytes + 1  # noqa: PLR2004
            if file_bytes < self._start:
                raise BadStream("the header of an encrypted file", f"{file_bytes} bytes")
            self._opened = Opened(keys, start[: self._start], identity)
            chunk_bytes = self._opened.chunk_bytes
            self._chunks = max(1, -(-plain_bytes // chunk_bytes))
            expected = self._start + plain_bytes + TAG_BYTES * self._chunks
            if file_bytes != expected:
                raise CorruptData(self.name, f"{expected} bytes", f"{file_bytes} bytes")
            self._chunk(self._chunks - 1)

    def readinto(self, buffer: Buffer) -> int:  # type: ignore[override] # typeshed asks for any buffer; readers give these
        view = memoryview(buffer).cast("B")
        end = min(self._position + len(view), self._plain_bytes)
        begin, chunk_bytes = self._position, self._opened.chunk_bytes
        while self._position < end:
            number, offset = divmod(self._position, chunk_bytes)
            found = memoryview(self._chunk(number))[offset : offset + end - self._position]
            at = self._position - begin
            view[at : at + len(found)] = found
            self._position += len(found)
        return self._position - begin

    def _chunk(self, number: int) -> bytes:
        if number != self._held_number:
            step = self._opened.chunk_bytes + TAG_BYTES
            self._file.seek(self._start + number * step)
            data = self._file.read(step)
            with stream_errors(self.name):
                # Kept, since readers come back to it.
                self._held = self._opened.decrypt(data, number, is_last=number == self._chunks - 1)
            self._held_number = number
        return self._held
