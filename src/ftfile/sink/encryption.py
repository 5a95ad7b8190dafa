"""The options that encrypt."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.commit.opening import KEY_PROVIDER_VARIABLE
from ftfile.commit.sealed import SealedFileSystem
from ftfile.core.errors import ConfigError
from ftfile.filters.aes_gcm import AesGcm
from ftfile.fs.registry import open_filesystem
from ftfile.keys.keys import Keys, check_key_id

if TYPE_CHECKING:
    from ftfile.core.options import ParsedOptions
    from ftfile.fs.api import FileSystem

__all__ = ("Encryption", "open_to_write")


@dataclass(frozen=True, slots=True)
class Encryption:
    """How what is written is encrypted; holds no key.

    Attributes:
        kind: `aes-gcm`.
        key_id: of the key-encryption key.
    """

    kind: str
    key_id: str
    keys: Keys

    @classmethod
    def from_options(cls, parsed: ParsedOptions) -> Encryption | None:
        """Check the options, and that the key can be had here; None where nothing is to be encrypted.

        Raises:
            ConfigError: something is missing or contradicts something else, or there is no such key.
        """
        kind, key_id, reference = parsed["encryption"], parsed["encryptionKeyId"], parsed["keyProvider"]
        if key_id is not None:
            check_key_id(key_id)
        if reference is not None:
            Keys.from_reference(reference)
        if kind == "none":
            given = [name for name in ("encryptionKeyId", "keyProvider") if name in parsed.given]
            if given:
                raise ConfigError(f"{' and '.join(given)} without encryption: set encryption=aes-gcm")
            return None
        reference = reference or os.environ.get(KEY_PROVIDER_VARIABLE)
        if not reference:
            raise ConfigError(
                f"encryption={kind} without keyProvider: name where keys are, as in keyProvider=file:/etc/ftfile/keys, "
                f"or set the environment variable {KEY_PROVIDER_VARIABLE} on the driver and the executors"
            )
        keys = Keys.from_reference(reference)
        key_id = keys.key_to_use(key_id or keys.only_id()).key_id
        return cls(kind, key_id, keys)

    @property
    def filter(self) -> AesGcm | None:
        """Return what goes around all of a file."""
        return AesGcm(self.key_id, self.keys)


def open_to_write(url: str, settings: tuple[tuple[str, str], ...], encryption: Encryption | None) -> FileSystem:
    """Open a directory, which need not exist yet, for a writer with such settings."""
    fs = open_filesystem(url, settings=dict(settings))
    return fs if encryption is None else SealedFileSystem(fs, encryption.keys, encryption.key_id)
