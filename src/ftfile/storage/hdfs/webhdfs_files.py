"""The upload of one file to a DataNode, and HDFS's checksum of it.

DataNodes store a CRC-32C for each chunk of 512 bytes. The checksum of a block is the MD5 of the CRCs of its chunks. The
checksum of a file is the MD5 of the MD5s of its blocks, in a buffer that Hadoop pads with zeros.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import re
import socket
import struct
import urllib.parse
from typing import TYPE_CHECKING, Any

import google_crc32c
import requests
from hdfs.util import HdfsError

from ftfile.core.logs import redact
from ftfile.storage.calls import DATA_BYTES, run_within
from ftfile.storage.hdfs.web_security import check_tls, tls_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


CHUNK_BYTES = 512
BUFFER_BYTES = 32
# The number of chunks per step; more are not faster.
PIECE_CHUNKS = 512
# Such as "MD5-of-0MD5-of-512CRC32C". The first number is the number of CRCs in a block if there are several blocks.
_KIND = re.compile(rf"MD5-of-\d+MD5-of-{CHUNK_BYTES}CRC32C")
# After 4 bytes for the length of a chunk, and 8 bytes for the number of CRCs in a block.
_DIGEST_AT = 12


def digest_of(answer: Mapping[str, object]) -> bytes | None:
    """Return the digest of a `FileChecksum` of WebHDFS, or None for another algorithm."""
    if not _KIND.fullmatch(str(answer["algorithm"])):
        return None
    return bytes.fromhex(str(answer["bytes"]))[_DIGEST_AT : _DIGEST_AT + hashlib.md5(usedforsecurity=False).digest_size]


class HadoopChecksum:
    """Computes the checksum of content in pieces; `block_bytes` is a multiple of the chunk length."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._block_left = block_bytes
        self._block = hashlib.md5(usedforsecurity=False)
        self._blocks = bytearray()
        self._rest = bytearray()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes."""
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
    """Return a checksum computation for a file with this status; None if HDFS sums encrypted or erasure-coded bytes."""
    if status.get("encBit") or status.get("ecBit") or status.get("ecPolicy"):
        return None
    return HadoopChecksum(int(status["blockSize"]))


CONNECT_TIMEOUT_S = 10.0
# The name of an answer 401, in addition to Hadoop's exceptions.
UNAUTHORISED = "Unauthorised"


def connect_timeout_s(timeout_s: float) -> float:
    """Return the connection timeout for a call with this timeout."""
    return min(CONNECT_TIMEOUT_S, timeout_s / 2)


class Upload:
    """The upload of one file; until `finish` returns, a broken connection leaves a short file.

    Each step, and each `DATA_BYTES`, can take `timeout_s`; `look` raises if waiting is useless. A DataNode that cannot
    be reached, or does not answer for `first_word_s` (0: no limit), is a `ConnectTimeout`; it can still create an empty
    file.
    """

    def __init__(self, place: str, timeout_s: float, look: Callable[[], object], first_word_s: float) -> None:
        self._timeout_s = timeout_s
        self._look = look
        parts = urllib.parse.urlsplit(place)
        host, limit_s = parts.hostname or "", connect_timeout_s(timeout_s)
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            # A handshake is an answer of the DataNode.
            limit_s = first_word_s or limit_s
            self._connection = http.client.HTTPSConnection(host, parts.port, timeout=limit_s, context=tls_context())
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=limit_s)
        try:
            self._connection.connect()
        except OSError as error:
            check_tls(place, error)
            raise requests.ConnectTimeout(f"DataNode {parts.netloc}: {error}") from error
        self._connection.putrequest("PUT", f"{parts.path}?{parts.query}", skip_accept_encoding=True)
        self._connection.putheader("Content-Type", "application/octet-stream")
        self._connection.putheader("Transfer-Encoding", "chunked")
        if first_word_s:
            self._connection.putheader("Expect", "100-continue")
        self._connection.endheaders()
        if first_word_s and parts.scheme == "http":
            self._hear(parts.netloc, first_word_s)
        self._connection.sock.settimeout(timeout_s)

    def _hear(self, place: str, first_word_s: float) -> None:
        self._connection.sock.settimeout(first_word_s)
        try:
            self._connection.sock.recv(1, socket.MSG_PEEK)  # the permission to continue, or the reason for a refusal
        except OSError as error:
            self.cut()
            raise requests.ConnectTimeout(f"DataNode {place} does not respond: {error}") from error

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send the next bytes; raises `HdfsError` if the DataNode refused the file, or `OSError`."""
        if data:
            self._send(b"%x\r\n" % len(data), *_pieces(memoryview(data)), b"\r\n")

    def finish(self) -> None:
        """Finish the content, and wait until the file is closed; raises like `send`."""
        self._send(b"0\r\n\r\n")
        self._read_reply()
        self._connection.close()

    def _send(self, *pieces: bytes | memoryview) -> None:
        try:
            for piece in pieces:
                self._connection.send(piece)
        except ConnectionError:
            # The DataNode closed the connection and may have sent a reason.
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._read_reply()
            raise

    def cut(self) -> None:
        """Close the connection, also if another thread waits for the response."""
        # The other thread can be closing it.
        used = self._connection.sock
        if used is not None:
            with contextlib.suppress(OSError):
                used.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read_reply(self) -> None:
        status, text = run_within(self._timeout_s, self._reply, cut=self.cut, look=self._look)
        if status != http.client.CREATED:
            raise refusal("the DataNode", status, text)

    def _reply(self) -> tuple[int, bytes]:
        response = self._connection.getresponse()
        return response.status, response.read()


def _pieces(view: memoryview) -> Iterator[memoryview]:
    """Yield the parts of a chunk that are sent by separate calls, since the timeout of a socket is for one call."""
    for start in range(0, len(view), DATA_BYTES):
        yield view[start : start + DATA_BYTES]


def refusal(server: str, status: int, text: bytes) -> HdfsError:
    """Return the error of a server's answer, with the name of Hadoop's exception if it has one."""
    if status == http.client.UNAUTHORIZED:
        return HdfsError(f"{server} answered {status}, Authentication required", exception=UNAUTHORISED)
    try:
        exception_json = json.loads(text)["RemoteException"]
        # A server, or a proxy, can repeat the request in its answer.
        return HdfsError(redact(str(exception_json["message"])), exception=str(exception_json["exception"]))
    except (ValueError, KeyError, TypeError):
        return HdfsError(f"{server} answered {status}: {redact(repr(text))[:200]}")
