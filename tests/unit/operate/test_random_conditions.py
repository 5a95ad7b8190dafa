"""Random conditions on random rows in files: a read, a count and a delete select the same rows as DuckDB."""

from __future__ import annotations

import contextlib
import os
import random
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import ftfile
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from tests.kit.random_conditions import COLUMNS, NARROW, NESTED, WIDE, Condition, RandomConditions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.operate.open_directory import OpenedDirectory

# The planted mistakes fail with every seed.
CONDITIONS = int(os.environ.get("FTFILE_CONDITIONS", "1000" if os.environ.get("FTFILE_THOROUGH") else "80"))
FORMATS = ["parquet", "json", "csv", "avro", "orc", "arrow"]
SHAPES = [(name, layout) for name in FORMATS for layout in ("flat", "partitioned")]
SHAPES += [("json", "open"), ("parquet", "widened"), ("orc", "widened"), ("json", "widened")]
OF_A_TABLE = 25
ROWS = 25  # in each task
DELETES = 2


class Table:
    """The same rows in an ftfile directory and in a DuckDB table."""

    def __init__(self, out: str, file_format: str, layout: str, dice: random.Random) -> None:
        names = [name for name in COLUMNS if file_format != "csv" or name not in {*NESTED, "raw"}]
        self.time_zone = dice.choice(["UTC", "Europe/Berlin", "America/New_York"])
        self.draw = RandomConditions(dice, names, self.time_zone)
        options = {"fileFormat": file_format, "timeZone": self.time_zone, "onSchemaChange": "any"}
        if layout == "partitioned":
            options["partitionBy"] = dice.choice([name for name in names if name not in {*NESTED, "raw"}])
        if layout == "open":
            options["maxBatchesPerFile"] = "2"
        else:
            options["maxRecordsPerFile"] = dice.choice(["2", "5", "100"])  # statistics exclude files with few rows
        columns = {"id": "long"} | {name: COLUMNS[name][0] for name in names}
        query = MicroBatch(out, columns | (NARROW if layout == "widened" else {}), options)
        self.description = f"{file_format}, {layout}, {options}"
        rows = list[dict[str, Any]]()
        for batch in range(3):
            tasks = [self._drawn(len(rows) + ROWS * task, options) for task in range(2)]
            query.run(batch, tasks)
            rows += [row for task in tasks for row in task]
            if layout == "widened":
                query.columns = columns = columns | WIDE
        self.rows = pa.Table.from_pylist(rows, arrow_schema(spark_schema(columns)))
        self.out = out

    def _drawn(self, first: int, options: dict[str, str]) -> list[dict[str, Any]]:
        """Return the rows of a task. An empty text of a partition column is refused, so it is null."""
        rows = self.draw.rows(first, ROWS)
        if options.get("partitionBy") == "City":
            return [row | {"City": row["City"] or None} for row in rows]
        return rows

    def opened(self) -> OpenedDirectory:
        return ftfile.open(self.out)

    @contextlib.contextmanager
    def in_duckdb(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'; SET threads = 1")
            database.register("given", self.rows)
            # Copy the table: DuckDB passes conditions on Arrow tables to Arrow, which orders NaN below all numbers.
            database.execute("CREATE TABLE rows AS SELECT * FROM given")
            yield database


def ids_of(database: duckdb.DuckDBPyConnection, sql: str) -> list[int]:
    return [number for (number,) in database.execute(f"SELECT id FROM rows WHERE {sql} ORDER BY id").fetchall()]


def by_id(table: pa.Table) -> list[str]:
    return [*map(repr, table.sort_by("id").to_pylist())]


def check(table: Table, condition: Condition, expected: list[int]) -> None:
    """Compare each call that takes a condition with the numbers of the rows for which the condition is true."""
    directory, where, said = table.opened(), condition.where, f"{condition} of {table.description}"
    assert sorted(directory.to_arrow(columns=["id"], where=where)["id"].to_pylist()) == expected, said
    of_all_files = ftfile.open(table.out, statistics=False).to_arrow(columns=["id"], where=where)
    assert sorted(of_all_files["id"].to_pylist()) == expected, said
    assert directory.count(where=where) == len(expected), said
    assert ftfile.delete(table.out, where, dry_run=True).rows_removed == len(expected), said


def delete(table: Table, database: duckdb.DuckDBPyConnection, condition: Condition) -> None:
    """Delete rows. The rows for which the condition is false or null stay, with the same values."""
    said = f"{condition} of {table.description}"
    rest = pa.array(ids_of(database, f"({condition.sql}) IS NOT TRUE"), pa.int64())
    database.execute(f"DELETE FROM rows WHERE {condition.sql}")
    ftfile.delete(table.out, condition.where)
    assert by_id(table.opened().to_arrow()) == by_id(table.rows.take(rest)), said


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize(("file_format", "layout"), SHAPES)
def test_rows_are_those_that_duckdb_chooses(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, file_format: str, layout: str
) -> None:
    monkeypatch.setattr("ftfile.formats.columnar.CollectingEncoder.group_rows_max", 8)
    dice = random.Random(f"{seed} {file_format} {layout}")
    missing = -(-CONDITIONS // len(SHAPES))
    matches = 0
    while missing > 0:
        table = Table(str(tmp_path / f"{missing}"), file_format, layout, dice)
        with table.in_duckdb() as database:
            conditions = [table.draw.condition() for _ in range(min(missing, OF_A_TABLE))]
            missing -= len(conditions)
            for condition in conditions:
                expected = ids_of(database, condition.sql)
                check(table, condition, expected)
                matches += len(expected)
            for condition in conditions[:DELETES]:
                delete(table, database, condition)
    assert matches > 0
