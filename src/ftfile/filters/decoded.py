"""A filtered file as its plain content: decoded from the start to the end, or decrypted where it is read."""

from __future__ import annotations

import io
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from ftfile.core.checksum import Crc32
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.filters.aes_gcm import HEADER_BYTES_MAX, TAG_BYTES, Opened, header_bytes
from ftfile.filters.api import BadStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from ftfile.filters.chain import Chain
    from ftfile.keys.keys import Keys

    Buffer: TypeAlias = bytearray | memoryview

__all__ = ("decoded_file", "decoded_piece", "decrypted_file", "stream_errors")

_ADVICE = "Another program changed it: restore it from a copy"

_BUFFER_BYTES = 128 << 10
_READ_BYTES = 1 << 20
# Bytes may decode to ten thousand times as many: as many are fed as likely become a few megabytes.
_FEED_BYTES_MIN, _FEED_BYTES_MAX = 512, 64 << 10
_PLAIN_BYTES = 4 << 20


def decoded_file(file: BinaryIO, chain: Chain, identity: str, plain_bytes: int, checksum: str) -> io.BufferedReader:
    """Return the plain content of a seekable file, decoded as it is read; closing it closes `file`.

    Reading to the end verifies checksum, length and the end of the filters. A seek decodes again from the start.

    `plain_bytes` and `checksum`, which is of the stored file, are those in the log; `CorruptData` if others are found.
    """
    return io.BufferedReader(_Decoded(file, chain, identity, plain_bytes, checksum), _BUFFER_BYTES)


def decoded_piece(data: bytes, chain: Chain, identity: str, path: str) -> bytes:
    """Return the plain content of a piece of a file; `CorruptData` names `path`."""
    with stream_errors(path):
        return chain.decode(data, identity)


@contextmanager
def stream_errors(path: str) -> Iterator[None]:
    """Turn `BadStream` into `CorruptData`, and `ConfigError` into one, that name the file."""
    try:
        yield
    except BadStream as error:
        raise CorruptData(path, error.expected, error.found, _ADVICE) from error
    except ConfigError as error:
        raise ConfigError(f"{path!r} cannot be read: {error}") from error


class _PlainFile(io.RawIOBase):
    """A seekable file of the plain bytes of another file; closing it closes that one."""

    def __init__(self, file: BinaryIO, plain_bytes: int) -> None:
        super().__init__()
        self.name = str(getattr(file, "name", ""))
        self._file = file
        self._plain_bytes = plain_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._plain_bytes}
        self._position = max(0, starts[whence] + offset)
        return self._position

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            super().close()


class _Decoded(_PlainFile):
    def __init__(self, file: BinaryIO, chain: Chain, identity: str, plain_bytes: int, checksum: str) -> None:
        super().__init__(file, plain_bytes)
        self._chain = chain
        self._identity = identity
        self._checksum = checksum
        self._feed_bytes = _FEED_BYTES_MIN
        self._restart()

    def _restart(self) -> None:
        self._file.seek(0)
        self._decoder = self._chain.decoder(self._identity)
        self._crc = Crc32()
        self._coded = memoryview(b"")  # read, and not decoded yet
        self._plain = memoryview(b"")  # decoded last
        self._start = 0  # of `_plain`
        self._is_ended = False

    def readinto(self, buffer: Buffer) -> int:  # type: ignore[override] # typeshed asks for any buffer; readers give these
        if self._position < self._start:
            self._restart()
        while self._position >= self._start + len(self._plain) and not self._is_ended:
            self._start += len(self._plain)
            self._plain = memoryview(self._next())
        view = memoryview(buffer).cast("B")
        found = self._plain[max(0, self._position - self._start) :][: len(view)]
        view[: len(found)] = found
        self._position += len(found)
        return len(found)

    def _next(self) -> bytes:
        if not self._coded:
            self._coded = memoryview(self._file.read(_READ_BYTES))
            self._crc.update(self._coded)
        data, self._coded = self._coded[: self._feed_bytes], self._coded[self._feed_bytes :]
        with stream_errors(self.name):
            if data:
                plain = self._decoder.feed(data)
                likely = len(data) * _PLAIN_BYTES // (len(plain) + 1)
                self._feed_bytes = min(max(likely, _FEED_BYTES_MIN), 2 * self._feed_bytes, _FEED_BYTES_MAX)
                return plain
            self._is_ended = True
            last = self._decoder.finish()
        found_bytes = self._start + len(last)
        if self._crc.text() != self._checksum or found_bytes != self._plain_bytes:
            raise CorruptData(
                self.name,
                f"{self._plain_bytes} bytes in a file with {self._checksum}",
                f"{found_bytes} bytes in one with {self._crc.text()}",
                _ADVICE,
            )
        return last


def decrypted_file(file: BinaryIO, keys: Keys, identity: str, plain_bytes: int) -> BinaryIO:
    """Return the plain content of an encrypted seekable file, its end verified first; closing it closes `file`."""
    return cast("BinaryIO", _Decrypted(file, keys, identity, plain_bytes))


class _Decrypted(_PlainFile):
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
