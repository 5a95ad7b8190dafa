"""HDFS's checksum of a whole file, computed while the file is written.

DataNodes keep a CRC-32C of each chunk of 512 bytes. The checksum of a block is the MD5 of its chunks' CRCs, that of a
file the MD5 of its blocks' MD5s, in a buffer that Hadoop fills up with zeros.
"""

from __future__ import annotations

import hashlib
import re
import struct
from typing import TYPE_CHECKING, Any

import google_crc32c

if TYPE_CHECKING:
    from collections.abc import Mapping

CHUNK_BYTES = 512
BUFFER_BYTES = 32
# Chunks taken apart at once; more are not faster.
PIECE_CHUNKS = 512
# Such as "MD5-of-0MD5-of-512CRC32C"; the first number counts the CRCs of a block if there are several blocks.
_KIND = re.compile(rf"MD5-of-\d+MD5-of-{CHUNK_BYTES}CRC32C")
# After 4 bytes for the chunk's length, and 8 for the block's CRCs.
_DIGEST_AT = 12


def digest_of(answer: Mapping[str, object]) -> bytes | None:
    """Return the digest in a `FileChecksum` of WebHDFS, or None for another algorithm."""
    if not _KIND.fullmatch(str(answer["algorithm"])):
        return None
    return bytes.fromhex(str(answer["bytes"]))[_DIGEST_AT : _DIGEST_AT + hashlib.md5(usedforsecurity=False).digest_size]


class HadoopChecksum:
    """Computes the checksum of content that comes piece by piece; `block_bytes` is a multiple of a chunk's length."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._block_left = block_bytes
        self._block = hashlib.md5(usedforsecurity=False)
        self._blocks = bytearray()
        self._rest = bytearray()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(data)
        if self._rest:
            missing = CHUNK_BYTES - len(self._rest)
            self._rest += view[:missing]
            view = view[missing:]
            if len(self._rest) < CHUNK_BYTES:
                return
            self._take_chunks(memoryview(bytes(self._rest)))
            self._rest.clear()
        whole = len(view) // CHUNK_BYTES * CHUNK_BYTES
        self._take_chunks(view[:whole])
        self._rest += view[whole:]

    def digest(self) -> bytes:
        """Return the checksum of at least one byte."""
        block, blocks = self._block.copy(), self._blocks.copy()
        if self._rest:
            block.update(google_crc32c.value(bytes(self._rest)).to_bytes(4, "big"))
        if self._rest or self._block_left < self._block_bytes:
            blocks += block.digest()
        capacity = BUFFER_BYTES
        while capacity < len(blocks):
            capacity *= 2
        return hashlib.md5(blocks.ljust(capacity, b"\0"), usedforsecurity=False).digest()

    def _take_chunks(self, view: memoryview) -> None:
        while view:
            size_bytes = min(len(view), self._block_left, PIECE_CHUNKS * CHUNK_BYTES)
            chunks = size_bytes // CHUNK_BYTES
            crcs = map(google_crc32c.value, struct.unpack_from(f"{CHUNK_BYTES}s" * chunks, view))
            self._block.update(struct.pack(f">{chunks}I", *crcs))
            view = view[size_bytes:]
            self._block_left -= size_bytes
            if not self._block_left:
                self._blocks += self._block.digest()
                self._block = hashlib.md5(usedforsecurity=False)
                self._block_left = self._block_bytes


def checksum_for(status: dict[str, Any]) -> HadoopChecksum | None:
    """Return a computation for a file with this status; None if HDFS sums encrypted or erasure-coded bytes."""
    if status.get("encBit") or status.get("ecBit") or status.get("ecPolicy"):
        return None
    return HadoopChecksum(int(status["blockSize"]))
