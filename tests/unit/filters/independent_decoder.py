"""A decoder written only from docs/internals/encrypted-files.md, without any code of ftfile."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import aes_key_unwrap

if TYPE_CHECKING:
    from collections.abc import Callable

Keys = dict[tuple[str, bytes], bytes]  # key-encryption keys by id and wrapped key


def derive(key: bytes, use: bytes) -> bytes:
    """HKDF-SHA256 without salt, 32 bytes (RFC 5869)."""
    pseudorandom = hmac.digest(bytes(32), key, "sha256")
    return hmac.digest(pseudorandom, use + b"\x01", "sha256")


def decode(data: bytes, identity: str, keys: Keys) -> bytes:
    assert data[:4] == b"FTE\x01"
    chunk_bytes = 1 << data[4]
    key_id_end = 8 + data[5]
    wrapped_end = key_id_end + int.from_bytes(data[6:8], "big")
    data_key_end = wrapped_end + 40
    header_end = data_key_end + 7
    header, body = data[:header_end], data[header_end:]
    key = keys[data[8:key_id_end].decode("ascii"), data[key_id_end:wrapped_end]]
    data_key = aes_key_unwrap(derive(key, b"ftfile 1 wrapping of data keys"), data[wrapped_end:data_key_end])
    plain, number = b"", 0
    while True:
        chunk, body = body[: chunk_bytes + 16], body[chunk_bytes + 16 :]
        nonce = data[data_key_end:header_end] + number.to_bytes(4, "big") + (b"\x00" if body else b"\x01")
        plain += AESGCM(data_key).decrypt(nonce, chunk, header + identity.encode())
        number += 1
        if not body:
            return plain


def record(content: bytes, path: str, directory_id: str, find: Callable[[str, str], bytes]) -> bytes:
    """Return the content of a file of the log, without its MAC."""
    body, _, last = content[:-1].rpartition(b"\n")
    algorithm, key_id, wrapped, mac = last.decode("ascii").split(" ")
    assert algorithm == "hmac-sha256"
    assert content[-1:] == b"\n"
    key = derive(find(key_id, wrapped), b"ftfile 1 authentication of records")
    prefix = f"{algorithm} {key_id} {wrapped}"
    authenticated = (
        b"ftfile record 1\0" + b"".join(text.encode() + b"\0" for text in (directory_id, path, prefix)) + body
    )
    assert hmac.compare_digest(bytes.fromhex(mac), hmac.new(key, authenticated, hashlib.sha256).digest())
    return body
