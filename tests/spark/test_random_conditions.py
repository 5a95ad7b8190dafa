"""Conditions with literals of any type: no file with a matching row is left out, by Spark's own answers.

The oracle is Spark's Parquet source, which reads all rows from one file and has no statistics of ftfile.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructType

from ftfile.rows.spark_types import arrow_schema
from ftfile.spark import load
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from tests.kit.random_conditions import COLUMNS, NESTED, RandomConditions
from tests.kit.spark_conditions import MORE, TWICE, ZONES, SparkConditions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

ROUNDS = 20 if os.environ.get("FTFILE_THOROUGH") else 1
CONDITIONS = {"true": 10, "false": 40}  # of a session; with ANSI, many of them fail
ROWS = 60
READ = 3  # conditions of a session with which rows are read in each way
PUSHDOWN = {"spark.sql.python.filterPushdown.enabled": "true"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
NAMES = [name for name in COLUMNS if name not in NESTED]
IN_PATHS = [name for name in NAMES if name != "raw"]
SETTINGS = [(zone, ansi) for zone in ZONES for ansi in ("true", "false")]


@contextlib.contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Set a session's time zone and its rules for casts. Nothing is compiled, which would take most of the time."""
    names = {"zone": "spark.sql.session.timeZone", "ansi": "spark.sql.ansi.enabled"}
    given = {names[name]: value for name, value in values.items()} | INTERPRETED | PUSHDOWN
    before = {name: spark.conf.get(name, None) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


class Table:
    """The same rows in an ftfile directory of many files and in one file of Parquet."""

    def __init__(self, spark: SparkSession, folder: Path, dice: random.Random, partition_by: list[str]) -> None:
        folder.mkdir()
        self.out = str(folder / "out")
        columns = {"id": "long"} | {name: COLUMNS[name][0] for name in NAMES}
        options = {"fileFormat": "parquet", "maxRecordsPerFile": "2", "timeZone": dice.choice(ZONES)}
        if partition_by:
            options["partitionBy"] = ",".join(partition_by)
        self.description = f"partitions by {partition_by}"
        rows = RandomConditions(dice, NAMES, "UTC", MORE).rows(0, ROWS)
        if "City" in partition_by:
            rows = [row | {"City": row["City"] or None} for row in rows]
        MicroBatch(self.out, columns, options).run(0, [rows])
        self._schema = spark_schema(columns)
        self._all = str(folder / "all.parquet")
        pq.write_table(pa.Table.from_pylist(rows, arrow_schema(self._schema)), self._all)
        found = load(spark, self.out).select("id", F.input_file_name().alias("file")).collect()
        self.files: dict[str, set[int]] = {}
        for row in found:
            self.files.setdefault(row.file, set()).add(row.id)
        assert sum(map(len, self.files.values())) == ROWS

    def in_session(self, spark: SparkSession) -> TableInSession:
        """Return the table as a session sees it."""
        return TableInSession(
            self, spark, spark.read.schema(StructType.fromJson(json.loads(self._schema))).parquet(self._all)
        )


class TableInSession:
    """A table, and the answers of a session to conditions on its rows."""

    def __init__(self, table: Table, spark: SparkSession, rows: DataFrame) -> None:
        self._table = table
        self._spark = spark
        self.rows = rows  # of the oracle

    def matches(self, conditions: list[Any]) -> list[set[int] | str]:
        """Return for each condition the rows for which it is true, or the class of its error."""
        answers: dict[int, set[int] | str] = {}
        for number, condition in enumerate(conditions):
            try:
                self.rows.select(condition_of(condition))
            except PySparkException as error:
                answers[number] = str(error.getCondition())
        resolved = [number for number in range(len(conditions)) if number not in answers]
        found = self._evaluated([condition_of(conditions[number]) for number in resolved])
        answers.update(zip(resolved, found, strict=True))
        return [answers[number] for number in range(len(conditions))]

    def _evaluated(self, columns: list[Column]) -> list[set[int] | str]:
        """Return the answers of conditions, which are evaluated together unless one fails on a row."""
        names = [f"c{number}" for number in range(len(columns))]
        chosen = [column.alias(name) for column, name in zip(columns, names, strict=True)]
        try:
            found = self.rows.select("id", *chosen).collect()
        except PySparkException as error:
            if len(columns) == 1:
                return [str(error.getCondition())]
            middle = len(columns) // 2
            return self._evaluated(columns[:middle]) + self._evaluated(columns[middle:])
        return [{row.id for row in found if row[name]} for name in names]

    def kept(self, where: Any) -> set[int] | str:
        """Return the rows in the files that a load reads, or the class of the error."""
        try:
            files = load(self._spark, self._table.out, where=where).inputFiles()
        except PySparkException as error:
            return str(error.getCondition())
        return {number for file in files for number in self._table.files[file]}

    def check(self, conditions: list[Any]) -> int:
        """Compare the files that loads read with the rows that match. Return the number of rows left out."""
        zone, ansi = (self._spark.conf.get(f"spark.sql.{name}") for name in ("session.timeZone", "ansi.enabled"))
        excluded = 0
        matches = self.matches(conditions)
        for condition, expected in zip(conditions, matches, strict=True):
            kept = self.kept(condition)
            said = f"{condition} with {self._table.description} in {zone}, ansi={ansi}"
            if isinstance(expected, str):
                # The error is raised, or no file is left out whose rows may raise it.
                assert kept == expected or len(kept) == ROWS, said
            elif isinstance(kept, str):
                pytest.fail(f"{said}: {kept}")
            else:
                assert expected <= kept, said
                excluded += ROWS - len(kept)
        answers = []
        for condition, found in zip(conditions, matches, strict=True):
            # Spark 4.3's reader of Parquet skips row groups with NaN: it compares NaN with bounds that ignore it.
            if not isinstance(found, str) and "nan" not in str(condition).lower():
                answers.append((condition, found))
        self._check_rows(answers[:READ])
        return excluded

    def _check_rows(self, answers: list[tuple[Any, set[int]]]) -> None:
        """Compare the rows that each way of reading returns, all in one query."""
        frames = []
        for number, (condition, _) in enumerate(answers):
            pushing = self._spark.read.format("ftfile").option("filterPushdown", "true").load(self._table.out)
            ways = [
                load(self._spark, self._table.out, where=condition),
                load(self._spark, self._table.out, where=condition, statistics=False),
                pushing.where(condition_of(condition)),
            ]
            for way, frame in enumerate(ways):
                frames.append(frame.select(F.lit(number).alias("number"), F.lit(way).alias("way"), "id"))
        rows = functools.reduce(lambda one, two: one.union(two), frames).collect() if frames else []
        for number, (condition, expected) in enumerate(answers):
            for way in range(3):
                found = [row.id for row in rows if (row.number, row.way) == (number, way)]
                assert sorted(found) == sorted(expected), (condition, way, self._table.description)


def condition_of(where: Any) -> Column:
    """Return a condition for Spark."""
    if isinstance(where, str):
        return F.expr(where)
    condition = F.lit(True)
    for name, values in where.items():
        several = values if isinstance(values, list) else [values]
        one = F.col(f"`{name}`").isin([value for value in several if value is not None])
        condition &= (one | F.col(f"`{name}`").isNull()) if None in several else one
    return condition


@pytest.mark.parametrize("partitioned", [False, True])
def test_random_conditions_that_cast_columns_keep_all_matching_rows(
    spark: SparkSession, tmp_path: Path, seed: int, partitioned: bool
) -> None:
    dice = random.Random(f"{seed} {partitioned}")
    excluded = 0
    for number in range(ROUNDS):
        partition_by = dice.sample(IN_PATHS, dice.choice([1, 1, 2])) if partitioned else []
        table = Table(spark, tmp_path / str(number), dice, partition_by)
        for zone, ansi in SETTINGS:
            with settings(spark, zone=zone, ansi=ansi):
                draw = SparkConditions(dice, NAMES, zone)
                excluded += table.in_session(spark).check([draw.condition() for _ in range(CONDITIONS[ansi])])
    assert excluded > 100 * ROUNDS


# One literal of each type, and texts that Spark casts to other types.
LITERALS = ["7", "300", "9007199254740992.0D", "7.05", "7.5", "0.1D", "double('NaN')", "-0.0D", "TRUE", "'7'", "' 7 '"]
LITERALS += ["'abc'", "'true'", "'2024-10-27'", "'2024-10-27 02:30:00'", "'2024-03-31 02:30:00'", "DATE '2024-10-27'"]
LITERALS += ["TIMESTAMP '2024-10-27 02:30:00'", "TIMESTAMP_NTZ '2024-10-27 02:30:00'", "X'61'"]
VALUES: list[Any] = [7, 7.0, float("nan"), True, "7", " 7 ", "abc", "2024-10-27", "2024-10-27 02:30:00", b"a"]
VALUES += [Decimal("7.05"), dt.date(2024, 10, 27), dt.datetime.fromisoformat("2024-10-27T00:30:00+00:00")]
VALUES += [dt.datetime.fromisoformat("2024-10-27T02:30:00")]
FORMS = ["{0} = {1}", "{0} <=> {1}", "{0} < {1}", "{0} >= {1}", "NOT ({0} > {1})", "{0} BETWEEN {1} AND {1}"]
FORMS += ["{0} IN ({1})", "{0} NOT IN ({1}, {1})", "{1} <= {0}", "{0} = {1} OR {0} IS NULL", "NOT ({0} <=> {1})"]


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_each_type_of_column_is_compared_with_each_type_of_literal(
    spark: SparkSession, tmp_path: Path, partitioned: bool, ansi: str
) -> None:
    """Each pair has one of the forms; the random conditions have all of them.

    Each of the four tests has a third of the pairs, and all tests together have all of them.
    """
    dice = random.Random("pairs")
    table = Table(spark, tmp_path / "table", dice, IN_PATHS if partitioned else [])
    forms = FORMS if ansi == "true" else FORMS[::-1]
    conditions: list[Any] = []
    for place, name in enumerate(NAMES):
        for number, literal in enumerate(LITERALS):
            conditions.append(forms[(place + number) % len(forms)].format(f"`{name}`", literal))
        for number, value in enumerate(VALUES):
            conditions.append({name: [value, None, value] if number % 3 == 1 else value})
    if ROUNDS == 1:
        conditions = conditions[(2 * partitioned + (ansi == "true")) % 3 :: 3]
    with settings(spark, zone="Europe/Berlin", ansi=ansi):
        assert table.in_session(spark).check(conditions) > 300


def test_sessions_with_other_settings_read_one_directory_at_the_same_time(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    table = Table(spark, tmp_path / "table", dice, [])
    checks = []
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as threads:
        for zone, ansi in SETTINGS[1:5]:
            session = spark.newSession()
            stack.enter_context(settings(session, zone=zone, ansi=ansi))
            draw = SparkConditions(dice, NAMES, zone)
            conditions = [draw.condition() for _ in range(CONDITIONS["true"])]
            conditions += [{"at": str(clock)} for clock in TWICE]
            checks.append(threads.submit(table.in_session(session).check, conditions))
        for check in checks:
            check.result()
