"""Writes rows to the open parts of directories, ends full parts, and separates the rows that cannot be encoded."""

from __future__ import annotations

import resource
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.errors import CorruptData, EncodingError, UnencodableRows, UserCodeError
from ftfile.filters.aes_gcm import PieceCipher
from ftfile.filters.decoded import stream_errors
from ftfile.formats.partition_paths import path_column_values
from ftfile.log.format import layout
from ftfile.rows.buffers import rows_where
from ftfile.rows.messages import read_rows
from ftfile.writing.bad_records import row_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.formats.api import Format
    from ftfile.storage.api import InputFile
    from ftfile.writing.files.directories import DirectoryRows, Refuse, Router
    from ftfile.writing.files.file_options import SinkConfig
    from ftfile.writing.stage import OpenPart, Stage, StagedFile


# Maximum length of a value in the text of a fault, in characters.
SHOWN = 80

_CODEC = "lz4"
ROUTE_ROWS = 100_000


class EncodableRows:
    """Passes the rows of an attempt that cannot be encoded to `take`, a method of its `BadRecords`."""

    def __init__(self, config: SinkConfig, take: Refuse) -> None:
        self._config = config
        self._file_columns = config.file_schema.names
        self._take = take

    def rows_to_encode(self, directory_key: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Pass the rows that cannot be encoded to `take`, and return the others. `rows` are without path columns."""
        faults = unencodable_rows(self._config.format, rows.select(self._file_columns))
        if not faults:
            return rows
        is_good = np.ones(rows.num_rows, np.bool_)
        is_good[[*faults]] = False
        self._take(self._check_whole(directory_key, rows_where(rows, ~is_good)), [*faults.values()])
        return rows_where(rows, is_good)

    def _check_whole(self, directory_key: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns in the path of their directory."""
        schema, directory, stem = self._config.schema, layout.directory_of(directory_key), layout.stem_of(directory_key)
        values = path_column_values(self._config.directories.definition(), directory, stem, schema)
        columns = {}
        for name, value in values.items():
            columns[name] = pa.repeat(value, rows.num_rows)
        columns |= dict(zip(rows.schema.names, rows.columns, strict=True))
        names = [name for name in schema.names if name in columns]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


def unencodable_rows(file_format: Format, rows: pa.RecordBatch) -> dict[int, str]:
    """Return the index and the fault of each row that cannot be encoded, in order. Rows are found by bisection."""
    faults: dict[int, str] = {}
    # A stack of ranges to encode; the first range is on top.
    if rows.num_rows:
        waiting = [(0, rows.num_rows)]
    else:
        waiting = []
    while waiting:
        start, count = waiting.pop()
        try:
            _encode(file_format, rows.slice(start, count))
        except UnencodableRows as error:
            if count == 1:
                faults[start] = _fault(file_format, rows.slice(start, 1), error)
            else:
                half = count // 2
                waiting += [(start + half, count - half), (start, half)]
    return faults


class _NullWriter:
    """Discards all bytes."""

    position = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        length = memoryview(data).nbytes
        self.position += length
        return length


def _encode(file_format: Format, rows: pa.RecordBatch) -> None:
    encoder = file_format.encoder(rows.schema, _NullWriter())
    encoded_rows = 0
    while encoded_rows < rows.num_rows:
        encoded_rows += encoder.write(rows.slice(encoded_rows))


def _fault(file_format: Format, row: pa.RecordBatch, error: EncodingError) -> str:
    """Return a sentence with the value of the first column that cannot be encoded separately, if there is one."""
    for name in row.schema.names:
        alone = row.select([name])
        try:
            _encode(file_format, alone)
        except UserCodeError:
            break  # a user's class may require whole rows
        except EncodingError as of_column:
            text = str(row_to_json(alone)[name])
            if len(text) <= SHOWN:
                shown = text
            else:
                shown = f"{text[:SHOWN]}..."
            return f"{of_column}. The value is {shown!r}"
    return str(error)


def as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of one or more batches as one batch. The list is emptied to free memory."""
    table = pa.Table.from_batches(batches)
    batches.clear()
    return table.combine_chunks().to_batches()[0]


class RowCollector:
    """Collects rows and routes many at once, because a call of the router costs as much as a hundred rows.

    Args:
        router: returns the directory of each row.
        take: receives the routed rows of several calls of `add`.
        bytes_max: limit for the rows of a call in bytes, which one row may exceed.
        rows_max: limit for the rows of a call, which one row may exceed.
    """

    def __init__(
        self,
        router: Router,
        take: Callable[[pa.RecordBatch, list[DirectoryRows]], object],
        bytes_max: int,
        rows_max: int = 1 << 62,
    ) -> None:
        self._router, self._take, self._bytes_max, self._rows_max = router, take, bytes_max, rows_max
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        step = min(self._rows_max, int(self._bytes_max * batch.num_rows / (batch.nbytes + 1)) + 1)
        for start in range(0, batch.num_rows, step):
            rows = batch.slice(start, step)
            self._batches.append(rows)
            self._rows += rows.num_rows
            self._bytes += rows.nbytes
            if self._rows >= self._rows_max or self._bytes >= self._bytes_max:
                self.flush()

    def flush(self) -> None:
        """Route the collected rows, if there are any."""
        if self._batches:
            self._rows = self._bytes = 0
            self._take(*self._router.route(as_one(self._batches)))


class _SpilledBlock(NamedTuple):
    """A range of the spill file with rows of one directory."""

    offset: int
    length: int
    plain_bytes: int  # after decompression


class SpilledRows:
    """Stores rows by directory until they are read. Rows of a directory keep their order.

    The spill file is staged like parts, and deleted after it is read. If it is encrypted, the key exists only in this
    object.
    """

    def __init__(self, stage: Stage, schema: pa.Schema, *, encrypted: bool = False) -> None:
        self._stage = stage
        self._schema = schema
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._pieces: dict[str, list[_SpilledBlock]] = {}
        self._file: StagedFile | None = None
        self._cipher = PieceCipher() if encrypted else None
        self.held_bytes = 0

    def add(self, directory_key: str, rows: pa.RecordBatch) -> None:
        """Add rows. They are copied, because a slice would keep the memory of the whole batch."""
        rows = pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in rows.columns], schema=rows.schema)
        self._held.setdefault(directory_key, []).append(rows)
        self.held_bytes += rows.get_total_buffer_size()

    def spill(self) -> None:
        """Move the rows in memory to the spill file."""
        for directory_key, batches in self._held.items():
            if self._file is None:
                self._file = self._stage.create("spill")
            plain = as_one(batches).serialize()
            data = pa.compress(plain, codec=_CODEC)
            if self._cipher is not None:
                data = self._cipher.encrypt(data, self._file.position)
            self._pieces.setdefault(directory_key, []).append(_SpilledBlock(self._file.position, len(data), plain.size))
            self._file.write(data)
        self._held, self.held_bytes = {}, 0

    def take_all(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield all rows by directory, in the order of the keys, and remove them."""
        held, self._held, self.held_bytes = self._held, {}, 0
        keys = sorted({*self._pieces, *held})
        if self._file is None:
            for directory_key in keys:
                yield from ((directory_key, rows) for rows in held.pop(directory_key))
            return
        with self._stage.read_back(self._file) as file:
            for directory_key in keys:
                pieces = self._pieces.get(directory_key, [])
                yield from ((directory_key, rows) for rows in self._read(file, pieces))
                yield from ((directory_key, rows) for rows in held.pop(directory_key, ()))
        self._stage.drop(self._file)

    def _read(self, file: InputFile, pieces: list[_SpilledBlock]) -> Iterator[pa.RecordBatch]:
        for piece in pieces:
            data = file.read_at(piece.offset, piece.length)
            if self._cipher is not None:
                with stream_errors(file.path):
                    data = self._cipher.decrypt(data, piece.offset)
            try:
                plain = pa.decompress(data, decompressed_size=piece.plain_bytes, codec=_CODEC)
                rows = read_rows(plain, self._schema)
            except (pa.ArrowException, OSError) as error:
                raise CorruptData(file.path, "the rows that this task wrote", repr(error)) from error
            yield rows


class PartWriter:
    """Writes the rows of one attempt to parts: one per directory, or more if a part would exceed a limit.

    If rows choose directories, many rows are collected and routed at once, because routing a few rows is slow. The rows
    of each directory are written to its open part. If more open parts would need too much memory or too many files, the
    rows of further directories are kept until the end. Their parts are then written one after the other.
    """

    def __init__(self, config: SinkConfig, router: Router, stage: Stage, encodable: EncodableRows) -> None:
        self._config = config
        self._router = router
        rolling = config.rolling
        self._max_rows = config.max_records_per_file if rolling is None else rolling.max_rows
        self._max_bytes = config.max_bytes_per_file if rolling is None else rolling.max_bytes
        self._schema = config.file_schema
        self._stage = stage
        self._encodable = encodable
        self._open: dict[str, OpenPart] = {}
        # The other half of the file descriptors is reserved for the rest of the process.
        files_max = min(config.format.open_files_max, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        # A storage system's buffers for each file need memory in addition to the rows.
        self._open_max = files_max
        if stage.file_bytes:
            self._open_max = max(1, min(files_max, config.common.max_open_bytes // stage.file_bytes))
        # Sorting needs the memory of the rows twice, in addition to the stored rows.
        self._held_max = config.common.max_open_bytes // 2
        self._parts_bytes = 0
        self._direct: set[str] = set()
        self._later = SpilledRows(stage, self._schema, encrypted=config.common.encryption is not None)
        self._collector = RowCollector(router, self._write_routed, config.common.max_open_bytes // 4, ROUTE_ROWS)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if self._router.only is None:
            self._collector.add(batch)
        else:
            self.write_rows(self._router.only, batch)

    @property
    def buffered_bytes(self) -> int:
        """Return the memory of the unwritten rows of all directories, in bytes."""
        return self._later.held_bytes + self._parts_bytes

    def has_room_for(self, directory_key: str) -> bool:
        """Return True if a part of the directory is open, or can be opened within the limit of open files."""
        return directory_key in self._open or len(self._open) < self._open_max

    def finish(self) -> None:
        """End all parts."""
        self._collector.flush()
        self._finish_all()
        for directory_key, rows in self._later.take_all():
            if directory_key not in self._open:
                self._finish_all()
            self.write_rows(directory_key, rows)
        self._finish_all()

    def _write_routed(self, rows: pa.RecordBatch, directories: list[DirectoryRows]) -> None:
        for directory_key, start, count in directories:
            if len(self._direct) < self._open_max:
                self._direct.add(directory_key)
            if directory_key in self._direct:
                self.write_rows(directory_key, rows.slice(start, count))
            else:
                self._later.add(directory_key, rows.slice(start, count))
                self._bound_memory()

    def _bound_memory(self) -> None:
        """If memory is short, spill the waiting rows, then write the rows of the parts that buffer most."""
        alone = len(self._open) == 1 and not self._later.held_bytes  # a single encoder limits its own memory
        if alone or self.buffered_bytes <= self._held_max:
            return
        self._later.spill()
        for part in sorted(self._open.values(), key=attrgetter("buffered_bytes"), reverse=True):
            if self.buffered_bytes <= self._held_max // 2:
                break
            self._parts_bytes -= part.buffered_bytes
            part.flush()

    def write_rows(self, directory_key: str, batch: pa.RecordBatch) -> None:
        """Write rows of one directory, without the columns in its path."""
        limit_rows, limit_bytes = self._max_rows, self._max_bytes
        offset = 0
        while offset < batch.num_rows:
            part = self._part(directory_key)
            room = batch.num_rows
            if limit_rows:
                room = limit_rows - part.rows
            held = part.buffered_bytes
            try:
                offset += part.write(batch.slice(offset, room), limit_bytes)
            except UnencodableRows:
                offset, batch = 0, self._encodable.rows_to_encode(directory_key, batch.slice(offset))
                continue
            self._parts_bytes += part.buffered_bytes - held
            if (limit_rows and part.rows >= limit_rows) or (limit_bytes and part.size_bytes >= limit_bytes):
                self._finish(directory_key)
        self._bound_memory()

    def _finish_all(self) -> None:
        while self._open:
            self._finish(next(iter(self._open)))

    def _part(self, directory_key: str) -> OpenPart:
        if directory_key not in self._open:
            config = self._config
            self._open[directory_key] = self._stage.open(
                directory_key,
                config.format,
                schema=self._schema,
                chain=config.chain,
                statistics=config.encoding.get("statistics", ()),
            )
        return self._open[directory_key]

    def _finish(self, directory_key: str) -> None:
        part = self._open.pop(directory_key)
        self._parts_bytes -= part.buffered_bytes
        if part.rows:
            self._stage.finish(part)
        else:
            self._stage.drop(part.file)  # no row could be encoded
