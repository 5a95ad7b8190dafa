"""The meaning of the columns of ORC files, as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
from pyarrow import orc

from ftfile.source.decoding.meanings import Meanings
from ftfile.source.decoding.orc_far_times import schema_with_far_times
from ftfile.source.decoding.orc_tails import OrcTail, first_values
from ftfile.source.decoding.stored_times import FIRST_GREGORIAN_SECOND, UTC_NAMES, StoredTimes

if TYPE_CHECKING:
    from collections.abc import Collection

    from ftfile.source.decoding.stored_times import Calendar


# Numbers of fields in ORC's footer, and their values.
_FOOTER_WRITER, _FOOTER_CALENDAR = 9, 11
_ORC_GREGORIAN, _ORC_IN_CPP = 2, 1
_ORC_SPARK_TYPE = b"spark.sql.catalyst.type"  # an attribute of a column
_INSTANT = pa.timestamp("us", tz="UTC")


def orc_meanings(file: BinaryIO, zone: str, columns: Collection[str] | None = None) -> Meanings:
    """Return the meanings of the columns of an ORC file.

    Args:
        file: the file.
        zone: the zone in which clocks without a zone are read.
        columns: the names of the columns that will be read, in lower case; by default, all.

    Raises:
        SchemaError: one of these columns has times that neither Arrow nor ftfile can read.
        pyarrow.ArrowException, OSError, ValueError: this is no ORC file, or it is damaged.
    """
    opened = orc.ORCFile(file)
    tail = OrcTail.of(opened)
    times = dict.fromkeys(opened.schema.names, orc_times(tail, file, zone))
    if columns is None:
        columns = {name.lower() for name in opened.schema.names}
    far = schema_with_far_times(tail, opened.schema, columns)
    stored = opened.schema if far is None else far
    schema = pa.schema([_meant_in_orc(field) for field in stored])
    return Meanings(stored, times, schema, {}, None if far is None else tail)


def _meant_in_orc(field: pa.Field) -> pa.Field:
    """Return a column in its type in Spark, without the attributes of the file."""
    kind = field.type
    if (field.metadata or {}).get(_ORC_SPARK_TYPE) == b"timestamp_ntz":
        kind = pa.timestamp("us")
    elif pa.types.is_timestamp(kind):
        kind = _INSTANT
    elif pa.types.is_struct(kind):
        kind = pa.struct([_meant_in_orc(part) for part in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_meant_in_orc(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_meant_in_orc(kind.key_field), _meant_in_orc(kind.item_field))
    return pa.field(field.name, kind, field.nullable)


def orc_times(tail: OrcTail, file: BinaryIO, zone: str) -> StoredTimes:
    """Return how an ORC file stores dates and times; `zone` is the zone in which they are read."""
    facts = first_values(tail.footer)
    dates: Calendar = "hybrid"
    if facts.get(_FOOTER_CALENDAR) == _ORC_GREGORIAN:
        dates = "gregorian"
    elif facts.get(_FOOTER_WRITER, 0) == _ORC_IN_CPP:
        dates = "unknown"  # this writer stores Gregorian dates, which Spark reads as hybrid dates
    zone = _name(zone)
    zones = {""}
    if tail.is_decompressed():
        zones = {_name(stripe.zone) for stripe in tail.stripes(file) if stripe.zone is not None} or {zone}
    return StoredTimes(
        dates=dates,
        times=dates,
        first_second=FIRST_GREGORIAN_SECOND,
        writer_zone=zones.pop() if len(zones) == 1 else "",
        zone=zone,
    )


def _name(zone: str) -> str:
    if zone in UTC_NAMES:
        return "UTC"
    return zone
