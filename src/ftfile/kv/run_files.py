"""Files that contain runs: an attempt writes them, and readers open them.

Each run begins at a multiple of 64 bytes. One call reads small runs that are adjacent in a file.
"""

from __future__ import annotations

import math
import threading
import weakref
from bisect import bisect_right
from collections import defaultdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.core.per_process import PerProcess
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import DecryptedRanges
from ftfile.kv.definition import DELETED_MS, OP, deletes_in, ops_in
from ftfile.kv.planning.runs import RunMetadata
from ftfile.kv.run.pages import Cache, Shelf
from ftfile.kv.run.reader import RunReader
from ftfile.kv.run.writer import write_run
from ftfile.log.format.layout import storage_identity
from ftfile.log.sealed import keys_of
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import KeyRange
    from ftfile.log.format.model import Add
    from ftfile.storage.api import FileSystem, InputFile
    from ftfile.writing.messages import StagedSegment
    from ftfile.writing.stage import Stage


_ALIGNMENT = 64
# Maximum number of mapped files of a process, each with a descriptor. Many systems allow 1,024 per process.
_MAPPED_MAX = 400
# For all files together.
_RANGE_BYTES = 16 << 20
# Reading a gap of this size between two runs is cheaper than another call.
_GAP_BYTES = 64 << 10


class RunSpool:
    """Writes runs of a store to a new file of a stage."""

    def __init__(
        self,
        stage: Stage,
        definition: StoreDefinition,
        filters: Chain,
        compression: str = "lz4",
        block_bytes: int | None = None,
    ) -> None:
        self._stage = stage
        self._definition = definition
        self._filters = filters
        self._compression = compression
        self._block_bytes = block_bytes
        self._file = stage.create("spool")
        self._runs = 0

    @property
    def position(self) -> int:
        """Return the number of bytes in the file; it grows while a run is written."""
        return self._file.position

    def write(self, bucket: str, batches: Iterable[pa.RecordBatch], purges: Sequence[KeyRange] = ()) -> StagedSegment:
        """Append a run of a bucket, and return it with its metadata, whose position is not known yet.

        Its rows are results of `fold`, all with the columns of the first batch. Its purges end keys in all earlier
        runs; without rows, the run contains only purges. If `write_run` fails, the file must be discarded.
        """
        from ftfile.writing.stage import StagedRange  # noqa: PLC0415 - readers write nothing

        self._file.write(bytes(-self._file.position % _ALIGNMENT))
        piece, ops, deletes, plain_bytes = StagedRange(self._file, self._filters), 0, 0, 0
        rows = iter(batches)
        first = next(rows, None)
        fields = [*self._definition.schema]  # which declare key columns not null
        if first is not None:
            for field in first.schema:
                if field.name in {OP, DELETED_MS}:
                    fields.append(field)
        schema = pa.schema(fields)

        def counted_batches() -> Iterator[pa.RecordBatch]:
            nonlocal ops, deletes, plain_bytes
            for batch in chain(() if first is None else (first,), rows):
                ops |= ops_in(batch)
                deletes += deletes_in(batch)
                plain_bytes += batch.nbytes
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

        names, compression, block_bytes = self._definition.keys, self._compression, self._block_bytes
        summary = write_run(piece, counted_batches(), schema, names, compression=compression, block_bytes=block_bytes)
        self._runs += 1
        metadata = RunMetadata((0, 0), summary.keys, tuple(purges), ops, deletes=deletes, plain_bytes=plain_bytes)
        return piece.end(self._runs, summary.rows, bucket, metadata.to_json())

    def write_all(
        self, runs: Iterable[tuple[str, Iterable[pa.RecordBatch], Sequence[KeyRange]]]
    ) -> list[StagedSegment]:
        """Write runs, and make them durable; if that fails, delete the file. For arguments see `write`."""
        try:
            written = [self.write(*run) for run in runs]
            self.end()
        except BaseException:
            self.discard()
            raise
        return written

    def end(self) -> None:
        """Make the runs durable."""
        self._stage.end(self._file)

    def discard(self) -> None:
        """Delete the file if possible, ended or not; no record refers to it."""
        self._stage.drop(self._file)


class RangeReader(Protocol):
    """A file that is read by ranges."""

    def read_at(self, offset: int, length: int) -> bytes | memoryview:
        """Return bytes of the file: fewer only at its end."""


class _SharedFile:
    """A file, closed once it is no longer referenced. A mappable file that is not mapped is opened for each read."""

    def __init__(self, fs: FileSystem, path: str, *, maps: bool) -> None:
        self._fs, self._path = fs, path
        self._mapped: memoryview | None = None
        self._file: InputFile | None = fs.open(path)
        mapped = self._file.mapped()
        if mapped is None:
            weakref.finalize(self, self._file.close)
            return
        self._file.close()
        self._file = None
        if maps and len(_mappings.here) < _MAPPED_MAX:
            self._mapped = mapped
            _mappings.here.add(mapped.obj)

    def read_at(self, offset: int, length: int) -> bytes | memoryview:
        if self._mapped is not None:
            return self._mapped[offset : offset + length]
        if self._file is not None:
            return self._file.read_at(offset, length)
        with self._fs.open(self._path) as file:
            return file.read_at(offset, length)


# Cached blocks keep a mapping alive after the file is no longer referenced.
_mappings: PerProcess[weakref.WeakSet[Any]] = PerProcess(weakref.WeakSet)


class OpenFiles:
    """The open files of a directory, each open once. Thread-safe.

    Files that are read only once are not mapped, because mapped bytes count as memory of the process.
    """

    def __init__(self, fs: FileSystem, *, maps: bool = True) -> None:
        self.fs = fs
        self._maps = maps
        self._lock = threading.Lock()
        self._files: weakref.WeakValueDictionary[str, _SharedFile] = weakref.WeakValueDictionary()

    def open(self, path: str) -> RangeReader:
        """Return a file, which stays open while it is referenced.

        Raises:
            NotFound: the file does not exist; reads may raise it, too.
            StorageError: the storage failed.
        """
        if (file := self._files.get(path)) is None:
            opened = _SharedFile(self.fs, path, maps=self._maps)
            with self._lock:
                file = self._files.setdefault(path, opened)
        return file


def open_run(files: OpenFiles, add: Add, cache: Cache) -> RunReader:
    """Return the reader of a run. Its index is read and verified now, blocks and pages when they are used.

    Raises:
        CorruptData: its bytes differ from the bytes that were written.
        ConfigError: the run is encrypted, and its key is unknown.
        NotFound: its file does not exist: the version is no longer kept.
        StorageError: the storage failed.
    """
    file = files.open(add.path)

    def read_range(offset: int, length: int) -> bytes | memoryview:
        return file.read_at(add.offset + offset, length)

    plain = read_range
    if add.filters:
        if add.filters != (AesGcm.name,):
            raise ConfigError(f"{add.path!r} has the filters {', '.join(add.filters)}: runs only support {AesGcm.name}")
        Chain.for_reading(add.filters, keys := keys_of(files.fs)).decoder("")  # raises without keys
        assert keys is not None
        identity = storage_identity("segment", add.path, add.offset)
        plain = DecryptedRanges(
            read_range, add.length, name=add.path, keys=keys, identity=identity, plain_bytes=add.logical_length
        ).read_at
    return RunReader(plain, add.logical_length, path=add.path, cache=cache, parallel=partial(parallel, files.fs))


class CoalescingFiles(OpenFiles):
    """Files with runs that will be read soon, about in file order. Thread-safe.

    The first read of a run also fetches adjacent runs, within the memory limit for all files.
    """

    def __init__(self, files: OpenFiles, adds: Iterable[Add]) -> None:
        super().__init__(files.fs)
        self._others = files
        by_path: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
        for add in adds:
            by_path[add.path].add((add.offset, add.offset + add.length))
        bytes_max = _RANGE_BYTES // max(len(by_path), 1)
        # Path, first byte and end of each range that is fetched completely when it is first read.
        self._ranges = list[tuple[str, int, int]]()
        for path, runs in sorted(by_path.items()):
            for start, end in _coalesce_ranges(sorted(runs), bytes_max):
                self._ranges.append((path, start, end))
        self._contents: Shelf[bytes | memoryview] = Shelf(len(self._ranges))
        self._locks = [threading.Lock() for _ in self._ranges]
        # When reads of a file move to its next range, the previous range may still be needed.
        self._cache = Cache(2 * _RANGE_BYTES)

    def open(self, path: str) -> RangeReader:
        """Return a file that is opened on first read, which raises the same errors as `OpenFiles.open`."""
        return _LateFile(self, path)

    def open_reader(self, path: str) -> RangeReader:
        """Return a file of the wrapped `OpenFiles`, for reads outside of the ranges."""
        return self._others.open(path)

    def read_at(self, file: _LateFile, offset: int, length: int) -> bytes | memoryview:
        """Return bytes of a file, from the range that contains them if there is one."""
        path, ranges = file.path, self._ranges
        number = bisect_right(ranges, (path, offset, math.inf)) - 1
        if number >= 0:
            range_path, start, end = ranges[number]
        else:
            range_path, start, end = ("", 0, 0)
        if range_path != path or offset + length > end:
            return file.opened.read_at(offset, length)
        with self._locks[number]:
            content = self._contents.values[number]
            if content is None:
                content = self._cache.put(self._contents, number, file.opened.read_at(start, end - start), end - start)
            self._contents.used[number] = 1
        return content[offset - start : offset - start + length]

    def fetch_first(self) -> None:
        """Fetch the first range of each file in parallel: levels that open in parallel begin with the same file."""
        starts = {path: start for path, start, _ in reversed(self._ranges)}
        parallel(self.fs, lambda path: self.open(path).read_at(starts[path], 0), [*starts])

    def release(self) -> None:
        """Drop all fetched ranges; later reads fetch only the requested bytes."""
        self._ranges = []
        self._cache.resize(0)


class _LateFile:
    """A file of `CoalescingFiles`."""

    def __init__(self, files: CoalescingFiles, path: str) -> None:
        self._files, self.path = files, path
        self._opened: RangeReader | None = None

    @property
    def opened(self) -> RangeReader:
        """Return the open file."""
        if self._opened is None:
            self._opened = self._files.open_reader(self.path)
        return self._opened

    def read_at(self, offset: int, length: int) -> bytes | memoryview:
        return self._files.read_at(self, offset, length)


def _coalesce_ranges(runs: Sequence[tuple[int, int]], bytes_max: int) -> list[tuple[int, int]]:
    """Return the ranges that contain several of these runs of a file, sorted by offset."""
    ranges: list[list[tuple[int, int]]] = []
    for start, end in runs:
        if ranges and start - ranges[-1][-1][1] <= _GAP_BYTES and end - ranges[-1][0][0] <= bytes_max:
            ranges[-1].append((start, end))
        else:
            ranges.append([(start, end)])
    coalesced = []
    for group in ranges:
        if len(group) > 1:
            coalesced.append((group[0][0], group[-1][1]))
    return coalesced
