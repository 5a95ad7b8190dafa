"""The content of one file on its way to a DataNode."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import urllib.parse
from typing import TYPE_CHECKING

import requests
from hdfs.util import HdfsError

from ftfile.fs.calls.deadline import DATA_BYTES, run_within
from ftfile.fs.hdfs.webhdfs.security import require_tls, scrub, tls_context

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECT_TIMEOUT_S = 10.0
# The name, beside those of Hadoop's exceptions, of an answer 401.
UNAUTHORISED = "Unauthorised"


def connect_timeout_s(timeout_s: float) -> float:
    """Return how long a connection may take to come about, for a call that may take so long."""
    return min(CONNECT_TIMEOUT_S, timeout_s / 2)


class Upload:
    """The content of one file on its way to a DataNode; until `finish` returns, a cut connection leaves it short.

    Each step, and each `DATA_BYTES`, may take `timeout_s`; `look` raises if waiting is in vain. A DataNode that cannot
    be reached, or is silent for `first_word_s` (0: no limit), is a `ConnectTimeout`; it may yet begin an empty file.
    """

    def __init__(self, place: str, timeout_s: float, look: Callable[[], object], first_word_s: float) -> None:
        self._timeout_s = timeout_s
        self._look = look
        parts = urllib.parse.urlsplit(place)
        host, limit_s = parts.hostname or "", connect_timeout_s(timeout_s)
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            # A handshake is a word of the DataNode.
            limit_s = first_word_s or limit_s
            self._connection = http.client.HTTPSConnection(host, parts.port, timeout=limit_s, context=tls_context())
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=limit_s)
        try:
            self._connection.connect()
        except OSError as error:
            require_tls(place, error)
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
            self._connection.sock.recv(1, socket.MSG_PEEK)  # that it may go on, or why not
        except OSError as error:
            self.cut()
            raise requests.ConnectTimeout(f"DataNode {place} is silent: {error}") from error

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send the next bytes; raises `HdfsError` if the DataNode refused the file, or `OSError`."""
        if data:
            view = memoryview(data)
            # The time limit of a socket is that of all it is given at once.
            pieces = (view[start : start + DATA_BYTES] for start in range(0, len(data), DATA_BYTES))
            self._send(b"%x\r\n" % len(data), *pieces, b"\r\n")

    def finish(self) -> None:
        """Say that this was all, and wait until the file is closed; raises as `send`."""
        self._send(b"0\r\n\r\n")
        self._read_reply()
        self._connection.close()

    def _send(self, *pieces: bytes | memoryview) -> None:
        try:
            for piece in pieces:
                self._connection.send(piece)
        except ConnectionError:
            # It has hung up; perhaps it said why.
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._read_reply()
            raise

    def cut(self) -> None:
        """Hang up, also on what waits for the reply in another thread."""
        # The other thread may be closing it.
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


def refusal(server: str, status: int, text: bytes) -> HdfsError:
    """Return the error that an answer of a server stands for, with the name of Hadoop's exception if it has one."""
    if status == http.client.UNAUTHORIZED:
        return HdfsError(f"{server} answered {status}, Authentication required", exception=UNAUTHORISED)
    try:
        found = json.loads(text)["RemoteException"]
        # A server, or a proxy before it, may repeat what it was asked.
        return HdfsError(scrub(str(found["message"])), exception=str(found["exception"]))
    except (ValueError, KeyError, TypeError):
        return HdfsError(f"{server} answered {status}: {scrub(repr(text))[:200]}")
