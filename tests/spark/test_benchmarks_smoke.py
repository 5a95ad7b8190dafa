from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from ftfile.core.codecs import CODECS
from tests.crash.share import THOROUGH
from tests.object_stores import azure

ROOT = Path(__file__).parents[2]
SINKS = {"ftfile json", "ftfile parquet", "null", "spark json", "spark parquet"}

# Number of benchmarks in the suite; `make long` runs all of them.
DRAWN = 1


class Tables(dict[str, list[list[dict[str, Any]]]]):
    """The rows of every table of the benchmarks that ran, by name."""

    def __missing__(self, name: str) -> list[list[dict[str, Any]]]:
        pytest.skip(f"{name} was not drawn in this run")


pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def drawn(pytestconfig: pytest.Config) -> list[str]:
    """Names of the benchmarks to run."""
    return [*BENCHMARKS] if THOROUGH else random.Random(pytestconfig.option.seed).sample([*BENCHMARKS], DRAWN)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, drawn: list[str]) -> Tables:
    """The output of benchmarks in their smallest form, in one JVM."""
    directory = tmp_path_factory.mktemp("benchmarks")
    figures = directory / "figures.json"
    options = ["--smoke", "--directory", str(directory), "--json", str(figures)]
    command = [sys.executable, "-m", "benchmarks", *([] if THOROUGH else drawn), *options]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    report = json.loads(figures.read_text())
    assert report["machine"]["cores"] >= 1
    assert [path.name for path in directory.iterdir()] == [figures.name], "scratch files are left"
    tables = Tables((name, [table["rows"] for table in made]) for name, made in report["results"].items())
    rows = [row for made in tables.values() for table in made for row in table]
    assert all(f"| {next(iter(row.values()))}" in done.stdout for row in rows)
    return tables


def test_all_that_were_asked_for_are_there(tables: Tables, drawn: list[str]) -> None:
    assert tables.keys() == set(drawn)


def test_bulk(tables: Tables) -> None:
    (rows,) = tables["bulk"]
    assert {row["sink"] for row in rows} == SINKS | {"spark noop"}
    assert all(row["M rows/s"] > 0 for row in rows)
    by_sink = {row["sink"]: row for row in rows}
    assert by_sink["spark json"]["x spark's own"] == by_sink["null"]["x null"] == 1
    assert by_sink["null"]["beyond null"] == 0
    assert by_sink["ftfile json"]["Python CPU s/M rows"] > 0
    assert by_sink["spark json"]["Python CPU s/M rows"] is None
    # The same rows; in JSON only Spark's forms of timestamps and doubles may differ.
    assert by_sink["ftfile json"]["output MB"] == pytest.approx(by_sink["spark json"]["output MB"], rel=0.1)


def test_load(tables: Tables) -> None:
    (rows,) = tables["load"]
    ftfile = ['format("ftfile")', 'format("ftfile"), told']
    assert {row["way"] for row in rows} == {"spark.read.parquet", "ftfile.spark.load", *ftfile, "rows in memory"}
    assert len(rows) == 25
    assert all(row["median s"] >= row["min s"] > 0 and row["x spark's own"] > 0 for row in rows)


def test_tail(tables: Tables) -> None:
    latencies, batches = tables["tail"]
    assert [row["scanInterval"] for row in latencies] == ["1s", "100ms", "1s", "100ms", "null source"]
    assert all(0 < row["p50 ms"] <= row["p99 ms"] for row in latencies)
    # The null source has one row for all lines that arrive within a batch.
    assert [row["lines"] for row in latencies[:-1]] == [3] * 4
    assert {row["source"] for row in batches} == {"null source", "ftfile text", "spark text"}
    assert all(row["batches"] == 2 and row["trigger p50 ms"] >= row["addBatch p50 ms"] > 0 for row in batches)


def test_tiny(tables: Tables) -> None:
    assert len(tables["tiny"]) == 2, "over TCP and over unix sockets"
    for rows in tables["tiny"]:
        assert {row["sink"] for row in rows} == SINKS | {"null, acknowledging"}
        assert all(row["addBatch p50 ms"] > 0 and row["batches"] == 2 for row in rows)
        assert rows[0]["over floor ms"] == 0


def test_first(tables: Tables) -> None:
    (rows,) = tables["first"]
    assert {row["sink"] for row in rows} == SINKS | {"null, acknowledging"}
    assert all(row["p50 ms"] > 0 and row["applications"] == 1 for row in rows)
    assert {(row["write"], row["Python"]) for row in rows} == {
        (write, python) for write in ("stream", "batch") for python in (None, "as delivered", "ftfile-python")
    }


def test_follow(tables: Tables) -> None:
    plans, *triggers = tables["follow"]
    assert [row["plans"] for row in plans] == [2, 10, 10, 2, 4, 4]
    assert all(row["CPU ms a plan"] > 0 for row in plans)
    assert len(triggers) == 2, "over TCP and over unix sockets"
    for rows in triggers:
        assert [row["source"] for row in rows] == ["null source", "ftfile", "spark text"]
        assert all(row["batches"] == 2 and 0 < row["addBatch min ms"] < row["trigger min ms"] for row in rows)
        assert rows[0]["over null ms"] == 0


def test_commit(tables: Tables) -> None:
    (rows,) = tables["commit"]
    assert [row["step"].split(":")[0] for row in rows] == ["alone", "alone", "beside Spark"]
    assert all(0 < row["p50 ms"] <= row["p99 ms"] for row in rows)


def test_compaction(tables: Tables) -> None:
    (rows,) = tables["compaction"]
    threads, tasks = ["one thread", "a thread for each core"], ["tasks of Spark", "tasks of Spark, two executors"]
    assert [row["merged by"] for row in rows] == [*threads, *tasks]
    assert all((row["files before"], row["files after"]) == (10, 1) for row in rows)
    assert all(row["MB/s"] > 0 and row["MB after"] > 0 for row in rows)


def test_plans(tables: Tables) -> None:
    (rows,) = tables["plans"]
    asked = {(row["read by"], row["asked for"]) for row in rows}
    ways = ("ftfile.spark.load", 'format("ftfile")', "spark.read.parquet")
    own = {("ftfile.spark.load, where=", "one directory")}
    assert asked == {(way, query) for way in ways for query in ("all", "one directory")} | own
    assert all(row["files"] == 140 for row in rows)
    assert all(row["first, s"] > 0 and row["later, median s"] > 0 and row["tasks"] > 0 for row in rows)


def test_command(tables: Tables) -> None:
    (rows,) = tables["command"]
    called = ["--help", *("status", "history", "history", "ls", "ls", "show", "show", "verify")]
    assert [row["call"].split()[1] for row in rows] == called
    assert all(row["lines"] > 0 and row["s"] > 0 and row["MB"] > 0 for row in rows)


def test_export(tables: Tables) -> None:
    commits, many = tables["export"]
    assert [row["step"] for row in commits] == ["commit", *(f"export to {to}" for to in ("delta", "iceberg"))]
    assert all(0 < row["p50 ms"] <= row["p99 ms"] and row["times"] == 3 for row in commits)
    assert [(row["format"], row["files"]) for row in many] == [("delta", 200), ("iceberg", 200)]
    assert all(row["first export s"] > 0 and row["export of no change s"] > 0 for row in many)


def test_imports(tables: Tables) -> None:
    (rows,) = tables["imports"]
    by_step = {row["step"]: row["p50 ms"] for row in rows}
    assert {"pyarrow", "ftfile json: plan", "ftfile json: task", "ftfile json: commit"} < by_step.keys()
    assert min(by_step.values()) > 0


def test_rows(tables: Tables) -> None:
    (rows,) = tables["rows"]
    assert [row["work"].split()[0] for row in rows] == ["parquet,", "fingerprint", "fingerprint", "route", "route"]
    assert all(figure > 0 for row in rows for name, figure in row.items() if name != "work")


def test_assembly(tables: Tables) -> None:
    (rows,) = tables["assembly"]
    assert [row["format"] for row in rows] == ["json", "json", "parquet", "parquet"]
    assert all(row["assembly ms"] > 0 for row in rows)


def test_committer(tables: Tables) -> None:
    (rows,) = tables["committer"]
    assert [(row["files"], row["files are"]) for row in rows] == [(6, "staged"), (6, "in place")]
    assert all(row["processor s"] > 0 and row["record MB"] > 0 for row in rows)


def test_growth(tables: Tables) -> None:
    (rows,) = tables["growth"]
    assert [row["files"] for row in rows] == [40, 80, 200]
    assert all(row["commit p50 ms"] > 0 and row["restart ms"] > 0 for row in rows)


def test_directories(tables: Tables) -> None:
    (rows,) = tables["directories"]
    assert [row["directories"] for row in rows] == [1, 1000] * 4


def test_rolling(tables: Tables) -> None:
    files, reads = tables["rolling"]
    assert [row["files"] for row in files] == [6, 1, 6]
    assert all(row["bytes written per byte"] > 1 for row in files)
    assert all(min(row[reader] for reader in ("Spark s", "DuckDB s", "pandas s")) > 0 for row in reads)


def test_object_stores(tables: Tables) -> None:
    libraries = ["botocore"] if azure.what_is_missing() else ["botocore", "adlfs"]
    first, second, assembly, *others = tables["objectstores"]
    assert [row["way"] for row in assembly] == ["read and sent", "copied within the storage"]
    assert all(row["ms"] > 0 and row["processor ms"] > 0 for row in assembly)
    measured = [first, second, *others]
    for library, writers, commits in zip(libraries, measured[::2], measured[1::2], strict=True):
        assert [row["writer"] for row in writers] == [f"{library} alone", "ftfile"]
        assert [(row["publish"], row["files"]) for row in commits] == [("copy", 8), ("direct", 8)]
        assert all(row["p50 ms"] > 0 and row["requests"] > 8 for row in commits)


def test_local(tables: Tables) -> None:
    writers, commits = tables["local"]
    assert [row["writer"] for row in writers] == ["python alone", "ftfile"]
    assert [row["files"] for row in commits] == [8]
    assert all(row["p50 ms"] > 0 and row["calls"] > 8 for row in commits)


def test_compression(tables: Tables) -> None:
    codecs, encrypted, small, spark = tables["compression"]
    assert {row["codec"] for row in codecs} == {row["codec"] for row in small} == set(CODECS)
    assert all(figure > 0 for row in (*codecs, *encrypted, *small) for name, figure in row.items() if name != "codec")
    assert [row["codec"] for row in encrypted] == ["none", "zstd", "gzip"]
    assert {row["files then"] for row in small} == {1}
    assert [row["sink"] for row in spark] == ["null", "ftfile json gzip", "spark json gzip"]
    assert spark[2]["x spark's gzip"] == 1


def test_hdfs(tables: Tables) -> None:
    writers, commits, streams = tables["hdfs"]
    assert [row["x library alone"] == 1 for row in writers] == [True, False, True, False]
    assert [row["files"] for row in commits] == [8, 20] * 2
    assert all(row["calls of the library"] > row["files"] for row in commits)
    assert {row["close delay ms"] for row in streams} == {5}
    assert all(row["bulk: M rows/s"] > 0 and row["tiny: addBatch p50 ms"] > 0 for row in streams)
    assert [row["x spark's own"] == 1 for row in streams] == [False, False, True]


def test_pywrite(tables: Tables) -> None:
    rows, (memory,) = tables["pywrite"]
    delta = ["ftfile", "delta-rs", "delta-rs, tuned"]
    assert [row["writer"] for row in rows] == ["ftfile", "pyarrow, synced", "pyarrow, tuned, synced", *delta, *delta]
    assert all(row["s"] > 0 and row["processor s"] > 0 and row["MB"] > 0 for row in rows)
    for row in rows:
        assert (row["ftfile is x as fast"] == 1) == (row["writer"] == "ftfile")
    assert [row["goal"] for row in rows if row["goal"]] == [">= 0.9", ">= 1.5", ">= 5"]
    assert 0 < memory["peak MiB"] < 300


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bulkk"])
    assert ended.value.code == 2
    assert f"no benchmark bulkk; there are {', '.join(BENCHMARKS)}" in capsys.readouterr().err
