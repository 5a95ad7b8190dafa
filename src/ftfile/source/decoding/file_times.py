"""The calendars and clocks of a file's dates and times, from the metadata of ORC and Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ftfile.source.decoding.orc_tails import first_values
from ftfile.source.decoding.stored_times import FIRST_GREGORIAN_SECOND, UTC_NAMES, StoredTimes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.source.decoding.orc_tails import OrcTail
    from ftfile.source.decoding.stored_times import Calendar


# Numbers of fields in ORC's footer, and their values.
_FOOTER_WRITER, _FOOTER_CALENDAR = 9, 11
_GREGORIAN, _WRITER_IN_CPP = 2, 1

_SPARK_VERSION, _SPARK_ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
_LEGACY_TIMES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_FIRST_GREGORIAN, _FIRST_GREGORIAN_INT96 = b"3.0.0", b"3.1.0"  # versions of Spark, which Spark compares as texts


def orc_times(tail: OrcTail, file: BinaryIO, zone: str) -> StoredTimes:
    """Return how an ORC file stores dates and times; `zone` is the zone in which they are read."""
    facts = first_values(tail.footer)
    dates: Calendar = "hybrid"
    if facts.get(_FOOTER_CALENDAR) == _GREGORIAN:
        dates = "gregorian"
    elif facts.get(_FOOTER_WRITER, 0) == _WRITER_IN_CPP:
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


class ParquetTimes(NamedTuple):
    """How a Parquet file stores dates and times: INT96, and all other types of Spark that have a calendar."""

    usual: StoredTimes
    int96: StoredTimes


def parquet_times(metadata: Mapping[bytes, bytes]) -> ParquetTimes:
    """Return how a Parquet file with this metadata stores dates and times."""
    times = _parquet_calendar(metadata, _FIRST_GREGORIAN, _LEGACY_TIMES)
    dates: Calendar = "hybrid" if times == "unknown" else times
    of_int96 = _parquet_calendar(metadata, _FIRST_GREGORIAN_INT96, _LEGACY_INT96)
    return ParquetTimes(StoredTimes(dates=dates, times=times), StoredTimes(times=of_int96))


def _parquet_calendar(metadata: Mapping[bytes, bytes], first_gregorian: bytes, legacy: bytes) -> Calendar:
    version = metadata.get(_SPARK_VERSION)
    if version is None or (version >= first_gregorian and legacy not in metadata):
        return "gregorian"
    # Spark converts times with the zone offsets of Java's older classes, which Python does not have.
    if metadata.get(_SPARK_ZONE, b"").decode() in UTC_NAMES:
        return "hybrid"
    return "unknown"


def _name(zone: str) -> str:
    if zone in UTC_NAMES:
        return "UTC"
    return zone
