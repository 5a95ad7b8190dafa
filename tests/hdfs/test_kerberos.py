"""The errors of `hdfs-native` if a NameNode requires a ticket or a token and the process has neither."""

from __future__ import annotations

import ctypes.util
import json
import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import PermissionDenied
from ftfile.storage.hdfs.credentials.process_tokens import FILE_VARIABLE
from ftfile.storage.hdfs.handover import FROM_DRIVER
from ftfile.testing.context import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(ctypes.util.find_library("gssapi_krb5") is None, reason="needs GSSAPI of Kerberos")

KERBEROS = json.dumps([{"hadoop.security.authentication": "kerberos"}, None, False])
SASL_CALL = (1 << 32) - 33
NEGOTIATE = 1


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def what_it_takes() -> bytes:
    """Return a NameNode's first response to any client: tokens, or Kerberos."""
    token = text(1, b"TOKEN") + text(2, b"DIGEST-MD5") + text(3, b"") + text(4, b"default")
    ticket = text(1, b"KERBEROS") + text(2, b"GSSAPI") + text(3, b"nn") + text(4, b"127.0.0.1")
    header = number(1, SASL_CALL) + number(2, 0)
    body = number(2, NEGOTIATE) + text(4, token) + text(4, ticket)
    parts = varint(len(header)) + header + varint(len(body)) + body
    return struct.pack(">I", len(parts)) + parts


@pytest.fixture
def namenode() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as asked:
                    if not asked.read(7):
                        continue  # this connection only checked that the port is open
                    asked.read(*struct.unpack(">I", asked.read(4)))
                    connection.sendall(what_it_takes())
                    asked.read()

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"hdfs://127.0.0.1:{server.getsockname()[1]}/out"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("operation", ["list", "make_directories"])
@pytest.mark.parametrize("file", [None, "missing"])
def test_it_is_an_error_at_once_that_says_what_is_missing(
    namenode: str, operation: str, file: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    if file is not None:
        monkeypatch.setenv(FILE_VARIABLE, f"./{file}")
    fs = open_filesystem(namenode, settings={FROM_DRIVER: KERBEROS})
    with pytest.raises(PermissionDenied, match=r"requires Kerberos.*executors need tokens") as caught:
        getattr(fs, operation)("directory")
    why = f"{str(tmp_path / file)!r}, which {FILE_VARIABLE} names, does not exist" if file else "is not set"
    assert why in str(caught.value)
