"""Connections of `urllib3` that another thread can cut, request bodies in pieces, and permanent faults."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_PROBE_TIMEOUT_S = 3.0
# OpenSSL's reasons for an answer that is not TLS; they depend on the version and on the bytes of the answer.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"})
# The size of the pieces that a socket sends; each must be sent within the connection timeout.
_PIECE_BYTES = 128 << 10

Result = TypeVar("Result")

_this_thread = threading.local()


class CancellableConnection:
    """The connection of one call."""

    def __init__(self, silence_s: float) -> None:
        self.silence_s = silence_s  # seconds without an answer
        self.first_word_s: float | None = None  # seconds without the first byte of an answer, if shorter
        self.is_cut = False
        self.socket: socket.socket | None = None

    def carry(self, call: Callable[[], Result]) -> Result:
        """Run the call in its thread."""
        _this_thread.line = self
        try:
            return call()
        finally:
            del _this_thread.line

    def cut(self) -> None:
        """Close the connection: the waiting thread fails, and sends nothing more."""
        self.is_cut = True
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)


class _HeaderReader:
    """Reads lines of a file, and stores the last one."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401
        self._file = file
        self.line = b""

    def readline(self, *limit: int) -> bytes:
        self.line = self._file.readline(*limit)
        return self.line

    def close(self) -> None:
        self._file.close()


class _Answer(http.client.HTTPResponse):
    """Rejects headers that end with the connection, which Python 3.11 accepts as complete."""

    def begin(self) -> None:
        headers_read: Any = self.headers
        if headers_read is not None:
            return
        file = self.fp
        reader: Any = _HeaderReader(file)
        self.fp = reader
        try:
            super().begin()
        finally:
            if self.fp is reader:
                self.fp = file
        if not reader.line:
            raise http.client.RemoteDisconnected("the connection ended in the headers of the response")


class _Cuttable:
    """A connection that can be cancelled."""

    response_class = _Answer
    default_port: int
    timeout: Any
    sock: Any

    def connect(self) -> None:
        line = _line_of_this_thread()
        if line is not None and line.first_word_s is not None and self.default_port == http.client.HTTPS_PORT:
            self.timeout = line.first_word_s  # the handshake is an answer of the server
        super().connect()  # type: ignore[misc]

    def send(self, data: Any) -> None:  # noqa: ANN401
        line = _line_of_this_thread()
        super().send(data)  # type: ignore[misc]
        if line is not None:
            line.socket = self.sock

    def getresponse(self, *args: object, **more: object) -> Any:  # noqa: ANN401
        line = _line_of_this_thread()
        if line is None:
            return super().getresponse(*args, **more)  # type: ignore[misc]
        used = self.sock
        # urllib3 before 2 only sets the timeout of the socket.
        if line.first_word_s is None:
            self.timeout = line.silence_s
        else:
            self.timeout = line.first_word_s
        used.settimeout(self.timeout)
        answer = super().getresponse(*args, **more)  # type: ignore[misc]
        # A response without content has closed the connection.
        with contextlib.suppress(OSError):
            used.settimeout(line.silence_s)
        return answer


def _line_of_this_thread() -> CancellableConnection | None:
    line: CancellableConnection | None = getattr(_this_thread, "line", None)
    if line is not None and line.is_cut:
        raise ConnectionAbortedError("the caller no longer waits for the response")
    return line


def limit_first_word(first_word_s: float) -> None:
    """Limit the time without data for each answer that calls of this thread wait for from now on."""
    if (line := _line_of_this_thread()) is not None:
        line.first_word_s = min(line.silence_s, first_word_s)


def cancellable_pools(pool_classes: dict[str, Any]) -> dict[str, Any]:
    """Return the pool classes of a pool manager, by scheme, with connections that can be cut."""
    classes = {}
    for scheme, kind in pool_classes.items():
        connection = type(kind.ConnectionCls.__name__, (_Cuttable, kind.ConnectionCls), {})
        classes[scheme] = type(kind.__name__, (kind,), {"ConnectionCls": connection})
    return classes


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors in its cause, context, arguments and attributes."""
    waiting, seen = [error], set[int]()
    while waiting:
        cause = waiting.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [value for value in _linked_values(cause) if isinstance(value, BaseException)]


def _linked_values(error: BaseException) -> Iterator[object]:
    """Yield the cause, context, arguments and attributes of an error, and the values of dictionaries among them."""
    values = [error.__cause__, error.__context__, *error.args, *vars(error).values()]
    yield from values
    for value in values:
        if isinstance(value, dict):
            yield from value.values()


def tls_fault(error: BaseException, bundle: str) -> str | None:
    """Return the TLS fault that caused an error, with its remedy, or None.

    Args:
        error: of a library.
        bundle: environment variable that names certificates.
    """
    for cause in causes_of(error):
        # Libraries derive classes from these without their attributes.
        said = getattr(cause, "verify_message", None)
        if isinstance(cause, ssl.SSLCertVerificationError) and said:
            return (
                f"the server's certificate is not trusted ({said}): set {bundle} to a file with the certificate of "
                "its issuer, on the driver and on every executor, or correct the host of the endpoint"
            )
        if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in _NO_TLS:
            return "the server does not speak TLS: use http:// for this endpoint, or correct the port"
    return None


def speaks_tls(url: str) -> bool:
    """Return True if the server of an `http` URL completes a TLS handshake, so that it does not accept plain HTTP."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no request is sent
    return url.startswith("http://") and _handshake_error(url, context) is None


def endpoint_fault(url: str, bundle: str) -> str | None:
    """Return the fault of an endpoint that never answered, with its remedy, or None; see `tls_fault`."""
    if speaks_tls(url):
        return "the server speaks TLS at this port: write https://"
    error = None
    if url.startswith("https://"):
        error = _handshake_error(url, ssl.create_default_context())
    if error is None:
        return None
    return tls_fault(error, bundle)


def _handshake_error(url: str, context: ssl.SSLContext) -> Exception | None:
    try:
        parsed = urllib.parse.urlsplit(url)
        address = (parsed.hostname or "", parsed.port or (443 if parsed.scheme == "https" else 80))
        with (
            socket.create_connection(address, _PROBE_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=parsed.hostname),
        ):
            return None
    except (OSError, ValueError) as error:
        return error


def send_in_pieces(request: Any, **_: object) -> None:  # noqa: ANN401 - the library ships no types
    """Send the body of a request in pieces, if it is larger than one piece."""
    if isinstance(request.body, bytes | bytearray) and len(request.body) > _PIECE_BYTES:
        request.body = _PiecedBody(request.body)


class _PiecedBody:
    """The body of a request in pieces."""

    def __init__(self, content: bytes | bytearray) -> None:
        self._content = memoryview(content)

    def __iter__(self) -> Iterator[memoryview]:
        for start in range(0, len(self._content), _PIECE_BYTES):
            yield self._content[start : start + _PIECE_BYTES]

    def seek(self, _: int) -> None:
        """Do nothing: a new iteration starts at the beginning."""
