"""Pieces of a file that one object writes and reads again: their key is nowhere but in its memory."""

from __future__ import annotations

from ftfile.core.ids import random_bytes
from ftfile.filters.api import BadStream, Buffer
from ftfile.keys.api import KEY_BYTES

__all__ = ("PieceCipher",)


class PieceCipher:
    """AES-256-GCM with a key of its own; where a piece begins is its nonce, so no two may begin at one place."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(random_bytes(KEY_BYTES))
        self._next = 0

    def encrypt(self, data: Buffer, offset: int) -> bytes:
        """Return a piece that is written at an offset, which lies behind all pieces before it."""
        if offset < self._next:  # no assert: those can be switched off
            raise AssertionError("a nonce is used once")
        sealed = self._cipher.encrypt(_nonce(offset), memoryview(data).cast("B"), None)
        self._next = offset + len(sealed)
        return sealed

    def decrypt(self, data: bytes, offset: int) -> bytes:
        """Return what was encrypted.

        Raises:
            BadStream: it was changed, or lay elsewhere.
        """
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(_nonce(offset), data, None)
        except InvalidTag:
            raise BadStream("a piece that was spilled", "one that was changed") from None


def _nonce(offset: int) -> bytes:
    return offset.to_bytes(12, "big")
