"""A TCP proxy between a client and a server that injects network faults into exchanges, drawn from a seed."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("FAULTS", "Proxy")

# The fate of an exchange, which is a request with its reply:
# - refuse: the connection is reset before a byte of the request has reached the server;
# - reset: the connection is reset after a part of the request, or all of it, has;
# - swallow: the server replies, and the client sees a reset instead;
# - silence: the server replies, and the client sees nothing until its timeout;
# - cut: the client sees the beginning of the reply, and then the end of the connection;
# - drip: the beginning of the reply arrives byte by byte;
# - delay: the reply arrives late.
FAULTS = ("refuse", "reset", "swallow", "silence", "cut", "drip", "delay")

CHUNK_BYTES = 1 << 16
CONNECT_TIMEOUT_S = 300.0
# A side that accepts no data for this long is considered dead.
STALLED_S = 300.0
DRIPPED_BYTES = 40
DRIP_S = 0.005
# The longest time until a thread sees that the proxy has ended.
POLL_S = 0.2
# The option that makes `close` send a reset.
LINGER_NOT = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards the data of a client and a server; a `with` block ends it.

    Args:
        port: of the server, on this host.
        seed: determines the faults of exchanges, if threads run in the same order.
        rate: share of the exchanges with a fault; may be changed at any time.
        faults: kinds to draw from; a kind that is named twice is drawn twice as often.
        delay_s: the longest delay.

    Attributes:
        port: for clients, on this host.
        counts: number of exchanges by kind of fault.
        exchanges: number of exchanges.
    """

    def __init__(
        self, port: int, seed: int, rate: float, faults: Sequence[str] = FAULTS, *, delay_s: float = 0.5
    ) -> None:
        assert set(faults) <= set(FAULTS), f"{faults} are not all of {FAULTS}"
        self.rate = rate
        self.counts: Counter[str] = Counter()
        self.exchanges = 0
        self._server = ("127.0.0.1", port)
        self._faults = tuple(faults)
        self._delay_s = delay_s
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listening.settimeout(POLL_S)
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._listen, name="proxy", daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        """Return `host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def faults(self) -> int:
        """Return the number of exchanges with a fault."""
        with self._lock:
            return self.counts.total()

    def __enter__(self) -> Proxy:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Cut all connections and wait for the threads; idempotent."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._listening.close()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Inject no faults into exchanges that begin within the block."""
        rate, self.rate = self.rate, 0.0
        try:
            yield
        finally:
            self.rate = rate

    def draw(self, request: bytes) -> tuple[str | None, float]:  # noqa: ARG002 - for subclasses that choose
        """Return the fault of the next exchange, None for no fault, and a number from 0 to 1 for its details.

        Args:
            request: its beginning.
        """
        with self._lock:
            self.exchanges += 1
            chance, fault, how = self._random.random(), self._random.choice(self._faults), self._random.random()
            if chance >= self.rate:
                return None, how
            self.counts[fault] += 1
            return fault, how

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listening.accept()
            except TimeoutError:
                self._threads[1:] = [thread for thread in self._threads[1:] if thread.is_alive()]
                continue
            thread = threading.Thread(target=self._serve, args=(client,), name="proxy-connection", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        """Forward data until one side or a fault ends the connection."""
        with client:
            try:
                server = socket.create_connection(self._server, CONNECT_TIMEOUT_S)
            except OSError:
                _reset(client)  # as without a proxy
                return
            with server:
                for side in (client, server):
                    side.settimeout(STALLED_S)
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with contextlib.suppress(OSError):
                    self._hand_on(client, server)
                # The end of a closed server and of a killed one look the same here, so clients get a reset.
                if self._ended.is_set():
                    _reset(client)

    def _hand_on(self, client: socket.socket, server: socket.socket) -> None:
        fault, how, asking = None, 0.0, False
        sides = [client, server]
        while not self._ended.is_set():
            readable = select.select(sides, [], [], POLL_S)[0]
            if client in readable:
                data = client.recv(CHUNK_BYTES)
                if not data:
                    return
                if not asking:
                    asking = True
                    fault, how = self.draw(data)
                if fault in {"refuse", "reset"}:
                    if fault == "reset":
                        server.sendall(data[: round(how * len(data))])
                    _reset(client)
                    return
                server.sendall(data)
            if server in readable:
                data = server.recv(CHUNK_BYTES)
                if fault == "silence":
                    sides = sides if data else [client]
                    continue
                if not data or not self._reply(client, data, fault, how):
                    return
                asking, fault = False, None

    def _reply(self, client: socket.socket, data: bytes, fault: str | None, how: float) -> bool:
        """Send the beginning of a reply to the client; return True if the connection continues."""
        if fault == "swallow":
            _reset(client)
            return False
        if fault == "cut":
            client.sendall(data[: round(how * (len(data) - 1))])
            return False
        if fault == "delay":
            self._ended.wait(how * self._delay_s)
        if fault == "drip":
            for byte in data[:DRIPPED_BYTES]:
                client.sendall(bytes([byte]))
                time.sleep(DRIP_S)
            data = data[DRIPPED_BYTES:]
        client.sendall(data)
        return True


def _reset(connection: socket.socket) -> None:
    """Close a connection by a reset."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    connection.close()
