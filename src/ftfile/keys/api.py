"""A key provider: it makes keys under an id and finds them again, and nobody else knows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

__all__ = ("KEY_BYTES", "KEY_ID_BYTES_MAX", "WRAPPED_BYTES_MAX", "IssuedKey", "KeyProvider", "is_key_id")

KEY_BYTES = 32
KEY_ID_BYTES_MAX = 200
WRAPPED_BYTES_MAX = 8 << 10


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key-encryption key."""

    key: bytes = field(repr=False)  # 32 bytes
    # With which the provider finds it again; empty where the id says it all. It is stored in the clear.
    wrapped: bytes = b""


class KeyProvider(Protocol):
    """Knows the keys that may be trusted, by their ids, and no others: what is made with a key it finds is believed.

    One from outside is an entry point of the group `ftfile.key_providers`: its name is the first word of the option
    `keyProvider`, its value is called with what stands after the colon. Used by many threads.
    """

    def new_key(self, key_id: str) -> IssuedKey:
        """Return a key to encrypt with; the same one or another each time.

        Raises:
            ConfigError: there is no such key, or it cannot be had.
        """

    def find_key(self, key_id: str, wrapped: bytes) -> bytes:
        """Return a key that `new_key` returned, here or anywhere.

        Raises:
            ConfigError: there is no such key, or it cannot be had.
        """

    def known_ids(self) -> tuple[str, ...]:
        """Return the ids of all keys.

        Raises:
            ConfigError: they cannot be had.
        """


def is_key_id(text: str) -> bool:
    """Return True if a text can be the id of a key: up to 200 visible ASCII characters without spaces."""
    return 0 < len(text) <= KEY_ID_BYTES_MAX and all("!" <= character <= "~" for character in text)
