"""Servers whose answers drip, break off or come short, on a real socket."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

__all__ = ("DRIP_S", "Answer", "Server", "Step", "listing", "reply", "status_of_file")

# Between one byte and the next.
DRIP_S = 0.02

MIB = 1 << 20


@dataclass(frozen=True)
class Answer:
    """The fate of one request.

    Attributes:
        text: of the answer, with its headers.
        whole: how many bytes of it are sent at once; the rest drips.
        ending: of the connection: `keep` it, `close` it as if all were said, or `reset` it.
        takes: how many bytes of the request's content are taken before; None for all.
        step_s: the time before each MiB of it is taken.
        before_s: the time before the answer.
    """

    text: bytes = b""
    whole: int | None = None
    ending: str = "keep"
    takes: int | None = None
    step_s: float = 0
    before_s: float = 0


def reply(
    content: bytes = b"", *headers: str, status: str = "200 OK", length: int | None = None, cut: int | None = None
) -> bytes:
    """Return an answer that promises a length, by default the right one, and is cut some bytes before its end."""
    size = len(content) if length is None else length
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, *([f"Content-Length: {size}"] if size >= 0 else []), "", ""])
    return head.encode() + content[: None if cut is None else len(content) - cut]


def listing(*keys: str) -> bytes:
    """Return S3's listing of keys."""
    found = "".join(
        f"<Contents><Key>{key}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        for key in keys
    )
    return f"<ListBucketResult><Name>b</Name><KeyCount>{len(keys)}</KeyCount>{found}</ListBucketResult>".encode()


Step: TypeAlias = "Answer | Callable[[str], Answer]"


class Server:
    """Answers requests in sequence, on a free port; a `with` block ends it.

    Args:
        answers: built from the server's address; the last answer is repeated for all further requests.
    """

    def __init__(self, *answers: Step) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.requests: list[str] = []
        self._answers = [*answers]
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Server:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._socket.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as file:
            while line := file.readline():
                headers = dict(_headers(file))
                with self._lock:
                    self.requests.append(line.decode().strip())
                    answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if not isinstance(answer, Answer):
                    answer = answer(self.address)
                if answer.takes is None:
                    self._take(connection, file, headers, answer.step_s)
                else:
                    file.read(answer.takes)
                self._ended.wait(answer.before_s)
                connection.sendall(answer.text[: answer.whole])
                for byte in b"" if answer.whole is None else answer.text[answer.whole :]:
                    if self._ended.wait(DRIP_S):
                        return
                    connection.sendall(bytes([byte]))
                if answer.ending != "keep":
                    if answer.ending == "reset":
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return

    def _take(self, connection: socket.socket, file: BufferedReader, headers: dict[str, str], step_s: float) -> None:
        if "expect" in headers:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        for length in _lengths(file, headers):
            for start in range(0, length, MIB):
                self._ended.wait(step_s)
                file.read(min(MIB, length - start))


def _headers(file: BufferedReader) -> Iterator[tuple[str, str]]:
    for line in file:
        name, colon, value = line.decode().partition(":")
        if not colon:
            return
        yield name.lower(), value.strip()


def _lengths(file: BufferedReader, headers: dict[str, str]) -> Iterator[int]:
    """Yield how much content comes next, which must be read then."""
    if "content-length" in headers:
        yield int(headers["content-length"])
    elif "transfer-encoding" in headers:
        while length := int(file.readline(), 16):
            yield length
            file.readline()
        file.readline()


def status_of_file(size_bytes: int) -> bytes:
    """Return a NameNode's status of a file whose checksum is not read."""
    status = {"type": "FILE", "length": size_bytes, "modificationTime": 0, "fileId": 1, "ecBit": True}
    return json.dumps({"FileStatus": status}).encode()
