"""`fileFormat=arrow`: Arrow IPC files, also known as Feather, which readers map into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa

from ftfile.arrays.nested import rebuild
from ftfile.arrays.spark_types import spark_schema_json
from ftfile.encoding.api import Format
from ftfile.encoding.base.codec_options import codec_from_options
from ftfile.encoding.base.columnar_writer import CollectingEncoder, as_sink, check_text, encoding_errors
from ftfile.encoding.base.line_reader import batch_of, corrupt
from ftfile.encoding.base.segments import RowJoiner, RowSegments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.encoding.api import ByteWriter, Encoder, Joiner, Limits, SegmentCodec

__all__ = ("ArrowFormat",)

_CODECS = ("none", "lz4", "zstd")
_LEVELS = {"zstd": 1}
_FOOTER_BYTES, _FOOTER_BATCH_BYTES = 100, 24


@dataclass(frozen=True, slots=True)
class ArrowFormat(Format):
    """Arrow IPC files.

    Attributes:
        compression: of each buffer; `lz4` is the frame format.
        level: of the codec; None for one that costs little.
    """

    name: ClassVar[str] = "arrow"
    open_files_max: ClassVar[int] = 32

    compression: str = "zstd"
    level: int | None = None

    @property
    def extension(self) -> str:
        """Return `.arrow`, whatever the codec: readers go by it."""
        return ".arrow"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> ArrowFormat:
        """See `Format.from_options`."""
        return cls(*codec_from_options(cls.name, options, _CODECS, _LEVELS))

    def definition(self, schema: pa.Schema) -> dict[str, Any]:  # noqa: ARG002 - the file has its schema
        """See `Format.definition`; a reader needs nothing, but another codec is another encoding."""
        return {"compression": self.compression, "compressionLevel": self.level}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> ArrowFormat:
        """See `Format.from_definition`."""
        return cls.from_options(definition)

    def check_schema(self, schema: pa.Schema) -> None:
        """See `Format.check_schema`; Arrow holds every type that Spark sends."""
        spark_schema_json(schema)

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        """See `Format.encoder`."""
        return _ArrowEncoder(schema, target, self.compression, self.level or _LEVELS.get(self.compression))

    def segments(self, schema: pa.Schema) -> SegmentCodec:
        """See `Format.segments`."""
        return RowSegments(schema, check_text)

    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:
        """See `Format.joiner`."""
        return RowJoiner(self.encoder(schema, target), RowSegments(schema), limits)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See `Format.decode`; what is read is validated: it has no checksums, and would be taken at its word."""
        try:
            present = pa.ipc.open_file(file).schema.names
            wanted = [place for place, name in enumerate(present) if name in schema.names] or [0]
            options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
            opened = pa.ipc.open_file(file, options=options)
            for number in range(opened.num_record_batches):
                batch = opened.get_batch(number)
                batch.validate(full=True)
                columns = [
                    rebuild(batch.column(column.name), column.type, pa.Array.cast)
                    if column.name in present
                    else pa.nulls(batch.num_rows, column.type)
                    for column in schema
                ]
                yield batch_of(columns, schema, batch.num_rows)
        except (pa.ArrowException, OSError) as error:  # Arrow's errors about bytes are OSErrors
            raise corrupt(file, "an Arrow file", error) from error


class _ArrowEncoder(CollectingEncoder):
    """A group is a record batch, which readers take as a whole."""

    group_rows_max = 65_536
    group_bytes_max = 16 << 20

    def __init__(self, schema: pa.Schema, target: ByteWriter, codec: str, level: int | None) -> None:
        super().__init__(schema, target)
        codecs = None if codec == "none" else pa.Codec(codec, level)
        self._options = pa.ipc.IpcWriteOptions(compression=codecs, use_threads=False)
        self._writer = pa.ipc.new_file(as_sink(target), schema, options=self._options)

    def _check(self, batch: pa.RecordBatch) -> None:
        check_text(batch)

    def _write_group(self, rows: pa.Table) -> None:
        with encoding_errors("Arrow"):
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
        with encoding_errors("Arrow"):
            self._writer.close()
