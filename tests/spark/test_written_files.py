"""Files that Spark and other programs wrote, after `ftfile write` and `ftfile migrate`: Spark reads the same values."""

from __future__ import annotations

import datetime as dt
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.spark import load
from tests.unit.tools.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ZONE = "spark.sql.session.timeZone"
TYPE = "spark.sql.parquet.outputTimestampType"
REBASE = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")
NESTED = "{0} AS a, array({0}, NULL) AS l, named_struct('n', 1, 'x.y', {0}) AS s, map('k', array({0})) AS m"
ROWS = f"SELECT {NESTED} UNION ALL SELECT NULL, NULL, NULL, NULL"


@contextmanager
def configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Set settings of the session within the block."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def files_in(directory: Path) -> list[str]:
    return sorted(str(path) for path in directory.glob("*.parquet"))


def shown(frame: DataFrame) -> list[str]:
    """Return the rows as texts of Spark, in the zone of the session."""
    return sorted(row[0] for row in frame.selectExpr("to_json(struct(*))").collect())


def same(spark: SparkSession, frame: DataFrame, path: str) -> None:
    for read in (spark.read.format("ftfile").load(path), load(spark, path)):
        assert shown(read) == shown(frame)
        assert [field.dataType.simpleString() for field in read.schema] == [
            field.dataType.simpleString() for field in frame.schema
        ]


@pytest.mark.parametrize("settings", [{}, {TYPE: "INT96"}, {TYPE: "TIMESTAMP_MICROS"}, {TYPE: "TIMESTAMP_MILLIS"}])
@pytest.mark.parametrize("value", ["timestamp'2024-07-01 12:00:00'", "timestamp_ntz'2024-07-01 12:00:00'"])
def test_times_keep_their_instants(spark: SparkSession, tmp_path: Path, settings: dict[str, str], value: str) -> None:
    assert spark.conf.get(ZONE) == "America/New_York"
    with configured(spark, settings):
        spark.sql(ROWS.format(value)).coalesce(1).write.parquet(str(tmp_path / "in"))
    frame = spark.read.parquet(str(tmp_path / "in"))
    assert "12:00:00" in shown(frame)[0] + shown(frame)[-1]
    run("write", tmp_path / "out", *files_in(tmp_path / "in"))
    same(spark, frame, str(tmp_path / "out"))
    run("write", tmp_path / "out", *files_in(tmp_path / "in"))  # the directory accepts the same files again
    ftfile.migrate(tmp_path / "in", file_format="parquet", dry_run=False)
    same(spark, frame, str(tmp_path / "in"))


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_old_dates_in_the_hybrid_calendar(spark: SparkSession, tmp_path: Path, kind: str, zone: str) -> None:
    settings = dict.fromkeys(REBASE, "LEGACY") | {TYPE: kind, ZONE: zone}
    with configured(spark, settings):
        days = spark.sql(ROWS.format("date'1500-01-01'")).coalesce(1)
        days.write.parquet(str(tmp_path / "days"))
        spark.sql(ROWS.format("timestamp'1500-01-01 12:00:00'")).coalesce(1).write.parquet(str(tmp_path / "times"))
    run("write", tmp_path / "out", *files_in(tmp_path / "days"))
    same(spark, spark.read.parquet(str(tmp_path / "days")), str(tmp_path / "out"))
    assert any("1500-01-01" in row for row in shown(spark.read.format("ftfile").load(str(tmp_path / "out"))))
    arguments = ("write", tmp_path / "more", *files_in(tmp_path / "times"))
    if zone == "UTC":
        run(*arguments)
        same(spark, spark.read.parquet(str(tmp_path / "times")), str(tmp_path / "more"))
    else:
        assert "before 1900-01-01" in run(*arguments, code=2).stderr


def test_types_of_other_programs_in_a_migrated_directory(spark: SparkSession, tmp_path: Path) -> None:
    """Types for which `migrate` changes no file: Spark and ftfile read them as `ftfile write` stores them."""
    path = tmp_path / "in" / "a.parquet"
    path.parent.mkdir()
    table = pa.table(
        {
            "unsigned": pa.array([2**64 - 1, None], pa.uint64()),
            "fixed": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
            "large": pa.array([[2**63], None], pa.large_list(pa.uint64())),
            "json": pa.array(["{}", None], pa.json_()),
            "decimal": pa.array(["1.50", None]).cast(pa.decimal256(30, 2)),
            "text": pa.array(["a", None]).dictionary_encode(),
            "at": pa.array([dt.datetime(2024, 7, 1, 12), None], pa.timestamp("ms", "Asia/Tokyo")),  # noqa: DTZ001
        }
    )
    pq.write_table(table, path)
    run("write", tmp_path / "out", path)
    frame = spark.read.format("ftfile").load(str(tmp_path / "out"))
    ftfile.migrate(path.parent, file_format="parquet", dry_run=False)
    same(spark, frame, str(path.parent))
    assert shown(spark.read.parquet(str(path))) == shown(frame)


@pytest.mark.parametrize("kind", [pa.time32("ms"), pa.time64("ns")])
def test_times_of_a_day_of_other_units(spark: SparkSession, tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "in" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"t": pa.array([dt.time(12, 0, 1), None], kind)}), path)
    run("write", tmp_path / "out", path)
    ftfile.migrate(path.parent, file_format="parquet", dry_run=False)
    same(spark, spark.read.format("ftfile").load(str(tmp_path / "out")), str(path.parent))


def test_texts_take_the_zone_of_the_directory(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    ftfile.write(out, pa.table({"t": pa.array([], pa.timestamp("us", "UTC"))}), time_zone="America/New_York")
    for name, text in (("a.json", '{"t":"2024-07-01T12:00:00"}\n'), ("a.csv", "t\n2024-07-01 12:00:00\n")):
        (tmp_path / name).write_text(text)
        run("write", out, tmp_path / name)
    rows = spark.read.format("ftfile").load(out).selectExpr("CAST(t AS STRING)").collect()
    assert [row[0] for row in rows] == ["2024-07-01 12:00:00"] * 2
