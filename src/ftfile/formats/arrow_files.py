"""`fileFormat=arrow`: Arrow IPC files, also called Feather, which readers can map into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, ClassVar

import pyarrow as pa

from ftfile.formats.columnar import (
    CollectingEncoder,
    ColumnarFormat,
    FormatCodec,
    PyarrowOutput,
    check_text,
    encoding_errors,
)
from ftfile.formats.reading.batches import batch_as
from ftfile.formats.reading.lent_file import LentFile
from ftfile.formats.reading.read_errors import reading_errors
from ftfile.rows.buffers import map_leaf_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ftfile.filters.api import ByteWriter
    from ftfile.formats.api import Encoder


_FOOTER_BYTES, _FOOTER_BATCH_BYTES = 100, 24


@dataclass(frozen=True, slots=True)
class ArrowFormat(ColumnarFormat):
    """Arrow IPC files; LZ4 uses its frame format."""

    name: ClassVar[str] = "arrow"
    codecs: ClassVar[Mapping[str, FormatCodec]] = {
        "none": FormatCodec(),
        "lz4": FormatCodec(),
        "zstd": FormatCodec(level=1),
    }

    def check_rows(self, batch: pa.RecordBatch) -> None:
        check_text(batch)

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        return _ArrowEncoder(schema, target, self)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        return _rows(file, schema, _check)


def decode_lenient(file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of another program, whose strings can be invalid UTF-8."""
    return _rows(file, schema, _check_all_but_texts)


def _rows(file: BinaryIO, schema: pa.Schema, check: Callable[[pa.RecordBatch], None]) -> Iterator[pa.RecordBatch]:
    lent = LentFile(file)
    with reading_errors(file, "an Arrow file"), lent:
        present = pa.ipc.open_file(lent).schema.names
        column_places = [place for place, name in enumerate(present) if name in schema.names] or [0]
        options = pa.ipc.IpcReadOptions(included_fields=column_places, use_threads=False)
        opened = pa.ipc.open_file(lent, options=options)
        for number in range(opened.num_record_batches):
            batch = opened.get_batch(number)
            check(batch)  # the format has no checksums
            yield batch_as(batch, schema)


def _check(batch: pa.RecordBatch) -> None:
    batch.validate(full=True)


def _check_all_but_texts(batch: pa.RecordBatch) -> None:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        for column in batch.columns:
            column.view(map_leaf_types(column.type, _without_encoding)).validate(full=True)


def _without_encoding(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.binary()
    return kind


class _ArrowEncoder(CollectingEncoder):
    """Writes a group as a record batch, which readers process as a whole."""

    group_rows_max = 65_536
    group_bytes_max = 16 << 20

    def __init__(self, schema: pa.Schema, target: ByteWriter, options: ArrowFormat) -> None:
        super().__init__(schema, target, options.check_rows)
        if options.compression == "none":
            codec = None
        else:
            codec = pa.Codec(options.compression, options.used_level)
        self._options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        self._output = PyarrowOutput(target)
        with self._output.encoding("Arrow"):
            self._writer = pa.ipc.new_file(self._output.file, schema, options=self._options)

    def _write_group(self, rows: pa.Table) -> None:
        with self._output.encoding("Arrow"):
            self._writer.write_batch(rows.combine_chunks().to_batches()[0])

    def _sample_bytes(self, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        with encoding_errors("Arrow"), pa.ipc.new_file(sink, self._schema, options=self._options) as writer:
            writer.write_batch(rows.combine_chunks().to_batches()[0])
            size_bytes: int = sink.tell()
        return size_bytes

    def _footer_bytes(self, groups: int) -> int:
        return _FOOTER_BYTES + _FOOTER_BATCH_BYTES * groups

    def _end(self) -> None:
        with self._output.encoding("Arrow"):
            self._writer.close()
