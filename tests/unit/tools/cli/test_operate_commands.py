"""The commands `flush`, `compact`, `vacuum`, `expire` and `export`: preview, execution, and report."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.tools.cli.running import documents, run


def made_old(path: str, days: float) -> None:
    """Set the modification times of all files and directories to some days ago."""
    then = time.time() - days * 86_400
    for file in Path(path).rglob("*"):
        os.utime(file, (then, then))


@pytest.mark.slow
def test_flush(rolled: str) -> None:
    assert run("flush", rolled, "--due-only", "--dry-run").stdout == "Nothing to finish\n"
    assert run("flush", rolled, "--dry-run").stdout == "Would finish about 2 files of 12 rows\n"
    assert documents("flush", rolled, "--dry-run") == [{"files": 2, "rows": 12, "version": 2, "dry_run": True}]
    assert ftfile.open(rolled).version() == 2
    result = run("flush", rolled, "--threads", 1)
    assert result.stdout == "Finished 2 files of 12 rows; the newest version is 3\n"
    assert result.stderr == "This finishes about 2 files of 12 rows\n"
    assert documents("flush", rolled) == [{"files": 0, "rows": 0, "version": 3, "dry_run": False}]
    result = run("flush", rolled)
    assert (result.stdout, result.stderr) == ("Nothing to finish\n", "")


@pytest.mark.slow
def test_flush_of_a_query_that_never_wrote(rolled: str) -> None:
    (query,) = ftfile.open(rolled).status().queries
    for options in ((), ("--dry-run",)):
        output = run("flush", rolled, "--query", "nobody", *options, code=2).stderr
        assert (
            output
            == f"ftfile: --query 'nobody': this query has not written here. Queries that have: {query.query_id}\n"
        )
    assert ftfile.open(rolled).version() == 2
    assert run("flush", rolled, "--query", query.query_id).stdout.startswith("Finished 2 files")
    assert run("flush", rolled, "--query", query.query_id).stdout == "Nothing to finish\n"


@pytest.mark.slow
def test_compact_sorts_rows(out: str) -> None:
    assert run("compact", out, "--sort-by", "word DESC", code=2).stderr.startswith("ftfile: --sort-by 'word DESC'")
    assert run("compact", out, "--sort-by", "word").stdout.startswith("Merged 6 files")
    words = [row["word"] for row in ftfile.open(out).to_arrow().to_pylist() if row["month"] == "6"]
    assert words == sorted(words)
    assert run("compact", out, "--sort-by", "word").stdout == "Nothing to merge\n"


@pytest.mark.slow
def test_compact(out: str) -> None:
    (plan,) = documents("compact", out, "--where", "month = '6'", "--dry-run")
    assert (plan["version"], plan["files_removed"], plan["files_written"], plan["rows"]) == (None, 3, 1, 6)
    assert ftfile.open(out).version() == 2
    assert run("compact", out, "--dry-run").stdout.endswith(" with 12 rows into about 2\n")
    result = run("compact", out, "--commit-every", 1)
    assert result.stdout.startswith("Merged 6 files of ")
    assert result.stdout.endswith("; the newest version is 4\n")
    assert run("compact", out).stdout == "Nothing to merge\n"
    assert documents("compact", out)[0]["records"] == 0
    assert "128MiB" in run("compact", out, "--target", "many", code=2).stderr


@pytest.mark.slow
def test_vacuum_asks_and_deletes(out: str) -> None:
    ftfile.compact(out)
    made_old(out, days=8)
    plan = run("vacuum", out, "--dry-run").stdout
    assert plan.startswith("Would delete 6 files of ")
    assert "\nretired\t6\t" in plan
    result = run("vacuum", out, code=2)
    assert "--yes" in result.stderr
    assert documents("vacuum", out, "--dry-run")[0]["files"][0]["kind"] == "retired"
    (report,) = documents("vacuum", out, "--yes")
    assert (len(report["files"]), report["dry_run"]) == (6, False)
    assert run("vacuum", out).stdout == "Deleted nothing\n", "it only asks a question if data can be lost"
    assert check_directory(open_filesystem(out)).live_rows.total() == 12
    for command, option in (("vacuum", "--retention"), ("expire", "--older-than")):
        output = run(command, out, option, "1h", code=2).stderr
        assert "24h" in output
        assert output.endswith("If no other process writes or reads, use --force\n")
    run("vacuum", out, "--retention", "1h", "--force", "--yes")


@pytest.mark.slow
def test_vacuum_says_what_waits(out: str) -> None:
    ftfile.compact(out)
    text = run("vacuum", out, "--dry-run").stdout
    assert text.startswith(
        "Would delete nothing\n\nFiles that cannot be deleted yet\n"
        "files\tbytes\tfirst from (UTC)\tlast from (UTC)\twhy\n"
    )
    assert text.endswith("\tversions within the retention contain it\n")
    (report,) = documents("vacuum", out, "--dry-run")
    (group,) = report["waiting"]
    newest = ftfile.open(out).history()[-1].time_ms
    assert (group["reason"], group["files"], group["first_ms"]) == ("readers", 6, newest + 7 * 86_400_000)


@pytest.mark.slow
def test_vacuum_says_what_is_younger_than_the_newest_record(out: str) -> None:
    lost = Path(out, layout.STAGED, "lost")
    lost.touch()
    at_s = Path(out, layout.record_path(2)).stat().st_mtime
    for record in Path(out, layout.LOG).iterdir():
        os.utime(record, (at_s - 600, at_s - 600))
    os.utime(lost, (at_s - 300, at_s - 300))
    text = run("vacuum", out, "--retention", "0s", "--force", "--yes").stdout
    assert text.startswith("Deleted nothing\n\nFiles that cannot be deleted yet\n")
    assert "\n1\t0\t\t\tnot older than the newest record " in text
    assert run("vacuum", out, "--retention", "0s", "--force", "--yes").stdout.startswith("Deleted 1 file of 0 B. ")


@pytest.mark.slow
def test_expire(out: str) -> None:
    ftfile.compact(out)
    made_old(out, days=50)
    for number, file in enumerate(sorted(Path(out, "_ftfile/log").glob("*.record"))):
        os.utime(file, (time.time() - 86_400 * (40 - number),) * 2)
    # The version before the compaction is one of the last two versions, so `expire` must keep all of its files.
    assert run("expire", out, "--keep-last", 2).stdout == "Deleted nothing\n"
    assert run("expire", out, "--older-than", "90d").stdout == "Deleted nothing\n"
    assert ftfile.open(out).count(2) == 12
    assert "--yes" in run("expire", out, code=2).stderr
    assert len(documents("expire", out, "--yes")[0]["files"]) == 6
    assert ftfile.open(out).count() == 12
    assert "--keep-last 0" in run("expire", out, "--keep-last", 0, code=2).stderr


def test_export(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "parquet"})
    query.run(0, [[{"id": 1}]])
    plan = ("export", query.path, "--dry-run")
    planned = {"version": 0, "versions": 1, "open_rows": 0, "waiting": 0, "dry_run": True}
    assert documents(*plan) == [planned]
    assert not Path(query.path, "_delta_log").exists()
    assert run("export", query.path).stdout == "result\tExported 1 version\nreaders see\tversion 0\n"
    for batch in (1, 2):
        query.run(batch, [[{"id": 1}]])
    assert documents(*plan)[0]["versions"] == 2
    assert documents("export", query.path)[0]["versions"] == 2
    assert documents(*plan)[0]["versions"] == 0


def test_exports_to_iceberg(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "parquet"})
    query.run(0, [[{"id": 1}]])
    export = ("export", query.path, "--to", "iceberg")
    before = {*Path(query.path).rglob("*")}
    assert documents(*export, "--dry-run")[0]["versions"] == 1
    assert {*Path(query.path).rglob("*")} == before
    assert run(*export).stdout.startswith("result\tExported 1 version\n")
    assert documents(*export, "--dry-run")[0]["versions"] == 0


def test_an_export_that_would_be_refused(out: str) -> None:
    assert "needs Parquet" in run("export", out, "--dry-run", code=2).stderr
