"""The native HDFS driver: Hadoop's own protocol by `hdfs-native`, without a JVM; it syncs, and is the faster one.

Closing a file would take that library half a second, whatever its size: see `hdfs_native_close`. A hint is closed
behind the caller's back.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.errors import (
    AlreadyExists,
    OutcomeUnknown,
    StorageError,
    Unsupported,
)
from ftfile.fs.api import Capabilities, FileInfo, FileSystem, InputFile, OutputStream
from ftfile.fs.calls.deadline import limit_s, start
from ftfile.fs.hdfs.base import HadoopFileSystem
from ftfile.fs.hdfs.native.close import close_early
from ftfile.fs.hdfs.native.errors import CODED, NativeErrorTranslator
from ftfile.fs.hdfs.native.files import STREAM_BYTES, STREAM_CAPABILITIES, NativeFile, NativeStream, OpenFile
from ftfile.fs.hdfs.native.nodes import name_nodes
from ftfile.fs.hdfs.settings import FORBIDDEN, HadoopSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    import hdfs_native

    from ftfile.core.context import Context
    from ftfile.fs.location import Location

__all__ = ("NativeHdfsFileSystem", "open_location")

REMEMBERED_DIRECTORIES = 1000
# Closing a hint may wait for a NameNode that is gone; the next one is written over it.
HINT_TIMEOUT_S = 5.0
# These wait for DataNodes, too, or are many calls.
_LONG = frozenset({"read_at", "write", "hsync", "close", "list"})

_CAPABILITIES = Capabilities(
    driver="hdfs",
    shared_between_processes=True,
    durability="hsync",
    directory_sync=False,
    atomic_rename=True,
    stream_capabilities=STREAM_CAPABILITIES,
    permissions=True,
    replication=True,
    concurrency=16,
    forbidden=FORBIDDEN,
    retries_internally=True,
    stream_bytes=STREAM_BYTES,
)

Result = TypeVar("Result")


class NativeHdfsFileSystem(HadoopFileSystem):
    """A directory of HDFS, reached by Hadoop's own protocol.

    Args:
        url: of the NameNode or name service, such as `hdfs://namenode:8020`.
        root: absolute path of the directory; it need not exist yet.
        settings: see there.
        context: clock, ids and retries of the process.
    """

    def __init__(self, url: str, root: str, settings: HadoopSettings, context: Context) -> None:
        super().__init__(f"{url}{root}", root, settings, context)
        self._url = url
        self._replicated: set[str] = set()
        self._nodes = name_nodes(url, settings)
        self.begin_in_fork()
        _opened.add(self)

    def __repr__(self) -> str:
        return f"NativeHdfsFileSystem({self._url!r}, {self.root!r})"

    def __getstate__(self) -> tuple[Any, ...]:
        return self._url, self.root, self._settings, self.context

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc] # another process has connections and credentials of its own

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities of HDFS."""
        return self.within_limits(_CAPABILITIES)

    def create(self, path: str) -> OutputStream:
        """Open a new file for writing."""
        full = self._full("create", path)
        file = self._create(path, full)
        try:
            self.do("create", path, lambda: self._require_replicated(full))
        except BaseException:
            self.discard(full)
            raise
        return NativeStream(path, full, file, self)

    def _create(self, path: str, full: str) -> OpenFile:
        """Begin a new file; one more time where the reply was lost, which makes one file at most."""

        def create() -> OpenFile:
            return self.do("create", path, lambda: self.writer(full, overwrite=False))

        try:
            return create()
        except OutcomeUnknown as error:
            try:
                return create()
            except AlreadyExists:
                raise error from None  # perhaps the first one made it, perhaps somebody else

    def open(self, path: str) -> InputFile:
        """Open a file for reading; what a writer synced and has not closed is not there yet for this library."""
        full = self._full("open", path)
        return NativeFile(path, self.do("open", path, lambda: self._nodes.client().read(full)), self)

    def _put(self, path: str, full: str, content: bytes) -> None:
        """Write a hint, which others see a moment later, when it is closed."""
        file = self.do("put", path, lambda: self.writer(full, overwrite=True))
        self.retry_until_ready(lambda: self.run("put", path, lambda: file.writer.write(content), client=file.client))
        with NativeErrorTranslator("put", path, self.where):
            closing = start(lambda: self.finish(full, file, len(content)))
        with self._lock:
            self._hints[path] = file.client, closing

    def run(
        self,
        operation: str,
        path: str,
        call: Callable[[], Result],
        timeout_s: float = math.inf,
        data_bytes: int = 0,
        client: hdfs_native.Client | None = None,
    ) -> Result:
        """Run a call of the library once, within the time it may take with so much data, and translate its errors.

        Args:
            operation: the port's method.
            path: what it acts on.
            call: what to run.
            timeout_s: what a call without data may take, if that is less than the setting.
            data_bytes: how many it carries.
            client: which is called; by default this process's own.
        """
        self._settle(path)
        with NativeErrorTranslator(operation, path, self.where):
            limit = limit_s(min(timeout_s, self._settings.timeout_s), data_bytes)
            is_short = operation not in _LONG
            return self._nodes.run(limit, call, client or self._nodes.client(), is_short=is_short)

    def _settle(self, path: str) -> None:
        """Wait until an own hint is closed; one that could not be is as good as any other."""
        with self._lock:
            client, closing = self._hints.pop(path, (None, None)) if self._hints else (None, None)
        if client is not None and closing is not None:
            with contextlib.suppress(StorageError), NativeErrorTranslator("put", path, self.where):
                self._nodes.run(min(HINT_TIMEOUT_S, self._settings.timeout_s), closing.result, client)

    def begin_in_fork(self) -> None:
        """Forget the hints that the parent's threads close."""
        self._lock = threading.Lock()
        self._hints: dict[str, tuple[hdfs_native.Client, Future[None]]] = {}

    def writer(self, full: str, *, overwrite: bool) -> OpenFile:
        """Begin a file."""
        import hdfs_native  # noqa: PLC0415 - optional

        settings = self._settings
        options = hdfs_native.WriteOptions(
            settings.block_size, settings.replication, settings.file_mode, overwrite, create_parent=False
        )
        client = self._nodes.client()
        # Not the library's file object: it would close, and so complete, a file that failed when it is forgotten.
        return OpenFile(client, client.inner.create(full, options))

    def finish(self, full: str, file: OpenFile, size_bytes: int) -> None:
        """End a file to which so much was written."""
        close_early(file.client, full, file.writer, size_bytes)

    def _require_replicated(self, full: str) -> None:
        """Look whether a new file is replicated: once for each directory, whose files are all alike.

        Of erasure-coded files the library syncs none, and of some policies (XOR) it writes a parity that is wrong, from
        which HDFS would make other bytes when a DataNode is lost.

        Raises:
            Unsupported: it is erasure-coded.
        """
        directory = full.rpartition("/")[0]
        if directory in self._replicated:
            return
        client = self._nodes.client()
        # The library does not tell the policy. An erasure-coded file has one replica, and takes no number of them.
        if client.get_file_info(full).replication == 1 and not client.set_replication(full, 1):
            raise Unsupported("create", full[len(self._prefix) + 1 :], CODED)
        if len(self._replicated) >= REMEMBERED_DIRECTORIES:
            self._replicated.clear()
        self._replicated.add(directory)

    def _status(self, full: str) -> FileInfo:
        return _info(full, self._nodes.client().get_file_info(full))

    def _children(self, full: str) -> Sequence[FileInfo]:
        cut = len(full.rstrip("/")) + 1
        return [_info(child.path[cut:], child) for child in self._nodes.client().list_status(full)]

    def _make(self, full: str, mode: int) -> bool:
        self._nodes.client().mkdirs(full, mode, create_parent=True)
        return True

    def _mode(self, full: str) -> int:
        return int(self._nodes.client().get_file_info(full).permission)

    def _move(self, full_source: str, full_target: str) -> None:
        self._nodes.client().rename(full_source, full_target, overwrite=False)

    def _remove(self, full: str) -> bool:
        return self._nodes.client().delete(full)

    def _write_whole(self, full: str, content: bytes) -> None:
        file = self.writer(full, overwrite=True)
        if content:
            self._require_replicated(full)
            file.writer.write(content)
            file.writer.hsync()
        self.finish(full, file, len(content))


_opened: weakref.WeakSet[NativeHdfsFileSystem] = weakref.WeakSet()


def _begin_in_fork() -> None:
    for fs in _opened:
        fs.begin_in_fork()


os.register_at_fork(after_in_child=_begin_in_fork)


def open_location(location: Location) -> FileSystem:
    """Open an `hdfs` URL: of a NameNode, or of a name service that Hadoop's configuration knows.

    Raises:
        ConfigError: it names neither, or the library is not installed.
    """
    settings = HadoopSettings.of(location)
    url = f"hdfs://{location.authority}" if location.authority else ""
    return NativeHdfsFileSystem(url, location.path, settings, location.context)


def _info(path: str, status: hdfs_native.FileStatus) -> FileInfo:
    return FileInfo(
        path=path,
        size_bytes=0 if status.isdir else status.length,
        modified_ms=status.modification_time,
        is_directory=status.isdir,
    )
