"""`fileFormat=orc`: stripes large enough to scan fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import orc

from ftfile.core.errors import UnencodableRows
from ftfile.encoding.api import Format
from ftfile.encoding.codecs import codec_from_options
from ftfile.encoding.collecting import CollectingEncoder, as_sink, check_text, encoding_errors
from ftfile.encoding.line_reader import batch_of, corrupt
from ftfile.encoding.memory import is_valid, values_of
from ftfile.encoding.nested import leaf_types, leaves, rebuild
from ftfile.encoding.segments import RowJoiner, RowSegments
from ftfile.encoding.spark_types import spark_schema_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.encoding.api import ByteWriter, Encoder, Joiner, Limits, SegmentCodec

__all__ = ("OrcFormat",)

_READ_BATCH_ROWS = 65_536

# What Spark calls the codecs: its name for files. The writer knows lz4, too, and stores everything as it is.
_EXTENSIONS = {"none": "", "snappy": ".snappy", "zlib": ".zlib", "zstd": ".zstd"}

# Arrow reads ORC's timestamps as nanoseconds in 64 bits, and no others.
_LAST_US = 2**63 // 1000
_RANGE = "ORC takes those from 1677-09-21 00:12:43.145225 to 2262-04-11 23:47:16.854775"

_FOOTER_BYTES, _FOOTER_COLUMN_BYTES, _FOOTER_CHUNK_BYTES = 200, 20, 10


@dataclass(frozen=True, slots=True)
class OrcFormat(Format):
    """ORC.

    Attributes:
        compression: a name of Spark's.
    """

    name: ClassVar[str] = "orc"
    open_files_max: ClassVar[int] = 32

    compression: str = "zstd"

    @property
    def extension(self) -> str:
        """Return the ending that Spark gives such files, as in `.zstd.orc`."""
        return f"{_EXTENSIONS[self.compression]}.orc"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> OrcFormat:
        """See `Format.from_options`."""
        return cls(codec_from_options(cls.name, options, _EXTENSIONS, ())[0])

    def definition(self, schema: pa.Schema) -> dict[str, Any]:  # noqa: ARG002 - the file has its schema
        """See `Format.definition`; a reader needs nothing, but another codec is another encoding."""
        return {"compression": self.compression}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> OrcFormat:
        """See `Format.from_definition`."""
        return cls.from_options(definition)

    def check_schema(self, schema: pa.Schema) -> None:
        """See `Format.check_schema`; ORC holds every type that Spark sends."""
        spark_schema_json(schema)

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        """See `Format.encoder`."""
        return _OrcEncoder(schema, target, self.compression)

    def segments(self, schema: pa.Schema) -> SegmentCodec:
        """See `Format.segments`."""
        return RowSegments(schema, _check_rows)

    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:
        """See `Format.joiner`."""
        return RowJoiner(self.encoder(schema, target), RowSegments(schema), limits)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See `Format.decode`."""
        try:
            opened = orc.ORCFile(file)
            present = opened.schema.names
            wanted = [name for name in schema.names if name in present] or present[:1]
            # A name with a dot in it is taken for a field of a struct.
            names = None if any("." in name for name in present) else wanted
            for number in range(opened.nstripes):
                stripe = opened.read_stripe(number, columns=names)
                for start in range(0, stripe.num_rows, _READ_BATCH_ROWS):
                    rows = stripe.slice(start, _READ_BATCH_ROWS)
                    columns = [
                        rebuild(rows.column(column.name), column.type, pa.Array.cast)
                        if column.name in present
                        else pa.nulls(rows.num_rows, column.type)
                        for column in schema
                    ]
                    yield batch_of(columns, schema, rows.num_rows)
        except (pa.ArrowException, OSError) as error:  # Arrow's errors about bytes are OSErrors
            raise corrupt(file, "an ORC file", error) from error


def _check_rows(batch: pa.RecordBatch) -> None:
    """Look for values that would not come back.

    Raises:
        UnencodableRows: names the column.
    """
    check_text(batch)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for leaf in leaves(column):
            if pa.types.is_timestamp(leaf.type):
                microseconds = values_of(leaf, np.int64)[is_valid(leaf)]
                if len(microseconds) and (microseconds.min() < -_LAST_US or microseconds.max() > _LAST_US):
                    raise UnencodableRows(f"column `{name}`: a timestamp is out of range: {_RANGE}")


class _OrcEncoder(CollectingEncoder):
    """A group is a stripe."""

    def __init__(self, schema: pa.Schema, target: ByteWriter, codec: str) -> None:
        super().__init__(schema, target)
        self._codec = codec
        self._leaf_columns = sum(1 for column in schema for _ in leaf_types(column.type))
        self._writer = self._open(as_sink(target))

    def _open(self, sink: Any) -> orc.ORCWriter:  # noqa: ANN401 - pyarrow has no types
        # Every batch that it is given is more than a stripe may be, and so a stripe.
        codec = self._codec.replace("none", "uncompressed")
        return orc.ORCWriter(
            sink,
            compression=codec,
            stripe_size=1,
            batch_size=self.group_rows_max,
            dictionary_key_size_threshold=_DISTINCT_MAX,
        )

    def _check(self, batch: pa.RecordBatch) -> None:
        _check_rows(batch)

    def _write_group(self, rows: pa.Table) -> None:
        with encoding_errors("ORC"):
            self._writer.write(_laid_out(rows))

    def _sample_bytes(self, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        with encoding_errors("ORC"):
            writer = self._open(sink)
            writer.write(_laid_out(rows))
            writer.close()
            size_bytes: int = sink.tell()
        return size_bytes

    def _footer_bytes(self, groups: int) -> int:
        return _FOOTER_BYTES + self._leaf_columns * (_FOOTER_COLUMN_BYTES + _FOOTER_CHUNK_BYTES * groups)

    def _end(self) -> None:
        with encoding_errors("ORC"):
            if not self._groups:
                self._writer.write(pa.Table.from_batches([], self._schema))
            self._writer.close()


_DISTINCT_MAX = 0.8  # of a stripe's strings, as Spark's own writer has it


def _laid_out(rows: pa.Table) -> pa.Table:
    """Return rows with nested columns laid out anew.

    Within nested ones, the writer takes slices for what they are slices of, and a value under a null for one more.
    """
    columns = [
        pa.chunked_array([rebuild(chunk, column.type, _copied) for chunk in column.chunks], column.type)
        if pa.types.is_nested(column.type)
        else column
        for column in rows.columns
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _copied(leaf: pa.Array, _: pa.DataType) -> pa.Array:
    return pa.concat_arrays([leaf])
