"""The calendars and clocks of a file's dates and times, as the ends of ORC and Parquet files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from ftfile.core.errors import SchemaError
from ftfile.formats.reading import columns_within
from ftfile.read.foreign.decoding.stored_times import UTC_NAMES, StoredTimes
from ftfile.rows.orc_messages import fields, plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow.parquet as pq
    from pyarrow import orc

    from ftfile.read.foreign.decoding.stored_times import Calendar


# Numbers of fields in ORC's messages, and their values.
_TAIL_POSTSCRIPT, _TAIL_FOOTER, _POSTSCRIPT_CODEC = 1, 2, 2
_FOOTER_STRIPES, _FOOTER_STATISTICS, _FOOTER_WRITER, _FOOTER_CALENDAR = 3, 7, 9, 11
_STRIPE_START, _STRIPE_INDEX, _STRIPE_DATA, _STRIPE_FOOTER = 1, 2, 3, 4
_STRIPE_ZONE, _STATISTICS_OF_TIMES = 3, 9
_GREGORIAN, _WRITER_IN_CPP = 2, 1
_CODECS = frozenset({0, 1, 2, 5})  # those of `orc_messages.plain`

_LAST_MS = 2**63 // 10**6  # Arrow reads times of ORC as nanoseconds in 64 bits

_SPARK_VERSION, _SPARK_ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
_LEGACY_TIMES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_FIRST_GREGORIAN, _FIRST_GREGORIAN_INT96 = b"3.0.0", b"3.1.0"  # versions of Spark, which compares them as texts


def orc_times(opened: orc.ORCFile, file: BinaryIO, columns: Collection[str], zone: str) -> StoredTimes:
    """Return how an ORC file stores dates and times; `zone` is the one by whose clocks they are read.

    `columns` are the names of the columns that are read, in lower case.

    Raises:
        SchemaError: one of the columns has times outside of those that Arrow reads.
    """
    tail = _first_values(opened.reader.serialized_file_tail())
    footer = tail[_TAIL_FOOTER]
    assert isinstance(footer, bytes), "the file was opened"
    _check_range(footer, opened.schema, columns)
    facts = _first_values(footer)
    dates: Calendar = "hybrid"
    if facts.get(_FOOTER_CALENDAR) == _GREGORIAN:
        dates = "gregorian"
    elif facts.get(_FOOTER_WRITER, 0) == _WRITER_IN_CPP:
        dates = "unknown"  # it writes Gregorian dates, which Spark takes for hybrid ones
    codec = _first_values(_bytes(tail[_TAIL_POSTSCRIPT])).get(_POSTSCRIPT_CODEC, 0)
    zone = _name(zone)
    zones = {_name(name) for name in _writer_zones(file, footer, codec)} or {zone}
    return StoredTimes(dates=dates, writer_zone=zones.pop() if len(zones) == 1 else "", zone=zone)


def parquet_times(parquet: pq.ParquetFile) -> dict[str, StoredTimes]:
    """Return how each column of a Parquet file has dates and times."""
    metadata = parquet.metadata.metadata or {}
    columns = [parquet.schema.column(number) for number in range(len(parquet.schema))]
    int96 = {column.path.partition(".")[0] for column in columns if column.physical_type == "INT96"}
    times = _parquet_calendar(metadata, _FIRST_GREGORIAN, _LEGACY_TIMES)
    dates: Calendar = "hybrid" if times == "unknown" else times
    of_int96 = _parquet_calendar(metadata, _FIRST_GREGORIAN_INT96, _LEGACY_INT96)
    return {
        name: StoredTimes(dates=dates, times=of_int96 if name in int96 else times)
        for name in parquet.schema_arrow.names
    }


def _parquet_calendar(metadata: Mapping[bytes, bytes], first_gregorian: bytes, legacy: bytes) -> Calendar:
    version = metadata.get(_SPARK_VERSION)
    if version is None or (version >= first_gregorian and legacy not in metadata):
        return "gregorian"
    # Spark converts times by the offsets that zones had in older classes of Java, which Python does not have.
    return "hybrid" if metadata.get(_SPARK_ZONE, b"").decode() in UTC_NAMES else "unknown"


def _check_range(footer: bytes, schema: pa.Schema, columns: Collection[str]) -> None:
    statistics = [_bytes(value) for number, value, _ in fields(footer) if number == _FOOTER_STATISTICS]
    for (column, kind), message in zip(columns_within(schema), statistics[1:], strict=False):
        if not pa.types.is_timestamp(kind) or column.partition(".")[0].lower() not in columns:
            continue
        bounds = [value for _, value, _ in fields(_bytes(_first_values(message).get(_STATISTICS_OF_TIMES, b"")))]
        if any(isinstance(bound, int) and _signed(bound) not in range(-_LAST_MS, _LAST_MS) for bound in bounds):
            raise SchemaError(
                f"column `{column}` has times before 1677-09-21 or after 2262-04-11, which ftfile does not read from "
                "ORC. Leave the column out of the schema, or write the file again with Spark as Parquet"
            )


def _writer_zones(file: BinaryIO, footer: bytes, codec: int | bytes) -> Iterator[str]:
    """Yield the zone of each stripe that has one; an empty text if ftfile does not decompress its codec."""
    for number, value, _ in fields(footer):
        if number != _FOOTER_STRIPES:
            continue
        if codec not in _CODECS:
            yield ""
            return
        stripe = {key: part for key, part in _first_values(_bytes(value)).items() if isinstance(part, int)}
        file.seek(sum(stripe.get(key, 0) for key in (_STRIPE_START, _STRIPE_INDEX, _STRIPE_DATA)))
        stripe_footer = plain(file.read(stripe[_STRIPE_FOOTER]), int(codec))
        zone = _first_values(stripe_footer).get(_STRIPE_ZONE)
        if isinstance(zone, bytes):
            yield zone.decode(errors="replace")


def _first_values(message: bytes) -> dict[int, int | bytes]:
    return {number: value for number, value, _ in reversed([*fields(message)])}


def _bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _name(zone: str) -> str:
    return "UTC" if zone in UTC_NAMES else zone
