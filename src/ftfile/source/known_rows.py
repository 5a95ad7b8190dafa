"""The schema of the known files: one row of 65 bytes for each file."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ftfile.source.contents import Fingerprints

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray


ROW = np.dtype(
    [
        ("high", "<u8"),  # first half of the key; rows are sorted by keys
        ("low", "<u8"),
        ("position", "<i8"),
        ("size", "<i8"),  # -1 if unknown
        ("modified", "<i8"),
        ("identity", "<u8"),
        ("head", "<u8"),
        ("tail", "<u8"),
        ("flags", "u1"),
    ]
)
# One row of `ROW`, with its key, its identity and its fingerprints as bytes.
_PACKED = struct.Struct("<16sqqq8s8s8sB")
# Flags.
PARKED = 1  # skipped until it changes
DISPLACED = 2  # another file is at its path

KEY_BYTES = 16  # length of the key at the start of each row
NO_IDENTITY = bytes(8)


def key_of(root: str, path: str) -> bytes:
    """Return the 128-bit key of a path below the URL of a root; the key depends only on the full URL of the file."""
    if root.endswith("/"):
        text = root + path
    else:
        text = f"{root}/{path}"
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).digest()


def identity_hash(identity: str | None) -> bytes:
    """Return 64 bits for the lasting identity of a file in the storage; zeros if the storage has no identities."""
    if identity is None:
        return NO_IDENTITY
    return hashlib.blake2b(identity.encode(), digest_size=8).digest()


def is_parked(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each row True if its file is skipped until it changes."""
    parked: NDArray[np.bool_] = rows["flags"] & PARKED != 0
    return parked


def has_unread(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each row True if its file had unread bytes in the last listing; False for parked files."""
    unread: NDArray[np.bool_] = ~is_parked(rows) & (rows["position"] < rows["size"])
    return unread


def packed_rows(rows: NDArray[Any]) -> Iterator[bytes]:
    """Yield each row in the form of `KnownFile.pack`."""
    data = rows.tobytes()
    for begin in range(0, len(data), ROW.itemsize):
        yield data[begin : begin + ROW.itemsize]


class KnownFile(NamedTuple):
    """The state of one known file."""

    key: bytes
    position: int  # the content before it was read
    size_bytes: int
    modified_ms: int
    identity: bytes
    head: str  # fingerprints before `position`, as hexadecimal digits
    tail: str
    is_parked: bool = False
    is_displaced: bool = False  # another file is at its path; its key is not the key of a path

    @classmethod
    def unpack(cls, row: bytes) -> KnownFile:
        """Return the file of a row."""
        key, position, size_bytes, modified_ms, identity, head, tail, flags = _PACKED.unpack(row)
        return cls(
            key=key,
            position=position,
            size_bytes=size_bytes,
            modified_ms=modified_ms,
            identity=identity,
            head=head.hex(),
            tail=tail.hex(),
            is_parked=bool(flags & PARKED),
            is_displaced=bool(flags & DISPLACED),
        )

    def pack(self) -> bytes:
        """Return the file as a row."""
        flags = PARKED * self.is_parked | DISPLACED * self.is_displaced
        head, tail = _bytes(self.head), _bytes(self.tail)
        marks = self.position, self.size_bytes, self.modified_ms, self.identity
        return _PACKED.pack(self.key, *marks, head, tail, flags)

    @property
    def fingerprints(self) -> Fingerprints:
        """Return the fingerprints before the position."""
        return Fingerprints(self.head, self.tail)

    def displaced_key(self) -> bytes:
        """Return the key of the file after another file has replaced it at its path."""
        return hashlib.blake2b(self.pack(), digest_size=KEY_BYTES).digest()

    def displace(self) -> KnownFile:
        """Return the known state of the file after another file has replaced it at its path."""
        return self._replace(key=self.displaced_key(), is_displaced=True)


def _bytes(digits: str) -> bytes:
    return bytes.fromhex(digits).ljust(8, b"\0")
