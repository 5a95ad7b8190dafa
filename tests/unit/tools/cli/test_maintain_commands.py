"""The commands `flush`, `compact`, `export`, `repair` and `migrate`: preview, question, execution, and report."""

from __future__ import annotations

from pathlib import Path

import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.tools.cli.running import answering, documents, run

ARGUMENTS = ("--schema", "id long, n int", "-o", "header=true", "--partition-by", "day=int")


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


@pytest.mark.slow
def test_repair(out: str) -> None:
    assert run("repair", out).stdout == "Nothing to repair\n"
    Path(out, layout.RETIRED).rmdir()
    plan = run("repair", out, "--dry-run").stdout
    assert plan == f"Would do\nfinding\tstep\terror\nmissing-directory\tcreate the directory '{layout.RETIRED}'\t\n"
    assert not Path(out, layout.RETIRED).exists()
    assert documents("repair", out, "--dry-run")[0]["dry_run"] is True
    result = run("repair", out)
    assert result.stdout.startswith("Done\n")
    assert result.stderr == f"This takes 1 step\n  create the directory '{layout.RETIRED}'\n"
    assert Path(out, layout.RETIRED).exists()


@pytest.mark.slow
def test_giving_up_is_asked_for(out: str) -> None:
    gone = ftfile.open(out).files()[0].path
    Path(out, gone).unlink()
    assert "Nothing that can be repaired automatically" in run("repair", out, code=1).stdout
    assert "--yes" in run("repair", out, "--give-up", gone, code=2).stderr
    assert ftfile.open(out).version() == 2
    (report,) = documents("repair", out, "--give-up", gone, "--yes")
    assert [step["code"] for step in report["steps"]] == ["missing-part"]
    assert ftfile.open(out).count() == 10
    assert "not known to be lost" in run("repair", out, "--give-up", "nothing", code=2).stderr


@pytest.mark.slow
def test_quarantine_needs_no_yes(out: str) -> None:
    Path(out, "foreign.json").write_text("mine")
    assert "step" in run("repair", out, "--quarantine", "foreign.json").stderr
    assert not Path(out, "foreign.json").exists()


@pytest.fixture
def foreign(tmp_path: Path) -> str:
    path = tmp_path / "day=1"
    path.mkdir()
    (path / "a.csv").write_text("id,n\n1,1\n2,1\n")
    (path / "_b.csv.pending").write_text("id,n\n3,1\n")
    return str(tmp_path)


def test_migrate(foreign: str) -> None:
    assert "not finished" in run("migrate", foreign, *ARGUMENTS, code=2).stderr
    arguments = (*ARGUMENTS, "--leave-unfinished")
    summary = "1 file of csv with 2 rows, 13 B, written by flink"
    columns = "columns\tid: bigint, n: int\ncolumns in the paths\tday: int\n"
    dry = run("migrate", foreign, *arguments, "--dry-run").stdout
    assert dry.startswith(f"Would record {summary}\n{columns}")
    assert "_b.csv.pending" in dry
    result = run("migrate", foreign, *arguments, code=2)
    assert f"This records {summary}\nColumns: id: bigint, n: int; in the paths: day: int\n" in result.stderr
    assert "--yes" in result.stderr
    (report,) = documents("migrate", foreign, *arguments, "--yes")
    assert (report["version"], report["rows"], report["left_out"][0]["moved"]) == (0, 2, False)
    assert run("cat", foreign, "--format", "csv").stdout.splitlines()[1:] == ["1,1,1", "2,1,1"]
    assert documents("history", foreign)[0]["operation"] == "migrate"
    for again in (run("migrate", foreign, *arguments), run("migrate", foreign, *arguments, "--dry-run")):
        assert again.stdout == f"Already migrated, as version 0: {summary}. Nothing is recorded again\n{columns}"
    assert "\noperation\tmigrate\n" in run("show", foreign, 0).stdout
    assert documents("show", foreign, "day=1/a.csv")[0]["operation"] == "migrate"
    assert run("migrate", foreign, "--undo", "--dry-run").stdout == "The migration can be undone\n"
    assert "--yes" in run("migrate", foreign, "--undo", code=2).stderr
    assert run("migrate", foreign, "--undo", "--yes").stdout == "Undone; 0 files moved back\n"
    assert "was not migrated" in run("migrate", foreign, "--undo", code=2).stderr
    assert run("migrate", foreign, *arguments, "--yes").stdout.startswith(
        f"Recorded {summary}, as version 0\n{columns}"
    )
    assert documents("migrate", foreign, "--undo", "--yes") == [{"put_back": [], "dry_run": False}]


def test_a_file_is_no_directory(foreign: str) -> None:
    path = f"{foreign}/day=1/a.csv"
    for options in ((), ("--dry-run",), ("--undo",)):
        assert (
            run("migrate", path, *options, code=2).stderr
            == f"ftfile: path={path!r} is a file, not a directory: give the directory\n"
        )


@pytest.mark.packages
@pytest.mark.slow
def test_nothing_is_drawn_over_the_question(foreign: str) -> None:
    question, result = answering("y", "migrate", foreign, *ARGUMENTS, "--leave-unfinished")
    assert question.endswith("Migrate? [y/N]: ")
    assert "\x1b[?25l" in question.partition("This records")[0], "a progress bar was shown"
    assert question.count("\x1b[?25l") == question.count("\x1b[?25h"), "the cursor is shown again"
    assert "Recorded 1 file of csv" in result
