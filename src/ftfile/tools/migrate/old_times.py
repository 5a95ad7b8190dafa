"""Checks that reject dates and times that other readers return as different values, or not at all."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from ftfile.core.errors import SchemaError
from ftfile.formats.avro_container import read_metadata
from ftfile.log.format.record import json_value
from ftfile.rows.buffers import leaf_types, leaves
from ftfile.source.decoding.avro_records import is_julian
from ftfile.source.decoding.meanings import parquet_calendars
from ftfile.source.decoding.stored_times import SPARK_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping


SPARK_ROWS = b"org.apache.spark.sql.parquet.row.metadata"

_DAY_US = 86_400_000_000
_SPARK_RECORD = "topLevelRecord"  # root of Avro files of Spark; also of ftfile, which writes no version either
_HIVE_SCHEMA = " hive_schema "  # root of Hive's Parquet files
_HIVE_TIME_ZONE = b"writer.time.zone"
_HIVE_PROLEPTIC = (b"writer.date.proleptic", b"writer.proleptic")  # in Parquet and in Avro
_FIRST_DAY = pa.scalar(datetime.date(1582, 10, 15))
# Spark converts earlier times differently, because Java's older classes have other offsets of time zones.
_FIRST_TIME = pa.scalar(datetime.datetime(1900, 1, 1, tzinfo=datetime.timezone.utc), pa.timestamp("us", "UTC"))


def may_be_julian(name: str, schema: pa.Schema, file: BinaryIO) -> bool:
    """Return True if a file of this format may store old dates or times in the Julian calendar."""
    if not _has_times(schema):
        return False
    if name == "parquet":
        footer = pq.read_metadata(file)
        metadata = footer.metadata or {}
        # Arrow shows the name of the schema only in this text, before the columns.
        is_hive = _HIVE_SCHEMA in str(footer.schema).partition("{")[0]
        if SPARK_ROWS in metadata and SPARK_VERSION not in metadata:  # of Spark 2
            return True
        return set(parquet_calendars(metadata)) != {"gregorian"} or _of_hive(metadata, is_hive=is_hive)
    if name == "avro":
        metadata = read_metadata(file)
        root = json_value(metadata[b"avro.schema"]).get("name")
        if root == _SPARK_RECORD and SPARK_VERSION not in metadata:  # of Spark 2
            return True
        return is_julian(metadata) or _of_hive(metadata, is_hive=False)
    # Spark and Hive write ORC in the Julian calendar; only the C++ library never does.
    return name == "orc" and orc.ORCFile(file).writer != "ORC_CPP"


def _has_times(schema: pa.Schema) -> bool:
    """Return True if a column contains values that depend on the calendar."""
    for field in schema:
        for leaf in leaf_types(field.type):
            if _first_of(leaf) is not None:
                return True
    return False


def _of_hive(metadata: Mapping[bytes, bytes], *, is_hive: bool) -> bool:
    # Only some versions of Hive record the calendar. Avro files without it can come from any program.
    is_hive = is_hive or _HIVE_TIME_ZONE in metadata
    for key in _HIVE_PROLEPTIC:
        if metadata.get(key) == b"true":
            return False
        is_hive = is_hive or key in metadata
    return is_hive


def refuse_old_times(batch: pa.RecordBatch) -> None:
    """Raise a `SchemaError` if a date or time is so old that its value depends on the calendar."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        for leaf in leaves(column):
            first = _first_of(leaf.type)
            if first is not None and pc.less(pc.min(leaf), first).as_py():
                raise SchemaError(
                    f"column `{field.name}` has values before {first.as_py():%Y-%m-%d}, which may use the Julian "
                    "calendar. Read the file with Spark and write it again with ftfile. If Hive or Spark 2 wrote it, "
                    "set Spark's options datetimeRebaseMode=LEGACY and int96RebaseMode=LEGACY"
                )


def _first_of(kind: pa.DataType) -> pa.Scalar | None:
    """Return the first value that is equal in all calendars; None for types that no writer converts."""
    if pa.types.is_date32(kind):
        return _FIRST_DAY
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _FIRST_TIME.cast(kind)
    return None


def refuse_times_beyond_a_day(batch: pa.RecordBatch) -> None:
    """Raise a `SchemaError` if a TIME is outside of one day, because readers return another time for it."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        for leaf in leaves(column):
            if not pa.types.is_time64(leaf.type):
                continue
            bounds = pc.min_max(leaf.view(pa.int64())).as_py()
            if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < _DAY_US:
                raise SchemaError(
                    f"column `{field.name}` has times before 00:00 or after 23:59:59.999999. Rewrite this file "
                    "without them"
                )
