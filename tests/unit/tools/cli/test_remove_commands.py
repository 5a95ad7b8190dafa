"""The commands `vacuum`, `expire`, `drop`, `delete`, `restore` and `undo`: preview, question, execution, and report."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.unit.tools.cli.running import documents, run


def made_old(path: str, days: float) -> None:
    """Set the modification times of all files and directories to some days ago."""
    then = time.time() - days * 86_400
    for file in Path(path).rglob("*"):
        os.utime(file, (then, then))


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
