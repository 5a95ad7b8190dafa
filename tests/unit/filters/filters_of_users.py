"""Filters of users, registered as entry points."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ftfile.filters.api import BadStream, Filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.filters.api import Buffer, Stream

COUNTED: list[int] = []


@dataclass(frozen=True, slots=True)
class ByteCounter(Filter):
    """Passes bytes unchanged and counts them. Its frames can be joined, like the frames of codecs."""

    name: ClassVar[str] = "counter"
    joins: ClassVar[bool] = True

    def definition(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> ByteCounter:  # noqa: ARG003
        return cls()

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002
        return _Counting()

    def decoder(self, identity: str) -> Stream:  # noqa: ARG002
        return _Counting()


class _Counting:
    def feed(self, data: Buffer, /) -> bytes:
        COUNTED.append(len(data))
        return bytes(data)

    def finish(self) -> bytes:
        return b""


class NoFilter:
    """A class that is not a filter."""


@dataclass(frozen=True, slots=True)
class Cipher(Filter):
    """AES-GCM in chunks with a public key. Each chunk is bound to its number and its place, and the last is marked."""

    name: ClassVar[str] = "cipher"
    extension: ClassVar[str] = ".aes"
    chunk_bytes: ClassVar[int] = 100

    key: str = "of the test"

    def definition(self) -> dict[str, Any]:
        return {"key": self.key}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Cipher:
        return cls(definition.get("key", cls().key))

    def encoder(self, identity: str, size_bytes: int | None = None) -> Stream:  # noqa: ARG002
        return _Chunks(self.key, identity, self.chunk_bytes, is_writing=True)

    def decoder(self, identity: str) -> Stream:
        return _Chunks(self.key, identity, self.chunk_bytes + 16, is_writing=False)


class _Chunks:
    def __init__(self, key: str, identity: str, chunk_bytes: int, *, is_writing: bool) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        aes = AESGCM(hashlib.sha256(key.encode()).digest())
        self._crypt = aes.encrypt if is_writing else aes.decrypt
        self._identity = identity.encode()
        self._chunk_bytes = chunk_bytes
        self._rest = b""
        self._number = 0

    def feed(self, data: Buffer, /) -> bytes:
        self._rest += bytes(data)
        done = []
        while len(self._rest) > self._chunk_bytes:
            chunk, self._rest = self._rest[: self._chunk_bytes], self._rest[self._chunk_bytes :]
            done.append(self._one(chunk, is_last=False))
        return b"".join(done)

    def finish(self) -> bytes:
        return self._one(self._rest, is_last=True)

    def _one(self, chunk: bytes, *, is_last: bool) -> bytes:
        from cryptography.exceptions import InvalidTag

        nonce = self._number.to_bytes(11, "big") + bytes([is_last])
        self._number += 1
        try:
            return self._crypt(nonce, chunk, self._identity)
        except InvalidTag as error:
            raise BadStream("a chunk of this place", "another one") from error
