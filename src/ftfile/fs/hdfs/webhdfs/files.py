"""Files of the WebHDFS driver that are open, for writing and for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ftfile.core.errors import StreamClosed
from ftfile.fs.api import InputFile, OutputStream
from ftfile.fs.hdfs.file_checksum import checksum_for
from ftfile.fs.hdfs.webhdfs.client import WebErrorTranslator

if TYPE_CHECKING:
    from ftfile.fs.hdfs.file_checksum import HadoopChecksum
    from ftfile.fs.hdfs.webhdfs.upload import Upload

__all__ = ("CHUNK_BYTES", "STREAM_CAPABILITIES", "WebFile", "WebStream")

CHUNK_BYTES = 256 << 10

STREAM_CAPABILITIES = frozenset({"abort"})


class _Driver(Protocol):
    """The driver's methods that files use; see there."""

    where: str

    def begin(self, operation: str, path: str, full: str) -> tuple[dict[str, Any], Upload, str]: ...

    def replace(self, operation: str, path: str, temporary: str, full: str) -> None: ...

    def verify(self, operation: str, path: str, full: str, checksum: HadoopChecksum) -> None: ...

    def wait_until_replaced(self, full: str, file_number: int) -> None: ...

    def discard(self, full: str) -> bool: ...

    def read_range(self, path: str, full: str, offset: int, length: int) -> bytes: ...


class WebStream(OutputStream):
    """Keeps a chunk back; a file of one chunk goes in one request when it is closed."""

    def __init__(self, path: str, full: str, fs: _Driver) -> None:
        super().__init__(path, STREAM_CAPABILITIES)
        self._full = full
        self._fs = fs
        self._chunk = bytearray()
        self._upload: Upload | None = None
        self._target = full
        self._empty_file = 0
        self._checksum: HadoopChecksum | None = None

    def _write(self, data: memoryview) -> None:
        if len(self._chunk) + data.nbytes < CHUNK_BYTES:
            self._chunk += data
            return
        upload = self._started("write")
        with WebErrorTranslator("write", self.path, self._fs.where):
            self._send(upload, self._chunk)
            self._chunk.clear()
            self._send(upload, data)

    def _hsync(self) -> None:
        """Never reached: the capability is missing."""

    def _close(self) -> None:
        if self._upload is None and not self._chunk:
            return
        upload = self._started("close")
        with WebErrorTranslator("close", self.path, self._fs.where):
            self._send(upload, self._chunk)
            upload.finish()
        if self._target != self._full:
            self._fs.replace("close", self.path, self._target, self._full)
        if self._checksum is not None:
            self._fs.verify("close", self.path, self._full, self._checksum)

    def _abort(self) -> bool:
        if self._upload is not None:
            # Once the content's file has replaced the empty one, deleting it takes it from its writer.
            if self._target == self._full:
                self._fs.wait_until_replaced(self._full, self._empty_file)
            self._upload.cut()
            if self._target != self._full:
                self._fs.discard(self._target)
        return self._fs.discard(self._full)

    def _started(self, operation: str) -> Upload:
        if self._upload is None:
            status, self._upload, self._target = self._fs.begin(operation, self.path, self._full)
            self._empty_file, self._checksum = int(status["fileId"]), checksum_for(status)
        return self._upload

    def _send(self, upload: Upload, data: bytearray | memoryview) -> None:
        upload.send(data)
        if self._checksum is not None:
            self._checksum.update(data)


class WebFile(InputFile):
    """Reads by ranges; what is beyond the end is not asked for."""

    def __init__(self, path: str, full: str, size_bytes: int, fs: _Driver) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._full = full
        self._fs: _Driver | None = fs

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        if self._fs is None:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        length = min(length, self.size_bytes - offset)
        return self._fs.read_range(self.path, self._full, offset, length) if length > 0 else b""

    def close(self) -> None:
        """Release the file; idempotent."""
        self._fs = None
