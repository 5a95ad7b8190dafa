"""A NameNode behind TLS that redirects to DataNodes over plain HTTP: no data are sent or written."""

from __future__ import annotations

import http.client
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import ConfigError
from ftfile.storage.registry import open_filesystem
from ftfile.testing.context import current
from tests.certificates import make_certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem
    from tests.hdfs.minicluster import MiniCluster

CALLS: dict[str, Callable[[FileSystem], object]] = {
    "read": lambda fs: fs.read("file"),
    "create": lambda fs: fs.create_exclusive("new", b"content"),
    "put": lambda fs: fs.put("other", b"content"),
}


@pytest.fixture
def front(cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL of a server that forwards TLS requests to the NameNode, as a gateway does."""
    certificate, key, _ = make_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    namenode = cluster.web_url.removeprefix("webhdfs://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection(namenode, timeout=60)
            connection.request(self.command, self.path, asked)
            response = connection.getresponse()
            content = response.read()
            self.send_response(response.status)
            for name in ("Content-Type", "Location"):
                if name in response.headers:
                    self.send_header(name, response.headers[name])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            connection.close()

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the names of methods of HTTP

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"swebhdfs://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("call", CALLS)
def test_a_redirect_of_a_real_namenode_to_plain_http_is_refused(cluster: MiniCluster, front: str, call: str) -> None:
    plain = open_filesystem(f"{cluster.web_url}/redirects-{call}", current())
    plain.make_directories("")
    plain.put("file", b"content")  # by the redirects of the NameNode, which the plain HTTP driver follows
    assert plain.read("file") == b"content"
    secure = open_filesystem(f"{front}/redirects-{call}", current())
    assert [info.path for info in secure.list("")] == ["file"]
    with pytest.raises(ConfigError, match=r"plain HTTP, to '.*', which ftfile does not follow"):
        CALLS[call](secure)
    assert {info.path: info.size_bytes for info in plain.list("")} == {"file": len(b"content")}
