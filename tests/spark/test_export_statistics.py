"""Spark's readers of Delta and Iceberg return the same rows and aggregates with and without statistics of files."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.testing.micro_batch import MicroBatch
from tests.kit.random_conditions import NESTED
from tests.spark.conftest import TABLE_SPARKS
from tests.unit.operate.export.condition_readers import (
    answer,
    without_delta_statistics,
    without_iceberg_statistics,
)
from tests.unit.operate.export.formats import export
from tests.unit.operate.export.random_table import TYPES, RandomTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONDITIONS = 20
WIDE = {"ratio": "double", "small": "long", "price": "decimal(9,2)"}


def table_format(spark: SparkSession) -> str:
    for name, version in TABLE_SPARKS.items():
        if spark.version.startswith(version):
            return name
    pytest.skip("the jars of Delta and of Iceberg are for other Sparks")


def test_rows_and_aggregates_are_the_same_as_without_statistics(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    to = table_format(spark)
    table = RandomTable(random.Random(seed), str(tmp_path / "out"), WIDE if to == "iceberg" else {})
    table.write(to)
    if to == "delta":
        places = table.url, without_delta_statistics(table.url, tmp_path / "plain")
    else:
        places = f"{table.url}/_iceberg", f"{without_iceberg_statistics(table.url, tmp_path / 'plain')}/_iceberg"
    with_statistics, plain = (spark.read.format(to).load(place) for place in places)
    for name in [name for name in TYPES if name not in NESTED]:
        assert aggregates(with_statistics, name) == aggregates(plain, name), name
    compared = 0
    while compared < CONDITIONS:
        condition = table.draw.condition()
        if not isinstance(condition.where, str):
            continue
        compared += 1
        expected = answer(lambda drawn: ids(plain, drawn.where), condition)
        assert answer(lambda drawn: ids(with_statistics, drawn.where), condition) == expected, condition


def test_spark_answers_aggregates_without_opening_files(spark: SparkSession, tmp_path: Path) -> None:
    to = table_format(spark)
    url = str(tmp_path / "out")
    query = MicroBatch(url, {"id": "long", "day": "date"})
    days = [datetime.date(1969, 12, 31), datetime.date(2024, 7, 1)]
    query.run(0, [[{"id": -7, "day": days[1]}, {"id": None, "day": None}], [{"id": 2**53 + 1, "day": days[0]}]])
    export(url, to)
    table = spark.read.format(to).load(url if to == "delta" else f"{url}/_iceberg")
    for path in Path(url).glob("*.parquet"):
        path.unlink()
    (row,) = table.selectExpr("min(id)", "max(id)", "min(day)", "max(day)", "count(*)").collect()
    assert [*row] == [-7, 2**53 + 1, *days, 3]


def aggregates(table: DataFrame, name: str) -> list[Any]:
    """Return aggregates of a column, as text without the sign of zero."""
    (row,) = table.selectExpr(f"min(`{name}`)", f"max(`{name}`)", f"count(`{name}`)", "count(*)").collect()
    return [str(value).replace("-0.0", "0.0") for value in row]


def ids(table: DataFrame, condition: str) -> list[int]:
    return [row.id for row in table.where(condition).select("id").collect()]
