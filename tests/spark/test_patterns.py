"""Patterns of plain readers that match the name `_ftfile` find no file in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import duckdb
import polars
import pytest

import ftfile
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.operate.every_file import write_directory

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def ids_below(out: Path) -> list[int]:
    """Return the rows in the published JSON files, which are found only by their names."""
    files = [path for path in out.rglob("*.json") if "_ftfile" not in path.parts]
    return sorted(json.loads(line)["id"] for path in files for line in path.read_text().splitlines())


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("patterns") / "out"
    write_directory(path)
    return path


@pytest.mark.parametrize("pattern", ["*", "*/*", "*/*/*", "*/*/*/*", "{*,*/*}"])
def test_spark(spark: SparkSession, out: Path, pattern: str) -> None:
    """Partition directories are one level below the root: a deeper pattern matches only files of `_ftfile`."""
    expected = ids_below(out) if pattern in {"*", "*/*"} else 2 * ids_below(out) if pattern[0] == "{" else []
    rows = spark.read.schema("id bigint").json(f"{out}/{pattern}").collect()
    lines = spark.read.text(f"{out}/{pattern}").collect()
    assert sorted(row.id for row in rows) == sorted(expected)
    assert sorted(json.loads(line.value)["id"] for line in lines) == sorted(expected)


@pytest.mark.parametrize("pattern", ["*", "*/*", "*/*.json", "**/*.json"])
def test_duckdb(out: Path, pattern: str) -> None:
    reader = f"read_json('{out}/{pattern}', format='newline_delimited', columns={{id: 'BIGINT'}})"
    if pattern == "*":
        with pytest.raises(duckdb.IOException, match="No files found"):
            duckdb.sql(f"SELECT id FROM {reader}")
    else:
        assert sorted(row[0] for row in duckdb.sql(f"SELECT id FROM {reader}").fetchall()) == ids_below(out)


def test_polars(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    query = MicroBatch(out, {"id": "long", "kind": "string"}, {"fileFormat": "parquet", "partitionBy": "kind"})
    for batch in range(6):
        query.run(batch, [[{"id": batch, "kind": "ab"[batch % 2]}]])
    ftfile.compact(out)
    ftfile.delete(out, "id = 3")
    open_query = MicroBatch(out, query.columns, {**query.options, "maxBatchesPerFile": "9", "onNewQuery": "continue"})
    open_query.query_id = "00000000-0000-0000-0000-000000000009"
    open_query.run(0, [[{"id": 9, "kind": "a"}]])
    for pattern in (out, f"{out}/**/*"):
        rows = polars.scan_parquet(pattern, hidden_file_prefix="_").collect()
        assert sorted(rows["id"].to_list()) == [0, 1, 2, 4, 5]
    for pattern in (f"{out}/*/*", f"{out}/**/*.parquet"):
        assert sorted(polars.scan_parquet(pattern).collect()["id"].to_list()) == [0, 1, 2, 4, 5]
