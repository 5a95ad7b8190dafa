"""The proxy injects the requested faults into exchanges, and ends with all its threads."""

from __future__ import annotations

import http.client
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.object_stores.proxy import FAULTS, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = b"0123456789" * 20


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = 0

    def do_GET(self) -> None:
        type(self).seen += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    Handler.seen = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def get(proxy: Proxy, timeout_s: float = 300.0) -> bytes:
    with urllib.request.urlopen(f"http://{proxy.address}/", timeout=timeout_s) as answer:
        content: bytes = answer.read()
        return content


def test_without_faults_all_passes_on_one_connection(port: int) -> None:
    with Proxy(port, 1, 0.0) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
        for _ in range(3):
            connection.request("GET", "/")
            assert connection.getresponse().read() == BODY
        connection.close()
        assert (proxy.exchanges, proxy.faults) == (3, 0)


@pytest.mark.parametrize(
    ("fault", "reaches"), [("refuse", 0), ("reset", None), ("swallow", 1), ("silence", 1), ("cut", 1)]
)
def test_a_fault_that_takes_the_reply_away(port: int, fault: str, reaches: int | None) -> None:
    with Proxy(port, 1, 1.0, [fault]) as proxy:
        error: Exception | None = None
        try:
            content = get(proxy, 5.0 if fault == "silence" else 300.0)
            # Python does not raise an error for truncated headers.
            assert fault == "cut"
            assert content != BODY
        except (OSError, http.client.HTTPException) as raised:
            error = raised
        assert isinstance(error, TimeoutError) == (fault == "silence")
        assert proxy.counts == {fault: 1}
        with proxy.quiet():
            assert get(proxy) == BODY
        assert proxy.rate == 1.0
    assert reaches is None or Handler.seen == reaches + 1


@pytest.mark.parametrize("fault", ["drip", "delay"])
def test_a_fault_that_takes_time_alone(port: int, fault: str) -> None:
    with Proxy(port, 1, 1.0, [fault]) as proxy:
        assert get(proxy) == BODY
        assert proxy.counts == {fault: 1}


def test_a_seed_says_what_becomes_of_each(port: int) -> None:
    drawn = []
    for seed in (1, 1, 2):
        with Proxy(port, seed, 0.5) as proxy:
            drawn.append([proxy.draw(b"") for _ in range(100)])
            assert 30 < proxy.faults < 70
            assert set(proxy.counts) <= set(FAULTS)
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_server_that_is_away_is_a_connection_that_ends_and_the_proxy_ends_with_its_threads() -> None:
    with Proxy(1, 1, 0.0) as proxy:
        with pytest.raises((OSError, http.client.HTTPException)):
            get(proxy)
        assert threads()
    assert not threads()
    proxy.end()


def threads() -> list[threading.Thread]:
    """Return the threads of proxies."""
    return [each for each in threading.enumerate() if each.name.startswith("proxy")]
