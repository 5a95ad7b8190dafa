"""Readers of filtered files, which return the plain content: decoded sequentially, or decrypted at any offset."""

from __future__ import annotations

import io
import math
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from ftfile.core.checksum import Crc32
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.filters.aes_gcm import HEADER_BYTES_MAX, TAG_BYTES, OpenedEnvelope, header_bytes
from ftfile.filters.api import BadStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    from ftfile.filters.chain import Chain, Composed
    from ftfile.filters.keys import Keys

    Buffer: TypeAlias = bytearray | memoryview


_ADVICE = "Another program changed it: restore it from a copy"

_BUFFER_BYTES = 128 << 10
_READ_BYTES = 1 << 20
_HEADER_LENGTH_BYTES = 8  # the first bytes of a header, which contain its length


def decoded_file(file: BinaryIO, chain: Chain, identity: str, plain_bytes: int, checksum: str) -> io.BufferedReader:
    """Return a reader that decodes a seekable file while it is read; closing it closes `file`.

    After a seek to an earlier offset, the reader decodes the file from the start again. At the end of the file, it
    compares the content with the log, and raises `CorruptData` for a difference.

    Args:
        file: the stored file.
        chain: the filters of the file.
        identity: the identity of the file.
        plain_bytes: the length of the plain content, from the log.
        checksum: the checksum of the stored file, from the log.
    """
    plain_file = _Decoded(file, chain, identity=identity, plain_bytes=plain_bytes, checksum=checksum)
    return io.BufferedReader(plain_file, _BUFFER_BYTES)


def decode_piece(data: bytes, chain: Chain, identity: str, path: str) -> bytes:
    """Return the plain content of a part of a file; `CorruptData` names `path`."""
    with stream_errors(path):
        return chain.decode(data, identity)


def plain_pieces(stored: Iterable[bytes], decoder: Composed, path: str) -> Iterator[bytes]:
    """Yield the plain content of stored bytes in pieces of at most a few megabytes; the last piece verifies the end.

    `CorruptData` names `path`.
    """
    with stream_errors(path):
        yield from decoder.all_pieces(stored)


@contextmanager
def stream_errors(path: str) -> Iterator[None]:
    """Replace `BadStream` by `CorruptData`, and `ConfigError` by a `ConfigError` that names the file."""
    try:
        yield
    except BadStream as error:
        raise CorruptData(path, error.expected, error.found, _ADVICE) from error
    except ConfigError as error:
        raise ConfigError(f"{path!r} cannot be read: {error}") from error


class _PlainFile(io.RawIOBase):
    """A seekable file with the plain content of a stored file; closing it closes the stored file."""

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
    """A plain file that is decoded from the start; see `decoded_file`."""

    def __init__(self, file: BinaryIO, chain: Chain, identity: str, plain_bytes: int, checksum: str) -> None:
        super().__init__(file, plain_bytes)
        self._chain = chain
        self._identity = identity
        self._checksum = checksum
        self._restart()

    def _restart(self) -> None:
        self._file.seek(0)
        self._crc = Crc32()
        self._pieces = plain_pieces(self._read_stored(), self._chain.decoder(self._identity), self.name)
        self._plain = memoryview(b"")  # the piece that was decoded last
        self._start = 0  # the offset of this piece in the plain content
        self._is_ended = False

    def readinto(self, buffer: Buffer) -> int:  # type: ignore[override] # typeshed requires any buffer; callers pass these types
        if self._position < self._start:
            self._restart()
        while self._position >= self._start + len(self._plain) and not self._is_ended:
            self._start += len(self._plain)
            piece = next(self._pieces, None)
            self._plain = memoryview(piece or b"")
            if piece is None:
                self._is_ended = True
                self._check_end()
        view = memoryview(buffer).cast("B")
        offset = max(0, self._position - self._start)
        data = self._plain[offset : offset + len(view)]
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _read_stored(self) -> Iterator[bytes]:
        while data := self._file.read(_READ_BYTES):
            self._crc.update(data)
            yield data

    def _check_end(self) -> None:
        if self._crc.text() != self._checksum or self._start != self._plain_bytes:
            raise CorruptData(
                self.name,
                f"{self._plain_bytes} bytes in a file with {self._checksum}",
                f"{self._start} bytes in a file with {self._crc.text()}",
                _ADVICE,
            )


def decrypted_file(file: BinaryIO, keys: Keys, identity: str, plain_bytes: int) -> BinaryIO:
    """Verify the end of an encrypted seekable file, and return its plain content; closing it closes `file`."""
    return cast("BinaryIO", _Decrypted(file, keys, identity, plain_bytes))


class DecryptedRanges:
    """Reads the plain content of an encrypted file at any offset. Thread-safe."""

    def __init__(
        self,
        read: Callable[[int, int], bytes | memoryview],
        file_bytes: int,
        name: str,
        keys: Keys,
        identity: str,
        plain_bytes: int,
    ) -> None:
        """Read the header.

        Args:
            read: returns bytes of the file, given their offset and number; fewer bytes at the end of the file.
            file_bytes: the length of the file.
            name: the name of the file for errors.
            keys: contain the key that the header of the file names.
            identity: the identity of the file.
            plain_bytes: the length of the plain content.

        Raises:
            CorruptData: the file is not an encrypted file of this length and identity.
            ConfigError: `keys` do not contain the key.
        """
        self.plain_bytes = plain_bytes
        self._read = read
        self._file_bytes = file_bytes
        self._name = name
        with stream_errors(name):
            start = bytes(read(0, min(file_bytes, HEADER_BYTES_MAX)))
            has_length = len(start) >= _HEADER_LENGTH_BYTES
            if has_length:
                self._start = header_bytes(start)  # the offset of the first chunk
            if not has_length or file_bytes < self._start:
                raise BadStream("the header of an encrypted file", f"{file_bytes} bytes")
            self._opened = OpenedEnvelope(keys, start[: self._start], identity)
        self.chunk_bytes = self._opened.chunk_bytes  # plain bytes of a chunk; the last chunk can have fewer
        self._chunks = max(1, math.ceil(plain_bytes / self.chunk_bytes))
        expected = self._start + plain_bytes + TAG_BYTES * self._chunks
        if file_bytes != expected:
            raise CorruptData(name, f"{expected} bytes", f"{file_bytes} bytes")

    def read_at(self, offset: int, length: int) -> bytes:
        """Return the plain bytes of a range; `CorruptData` if one of its chunks is damaged."""
        end = min(offset + length, self.plain_bytes)
        first_chunk = offset // self.chunk_bytes
        end_chunk = math.ceil(end / self.chunk_bytes)
        plain = self.chunks(first_chunk, end_chunk)
        plain_start = first_chunk * self.chunk_bytes
        return plain[offset - plain_start : end - plain_start]

    def last_chunk(self) -> bytes:
        """Return the plain bytes of the last chunk; `CorruptData` if it is damaged, or not the last chunk."""
        return self.chunks(self._chunks - 1, self._chunks)

    def chunks(self, first: int, end_chunk: int) -> bytes:
        """Return the plain bytes of the chunks from `first` to before `end_chunk`, which are read by one call."""
        step = self.chunk_bytes + TAG_BYTES
        start = self._start + first * step
        end = min(self._start + end_chunk * step, self._file_bytes)
        data = memoryview(self._read(start, end - start))
        with stream_errors(self._name):
            plain = []
            for number in range(first, end_chunk):
                place = (number - first) * step
                chunk = data[place : place + step]
                plain.append(self._opened.decrypt(chunk, number, is_last=number == self._chunks - 1))
        if len(plain) != 1:
            return b"".join(plain)
        return plain[0]


class _Decrypted(_PlainFile):
    """A plain file that is decrypted by chunks; it keeps the chunk that was decrypted last."""

    def __init__(self, file: BinaryIO, keys: Keys, identity: str, plain_bytes: int) -> None:
        super().__init__(file, plain_bytes)
        self._ranges = DecryptedRanges(
            self._read_range,
            file.seek(0, os.SEEK_END),
            name=self.name,
            keys=keys,
            identity=identity,
            plain_bytes=plain_bytes,
        )
        # The last chunk shows if the file was truncated. It is kept, since readers read it again.
        self._held = self._ranges.last_chunk()
        self._held_number = max(0, plain_bytes - 1) // self._ranges.chunk_bytes

    def readinto(self, buffer: Buffer) -> int:  # type: ignore[override] # typeshed requires any buffer; callers pass these types
        view = memoryview(buffer).cast("B")
        end = min(self._position + len(view), self._plain_bytes)
        begin, chunk_bytes = self._position, self._ranges.chunk_bytes
        while self._position < end:
            number, offset = divmod(self._position, chunk_bytes)
            if number != self._held_number:
                self._held = self._ranges.chunks(number, number + 1)
                self._held_number = number
            data = memoryview(self._held)[offset : offset + end - self._position]
            target = self._position - begin
            view[target : target + len(data)] = data
            self._position += len(data)
        return self._position - begin

    def _read_range(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)
