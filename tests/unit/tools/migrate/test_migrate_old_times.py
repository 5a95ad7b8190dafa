"""Dates and times that a migration refuses, because a file may store them in the Julian calendar."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.rows.spark_types import spark_schema_json

if TYPE_CHECKING:
    from pathlib import Path

LEGACY = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "4.1.0"}
FIRST_DAY = datetime.date(1582, 10, 15)
LAST_DAY = FIRST_DAY - datetime.timedelta(days=1)
FIRST_TIME = datetime.datetime(1900, 1, 1, tzinfo=datetime.timezone.utc)
LAST_TIME = FIRST_TIME - datetime.timedelta(microseconds=1)
UTC = pa.timestamp("us", "UTC")


def check(out: Path, *, is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(
            ConfigError, match=r"`at` has values before .* use the Julian calendar. Read the file with Spark"
        ):
            ftfile.migrate(str(out))
    else:
        ftfile.migrate(str(out))


def footer_of_parquet(out: Path, values: pa.Array, metadata: dict[str, str]) -> None:
    table = pa.table({"id": pa.nulls(len(values), pa.int64()), "at": values})
    pq.write_table(table.replace_schema_metadata(metadata or None), out / "a.parquet")


@pytest.mark.parametrize(
    ("metadata", "is_refused"),
    [
        ({}, False),
        (LEGACY, True),
        ({"org.apache.spark.legacyINT96": "", "org.apache.spark.version": "4.1.0"}, True),
        ({"org.apache.spark.version": "3.0.3"}, True),
        ({"org.apache.spark.version": "3.1.0"}, False),
        (
            {
                "org.apache.spark.sql.parquet.row.metadata": spark_schema_json(
                    pa.schema({"id": "int64", "at": "date32"})
                )
            },
            True,
        ),
    ],
)
def test_parquet_by_its_footer(tmp_path: Path, metadata: dict[str, str], is_refused: bool) -> None:
    footer_of_parquet(tmp_path, pa.array([FIRST_DAY, None, LAST_DAY]), metadata)
    check(tmp_path, is_refused=is_refused)


@pytest.mark.parametrize(
    ("values", "is_refused"),
    [
        (pa.array([FIRST_DAY, None]), False),
        (pa.array([None], pa.date32()), False),
        (pa.array([], pa.date32()), False),
        (pa.array([[FIRST_DAY], [LAST_DAY]]), True),
        (pa.array([{"x": LAST_DAY}]), True),
        (pa.array([[(1, LAST_DAY)]], pa.map_(pa.int32(), pa.date32())), True),
        (pa.array([FIRST_TIME], UTC), False),
        (pa.array([LAST_TIME, FIRST_TIME], UTC), True),
        # Spark never converts local timestamps between calendars.
        (pa.array([LAST_TIME.replace(tzinfo=None)], pa.timestamp("us")), False),
    ],
)
def test_parquet_by_its_values(tmp_path: Path, values: pa.Array, is_refused: bool) -> None:
    footer_of_parquet(tmp_path, values, LEGACY)
    check(tmp_path, is_refused=is_refused)


def test_orc_by_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"at": [LAST_DAY]}), path, compression="uncompressed")
    check(tmp_path, is_refused=False)
    content, number_of_writer = path.read_bytes(), b"H\x01"
    assert content.count(number_of_writer) == 1
    path.write_bytes(content.replace(number_of_writer, b"H\x00"))
    assert orc.ORCFile(path).writer == "ORC_JAVA"
    check(tmp_path, is_refused=True)


@pytest.mark.parametrize(("metadata", "is_refused"), [({}, True), ({"writer.date.proleptic": "true"}, False)])
def test_parquet_of_hive(tmp_path: Path, metadata: dict[str, str], is_refused: bool) -> None:
    footer_of_parquet(tmp_path, pa.array([LAST_DAY]), metadata)
    path = tmp_path / "a.parquet"
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    # In Thrift, each string follows its length.
    footer = content[start:-8].replace(b"\x06schema", b"\x0bhive_schema", 1)
    path.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + content[-4:])
    assert "hive_schema" in str(pq.read_metadata(path).schema)
    check(tmp_path, is_refused=is_refused)


@pytest.mark.parametrize(
    ("name", "metadata", "is_refused"),
    [
        ("row", {}, False),
        ("row", LEGACY, True),
        ("topLevelRecord", {}, True),
        ("topLevelRecord", {"org.apache.spark.version": "2.4.8"}, True),
        ("topLevelRecord", {"org.apache.spark.version": "4.0.0"}, False),
        ("row", {"writer.time.zone": "UTC"}, True),
        ("row", {"writer.time.zone": "UTC", "writer.proleptic": "true"}, False),
        ("row", {"writer.time.zone": "UTC", "writer.proleptic": "false"}, True),
        ("row", {"writer.proleptic": "false"}, True),
    ],
)
def test_avro_by_its_header(tmp_path: Path, name: str, metadata: dict[str, str], is_refused: bool) -> None:
    kind: dict[str, Any] = {"type": "int", "logicalType": "date"}
    schema = {"type": "record", "name": name, "fields": [{"name": "at", "type": ["null", kind]}]}
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"at": LAST_DAY}], metadata=dict(metadata))
    check(tmp_path, is_refused=is_refused)


@pytest.mark.parametrize("microseconds", [-1, 86_400_000_000])
def test_times_that_are_not_of_a_day(tmp_path: Path, microseconds: int) -> None:
    times = pa.array([0, microseconds, None], pa.int64()).view(pa.time64("us"))
    pq.write_table(pa.table({"at": times}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="column `at` has times before 00:00 or after"):
        ftfile.migrate(str(tmp_path))
    pq.write_table(pa.table({"at": times[:1]}), tmp_path / "a.parquet")
    assert ftfile.migrate(str(tmp_path)).rows == 1


@pytest.mark.parametrize("end", [2**63 - 1, -(2**63) + 1])
def test_infinite_times(tmp_path: Path, end: int) -> None:
    """DuckDB stores them as the ends of the range, which `ftfile write` also refuses."""
    times = pa.array([{"x": [0, end]}], pa.struct([("x", pa.list_(pa.int64()))]))
    kind = pa.struct([("x", pa.list_(pa.timestamp("us")))])
    pq.write_table(pa.table({"at": times.cast(kind)}), tmp_path / "a.parquet")
    with pytest.raises(
        ConfigError, match=r"a\.parquet' cannot be migrated: column `at\.x\.element`: a timestamp\[us\]"
    ):
        ftfile.migrate(str(tmp_path))
    days = pa.array([(end >> 32) + (end < 0), None], pa.int32())
    pq.write_table(pa.table({"at": days.cast(pa.date32())}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=r"column `at`: a date32\[day\] has the value -?2147483647"):
        ftfile.migrate(str(tmp_path))
