from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS
from ftfile.filters.registry import CODECS

ROOT = Path(__file__).parents[2]
SINKS = {"ftfile json", "ftfile parquet", "null", "spark json", "spark parquet"}

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # one or two JVMs to a test


def run_smoke(name: str, directory: Path) -> list[list[dict[str, Any]]]:
    """The rows of every table of a benchmark in its smallest form."""
    figures = directory / "figures.json"
    command = [sys.executable, "-m", "benchmarks", name, "--smoke"]
    command += ["--directory", str(directory), "--json", str(figures)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    report = json.loads(figures.read_text())
    assert report["machine"]["cores"] >= 1
    assert [path.name for path in directory.iterdir()] == [figures.name], "scratch files are left"
    tables = [table["rows"] for table in report["results"][name]]
    assert all(f"| {next(iter(row.values()))}" in done.stdout for rows in tables for row in rows)
    return tables


def test_bulk(tmp_path: Path) -> None:
    (rows,) = run_smoke("bulk", tmp_path)
    assert {row["sink"] for row in rows} == SINKS | {"spark noop"}
    assert all(row["M rows/s"] > 0 for row in rows)
    by_sink = {row["sink"]: row for row in rows}
    assert by_sink["spark json"]["x spark's own"] == by_sink["null"]["x null"] == 1
    assert by_sink["null"]["beyond null"] == 0
    assert by_sink["ftfile json"]["Python CPU s/M rows"] > 0
    assert by_sink["spark json"]["Python CPU s/M rows"] is None
    # The same rows: JSON differs by Spark's way of writing a timestamp or a double, at most.
    assert by_sink["ftfile json"]["output MB"] == pytest.approx(by_sink["spark json"]["output MB"], rel=0.1)


def test_tiny(tmp_path: Path) -> None:
    tables = run_smoke("tiny", tmp_path)
    assert len(tables) == 2, "over TCP and over unix sockets"
    for rows in tables:
        assert {row["sink"] for row in rows} == SINKS | {"null, acknowledging"}
        assert all(row["addBatch p50 ms"] > 0 and row["batches"] == 2 for row in rows)
        assert rows[0]["over floor ms"] == 0


def test_commit(tmp_path: Path) -> None:
    (rows,) = run_smoke("commit", tmp_path)
    assert [row["step"].split(":")[0] for row in rows] == ["alone", "alone", "beside Spark"]
    assert all(0 < row["p50 ms"] <= row["p99 ms"] for row in rows)


def test_imports(tmp_path: Path) -> None:
    (rows,) = run_smoke("imports", tmp_path)
    by_step = {row["step"]: row["p50 ms"] for row in rows}
    assert {"pyarrow", "ftfile", "ftfile json: first task"} < by_step.keys()
    assert min(by_step.values()) > 0


def test_rows(tmp_path: Path) -> None:
    (rows,) = run_smoke("rows", tmp_path)
    assert [row["work"].split()[0] for row in rows] == ["parquet,", "fingerprint", "fingerprint", "route", "route"]
    assert all(figure > 0 for row in rows for name, figure in row.items() if name != "work")


def test_assembly(tmp_path: Path) -> None:
    (rows,) = run_smoke("assembly", tmp_path)
    assert [row["format"] for row in rows] == ["json", "json", "parquet", "parquet"]
    assert all(row["assembly ms"] > 0 for row in rows)


def test_growth(tmp_path: Path) -> None:
    (rows,) = run_smoke("growth", tmp_path)
    assert [row["files"] for row in rows] == [40, 80, 200]
    assert all(row["commit p50 ms"] > 0 and row["restart ms"] > 0 for row in rows)


def test_buckets(tmp_path: Path) -> None:
    (rows,) = run_smoke("buckets", tmp_path)
    assert [row["buckets"] for row in rows] == [1, 1000] * 4


def test_rolling(tmp_path: Path) -> None:
    files, reads = run_smoke("rolling", tmp_path)
    assert [row["files"] for row in files] == [6, 1, 6]
    assert all(row["bytes written per byte"] > 1 for row in files)
    assert all(min(row[reader] for reader in ("Spark s", "DuckDB s", "pandas s")) > 0 for row in reads)


def test_compression(tmp_path: Path) -> None:
    codecs, small, spark = run_smoke("compression", tmp_path)
    assert {row["codec"] for row in codecs} == {row["codec"] for row in small} == set(CODECS)
    assert all(figure > 0 for row in (*codecs, *small) for name, figure in row.items() if name != "codec")
    assert {row["files then"] for row in small} == {1}
    assert [row["sink"] for row in spark] == ["null", "ftfile json gzip", "spark json gzip"]
    assert spark[2]["x spark's gzip"] == 1


def test_unknown_names_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "bulkk"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert f"no benchmark bulkk; there are {', '.join(BENCHMARKS)}" in done.stderr
