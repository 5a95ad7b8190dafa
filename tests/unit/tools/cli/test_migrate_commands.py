"""The command `migrate`: preview, question, migration, and undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.tools.cli.running import answering, documents, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def out(tmp_path: Path) -> str:
    path = tmp_path / "day=1"
    path.mkdir()
    (path / "a.csv").write_text("id,n\n1,1\n2,1\n")
    (path / "_b.csv.pending").write_text("id,n\n3,1\n")
    return str(tmp_path)


ARGUMENTS = ("--schema", "id long, n int", "-o", "header=true", "--partition-by", "day=int")


def test_migrate(out: str) -> None:
    assert "not finished" in run("migrate", out, *ARGUMENTS, code=2).stderr
    arguments = (*ARGUMENTS, "--leave-unfinished")
    summary = "1 file of csv with 2 rows, 13 B, written by flink"
    columns = "columns\tid: bigint, n: int\ncolumns in the paths\tday: int\n"
    dry = run("migrate", out, *arguments, "--dry-run").stdout
    assert dry.startswith(f"Would record {summary}\n{columns}")
    assert "_b.csv.pending" in dry
    result = run("migrate", out, *arguments, code=2)
    assert f"This records {summary}\nColumns: id: bigint, n: int; in the paths: day: int\n" in result.stderr
    assert "--yes" in result.stderr
    (report,) = documents("migrate", out, *arguments, "--yes")
    assert (report["version"], report["rows"], report["left_out"][0]["moved"]) == (0, 2, False)
    assert run("cat", out, "--format", "csv").stdout.splitlines()[1:] == ["1,1,1", "2,1,1"]
    assert documents("history", out)[0]["operation"] == "migrate"
    for again in (run("migrate", out, *arguments), run("migrate", out, *arguments, "--dry-run")):
        assert again.stdout == f"Already migrated, as version 0: {summary}. Nothing is recorded again\n{columns}"
    assert "\noperation\tmigrate\n" in run("show", out, 0).stdout
    assert documents("show", out, "day=1/a.csv")[0]["operation"] == "migrate"
    assert run("migrate", out, "--undo", "--dry-run").stdout == "The migration can be undone\n"
    assert "--yes" in run("migrate", out, "--undo", code=2).stderr
    assert run("migrate", out, "--undo", "--yes").stdout == "Undone; 0 files moved back\n"
    assert "was not migrated" in run("migrate", out, "--undo", code=2).stderr
    assert run("migrate", out, *arguments, "--yes").stdout.startswith(f"Recorded {summary}, as version 0\n{columns}")
    assert documents("migrate", out, "--undo", "--yes") == [{"put_back": [], "dry_run": False}]


def test_a_file_is_no_directory(out: str) -> None:
    path = f"{out}/day=1/a.csv"
    for options in ((), ("--dry-run",), ("--undo",)):
        assert (
            run("migrate", path, *options, code=2).stderr
            == f"ftfile: path={path!r} is a file, not a directory: give the directory\n"
        )


@pytest.mark.packages
@pytest.mark.slow
def test_nothing_is_drawn_over_the_question(out: str) -> None:
    question, result = answering("y", "migrate", out, *ARGUMENTS, "--leave-unfinished")
    assert question.endswith("Migrate? [y/N]: ")
    assert "\x1b[?25l" in question.partition("This records")[0], "a progress bar was shown"
    assert question.count("\x1b[?25l") == question.count("\x1b[?25h"), "the cursor is shown again"
    assert "Recorded 1 file of csv" in result
