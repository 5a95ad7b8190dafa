"""Files of the native HDFS driver that are open, for writing and for reading."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ftfile.core.errors import OutcomeUnknown, StreamClosed, Unavailable
from ftfile.fs.api import InputFile, OutputStream

if TYPE_CHECKING:
    from collections.abc import Callable

    import hdfs_native
    from hdfs_native._internal import RawFileWriter

__all__ = ("STREAM_BYTES", "STREAM_CAPABILITIES", "NativeFile", "NativeStream", "OpenFile")

# A call costs more than copying so much.
CHUNK_BYTES = 256 << 10
# A stream remembers what it sent until it is more than this.
KEPT_BYTES = 2 << 20
# The library may wait for ever for a DataNode that died: of what can be sent again, no call without data takes longer.
SMALL_TIMEOUT_S = 10.0
# What a stream may hold.
STREAM_BYTES = CHUNK_BYTES + KEPT_BYTES

STREAM_CAPABILITIES = frozenset({"hflush", "hsync", "abort"})

Result = TypeVar("Result")


class OpenFile(NamedTuple):
    """A file that is being written, and the client that it belongs to."""

    client: hdfs_native.Client
    writer: RawFileWriter


class _Driver(Protocol):
    """The driver's methods that files use; see there."""

    def run(
        self,
        operation: str,
        path: str,
        call: Callable[[], Result],
        timeout_s: float = ...,
        data_bytes: int = ...,
        client: hdfs_native.Client | None = ...,
    ) -> Result: ...

    def retry_until_ready(self, call: Callable[[], Result]) -> Result: ...

    def discard(self, full: str) -> bool: ...

    def writer(self, full: str, *, overwrite: bool) -> OpenFile: ...

    def finish(self, full: str, file: OpenFile, size_bytes: int) -> None: ...


class NativeStream(OutputStream):
    """Collects chunks, and begins the file anew when a DataNode refuses it, as long as all that was sent is at hand.

    The library itself does not look for another DataNode.
    """

    def __init__(self, path: str, full: str, file: OpenFile, fs: _Driver) -> None:
        super().__init__(path, STREAM_CAPABILITIES)
        self._full = full
        self._fs = fs
        self._file: OpenFile | None = file
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
            self._send_all(bytes(data))  # the library takes views byte by byte

    def _hsync(self) -> None:
        self._send()
        self._run("hsync", lambda file: file.writer.hsync())

    def _close(self) -> None:
        self._send()
        self._run("close", lambda file: self._fs.finish(self._full, file, self._position))

    def _abort(self) -> bool:
        # Deleting the file takes it from its writer, whose lease ends with it.
        return self._fs.discard(self._full)

    def _send(self) -> None:
        if self._chunk:
            chunk, self._chunk = self._chunk, bytearray()
            self._send_all(chunk)

    def _send_all(self, data: bytes | bytearray) -> None:
        self._run("write", lambda file: file.writer.write(data), len(data))
        if self._sent is not None:
            self._sent = None if len(self._sent) + len(data) > KEPT_BYTES else self._sent + data

    def _run(self, operation: str, call: Callable[[OpenFile], object], data_bytes: int = 0) -> None:
        if self._sent is None:
            work = self._work(call, threading.Event())
            client = self._file.client if self._file is not None else None
            self._file = self._fs.run(operation, self.path, work, data_bytes=data_bytes, client=client)
        else:
            self._fs.retry_until_ready(lambda: self._try(operation, call, data_bytes))

    def _try(self, operation: str, call: Callable[[OpenFile], object], data_bytes: int) -> None:
        begun = threading.Event()
        work = self._work(call, begun)
        if self._file is None and self._sent is not None:
            data_bytes += len(self._sent)
        client = self._file.client if self._file is not None else None
        self._file = None
        try:
            self._file = self._fs.run(operation, self.path, work, SMALL_TIMEOUT_S, data_bytes, client)
        except OutcomeUnknown as error:
            if not begun.is_set():
                raise  # a creation that takes effect late would empty what a later try has written
            # Nobody was told anything of the file, and it can be made again.
            raise Unavailable(operation, self.path, error.detail) from error

    def _work(self, call: Callable[[OpenFile], object], begun: threading.Event) -> Callable[[], OpenFile]:
        """Return a function that calls the writer, or a new one, and returns it; `begun` is set when it has one."""
        file, sent = self._file, self._sent

        def work() -> OpenFile:
            current = file
            if current is None:
                current = self._fs.writer(self._full, overwrite=True)
            begun.set()
            if file is None and sent:
                current.writer.write(sent)
            call(current)
            return current

        return work


class NativeFile(InputFile):
    """Reads by ranges; what is beyond the end is not asked for."""

    def __init__(self, path: str, reader: hdfs_native.FileReader, fs: _Driver) -> None:
        self.path = path
        self.size_bytes = len(reader)
        self._reader: hdfs_native.FileReader | None = reader
        self._fs = fs

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        reader = self._reader
        if reader is None:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        # The library panics at what is beyond the end.
        length = min(length, self.size_bytes - offset)
        if length <= 0:
            return b""
        read = functools.partial(reader.read_range, offset, length)
        return bytes(self._fs.retry_until_ready(lambda: self._fs.run("read_at", self.path, read, data_bytes=length)))

    def close(self) -> None:
        """Release the file; idempotent."""
        self._reader = None
