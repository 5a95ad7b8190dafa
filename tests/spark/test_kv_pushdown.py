"""Filters on keys of each type, pushed into a store by Spark, return the rows of Spark's filters on a full scan."""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.test_kv_stores import PUSHDOWN, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

# Ascending values of each type, in SQL. In the session's zone, New York, they are hours or a day before UTC.
KEYS = {
    "date": ["-0044-03-15", "0001-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31", "+12345-06-07"],
    "timestamp": [
        "0001-01-01 00:00:00",
        "1582-10-04 12:00:00",
        "1969-12-31 23:59:59.999999+00:00",
        "1970-01-01 00:00:00+00:00",
        "2024-11-03 01:30:00",  # occurs twice on that day in New York
        "9999-12-31 23:59:59.999999+00:00",
        "+12345-06-07 00:00:00",
    ],
    "timestamp_ntz": [
        "0001-01-01 00:00:00",
        "1582-10-04 12:00:00",
        "1969-12-31 23:59:59.999999",
        "1970-01-01 00:00:00",
        "2024-11-03 01:30:00",
        "9999-12-31 23:59:59.999999",
        "+12345-06-07 00:00:00",
    ],
    "decimal(5,2)": ["-999.99", "-999.98", "-0.01", "0.00", "0.01", "12.30", "999.99"],
    "decimal(18,4)": ["-99999999999999.9999", "-1", "-0.0001", "0", "0.0001", "99999999999999.9998",
                      "99999999999999.9999"],
    "binary": ["", "00", "0000", "00FF", "7F", "FF", "FF00"],
    "boolean": ["false", "true"],
    "tinyint": ["-128", "-1", "0", "1", "127"],
    "bigint": ["-9223372036854775808", "-1", "0", "1", "9223372036854775807"],
}  # fmt: skip


def literal(kind: str, text: str) -> str:
    return f"X'{text}'" if kind == "binary" else f"cast('{text}' as {kind})"


def conditions_on(values: list[str]) -> list[str]:
    first, second, *_, last = values if len(values) > 2 else [values[0], *values]
    middle = values[len(values) // 2]
    some = ", ".join(values[1::2])
    return [
        f"k = {first}",
        f"k <=> {middle}",
        f"k = {last}",
        f"k in ({some}, null)",
        "k = null",
        f"k > {first}",
        f"k >= {middle} and k < {last}",
        f"k > {second} and k <= {middle} and k != {middle}",
        f"k < {first} or k > {last}",
        f"k < {first}",
        f"k > {last}",
        f"k <= {first}",
        f"k >= {last}",
    ]


def numbers(load: Callable[[], DataFrame], conditions: list[str]) -> dict[int, list[int]]:
    """Return n of the rows that meet each condition, by its number. Each condition is a separate scan of one query."""
    parts = [load().where(text).selectExpr(f"{number} as c", "n") for number, text in enumerate(conditions)]
    found: dict[int, list[int]] = {number: [] for number in range(len(conditions))}
    for row in reduce(lambda one, other: one.unionAll(other), parts).collect():
        found[row.c].append(row.n)
    return {number: sorted(each) for number, each in found.items()}


@pytest.mark.parametrize("kind", KEYS)
def test_filters_on_keys_of_each_type(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    out, values = str(tmp_path / "out"), [literal(kind, text) for text in KEYS[kind]]
    rows = ", ".join(f"({value}, {n})" for n, value in enumerate(values))
    writer = spark.sql(f"select * from values {rows} as (k, n)").coalesce(1).write.format("ftkv").mode("append")
    writer.options(keyColumns="k", buckets=2).save(out)
    reader = spark.read.format("ftkv")
    asked = [value for text, value in zip(KEYS[kind], values, strict=True) if text[:1] != "+" and text[:3] != "-00"]
    conditions = conditions_on(asked)
    whole = reader.load(out).cache()
    expected = numbers(lambda: whole, conditions)
    whole.unpersist()
    assert sorted(expected[0] + expected[5]) == [n for n, value in enumerate(values) if n >= values.index(asked[0])]
    spark.conf.set(PUSHDOWN, "true")
    try:
        pushing = reader.option("filterPushdown", "true")
        assert numbers(lambda: pushing.load(out), conditions) == expected
        for number in (0, 3, 6):
            plan: Any = pushing.load(out).where(conditions[number])._jdf.queryExecution().executedPlan().toString()
            assert not re.findall(r" Filter .*k#", plan), (conditions[number], plan)
    finally:
        spark.conf.unset(PUSHDOWN)


def test_years_that_python_has_not_are_refused_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """As in docs/keyed-state.md: if this test fails, the reader can accept these filters."""
    out = str(tmp_path / "out")
    rows = spark.sql("select date'+12345-06-07' as k, 1 as n")
    rows.write.format("ftkv").mode("append").options(keyColumns="k", buckets=2).save(out)
    spark.conf.set(PUSHDOWN, "true")
    try:
        pushing = spark.read.format("ftkv").option("filterPushdown", "true").load(out)
        assert "year 12345 is out of range" in message(pushing.where("k = date'+12345-06-07'").collect)
    finally:
        spark.conf.unset(PUSHDOWN)
