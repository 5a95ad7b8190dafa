"""Times of all years in ORC files are read as Spark reads them."""

from __future__ import annotations

import base64
import io
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import orc

from ftfile.core.errors import CorruptData, SchemaError, SourceError
from ftfile.rows.orc_messages import fields, number_field
from ftfile.source.settings import FileDecoding
from tests.unit.source.test_stored_times import LTZ, NTZ, orc_file, texts

if TYPE_CHECKING:
    from tests.unit.source.planned import Files

# Spark 4.3 wrote this file, with zstd and in UTC.
BY_SPARK = base64.b64decode(
    "T1JDEQAACgYSBAgFUABVAAAKKAoKAAAAAAAAAAAAABIaCARKFBj/v8zH46AcIKbi/qH6nXMwweobUAErAAAKEwoDAAAAEgwIBRIGCAIQChge"
    "UAAFAAD/2C0AAHgDdVafZv4AIdrlAB2Yck//BhjX0hkdAABuAw8SAgAALwAAAAAYrQkAAMAEAgKTAAAKBggGEAAYCwoGCAYQARgtCgYIBhAC"
    "GBgKBggAEAEYBQoGCAEQARgZCgYIBRABGBEKBggBEAIYBxICCAASAggCEgIIAhoDVVRDbQAACjQKBAgFUAAKHAgEShQY/7/Mx+OgHCCm4v6h"
    "+p1zMMHqG1ABWC8KDggFEgYIAhAKGB5QAFgHbQEACAMQ1QEaCggDEFAYNiBMKAUiDggMEgIBAhoCdHMaAmlkIigICTokChdzcGFyay5zcWwu"
    "Y2F0YWx5c3QudHlwZRIJdGltZXN0YW1wIgIIAyohChhvcmcuYXBhY2hlLnNwYXJrLnZlcnNpb24SBTQuMy4wMAU6BAgFUAA6HAgEShQY/7/M"
    "x+OgHCCm4v6h+p1zMMHqG1ABWC86DggFEgYIAhAKGB5QAFgHQJBOSABYAWIFMi4zLjAIuQEQBRiAgBAiAgAMKDkwCYL0AwNPUkMY"
)
BY_SPARK_TIMES = [
    "9999-12-31 23:59:59.123456",
    "2024-01-01 00:00:00.500000",
    None,
    "0001-01-01 00:00:00.000000",
    "1600-02-03 04:05:06.789000",
]
# Seconds, and the times that Spark 4.3 reads from a file in the hybrid calendar and from a Gregorian file.
FAR = [
    (253_402_214_400, "9999-12-31 00:00:00Z", "9999-12-31 00:00:00Z"),
    (-62_135_596_800, "0001-01-03 00:00:00Z", "0001-01-01 00:00:00Z"),
    (-30_000_000_000, "1019-04-28 18:40:00Z", "1019-05-04 18:40:00Z"),
    (0, "1970-01-01 00:00:00Z", "1970-01-01 00:00:00Z"),
]
SECONDS = pa.array([second for second, _, _ in FAR], pa.timestamp("s"))


def written(column: pa.Array, **options: str) -> bytes:
    sink = io.BytesIO()
    orc.write_table(pa.table({"c": column}), sink, **options)
    return sink.getvalue()


def without_statistics(content: bytes) -> bytes:
    postscript = content[-1 - content[-1] : -1]
    length = next(int(value) for number, value, _ in fields(postscript) if number == 1)
    start = len(content) - 1 - len(postscript) - length
    footer = b"".join(raw for number, _, raw in fields(content[start : start + length]) if number != 7)
    described = b"".join(number_field(1, len(footer)) if number == 1 else raw for number, _, raw in fields(postscript))
    return content[:start] + footer + described + bytes([len(described)])


def in_file(files: Files, content: bytes, name: str, kind: pa.DataType) -> list[str | None]:
    files.write("data", content)
    times: list[str | None] = []
    # A damaged file can have no rows.
    for batch in files.batches([files.whole("data")], pa.schema([(name, kind)]), FileDecoding("orc")):
        times += batch.column(name).cast(pa.string()).to_pylist()
    return times


def test_times_of_a_file_of_spark(files: Files) -> None:
    assert in_file(files, BY_SPARK, "ts", NTZ) == BY_SPARK_TIMES
    assert in_file(files, BY_SPARK, "TS", LTZ) == [time and f"{time}Z" for time in BY_SPARK_TIMES]
    files.write("data", BY_SPARK)
    assert files.rows(files.whole("data"), pa.schema([("id", pa.int32())]), FileDecoding("orc"))[0] == (1,)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_of_both_calendars(files: Files, zone: str | None) -> None:
    column = SECONDS.cast(pa.timestamp("s", zone))
    hybrid = [time.replace("Z", ".000000Z") for _, time, _ in FAR]
    assert texts(files, "orc", orc_file(column), LTZ) == hybrid
    assert texts(files, "orc", orc_file(column, calendar=None), LTZ) == hybrid
    gregorian = [time.replace("Z", ".000000Z") for _, _, time in FAR]
    assert texts(files, "orc", orc_file(column, calendar=2), LTZ) == gregorian


def test_old_times_of_a_writer_that_names_no_calendar_are_bad_records(files: Files) -> None:
    content = orc_file(SECONDS, calendar=None, is_java=False)
    with pytest.raises(SourceError, match=r"row 2 has .*\(a time before 1582-10-15 in a file that does not state its"):
        texts(files, "orc", content, LTZ)


def test_times_by_the_clocks_of_a_zone(files: Files) -> None:
    content = orc_file(SECONDS.take(pa.array([0, 3])), zone=b"EST")
    clocks = ["9999-12-31 00:00:00.000000", "1970-01-01 00:00:00.000000"]
    assert texts(files, "orc", content, NTZ) == clocks
    instants = ["9999-12-31 05:00:00.000000Z", "1970-01-01 05:00:00.000000Z"]
    assert texts(files, "orc", content, LTZ, zone="EST") == instants
    with pytest.raises(SchemaError, match=r"local times .* EST, .* timeZone is UTC"):
        texts(files, "orc", content, LTZ)


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "zstd"])
def test_times_within_others(files: Files, codec: str) -> None:
    kind = pa.struct([("n", pa.int64()), ("at", pa.list_(pa.map_(pa.timestamp("s"), pa.timestamp("s", "UTC"))))])
    far = 253_402_214_400
    rows = [
        {"n": 1, "at": [[(far, far + 1), (far + 2, None)], None, []]},
        None,
        {"n": 2, "at": None},
        {"n": 3, "at": [[(5, 6)]]},
    ]
    files.write("data", written(pa.array(rows, kind), compression=codec))
    wanted = pa.struct([("AT", pa.list_(pa.map_(NTZ, LTZ)))])
    [batch] = files.batches([files.whole("data")], pa.schema([("c", wanted)]), FileDecoding("orc"))
    numbers = batch.column("c").cast(pa.struct([("AT", pa.list_(pa.map_(pa.int64(), pa.int64())))])).to_pylist()
    micro = 10**6
    assert numbers == [
        {"AT": [[(far * micro, (far + 1) * micro), ((far + 2) * micro, None)], None, []]},
        None,
        {"AT": None},
        {"AT": [[(5 * micro, 6 * micro)]]},
    ]


def test_a_file_without_statistics_has_the_same_times(files: Files, seed: int) -> None:
    random = Random(seed)
    nanos = [random.choice((1, 1000, 10**6, 10**9)) * random.randint(0, 10**9) for _ in range(500)]
    column = pa.array([*nanos, None, *[-second * 10**9 for second in range(20)]], pa.timestamp("ns"))
    content = written(column)
    assert texts(files, "orc", without_statistics(content), NTZ) == texts(files, "orc", content, NTZ)


def test_far_times_of_a_file_without_statistics(files: Files) -> None:
    content = without_statistics(orc_file(SECONDS, calendar=2))
    assert texts(files, "orc", content, NTZ)[0] == "9999-12-31 00:00:00.000000"


def test_codecs_that_are_not_decompressed_are_refused_by_name(files: Files) -> None:
    content = written(SECONDS, compression="lz4")
    with pytest.raises(SchemaError, match=r"'data': column `c` has times .* with the codecs LZ4 and LZO\. Omit"):
        texts(files, "orc", content, LTZ)
    near = written(SECONDS.take(pa.array([3])), compression="lz4")
    assert texts(files, "orc", near, NTZ) == ["1970-01-01 00:00:00.000000"]


@pytest.mark.slow
def test_a_damaged_file_is_corrupt_or_has_rows(files: Files, seed: int) -> None:
    random = Random(seed)
    corrupt = 0
    for _ in range(60):
        damaged = bytearray(BY_SPARK)
        damaged[random.randrange(3, 480)] ^= 1 << random.randrange(8)
        try:
            in_file(files, bytes(damaged), "ts", NTZ)
        except CorruptData:
            corrupt += 1
        except (SchemaError, SourceError):
            continue
    assert corrupt
