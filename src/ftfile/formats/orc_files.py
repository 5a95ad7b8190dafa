"""`fileFormat=orc`: ORC files with footers that are completed for Spark.

Statistics of stripes and the footer are Protobuf messages. The postscript, another message, and its length in one byte
follow. In compressed files, the messages before it consist of chunks, each with its length and a flag for an
uncompressed one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import orc

from ftfile.core.errors import UnencodableRows
from ftfile.formats.columnar import (
    CollectingEncoder,
    ColumnarFormat,
    FormatCodec,
    as_sink,
    check_text,
    encoding_errors,
)
from ftfile.formats.reading.batches import batch_as
from ftfile.formats.reading.read_errors import reading_errors
from ftfile.formats.reading.schema_checks import check_problems, check_variants, columns_within
from ftfile.rows.buffers import (
    is_valid,
    leaf_types,
    leaves,
    map_leaf_types,
    rebuild,
    string_parts,
    values_of,
)
from ftfile.rows.orc_messages import bytes_field, chunks, fields, number_field, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ftfile.filters.api import ByteWriter
    from ftfile.formats.api import Encoder, Wanted


TEXT_BYTES_MAX = 1024  # of a text in statistics, like Spark's writer

# Field numbers, and their values.
_FOOTER_TYPES, _FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN = 4, 11, 2
_TYPE_ATTRIBUTES, _ATTRIBUTE_KEY, _ATTRIBUTE_VALUE = 7, 1, 2
_POSTSCRIPT_FOOTER_LENGTH, _POSTSCRIPT_COMPRESSION, _POSTSCRIPT_BLOCK_SIZE, _POSTSCRIPT_STATISTICS_LENGTH = 1, 2, 3, 5
_STRIPE_STATISTICS, _FOOTER_STATISTICS, _COLUMN_OF_STRIPE, _TEXTS_OF_COLUMN = 1, 7, 1, 4
_LEAST, _GREATEST, _LOWER_BOUND, _UPPER_BOUND = 1, 2, 4, 5
_TAIL_FOOTER, _FOOTER_STRIPES, _STRIPE_ROWS = 2, 3, 5
_SURROGATES, _AFTER_SURROGATES = 0xD800, 0xE000  # these are not characters


def amended(tail: bytes, spark_types: Mapping[int, str], *, has_long_texts: bool = False) -> bytes:
    """Return the end of a file, with all statistics of stripes and the completed footer.

    Args:
        tail: the end of the file, as pyarrow writes it.
        spark_types: Spark's names of types by their numbers, if ORC's names are not sufficient: TIMESTAMP_NTZ is stored
            as a
            number, and Spark before 4.2 does not know the type of an instant.
        has_long_texts: texts can be longer than `TEXT_BYTES_MAX`. Their statistics become bounds, like in Spark's
            writer, so
            that readers do not read copies of them.
    """
    postscript = tail[-1 - tail[-1] : -1]
    numbers = {number: value for number, value, _ in fields(postscript) if isinstance(value, int)}
    codec = numbers[_POSTSCRIPT_COMPRESSION]
    end = len(tail) - 1 - len(postscript)
    start = end - numbers[_POSTSCRIPT_FOOTER_LENGTH]
    footer = _amended(plain(tail[start:end], codec), spark_types)
    lengths = {}
    statistics = b""
    if has_long_texts:
        footer = _within(footer, _FOOTER_STATISTICS, _bounded)
        end, start = start, start - numbers[_POSTSCRIPT_STATISTICS_LENGTH]
        statistics = _within(plain(tail[start:end], codec), _STRIPE_STATISTICS, _bounded_columns)
        statistics = _packed(statistics, numbers)
        lengths[_POSTSCRIPT_STATISTICS_LENGTH] = len(statistics)
    footer = _packed(footer, numbers)
    lengths[_POSTSCRIPT_FOOTER_LENGTH] = len(footer)
    described = bytearray()
    for number, _, raw in fields(postscript):
        if number in lengths:
            described += number_field(number, lengths[number])
        else:
            described += raw
    return tail[:start] + statistics + footer + bytes(described) + bytes([len(described)])


def _packed(message: bytes, postscript: Mapping[int, int]) -> bytes:
    if postscript[_POSTSCRIPT_COMPRESSION]:
        return chunks(message, postscript[_POSTSCRIPT_BLOCK_SIZE])
    return message


def _within(message: bytes, field_number: int, change: Callable[[bytes], bytes]) -> bytes:
    """Return a message after applying a change to each of its messages with a number."""
    changed = bytearray()
    for number, value, raw in fields(message):
        if number == field_number and isinstance(value, bytes):
            changed += bytes_field(number, change(value))
        else:
            changed += raw
    return bytes(changed)


def _bounded_columns(stripe: bytes) -> bytes:
    return _within(stripe, _COLUMN_OF_STRIPE, _bounded)


def _bounded(column: bytes) -> bytes:
    return _within(column, _TEXTS_OF_COLUMN, _bounded_texts)


def _bounded_texts(statistics: bytes) -> bytes:
    """Return statistics of texts, in which a long minimum and maximum are replaced by short bounds."""
    statistics_fields = []
    for number, value, raw in fields(statistics):
        if not isinstance(value, bytes) or len(value) <= TEXT_BYTES_MAX:
            statistics_fields.append(raw)
            continue
        text = value[:TEXT_BYTES_MAX].decode(errors="ignore")  # without a partial character
        if number == _LEAST:
            statistics_fields.append(bytes_field(_LOWER_BOUND, text.encode()))
        else:
            statistics_fields.append(bytes_field(_UPPER_BOUND, _next(text).encode()) if _next(text) else raw)
    return b"".join(statistics_fields)


def _next(text: str) -> str:
    """Return a text that is greater than all texts with this beginning; empty if there is none."""
    text = text.rstrip(chr(sys.maxunicode))
    if not text:
        return ""
    code = ord(text[-1]) + 1
    return text[:-1] + chr(_AFTER_SURROGATES if code == _SURROGATES else code)


def stripe_rows(tail: bytes) -> list[int]:
    """Return the rows of each stripe, from the tail of a file in memory of ORC's library: one plain message."""
    footer = next(value for number, value, _ in fields(tail) if number == _TAIL_FOOTER and isinstance(value, bytes))
    stripes = [value for number, value, _ in fields(footer) if number == _FOOTER_STRIPES and isinstance(value, bytes)]
    return list(map(_rows_of_stripe, stripes))


def _rows_of_stripe(stripe: bytes) -> int:
    return sum(value for number, value, _ in fields(stripe) if number == _STRIPE_ROWS and isinstance(value, int))


def _amended(footer: bytes, spark_types: Mapping[int, str]) -> bytes:
    # Without a calendar, readers interpret dates before 1582 as Julian.
    fields_out, types = [], 0
    for number, value, raw in fields(footer):
        if number == _FOOTER_TYPES and isinstance(value, bytes):
            attribute = b""
            if types in spark_types:
                attribute = _attribute(spark_types[types])
            fields_out.append(bytes_field(number, value + attribute))
            types += 1
        elif number != _FOOTER_CALENDAR:
            fields_out.append(raw)
    return b"".join([*fields_out, number_field(_FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN)])


def _attribute(spark_type: str) -> bytes:
    value = bytes_field(_ATTRIBUTE_KEY, b"spark.sql.catalyst.type") + bytes_field(_ATTRIBUTE_VALUE, spark_type.encode())
    return bytes_field(_TYPE_ATTRIBUTES, value)


_READ_BATCH_ROWS = 65_536

# Arrow reads ORC's timestamps only as nanoseconds in 64 bits.
_LAST_US = 2**63 // 1000
_SECOND_US = 1_000_000
_WALL_CLOCK = pa.timestamp("us")
# With `timestamp`, a session with `spark.sql.timestampType=TIMESTAMP_NTZ` would read other times.
_SPARK_TYPES = {_WALL_CLOCK: "timestamp_ntz", pa.timestamp("us", "UTC"): "timestamp_ltz"}
_RANGE = (
    "ORC supports timestamps from 1677-09-21 00:12:44 to 2262-04-11 23:47:16.854775, and before 1970 only whole seconds"
)

# The writer's memory for a group, and for a value: a reference, a length, and a flag for null.
_GROUP_BYTES, _VALUE_BYTES = 32 << 20, 17

_DISTINCT_MAX = 0.8  # bytes of the strings of a stripe, like Spark's writer
_FOOTER_BYTES, _FOOTER_COLUMN_BYTES, _FOOTER_CHUNK_BYTES = 200, 20, 10


@dataclass(frozen=True, slots=True)
class OrcFormat(ColumnarFormat):
    """ORC."""

    name: ClassVar[str] = "orc"
    has_groups: ClassVar[bool] = True
    # Arrow's writer also accepts lz4, but then stores everything uncompressed.
    codecs: ClassVar[Mapping[str, FormatCodec]] = {
        "none": FormatCodec(),
        "snappy": FormatCodec(".snappy"),
        "zlib": FormatCodec(".zlib"),
        "zstd": FormatCodec(".zstd"),
    }

    def check_schema(self, schema: pa.Schema) -> None:
        ColumnarFormat.check_schema(self, schema)
        check_variants(self.name, schema)
        check_problems(self.name, _problems_of_times(schema))

    def check_rows(self, batch: pa.RecordBatch) -> None:
        check_text(batch)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for leaf in leaves(column):
                if not pa.types.is_timestamp(leaf.type) or leaf.type.tz is None:
                    continue
                instants_us = values_of(leaf, np.int64)
                # Before 1970, Arrow writes negative fractions of a second, and Spark fails at them.
                within = (np.abs(instants_us) <= _LAST_US) & ((instants_us >= 0) | (instants_us % _SECOND_US == 0))
                if not (within | ~is_valid(leaf)).all():
                    raise UnencodableRows(f"column `{name}`: a timestamp is out of range: {_RANGE}")

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        return _OrcEncoder(schema, target, self)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with reading_errors(file, "an ORC file"):
            opened = orc.ORCFile(file)
            yield from _rows(opened, range(opened.nstripes), schema)

    def decode_some(self, file: BinaryIO, schema: pa.Schema, wanted: Wanted) -> tuple[int, Iterator[pa.RecordBatch]]:
        span = wanted.span
        if span is None:
            return 0, self.decode(file, schema)
        with reading_errors(file, "an ORC file"):
            opened = orc.ORCFile(file)
            stripes = span.chosen(opened.nstripes)
            counts = stripe_rows(opened.reader.serialized_file_tail())
            left_out = sum(counts) - sum(counts[number] for number in stripes)

        def rows() -> Iterator[pa.RecordBatch]:
            with reading_errors(file, "an ORC file"):
                yield from _rows(opened, stripes, schema)

        return left_out, rows()


def _rows(opened: orc.ORCFile, stripes: Iterable[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    present = opened.schema.names
    column_names = [name for name in schema.names if name in present] or present[:1]
    # pyarrow interprets a name with a dot as a field of a struct.
    names = column_names
    if any("." in name for name in present):
        names = None
    for number in stripes:
        stripe = opened.read_stripe(number, columns=names)
        for start in range(0, stripe.num_rows, _READ_BATCH_ROWS):
            yield batch_as(stripe.slice(start, _READ_BATCH_ROWS), schema)


class _OrcEncoder(CollectingEncoder):
    """Writes a group as a stripe."""

    def __init__(self, schema: pa.Schema, target: ByteWriter, options: OrcFormat) -> None:
        super().__init__(schema, target, options.check_rows)
        self._codec = options.compression.replace("none", "uncompressed")
        self._leaf_columns = len(list(chain.from_iterable(map(leaf_types, schema.types))))
        # The writer allocates memory for a group of values of every column at the start.
        self.group_rows_max = min(self.group_rows_max, _GROUP_BYTES // (_VALUE_BYTES * max(1, self._leaf_columns)) + 1)
        # Local times are stored as numbers, like by Spark's writer.
        stored = [map_leaf_types(kind, _stored_type) for kind in schema.types]
        self._stored = pa.schema(zip(schema.names, stored, strict=True))
        self._has_long_texts = False
        self._sink = _Tail(target)
        self._writer = self._open(as_sink(self._sink))

    def _open(self, sink: Any) -> orc.ORCWriter:  # noqa: ANN401 - pyarrow has no types
        return orc.ORCWriter(
            sink,
            compression=self._codec,
            stripe_size=1,  # so that every batch is a stripe
            batch_size=self.group_rows_max,
            dictionary_key_size_threshold=_DISTINCT_MAX,
        )

    def _write_group(self, rows: pa.Table) -> None:
        self._has_long_texts = self._has_long_texts or _has_long_texts(rows)
        with encoding_errors("ORC"):
            self._writer.write(self._laid_out(rows))

    def _sample_bytes(self, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        with encoding_errors("ORC"):
            writer = self._open(sink)
            writer.write(self._laid_out(rows))
            writer.close()
            size_bytes: int = sink.tell()
        return size_bytes

    def _footer_bytes(self, groups: int) -> int:
        return _FOOTER_BYTES + self._leaf_columns * (_FOOTER_COLUMN_BYTES + _FOOTER_CHUNK_BYTES * groups)

    def _end(self) -> None:
        with encoding_errors("ORC"):
            if not self._groups:
                self._writer.write(self._laid_out(pa.Table.from_batches([], self._schema)))
            self._sink.is_holding = True
            self._writer.close()
        types = enumerate(columns_within(self._schema), start=1)
        spark_types = {number: _SPARK_TYPES[arrow] for number, (_, arrow) in types if arrow in _SPARK_TYPES}
        self._target.write(amended(bytes(self._sink.held), spark_types, has_long_texts=self._has_long_texts))

    def _laid_out(self, rows: pa.Table) -> pa.Table:
        # Nested columns are copied: within them, the writer ignores slicing and counts a value under a null.
        columns = []
        for kind, column in zip(self._stored.types, rows.columns, strict=True):
            leaf = _viewed
            if pa.types.is_nested(kind):
                leaf = _copied
            columns.append(pa.chunked_array([rebuild(chunk, kind, leaf) for chunk in column.chunks], kind))
        return pa.Table.from_arrays(columns, schema=self._stored)


class _Tail:
    """Passes a file to its target, and holds its end back."""

    def __init__(self, target: ByteWriter) -> None:
        self._target = target
        self.is_holding = False
        self.held = bytearray()

    @property
    def position(self) -> int:
        return self._target.position + len(self.held)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        if not self.is_holding:
            return self._target.write(data)
        self.held += data
        return len(data)


def _problems_of_times(schema: pa.Schema) -> Iterator[str]:
    for path, arrow in columns_within(schema):
        if pa.types.is_time(arrow):
            yield f"column `{path}`: TIME, which ORC does not support; use cast(column AS STRING), or parquet"


def _stored_type(leaf: pa.DataType) -> pa.DataType:
    if leaf == _WALL_CLOCK:
        return pa.int64()
    return leaf


def _has_long_texts(rows: pa.Table) -> bool:
    for column in rows.columns:
        for leaf in chain.from_iterable(map(leaves, column.chunks)):
            if pa.types.is_string(leaf.type) and np.diff(string_parts(leaf)[0]).max(initial=0) > TEXT_BYTES_MAX:
                return True
    return False


def _viewed(leaf: pa.Array, target: pa.DataType) -> pa.Array:
    if leaf.type == target:
        return leaf
    return leaf.view(target)


def _copied(leaf: pa.Array, target: pa.DataType) -> pa.Array:
    return pa.concat_arrays([_viewed(leaf, target)])
