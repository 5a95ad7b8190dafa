"""Parquet's own encryption, with the keys of ftfile: parquet-hadoop reads the files, given the keys.

Keys are wrapped as parquet-hadoop wraps them itself (`KeyToolkit.encryptKeyLocally`): base64 of a random nonce of 12
bytes, and of the key under AES-GCM with the master key, whose id is associated data.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet.encryption as pe

from ftfile.core.errors import ConfigError
from ftfile.core.ids import random_bytes
from ftfile.encoding.base.reading import corrupt

if TYPE_CHECKING:
    from ftfile.keys.keys import Keys

IDENTITY = "ftfile.identity"  # key of the file's identity in the encrypted footer
MAGIC = b"PARE"  # at both ends of files with an encrypted footer
_TAIL_BYTES = 8  # the length of the footer, and `MAGIC`
_AES_GCM_V1 = b"\x1c\x1c"  # the start of `FileCryptoMetaData`: field 1, a union, with its field 1, `AesGcmV1`
_NONCE_BYTES = 12
_KEY_BITS = 256
_NO_SERVICE = "DEFAULT"


def check_library() -> None:
    """Raise `ConfigError` if this pyarrow cannot encrypt all of a file."""
    if not hasattr(pe.EncryptionConfiguration, "uniform_encryption"):
        raise ConfigError("encryption=parquet needs a newer pyarrow than this one, which is " + pa.__version__)


def encryption(keys: Keys, key_id: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return pyarrow's properties to encrypt all of a file with a random key of its own."""
    settings = pe.EncryptionConfiguration(
        footer_key=key_id, uniform_encryption=True, data_key_length_bits=_KEY_BITS, double_wrapping=False
    )
    return pe.CryptoFactory(lambda _: _Client(keys)).file_encryption_properties(pe.KmsConnectionConfig(), settings)


def check_algorithm(file: BinaryIO) -> None:
    """Raise `CorruptData` for a file of another algorithm, as of AES_GCM_CTR_V1, whose pages are not authenticated.

    Nothing authenticates the name of the algorithm. The position of the file changes.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    start = end - _TAIL_BYTES - int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL_BYTES or tail[4:] != MAGIC or start < 0:
        raise corrupt(file, "a Parquet file with an encrypted footer", "one in the clear, or no whole one")
    file.seek(start)
    found = file.read(len(_AES_GCM_V1))
    if found != _AES_GCM_V1:
        raise corrupt(file, "a Parquet file encrypted by AES_GCM_V1", f"one that begins its footer with {found.hex()}")


class Decryption:
    """The decryption of one file, by pyarrow's `properties`; pyarrow reads files in the clear all the same."""

    def __init__(self, keys: Keys) -> None:
        self._client = _Client(keys)
        self._factory = pe.CryptoFactory(self._connect)
        self.properties = self._factory.file_decryption_properties(
            pe.KmsConnectionConfig(), pe.DecryptionConfiguration()
        )

    @property
    def has_key(self) -> bool:
        """Return True once the file had a key: only then its footer was authenticated."""
        return self._client.has_unwrapped

    def _connect(self, connection: Any) -> _Client:  # noqa: ANN401 - pyarrow has no types
        service = connection.kms_instance_id
        if service != _NO_SERVICE:
            raise ConfigError(f"a Parquet file has its key from the service {service!r}, and ftfile uses none")
        return self._client


class _Client(pe.KmsClient):  # type: ignore[misc] # pyarrow has no types
    """Wraps with keys of a key ring: other tools can be given such master keys alone."""

    def __init__(self, keys: Keys) -> None:
        pe.KmsClient.__init__(self)
        self._keys = keys
        self.has_unwrapped = False

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, master = random_bytes(_NONCE_BYTES), self._keys.key_to_use(master_key_identifier).key
        sealed = AESGCM(master).encrypt(nonce, key_bytes, master_key_identifier.encode())
        return base64.b64encode(nonce + sealed)

    def unwrap_key(self, wrapped_key: bytes | str, master_key_identifier: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        master = self._keys.find(master_key_identifier, b"").key
        try:
            sealed = base64.b64decode(wrapped_key, validate=True)
            nonce, sealed = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            key = AESGCM(master).decrypt(nonce, sealed, master_key_identifier.encode())
        except (binascii.Error, ValueError, InvalidTag):
            raise ConfigError(
                f"a data key in a Parquet file was not wrapped with the key {master_key_identifier!r}: it was changed, "
                "or the key is another one of this name"
            ) from None
        self.has_unwrapped = True
        return key
