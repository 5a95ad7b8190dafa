"""Dates and times of files in other calendars and time zones, and the values that ftfile refuses."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ftfile.core.errors import SchemaError, SourceError
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.rows.orc_messages import bytes_field, fields, number_field
from ftfile.source.settings import FileDecoding
from tests.unit.source.test_casts import file_of

if TYPE_CHECKING:
    from tests.unit.source.planned import Files

NTZ, LTZ = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
SPARK = {"org.apache.spark.version": "4.3.0"}
LEGACY = SPARK | {"org.apache.spark.legacyDateTime": "", "org.apache.spark.timeZone": "UTC"}
LEGACY_INT96 = SPARK | {"org.apache.spark.legacyINT96": "", "org.apache.spark.timeZone": "UTC"}

# The values that Spark 4.3 reads, by the number of days in a file with the hybrid calendar.
HYBRID_DAYS = [
    (-719_164, "0001-01-01"),
    (-171_596, "1500-03-01"),  # 1500-02-29, which exists only in the Julian calendar
    (-171_595, "1500-03-01"),
    (-141_428, "1582-10-04"),
    (-141_427, "1582-10-15"),
    (0, "1970-01-01"),
]
DAYS = pa.array([day for day, _ in HYBRID_DAYS], pa.int32()).cast(pa.date32())
DATES = [date for _, date in HYBRID_DAYS]
OLD = pa.array([day * 86_400_000_000 + 1 for day, _ in HYBRID_DAYS], LTZ)
OLD_TIMES = [f"{date} 00:00:00.000001Z" for date in DATES]


def texts(
    files: Files, file_format: str, content: bytes, kind: pa.DataType, zone: str = "UTC", **options: Any
) -> list[str]:
    """Return the values of the column `c` in Arrow's text form."""
    files.write("data", content)
    times = TimeFormats.from_options({"timeZone": zone})
    decoding = FileDecoding(file_format, times=times, **options)
    batches = files.batches([files.whole("data")], pa.schema([("c", kind)]), decoding)
    return [value for batch in batches for value in batch.column("c").cast(pa.string()).to_pylist()]


def of_spark(column: pa.Array, metadata: dict[str, str], **settings: Any) -> bytes:
    """Return a Parquet file with the footer that Spark writes."""
    sink = io.BytesIO()
    table = pa.table({"c": column})
    with pq.ParquetWriter(sink, table.schema, store_schema=False, **settings) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
    return sink.getvalue()


def orc_file(column: pa.Array, *, calendar: int | None = 1, is_java: bool = True, zone: bytes = b"GMT") -> bytes:
    """Return an ORC file as a writer in Java creates it: with a calendar, and a time zone of three letters."""
    content = file_of("orc", {"c": column}).replace(b"\x1a\x03GMT", b"\x1a\x03" + zone)
    postscript = content[-1 - content[-1] : -1]
    length = next(int(value) for number, value, _ in fields(postscript) if number == 1)
    start = len(content) - 1 - len(postscript) - length
    footer = b"".join(raw for number, _, raw in fields(content[start : start + length]) if number != 9 or not is_java)
    footer += b"" if calendar is None else number_field(11, calendar)
    described = b"".join(number_field(1, len(footer)) if number == 1 else raw for number, _, raw in fields(postscript))
    return content[:start] + footer + described + bytes([len(described)])


class TestParquet:
    def test_dates_of_the_hybrid_calendar(self, files: Files) -> None:
        assert texts(files, "parquet", of_spark(DAYS, LEGACY), pa.date32()) == DATES
        old = {"org.apache.spark.version": "2.4.8"}
        assert texts(files, "parquet", of_spark(DAYS, old), pa.date32()) == DATES

    def test_times_of_the_hybrid_calendar(self, files: Files) -> None:
        assert texts(files, "parquet", of_spark(OLD, LEGACY), LTZ) == OLD_TIMES
        int96 = of_spark(OLD, LEGACY_INT96, use_deprecated_int96_timestamps=True)
        assert texts(files, "parquet", int96, LTZ) == OLD_TIMES

    @pytest.mark.parametrize(
        ("metadata", "found"), [(LEGACY, (DATES[1], "1500-03-10")), (LEGACY_INT96, ("1500-03-10", DATES[1]))]
    )
    def test_dates_and_int96_of_one_column_have_each_their_own_calendar(
        self, files: Files, metadata: dict[str, str], found: tuple[str, str]
    ) -> None:
        column = pa.StructArray.from_arrays([DAYS, OLD], ["day", "at"])
        files.write("data", of_spark(column, metadata, use_deprecated_int96_timestamps=True))
        kind = pa.struct([("day", pa.date32()), ("at", LTZ)])
        [batch] = files.batches([files.whole("data")], pa.schema([("c", kind)]), FileDecoding("parquet"))
        day, at = batch.column("c").flatten()
        assert (day.cast(pa.string())[1].as_py(), at.cast(pa.string())[1].as_py()[:10]) == found

    @pytest.mark.parametrize("metadata", [{}, SPARK, LEGACY_INT96])
    def test_dates_of_other_writers_stay(self, files: Files, metadata: dict[str, str]) -> None:
        assert texts(files, "parquet", of_spark(DAYS, metadata), pa.date32())[0] == "0000-12-30"

    @pytest.mark.parametrize("metadata", [{}, SPARK, LEGACY_INT96])
    def test_times_of_other_writers_stay(self, files: Files, metadata: dict[str, str]) -> None:
        assert texts(files, "parquet", of_spark(OLD, metadata), LTZ)[0] == "0000-12-30 00:00:00.000001Z"

    @pytest.mark.parametrize(("zone", "kind"), [({"org.apache.spark.timeZone": "America/New_York"}, LTZ), ({}, NTZ)])
    def test_old_times_by_offsets_of_a_zone_are_bad_records(
        self, files: Files, zone: dict[str, str], kind: pa.DataType
    ) -> None:
        content = of_spark(OLD, LEGACY | zone)
        with pytest.raises(SourceError, match=r"row 1 has .*a time before 1900-01-01"):
            texts(files, "parquet", content, kind)
        assert texts(files, "parquet", content, kind, bad_records="drop")[0].startswith("1970-01-01 00:00:00.000001")


class TestOrc:
    def test_dates_of_the_hybrid_calendar(self, files: Files) -> None:
        assert texts(files, "orc", orc_file(DAYS), pa.date32()) == DATES
        assert texts(files, "orc", orc_file(DAYS, calendar=None), pa.date32()) == DATES
        nested = pa.ListArray.from_arrays(pa.array([0, len(DAYS)], pa.int32()), DAYS)
        files.write("data", orc_file(nested))
        [batch] = files.batches([files.whole("data")], pa.schema([("c", nested.type)]), FileDecoding("orc"))
        assert batch.column("c").flatten().cast(pa.string()).to_pylist() == DATES

    def test_dates_of_the_gregorian_calendar_stay(self, files: Files) -> None:
        assert texts(files, "orc", orc_file(DAYS, calendar=2), pa.date32())[0] == "0000-12-30"

    def test_old_dates_of_a_writer_that_names_no_calendar_are_bad_records(self, files: Files) -> None:
        content = orc_file(DAYS, calendar=None, is_java=False)
        with pytest.raises(SourceError, match=r"row 1 has .* does not state its calendar"):
            texts(files, "orc", content, pa.date32())
        assert texts(files, "orc", content, pa.date32(), bad_records="drop") == DATES[-2:]

    def test_clocks_of_another_zone_are_refused_or_read_by_it(self, files: Files) -> None:
        content = orc_file(pa.array([12 * 3600], pa.timestamp("s")), zone=b"EST")
        with pytest.raises(SchemaError, match=r"'data': column `c` has local times .* EST, .* timeZone is UTC\. Set"):
            texts(files, "orc", content, LTZ)
        assert texts(files, "orc", content, LTZ, zone="EST") == ["1970-01-01 17:00:00.000000Z"]
        assert texts(files, "orc", content, NTZ) == ["1970-01-01 12:00:00.000000"]
        with pytest.raises(SchemaError, match=r"is UTC, .* timeZone is EST"):
            texts(files, "orc", orc_file(pa.array([0], pa.timestamp("s"))), LTZ, zone="EST")

    def test_instants_are_read_in_any_zone(self, files: Files) -> None:
        content = orc_file(pa.array([12 * 3600], pa.timestamp("s", "UTC")), zone=b"EST")
        assert texts(files, "orc", content, LTZ) == ["1970-01-01 12:00:00.000000Z"]

    @pytest.mark.parametrize("time_us", [-500_000, -2_300_000_000_000_000])
    def test_times_that_arrow_reads_in_another_way_than_spark_are_bad_records(self, files: Files, time_us: int) -> None:
        content = orc_file(pa.array([0, time_us], NTZ), zone=b"EST")
        with pytest.raises(SourceError, match=r"row 2 has .* in another time zone"):
            texts(files, "orc", content, NTZ)
        assert len(texts(files, "orc", orc_file(pa.array([0, time_us], NTZ)), NTZ)) == len([0, time_us])

    def test_old_instants_in_a_zone_are_bad_records(self, files: Files) -> None:
        content = orc_file(pa.array([0, -2_208_988_801], pa.timestamp("s", "UTC")))
        assert texts(files, "orc", content, LTZ)[1] == "1899-12-31 23:59:59.000000Z"
        with pytest.raises(SourceError, match=r"row 2 has .*\(an instant before 1900 with a timeZone other than UTC"):
            texts(files, "orc", content, LTZ, zone="EST")


def test_messages_have_their_fields() -> None:
    message = number_field(1, 300) + bytes_field(2, b"ab")
    assert [(number, value) for number, value, _ in fields(message)] == [(1, 300), (2, b"ab")]
