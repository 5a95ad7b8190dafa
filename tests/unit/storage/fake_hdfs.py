"""A NameNode and a DataNode in one, in memory: the interface of `hdfs-native`, and the answers of a WebHDFS server.

Both record their requests, so that tests see requests that a real server accepts silently.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ftfile.core.per_process import OnePerKey
from ftfile.storage.hdfs import native_nodes as hdfs_native_nodes
from ftfile.storage.hdfs.webhdfs_files import HadoopChecksum

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# A wait of so long ends for hangs only.
HANGS_S = 600


@dataclass
class Names:
    """The files and directories; content that was written but not closed is not there."""

    files: dict[str, bytes] = field(default_factory=dict)
    directories: set[str] = field(default_factory=lambda: {"/", "/out"})
    asked: list[str] = field(default_factory=list)
    # By request: raised once, before or after the request is executed.
    errors: dict[str, list[BaseException]] = field(default_factory=dict)
    losses: dict[str, list[BaseException]] = field(default_factory=dict)
    # Bytes of each file that get lost on the way.
    swallowed: int = 0
    # Bytes change on the way, and their number does not.
    flipped: bool = False
    # The checksum algorithm that HDFS returns.
    algorithm: str = "MD5-of-0MD5-of-512CRC32C"
    # More of the status of a file.
    more: dict[str, object] = field(default_factory=dict)
    # How long it takes to write.
    takes_s: float = 0
    # Replicas of new files; erasure-coded files have no replication number.
    replicas: int = 3
    coded: bool = False
    block_bytes: int = 1 << 27
    mode: int = 0o640
    # `host:port` of the DataNode that a NameNode names; by default the address of this server.
    datanode: str = ""
    # And how it is asked.
    datanode_scheme: str = "http"
    # The library closes a file only when the NameNode reports it closed. Each open file has the length of its blocks;
    # the last block is either reported or not.
    slow: bool = False
    unreported: bool = False
    open_files: dict[str, int] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def ask(self, text: str) -> None:
        self.asked.append(text)
        self._fail(self.errors, text)

    def answer(self, text: str) -> None:
        self._fail(self.losses, text)

    def _fail(self, failures: dict[str, list[BaseException]], text: str) -> None:
        pending = failures.get(text.partition(" ")[0], [])
        if pending:
            raise pending.pop(0)

    def keep(self, path: str, content: bytes) -> None:
        if self.flipped and content:
            content = bytes([content[0] ^ 1]) + content[1:]
        self.files[path] = content[: len(content) - self.swallowed]

    def make_directories(self, path: str) -> None:
        above = path.split("/")
        self.directories |= {"/".join(above[: number + 1]) for number in range(1, len(above))}

    def children(self, path: str) -> list[str]:
        return sorted(each for each in {*self.files, *self.directories} if each.rpartition("/")[0] == path)

    def rename(self, source: str, target: str) -> None:
        if source not in self.files:
            raise FileNotFoundError(source)
        if target in self.files:
            raise FileExistsError(target)
        self.files[target] = self.files.pop(source)


class NativeClient:
    """The part of `hdfs_native.Client` that the driver uses."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.inner = self

    def create(self, path: str, options: SimpleNamespace) -> NativeWriter:
        self._names.ask(f"create {path} {options.overwrite}")
        if path in self._names.files and not options.overwrite:
            raise FileExistsError(path)
        self._names.files[path] = b""
        return NativeWriter(self._names, path)

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        self._names.ask(f"rename {overwrite}")
        self._names.rename(source, target)
        self._names.answer("rename")

    def mkdirs(self, path: str, mode: int, *, create_parent: bool) -> None:
        self._names.ask(f"mkdirs {mode:o} {create_parent}")
        self._names.make_directories(path)

    def delete(self, path: str) -> bool:
        self._names.ask("delete")
        return self._names.files.pop(path, None) is not None

    def get_file_info(self, path: str) -> SimpleNamespace:
        self._names.ask("status")
        if path not in self._names.files and path not in self._names.directories:
            raise FileNotFoundError(path)
        return self._info(path)

    def _info(self, path: str) -> SimpleNamespace:
        length = len(self._names.files.get(path, b""))
        return SimpleNamespace(
            isdir=path in self._names.directories,
            length=length,
            modification_time=1,
            replication=self._names.replicas,
            blocksize=self._names.block_bytes,
            permission=self._names.mode,
        )

    def list_status(self, path: str) -> list[SimpleNamespace]:
        self._names.ask("list")
        if path not in self._names.directories and not self._names.children(path):
            raise FileNotFoundError(path)
        return [SimpleNamespace(path=each, **vars(self._info(each))) for each in self._names.children(path)]

    def get_content_summary(self, path: str) -> SimpleNamespace:
        self._names.ask("summary")
        with self._names.changed:
            if self._names.slow:
                assert self._names.changed.wait_for(lambda: path in self._names.open_files, HANGS_S)
            size_bytes = self._names.open_files.get(path, len(self._names.files.get(path, b"")))
            return SimpleNamespace(space_consumed=size_bytes * self._names.replicas)

    def recover_lease(self, path: str) -> bool:
        self._names.ask("recover")
        with self._names.changed:
            self._names.open_files.pop(path, None)
            self._names.changed.notify_all()
        return True

    def set_replication(self, path: str, replication: int) -> bool:
        self._names.ask(f"replication {path} {replication}")
        return not self._names.coded

    def read(self, path: str) -> NativeReader:
        self._names.ask("open")
        if path not in self._names.files:
            raise FileNotFoundError(path)
        return NativeReader(self._names, self._names.files[path])


class NativeWriter:
    def __init__(self, names: Names, path: str) -> None:
        self._names, self._path, self._content = names, path, b""

    def write(self, data: Any) -> None:
        self._names.ask("write")
        time.sleep(self._names.takes_s)
        self._content += bytes(data)

    def hsync(self) -> None:
        self._names.ask("hsync")

    def close(self) -> None:
        self._names.ask("close")
        self._names.keep(self._path, self._content)
        if self._names.slow:
            with self._names.changed:
                size_bytes = self._names.block_bytes if self._names.unreported else len(self._content)
                self._names.open_files[self._path] = size_bytes
                self._names.changed.notify_all()
                assert self._names.changed.wait_for(lambda: self._path not in self._names.open_files, HANGS_S)
            self._names.ask("closed")


class NativeReader:
    def __init__(self, names: Names, content: bytes) -> None:
        self._names, self._content = names, content

    def __len__(self) -> int:
        return len(self._content)

    def read_range(self, offset: int, length: int) -> bytes:
        self._names.ask("read")
        return self._content[offset : offset + length]


def native_library(names: Names) -> Any:
    """Return the module that stands in for `hdfs_native`."""

    def write_options(block_size: Any, replication: Any, mode: Any, overwrite: Any, create_parent: Any) -> Any:
        del block_size, replication, mode, create_parent
        return SimpleNamespace(overwrite=overwrite)

    return SimpleNamespace(Client=lambda *_: NativeClient(names), WriteOptions=write_options)


def install(monkeypatch: pytest.MonkeyPatch, names: Names) -> None:
    """Let `hdfs://namenode:8020` be this one for the length of a test."""
    monkeypatch.setitem(sys.modules, "hdfs_native", native_library(names))
    # No process listens, and a client is used by only one test.
    monkeypatch.setattr(hdfs_native_nodes, "_why_unreachable", lambda _: "")
    monkeypatch.setattr(hdfs_native_nodes, "_nodes", OnePerKey(hdfs_native_nodes._open_nodes))  # noqa: SLF001


class WebServer:
    """A WebHDFS server on a free port, with a certificate and its key one of TLS; a `with` block ends it."""

    def __init__(self, names: Names, tls: tuple[Path, Path] | None = None) -> None:
        handler = type("_Handler", (_Handler,), {"names": names})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._scheme = "webhdfs" if tls is None else "swebhdfs"
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.address}/out"

    def __enter__(self) -> WebServer:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    names: Names
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, query = self._taken_apart()
        if query["op"] == "LISTSTATUS":
            self._list(path)
            return
        if query["op"] != "GETFILESTATUS" and self.names.datanode and "placed" not in query:
            self._redirect()
            return
        if query["op"] == "OPEN":
            if path not in self.names.files:
                self._refuse(FileNotFoundError(path))
                return
            start = int(query["offset"])
            end = start + int(query["length"]) if "length" in query else None
            self._send(200, self.names.files[path][start:end])
            return
        if query["op"] == "GETFILECHECKSUM":
            self._tell_checksum(path)
            return
        self.names.ask("GETFILESTATUS")
        if path not in self.names.files and path not in self.names.directories:
            self._refuse(FileNotFoundError(path))
            return
        self._reply({"FileStatus": self._status(path)})

    def _status(self, path: str) -> dict[str, object]:
        kind, length = "DIRECTORY" if path in self.names.directories else "FILE", len(self.names.files.get(path, b""))
        # What was uploaded is another file than the empty one that it replaced.
        number = 1 + bool(length)
        status = {"type": kind, "length": length, "modificationTime": 1, "fileId": number, "blockSize": 1 << 20}
        return status | {"permission": f"{self.names.mode:o}"} | self.names.more

    def _list(self, path: str) -> None:
        if path not in self.names.directories and not self.names.children(path):
            self._refuse(FileNotFoundError(path))
            return
        children = [self._status(each) | {"pathSuffix": each.rpartition("/")[2]} for each in self.names.children(path)]
        self._reply({"FileStatuses": {"FileStatus": children}})

    def _redirect(self) -> None:
        self.send_response(307)
        place = self.names.datanode or self.headers["Host"]
        self.send_header("Location", f"{self.names.datanode_scheme}://{place}{self.path}&placed=1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _tell_checksum(self, path: str) -> None:
        try:
            self.names.ask("GETFILECHECKSUM")
        except Exception as error:
            self._refuse(error)
            return
        checksum = HadoopChecksum(1 << 20)
        checksum.update(self.names.files[path])
        found = b"\0\0\2\0" + b"\0" * 8 + checksum.digest()
        self._reply({"FileChecksum": {"algorithm": self.names.algorithm, "bytes": found.hex(), "length": len(found)}})

    def do_DELETE(self) -> None:
        path, _ = self._taken_apart()
        try:
            self.names.ask("DELETE")
        except Exception as error:
            self._refuse(error)
            return
        self._reply({"boolean": self.names.files.pop(path, None) is not None})

    def do_PUT(self) -> None:
        path, query = self._taken_apart()
        content = self._body()
        try:
            if query["op"] == "RENAME":
                self._rename(path, query)
            elif query["op"] == "MKDIRS":
                self.names.ask("MKDIRS")
                self.names.make_directories(path)
                self._reply({"boolean": True})
            elif "placed" in query:
                self.names.ask("CONTENT")
                self.names.keep(path, content)
                self._send(201, b"")
            else:
                self.names.ask(f"CREATE {query['createflag']} {query['overwrite']}")
                self._redirect()
        except Exception as error:
            self._refuse(error)

    def _rename(self, path: str, query: dict[str, str]) -> None:
        self.names.ask(f"RENAME {query.get('renameoptions')}")
        try:
            self.names.rename(path, query["destination"])
        except FileExistsError:
            self._reply({"boolean": False})  # the rename without options returns this
            return
        try:
            self.names.answer("RENAME")
        except ConnectionError:
            self.close_connection = True
            self.connection.close()
            return
        self._send(200, b"")

    def _taken_apart(self) -> tuple[str, dict[str, str]]:
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path).removeprefix("/webhdfs/v1")
        return path, dict(urllib.parse.parse_qsl(parts.query))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = b""
        while length := int(self.rfile.readline(), 16):
            content += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def _refuse(self, error: Exception) -> None:
        name = "FileNotFoundException" if isinstance(error, FileNotFoundError) else type(error).__name__
        self._reply({"RemoteException": {"exception": name, "message": str(error)}}, 404 if "NotFound" in name else 403)

    def _reply(self, answer: object, status: int = 200) -> None:
        self._send(status, json.dumps(answer).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass
