"""`repair` and `drop`."""

from __future__ import annotations

from pathlib import Path

import ftfile
from ftfile.commit.format import layout
from tests.unit.cli.running import documents, run


def test_repair(out: str) -> None:
    assert run("repair", out).stdout == "Nothing to mend\n"
    Path(out, layout.RETIRED).rmdir()
    plan = run("repair", out, "--dry-run").stdout
    assert plan == f"Would do\nfinding\tstep\terror\nmissing-directory\tmake the directory '{layout.RETIRED}'\t\n"
    assert not Path(out, layout.RETIRED).exists()
    assert documents("repair", out, "--dry-run")[0]["dry_run"] is True
    result = run("repair", out)
    assert result.stdout.startswith("Done\n")
    assert result.stderr == f"This takes 1 step\n  make the directory '{layout.RETIRED}'\n"
    assert Path(out, layout.RETIRED).exists()


def test_giving_up_is_asked_for(out: str) -> None:
    gone = ftfile.open(out).files()[0].path
    Path(out, gone).unlink()
    assert "Nothing that can be mended by itself" in run("repair", out, code=1).stdout
    assert "--yes" in run("repair", out, "--give-up", gone, code=2).stderr
    assert ftfile.open(out).version() == 2
    (report,) = documents("repair", out, "--give-up", gone, "--yes")
    assert [step["code"] for step in report["steps"]] == ["missing-part"]
    assert ftfile.open(out).count() == 10
    assert "not known to be lost" in run("repair", out, "--give-up", "nothing", code=2).stderr


def test_quarantine_needs_no_yes(out: str) -> None:
    Path(out, "foreign.json").write_text("mine")
    assert "step" in run("repair", out, "--quarantine", "foreign.json").stderr
    assert not Path(out, "foreign.json").exists()


def test_drop(out: str) -> None:
    where = ("--where", "month = '7'")
    plan = run("drop", out, *where, "--dry-run").stdout
    assert plan.startswith("Would remove 6 rows in 3 files of ")
    assert documents("drop", out, *where, "--dry-run")[0]["dry_run"] is True
    assert "--yes" in run("drop", out, *where, code=2).stderr
    assert ftfile.open(out).version() == 2
    assert run("drop", out, *where, "--yes").stdout == "Removed 6 rows in 3 files, in version 3\n"
    assert run("drop", out, *where).stdout == "Nothing to remove\n"
    assert documents("drop", out, *where)[0]["files"] == 0
    assert "none of the partition columns" in run("drop", out, "--where", "id = 7", code=2).stderr
    assert run("drop", out, "--where", "all", "--yes").stdout == "Removed 6 rows in 3 files, in version 4\n"
