"""The meaning of the columns of Parquet and Arrow files, as Spark reads them; `orc_meanings` has ORC files.

The file source, `ftfile write` and `ftfile migrate` learn here what the files of other programs contain.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ftfile.core.errors import SchemaError
from ftfile.rows.buffers import map_leaf_types, rebuild
from ftfile.source.decoding.casts import plain_type
from ftfile.source.decoding.stored_times import (
    FIRST_DAY,
    FIRST_GREGORIAN_SPARK,
    FIRST_SECOND,
    LEGACY_TIMES,
    PER_SECOND,
    SPARK_VERSION,
    UTC_NAMES,
    StoredTimes,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ftfile.source.decoding.orc_tails import OrcTail
    from ftfile.source.decoding.stored_times import Calendar


_UTC = pa.timestamp("us", tz="UTC")
_GREGORIAN = StoredTimes()
_ARROW_SCHEMA = b"ARROW:schema"
_MAGIC = b"PAR1"
_LENGTH_BYTES = 4  # of the footer's length, before the last `_MAGIC`
_WIDE_BYTES = 16
_SPARK_ZONE = b"org.apache.spark.timeZone"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"
_FIRST_GREGORIAN_INT96 = b"3.1.0"

_READ_AS_SPARK = "The command `ftfile write DIR FILE...` reads the file as Spark does"


@dataclass(frozen=True, slots=True)
class _FileColumn:
    """A column of values in a file, which can be a part of a nested column."""

    is_instant: bool  # INT96, which Arrow reads as times without a zone
    is_text: bool  # ENUM, which Arrow reads as binary values
    times: StoredTimes

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return Spark's type for the type that Arrow reads."""
        if self.is_instant:
            return _UTC
        if self.is_text:
            return pa.string()
        return kind

    def values(self, array: pa.Array, target: pa.DataType) -> pa.Array:
        """Return values in Spark's type and calendar; `ValueError` if a value cannot be converted."""
        array = self.times.convert(array, target)
        return array if array.type.equals(target) else array.cast(target)


_PLAIN = _FileColumn(is_instant=False, is_text=False, times=_GREGORIAN)


@dataclass(frozen=True, slots=True)
class Meanings:
    """The columns of a file.

    Attributes:
        stored: the types as which Arrow reads the columns.
        times: how each column stores dates and times.
        schema: in Parquet, INT96 is a TIMESTAMP, and ENUM is a STRING; in ORC, a TIMESTAMP is an instant, and Spark's
            TIMESTAMP_NTZ, which is a BIGINT, is a TIMESTAMP_NTZ; also in nested columns. Other columns have Arrow's
            types. The metadata describe the index of a DataFrame, which can be columns of the file.
        far: of an ORC file with times that Arrow cannot read; `far_rows` reads them in the types of `stored`.
    """

    stored: pa.Schema
    times: Mapping[str, StoredTimes]
    schema: pa.Schema
    _leaves: Mapping[str, Sequence[_FileColumn]]  # of the columns that Arrow reads with another meaning
    far: OrcTail | None = None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that Arrow reads from the file, in the types of `schema` and in Spark's calendar.

        Raises:
            SchemaError: a value cannot be converted.
        """
        columns = []
        for field in self.schema:
            column = batch.column(field.name)
            if field.name in self._leaves:
                column = self._convert_column(column, field)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _convert_column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        leaves = iter(self._leaves[field.name])  # `rebuild` visits the values in the order of the file's columns

        def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
            return next(leaves).values(array, target)

        try:
            plain = column.cast(plain_type(column.type))
            return rebuild(plain, field.type, convert)
        except (pa.ArrowException, ValueError) as error:
            raise SchemaError(
                f"column `{field.name}` cannot be read as {field.type}: it has {error}. Read the file with Spark, "
                "and write its rows with ftfile"
            ) from error


def opened_parquet(source: Any, **options: Any) -> pq.ParquetFile:  # noqa: ANN401 - a path, or any file
    """Open a Parquet file. INT96 is read in microseconds, since its range exceeds the range of nanoseconds.

    Raises:
        SchemaError: a column has integers of 128 bits.
        pyarrow.ArrowException, OSError: this is no Parquet file, or it is damaged.
    """
    try:
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **options)
    except pa.ArrowNotImplementedError as error:
        names = _wide_columns(source)
        if not names:
            raise
        shown = ", ".join(f"`{name}`" for name in names)
        raise SchemaError(
            f"column {shown}: it has integers of 128 bits, which Spark does not have ({error}). Write the file again "
            "with the column as a decimal of at most 38 digits, such as pl.Decimal(38, 0) in Polars, or as a text"
        ) from error


def _wide_columns(source: Any) -> list[str]:  # noqa: ANN401 - as above
    """Return the columns of 16 bytes without a Parquet type: only Arrow's description states that they are integers.

    pyarrow 26 refuses a file with such a description. It reads the columns if it does not find the description.
    """
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            footer = _footer(file)
    else:
        footer = _footer(source)
    described = io.BytesIO(_MAGIC + footer.replace(_ARROW_SCHEMA, b"-" * len(_ARROW_SCHEMA)))
    names = []
    for column in pq.read_metadata(described).schema:
        if column.physical_type == "FIXED_LEN_BYTE_ARRAY" and column.length == _WIDE_BYTES and _is_bare(column):
            names.append(column.path)
    return names


def _is_bare(column: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    return str(column.logical_type) == "None"


def _footer(file: BinaryIO) -> bytes:
    """Return the footer of a Parquet file with its length and the last magic number."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LENGTH_BYTES - len(_MAGIC)))
    end = file.read()
    file.seek(max(0, size - len(end) - int.from_bytes(end[:_LENGTH_BYTES], "little")))
    return file.read()


def parquet_meanings(parquet: pq.ParquetFile) -> Meanings:
    """Return the meanings of the columns of a file from `opened_parquet`."""
    return _meanings(parquet.metadata, parquet.schema_arrow)


def arrow_meanings(opened: pa.RecordBatchFileReader) -> Meanings:
    """Return the meanings of the columns of an Arrow file, whose types state them completely."""
    return Meanings(opened.schema, dict.fromkeys(opened.schema.names, _GREGORIAN), opened.schema, {})


def refuse_other_times(metadata: pq.FileMetaData, names: Collection[str]) -> None:
    """Raise a SchemaError for a column whose times Arrow's datasets read as other times, or in another type.

    Columns whose statistics show that no value depends on the calendar are accepted.

    Args:
        metadata: of a Parquet file.
        names: of the columns to check.
    """
    calendars = parquet_calendars(metadata.metadata or {})
    columns = iter(enumerate(metadata.schema))
    for field in metadata.schema.to_arrow_schema():
        for kind in _leaf_types(plain_type(field.type)):
            place, column = next(columns)
            leaf = _leaf(column, kind, calendars)
            if field.name not in names:
                continue
            if leaf.is_instant:
                raise SchemaError(
                    f"column `{column.path}` is INT96, which Spark reads as TIMESTAMP, and a dataset of Arrow as "
                    f"times without a zone. {_READ_AS_SPARK}"
                )
            if leaf.times != _GREGORIAN and not _is_recent(metadata, place, kind):
                raise SchemaError(
                    f"column `{column.path}` is {kind} of a writer that used the Julian calendar for old times, and a "
                    f"dataset of Arrow reads other times. {_READ_AS_SPARK}"
                )


def _is_recent(metadata: pq.FileMetaData, place: int, kind: pa.DataType) -> bool:
    """Return True if a column of dates or times has only values that are equal in all calendars."""
    first = FIRST_DAY if pa.types.is_date(kind) else FIRST_SECOND * PER_SECOND[kind.unit]
    for number in range(metadata.num_row_groups):
        chunk = metadata.row_group(number).column(place)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max:
            if statistics is not None and statistics.null_count == chunk.num_values:
                continue
            return False
        if statistics.min_raw < first:
            return False
    return True


def _meanings(file: pq.FileMetaData, schema: pa.Schema) -> Meanings:
    calendars = parquet_calendars(file.metadata or {})
    columns = iter(file.schema)  # the file has one column for each leaf of Arrow's types, in the same order
    fields, times, changed = [], {}, {}
    for field in schema:
        plain = plain_type(field.type)
        leaves = []
        for kind in _leaf_types(plain):
            leaves.append(_leaf(next(columns), kind, calendars))
        times[field.name] = _times_of(leaves)
        if all(leaf == _PLAIN for leaf in leaves):
            fields.append(field)
            continue
        changed[field.name] = leaves
        fields.append(field.with_type(_meant_type_of(plain, leaves)))
    return Meanings(schema, times, pa.schema(fields, schema.metadata), changed)


def _times_of(leaves: Sequence[_FileColumn]) -> StoredTimes:
    """Return how a column stores dates and times. Writers store all instants of a file in one type."""
    dates: Calendar = "gregorian"
    times: Calendar = "gregorian"
    for leaf in leaves:
        if leaf.times.dates != "gregorian":
            dates = leaf.times.dates
        if leaf.times.times != "gregorian":
            times = leaf.times.times
    return StoredTimes(dates=dates, times=times)


def _leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of leaves, also of lists with views and of extension types, which Arrow does not cast."""
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaf_types(kind.storage_type)
    elif pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from _leaf_types(kind.field(number).type)
    else:
        yield kind


def _leaf(column: Any, kind: pa.DataType, calendars: ParquetCalendars) -> _FileColumn:  # noqa: ANN401 - pyarrow has no types
    if column.physical_type == "INT96":
        return _FileColumn(is_instant=True, is_text=False, times=StoredTimes(times=calendars.int96))
    if str(column.logical_type) == "Enum":
        return _FileColumn(is_instant=False, is_text=True, times=_GREGORIAN)
    if pa.types.is_date(kind):
        return _FileColumn(is_instant=False, is_text=False, times=StoredTimes(dates=calendars.dates))
    if pa.types.is_timestamp(kind) and kind.tz is not None:  # Spark never stored TIMESTAMP_NTZ in another calendar
        return _FileColumn(is_instant=False, is_text=False, times=StoredTimes(times=calendars.times))
    return _PLAIN


def _meant_type_of(kind: pa.DataType, leaves: Iterable[_FileColumn]) -> pa.DataType:
    remaining = iter(leaves)
    return map_leaf_types(kind, lambda leaf: next(remaining).type_of(leaf))


class ParquetCalendars(NamedTuple):
    """The calendars of a Parquet file: of DATE, of TIMESTAMP, and of TIMESTAMP that is stored as INT96."""

    dates: Calendar
    times: Calendar
    int96: Calendar


def parquet_calendars(metadata: Mapping[bytes, bytes]) -> ParquetCalendars:
    """Return the calendars of a Parquet file with this metadata, as Spark reads it."""
    times = _parquet_calendar(metadata, FIRST_GREGORIAN_SPARK, LEGACY_TIMES)
    dates: Calendar = "hybrid" if times == "unknown" else times
    int96 = _parquet_calendar(metadata, _FIRST_GREGORIAN_INT96, _LEGACY_INT96)
    return ParquetCalendars(dates, times, int96)


def _parquet_calendar(metadata: Mapping[bytes, bytes], first_gregorian: bytes, legacy: bytes) -> Calendar:
    version = metadata.get(SPARK_VERSION)
    if version is None or (version >= first_gregorian and legacy not in metadata):
        return "gregorian"
    # Spark converts times with the zone offsets of Java's older classes, which Python does not have.
    if metadata.get(_SPARK_ZONE, b"").decode() in UTC_NAMES:
        return "hybrid"
    return "unknown"
