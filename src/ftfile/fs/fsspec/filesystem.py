"""The driver of stores that only fsspec knows, if a probe shows that commits can rely on them."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from ftfile.core.errors import AlreadyExists, NotFound, OutcomeUnknown, StorageError
from ftfile.fs.api import Capabilities, FileInfo, FileSystem, OutputStream, RangeFile
from ftfile.fs.calls.per_process import digest_of_variables
from ftfile.fs.fsspec.client import BLOCK_BYTES, FORBIDDEN, FsspecClient, NewFile, clients
from ftfile.fs.fsspec.probe import PROBES, Probe, is_unclear
from ftfile.fs.fsspec.settings import FsspecSettings
from ftfile.fs.paths import room_below

if TYPE_CHECKING:
    from ftfile.core.context import Context
    from ftfile.fs.api import InputFile
    from ftfile.fs.location import Location

# The smallest limit of the object stores that fsspec knows.
KEY_BYTES_MAX = 1023
_STREAM_CAPABILITIES = frozenset({"abort"})


class FsspecFileSystem(FileSystem):
    """The files below a URL of an object store."""

    def __init__(self, url: str, settings: FsspecSettings, context: Context) -> None:
        self.context = context
        self._url = url
        self._settings = settings
        self._capabilities = Capabilities(
            driver=f"fsspec:{url.partition(':')[0]}",
            shared_between_processes=True,
            durability="close",
            directory_sync=False,
            atomic_rename=False,
            stream_capabilities=_STREAM_CAPABILITIES,
            concurrency=16,
            forbidden=FORBIDDEN,
            blank_ends=False,
            visible_at="at_close",
            implied_directories=True,
            stream_bytes=2 * BLOCK_BYTES,
            path_bytes_max=room_below(url.partition("://")[2].partition("/")[2], KEY_BYTES_MAX),
        )

    def __repr__(self) -> str:
        return f"FsspecFileSystem({self._url!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def client(self) -> FsspecClient:
        """Return this process's client; another one once a variable of the settings has another value."""
        return clients.of((self._url, self._settings), digest_of_variables(self._settings.variables))

    def prove(self, directory: str) -> None:
        """Probe the store, once per process and client."""
        client, tried = self.client, 0
        with client.proving:
            while not client.proven:
                tried += 1
                try:
                    Probe(self, (client, FsspecClient(self._url, self._settings)), directory).run()
                    client.proven = True
                except StorageError as error:
                    if tried == PROBES or not is_unclear(error):
                        raise

    def create(self, path: str) -> OutputStream:
        return _FsspecStream(path, self.client, "close")

    def open(self, path: str) -> InputFile:
        size_bytes = self.client.file_info("open", path).size_bytes
        return RangeFile(path, size_bytes, functools.partial(self.client.read, "read_at", path))

    def stat(self, path: str) -> FileInfo:
        return self.client.info("stat", path) if path else FileInfo("", 0, 0, is_directory=True)

    def list(self, path: str) -> list[FileInfo]:
        found = self.client.children("list", path)
        if path and not found:
            raise NotFound("list", path, f"nothing is there below {self._url}")
        return found

    def make_directories(self, path: str) -> None:
        self.client.name("make_directories", path)

    def sync_directory(self, path: str) -> None:
        self.client.name("sync_directory", path)

    def rename(self, source: str, target: str) -> None:
        """Copy a file through this process, then delete the source; a crash in between leaves both."""
        self.client.name("rename", target)
        size_bytes = self.client.file_info("rename", source).size_bytes
        if source == target:
            raise AlreadyExists("rename", target, f"it is the name it has below {self._url}")
        with _FsspecStream(target, self.client, "rename") as stream:
            for start in range(0, size_bytes, BLOCK_BYTES):
                stream.write(self.client.read("rename", source, start, min(BLOCK_BYTES, size_bytes - start)))
        try:
            with contextlib.suppress(NotFound):
                self.client.delete("rename", source)
        except StorageError as error:
            raise OutcomeUnknown("rename", source, f"copied, but the old name remains: {error.detail}") from error

    def create_exclusive(self, path: str, content: bytes) -> None:
        with _FsspecStream(path, self.client, "create_exclusive") as stream:
            stream.write(content)

    def put(self, path: str, content: bytes) -> None:
        self.client.call("put", path, lambda store, name: store.pipe_file(name, content))

    def delete(self, path: str) -> None:
        self.client.file_info("delete", path)
        self.client.delete("delete", path)

    def remove_directory(self, path: str) -> bool:
        return not self.client.children("remove_directory", path)


def open_location(location: Location) -> FileSystem:
    """Open a URL; raises `ConfigError` for wrong settings or a missing package, and `Unavailable`."""
    fs = FsspecFileSystem(location.url, FsspecSettings.of(location), location.context)
    _ = fs.client
    return fs


class _FsspecStream(OutputStream):
    """Sends a small file by one call in `close`, and a large one part by part."""

    def __init__(self, path: str, client: FsspecClient, operation: str) -> None:
        super().__init__(path, _STREAM_CAPABILITIES)
        self._buffer = bytearray()
        self._file = NewFile(client, operation, path)
        self._is_doubtful = False

    def _write(self, data: memoryview) -> None:
        while len(self._buffer) + data.nbytes > BLOCK_BYTES:
            room = BLOCK_BYTES - len(self._buffer)
            self._buffer += data[:room]
            data = data[room:]
            part, self._buffer = self._buffer, bytearray()
            self._file.send(part)
        self._buffer += data

    def _close(self) -> None:
        part, self._buffer = self._buffer, bytearray()
        self._is_doubtful = True
        try:
            self._file.finish(part)
        except AlreadyExists:
            self._is_doubtful = False
            raise

    def _abort(self) -> bool:
        self._buffer = bytearray()
        self._file.give_up()
        return not self._is_doubtful
