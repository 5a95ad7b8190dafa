"""`fileFormat=orc`: ORC files with footers that are completed for Spark.

A file ends with three Protobuf messages, the statistics of stripes, the footer and the postscript, and with the length
of the postscript in one byte. In a compressed file, the statistics and the footer are divided into chunks. A chunk
begins with its length, and with a flag that it is not compressed.
"""

from __future__ import annotations

import io
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
    check_text,
    encoding_errors,
)
from ftfile.formats.reading.batches import batch_as
from ftfile.formats.reading.read_errors import corrupt, reading_errors
from ftfile.formats.reading.schema_checks import check_problems, check_variants, list_columns_within
from ftfile.rows.buffers import (
    is_valid,
    leaf_types,
    leaves,
    map_leaf_types,
    rebuild,
    string_parts,
    values_of,
)
from ftfile.rows.orc_messages import bytes_field, chunks, decode_message, fields, number_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ftfile.filters.api import ByteWriter
    from ftfile.formats.api import Encoder, Wanted


TEXT_BYTES_MAX = 1024  # the length of a text in statistics, as in Spark's writer

# Numbers of fields, and values of fields.
_FOOTER_TYPES, _FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN = 4, 11, 2
_TYPE_ATTRIBUTES, _ATTRIBUTE_KEY, _ATTRIBUTE_VALUE = 7, 1, 2
_POSTSCRIPT_FOOTER_LENGTH, _POSTSCRIPT_COMPRESSION, _POSTSCRIPT_BLOCK_SIZE, _POSTSCRIPT_STATISTICS_LENGTH = 1, 2, 3, 5
_STRIPE_STATISTICS, _FOOTER_STATISTICS, _COLUMN_OF_STRIPE, _TEXTS_OF_COLUMN = 1, 7, 1, 4
_LEAST, _GREATEST, _LOWER_BOUND, _UPPER_BOUND = 1, 2, 4, 5
_TAIL_FOOTER, _FOOTER_STRIPES, _STRIPE_ROWS = 2, 3, 5
_SURROGATES, _AFTER_SURROGATES = 0xD800, 0xE000  # codes in this range are not characters


def amend_tail(tail: bytes, spark_types: Mapping[int, str], *, has_long_texts: bool = False) -> bytes:
    """Return the end of a file, with the completed footer, and with bounds of long texts in the statistics.

    Args:
        tail: the end of the file, as pyarrow writes it.
        spark_types: Spark's names of types by the numbers of types, where ORC's names are not sufficient. TIMESTAMP_NTZ
            is stored as a number, and Spark before 4.2 does not know the type of an instant.
        has_long_texts: True if texts can be longer than `TEXT_BYTES_MAX`. Then bounds replace long texts in statistics,
            as in Spark's writer, so that readers do not read copies of the texts.
    """
    postscript_bytes = tail[-1]
    postscript = tail[-1 - postscript_bytes : -1]
    settings = {number: value for number, value, _ in fields(postscript) if isinstance(value, int)}
    codec = settings[_POSTSCRIPT_COMPRESSION]
    footer_end = len(tail) - 1 - len(postscript)
    footer_start = footer_end - settings[_POSTSCRIPT_FOOTER_LENGTH]
    footer = _amend_footer(decode_message(tail[footer_start:footer_end], codec), spark_types)
    unchanged_end = footer_start
    lengths = {}
    statistics = b""
    if has_long_texts:
        footer = _change_within(footer, _FOOTER_STATISTICS, _bound_column)
        unchanged_end = footer_start - settings[_POSTSCRIPT_STATISTICS_LENGTH]
        statistics = decode_message(tail[unchanged_end:footer_start], codec)
        statistics = _change_within(statistics, _STRIPE_STATISTICS, _bound_columns)
        statistics = _pack_message(statistics, settings)
        lengths[_POSTSCRIPT_STATISTICS_LENGTH] = len(statistics)
    footer = _pack_message(footer, settings)
    lengths[_POSTSCRIPT_FOOTER_LENGTH] = len(footer)
    new_postscript = bytearray()
    for number, _, raw in fields(postscript):
        if number in lengths:
            new_postscript += number_field(number, lengths[number])
        else:
            new_postscript += raw
    return tail[:unchanged_end] + statistics + footer + bytes(new_postscript) + bytes([len(new_postscript)])


def _pack_message(message: bytes, postscript: Mapping[int, int]) -> bytes:
    """Return a message as stored: as chunks if the file is compressed, else unchanged."""
    if postscript[_POSTSCRIPT_COMPRESSION]:
        return chunks(message, postscript[_POSTSCRIPT_BLOCK_SIZE])
    return message


def _change_within(message: bytes, field_number: int, change: Callable[[bytes], bytes]) -> bytes:
    """Return a message after applying `change` to each message in its field `field_number`."""
    changed = bytearray()
    for number, value, raw in fields(message):
        if number == field_number and isinstance(value, bytes):
            changed += bytes_field(number, change(value))
        else:
            changed += raw
    return bytes(changed)


def _bound_columns(stripe: bytes) -> bytes:
    return _change_within(stripe, _COLUMN_OF_STRIPE, _bound_column)


def _bound_column(column: bytes) -> bytes:
    return _change_within(column, _TEXTS_OF_COLUMN, _bound_texts)


def _bound_texts(statistics: bytes) -> bytes:
    """Return statistics of texts in which short bounds replace a long minimum and a long maximum."""
    statistics_fields = []
    for number, value, raw in fields(statistics):
        if not isinstance(value, bytes) or len(value) <= TEXT_BYTES_MAX:
            statistics_fields.append(raw)
            continue
        text = value[:TEXT_BYTES_MAX].decode(errors="ignore")  # without a partial character
        next_text = _text_after(text)
        if number == _LEAST:
            statistics_fields.append(bytes_field(_LOWER_BOUND, text.encode()))
        elif next_text:
            statistics_fields.append(bytes_field(_UPPER_BOUND, next_text.encode()))
        else:
            statistics_fields.append(raw)
    return b"".join(statistics_fields)


def _text_after(text: str) -> str:
    """Return a text that is greater than all texts with this beginning; empty if no such text exists."""
    text = text.rstrip(chr(sys.maxunicode))
    if not text:
        return ""
    code = ord(text[-1]) + 1
    if code == _SURROGATES:
        code = _AFTER_SURROGATES
    return text[:-1] + chr(code)


def stripe_rows(tail: bytes) -> list[int]:
    """Return the number of rows of each stripe; `tail` is the tail that ORC's library returns, one plain message.

    Raises:
        ValueError: it is not such a message.
    """
    footer = next(_messages(tail, _TAIL_FOOTER), b"")
    return list(map(_rows_of_stripe, _messages(footer, _FOOTER_STRIPES)))


def _messages(message: bytes, field_number: int) -> Iterator[bytes]:
    """Yield the messages in a field of a message."""
    for number, value, _ in fields(message):
        if number == field_number and isinstance(value, bytes):
            yield value


def _rows_of_stripe(stripe: bytes) -> int:
    return sum(value for number, value, _ in fields(stripe) if number == _STRIPE_ROWS and isinstance(value, int))


def _amend_footer(footer: bytes, spark_types: Mapping[int, str]) -> bytes:
    """Return a footer with Spark's names of types and with the calendar of dates."""
    fields_out = []
    types = 0  # the number of the next type
    for number, value, raw in fields(footer):
        if number == _FOOTER_TYPES and isinstance(value, bytes):
            attribute = b""
            if types in spark_types:
                attribute = _attribute(spark_types[types])
            fields_out.append(bytes_field(number, value + attribute))
            types += 1
        elif number != _FOOTER_CALENDAR:
            fields_out.append(raw)
    # Without a calendar, readers interpret dates before 1582 as Julian. ORC's C++ writer sets none: apache/orc#455.
    fields_out.append(number_field(_FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN))
    return b"".join(fields_out)


def _attribute(spark_type: str) -> bytes:
    key = bytes_field(_ATTRIBUTE_KEY, b"spark.sql.catalyst.type")
    value = bytes_field(_ATTRIBUTE_VALUE, spark_type.encode())
    return bytes_field(_TYPE_ATTRIBUTES, key + value)


_READ_BATCH_ROWS = 65_536

# The last timestamp in microseconds that Arrow reads from ORC, since it reads nanoseconds in 64 bits.
_LAST_US = 2**63 // 1000
_SECOND_US = 1_000_000
_WALL_CLOCK = pa.timestamp("us")
# The name is not `timestamp`, which a session with `spark.sql.timestampType=TIMESTAMP_NTZ` would read as local time.
_SPARK_TYPES = {_WALL_CLOCK: "timestamp_ntz", pa.timestamp("us", "UTC"): "timestamp_ltz"}
_RANGE = (
    "ORC supports timestamps from 1677-09-21 00:12:44 to 2262-04-11 23:47:16.854775, and before 1970 only whole seconds"
)

# The maximum memory of the writer for a group, and its memory for a value: a reference, a length and a flag for null.
_GROUP_BYTES, _VALUE_BYTES = 32 << 20, 17

_DISTINCT_MAX = 0.8  # the maximum ratio of distinct strings for which a stripe has a dictionary, as in Spark's writer
_FOOTER_BYTES, _FOOTER_COLUMN_BYTES, _FOOTER_CHUNK_BYTES = 200, 20, 10


@dataclass(frozen=True, slots=True)
class OrcFormat(ColumnarFormat):
    """ORC."""

    name: ClassVar[str] = "orc"
    has_groups: ClassVar[bool] = True
    # Arrow's writer also accepts lz4, but then stores nearly everything uncompressed (pyarrow 26).
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
                # Before 1970, Arrow writes negative fractions of a second (pyarrow 26), and Spark 4.3 fails at them.
                is_in_range = np.abs(instants_us) <= _LAST_US
                is_readable = (instants_us >= 0) | (instants_us % _SECOND_US == 0)
                is_null = ~is_valid(leaf)
                if not (is_null | (is_in_range & is_readable)).all():
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
            counts = _rows_by_stripe(opened, file)
            rows_of_stripes = sum(counts[number] for number in stripes)
            rows_left_out = sum(counts) - rows_of_stripes

        def rows() -> Iterator[pa.RecordBatch]:
            with reading_errors(file, "an ORC file"):
                yield from _rows(opened, stripes, schema)

        return rows_left_out, rows()


def _rows_by_stripe(opened: orc.ORCFile, file: BinaryIO) -> list[int]:
    """Return the number of rows of each stripe; `CorruptData` for a footer that ORC's library reads differently."""
    expected = f"a footer of {opened.nstripes} stripes"
    try:
        counts = stripe_rows(opened.reader.serialized_file_tail())
    except ValueError as error:
        raise corrupt(file, expected, error) from error
    if len(counts) != opened.nstripes:
        raise corrupt(file, expected, f"{len(counts)} stripes")
    return counts


def _rows(opened: orc.ORCFile, stripes: Iterable[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    present = opened.schema.names
    # If the file has none of the columns, one column is read, since it has the number of rows.
    names = [name for name in schema.names if name in present] or present[:1]
    # pyarrow 26 interprets a name with a dot as a field of a struct, so all columns are read.
    if any("." in name for name in present):
        names = None
    for number in stripes:
        stripe = opened.read_stripe(number, columns=names)
        for start in range(0, stripe.num_rows, _READ_BATCH_ROWS):
            yield batch_as(stripe.slice(start, _READ_BATCH_ROWS), schema)


class _OrcEncoder(CollectingEncoder):
    """Encodes each group of rows as a stripe."""

    def __init__(self, schema: pa.Schema, target: ByteWriter, options: OrcFormat) -> None:
        super().__init__(schema, target, options.check_rows)
        self._codec = options.compression.replace("none", "uncompressed")
        self._leaf_columns = sum(len(list(leaf_types(kind))) for kind in schema.types)
        # At the start, the writer allocates the memory of a whole group for every column.
        row_bytes = _VALUE_BYTES * max(1, self._leaf_columns)
        self.group_rows_max = min(self.group_rows_max, _GROUP_BYTES // row_bytes + 1)
        # Local times are stored as numbers, as in Spark's writer.
        stored_types = [map_leaf_types(kind, _stored_type) for kind in schema.types]
        self._stored = pa.schema(zip(schema.names, stored_types, strict=True))
        self._has_long_texts = False
        # The writer ends the process if an output file raises, also when it is freed long after a failure (pyarrow 26).
        # So it writes to memory, by compiled code that raises no error of the storage and no KeyboardInterrupt.
        self._written = io.BytesIO()
        self._writer = self._open(pa.PythonFile(self._written, mode="w"))

    def _open(self, sink: Any) -> orc.ORCWriter:  # noqa: ANN401 - pyarrow has no types
        return orc.ORCWriter(
            sink,
            compression=self._codec,
            stripe_size=1,  # every batch exceeds this size, and becomes a stripe
            batch_size=self.group_rows_max,
            dictionary_key_size_threshold=_DISTINCT_MAX,
        )

    def _write_group(self, rows: pa.Table) -> None:
        self._has_long_texts = self._has_long_texts or _has_long_texts(rows)
        with encoding_errors("ORC"):
            self._writer.write(self._lay_out(rows))
        self._target.write(self._take_written())

    def _sample_bytes(self, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        with encoding_errors("ORC"):
            writer = self._open(sink)
            writer.write(self._lay_out(rows))
            writer.close()
            size_bytes: int = sink.tell()
        return size_bytes

    def _footer_bytes(self, groups: int) -> int:
        return _FOOTER_BYTES + self._leaf_columns * (_FOOTER_COLUMN_BYTES + _FOOTER_CHUNK_BYTES * groups)

    def _end(self) -> None:
        with encoding_errors("ORC"):
            if not self._groups:
                self._writer.write(self._lay_out(pa.Table.from_batches([], self._schema)))
                self._target.write(self._take_written())
            self._writer.close()
        spark_types = {}
        for number, (_, arrow) in enumerate(list_columns_within(self._schema), start=1):
            if arrow in _SPARK_TYPES:
                spark_types[number] = _SPARK_TYPES[arrow]
        self._target.write(amend_tail(self._take_written(), spark_types, has_long_texts=self._has_long_texts))

    def _take_written(self) -> bytes:
        """Return the bytes that the writer has written since the last call."""
        data = self._written.getvalue()
        self._written.seek(0)
        self._written.truncate()
        return data

    def _lay_out(self, rows: pa.Table) -> pa.Table:
        """Return rows with the types that are stored."""
        # Nested columns are copied. Within them, pyarrow 26 ignores slicing, and counts values under nulls.
        columns = []
        for kind, column in zip(self._stored.types, rows.columns, strict=True):
            to_stored = _view_leaf
            if pa.types.is_nested(kind):
                to_stored = _copy_leaf
            chunks_out = [rebuild(chunk, kind, to_stored) for chunk in column.chunks]
            columns.append(pa.chunked_array(chunks_out, kind))
        return pa.Table.from_arrays(columns, schema=self._stored)


def _problems_of_times(schema: pa.Schema) -> Iterator[str]:
    for path, arrow in list_columns_within(schema):
        if pa.types.is_time(arrow):
            yield f"column `{path}`: TIME, which ORC does not support; use cast(column AS STRING), or parquet"


def _stored_type(leaf: pa.DataType) -> pa.DataType:
    if leaf == _WALL_CLOCK:
        return pa.int64()
    return leaf


def _has_long_texts(rows: pa.Table) -> bool:
    for column in rows.columns:
        for leaf in chain.from_iterable(map(leaves, column.chunks)):
            if pa.types.is_string(leaf.type):
                offsets, _ = string_parts(leaf)
                if np.diff(offsets).max(initial=0) > TEXT_BYTES_MAX:
                    return True
    return False


def _view_leaf(leaf: pa.Array, target: pa.DataType) -> pa.Array:
    if leaf.type == target:
        return leaf
    return leaf.view(target)


def _copy_leaf(leaf: pa.Array, target: pa.DataType) -> pa.Array:
    return pa.concat_arrays([_view_leaf(leaf, target)])
