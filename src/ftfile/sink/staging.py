"""Staged parts: the files one attempt writes, each complete and durable before the driver hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit import layout
from ftfile.core.checksum import Crc32
from ftfile.core.errors import CorruptData, NotFound, StorageError
from ftfile.core.logs import get_logger
from ftfile.sink.message import StagedPart

if TYPE_CHECKING:
    import pyarrow as pa

    from ftfile.core.ids import IdSource
    from ftfile.encoding.api import Encoder, Format
    from ftfile.fs.api import FileSystem, OutputStream
    from ftfile.sink.identity import TaskIdentity

__all__ = ("OpenPart", "Stage")

CREATE_TRIES = 4

_log = get_logger(__name__)


class _CheckedWriter:
    """Counts and checksums what goes into a stream."""

    def __init__(self, stream: OutputStream) -> None:
        self._stream = stream
        self.crc = Crc32()

    @property
    def position(self) -> int:
        return self._stream.position

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.crc.update(data)
        return self._stream.write(data)


class OpenPart:
    """One part being written."""

    def __init__(self, part_id: str, bucket: str, stream: OutputStream, file_format: Format, schema: pa.Schema) -> None:
        self.id = part_id
        self.bucket = bucket
        self.rows = 0
        self._stream = stream
        self._writer = _CheckedWriter(stream)
        self._encoder: Encoder = file_format.encoder(schema, self._writer)

    @property
    def path(self) -> str:
        """Return where the part is staged."""
        return self._stream.path

    @property
    def size_bytes(self) -> int:
        """Return how long the file would be, were it ended now."""
        return self._encoder.size_bytes

    @property
    def buffered_bytes(self) -> int:
        """Return how much memory unwritten rows take."""
        return self._encoder.buffered_bytes

    def flush(self) -> None:
        """Write what is buffered."""
        self._encoder.flush()

    def write(self, batch: pa.RecordBatch, limit_bytes: int | None) -> int:
        """Encode rows from the start of the batch; see `Encoder.write`."""
        taken = self._encoder.write(batch, limit_bytes)
        self.rows += taken
        return taken

    def finish(self) -> StagedPart:
        """End the file and make it durable; the driver makes its name so."""
        self._encoder.finish()
        if self._stream.has_capability("hsync"):
            self._stream.hsync()
        self._stream.close()
        length = self._stream.position
        return StagedPart(self.id, self.path, length, self._writer.crc.text(), self.rows, self.bucket)

    def abort(self) -> None:
        """Discard the file."""
        self._stream.abort()


class Stage:
    """Opens, finishes and, when the attempt fails, removes the staged files of one attempt."""

    def __init__(self, fs: FileSystem, ids: IdSource, identity: TaskIdentity) -> None:
        self._fs = fs
        self._ids = ids
        self._identity = identity
        self._directory = layout.staged_directory(identity.writer.owner, identity.writer.batch_number)
        self._opened: list[OpenPart] = []
        self.finished: list[StagedPart] = []

    def open(self, bucket: str, file_format: Format, schema: pa.Schema) -> OpenPart:
        """Start a part under a name that no attempt ever had."""
        part_id = self._ids.unique()
        name = f"{self._identity.partition:05d}-{self._identity.attempt}-{part_id}.staged"
        part = OpenPart(part_id, bucket, self._create(f"{self._directory}/{name}"), file_format, schema)
        self._opened.append(part)
        return part

    def finish(self, part: OpenPart) -> None:
        """End a part and look whether the store has all of it.

        Raises:
            CorruptData: the store's length is another than what was written.
        """
        staged = part.finish()
        self._opened.remove(part)
        self.finished.append(staged)
        found = self._fs.stat(staged.path).size_bytes
        if found != staged.length:
            raise CorruptData(staged.path, f"{staged.length} bytes", f"{found} bytes", "The task is run again")

    def discard(self) -> None:
        """Remove what this attempt wrote, as far as that can be done; nobody ever refers to it."""
        for part in self._opened:
            part.abort()
        for staged in self.finished:
            try:
                self._fs.delete(staged.path)
            except StorageError as error:
                _log.info("left %s behind: %s", staged.path, error)

    def _create(self, path: str) -> OutputStream:
        for _ in range(CREATE_TRIES - 1):
            try:
                return self._fs.create(path)
            except NotFound:
                # The batch's first file; or whoever publishes the batch now takes the directory away when it is empty.
                self._fs.make_directories(self._directory)
        return self._fs.create(path)
