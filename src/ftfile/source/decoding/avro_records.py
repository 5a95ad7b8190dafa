"""The rows of other programs' Avro files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, CorruptData, SchemaError
from ftfile.core.logs import get_logger
from ftfile.formats.avro_bounds import BLOCK_MEMORY_BYTES_MAX, cost_of
from ftfile.formats.avro_container import (
    PlainBlocks,
    blocks,
    header_of,
    import_fastavro,
    read_metadata,
)
from ftfile.formats.reading.batches import batch_of
from ftfile.rows.buffers import rows_where
from ftfile.source.decoding.avro_columns import columns_of
from ftfile.source.decoding.avro_conversions import Conversions, Misfits, place_of
from ftfile.source.decoding.avro_types import avro_type, plain_schema, show_value
from ftfile.source.decoding.records import bad_record
from ftfile.source.decoding.stored_times import FIRST_GREGORIAN_SPARK, LEGACY_TIMES, SPARK_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

    from numpy.typing import NDArray

    from ftfile.formats.avro_bounds import Cost
    from ftfile.source.decoding.avro_conversions import Conversion
    from ftfile.source.decoding.avro_types import AvroType
    from ftfile.source.decoding.lines import RangeContent
    from ftfile.source.plan import Cut
    from ftfile.source.settings import FileDecoding


_log = get_logger(__name__)

_BATCH_ROWS = 65_536
_SHOWN_CHARS = 200


def avro_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Avro file. Fields are found by name, ignoring case."""
    del cut
    with content.as_file() as file:
        yield from rows_of_avro_file(file, content.planned.path, schema, decoding)


def columns_of_avro_file(file: BinaryIO, path: str) -> pa.Schema:
    """Return the columns of an Avro file in the types that Spark derives; `path` is its name in errors.

    Raises:
        SchemaError: the file has no records, or too many columns.
        CorruptData: this is not an Avro file, or a type contains itself.
    """
    return columns_of(_open_container(file, path).avro)


def rows_of_avro_file(file: BinaryIO, path: str, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an open Avro file; `path` is its name in errors.

    Raises:
        SchemaError: a column cannot be read from its field.
        CorruptData: this is no Avro file, or it is damaged.
        SourceError: a value is outside the range of its column, with `badRecords=fail`.
    """
    opened = _open_container(file, path)
    reader = _RecordReader(opened.avro, schema, decoding, Conversions(path, opened.is_julian))
    held: list[dict[str, Any]] = []
    held_bytes, damage = 0.0, None
    plain = PlainBlocks(opened.plain, blocks(file, opened.codec, opened.marker, opened.row))
    records_of_blocks = None
    while damage is None:
        try:
            records_of_blocks = records_of_blocks or iter(import_fastavro().block_reader(plain))
            # A block is only known to be complete after its end was read.
            held += list(next(records_of_blocks))
        except StopIteration:
            break
        except (ConfigError, CorruptData) as error:
            damage = error
        except Exception as error:  # bad bytes can cause any error in fastavro
            damage = CorruptData(path, "whole blocks of an Avro file", repr(error))
        held_bytes += opened.row.block_bytes(plain.rows, plain.size_bytes)
        if len(held) >= _BATCH_ROWS or held_bytes >= BLOCK_MEMORY_BYTES_MAX // 2:
            yield reader.batch(held)
            held, held_bytes = [], 0.0
    yield reader.batch(held)
    if damage is not None:
        raise damage


class _OpenedContainer(NamedTuple):
    """The header of an Avro file, with the schema for reading its blocks."""

    avro: AvroType
    plain: Any
    row: Cost
    codec: str
    marker: bytes
    is_julian: bool


def _open_container(file: BinaryIO, path: str) -> _OpenedContainer:
    metadata = read_metadata(file)
    described, codec, marker = header_of(file, metadata)
    try:
        cost_of(described)
        avro = avro_type(described)
        plain = plain_schema(avro)
        row = cost_of(plain, added_levels=True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(path, "an Avro file whose schema bounds its memory", repr(error)) from error
    if avro.kind != "record":
        raise SchemaError(f"{path!r} has no records: its schema is {str(described)[:200]}")
    return _OpenedContainer(avro, plain, row=row, codec=codec, marker=marker, is_julian=is_julian(metadata))


def is_julian(metadata: Mapping[bytes, bytes]) -> bool:
    """Return True if Spark reads old dates and times of a file in the calendar of Spark 2."""
    version = metadata.get(SPARK_VERSION)
    return version is not None and (version < FIRST_GREGORIAN_SPARK or LEGACY_TIMES in metadata)


@dataclass
class _RecordReader:
    """The reader of the records of one file. It counts the records for errors."""

    avro: AvroType
    schema: pa.Schema
    decoding: FileDecoding
    table: Conversions
    _conversions: list[tuple[int, Conversion] | None] = field(default_factory=list)
    _corrupt: int | None = None  # place of the column for bad records
    _count: int = 0

    def __post_init__(self) -> None:
        for place, column in enumerate(self.schema):
            field_place = place_of(column.name, self.avro, "", self.table.path)
            if field_place is not None:
                conversion = self.table.of(self.avro.parts[field_place], column.type, column.name)
                self._conversions.append((field_place, conversion))
                continue
            self._conversions.append(None)
            if column.name == self.decoding.column_name_of_corrupt_record:
                self._corrupt = place

    def batch(self, records: list[dict[str, Any]]) -> pa.RecordBatch:
        """Return the rows of the next records. Bad records are treated as in the options."""
        misfits, rows = Misfits(), np.arange(len(records))
        columns = []
        for column, conversion in zip(self.schema, self._conversions, strict=True):
            if conversion is None:
                columns.append(pa.nulls(len(records), column.type))
            else:
                columns.append(self._column(records, rows, conversion, misfits))
        batch = batch_of(columns, self.schema, len(records))
        if misfits.reasons:
            batch = self._without_bad(batch, records, misfits.reasons)
        self._count += len(records)
        return batch

    def _column(
        self, records: list[dict[str, Any]], rows: NDArray[np.int64], source: tuple[int, Conversion], misfits: Misfits
    ) -> pa.Array:
        place, conversion = source
        name = f"f{place}"
        plain = pa.array([record[name] for record in records], conversion.plain)
        return conversion.read(plain, rows, misfits)

    def _without_bad(
        self, batch: pa.RecordBatch, records: list[dict[str, Any]], reasons: dict[int, str]
    ) -> pa.RecordBatch:
        number, reason = min(reasons.items())
        is_good = np.ones(len(records), np.bool_)
        is_good[list(reasons)] = False
        if self._corrupt is not None:
            return self._with_texts(batch, records, is_good, self._corrupt)
        what = f"record {self._count + number + 1}: {reason}"
        text = self._text(records[number])[:_SHOWN_CHARS]
        if self.decoding.bad_records == "fail":
            raise bad_record(
                f"{self.table.path!r} has a record that cannot be read as avro: {what}: {text}",
                self.decoding.column_name_of_corrupt_record,
            )
        _log.warning("dropped %d records of %s, the first: %s: %s", len(reasons), self.table.path, what, text)
        return rows_where(batch, is_good)

    def _with_texts(
        self, batch: pa.RecordBatch, records: list[dict[str, Any]], is_good: NDArray[np.bool_], corrupt: int
    ) -> pa.RecordBatch:
        """Return all rows. Rows of bad records contain only the text of the record."""
        texts: list[str | None] = [None] * len(records)
        for number in np.flatnonzero(~is_good).tolist():
            texts[number] = self._text(records[number])
        # A null index makes `take` return null.
        good = pa.array(np.arange(len(records)), mask=~is_good)
        columns = [column.take(good) for column in batch.columns]
        columns[corrupt] = pa.array(texts, pa.string())
        return batch_of(columns, self.schema, len(records))

    def _text(self, record: dict[str, Any]) -> str:
        return json.dumps(show_value(record, self.avro), ensure_ascii=False)
