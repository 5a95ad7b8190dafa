"""Readers of Delta and Iceberg tables that return the ids of the rows that a condition selects."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

from ftfile.operate.export.iceberg_statistics import IcebergStatistics
from ftfile.rows.conditions import predicate
from tests.unit.operate.export.formats import duckdb_with, export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit.random_conditions import Condition

    Reader = Callable[[Condition], list[int]]


def delta_readers(url: str, schema: pa.Schema) -> dict[str, Reader]:
    """Return the readers of a Delta table by name; they read the newest version at this time."""
    deltalake, polars = pytest.importorskip("deltalake"), pytest.importorskip("polars")
    table = deltalake.DeltaTable(url)
    dataset = table.to_pyarrow_dataset()
    connection = duckdb_with("delta").cursor()
    connection.execute("SET TimeZone = 'UTC'")
    frame = polars.SQLContext(t=polars.scan_delta(url))

    def by_datafusion(condition: Condition) -> list[int]:
        found = deltalake.QueryBuilder().register("t", table).execute(f'SELECT "id" FROM t WHERE {condition.sql}')
        return _ids(pa.table(found.read_all()))

    return {
        "dataset": lambda condition: _ids(dataset.to_table(filter=_expression(condition, schema))),
        "table": lambda condition: _ids(table.to_pyarrow_table(filters=_expression(condition, schema))),
        "datafusion": by_datafusion,
        "duckdb": lambda condition: _ids(
            connection.execute(f"SELECT id FROM delta_scan('{url}') WHERE {condition.sql}").to_arrow_table()
        ),
        "polars": lambda condition: _ids(frame.execute(f"SELECT id FROM t WHERE {condition.sql}").collect()),
    }


def without_delta_statistics(url: str, copy: Path) -> str:
    """Copy a directory, and remove all statistics but the numbers of rows from its Delta table; return the copy."""
    shutil.copytree(url, copy)
    for path in copy.glob("_delta_log/*.parquet"):
        path.unlink()
    for path in copy.glob("_delta_log/*.json"):
        lines: list[str] = []
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                rows = json.loads(action["add"]["stats"])["numRecords"]
                action["add"]["stats"] = json.dumps({"numRecords": rows})
            if "metaData" in action:
                action["metaData"]["configuration"] = {}
            lines.append(json.dumps(action))
        path.write_text("\n".join(lines) + "\n")
    return str(copy)


def iceberg_readers(url: str) -> dict[str, Reader]:
    """Return the readers of an Iceberg table by name; they read the newest version at this time."""
    opened = pytest.importorskip("pyiceberg.table").StaticTable.from_metadata(f"{url}/_iceberg")
    polars = pytest.importorskip("polars")
    connection = duckdb_with("avro", "iceberg").cursor()
    connection.execute("SET TimeZone = 'UTC'")
    newest = opened.metadata_location
    frame = polars.SQLContext(t=polars.scan_iceberg(newest))
    return {
        "pyiceberg": lambda condition: _ids(opened.scan(row_filter=condition.sql, selected_fields=("id",)).to_arrow()),
        "duckdb": lambda condition: _ids(
            connection.execute(f"SELECT id FROM iceberg_scan('{newest}') WHERE {condition.sql}").to_arrow_table()
        ),
        "polars": lambda condition: _ids(frame.execute(f"SELECT id FROM t WHERE {condition.sql}").collect()),
    }


def without_iceberg_statistics(url: str, copy: Path) -> str:
    """Copy a directory, and export the copy to Iceberg without statistics; return the copy."""
    shutil.copytree(url, copy, ignore=shutil.ignore_patterns("_iceberg"))
    with mock.patch.object(IcebergStatistics, "fields", return_value={}):
        export(str(copy), "iceberg")
    return str(copy)


def answer(reader: Reader, condition: Condition) -> list[int] | None:
    """Return the sorted ids of the rows; None if the reader does not support the condition."""
    try:
        return sorted(reader(condition))
    except Exception as error:
        if isinstance(error, OSError):
            raise
        return None


def _expression(condition: Condition, schema: pa.Schema) -> Any:
    return predicate(condition.where, schema, time_zone="UTC")


def _ids(table: Any) -> list[int]:
    ids: list[int] = (table if isinstance(table, pa.Table) else table.to_arrow())["id"].to_pylist()
    return ids
