"""The driver `hdfs://`: Hadoop's RPC protocol by `hdfs-native`, without a JVM.

It supports `hsync` and is faster than WebHDFS. The library would take half a second to close a file of any size: see
`_close_early`. A hint is closed in the background.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ftfile.core.answers import wait_for
from ftfile.core.errors import AlreadyExists, OutcomeUnknown, StorageError, Unavailable, Unsupported
from ftfile.core.per_process import PerProcess
from ftfile.storage.api import FileInfo, FileSystem, InputFile, OutputStream, RangeFile
from ftfile.storage.calls import limit_s, start
from ftfile.storage.hdfs.base import HadoopFileSystem
from ftfile.storage.hdfs.native_errors import CODED, native_errors
from ftfile.storage.hdfs.native_nodes import name_nodes
from ftfile.storage.hdfs.settings import HadoopSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import hdfs_native
    from hdfs_native._internal import RawFileWriter

    from ftfile.core.answers import Answer
    from ftfile.core.context import Context
    from ftfile.storage.hdfs.credentials.token_file import DelegationToken
    from ftfile.storage.paths import Location


REMEMBERED_DIRECTORIES = 1000
# Closing a hint can wait for a NameNode that is down; the next hint replaces it.
HINT_TIMEOUT_S = 5.0
# These calls also wait for DataNodes, or consist of many calls.
_LONG = frozenset({"read_at", "write", "hsync", "close", "list"})
# For smaller chunks, a call costs more than the copy.
CHUNK_BYTES = 256 << 10
# A stream keeps the data that it sent up to this length.
KEPT_BYTES = 2 << 20
# hdfs-native 0.14 can wait for a dead DataNode for ever, so a repeatable call has a shorter timeout, without its data.
SMALL_TIMEOUT_S = 10.0
# After these waits the library closes the file, half a second after it began.
WAITS_S = (0.003, 0.003, 0.004, 0.01, 0.02, 0.04, 0.08, 0.16)
# Each of them needs a sleeping thread.
LEFT_BEHIND_MAX = 256

# Calls of the library for files that are closed already.
_left_behind: PerProcess[set[Answer[None]]] = PerProcess(set)

Result = TypeVar("Result")


class HdfsFile(NamedTuple):
    """A file that is being written, and its client."""

    client: hdfs_native.Client
    writer: RawFileWriter


class NativeHdfsFileSystem(HadoopFileSystem):
    """A directory of HDFS, accessed by Hadoop's RPC protocol; `url` is the URL of a NameNode or name service."""

    driver = "hdfs"
    stream_capabilities = frozenset({"hflush", "hsync", "abort"})
    stream_bytes = CHUNK_BYTES + KEPT_BYTES

    def __init__(self, url: str, root: str, settings: HadoopSettings, context: Context) -> None:
        super().__init__(f"{url}{root}", root, settings, context)
        self._url = url
        self._replicated: set[str] = set()
        self._reconnect()
        # Hints that are being closed, by process and path: a fork does not have the threads of its parent.
        self._hints: dict[tuple[int, str], tuple[hdfs_native.Client, Answer[None]]] = {}

    def __repr__(self) -> str:
        return f"NativeHdfsFileSystem({self._url!r}, {self.root!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Each process has separate connections and credentials.
        return type(self), (self._url, self.root, self._settings, self.context)

    def create(self, path: str) -> OutputStream:
        full = self._full_path_of("create", path)
        file = self._create(path, full)
        try:
            self.do("create", path, self._check_replicated, full)
        except BaseException:
            self.discard(full)
            raise
        return NativeStream(path, full, file, self)

    def _create(self, path: str, full: str) -> HdfsFile:
        """Start a new file, and again if the response is lost; at most one file is created."""

        def create() -> HdfsFile:
            return self.do("create", path, self.writer, full, overwrite=False)

        try:
            return create()
        except OutcomeUnknown as error:
            try:
                return create()
            except AlreadyExists:
                raise error from None  # created by the first call, or by another process

    def open(self, path: str) -> InputFile:
        """Open a file for reads; the library sees synced bytes only after the writer has closed the file."""
        full = self._full_path_of("open", path)
        reader = self.do("open", path, self._reader, full)

        def read(offset: int, length: int) -> bytes:
            call = functools.partial(reader.read_range, offset, length)
            return bytes(self.retry_until_ready(functools.partial(self.run, "read_at", path, call, data_bytes=length)))

        return RangeFile(path, len(reader), read)

    def _put(self, path: str, full: str, content: bytes) -> None:
        """Write a hint; other processes see it when it is closed, shortly after."""
        file = self.do("put", path, self.writer, full, overwrite=True)
        write = functools.partial(file.writer.write, content)
        self.retry_until_ready(functools.partial(self.run, "put", path, write, client=file.client))
        with native_errors("put", path, self.where):
            closing = start(functools.partial(_close_early, file, full, len(content)))
        self._hints[os.getpid(), path] = file.client, closing

    def run(
        self,
        operation: str,
        path: str,
        call: Callable[[], Result],
        timeout_s: float = math.inf,
        data_bytes: int = 0,
        client: hdfs_native.Client | None = None,
    ) -> Result:
        """Run a call of `client` once within the configured or a shorter timeout, and translate its errors."""
        self._settle(path)
        with native_errors(operation, path, self.where):
            limit = limit_s(min(timeout_s, self._settings.timeout_s), data_bytes)
            is_short = operation not in _LONG
            return self._nodes.run(limit, call, client or self._nodes.client(), is_short=is_short)

    def _reconnect(self) -> None:
        self._nodes = name_nodes(self._url, self._settings)
        self._token = self._find_token()

    def _find_token(self) -> DelegationToken | None:
        return self._nodes.find_token()

    def _connect_with(self, token: DelegationToken) -> None:
        """Do nothing: the library reads the token file for each connection, and open streams keep theirs."""

    def _settle(self, path: str) -> None:
        """Wait until a hint of this process is closed, or cannot be closed."""
        if self._hints:
            client, closing = self._hints.pop((os.getpid(), path), (None, None))
        else:
            client, closing = (None, None)
        if client is not None and closing is not None:
            with contextlib.suppress(StorageError), native_errors("put", path, self.where):
                self._nodes.run(min(HINT_TIMEOUT_S, self._settings.timeout_s), closing.result, client)

    def _reader(self, full: str) -> hdfs_native.FileReader:
        return self._nodes.client().read(full)

    def writer(self, full: str, *, overwrite: bool) -> HdfsFile:
        """Start a file."""
        import hdfs_native  # noqa: PLC0415 - optional

        settings = self._settings
        options = hdfs_native.WriteOptions(
            settings.block_size, settings.replication, settings.file_mode, overwrite, create_parent=False
        )
        client = self._nodes.client()
        # The file object of hdfs-native 0.14 is not kept: garbage collection would close it and complete a failed file.
        return HdfsFile(client, client.inner.create(full, options))

    def _check_replicated(self, full: str) -> None:
        """Raise `Unsupported` if a new file would be erasure-coded; checked once for each directory.

        The library cannot sync erasure-coded files, and writes a wrong parity for some policies (XOR), from which HDFS
        would restore wrong bytes after the loss of a DataNode. Seen with hdfs-native 0.14.
        """
        directory = full.rpartition("/")[0]
        if directory in self._replicated:
            return
        client = self._nodes.client()
        # The library has no call for policies. An erasure-coded file has one replica, and its replication cannot be
        # set.
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
            self._check_replicated(full)
            file.writer.write(content)
            file.writer.hsync()
        _close_early(file, full, len(content))


class NativeStream(OutputStream):
    """Collects chunks. While it has all data that it sent, it starts the file again after a failure of a DataNode.

    The library does not choose another DataNode: Kimahriman/hdfs-native#154.
    """

    def __init__(self, path: str, full: str, file: HdfsFile, fs: NativeHdfsFileSystem) -> None:
        super().__init__(path, fs.stream_capabilities)
        self._full = full
        self._fs = fs
        self._file: HdfsFile | None = file
        self._chunk = bytearray()
        self._sent: bytearray | None = bytearray()

    def _write(self, data: memoryview) -> None:
        if len(self._chunk) + data.nbytes < CHUNK_BYTES:
            self._chunk += data
            return
        self._send()
        if data.nbytes < CHUNK_BYTES:
            self._chunk += data
        else:
            self._send_all(bytes(data))  # hdfs-native 0.14 processes views byte by byte

    def _hsync(self) -> None:
        self._send()
        self._run("hsync", _sync)

    def _close(self) -> None:
        self._send()
        self._run("close", functools.partial(_close_early, full=self._full, size_bytes=self._position))

    def _abort(self) -> bool:
        # Deleting the file revokes the lease of its writer.
        return self._fs.discard(self._full)

    def _send(self) -> None:
        if self._chunk:
            chunk, self._chunk = self._chunk, bytearray()
            self._send_all(chunk)

    def _send_all(self, data: bytes | bytearray) -> None:
        self._run("write", functools.partial(_write, data=data), len(data))
        if self._sent is not None:
            if len(self._sent) + len(data) > KEPT_BYTES:
                self._sent = None
            else:
                self._sent = self._sent + data

    def _run(self, operation: str, call: Callable[[HdfsFile], object], data_bytes: int = 0) -> None:
        file = self._file
        if self._sent is None and file is not None:
            work = functools.partial(call, file)
            self._fs.run(operation, self.path, work, data_bytes=data_bytes, client=file.client)
        else:
            self._fs.retry_until_ready(functools.partial(self._try, operation, call, data_bytes))

    def _try(self, operation: str, call: Callable[[HdfsFile], object], data_bytes: int) -> None:
        file, self._file = self._file, None
        again = self._sent if file is None and self._sent else b""
        begun = threading.Event()

        def work() -> HdfsFile:
            current = self._fs.writer(self._full, overwrite=True) if file is None else file
            begun.set()
            if again:
                current.writer.write(again)
            call(current)
            return current

        client = None if file is None else file.client
        try:
            self._file = self._fs.run(
                operation,
                self.path,
                call=work,
                timeout_s=SMALL_TIMEOUT_S,
                data_bytes=data_bytes + len(again),
                client=client,
            )
        except OutcomeUnknown as error:
            if not begun.is_set():
                raise  # a late creation would truncate the file of a later attempt
            # No caller relies on the file yet, so it can be created again.
            raise Unavailable(operation, self.path, error.detail) from error


def _write(file: HdfsFile, data: bytes | bytearray) -> None:
    file.writer.write(data)


def _sync(file: HdfsFile) -> None:
    file.writer.hsync()


def _close_early(file: HdfsFile, full: str, size_bytes: int) -> None:
    """Close a file of `size_bytes` without the half second that the library waits (hdfs-native 0.14).

    The NameNode completes a file when a DataNode has reported its last block, some milliseconds after the DataNode has
    acknowledged it to the writer. The library requests completion at once, is refused, and sleeps for half a second.
    Its first request has named the block: after the report only the lease remains, and recovering the lease of a file
    whose blocks are complete closes it unchanged. The second request of the library finds the file closed and succeeds.
    """
    closing = start(file.writer.close)
    if size_bytes and len(_left_behind.here) < LEFT_BEHIND_MAX:
        # Errors are ignored here: the answer of the library decides.
        with contextlib.suppress(StorageError), native_errors("close", full, "HDFS"):
            if _is_released(file.client, full, size_bytes, closing):
                _left_behind.here.add(closing)
                closing.when_set(_left_behind.here.discard)
                return
    closing.result()


def _is_released(client: hdfs_native.Client, full: str, size_bytes: int, closing: Answer[None]) -> bool:
    """Return True if this function, and not the library, closed the file."""
    space_bytes = None
    for wait_s in WAITS_S:
        if wait_for([closing], wait_s):
            return False
        if space_bytes is None:
            status = client.get_file_info(full)
            if not status.blocksize or not status.replication or size_bytes % status.blocksize == 0:
                return False
            space_bytes = size_bytes * status.replication
        # An incomplete block counts as a full one. Recovering the lease would then recover the block.
        if client.get_content_summary(full).space_consumed == space_bytes:
            return client.recover_lease(full)
    return False


def open_location(location: Location) -> FileSystem:
    """Open the `hdfs` URL of a NameNode or name service; raises `ConfigError`, also if the library is missing."""
    settings = HadoopSettings.of(location)
    url = ""
    if location.authority:
        url = f"hdfs://{location.authority}"
    return NativeHdfsFileSystem(url, location.path, settings, location.context)


def _info(path: str, status: hdfs_native.FileStatus) -> FileInfo:
    return FileInfo(
        path=path,
        size_bytes=0 if status.isdir else status.length,
        modified_ms=status.modification_time,
        is_directory=status.isdir,
    )
