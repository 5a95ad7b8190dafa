"""The driver for storage systems that only fsspec supports, if a probe shows that commits can rely on them."""

from __future__ import annotations

import contextlib
import functools
import threading
from functools import partial
from typing import TYPE_CHECKING

from ftfile.core.errors import (
    AlreadyExists,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unsupported,
)
from ftfile.storage.api import Capabilities, FileInfo, FileSystem, OutputStream, RangeFile
from ftfile.storage.calls import parallel
from ftfile.storage.fsspec_client import BLOCK_BYTES, FORBIDDEN, FsspecClient, NewFile, clients
from ftfile.storage.fsspec_settings import FsspecSettings
from ftfile.storage.paths import join, room_below
from ftfile.storage.secret_variables import digest_of_variables

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.context import Context
    from ftfile.storage.api import InputFile
    from ftfile.storage.paths import Location


RACERS = 4
ROUNDS = 5
# After this number of unclear probes, the storage is rejected.
PROBES = 4
_SO_THAT = "so two writers could overwrite each other's commits"

_INSTEAD = (
    "use a newer version of the package, or another driver for the storage: s3:// with storage.endpoint if it speaks "
    "S3, hdfs://, webhdfs://, or the path where it is mounted"
)


class _UnclearProbeError(Unsupported):
    """A response may have been lost, and the library may have sent a request twice."""


class Probe:
    """Creates, lists, moves and deletes files in a temporary directory, also concurrently.

    The driver uses one of the two clients; the other client has no cached results.
    """

    def __init__(self, fs: FileSystem, clients: tuple[FsspecClient, FsspecClient], directory: str) -> None:
        self._fs = fs
        self._clients = clients
        self._directory = join(directory, f".{fs.context.ids.unique()}.tmp")

    def run(self) -> None:
        """Probe everything; raises `Unsupported` for a defect, another `StorageError` if a call failed."""
        try:
            self._new_file()
            for name, size_bytes in (("two", 1), ("two-large", BLOCK_BYTES + 1)):
                self._check_exclusive_create(name, size_bytes)
            for number in range(ROUNDS):
                self._check_concurrent_create(f"race-{number}")
            self._given_up()
            self._renaming()
            self._replacing_and_deleting()
        finally:
            self._clean()

    def _new_file(self) -> None:
        try:
            self._fs.create_exclusive(self._path("one"), b"one")
        except StorageError as error:
            if _may_pass(error):
                raise
            if isinstance(error.__cause__, FileNotFoundError):
                what = "has no bucket or container of this name, or requires directories to be created before files"
                raise self._lacks(what, error, is_unclear=True) from error
            raise self._lacks("does not create new files (mode 'xb')", error, is_unclear=True) from error
        self._holds("one", b"one")
        if self._is_made(partial(self._fs.create_exclusive, self._path("one"), b"over")):
            raise self._lacks(f"overwrites an existing file when it creates one (mode 'xb'), {_SO_THAT}")
        self._holds("one", b"one")

    def _check_exclusive_create(self, name: str, size_bytes: int) -> None:
        """Write one file by two clients at once: if an implementation only checks first, both succeed."""
        path = self._path(name)
        contents = [b"a" * size_bytes, b"b" * size_bytes]
        files = [NewFile(client, "create_exclusive", path) for client in self._clients]
        begun, won = [], []
        try:
            for file, content in zip(files, contents, strict=True):
                begun.append(self._is_made(partial(file.send, content[:-1])))
            if self._fs.exists(path):
                raise self._lacks("shows files while they are written, so readers see incomplete files")
            for is_begun, file, content in zip(begun, files, contents, strict=True):
                won.append(is_begun and self._is_made(partial(file.finish, content[-1:])))
        finally:
            for file in files:
                file.give_up()
        self._one_won(name, won, contents)

    def _check_concurrent_create(self, name: str) -> None:
        contents = [b"%d" % racer for racer in range(RACERS)]
        start = threading.Barrier(RACERS)

        def race(racer: int) -> bool:
            file = NewFile(self._clients[racer % 2], "create_exclusive", self._path(name))
            start.wait()
            return self._is_made(partial(file.finish, contents[racer]))

        # The barrier needs a thread for each client, so this is not limited by the concurrency of the storage.
        self._one_won(name, parallel(self._fs, race, range(RACERS)), contents)

    def _given_up(self) -> None:
        path = self._path("given-up")
        stream = self._fs.create(path)
        stream.write(b"x" * (BLOCK_BYTES + 1))
        stream.abort()
        del stream
        if self._fs.exists(path):
            raise self._lacks("keeps files whose write was aborted")

    def _renaming(self) -> None:
        one, other = self._path("one"), self._path("other")
        self._fs.create_exclusive(other, b"other")
        if self._is_made(partial(self._fs.rename, one, other)):
            raise self._lacks("overwrites an existing file when it moves a file")
        self._holds("one", b"one")
        self._holds("other", b"other")
        self._fs.rename(one, self._path("moved"))
        self._holds("moved", b"one")
        self._is_gone("one")

    def _replacing_and_deleting(self) -> None:
        self._fs.put(self._path("other"), b"again")
        self._holds("other", b"again")
        self._fs.delete(self._path("other"))
        self._is_gone("other")

    def _is_made(self, make: Callable[[], object]) -> bool:
        """Return True if a file was created; the only accepted error of the other client is `AlreadyExists`."""
        try:
            make()
        except AlreadyExists:
            return False
        except OutcomeUnknown as error:
            if _may_pass(error):
                raise
            what = "does not raise FileExistsError if a file already exists"
            raise self._lacks(what, error, is_unclear=True) from error
        return True

    def _one_won(self, name: str, won: list[bool], contents: list[bytes]) -> None:
        if won.count(True) != 1:
            what = f"lets {won.count(True)} of {len(won)} writers create the same file (mode 'xb'), {_SO_THAT}"
            raise self._lacks(what, is_unclear=not any(won))
        self._holds(name, contents[won.index(True)])

    def _holds(self, name: str, content: bytes) -> None:
        """Check the length, content, time and listing of a file by both clients."""
        path = self._path(name)
        for client in self._clients:
            try:
                info = client.file_info("stat", path)
                content_there = client.read("read", path, 0, min(len(content), max(info.size_bytes, 0)))
            except NotFound as error:
                raise self._lacks("does not find a written file at once", error) from error
            if info.size_bytes != len(content):
                raise self._lacks(f"reports a length of {info.size_bytes} bytes for a file of {len(content)} bytes")
            if content_there != content:
                raise self._lacks("does not return the content that was written last")
            if not info.modified_ms:
                raise self._lacks("reports no time of modification, which vacuum needs")
            listed = [child for child in self._children(client) if child.path == path]
            if not listed:
                raise self._lacks("does not list a written file at once")
            if listed != [info]:
                raise self._lacks("lists files with a wrong length or time")

    def _is_gone(self, name: str) -> None:
        path = self._path(name)
        for client in self._clients:
            with contextlib.suppress(NotFound):
                client.info("stat", path)
                raise self._lacks("finds a deleted file")
            if any(child.path == path for child in self._children(client)):
                raise self._lacks("lists a deleted file")

    def _children(self, client: FsspecClient) -> list[FileInfo]:
        return client.children("list", self._directory)

    def _path(self, name: str) -> str:
        return join(self._directory, name)

    def _lacks(self, what: str, error: StorageError | None = None, *, is_unclear: bool = False) -> Unsupported:
        reason = ""
        if error is not None:
            reason = f" ({error.detail})"
        client = self._clients[0]
        kind = Unsupported
        if is_unclear:
            kind = _UnclearProbeError
        detail = (
            f"{client.implementation} of {client.where} {what}{reason}; commits are not safe on this storage: "
            f"{_INSTEAD}"
        )
        return kind("prove", self._directory, detail)

    def _clean(self) -> None:
        client = self._clients[0]
        with contextlib.suppress(StorageError):
            for info in self._children(client):
                with contextlib.suppress(StorageError):
                    client.delete("delete", info.path)


def is_unclear(error: StorageError) -> bool:
    """Return True if a probe that ended with this error proves nothing."""
    return isinstance(error, _UnclearProbeError) or (
        isinstance(error, AlreadyExists | OutcomeUnknown) and not _may_pass(error)
    )


def _may_pass(error: StorageError) -> bool:
    """Return True if the storage did not respond, or denies this user the operation."""
    return isinstance(error, PermissionDenied | OutOfSpace) or isinstance(
        error.__cause__, TimeoutError | ConnectionError
    )


# The smallest limit of the object stores of fsspec.
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
        """Return the client of this process; a new one after a variable of the settings has changed."""
        return clients.of((self._url, self._settings), digest_of_variables(self._settings.variables))

    def prove(self, directory: str) -> None:
        """Probe the storage, once per process and client."""
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
        if path:
            return self.client.info("stat", path)
        return FileInfo("", 0, 0, is_directory=True)

    def list(self, path: str) -> list[FileInfo]:
        children = self.client.children("list", path)
        if path and not children:
            raise NotFound("list", path, "it does not exist")
        return children

    def make_directories(self, path: str) -> None:
        self.client.name("make_directories", path)

    def sync_directory(self, path: str) -> None:
        self.client.name("sync_directory", path)

    def rename(self, source: str, target: str) -> None:
        """Copy a file through this process, then delete the source; a crash in between leaves both files."""
        self.client.name("rename", target)
        size_bytes = self.client.file_info("rename", source).size_bytes
        if source == target:
            raise AlreadyExists("rename", target, "source and target are the same name")
        with _FsspecStream(target, self.client, "rename") as stream:
            for start in range(0, size_bytes, BLOCK_BYTES):
                stream.write(self.client.read("rename", source, start, min(BLOCK_BYTES, size_bytes - start)))
        try:
            with contextlib.suppress(NotFound):
                self.client.delete("rename", source)
        except StorageError as error:
            raise OutcomeUnknown("rename", source, f"copied, but the old name still exists: {error.detail}") from error

    def create_exclusive(self, path: str, content: bytes) -> None:
        with _FsspecStream(path, self.client, "create_exclusive") as stream:
            stream.write(content)

    def put(self, path: str, content: bytes) -> None:
        self.client.put("put", path, content)

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
    """Sends a small file by one call in `close`, and a large one in parts."""

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
