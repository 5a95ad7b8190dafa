"""One version of a directory in Spark: its own source, `ftfile.spark.load`, `format("ftfile")`; rows in memory."""

from __future__ import annotations

import logging
import statistics
import time
from typing import TYPE_CHECKING

import ftfile.spark
from benchmarks.null_source import InMemorySource
from benchmarks.report import Cell, Table
from benchmarks.spark_session import in_own_process, open_session, transports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS, SMOKE_ROWS = 20_000_000, 2_000
ROUNDS = 5
FILES = 20
TASKS = 2  # of rows in memory, one for each of Spark's cores
WAYS = ("spark.read.parquet", "ftfile.spark.load", 'format("ftfile")', 'format("ftfile"), told', "rows in memory")
COLUMNS = ("query", "way", "median s", "min s", "x spark's own")
QUERIES: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "all columns": lambda frame: frame,
    "sum of one": lambda frame: frame.selectExpr("sum(value)"),
    "count()": lambda frame: frame.groupBy().count(),
    "one partition": lambda frame: frame.where("day = 3"),
    "id = 5": lambda frame: frame.where("id = 5"),
}
# What the last way is told, as the page on reading says: the columns, since Spark tells none, and to take filters.
TOLD = {"sum of one": "value double", "count()": "day int"}
SCHEMA = "id bigint, value double, name string, number bigint, day int"


def run(settings: Settings) -> list[Table]:
    """Read rows of five columns in twenty partitions of a file each, and time what is asked, from `load` to the end."""
    count = SMOKE_ROWS if settings.smoke else settings.rows or ROWS
    unix_sockets = [*transports().values()][-1]
    rounds = 1 if settings.smoke else ROUNDS
    found = in_own_process(_measure, settings.directory, count, rounds, unix_sockets=unix_sockets)
    return [
        Table(
            f"load: {count:,} rows of 5 columns, {FILES} partitions, {rounds} rounds after one that is not counted",
            COLUMNS,
            tuple(_row(query, way, found) for query in QUERIES for way in WAYS),
            "Each query into Spark's noop sink, from `load` on; ratios of medians. Told is with `filterPushdown=true`, "
            "and with the columns by `.schema(…)` where not all are asked for. Rows in memory are those that this way "
            f"gives to Spark, from a Python source that opens no file, in {TASKS} tasks: what Spark takes for any.",
        )
    ]


Times = dict[tuple[str, str], list[float]]


def _row(query: str, way: str, found: Times) -> tuple[Cell, ...]:
    median, own = (statistics.median(found[query, each]) for each in (way, WAYS[0]))
    return query, way, median, min(found[query, way]), median / own


def _measure(directory: Path, count: int, rounds: int, *, unix_sockets: bool) -> Times:
    out = str(directory / "out")
    found: Times = {(query, way): [] for query in QUERIES for way in WAYS}
    more = {"spark.sql.python.filterPushdown.enabled": "true"}
    with open_session(directory, unix_sockets=unix_sockets, more=more) as spark:
        frame = spark.range(0, count, 1, FILES).selectExpr(
            *("id", "rand(1) AS value", "concat('name-', id % 1000) AS name", "id * 7919 % 1000003 AS number"),
            f"int(id * {FILES} div {count}) AS day",
        )
        frame.write.format("ftfile").option("partitionBy", "day").mode("append").save(out)
        spark.dataSource.register(InMemorySource)
        for number in range(rounds + 1):
            for query in QUERIES:
                for way in WAYS if number % 2 else WAYS[::-1]:
                    start = time.perf_counter()
                    _read(spark, way, out, query, count)
                    seconds = time.perf_counter() - start
                    LOGGER.info("load: %s by %s: %.2f s", query, way, seconds)
                    if number:
                        found[query, way].append(seconds)
    return found


def _read(spark: SparkSession, way: str, out: str, query: str, count: int) -> None:
    if way == WAYS[0]:
        frame = spark.read.parquet(out)
    elif way == WAYS[1]:
        frame = ftfile.spark.load(spark, out)
    elif way == WAYS[2]:
        frame = spark.read.format("ftfile").load(out)
    elif way == WAYS[4]:
        # Those that a source which takes filters gives to Spark.
        rows = {"one partition": count // FILES, "id = 5": 1}.get(query, count)
        reader = spark.read.format("benchmark_in_memory").option("rows", rows).option("tasks", TASKS)
        frame = reader.schema(TOLD.get(query, SCHEMA)).load()
    else:
        reader = spark.read.format("ftfile").option("filterPushdown", "true")
        frame = (reader.schema(TOLD[query]) if query in TOLD else reader).load(out)
    QUERIES[query](frame).write.format("noop").mode("overwrite").save()
