"""The commands `repair`, `drop`, `delete` and `restore`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ftfile
from ftfile.log.format import layout
from tests.unit.tools.cli.running import documents, run


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


@pytest.mark.slow
def test_drop(out: str) -> None:
    where = ("--where", "month = '7'")
    plan = run("drop", out, *where, "--dry-run").stdout
    assert plan.startswith("Would remove 6 rows in 3 files of ")
    assert documents("drop", out, *where, "--dry-run")[0]["dry_run"] is True
    assert "--yes" in run("drop", out, *where, code=2).stderr
    assert ftfile.open(out).version() == 2
    assert run("drop", out, *where, "--yes").stdout == "Removed 6 rows in 3 files, in version 3\n"
    assert run("drop", out, *where).stdout == "Nothing to remove\n"
    assert documents("drop", out, *where)[0]["files_removed"] == 0
    assert "not one of the partition columns" in run("drop", out, "--where", "id = 7", code=2).stderr
    assert run("drop", out, "--where", "all", "--yes").stdout == "Removed 6 rows in 3 files, in version 4\n"


@pytest.mark.slow
def test_delete(out: str) -> None:
    (row, *_) = ftfile.open(out).to_arrow().to_pylist()
    where, count = ("--where", f"id = {row['id']}"), ftfile.open(out).count(where=f"id = {row['id']}")
    plan = run("delete", out, *where, "--dry-run").stdout
    (document,) = documents("delete", out, *where, "--dry-run")
    assert (document["dry_run"], document["rows_removed"]) == (True, count)
    assert plan.startswith(f"Would remove {count} row{'s' if count > 1 else ''} in ")
    asked = run("delete", out, *where, code=2).stderr
    assert "This removes" in asked
    assert "--yes" in asked
    assert ftfile.open(out).version() == 2
    assert run("delete", out, *where, "--yes", "--threads", 1).stdout.endswith(", in version 3\n")
    assert ftfile.open(out).count() == 12 - count
    assert run("delete", out, *where).stdout == "Nothing to remove\n"
    assert "not one of the columns" in run("delete", out, "--where", "nothing = 7", code=2).stderr


def test_a_delete_says_what_stays(out: str) -> None:
    where = ("--where", "id < 2 AND month = '7'")
    assert "of these files are kept, in" in run("delete", out, *where, "--dry-run").stdout


def test_somebody_who_is_there_is_asked(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.tools.cli.change.is_watched", lambda: True)
    command = ("drop", out, "--where", "all")
    assert "Nothing was changed" in run(*command, answer="n\n", code=2).stderr
    assert "interrupted" in run(*command, answer="", code=130).stderr, "Ctrl-C, or the end of the input"
    assert ftfile.open(out).count() == 12
    assert "Removed 12 rows" in run(*command, answer="y\n").stdout


@pytest.mark.slow
def test_restore(out: str) -> None:
    ftfile.drop(out, "month = '7'")
    plan = run("restore", out, "--version", 2, "--dry-run").stdout
    assert plan == "Would restore version 2: 6 rows in 3 files are restored, 0 rows in 0 files are removed\n"
    assert documents("restore", out, "--version", 2, "--dry-run")[0]["dry_run"] is True
    assert "--yes" in run("restore", out, "--version", 2, code=2).stderr
    assert ftfile.open(out).count() == 6
    assert run("restore", out, "--version", 2, "--yes").stdout.startswith("Restored version 2 as version 4: 6 rows")
    assert ftfile.open(out).count() == 12
    assert run("restore", out, "--version", 2).stdout == "The newest version has the rows of version 2\n"
    assert "either a version" in run("restore", out, code=2).stderr


@pytest.mark.slow
def test_undo(out: str) -> None:
    ftfile.drop(out, "month = '7'")
    plan = run("undo", out, "--dry-run").stdout
    assert plan == "Would undo version 3: 6 rows in 3 files are restored, 0 rows in 0 files are removed\n"
    assert "--yes" in run("undo", out, code=2).stderr
    assert ftfile.open(out).count() == 6
    assert run("undo", out, "--yes").stdout.startswith("Undid version 3 as version 4: 6 rows in 3 files are restored")
    assert ftfile.open(out).count() == 12
    assert documents("undo", out, "--dry-run")[0]["undone_version"] == 4


def test_a_version_that_cannot_be_restored(out: str) -> None:
    gone = ftfile.open(out).files()[0]
    ftfile.drop(out, "all")
    for file in Path(out, layout.RETIRED).iterdir():
        file.unlink()
    text = run("restore", out, "--version", 2, "--dry-run", code=1).stdout
    assert "cannot be restored: 6 files" in text
    assert gone.path in text
    for answer in ((), ("--yes",)):
        result = run("restore", out, "--version", 2, *answer, code=5)
        assert (
            result.stderr
            == "Version 2 cannot be restored: vacuum or another program deleted files of it. Nothing was changed\n"
        )
        assert gone.path in result.stdout
        assert "Restored" not in result.stdout
    assert len(json.loads(run("restore", out, "--version", 2, "--json", code=5).stdout)["missing"]) == 6
    assert ftfile.open(out).version() == 3
