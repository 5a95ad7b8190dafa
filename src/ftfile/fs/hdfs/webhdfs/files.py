"""Files that the WebHDFS driver writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ftfile.fs.api import OutputStream
from ftfile.fs.hdfs.file_checksum import checksum_for
from ftfile.fs.hdfs.webhdfs.client import web_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.fs.hdfs.file_checksum import HadoopChecksum
    from ftfile.fs.hdfs.webhdfs.upload import Upload

CHUNK_BYTES = 256 << 10


class _Driver(Protocol):
    """The driver's methods that streams use; see there."""

    where: str
    stream_capabilities: ClassVar[frozenset[str]]

    def begin(self, operation: str, path: str, full: str) -> tuple[dict[str, Any], Upload, str]: ...

    def retry_until_ready(self, call: Callable[[], None]) -> None: ...

    def replace(self, operation: str, path: str, temporary: str, full: str) -> None: ...

    def verify(self, operation: str, path: str, full: str, checksum: HadoopChecksum) -> None: ...

    def wait_until_replaced(self, full: str, file_number: int) -> None: ...

    def discard(self, full: str) -> bool: ...


class WebStream(OutputStream):
    """Keeps a chunk back; `close` sends a file of one chunk by one request, again and again while HDFS is not ready."""

    def __init__(self, path: str, full: str, fs: _Driver) -> None:
        super().__init__(path, fs.stream_capabilities)
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
        with web_errors("write", self.path, self._fs.where):
            self._send(upload, self._chunk)
            self._chunk.clear()
            self._send(upload, data)

    def _close(self) -> None:
        if self._upload is None and not self._chunk:
            return
        if self._upload is None:
            self._fs.retry_until_ready(self._finish_anew)
        else:
            self._finish()
        if self._target != self._full:
            self._fs.replace("close", self.path, self._target, self._full)
        if self._checksum is not None:
            self._fs.verify("close", self.path, self._full, self._checksum)

    def _finish_anew(self) -> None:
        """Send the whole content; what an earlier try has left of it is replaced."""
        if self._upload is not None:
            self._upload.cut()
            if self._target != self._full:
                self._fs.discard(self._target)
            self._upload = None
        self._finish()

    def _finish(self) -> None:
        upload = self._started("close")
        with web_errors("close", self.path, self._fs.where):
            self._send(upload, self._chunk)
            upload.finish()

    def _abort(self) -> bool:
        if self._upload is not None:
            # Deleting the content's file ends its upload, once that file has replaced the empty one.
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
