"""Connections of `urllib3` that one thread cuts while another waits on them: libraries show none of those they use."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

_this_thread = threading.local()


class CancellableConnection:
    """The connection of one call, whichever it turns out to be."""

    def __init__(self, silence_s: float) -> None:
        self.silence_s = silence_s  # for which an answer may be silent
        self.first_word_s: float | None = None  # for which it may be before it begins, if that is less
        self.is_cut = False
        self.socket: socket.socket | None = None

    def carry(self, call: Callable[[], Result]) -> Result:
        """Run the call, in its thread."""
        _this_thread.line = self
        try:
            return call()
        finally:
            del _this_thread.line

    def cut(self) -> None:
        """Hang up: the waiting thread fails, and nothing more is sent."""
        self.is_cut = True
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)


class _Reader:
    """Reads lines of a file, and remembers the last one."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401
        self._file = file
        self.line = b""

    def readline(self, *limit: int) -> bytes:
        self.line = self._file.readline(*limit)
        return self.line

    def close(self) -> None:
        self._file.close()


class _Answer(http.client.HTTPResponse):
    """Refuses headers that end with the connection, which Python takes for whole."""

    def begin(self) -> None:
        known: Any = self.headers
        if known is not None:
            return
        file = self.fp
        reader: Any = _Reader(file)
        self.fp = reader
        try:
            super().begin()
        finally:
            if self.fp is reader:
                self.fp = file
        if not reader.line:
            raise http.client.RemoteDisconnected("the connection ended amid the headers of the answer")


class _Cuttable:
    """Cancellation, added to a connection."""

    response_class = _Answer
    default_port: int
    timeout: Any
    sock: Any

    def connect(self) -> None:
        line = _line_of_this_thread()
        if line is not None and line.first_word_s is not None and self.default_port == http.client.HTTPS_PORT:
            self.timeout = line.first_word_s  # the handshake is a word of the server
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
        # Older versions of the library set that of the socket alone.
        self.timeout = line.silence_s if line.first_word_s is None else line.first_word_s
        used.settimeout(self.timeout)
        answer = super().getresponse(*args, **more)  # type: ignore[misc]
        # An answer without content has closed it.
        with contextlib.suppress(OSError):
            used.settimeout(line.silence_s)
        return answer


def _line_of_this_thread() -> CancellableConnection | None:
    line: CancellableConnection | None = getattr(_this_thread, "line", None)
    if line is not None and line.is_cut:
        raise ConnectionAbortedError("nobody waits for the answer")
    return line


def hasten(first_word_s: float) -> None:
    """Limit the silence before each answer that this thread's call waits for from now on."""
    if (line := _line_of_this_thread()) is not None:
        line.first_word_s = min(line.silence_s, first_word_s)


def cancellable_pools(pool_classes: dict[str, Any]) -> dict[str, Any]:
    """Return the pool classes of a pool manager, by scheme, with connections that can be cut."""
    made = {}
    for scheme, kind in pool_classes.items():
        connection = type(kind.ConnectionCls.__name__, (_Cuttable, kind.ConnectionCls), {})
        made[scheme] = type(kind.__name__, (kind,), {"ConnectionCls": connection})
    return made
