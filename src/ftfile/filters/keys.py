"""References to key providers, and the keys that they return.

References travel to tasks without any key.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Protocol, cast

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.extensions import list_installed, load_extension
from ftfile.core.per_process import OnePerKey, PerProcess

__all__ = (
    "ENTRY_POINT_GROUP",
    "KEY_BYTES",
    "KEY_ID_BYTES_MAX",
    "WRAPPED_BYTES_MAX",
    "IssuedKey",
    "KeyProvider",
    "Keys",
    "UsableKey",
    "check_key_id",
    "forget_keys",
    "holds_key",
    "is_key_id",
)


KEY_BYTES = 32
KEY_ID_BYTES_MAX = 200
WRAPPED_BYTES_MAX = 8 << 10
ENTRY_POINT_GROUP = "ftfile.key_providers"

_BUILT_IN = {
    "file": "ftfile.filters.key_providers:FileRing",
    "env": "ftfile.filters.key_providers:EnvironmentRing",
    "command": "ftfile.filters.key_providers:CommandRing",
    "aws-kms": "ftfile.filters.key_providers:AwsKms",
}
_ISSUED_S = 3600.0  # the time for which a key is used to encrypt: a provider can create another one at each call
_KEPT = 1000  # cached keys

# Paths that can lead to other files than their names show, such as `/proc/self/root`, or are not files.
_NO_FILES = ("//", "/proc/", "/dev/", "/sys/")
# Files in memory.
_FILES_IN_MEMORY = "/dev/shm/"  # noqa: S108 - a path is compared with it

_WRAPPING, _RECORDS = b"ftfile 1 wrapping of data keys", b"ftfile 1 authentication of records"

_NEVER_INLINE = (
    "Keys are never set in options: Spark shows options in plans, in its web interface and in logs. Write the key "
    "into a file that only you can read, and name this file, as in keyProvider=file:/etc/ftfile/keys"
)


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key-encryption key."""

    key: bytes = field(repr=False)  # 32 bytes
    # The provider finds the key by it; empty if the id is sufficient. It is stored in plain text.
    wrapped: bytes = b""


class KeyProvider(Protocol):
    """A source of trusted keys: content that was encrypted or authenticated with one of its keys is trusted.

    A provider of another package is an entry point of the group `ftfile.key_providers`: its name is the first word of
    the option `keyProvider`, and its value is called with the text after the colon. Thread-safe.
    """

    def new_key(self, key_id: str) -> IssuedKey:
        """Return a key to encrypt with, the same or another one each time.

        Raises:
            ConfigError: there is no such key, or it is not accessible.
        """

    def find_key(self, key_id: str, wrapped: bytes) -> bytes:
        """Return a key that `new_key` returned, in this or another process.

        Raises:
            ConfigError: there is no such key, or it is not accessible.
        """

    def known_ids(self) -> tuple[str, ...]:
        """Return the ids of all keys.

        Raises:
            ConfigError: they are not accessible.
        """


def is_key_id(text: str) -> bool:
    """Return True if a text can be the id of a key: up to 200 visible ASCII characters without spaces."""
    return 0 < len(text) <= KEY_ID_BYTES_MAX and all("!" <= character <= "~" for character in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableKey:
    """A key-encryption key and the keys derived from it, one for each use."""

    key_id: str
    wrapped: bytes  # the provider finds the key by it
    wrapping: bytes = field(repr=False)  # wraps the data keys of files
    records: bytes = field(repr=False)  # authenticates records
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Keys:
    """A reference to a key provider: picklable, comparable, and without keys."""

    reference: str = field(repr=False)  # value of the option `keyProvider`; a command can contain a secret

    @classmethod
    def from_reference(cls, reference: str) -> Keys:
        """Return the provider of an option after a check of its syntax; no key is read."""
        keys = cls(reference)
        keys.provider()
        return keys

    @property
    def kind(self) -> str:
        """Return the first word of the reference."""
        return self.reference.partition(":")[0]

    @property
    def may_be_told(self) -> bool:
        """Return True if a directory may name this provider, which starts no program and calls no service."""
        return self.reference.startswith(("file:", "env:FTFILE_"))

    def as_told_by(self, directory: str) -> Keys | None:
        """Return the keys that a directory names, by its path; None if it may not name them. Links are resolved."""
        if self.kind != "file":
            if self.may_be_told:
                return self
            return None
        key_file = self.reference.partition(":")[2]
        if not key_file.startswith("/"):  # each process has another working directory
            raise ConfigError(
                "the directory names a key file without an absolute path: name its keys with the option keyProvider, "
                "as in file:/etc/ftfile/keys"
            )
        key_file = posixpath.normpath(key_file)
        path = os.path.realpath(key_file)
        if _means_no_file(key_file) or _means_no_file(path) or _is_within(path, directory):
            return None
        return Keys(f"file:{path}")

    def provider(self) -> KeyProvider:
        """Return the provider, one for each process."""
        return _providers.of(self.reference)

    def key_to_use(self, key_id: str) -> UsableKey:
        """Return a key to encrypt and to authenticate with."""
        place, now_s = (self.reference, key_id), SYSTEM.clock.monotonic_s()
        issued = _issued.here.get(place)
        if issued is None or now_s - issued[0] > _ISSUED_S:
            issued = now_s, _usable_key_of(key_id, self.provider().new_key(key_id))
            _issued.here[place] = issued
        return issued[1]

    def find(self, key_id: str, wrapped: bytes) -> UsableKey:
        """Return the key of existing content."""
        return _find(self, key_id, wrapped)

    def only_id(self) -> str:
        """Return the id of the only key; with several keys, raise `ConfigError`."""
        key_ids = self.provider().known_ids()
        if len(key_ids) != 1:
            raise ConfigError(
                f"the key provider has several keys: choose one with encryptionKeyId: {', '.join(key_ids)}"
            )
        return key_ids[0]


# 32 bytes in padded base64, also in the URL alphabet, as in key rings and the output of `openssl rand -base64 32`.
_KEY_TEXT = re.compile(r"[A-Za-z0-9+/_-]{43}=(?![A-Za-z0-9+/_=-])")


@lru_cache(_KEPT)
def _find(keys: Keys, key_id: str, wrapped: bytes) -> UsableKey:
    return _usable_key_of(key_id, IssuedKey(keys.provider().find_key(key_id, wrapped), wrapped))


def forget_keys() -> None:
    """Drop all keys and providers of this process, for tests."""
    _providers.clear()
    _find.cache_clear()
    _issued.here.clear()


def check_key_id(key_id: str) -> None:
    """Refuse a text that is not a key id, or that contains a key, without showing it."""
    if holds_key(key_id):
        raise ConfigError(f"encryptionKeyId must be the name of a key, but this value contains a key. {_NEVER_INLINE}")
    if not is_key_id(key_id):
        raise ConfigError("encryptionKeyId may have up to 200 visible ASCII characters without spaces")


def holds_key(text: str) -> bool:
    """Return True if a text contains a key in the form of a key ring."""
    return _KEY_TEXT.search(text) is not None


def _load(reference: str) -> KeyProvider:
    kind, colon, settings = reference.partition(":")
    # Neither error shows the value, which can be a key.
    if not colon or (kind not in _BUILT_IN and kind not in list_installed(ENTRY_POINT_GROUP)):
        providers = ", ".join(f"{name}:…" for name in sorted({*_BUILT_IN, *list_installed(ENTRY_POINT_GROUP)}))
        raise ConfigError(
            f"keyProvider names the location of keys, but this value is not one of {providers}. Packages can add "
            f"others with an entry point of the group {ENTRY_POINT_GROUP!r}. {_NEVER_INLINE}"
        )
    if holds_key(settings):
        raise ConfigError(f"keyProvider names the location of keys, but this value contains a key. {_NEVER_INLINE}")
    provider = load_extension("key provider", kind, _BUILT_IN, ENTRY_POINT_GROUP)(settings)
    lacking = [name for name in ("new_key", "find_key", "known_ids") if not callable(getattr(provider, name, None))]
    if lacking:
        raise ConfigError(f"the key provider {kind!r} has no {', '.join(lacking)}: see ftfile.filters.keys.KeyProvider")
    return cast("KeyProvider", provider)


_providers = OnePerKey(_load)
# By provider and key id: when a key was issued, and the key.
_issued: PerProcess[dict[tuple[str, str], tuple[float, UsableKey]]] = PerProcess(dict)


def _means_no_file(path: str) -> bool:
    return path.startswith(_NO_FILES) and not path.startswith(_FILES_IN_MEMORY)


def _is_within(path: str, directory: str) -> bool:
    """Return True if a resolved path is a directory or below it, under any of its names."""
    if PurePosixPath(os.path.realpath(directory)) in PurePosixPath(path).parents:
        return True
    with contextlib.suppress(OSError):
        status = os.stat(directory)
        for parent in PurePosixPath(path).parents:
            if os.path.samestat(os.stat(parent), status):
                return True
    return False  # one of them can be missing on this machine


def _usable_key_of(key_id: str, issued: IssuedKey) -> UsableKey:
    if len(issued.key) != KEY_BYTES or len(issued.wrapped) > WRAPPED_BYTES_MAX or not is_key_id(key_id):
        raise ConfigError(
            f"for {key_id!r}, the key provider returned a key of {len(issued.key)} bytes and a wrapped key of "
            f"{len(issued.wrapped)} bytes: the key must have {KEY_BYTES}, and the wrapped key at most "
            f"{WRAPPED_BYTES_MAX}"
        )
    wrapping, records = _derive_key(issued.key, _WRAPPING), _derive_key(issued.key, _RECORDS)
    return UsableKey(key_id=key_id, wrapped=issued.wrapped, wrapping=wrapping, records=records, key=issued.key)


def _derive_key(key: bytes, use: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, None, use).derive(key)
