"""Over TLS, nothing is sent to a server of plain HTTP, wherever a NameNode or a DataNode sends a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import ConfigError
from ftfile.storage.registry import open_filesystem
from ftfile.testing.context import current
from tests.certificates import make_certificate
from tests.kit.parameters import parametrize
from tests.unit.storage.fake_hdfs import Names, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem

CALLS: dict[str, Callable[[FileSystem], object]] = {
    "read": lambda fs: fs.read("file"),
    "range": lambda fs: fs.open("file").read_at(1, 2),
    "create": lambda fs: fs.create_exclusive("new", b"content"),
    "put": lambda fs: fs.put("file", b"content"),
}


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    certificate, key, _ = make_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    return certificate, key


@pytest.fixture
def datanode() -> Iterator[tuple[Names, WebServer]]:
    names = Names(files={"/out/file": b"content"})
    with WebServer(names) as server:
        yield names, server


@parametrize("call", CALLS, quick=2)
def test_to_plain_http_none_is_followed(tls: tuple[Path, Path], datanode: tuple[Names, WebServer], call: str) -> None:
    plain, server = datanode
    names = Names(files={"/out/file": b"content"}, datanode=server.address)
    with WebServer(names, tls) as namenode:
        fs = open_filesystem(namenode.url, current())
        with pytest.raises(ConfigError, match=f"plain HTTP, to '{server.address}', which ftfile does not follow"):
            CALLS[call](fs)
    assert plain.asked == []
    assert plain.files == {"/out/file": b"content"}


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_to_tls_each_is_followed(tls: tuple[Path, Path], call: str) -> None:
    content = Names(files={"/out/file": b"content"})
    with WebServer(content, tls) as datanode:
        names = Names(files=content.files, datanode=datanode.address, datanode_scheme="https")
        with WebServer(names, tls) as namenode:
            CALLS[call](open_filesystem(namenode.url, current()))
