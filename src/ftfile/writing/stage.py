"""Staged files of one attempt. Each file is complete and durable before the driver receives its name."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ftfile.core.answers import wait_for
from ftfile.core.checksum import Crc32
from ftfile.core.errors import CorruptData, NotFound, UnencodableRows
from ftfile.filters.chain import FilteredFile
from ftfile.log.format import layout
from ftfile.storage.api import copy_range
from ftfile.storage.calls import start
from ftfile.writing.dropped_files import DroppedFile, delete_dropped
from ftfile.writing.messages import StagedPart, StagedSegment
from ftfile.writing.options import durability_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import TypeAlias

    import pyarrow as pa

    from ftfile.core.answers import Answer
    from ftfile.filters.chain import Chain
    from ftfile.formats.api import Encoder, Format
    from ftfile.storage.api import Durability, FileSystem, InputFile, OutputStream, StoredFile
    from ftfile.writing.messages import TaskIdentity

    FinalPath: TypeAlias = Callable[[str, str], str]


CREATE_TRIES = 4
CLOSERS_MAX = 16


class StagedFile:
    """A file under a name that no other attempt uses. It counts the written bytes and computes their checksum."""

    def __init__(self, file_id: str, stream: OutputStream) -> None:
        self.id = file_id
        self.path = stream.path
        self._stream = stream
        self._crc = Crc32()

    @property
    def position(self) -> int:
        """Return the length of the file in bytes."""
        return self._stream.position

    @property
    def stored(self) -> StoredFile | None:
        """Return the ended file as the storage has confirmed it; None if only the file system can show it."""
        return self._stream.stored

    @property
    def checksum(self) -> str:
        """Return the checksum of all bytes written so far."""
        return self._crc.text()

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append all of `data` and return its length."""
        self._crc.update(data)
        return self._stream.write(data)

    def copy_from(self, path: str, offset: int, length: int, checksum: str) -> None:
        """Append a range of another file with this checksum; see `CopyingStream.copy_from`."""
        copy_range(self._stream, path, offset, length)
        self._crc.extend(checksum, length)

    def part(self, plain_bytes: int, rows: int, directory_key: str, filters: tuple[str, ...]) -> StagedPart:
        """Return the log entry of the ended file."""
        return StagedPart(
            id=self.id,
            path=self.path,
            length=self.position,
            logical_length=plain_bytes,
            checksum=self.checksum,
            rows=rows,
            directory_key=directory_key,
            filters=filters,
        )

    def end(self, durability: Durability) -> None:
        """Make the content durable according to the setting. The driver makes the name durable."""
        if durability == "hsync":
            self._stream.hsync()
        self._stream.close()

    def abort(self) -> None:
        """Discard the file."""
        self._stream.abort()


class StagedRange(FilteredFile):
    """A segment that is written at the end of a spool. Plain bytes pass through the filters."""

    def __init__(self, spool: StagedFile, chain: Chain) -> None:
        self._spool, self._offset = spool, spool.position
        self._end = _SpoolEnd(spool)
        super().__init__(self._end, chain, layout.storage_identity("segment", spool.path, self._offset))

    def end(self, number: int, rows: int, directory_key: str, stats: dict[str, Any]) -> StagedSegment:
        """End the segment and return its log entry. `number` is the number of the segment in its spool."""
        self.finish()
        return StagedSegment(
            id=f"{self._spool.id}-{number}",
            path=self._spool.path,
            length=self._spool.position - self._offset,
            logical_length=self.position,
            checksum=self._end.crc.text(),
            rows=rows,
            directory_key=directory_key,
            filters=self._chain.names,
            offset=self._offset,
            rolling_stats=stats,
        )


class _SpoolEnd:
    """The end of a spool, with a checksum of the bytes from this position."""

    def __init__(self, spool: StagedFile) -> None:
        self._spool = spool
        self.crc = Crc32()

    @property
    def position(self) -> int:
        return self._spool.position

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.crc.update(data)
        return self._spool.write(data)


class OpenPart:
    """A part that is being written. It collects statistics of the columns with the keys `statistics`."""

    def __init__(
        self,
        directory_key: str,
        file: StagedFile,
        file_format: Format,
        schema: pa.Schema,
        chain: Chain,
        statistics: Collection[str] = (),
    ) -> None:
        from ftfile.formats.api import LineFormat  # noqa: PLC0415 - stores stage files that have no format
        from ftfile.rows.statistics.collector import Collector  # noqa: PLC0415 - likewise

        self.file = file
        self.directory_key = directory_key
        self.rows = 0
        self._chain = chain
        # Columnar formats estimate their size; the size of line formats is the size of their frames.
        self._goes_by_frames = isinstance(file_format, LineFormat) and bool(chain.framing)
        identity = layout.storage_identity("part", file.path)
        self._filtered = FilteredFile(file, chain, identity)
        self._encoder: Encoder = file_format.for_file(identity).encoder(schema, self._filtered)
        self._statistics = Collector(schema, statistics, compares_text=not self._encoder.computes_text)

    @property
    def size_bytes(self) -> int:
        """Return the length in bytes that the file would have if it ended now."""
        if self._goes_by_frames:
            return self._filtered.size_bytes
        return self._encoder.size_bytes

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes that unwritten rows take in memory."""
        return self._encoder.buffered_bytes + self._filtered.buffered_bytes

    def flush(self) -> None:
        """Write buffered rows."""
        self._encoder.flush()
        self._filtered.flush()

    def write(self, batch: pa.RecordBatch, limit_bytes: int | None) -> int:
        """Encode rows from the start of the batch; see `Encoder.write`. The limit counts bytes on storage."""
        if limit_bytes is not None and self._goes_by_frames:
            taken = self._write_about(batch, limit_bytes)
        else:
            taken = self._encoder.write(batch, limit_bytes)
        self._statistics.update(batch.slice(0, taken))
        self.rows += taken
        return taken

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write batches, and yield each after it is written."""
        for batch in batches:
            self.write(batch, None)
            yield batch

    def _write_about(self, batch: pa.RecordBatch, limit_bytes: int) -> int:
        """Encode the estimated number of rows that fit, measure the file, and continue until the limit is reached."""
        taken = 0
        while taken < batch.num_rows:
            plain_limit = self._encoder.size_bytes + self._filtered.plain_room(limit_bytes)
            try:
                taken += self._encoder.write(batch.slice(taken), plain_limit)
            except UnencodableRows:
                if not taken:
                    raise
                break
            if self._filtered.reaches(limit_bytes):
                break
        return taken

    def end(self) -> None:
        """Write buffered rows and the end of the file."""
        self._encoder.finish()
        self._filtered.finish()

    def to_staged(self) -> StagedPart:
        """Return the log entry of the ended part."""
        part = self.file.part(self._filtered.position, self.rows, self.directory_key, self._chain.names)
        if self._encoder.computes_text:
            self._statistics.set_text(self._encoder.text_extremes())
        return replace(part, statistics=self._statistics.entries())


class Stage:
    """Opens and finishes the staged files of one attempt, and deletes them if the attempt fails.

    Storage systems on which closing a file is slow, such as HDFS, close several files in parallel; `wait_closed` waits
    for them.
    If parts are written under their final names, `final_path` returns the path for a directory and a file id.
    """

    def __init__(
        self, fs: FileSystem, identity: TaskIdentity, durability: str = "auto", final_path: FinalPath | None = None
    ) -> None:
        self.fs = fs
        self.file_bytes = fs.capabilities.stream_bytes  # memory of each open file
        self._final_path = final_path
        self.identity = identity
        self.owner = identity.writer.owner
        self.partition = identity.partition
        self._stem = identity.stem
        self._directory = layout.staged_directory(self.owner)
        self._opened: list[StagedFile] = []
        self._ended: list[StagedFile] = []
        self.durability = durability_of(durability, fs.capabilities)
        self._closers = min(fs.capabilities.concurrency, CLOSERS_MAX)
        self._closing: deque[Answer[None]] = deque()
        self.finished: list[StagedPart] = []
        self._sync_s: list[float] = []  # of each closed file
        self.stored_ms: dict[str, int] = {}  # modification times of the files that the storage has confirmed, by path

    @property
    def sync_s(self) -> float:
        """Return the total time of syncing and closing files, in seconds."""
        return sum(self._sync_s)

    def create(self, ending: str) -> StagedFile:
        """Start a file."""
        file_id = self.fs.context.ids.unique()
        return self._track(file_id, self._create(f"{self._stem}{file_id}.{ending}"))

    def _track(self, file_id: str, stream: OutputStream) -> StagedFile:
        file = StagedFile(file_id, stream)
        self._opened.append(file)
        return file

    def end(self, file: StagedFile) -> None:
        """End a file. If its length on the storage differs from the written length, a CorruptData is raised."""
        self._mark_ended(file)
        self._close(file)

    def _mark_ended(self, file: StagedFile) -> None:
        self._opened.remove(file)
        self._ended.append(file)

    def _close(self, file: StagedFile) -> None:
        began_s = self.fs.context.clock.monotonic_s()
        try:
            file.end(self.durability)
        except BaseException:
            file.abort()
            raise
        self._sync_s.append(self.fs.context.clock.monotonic_s() - began_s)
        stored = file.stored
        if stored is None:
            size_bytes = self.fs.stat(file.path).size_bytes
        else:
            size_bytes = stored.size_bytes
            self.stored_ms[file.path] = stored.modified_ms
        if size_bytes != file.position:
            raise CorruptData(file.path, f"{file.position} bytes", f"{size_bytes} bytes", "Spark runs the task again")

    def open(
        self,
        directory_key: str,
        file_format: Format,
        schema: pa.Schema,
        chain: Chain,
        statistics: Collection[str] = (),
    ) -> OpenPart:
        """Start a part; see `OpenPart`."""
        if self._final_path is None:
            file = self.create("staged")
        else:
            file = self._create_direct(self._final_path, directory_key)
        return OpenPart(directory_key, file, file_format=file_format, schema=schema, chain=chain, statistics=statistics)

    def _create_direct(self, final_path: FinalPath, directory_key: str) -> StagedFile:
        """Start a part under its final name. A note is created first, with which vacuum finds uncommitted parts."""
        file_id = self.fs.context.ids.unique()
        path = final_path(directory_key, file_id)
        note = layout.note_path(self._stem, file_id)
        self.fs.make_directories(self._directory)
        self.fs.make_directories(layout.parent(path))
        self.fs.create_exclusive(note, path.encode())
        return self._track(file_id, self.fs.create(path))

    def finish(self, part: OpenPart) -> None:
        """End a part. Errors of closing it may be raised later, by `wait_closed`."""
        part.end()
        self.finished.append(part.to_staged())
        self._mark_ended(part.file)
        if self._closers <= 1:
            self._close(part.file)
            return
        if len(self._closing) >= self._closers:
            self._closing.popleft().result()
        self._closing.append(start(functools.partial(self._close, part.file)))

    def wait_closed(self) -> None:
        """Wait until all finished parts are closed. Errors are the same as those of `end`."""
        try:
            while self._closing:
                self._closing.popleft().result()
        finally:
            wait_for(self._closing)

    def read_back(self, file: StagedFile) -> InputFile:
        """Close a temporary file of this task, and open it for reading."""
        file.end("none")
        self._mark_ended(file)
        return self.fs.open(file.path)

    def drop(self, file: StagedFile) -> None:
        """Delete one file if possible."""
        if file in self._opened:
            self._opened.remove(file)
            file.abort()
        else:
            self._ended.remove(file)
            self._delete([file])

    def discard(self) -> None:
        """Delete the files of this attempt if possible. No record names them."""
        wait_for(self._closing)
        self._closing.clear()
        for file in self._opened:
            file.abort()
        self._delete(self._ended)

    def _delete(self, files: Iterable[StagedFile]) -> None:
        delete_dropped(self.fs, self._stem, [DroppedFile(file.id, file.path) for file in files])

    def _create(self, path: str) -> OutputStream:
        for _ in range(CREATE_TRIES - 1):
            try:
                return self.fs.create(path)
            except NotFound:
                # The query or job has no file yet, or a publisher of the job has deleted the empty directory.
                self.fs.make_directories(self._directory)
        return self.fs.create(path)


@contextlib.contextmanager
def staging(fs: FileSystem, task: TaskIdentity) -> Iterator[Stage]:
    """Provide a stage whose files are deleted if the block fails."""
    stage = Stage(fs, task)
    try:
        yield stage
    except BaseException:  # including KeyboardInterrupt; raised again below
        stage.discard()
        raise
