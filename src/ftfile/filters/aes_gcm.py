"""The filter `aes-gcm`, an envelope of encrypted, authenticated chunks.

docs/internals/encrypted-files.md describes the format. Chunks are numbered, the last one is marked, and all are bound
to the header and to the identity of the file. A chunk that is truncated, moved, repeated, or taken from another file
causes an error before a byte of it is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ftfile.core.context import random_bytes
from ftfile.core.errors import ConfigError
from ftfile.filters.api import BadStream, Filter
from ftfile.filters.keys import KEY_BYTES, WRAPPED_BYTES_MAX, is_key_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from ftfile.filters.api import Buffer, Stream
    from ftfile.filters.keys import Keys


MAGIC = b"FTE\x01"
CHUNK_BYTES = 64 << 10
_CHUNK_POWERS = range(10, 25)
TAG_BYTES = 16
_WRAPPED_KEY_BYTES = KEY_BYTES + 8
_PREFIX_BYTES = 7
_CHUNKS_MAX = 1 << 32
_FIXED_BYTES = 8  # the magic; the power of two of `chunk_bytes`; the lengths of the key id and of the wrapped key
HEADER_BYTES_MAX = _FIXED_BYTES + 255 + WRAPPED_BYTES_MAX + _WRAPPED_KEY_BYTES + _PREFIX_BYTES


@dataclass(frozen=True, slots=True)
class AesGcm(Filter):
    """AES-256-GCM in chunks, with a random data key for each file, wrapped by a key-encryption key."""

    name: ClassVar[str] = "aes-gcm"
    extension: ClassVar[str] = ".enc"

    key_id: str | None = None  # None to only decrypt files, which name their key
    keys: Keys | None = None
    chunk_bytes: int = CHUNK_BYTES  # of plain data; a power of two

    def definition(self) -> dict[str, Any]:
        return {"keyId": self.key_id}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> AesGcm:
        return cls(definition.get("keyId"))

    def with_keys(self, keys: Keys | None) -> AesGcm:
        return replace(self, keys=keys)

    def encoder(self, identity: str, size_bytes: int | None = None) -> AesGcmEncoder:  # noqa: ARG002 - for codecs
        if self.key_id is None:
            raise ConfigError("encryption=aes-gcm without a key to encrypt with")
        return AesGcmEncoder(self._keys(), self.key_id, identity, self.chunk_bytes)

    def decoder(self, identity: str) -> Stream:
        return _ChunkDecoder(self._keys(), identity)

    def _keys(self) -> Keys:
        if self.keys is None:
            raise ConfigError(
                "the file is encrypted, and no keys are given: name their provider with the option keyProvider, the "
                "argument key_provider, or the environment variable FTFILE_KEY_PROVIDER"
            )
        return self.keys


def header_bytes(start: bytes) -> int:
    """Return the length of a header, given its first 8 bytes or more."""
    wrapped_bytes = int.from_bytes(start[6:8], "big")
    if start[:4] != MAGIC or wrapped_bytes > WRAPPED_BYTES_MAX:
        raise BadStream("the header of an encrypted file", f"another header, {start[:16].hex()}…")
    return _FIXED_BYTES + start[5] + wrapped_bytes + _WRAPPED_KEY_BYTES + _PREFIX_BYTES


class OpenedEnvelope:
    """An envelope with its unwrapped data key: decrypts any chunk."""

    def __init__(self, keys: Keys, header: bytes, identity: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

        power, wrapped_start = header[4], _FIXED_BYTES + header[5]
        data_key_start = len(header) - _PREFIX_BYTES - _WRAPPED_KEY_BYTES
        key_id = header[_FIXED_BYTES:wrapped_start].decode("latin-1")
        if power not in _CHUNK_POWERS or not is_key_id(key_id):
            raise BadStream("the header of an encrypted file", f"another header, {header[:16].hex()}…")
        key = keys.find(key_id, header[wrapped_start:data_key_start])
        try:
            data_key = aes_key_unwrap(key.wrapping, header[data_key_start:-_PREFIX_BYTES])
        except InvalidUnwrap:
            actual = "a changed data key, or a data key of another key with this name"
            raise BadStream(f"a data key wrapped with the key {key_id!r}", actual) from None
        self.chunk_bytes = 1 << power
        self._cipher = AESGCM(data_key)
        self._prefix = header[-_PREFIX_BYTES:]
        self._bound = _bind_header(header, identity)

    def decrypt(self, chunk: Buffer, number: int, *, is_last: bool) -> bytes:
        """Return the plain bytes of a chunk."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(_nonce(self._prefix, number, is_last=is_last), chunk, self._bound)
        except InvalidTag:
            what = "the last chunk" if is_last else "a chunk"
            raise BadStream(
                f"{what} of an encrypted file, number {number}",
                "a chunk that was changed, moved or copied from another file, or is not the last",
            ) from None


class AesGcmEncoder:
    """An envelope that is being written, a chunk at a time."""

    def __init__(self, keys: Keys, key_id: str, identity: str, chunk_bytes: int) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.keywrap import aes_key_wrap

        key, data_key = keys.key_to_use(key_id), random_bytes(KEY_BYTES)
        self._prefix = random_bytes(_PREFIX_BYTES)
        fixed = bytes([chunk_bytes.bit_length() - 1, len(key_id)]) + len(key.wrapped).to_bytes(2, "big")
        found_by = key_id.encode("ascii") + key.wrapped + aes_key_wrap(key.wrapping, data_key)
        self._header = MAGIC + fixed + found_by + self._prefix
        self._header_bytes = len(self._header)
        self._bound = _bind_header(self._header, identity)
        self._cipher: AESGCM = AESGCM(data_key)
        self._chunk_bytes = chunk_bytes
        self._number = 0
        self._held = bytearray()

    def feed(self, data: Buffer, /) -> bytes:
        return b"".join(self.pieces(data))

    def pieces(self, data: Buffer) -> Iterator[bytes]:
        view, start = memoryview(data).cast("B"), 0
        if self._header:
            header, self._header = self._header, b""
            yield header
        if self._held:
            start = self._chunk_bytes - len(self._held)
            self._held += view[:start]
            if start >= len(view):
                return
            held, self._held = self._held, bytearray()
            yield self._encrypt(held, is_last=False)
        # Like `_encrypt`, inlined: AES takes only 9 us for a chunk.
        encrypt, prefix, bound, step = self._cipher.encrypt, self._prefix, self._bound, self._chunk_bytes
        places = range(start, len(view) - step, step)
        # All numbers are reserved before the first chunk is returned: no other call may use them.
        first, self._number = self._number, self._number + len(places)
        _nonce(prefix, self._number, is_last=False)  # refuses too many chunks
        for number, place in enumerate(places, first):
            yield encrypt(prefix + number.to_bytes(4, "big") + b"\0", view[place : place + step], bound)
        self._held += view[start + step * len(places) :]

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return header + self._encrypt(self._held, is_last=True)

    def size_of(self, fed_bytes: int) -> int:
        return self._header_bytes + fed_bytes + TAG_BYTES * max(1, -(-fed_bytes // self._chunk_bytes))

    def _encrypt(self, chunk: Buffer, *, is_last: bool) -> bytes:
        nonce = _nonce(self._prefix, self._number, is_last=is_last)
        self._number += 1
        return self._cipher.encrypt(nonce, chunk, self._bound)


class _ChunkDecoder:
    def __init__(self, keys: Keys, identity: str) -> None:
        self._keys = keys
        self._identity = identity
        self._opened: OpenedEnvelope | None = None
        self._rest = b""
        self._number = 0

    def feed(self, data: Buffer, /) -> bytes:
        if self._rest:
            data = self._rest + bytes(data)
        view, start = memoryview(data).cast("B"), 0
        if self._opened is None:
            if len(view) >= _FIXED_BYTES:
                end = header_bytes(bytes(view[:_FIXED_BYTES]))
            else:
                end = len(view) + 1
            if len(view) < end:
                self._rest = bytes(view)
                return b""
            self._opened, start = OpenedEnvelope(self._keys, bytes(view[:end]), self._identity), end
        pieces, step = [], self._opened.chunk_bytes + TAG_BYTES
        while len(view) - start > step:  # more follow, so it is not the last one
            pieces.append(self._opened.decrypt(view[start : start + step], self._number, is_last=False))
            self._number += 1
            start += step
        self._rest = bytes(view[start:])
        return b"".join(pieces)

    def finish(self) -> bytes:
        if self._opened is None or len(self._rest) < TAG_BYTES:
            raise BadStream("the last chunk of an encrypted file", "the end of the data before this chunk")
        return self._opened.decrypt(self._rest, self._number, is_last=True)


class PieceCipher:
    """AES-256-GCM for pieces of a temporary file, with a key in memory; the nonce is the offset of a piece."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(random_bytes(KEY_BYTES))
        self._next = 0

    def encrypt(self, data: Buffer, offset: int) -> bytes:
        """Return the encrypted piece for an offset after all previous pieces."""
        if offset < self._next:  # no assert, since assertions can be disabled
            raise AssertionError("a nonce is used once")
        sealed = self._cipher.encrypt(offset.to_bytes(12, "big"), memoryview(data).cast("B"), None)
        self._next = offset + len(sealed)
        return sealed

    def decrypt(self, data: bytes, offset: int) -> bytes:
        """Return the plain data of a piece; `BadStream` if it was changed or moved."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(offset.to_bytes(12, "big"), data, None)
        except InvalidTag:
            raise BadStream("a spilled piece", "a changed piece") from None


def _bind_header(header: bytes, identity: str) -> bytes:
    """Return the associated data of every chunk."""
    return header + identity.encode()


def _nonce(prefix: bytes, number: int, *, is_last: bool) -> bytes:
    if number >= _CHUNKS_MAX:
        raise BadStream(f"at most {_CHUNKS_MAX} chunks", "more")
    return prefix + number.to_bytes(4, "big") + bytes([is_last])
