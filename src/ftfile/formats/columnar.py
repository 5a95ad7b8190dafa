"""The base of columnar formats, which encode rows in groups.

Their segments are Arrow batches in a spool, which are encoded once, when a part is assembled from them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

from ftfile.core.errors import ConfigError, CorruptData, EncodingError, UnencodableRows
from ftfile.formats.api import Encoder, Format, Joiner, SegmentCodec, Taken
from ftfile.formats.reading.batches import batch_as
from ftfile.rows.messages import read_rows
from ftfile.rows.spark_types import spark_schema_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ftfile.filters.api import ByteWriter
    from ftfile.formats.api import Limits
    from ftfile.rows.statistics.collector import Collector


__all__ = (
    "HELD_BYTES",
    "BufferedTarget",
    "CollectingEncoder",
    "ColumnarFormat",
    "FormatCodec",
    "PyarrowOutput",
    "RowJoiner",
    "RowSegments",
    "check_text",
    "encoding_errors",
)


_CODEC = "zstd"
_LENGTH_BYTES = 8
_SEGMENT_CODEC = "lz4"
_LZ4_RATIO_MAX = 255
_SAMPLE_ROWS = 10_000
_MARK_BYTES = 8  # the maximum length of a format's name at the start of a file
HELD_BYTES = 256 << 10  # bytes of small writes that are joined
_RATIO_GUESS = 0.4  # assumed ratio of the length in the file to the memory, until a file was written


class FormatCodec(NamedTuple):
    """A codec within files of a format."""

    label: str = ""  # in file names; in Avro, within the file
    level: int | None = None  # a fast level, used by default; None if the writer has no levels


@dataclass(frozen=True, slots=True)
class ColumnarFormat(Format):
    """A format that encodes rows in groups, and compresses them within the file."""

    open_files_max: ClassVar[int] = 32
    # The files contain their codec and the id of their key.
    settings_of_writers: ClassVar[frozenset[str]] = frozenset({"compression", "compressionLevel", "encryptionKeyId"})
    codecs: ClassVar[Mapping[str, FormatCodec]] = {"none": FormatCodec()}  # by values of the option `compression`

    compression: str = _CODEC  # a key of `codecs`
    level: int | None = None  # of the codec; None for the default of the codec

    @property
    def extension(self) -> str:
        """Return Spark's ending for such files, such as `.zstd.parquet`."""
        return f"{self.codecs[self.compression].label}.{self.name}"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - `Self` came with Python 3.11
        return cls(*cls.codec_from_options(options))

    @classmethod
    def codec_from_options(cls, options: Mapping[str, Any]) -> tuple[str, int | None]:
        """Return the codec and its level, None if not set; `ConfigError` for an unknown codec or level."""
        compression, level = options.get("compression") or cls().compression, options.get("compressionLevel")
        if compression not in cls.codecs:
            raise ConfigError(
                f"option compression={compression!r}: for {cls.name} it must be one of {', '.join(cls.codecs)}"
            )
        if level is None:
            return compression, None
        if cls.codecs[compression].level is None:
            leveled = [name for name, codec in cls.codecs.items() if codec.level is not None]
            if leveled:
                advice = f"only {', '.join(leveled)} have levels"
            else:
                advice = f"no codec of {cls.name} has levels"
            raise ConfigError(f"compressionLevel={level} with compression={compression}: {advice}")
        name = "gzip" if compression == "deflate" else compression  # pyarrow's name for the same levels
        low, high = pa.Codec.minimum_compression_level(name), pa.Codec.maximum_compression_level(name)
        if not low <= level <= high:
            raise ConfigError(f"option compressionLevel={level}: for {compression} it must be {low} to {high}")
        return compression, level

    def definition(self, schema: pa.Schema) -> dict[str, Any]:  # noqa: ARG002 - the file has its schema
        # A reader does not need it, but another codec is another encoding.
        return {"compression": self.compression, "compressionLevel": self.level}

    @property
    def used_level(self) -> int | None:
        """Return the configured level, or the fast one."""
        return self.level or self.codecs[self.compression].level

    def check_schema(self, schema: pa.Schema) -> None:
        spark_schema_json(schema)  # all types of Spark are supported

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Refuse rows that no file can store; by default a file stores all.

        Raises:
            UnencodableRows: names the column.
        """

    def segments(self, schema: pa.Schema) -> SegmentCodec:
        return RowSegments(schema, self.check_rows)

    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:
        return RowJoiner(self.encoder(schema, target), RowSegments(schema), limits)


class CollectingEncoder(Encoder):
    """Writes rows in groups; subclasses define what a group is in the file.

    `check` is `ColumnarFormat.check_rows`, if the format overrides it.
    """

    group_rows_max: int = 250_000
    group_bytes_max: int = 64 << 20  # in memory

    def __init__(
        self, schema: pa.Schema, target: ByteWriter, check: Callable[[pa.RecordBatch], None] | None = None
    ) -> None:
        self._schema = schema
        self._check = check
        self._target = target
        self._start_bytes = target.position
        self._groups = 0
        self._ratio: float | None = None
        self._encoded_bytes = 0
        self._held_bytes = 0
        self._buffer: list[pa.RecordBatch] = []
        self._buffer_rows = 0
        self._buffer_bytes = 0

    @abstractmethod
    def _write_group(self, rows: pa.Table) -> None:
        """Write rows to the target; `EncodingError` if they cannot be encoded."""

    @abstractmethod
    def _sample_bytes(self, rows: pa.Table) -> int:
        """Return the length of a file with these rows."""

    def _footer_bytes(self, groups: int) -> int:  # noqa: ARG002 - for those that have one
        """Return the approximate bytes of a file with this number of groups in addition to its rows."""
        return 0

    def _end(self) -> None:
        """Write the end of the file."""

    def write(self, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
        if not batch.num_rows:
            return 0
        if self._check is not None:
            self._check(batch)
        taken = 0
        while taken < batch.num_rows:
            rows = self._rows_to_take(batch.slice(taken), limit_bytes)
            self._collect(batch.slice(taken, rows))
            taken += rows
            if limit_bytes is not None and self._reaches(limit_bytes):
                break
        return taken

    @property
    def size_bytes(self) -> int:
        # Buffered rows are assumed to have the ratio of written rows.
        return self._estimate(self._ratio or _RATIO_GUESS)

    @property
    def buffered_bytes(self) -> int:
        return self._buffer_bytes

    def finish(self) -> None:
        self.flush()
        self._end()

    def _estimate(self, ratio: float) -> int:
        written = self._target.position - self._start_bytes
        unwritten = self._buffer_bytes + self._held_bytes
        return int(written + unwritten * ratio + self._footer_bytes(self._groups + bool(self._buffer)))

    def _rows_to_take(self, batch: pa.RecordBatch, limit_bytes: int | None) -> int:
        """Return the number of rows that fit into the group and, by estimate, below the limit; at least one."""
        row_bytes = batch.nbytes / batch.num_rows + 1
        rows = min(self.group_rows_max - self._buffer_rows, (self.group_bytes_max - self._buffer_bytes) / row_bytes)
        if limit_bytes is not None:
            ratio = self._ratio or 1
            rows = min(rows, (limit_bytes - self._estimate(ratio)) / (row_bytes * ratio))
        taken: int = min(batch.num_rows, math.ceil(rows))
        return max(1, taken)

    def _collect(self, batch: pa.RecordBatch) -> None:
        if batch.get_total_buffer_size() > 2 * batch.nbytes:
            # A slice would keep the memory of the whole batch.
            batch = pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in batch.columns], schema=batch.schema)
        if self._buffer_bytes + batch.nbytes > 2 * self.group_bytes_max:
            # A row much larger than its neighbours: a group must be one batch, with strings below 2 GiB.
            self.flush()
        self._buffer.append(batch)
        self._buffer_rows += batch.num_rows
        self._buffer_bytes += batch.nbytes
        if self._buffer_rows >= self.group_rows_max or self._buffer_bytes >= self.group_bytes_max:
            self.flush()

    def _reaches(self, limit_bytes: int) -> bool:
        if self._ratio is None and self._estimate(1) >= limit_bytes:
            # Here the compression ratio of the rows matters: encode a sample and discard it.
            self._ratio = self._ratio_of(pa.Table.from_batches(self._buffer))
        return self.size_bytes >= limit_bytes

    def _ratio_of(self, rows: pa.Table) -> float:
        sample = rows.slice(0, _SAMPLE_ROWS)
        memory_bytes: int = sample.nbytes
        return self._sample_bytes(sample) / max(1, memory_bytes)

    def flush(self) -> None:
        if not self._buffer:
            return
        rows, before = pa.Table.from_batches(self._buffer), self._target.position
        self._write_group(rows)
        self._groups += 1
        self._encoded_bytes += self._buffer_bytes
        if self._target.position > before + _MARK_BYTES:
            self._held_bytes = 0
            self._ratio = (self._target.position - self._start_bytes) / max(1, self._encoded_bytes)
        else:
            # A library can buffer a little data of each column, which no size includes.
            self._held_bytes += self._buffer_bytes
            self._ratio = self._ratio or self._ratio_of(rows)
        self._buffer, self._buffer_rows, self._buffer_bytes = [], 0, 0


class RowSegments(SegmentCodec):
    """Segments that are one Arrow batch in one LZ4 frame: they live for a few batches, so speed matters more than size.

    `check` raises `UnencodableRows` for rows that no part can store.
    """

    def __init__(self, schema: pa.Schema, check: Callable[[pa.RecordBatch], None] | None = None) -> None:
        self.schema = schema
        self._check = check

    def encode(self, batch: pa.RecordBatch, counts: Sequence[int]) -> Iterator[tuple[int, bytes | memoryview]]:
        if self._check is not None:
            self._check(batch)
        codec, start = pa.Codec(_SEGMENT_CODEC), 0
        for number, count in enumerate(counts):
            message = batch.slice(start, count).serialize()
            yield number, message.size.to_bytes(_LENGTH_BYTES, "little") + codec.compress(message, asbytes=True)
            start += count

    def decode(self, data: bytes, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield batch_as(self.batch(data, path), schema)

    def batch(self, data: bytes, path: str) -> pa.RecordBatch:
        """Return all rows of a segment."""
        size_bytes = int.from_bytes(data[:_LENGTH_BYTES], "little")
        if size_bytes > _LZ4_RATIO_MAX * len(data):
            raise CorruptData(
                path, "an Arrow batch in an LZ4 frame", f"{len(data)} bytes that claim to decompress to {size_bytes}"
            )
        try:
            message = pa.Codec(_SEGMENT_CODEC).decompress(data[_LENGTH_BYTES:], size_bytes)
            return read_rows(message, self.schema)
        except (pa.ArrowException, OSError) as error:
            raise CorruptData(path, "an Arrow batch in an LZ4 frame", str(error)) from error


class RowJoiner(Joiner):
    """Encodes the rows of segments as one file; a rest skips rows. Sizes are estimates, also with `strict`."""

    def __init__(self, encoder: Encoder, segments: RowSegments, limits: Limits) -> None:
        self.rows = 0
        self._encoder = encoder
        self._segments = segments
        self._limits = limits
        self._statistics: Collector | None = None

    def collect(self, columns: Collection[str]) -> None:
        from ftfile.rows.statistics.collector import Collector  # noqa: PLC0415 - readers do not need it

        compares_text = not self._encoder.computes_text
        self._statistics = Collector(self._segments.schema, columns, compares_text=compares_text)

    def statistics(self) -> dict[str, tuple[Any, ...]]:
        if self._statistics is None:
            return {}
        if self._encoder.computes_text:
            self._statistics.set_text(self._encoder.text_extremes())
        return self._statistics.entries()

    def take(self, data: bytes, rows: int, skip_rows: int) -> Taken:
        batch = self._segments.batch(data, "a segment").slice(skip_rows)
        if batch.num_rows < rows:
            raise CorruptData("a segment", f"{skip_rows + rows} rows", f"{skip_rows + batch.num_rows}")
        if self._limits.max_rows is None:
            room = rows
        else:
            room = min(rows, self._limits.max_rows - self.rows)
        taken = self._encoder.write(batch.slice(0, room), self._limits.max_bytes)
        if self._statistics is not None:
            self._statistics.update(batch.slice(0, taken))
        self.rows += taken
        return Taken(taken, 0)

    def is_full(self) -> bool:
        return self._limits.are_reached(self._encoder.size_bytes, self.rows)

    def finish(self) -> None:
        self._encoder.finish()


def check_text(batch: pa.RecordBatch) -> None:
    """Raise `UnencodableRows` for strings that are not UTF-8, which Spark allows."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise UnencodableRows(f"column `{name}` cannot be encoded: {error}") from error


@contextmanager
def encoding_errors(format_name: str) -> Iterator[None]:
    """Translate Arrow's errors into `EncodingError` within the block."""
    try:
        yield
    except pa.ArrowException as error:
        raise EncodingError(f"rows cannot be encoded as {format_name}: {error}") from error


class BufferedTarget:
    """A target that joins small writes.

    A library writes each page and each header separately, and each write passes filters, a checksum and a system call.
    """

    def __init__(self, target: ByteWriter) -> None:
        self._target = target
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    @property
    def position(self) -> int:
        """Return the number of written bytes, including the held ones."""
        return self._target.position + self._held_bytes

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append data, which the caller can reuse at once."""
        piece = bytes(data)
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes >= HELD_BYTES:
            self.flush()
        return len(piece)

    def flush(self) -> None:
        """Write the held bytes to the target."""
        data = b"".join(self._pieces)
        self._pieces, self._held_bytes = [], 0
        if data:
            self._target.write(data)


class PyarrowOutput:
    """A target as an output file of pyarrow, whose errors are raised after the call of pyarrow.

    An exception of `write` would pass through compiled code, and pyarrow would replace it by an OSError, also Ctrl-C.
    So after an error, the file accepts all bytes and drops them. Seen with pyarrow 26.
    """

    closed = False

    def __init__(self, target: ByteWriter) -> None:
        self._target = target
        self._error: BaseException | None = None
        self._dropped_bytes = 0
        self.file = pa.PythonFile(self, mode="w")

    @contextmanager
    def encoding(self, format_name: str) -> Iterator[None]:
        """Raise the error of the target after a call of pyarrow; translate errors of Arrow, see `encoding_errors`."""
        try:
            with encoding_errors(format_name):
                yield
        finally:
            if self._error is not None:
                raise self._error

    def write(self, data: bytes) -> int:
        """Write bytes to the target."""
        if self._error is None:
            try:
                return self._target.write(data)
            except BaseException as error:  # Ctrl-C, too; `encoding` raises it
                self._error = error
        self._dropped_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes."""
        return self._target.position + self._dropped_bytes

    def flush(self) -> None:
        """Do nothing: the creator of the target makes it durable."""

    def close(self) -> None:
        """Do nothing: the creator of the target closes it."""
